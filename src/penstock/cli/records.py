"""Records as text: what `topics produce` and `topics consume` do with bytes."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import ConfigError, LogError, SerializationError
from penstock.log.base import TopicLog, TopicPartition
from penstock.serde import Serdes
from penstock.serde.partitioner import partition_for
from penstock.serde.windowed import Windowed

__all__ = ["Consumer", "Producer", "append_records", "line_of"]

_FLUSH_RECORDS = 10_000
_INTEGERS = ("long", "integer", "short")
_FLOATS = ("double", "float")


class Producer:
    """Encodes text by the formats and appends by the thousand.

    A record without a key goes to the partitions in turn.
    """

    def __init__(
        self, log: TopicLog, topic: str, key_format: str, value_format: str, *, partition: int | None = None
    ) -> None:
        self._log, self._topic = log, topic
        self._partitions = log.partitions(topic)
        if partition is not None and not 0 <= partition < self._partitions:
            raise LogError(f"{topic} has no partition {partition}", hint=f"It has {self._partitions}, from 0 on.")
        self._partition = partition
        self._key, self._value = Serdes.of(key_format), Serdes.of(value_format)
        self._waiting: list[tuple[int, int, bytes | None, bytes | None]] = []
        self.sent = 0

    def add(self, key: str | None, value: str | None, timestamp_ms: int) -> None:
        """Takes one record; raises SerializationError when the text does not fit the format."""
        key_bytes, value_bytes = _encode(self._key, key, "key"), _encode(self._value, value, "value")
        target = self._partition
        if target is None:
            number = self.sent + len(self._waiting)
            target = number % self._partitions if key_bytes is None else partition_for(key_bytes, self._partitions)
        self._waiting.append((target, timestamp_ms, key_bytes, value_bytes))
        if len(self._waiting) >= _FLUSH_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Appends what waits, in one transaction."""
        if self._waiting:
            append_records(self._log, self._topic, self._waiting)
            self.sent += len(self._waiting)
            self._waiting = []


def append_records(log: TopicLog, topic: str, records: Sequence[tuple[int, int, bytes | None, bytes | None]]) -> None:
    """Appends (partition, timestamp, key, value) rows in one transaction."""
    with log.transaction("") as transaction:
        for partition in sorted({record[0] for record in records}):
            rows = [record for record in records if record[0] == partition]
            batch = pa.RecordBatch.from_arrays(
                [
                    pa.array([row[1] for row in rows], pa.int64()),
                    pa.array([row[2] for row in rows], pa.large_binary()),
                    pa.array([row[3] for row in rows], pa.large_binary()),
                ],
                ["timestamp", "key", "value"],
            )
            transaction.append(topic, partition, batch)


def _encode(serde: Any, text: str | None, what: str) -> bytes | None:
    if text is None:
        return None
    value: Any = text
    try:
        if serde.name in _INTEGERS:
            value = int(text)
        elif serde.name in _FLOATS:
            value = float(text)
        elif serde.name == "bytes":
            value = text.encode()
        elif serde.name != "string":
            value = json.loads(text)
    except ValueError as error:
        raise SerializationError(
            f"the {what} {text!r} is no {serde.name}: {error}", hint="Check the format."
        ) from error
    encoded: bytes | None = serde.serialize(value)
    return encoded


class Consumer:
    """Reads a topic's partitions and decodes by the formats."""

    def __init__(
        self,
        log: TopicLog,
        topic: str,
        key_format: str,
        value_format: str,
        *,
        start: str = "beginning",
        span: tuple[int | None, int | None] = (None, None),
        partition: int | None = None,
    ) -> None:
        self._log, self._topic, self._span = log, topic, span
        self._key, self._value = Serdes.of(key_format), Serdes.of(value_format)
        count = log.partitions(topic)
        if partition is not None and not 0 <= partition < count:
            raise LogError(f"{topic} has no partition {partition}", hint=f"It has {count}, from 0 on.")
        numbers = range(count) if partition is None else [partition]
        self._next = {number: self._first(number, start) for number in numbers}
        self._seen = {TopicPartition(topic, number): offset for number, offset in self._next.items()}

    def _first(self, partition: int, start: str) -> int:
        beginning = self._log.beginning_offset(self._topic, partition)
        end = self._log.end_offset(self._topic, partition)
        if self._span[0] is not None:
            found = self._log.offset_for_time(self._topic, partition, self._span[0])
            return end if found is None else found.offset
        if start == "beginning":
            return beginning
        if start == "end":
            return end
        if not start.isdigit():
            raise ConfigError(f"--from is {start!r}", hint="Use beginning, end, or an offset such as 42.")
        return min(max(int(start), beginning), end)

    def poll(self) -> Iterator[dict[str, Any]]:
        """What is there at present, partition by partition."""
        self._seen = ends = self._log.end_offsets([self._topic])
        for partition in self._next:
            end = ends[TopicPartition(self._topic, partition)]
            while self._next[partition] < end:
                fetched = self._log.read(self._topic, partition, self._next[partition])
                self._next[partition] = fetched.next_offset
                for row in fetched.records.to_pylist():
                    if self._wanted(row["timestamp"]):
                        yield self._decoded(partition, row)

    def wait(self, timeout_s: float) -> None:
        """Waits until something is written."""
        self._log.wait_for_data(self._seen, timeout_s)

    def _wanted(self, timestamp: int) -> bool:
        first, end = self._span
        return (first is None or timestamp >= first) and (end is None or timestamp < end)

    def _decoded(self, partition: int, row: dict[str, Any]) -> dict[str, Any]:
        return {
            "partition": partition,
            "offset": row["offset"],
            "timestamp": row["timestamp"],
            "key": self._decode(self._key, row["key"], f"{partition}@{row['offset']}: the key"),
            "value": self._decode(self._value, row["value"], f"{partition}@{row['offset']}: the value"),
            "headers": [(h["key"], h["value"]) for h in row["headers"] or ()],
        }

    def _decode(self, serde: Any, data: bytes | None, what: str) -> Any:
        try:
            return serde.deserialize(data)
        except SerializationError as error:
            raise SerializationError(
                f"{self._topic}-{what} is no {serde.name}: {error.message}",
                hint="Give --key-format and --value-format (bytes shows anything).",
            ) from error


def line_of(record: dict[str, Any], *, headers: bool, as_json: bool) -> str:
    """A record as one line: JSON, or ``partition@offset  time  key  value``."""
    if as_json:
        shown = {**record, "key": _plain(record["key"]), "value": _plain(record["value"])}
        shown["headers"] = [[name, None if value is None else _text(value)] for name, value in record["headers"]]
        return json.dumps(shown, ensure_ascii=False)
    when = dt.datetime.fromtimestamp(record["timestamp"] / 1000, dt.UTC)
    parts = [
        f"{record['partition']}@{record['offset']}",
        when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        _shown(record["key"]),
        _shown(record["value"]),
    ]
    if headers:
        parts.append(", ".join(f"{name}={_shown(value)}" for name, value in record["headers"]))
    return "  ".join(parts)


def _plain(value: Any) -> Any:
    """As JSON knows it."""
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, Windowed):
        return {"key": _plain(value.key), "start": value.window.start, "end": value.window.end}
    try:
        json.dumps(value)
    except TypeError:
        return str(value)
    return value


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
