"""Records as tasks see them: a batch of one partition, and the source record behind a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.log.base import RECORD_SCHEMA

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BytesColumn",
    "ExtractorRecord",
    "Headers",
    "RawRecord",
    "RecordContext",
    "TopicBatch",
    "headers_of",
    "record_context",
]

BytesColumn = pa.Array | list[bytes | None]
"""Bytes of many rows, or of few."""

_FEW = 64  # records; more are columns from the beginning

Headers = tuple[tuple[str, bytes | None], ...]


class RawRecord(NamedTuple):
    """A record as bytes; those of a test have partition 0."""

    topic: str
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int = 0


class TopicBatch:
    """Records of one partition, in offset order. Internal topics go by their logical names.

    Args:
        topic: The topic.
        partition: The partition.
        records: The records as columns (RECORD_SCHEMA).

    Attributes:
        rows: The records one by one, if the batch was made of a few; None: they are columns alone.
        places: The places of the records among those of all batches that are processed together; None: by time, or one
            batch after the other.
    """

    __slots__ = ("_records", "partition", "places", "rows", "topic")

    def __init__(self, topic: str, partition: int, records: pa.RecordBatch) -> None:
        self.topic = topic
        self.partition = partition
        self.rows: Sequence[RawRecord] | None = None
        self.places: NDArray[np.int64] | None = None
        self._records = records

    @classmethod
    def of_rows(cls, rows: Sequence[RawRecord], places: NDArray[np.int64] | None = None) -> TopicBatch:
        """Return a batch of these records; few become columns only if those are asked for."""
        few = len(rows) <= _FEW
        batch = cls(rows[0].topic, rows[0].partition, None if few else _columns_of(rows))
        batch.rows = rows if few else None
        batch.places = places
        return batch

    def __len__(self) -> int:
        return len(self._records) if self.rows is None else len(self.rows)

    @property
    def records(self) -> pa.RecordBatch:
        """The records as columns (RECORD_SCHEMA)."""
        if self._records is None:
            self._records = _columns_of(self.rows or ())
        return self._records

    def timestamps(self) -> NDArray[np.int64]:
        """Return the times of the records."""
        if self.rows is None:
            times: NDArray[np.int64] = self._records.column("timestamp").to_numpy(zero_copy_only=False)
            return times
        return np.array([row.timestamp for row in self.rows], np.int64)

    def headers(self) -> list[Headers] | None:
        """Return each record's headers; None when no record has any."""
        if self.rows is None:
            return headers_of(self._records.column("headers"))
        headers = [row.headers for row in self.rows]
        return headers if any(headers) else None


class RecordContext(NamedTuple):
    """The source record behind a row; Kafka's ``RecordContext``. Offset -1: there is none (punctuation)."""

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    raw_key: bytes | None = None
    raw_value: bytes | None = None


class ExtractorRecord(NamedTuple):
    """The record that a timestamp extractor gets."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers


def _columns_of(rows: Sequence[RawRecord]) -> pa.RecordBatch:
    headers = [[{"key": name, "value": value} for name, value in row.headers] or None for row in rows]
    columns = [
        [row.offset for row in rows],
        [row.timestamp for row in rows],
        [row.key for row in rows],
        [row.value for row in rows],
        headers,
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)


def headers_of(array: pa.Array) -> list[Headers] | None:
    """Return each record's headers; None when no record has any."""
    if array.null_count == len(array):
        return None
    return [
        () if one is None else tuple((header["key"], header["value"]) for header in one) for one in array.to_pylist()
    ]


def record_context(batch: TopicBatch, row: int) -> RecordContext:
    """Return the record at a row of a batch."""
    if batch.rows is not None:
        raw = batch.rows[row]
        return RecordContext(raw.topic, raw.partition, raw.offset, raw.timestamp, raw.headers, raw.key, raw.value)
    records = batch.records
    headers = records.column("headers")[row].as_py()
    return RecordContext(
        batch.topic,
        batch.partition,
        records.column("offset")[row].as_py(),
        records.column("timestamp")[row].as_py(),
        tuple((h["key"], h["value"]) for h in headers) if headers else (),
        records.column("key")[row].as_py(),
        records.column("value")[row].as_py(),
    )
