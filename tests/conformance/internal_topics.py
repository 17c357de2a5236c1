"""The records of internal topics, byte by byte: repartition, subscription and response topics, and changelogs.

Of changelogs less is compared, where Penstock's differ on purpose (docs/how-to/changelogs.md):

- A commit writes the last change of each row of a store, in the order of the rows, where Kafka Streams writes each put. So
  the last record of each key that an input caused is compared.
- Puts that come too late for a windowed or versioned store change nothing, and are not logged.
- A store of the keys used last logs the uses and the keys that had to go, without which it could not be restored.
- Kafka's suppress buffers send no timestamps.
"""

from __future__ import annotations

from typing import Any

from compare import first_difference

__all__ = ["InternalTopics"]

Row = dict[str, Any]


class InternalTopics:
    """What a case says of internal topics, and what a driver has written to them."""

    def __init__(self, case: Row) -> None:
        self._outputs = set(case["topics"])
        self._recorded = case["internal_topics"]
        stores = {n["store"]: n for n in case["topology"] if "store" in n}
        self._stores = {f"app-{name}-changelog": n for name, n in stores.items()}
        self._newest: dict[str, dict[str, Row]] = {}
        self._times: dict[str, int] = {}

    def difference(self, batch: list[int], driver: Any) -> str | None:
        """The first difference in what the inputs of a batch caused."""
        expected = self.expected(batch)
        written = self.written(driver, expected)
        what = f"internal topics of inputs {batch[0]}..{batch[-1]}"
        return first_difference(what, self.refused(expected, written), written)

    def expected(self, batch: list[int]) -> dict[str, list[Row]]:
        """What the inputs of a batch caused in each topic."""
        found: dict[str, list[Row]] = {}
        for topic, rows in self._recorded.items():
            caused = [{k: v for k, v in row.items() if k != "input"} for row in rows if row["input"] in batch]
            if caused:
                found[topic] = _last_of_each(topic, caused)
        return found

    def written(self, driver: Any, expected: dict[str, list[Row]]) -> dict[str, list[Row]]:
        """What a driver has written to each topic since the last call; without what `expected` may lack."""
        found: dict[str, list[Row]] = {}
        for topic in sorted(driver.produced_topic_names() - self._outputs):
            rows = []
            while (record := driver.read_raw(topic)) is not None:
                row = {"key": _hex(record.key), "value": _hex(record.value), "timestamp": record.timestamp}
                if record.headers:
                    row["headers"] = [[name, _hex(value)] for name, value in record.headers]
                rows.append(row)
            if any(row["timestamp"] is None for row in self._recorded.get(topic, ())):
                rows = [row | {"timestamp": None} for row in rows]
            rows = self._without_uses(topic, _last_of_each(topic, rows), expected.get(topic, []))
            if rows:
                found[topic] = rows
        return found

    def refused(self, expected: dict[str, list[Row]], written: dict[str, list[Row]]) -> dict[str, list[Row]]:
        """What is expected, without puts that come too late for their store and that are not written."""
        return {
            topic: left
            for topic, rows in expected.items()
            if (left := [row for row in rows if not self._is_late(topic, row) or row in written.get(topic, ())])
        }

    def _without_uses(self, topic: str, rows: list[Row], expected: list[Row]) -> list[Row]:
        n = self._stores.get(topic, {})
        if "max" not in n:
            return rows
        keys = {row["key"] for row in expected}
        newest = self._newest.setdefault(topic, {})
        kept = [row for row in rows if row["key"] in keys or not self._is_use(newest.get(row["key"]), row)]
        newest.update((row["key"], row) for row in rows)
        return kept

    @staticmethod
    def _is_use(before: Row | None, row: Row) -> bool:
        return before is not None and (row["value"] is None or row["value"] == before["value"])

    def _is_late(self, topic: str, row: Row) -> bool:
        n = self._stores.get(topic, {})
        keeps = n.get("history_ms", n.get("versioned_history_ms", n.get("retention_ms")))
        if keeps is None:
            return False
        time = row["timestamp"] if "retention_ms" not in n else int(row["key"][-24:-8], 16)
        if n.get("type", "").startswith("session"):
            time = int(row["key"][-32:-16], 16)
        self._times[topic] = max(self._times.get(topic, 0), time)
        return time <= self._times[topic] - keeps


def _last_of_each(topic: str, rows: list[Row]) -> list[Row]:
    if not topic.endswith("-changelog"):
        return rows
    newest = {row["key"]: row for row in rows}
    return [newest[key] for key in sorted(newest)]


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
