"""Preparation of records for Kafka: types and timestamps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest

import pyarrow as pa

from penstock.clock import unix_ms
from penstock.errors import LogError
from penstock.log.base import TopicPartition
from penstock.log.stored import StoredRecords

__all__ = ["AnyPart", "Part", "Placed", "checked", "joined"]

Part = tuple[str, int, pa.RecordBatch]  # topic, partition, records
AnyPart = tuple[str, int, pa.RecordBatch | StoredRecords]
Placed = tuple[TopicPartition, pa.RecordBatch | StoredRecords]
_MOST_JOINED = 10_000  # rows that are copied into one batch
_WANTED = {"timestamp": pa.int64(), "key": pa.large_binary(), "value": pa.large_binary()}


def checked(topic: str, partition: int, records: pa.RecordBatch) -> pa.RecordBatch:
    """Return records with columns of the right types; missing columns become null, missing times become now.

    Raises:
        LogError: A column cannot be cast.
    """
    names = set(records.schema.names)
    try:
        for name, kind in _WANTED.items():
            if name not in names:
                records = records.append_column(name, pa.nulls(records.num_rows, kind))
            elif records.column(name).type != kind:
                index = records.schema.get_field_index(name)
                records = records.set_column(index, name, records.column(name).cast(kind))
    except pa.ArrowInvalid as error:
        raise LogError(f"{topic}-{partition}: records of the wrong types: {error}", hint="use RECORD_SCHEMA") from error
    if records.column("timestamp").null_count:
        times = records.column("timestamp").fill_null(unix_ms())
        records = records.set_column(records.schema.get_field_index("timestamp"), "timestamp", times)
    return records


def joined(parts: Iterable[AnyPart]) -> list[Placed]:
    """Return parts in the form of the wire producers, small ones of the same partition joined.

    A produce request has one record batch of each partition, so many small parts would be many requests. The order of a
    partition's records stays. Parts of different partitions take turns, so that they share requests.
    """
    by_place: dict[TopicPartition, list[pa.RecordBatch | StoredRecords]] = {}
    for topic, partition, records in parts:
        if records.num_rows:
            by_place.setdefault(TopicPartition(topic, partition), []).append(records)
    rounds = zip_longest(*([(place, each) for each in _merged(found)] for place, found in by_place.items()))
    return [part for part in chain.from_iterable(rounds) if part is not None]


def _merged(parts: Iterable[pa.RecordBatch | StoredRecords]) -> Iterator[pa.RecordBatch | StoredRecords]:
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for part in parts:
        if isinstance(part, StoredRecords):
            yield from _one(waiting)
            yield part
            waiting, rows = [], 0
            continue
        if waiting and (rows + part.num_rows > _MOST_JOINED or part.schema != waiting[0].schema):
            yield from _one(waiting)
            waiting, rows = [], 0
        waiting.append(part)
        rows += part.num_rows
    yield from _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return [pa.concat_batches(batches)] if len(batches) > 1 else batches
