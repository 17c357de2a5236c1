"""The records of a running connector, as they pass through its topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.connect.connectors import known_plugins
from penstock.connect.data import Header, Headers, SinkRecord
from penstock.connect.delivery import Converters
from penstock.errors import PenstockError
from penstock.log.base import TopicLog, TopicPartition

__all__ = ["Tap"]

MOST = 500


class Tap:
    """A reader of a connector's topics without its group, from their ends on or from their beginnings.

    Args:
        log: The log.
        topics: The topics.
        config: The connector's config, whose converters read the records. Those of the worker cannot be seen from
            outside: where the connector names none, JSON and text are shown as they are.
        from_start: Begin with the oldest records.
    """

    def __init__(
        self, log: TopicLog, topics: Iterable[str], config: Mapping[str, Any], *, from_start: bool = False
    ) -> None:
        self._log = log
        named = [role for role in ("key", "value", "header") if config.get(f"{role}.converter")]
        self._named = frozenset(named)
        self._converters = Converters.of(config, known_plugins()) if named else None
        self._positions: dict[TopicPartition, int] = {}
        for topic in topics:
            for number in range(log.partitions(topic)):
                tp = TopicPartition(topic, number)
                first = log.beginning_offset if from_start else log.end_offset
                self._positions[tp] = first(topic, number)

    def read(self) -> Iterator[SinkRecord]:
        """Yield the records that have come since the last call."""
        for tp, position in sorted(self._positions.items()):
            fetched = self._log.read(tp.topic, tp.partition, position, MOST)
            for row in fetched.records.to_pylist():
                record = self._record(tp, row)
                self._positions[tp] = row["offset"] + 1  # one record at a time: the caller may end after any
                yield record
            self._positions[tp] = fetched.next_offset

    def _record(self, tp: TopicPartition, row: Mapping[str, Any]) -> SinkRecord:
        headers = [Header(each["key"], self._part("header", tp.topic, each["value"])) for each in row["headers"] or ()]
        return SinkRecord(
            topic=tp.topic,
            partition=tp.partition,
            offset=row["offset"],
            timestamp=row["timestamp"],
            key=self._part("key", tp.topic, row["key"]),
            value=self._part("value", tp.topic, row["value"]),
            headers=Headers(headers),
        )

    def _part(self, role: str, topic: str, data: bytes | None) -> Any:
        if data is None or self._converters is None or role not in self._named:
            return _plain(data)
        try:
            return getattr(self._converters, role).to_connect(topic, data).value
        except PenstockError:
            return data  # what cannot be read is shown as it is


def _plain(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
