"""Records as tasks see them: a batch of one partition, and the source record behind a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

__all__ = ["ExtractorRecord", "Headers", "RawRecord", "RecordContext", "TopicBatch", "headers_of", "record_context"]

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


@dataclass(frozen=True)
class TopicBatch:
    """Records of one partition, in offset order (RECORD_SCHEMA). Internal topics go by their logical names."""

    topic: str
    partition: int
    records: pa.RecordBatch


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


def headers_of(array: pa.Array) -> list[Headers] | None:
    """Return each record's headers; None when no record has any."""
    if array.null_count == len(array):
        return None
    return [
        () if one is None else tuple((header["key"], header["value"]) for header in one) for one in array.to_pylist()
    ]


def record_context(batch: TopicBatch, row: int) -> RecordContext:
    """Return the record at a row of a batch."""
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
