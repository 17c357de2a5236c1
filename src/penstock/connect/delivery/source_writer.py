"""Writing of a source's records with its offsets, in one transaction or one after the other, in Kafka's format."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.base.clock import unix_ms
from penstock.connect.data.stored_offsets import (
    NOTE_HEADER,
    OffsetRecord,
    note_headers,
    note_of,
    offset_record,
    partition_id,
    stored_offset,
    with_note,
)
from penstock.connect.delivery.source_encoding import Copy, Outgoing
from penstock.errors import LogError, ProductionError
from penstock.log import Delivery
from penstock.log.base import HEADERS_TYPE, LogTransaction, TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic
from penstock.log.partitioner import partitions_for
from penstock.log.stored_batches import BatchProducer, StoredRecords
from penstock.log.thread_clients import CommitProducer, Part, ThreadClients, Writer

__all__ = ["RecordWriter", "StoredOffsets", "WritableLog", "Write"]

Partition = Mapping[str, Any]


class StoredOffsets:
    """The source offsets of one connector: an `OffsetReader` that can be written to.

    Args:
        log: The log.
        connector: The connector's name.
        topic: The topic of offsets, created if there is none.

    Example:
        >>> from penstock.log.open import open_log
        >>> log = open_log("memory://")
        >>> offsets = StoredOffsets(log, "lines")
        >>> with log.transaction("connect-lines-0") as transaction:
        ...     offsets.write(transaction, [({"filename": "in.txt"}, {"position": 8})])
        >>> offsets.offset({"filename": "in.txt"})
        {'position': 8}
    """

    def __init__(self, log: TopicLog, connector: str, topic: str = "connect-offsets") -> None:
        self._log, self._connector, self.topic = log, connector, topic
        ensure_topic(log, topic, 1, {"cleanup.policy": "compact"})
        self._by_partition: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._read_to = {n: log.beginning_offset(topic, n) for n in range(log.partitions(topic))}

    def offset(self, partition: Partition) -> dict[str, Any] | None:
        """Return the offset to go on from in a source partition; None: there is none."""
        return self.offsets([partition])[0]

    def offsets(self, partitions: Sequence[Partition]) -> list[dict[str, Any] | None]:
        """Return the offsets of several partitions, in their order."""
        self._refresh()
        pairs = [self._by_partition.get(partition_id(partition)) for partition in partitions]
        return [None if pair is None else with_note(pair[1]) for pair in pairs]

    def all(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return all source partitions with their offsets."""
        self._refresh()
        return list(self._by_partition.values())

    def write(self, transaction: LogTransaction, offsets: Sequence[tuple[Partition | None, Partition | None]]) -> None:
        """Add offsets to a transaction; None deletes one."""
        if not offsets:
            return
        now = unix_ms()
        records = [offset_record(self._connector, partition, offset) for partition, offset in offsets]
        keys, values = (pa.array(column, pa.large_binary()) for column in zip(*(r[:2] for r in records), strict=True))
        headers = pa.array([note_headers(each.note) for each in records], HEADERS_TYPE)
        columns = [pa.array([now] * len(records)), keys, values, headers]
        batch = pa.RecordBatch.from_arrays(columns, ["timestamp", "key", "value", "headers"])
        targets = partitions_for(keys, len(self._read_to))  # as Java's worker: the last record of a key counts
        for number in np.unique(targets).tolist():
            transaction.append(self.topic, number, batch.filter(pa.array(targets == number)))

    def _refresh(self) -> None:
        for number, position in self._read_to.items():
            end, at = self._log.end_offset(self.topic, number), position
            while at < end:
                fetched = self._log.read(self.topic, number, at)
                names = ("key", "value", "headers")
                for row in zip(*(fetched.records.column(name).to_pylist() for name in names), strict=True):
                    self._apply(*row)
                if fetched.next_offset <= at:
                    break
                at = fetched.next_offset
            self._read_to[number] = at

    def _apply(self, key: bytes | None, value: bytes | None, headers: Sequence[Mapping[str, Any]] | None) -> None:
        stored = stored_offset(key, value, note_of(headers))
        if stored is None or stored.connector != self._connector:
            return
        if stored.offset is not None:
            self._by_partition[partition_id(stored.partition)] = (stored.partition, stored.offset)
        else:
            self._by_partition.pop(partition_id(stored.partition), None)


_COUNTED_S = 5.0  # for so long a number of partitions holds


