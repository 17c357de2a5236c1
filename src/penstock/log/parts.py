"""Parts of a commit on their way to a log: their size, and small ones joined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest

import pyarrow as pa

from penstock.log.base import TopicPartition
from penstock.log.stored import StoredRecords

__all__ = ["Placed", "joined", "record_bytes"]

Placed = tuple[TopicPartition, pa.RecordBatch | StoredRecords]
_MOST_JOINED = 10_000  # rows that are copied into one batch
_SMALL_BYTES = 1 << 16


def joined(parts: Iterable[tuple[str, int, pa.RecordBatch | StoredRecords]]) -> list[Placed]:
    """Return parts by partition, with small ones that follow each other in a partition as one.

    A commit of many looks at the inputs has as many parts. A produce request of Kafka has one record batch of each
    partition, so they would be as many requests; in the embedded log they would be as many rows. The order of a
    partition's records stays. Parts of different partitions take turns, so that they share requests.
    """
    by_place: dict[TopicPartition, list[pa.RecordBatch | StoredRecords]] = {}
    for topic, partition, records in parts:
        if records.num_rows:
            by_place.setdefault(TopicPartition(topic, partition), []).append(records)
    rounds = zip_longest(*([(tp, each) for each in _merged(pieces)] for tp, pieces in by_place.items()))
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


def record_bytes(records: pa.RecordBatch) -> int:
    """Return the size of records; of slices of small batches that of the whole batch.

    Arrow's ``nbytes`` looks at each value that a slice can see: 13 us, whatever the size, which a stream thread would
    spend several times on each handful of records.
    """
    whole = records.get_total_buffer_size()
    return int(whole if whole <= _SMALL_BYTES else records.nbytes)
