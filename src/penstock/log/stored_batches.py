"""Record batches on their way to a log: as a cluster stores them, undecoded, and the parts of a commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, pairwise, zip_longest
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from penstock.log.base import LogTransaction, TopicPartition
from penstock.log.thread_clients import CommitProducer

__all__ = [
    "BatchLog",
    "BatchProducer",
    "BatchTransaction",
    "Placed",
    "StoredBatch",
    "StoredRecords",
    "StoredStretch",
    "joined",
    "record_bytes",
    "stretches_of",
]


@dataclass(frozen=True, slots=True)
class StoredStretch:
    """Records with consecutive offsets: the first offset, and how many there are."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A record batch.

    Attributes:
        data: The whole batch in Kafka's message format 2, its records compressed as they were.
        count: The number of its records.
        stretches: The offsets of its records.
    """

    data: bytes
    count: int
    stretches: tuple[StoredStretch, ...]


@dataclass(frozen=True, slots=True)
class StoredRecords:
    """Consecutive record batches of a partition, without those of aborted transactions.

    Attributes:
        batches: The batches.
        next_offset: The offset to read next.
    """

    batches: tuple[StoredBatch, ...]
    next_offset: int

    @property
    def num_rows(self) -> int:
        """The number of records."""
        return sum(batch.count for batch in self.batches)

    @property
    def nbytes(self) -> int:
        """The size of the batches."""
        return sum(len(batch.data) for batch in self.batches)


def stretches_of(records: pa.RecordBatch) -> tuple[StoredStretch, ...]:
    """Return the stretches of the offsets of records, which are in order.

    >>> [(each.first, each.count) for each in stretches_of(pa.record_batch({"offset": [3, 4, 7]}))]
    [(3, 2), (7, 1)]
    """
    if not records.num_rows:
        return ()
    offsets = records.column("offset").to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(offsets)]
    return tuple(StoredStretch(int(offsets[begin]), end - begin) for begin, end in pairwise(edges))


@runtime_checkable
class BatchTransaction(LogTransaction, Protocol):
    """A transaction that takes record batches as they are, beside records as columns."""

    def append_stored(self, topic: str, partition: int, records: StoredRecords) -> None:
        """Add record batches; their producers and offsets are replaced."""
        ...


@runtime_checkable
class BatchProducer(CommitProducer, Protocol):
    """A `CommitProducer` that takes record batches as they are, beside records as columns."""

    def send_stored(self, tp: TopicPartition, records: StoredRecords) -> None:
        """Collect record batches for the next commit; their producers and offsets are replaced. Exactly once only."""
        ...


@runtime_checkable
class BatchLog(Protocol):
    """A log whose record batches can be read and written as they are stored: a Kafka cluster."""

    def stored(self, positions: Mapping[TopicPartition, int], most_bytes: int) -> dict[TopicPartition, StoredRecords]:
        """Read the committed record batches behind these positions, up to ``most_bytes`` of each partition.

        Partitions without new records, and those whose position is out of range, are left out.

        Raises:
            LogUnavailableError: No broker answers.
            LogError: A batch is damaged.
        """
        ...

    def transaction(self, transactional_id: str, epoch: int | None = None) -> AbstractContextManager[BatchTransaction]:
        """Begin a transaction, which commits when the block ends and writes nothing if it raises."""
        ...


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