class WritableLog(TopicLog, ThreadClients, Protocol):
    """A topic log as both kinds of it are."""


class RecordWriter:
    """A writer of columns of records, and of source offsets.

    Args:
        log: The log.
        writer: The identity of the task: a newer writer of the same transactional id fences this one.
        offsets_topic: The topic of source offsets.
        turn: Chooses the first partition of records that have neither a key nor a partition.
    """

    def __init__(self, log: WritableLog, writer: Writer, offsets_topic: str, turn: int = 0) -> None:
        self._log = log
        self._offsets_topic = offsets_topic
        self._counts: dict[str, tuple[int, float]] = {}
        self._turn = turn
        self._producer = log.commit_producer(writer) if writer.exactly_once else None

    def prepare(
        self,
        records: Sequence[Outgoing],
        offsets: Sequence[OffsetRecord],
        copies: Sequence[Copy] = (),
    ) -> Write:
        """Prepare one write: the parts of each partition.

        Args:
            records: The records.
            offsets: The source offsets, as their topic holds them.
            copies: Records that are written as another log has them.

        Raises:
            LogError: A record is for a partition that its topic does not have.
        """
        stored = self._parts([_offsets(self._offsets_topic, offsets)] if offsets else ())
        prepared = Write(self._parts(records), stored, [_Copied(copy) for copy in copies])
        self._turn += 1
        return prepared

    def write(self, prepared: Write, sent: Callable[[], None] = lambda: None) -> None:
        """Write what was prepared.

        Args:
            prepared: What `prepare` returned.
            sent: Called when the records are sent and before they count: before the commit of their transaction, or,
                without transactions, before the source offsets are written.

        Raises:
            ProductionError: The log refuses records for good.
            FencedError: A newer writer has taken over.
            LogUnavailableError: The log is away for too long.
        """
        if self._producer is None:
            for each in prepared.of_records:
                each.first = self._log.append(*each.part)
            sent()
            for each in prepared.offsets:
                each.first = self._log.append(*each.part)
            return
        try:
            following = self._send(self._producer, prepared, sent)
        except ProductionError:
            if not any(copied.is_stored for copied in prepared.copies):
                raise
            self._producer.replace(())
            for copied in prepared.copies:
                copied.is_stored = False  # as columns, in batches that the log accepts
            following = self._send(self._producer, prepared, sent)
        prepared.note(self._producer.firsts, following)

    def _send(
        self, producer: CommitProducer, prepared: Write, sent: Callable[[], None]
    ) -> Mapping[TopicPartition, int]:
        for each in prepared.parts:
            if isinstance(each, _Copied) and each.is_stored and isinstance(producer, BatchProducer):
                producer.send_stored(each.tp, each.copy.records)
            else:
                producer.send([each.part])
        sent()
        return producer.commit({})

    def close(self) -> None:
        """Let go of connections; what was not written is forgotten."""
        if self._producer is not None:
            self._producer.close()

    def _parts(self, records: Sequence[Outgoing]) -> list[_Placed]:
        return [placed for each in records for placed in self._split(each)]

    def _split(self, records: Outgoing) -> Iterator[_Placed]:
        batch, count = _batch(records), self._partitions(records.topic)
        targets = _targets(records, batch, count, self._turn)
        for number in np.unique(targets):
            rows = np.flatnonzero(targets == number)
            part = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
            yield _Placed(records, TopicPartition(records.topic, int(number)), rows, part)

    def _partitions(self, topic: str) -> int:
        now = time.monotonic()
        counted = self._counts.get(topic)
        if counted is None or now >= counted[1]:
            counted = self._counts[topic] = self._log.partitions(topic), now + _COUNTED_S
        return counted[0]


class _Copied:
    """A copy.

    Attributes:
        copy: The copy.
        is_stored: It is written as the record batches that it is.
        first: The offset of the first record, once they are written; -1: it is not known.
    """

    __slots__ = ("copy", "first", "is_stored")

    def __init__(self, copy: Copy) -> None:
        self.copy = copy
        self.is_stored = isinstance(copy.records, StoredRecords)
        self.first = -1

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return self.copy.tp

    @property
    def count(self) -> int:
        """The number of records."""
        return self.copy.count

    @property
    def part(self) -> Part:
        """What a log takes."""
        return self.tp.topic, self.tp.partition, self.copy.columns()


