"""The records of a stream-table join that wait for late changes of the table: Kafka's time-ordered key-value buffer.

A row's key is ``time (8 bytes BE) + key + sequence number (4 bytes BE)``; its value holds the record's origin,
headers and value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, MutableMapping
from typing import NamedTuple

from penstock.state.maps import ByteMap
from penstock.state.views.retention import NUMBER
from penstock.topology.stores import StoreSpec

__all__ = ["RecordBufferView", "WaitingRecord"]

_COUNT = struct.Struct(">I")
_SIGNED_LENGTH = struct.Struct(">i")
_SOURCE = struct.Struct(">iqi")  # partition, offset, length of the topic's name
_MASK = 0x7FFFFFFF


class WaitingRecord(NamedTuple):
    """A record as bytes, and its origin."""

    time: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...]
    topic: str
    partition: int
    offset: int


class RecordBufferView:
    """Kafka's ``TimeOrderedKeyValueBuffer`` of whole records, ordered by time, key and arrival."""

    def __init__(self, spec: StoreSpec, entries: ByteMap, meta: MutableMapping[str, int]) -> None:
        self.spec = spec
        self.name = spec.name
        self._map = entries
        self._meta = meta
        self._time_name = f"{spec.name}/observed-stream-time"
        self._sequence_name = f"{spec.name}/sequence-number"

    @property
    def observed_stream_time(self) -> int:
        """The largest time of a record that was put in, -1 before the first."""
        return self._meta.get(self._time_name, -1)

    def observe(self, time: int) -> None:
        """Move the stream time on."""
        if time > self.observed_stream_time:
            self._meta[self._time_name] = time

    def add(self, records: Iterable[WaitingRecord]) -> None:
        """Add waiting records."""
        number = self._meta.get(self._sequence_name, 0)
        rows: list[bytes] = []
        values: list[bytes] = []
        for record in records:
            number = (number + 1) & _MASK
            rows.append(NUMBER.pack(record.time) + record.key + _COUNT.pack(number))
            values.append(_dump(record))
        self._meta[self._sequence_name] = number
        self._map.put_many(rows, values)

    def take_until(self, time: int) -> list[WaitingRecord]:
        """Take out the records whose time is at most this, in order."""
        if time < 0:
            return []
        rows = list(self._map.scan(None, NUMBER.pack(time + 1)))
        self._map.put_many([row for row, _ in rows], [None] * len(rows))
        return [_load(row, value) for row, value in rows]

    def until(self, time: int) -> list[tuple[bytes, WaitingRecord]]:
        """Return the records whose time is at most this, in order, each with the name of its row."""
        if time < 0:
            return []
        return [(row, _load(row, value)) for row, value in self._map.scan(None, NUMBER.pack(time + 1))]

    def remove(self, row: bytes) -> None:
        """Take out one record."""
        self._map.put_many([row], [None])

    def all(self) -> Iterator[WaitingRecord]:
        """Return the waiting records in order."""
        return (_load(row, value) for row, value in self._map.scan())


def _dump(record: WaitingRecord) -> bytes:
    topic = record.topic.encode()
    parts = [_SOURCE.pack(record.partition, record.offset, len(topic)), topic, _COUNT.pack(len(record.headers))]
    for name, value in record.headers:
        encoded = name.encode()
        parts += [_SIGNED_LENGTH.pack(len(encoded)), encoded, _SIGNED_LENGTH.pack(-1 if value is None else len(value)), value or b""]
    return b"".join([*parts, record.value])


def _load(row: bytes, data: bytes) -> WaitingRecord:
    partition, offset, length = _SOURCE.unpack_from(data)
    topic = data[_SOURCE.size : _SOURCE.size + length].decode()
    count = _SOURCE.size + length
    at = count + _COUNT.size

    def text() -> bytes | None:
        nonlocal at
        length = _SIGNED_LENGTH.unpack_from(data, at)[0]
        start = at + _SIGNED_LENGTH.size
        at = start + max(length, 0)
        return None if length < 0 else data[start:at]

    headers = tuple([((text() or b"").decode(), text()) for _ in range(_COUNT.unpack_from(data, count)[0])])
    return WaitingRecord(NUMBER.unpack_from(row)[0], row[8:-4], data[at:], headers, topic, partition, offset)