class _Placed:
    """Rows of columns for one partition.

    Attributes:
        source: The columns.
        tp: The partition.
        rows: The numbers of the rows.
        batch: The rows.
        first: The offset of the first one, once they are written; -1: it is not known.
    """

    __slots__ = ("batch", "first", "rows", "source", "tp")

    def __init__(self, source: Outgoing, tp: TopicPartition, rows: NDArray[np.int64], batch: pa.RecordBatch) -> None:
        self.source, self.tp, self.rows, self.batch = source, tp, rows, batch
        self.first = -1

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.rows)

    @property
    def part(self) -> Part:
        """What a log takes."""
        return self.tp.topic, self.tp.partition, self.batch


class Write:
    """One write: records and source offsets by partition, and copies."""

    def __init__(self, records: list[_Placed], offsets: list[_Placed], copies: list[_Copied]) -> None:
        self.records, self.offsets, self.copies = records, offsets, copies

    @property
    def parts(self) -> Iterator[_Placed | _Copied]:
        """All parts; the source offsets come last."""
        yield from self.of_records
        yield from self.offsets

    @property
    def of_records(self) -> Iterator[_Placed | _Copied]:
        """The parts of records and copies."""
        yield from self.records
        yield from self.copies

    def note(self, firsts: Mapping[TopicPartition, int], following: Mapping[TopicPartition, int]) -> None:
        """Note the offsets of the rows, in partitions where nobody else has written in between."""
        counts: dict[TopicPartition, int] = {}
        for each in self.parts:
            counts[each.tp] = counts.get(each.tp, 0) + each.count
        at = {tp: firsts.get(tp, -1) for tp in counts}
        at = {tp: first for tp, first in at.items() if first >= 0 and following[tp] == first + counts[tp]}
        for each in self.parts:
            if each.tp in at:
                each.first = at[each.tp]
                at[each.tp] += each.count

    def deliveries(self, outgoing: Outgoing, now_ms: int) -> list[Delivery]:
        """Return the deliveries of these columns; the offset is -1 where others have written in between."""
        times = outgoing.timestamps
        by_row: dict[int, Delivery] = {}
        for each in self.records:
            if each.source is outgoing:
                topic, number = each.tp.topic, each.tp.partition
                for at, row in enumerate(each.rows.tolist()):
                    when = None if times is None else times[row]
                    offset = each.first + at if each.first >= 0 else -1
                    by_row[row] = Delivery(topic, number, offset, now_ms if when is None else when)
        return [by_row[row] for row in range(len(outgoing.values))]


def _offsets(topic: str, offsets: Sequence[OffsetRecord]) -> Outgoing:
    keys, values, notes = zip(*offsets, strict=True)
    headers = [[(NOTE_HEADER, note.encode())] if note else [] for note in notes] if any(notes) else None
    return Outgoing(topic, list(values), list(keys), headers=headers)


def _batch(records: Outgoing) -> pa.RecordBatch:
    count = len(records.values)
    nothing = pa.nulls(count, pa.large_binary())
    now = unix_ms()
    if records.timestamps is None:
        times = pa.array(np.full(count, now))
    else:
        times = pa.array(records.timestamps, pa.int64()).fill_null(now)
    columns: dict[str, pa.Array] = {
        "timestamp": times,
        "key": nothing if records.keys is None else pa.array(records.keys, pa.large_binary()),
        "value": pa.array(records.values, pa.large_binary()),
    }
    if records.headers is not None:
        packed = [[{"key": k, "value": v} for k, v in each] if each else None for each in records.headers]
        columns["headers"] = pa.array(packed, HEADERS_TYPE)
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _targets(records: Outgoing, batch: pa.RecordBatch, count: int, turn: int) -> NDArray[np.int32]:
    targets = np.full(batch.num_rows, turn % count, dtype=np.int32)
    keys = batch.column("key")
    if keys.null_count < len(keys):
        targets = np.where(np.asarray(keys.is_valid()), partitions_for(keys, count), targets)
    if records.partitions is not None and any(each is not None for each in records.partitions):
        own = np.array([-1 if each is None else each for each in records.partitions], np.int64)
        if own.max() >= count or any(each is not None and each < 0 for each in records.partitions):
            raise LogError(
                f"topic {records.topic!r} has no partition {int(own.max())}",
                hint=f"It has {count}, numbered from 0.",
                topic=records.topic,
            )
        targets = np.where(own >= 0, own, targets).astype(np.int32)
    return targets
