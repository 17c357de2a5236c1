"""The embedded log: a TopicLog in one SQLite file, or in memory; its transactions, and the producer of commits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from sqlite3 import Connection
from typing import Protocol, Self

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.errors import FencedError, InvalidStateError, LogError, ProductionError
from penstock.log.application_needs import ApplicationNeeds
from penstock.log.base import (
    Fetched,
    Isolation,
    OffsetAndMetadata,
    OffsetAndTime,
    Span,
    StreamsMembership,
    Stretch,
    TopicInfo,
    TopicPartition,
)
from penstock.log.client_counts import count
from penstock.log.embedded import catalog, records
from penstock.log.embedded.coordination import Coordination, LedgerEntry, check_lease, check_producer, write_ledger
from penstock.log.embedded.coordination_rows import RecordChange, replace_row, write_offsets
from penstock.log.embedded.database import Database
from penstock.log.embedded.groups import ConsumerGroups
from penstock.log.embedded.membership import ConsumerIdentity, check_outsider, check_owner
from penstock.log.embedded.records import EmbeddedFetcher, LogRow, encode, normalise
from penstock.log.embedded.streams_groups import EmbeddedStreamsCoordinator, check_streams_member
from penstock.log.embedded.upkeep import Upkeep
from penstock.log.stored_batches import joined, record_bytes
from penstock.log.thread_clients import Part, Writer
from penstock.log.topic_settings import setting
from penstock.log.url import parse_log_url

__all__ = ["EmbeddedCommitProducer", "EmbeddedLog", "drop_memory_log", "open_embedded", "reopen"]


# The log

_MEMORY: dict[str, Database] = {}
_LOCK = threading.Lock()


class EmbeddedLog(Coordination, ConsumerGroups, Upkeep):
    """Topics in one SQLite database; any number of processes and threads may use it at once.

    Open it with :func:`penstock.log.open.open_log`. Records become visible when their transaction commits, all at once,
    so read_committed and read_uncommitted return the same.

    Example:
        >>> from penstock.log.open import open_log
        >>> log = open_log("memory://doc-embedded")
        >>> log.create_topic("orders", partitions=2)
        >>> log.append("orders", 0, pa.RecordBatch.from_pydict({"value": [b"a", b"b"]}))
        0
        >>> log.end_offset("orders", 0)
        2
    """

    def __init__(self, database: Database, *, on_close: Callable[[], None]) -> None:
        super().__init__(database)
        self._on_close = on_close
        self._compression = database.url.settings.get("compression", "lz4")

    @property
    def url(self) -> str:
        """The URL that opens this log again, in any process."""
        return self._database.url.url

    def identity(self) -> str:
        """Return the id of the log, made when it was created."""
        with self._database.reading() as connection:
            return catalog.identity(connection)

    def give_up_at_end(self, is_ending: Callable[[], bool], within_s: float) -> None:
        """Do nothing: no request waits for a server."""

    def require_able(self, needs: ApplicationNeeds) -> None:
        """Do nothing: whoever can open the file may do all."""

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic; raises TopicExistsError if there is one of that name."""
        own = {key: value for key, value in (config or {}).items() if key != "replication.factor"}  # there is one copy
        with self._database.writing() as connection:
            catalog.create(connection, name, partitions, own, unix_ms())

    def create_partitions(self, name: str, total: int) -> None:
        """Add partitions until the topic has ``total``."""
        with self._database.writing() as connection:
            catalog.add_partitions(connection, name, total)

    def alter_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change some of a topic's settings; None resets one to its default."""
        with self._database.writing() as connection:
            catalog.alter(connection, name, changes)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records and the groups' offsets in it."""
        with self._database.writing() as connection:
            catalog.delete(connection, name)

    def topics(self) -> list[TopicInfo]:
        """List all topics by name."""
        with self._database.reading() as connection:
            return catalog.listing(connection)

    def topic(self, name: str) -> TopicInfo:
        """Describe a topic; raises UnknownTopicError, which names similar topics, if there is none."""
        with self._database.reading() as connection:
            return catalog.find(connection, name)

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return the ids of those topics that exist."""
        with self._database.reading() as connection:
            return catalog.topic_ids(connection, names)

    def partitions(self, topic: str) -> int:
        """Count a topic's partitions."""
        return self.topic(topic).partitions

    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> int:
        """Append outside any transaction and return the first offset."""
        with self.transaction("") as transaction:
            transaction.append(topic, partition, records)
        return transaction.first_offsets[TopicPartition(topic, partition)]

    @contextmanager
    def transaction(self, transactional_id: str, epoch: int | None = None) -> Iterator[EmbeddedTransaction]:
        """Begin a transaction, which commits when the block ends and writes nothing if it raises.

        Everything is buffered, and written in one SQLite transaction at the end, so the write lock is held only then.

        Args:
            transactional_id: The id of the writer; an empty one is never fenced.
            epoch: The lease's epoch (see ``acquire_lease``). Once a higher one has written, lower ones are fenced.

        Raises:
            FencedError: A newer attempt or instance has taken over. Nothing is written.
        """
        transaction = EmbeddedTransaction(self, transactional_id, epoch)
        yield transaction
        transaction.commit()

    def prepare_transactions(self, transactional_ids: Sequence[str], epoch: int | None) -> None:
        """Do nothing: transactions need no preparation."""

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_records: int = 50_000,
        isolation: Isolation = "read_committed",
    ) -> Fetched:
        """Read up to ``max_records`` from ``offset`` on."""
        del isolation  # nothing uncommitted is ever visible
        count("consumer", "range-reads")
        with self._database.reading() as connection:
            return records.read(connection, catalog.slot(connection, topic, partition), offset, max_records)

    def read_range(self, topic: str, partition: int, start: int, end: int) -> Sequence[pa.RecordBatch]:
        """Read all records with start <= offset < end, as stored batches (small ones are joined)."""
        return list(self.iterate(topic, partition, start, end))

    def iterate(self, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Like ``read_range``, in steps of about 100,000 records or 8 MiB: memory does not grow with the range."""
        position = start
        while position < end:
            count("consumer", "range-reads")
            with self._database.reading() as connection:
                slot = catalog.slot(connection, topic, partition)
                batches: list[pa.RecordBatch] = []
                size = size_bytes = 0
                for batch in records.iterate(connection, slot, position, end):
                    batches.append(batch)
                    size, size_bytes = size + batch.num_rows, size_bytes + batch.nbytes
                    if size >= _PIECE_RECORDS or size_bytes >= _PIECE_BYTES:
                        break
                else:
                    position = end
            yield from batches
            if position == end:
                return
            position = batches[-1].column("offset")[-1].as_py() + 1

    def beginning_offset(self, topic: str, partition: int) -> int:
        """Return the first offset that retention has left."""
        with self._database.reading() as connection:
            return catalog.slot(connection, topic, partition).start_offset

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the offset of the next record to be written."""
        with self._database.reading() as connection:
            return catalog.slot(connection, topic, partition).next_offset

    def end_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the end offsets of all partitions of these topics, in one query."""
        return self._offsets(topics, "next_offset")

    def beginning_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the first offsets of all partitions of these topics, in one query."""
        return self._offsets(topics, "start_offset")

    def _offsets(self, topics: Sequence[str], column: str) -> dict[TopicPartition, int]:
        marks = ", ".join("?" * len(topics))
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT t.name, p.partition, p.{column} FROM topics t JOIN partitions p ON p.topic_id = t.id "  # noqa: S608
                f"WHERE t.name IN ({marks}) ORDER BY t.name, p.partition",
                tuple(topics),
            ).fetchall()
            existing_topics = {row[0] for row in rows}
            for name in topics:
                if name not in existing_topics:
                    raise catalog.unknown(connection, name)
        return {TopicPartition(topic, partition): offset for topic, partition, offset in rows}

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> OffsetAndTime | None:
        """Find the first record whose timestamp is at least this; None if there is none."""
        with self._database.reading() as connection:
            return records.offset_for_time(connection, catalog.slot(connection, topic, partition), timestamp)

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime | None]:
        """Like ``offset_for_time``, for many partitions."""
        with self._database.reading() as connection:
            return {
                tp: records.offset_for_time(connection, catalog.slot(connection, tp.topic, tp.partition), at)
                for tp, at in times.items()
            }

    def stretches(self, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, list[Stretch]]:
        """List stored rows from the start of each span until they hold its ``most`` records."""
        with self._database.reading() as connection:
            return {
                tp: records.stretches(connection, catalog.slot(connection, tp.topic, tp.partition), span)
                for tp, span in spans.items()
            }

    def record_sizes(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """Return the size of the records of these ranges in bytes, before compression; parts of rows in proportion."""
        with self._database.reading() as connection:
            return {
                tp: records.size_bytes(connection, catalog.slot(connection, tp.topic, tp.partition), *span)
                for tp, span in ranges.items()
            }

    def version(self) -> int:
        """Return a number that grows with every write by any process."""
        return self._database.version()

    def wait_for_data(self, known_ends: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, int]:
        """Wait until partitions end elsewhere than at ``known_ends`` or the timeout; return their end offsets."""
        deadline = time.monotonic() + timeout_s
        topics = sorted({tp.topic for tp in known_ends})
        version = self.version()
        while (ends := self.end_offsets(topics)) == known_ends and (left := deadline - time.monotonic()) > 0:
            version = self._database.wait_for_write(version, left)
        return ends

    def fetcher(self, application: str = "") -> EmbeddedFetcher:  # noqa: ARG002 - for Kafka's open transactions
        """Make a fetcher for a stream thread."""
        return EmbeddedFetcher(self._database)

    def commit_producer(self, writer: Writer) -> EmbeddedCommitProducer:
        """Make the producer of a stream thread; it fences all earlier ones of its transactional id.

        Raises:
            FencedError: A newer instance of the application has taken over.
        """
        return EmbeddedCommitProducer(self, writer)

    def streams_coordinator(self) -> EmbeddedStreamsCoordinator:
        """Return the coordinator of streams groups, which is this log itself."""
        return EmbeddedStreamsCoordinator(self)

    def settled_ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of these partitions; a commit shows in all of them at once."""
        partitions = set(places)
        ends = self.end_offsets(sorted({tp.topic for tp in partitions}))
        return {tp: end for tp, end in ends.items() if tp in partitions}

    def fence_threads(self, application: str, threads: Iterable[str], epoch: int | None = None) -> None:
        """Fence the present producers of these threads.

        Raises:
            FencedError: The application's lease has a newer epoch.
        """
        for thread in threads:
            writer = Writer(application, thread, epoch)
            self.new_producer_epoch(writer.transactional_id, writer.lease)

    def prepare(self, topic: str, partition: int, batch: pa.RecordBatch) -> list[LogRow]:
        """Check and encode the records of a transaction, before the write lock is taken."""
        with self._database.reading() as connection:
            slot = catalog.slot(connection, topic, partition)
        stamped = setting(slot.config, "message.timestamp.type") == "LogAppendTime"
        try:
            normal = normalise(batch, append_time_ms=unix_ms() if stamped else None)
        except pa.ArrowInvalid as error:
            raise LogError(
                f"{topic}-{partition}: records of the wrong types: {error}", hint="use RECORD_SCHEMA"
            ) from error
        records.check_keys(slot, normal)
        plain = setting(slot.config, "compression.type") == "uncompressed"
        return encode(normal, compression="none" if plain else self._compression)

    def close(self) -> None:
        """Close the log; safe to call twice."""
        self.wait_for_cleaner()
        self._on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., EmbeddedLog], tuple[str, int]]:
        return reopen, (self.url, os.getpid())

    def __repr__(self) -> str:
        return f"EmbeddedLog({self.url!r})"


_PIECE_RECORDS = 100_000
_PIECE_BYTES = 8 << 20


def open_embedded(url: str) -> EmbeddedLog:
    """Open an embedded log; see `open_log`."""
    location = parse_log_url(url)
    if location.path is not None or not location.name:
        database = Database(location)
        return EmbeddedLog(database, on_close=database.close)
    with _LOCK:
        if location.name not in _MEMORY:
            _MEMORY[location.name] = Database(location)
        return EmbeddedLog(_MEMORY[location.name], on_close=lambda: None)


def reopen(url: str, pid: int) -> EmbeddedLog:
    """Open a pickled log again; a log in memory only in the process that pickled it."""
    if parse_log_url(url).path is None and pid != os.getpid():
        raise LogError(
            f"the log {url} lives in the memory of process {pid}, this is process {os.getpid()}",
            hint="use a file (sqlite:///name.db) when several processes share a log",
        )
    return open_embedded(url)


def drop_memory_log(name: str) -> None:
    """Delete the log in memory of this name; open handles of it raise InvalidStateError from then on."""
    with _LOCK:
        database = _MEMORY.pop(name, None)
    if database is None:
        raise LogError(f"there is no log in memory of the name {name!r}", hint="see open_log")
    database.close()


# Transactions


class _TransactionLog(Protocol):
    """The operations of an embedded log that a transaction needs."""

    def prepare(self, topic: str, partition: int, batch: pa.RecordBatch) -> list[LogRow]: ...

    def writing(self) -> AbstractContextManager[Connection]: ...

    def clean_sometimes(self, now_ms: int) -> None: ...


class EmbeddedTransaction:
    """Buffers appends, group offsets and ledger entries until the block ends.

    Attributes:
        first_offsets: After the commit, the offset of the first record appended to each partition.
        following: After the commit, the offset after the last record appended to each partition.
        already_written: True after the commit if the ledger shows that this very batch was written before: then
            nothing is written again.
    """

    def __init__(self, log: _TransactionLog, transactional_id: str, epoch: int | None) -> None:
        self._log = log
        self._id = transactional_id
        self._epoch = epoch
        self._appends: dict[TopicPartition, list[list[LogRow]]] = {}
        self._offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._leases: list[tuple[str, int]] = []
        self._members: dict[str, StreamsMembership] = {}
        self._changes: list[RecordChange] = []
        self._is_written: Callable[[], bool] = lambda: False
        self._owners: list[tuple[ConsumerIdentity, tuple[TopicPartition, ...]]] = []
        self._ledger: dict[tuple[str, str], LedgerEntry] = {}
        self._bytes = 0
        self._ended = False
        self.first_offsets: dict[TopicPartition, int] = {}
        self.following: dict[TopicPartition, int] = {}
        self.already_written = False

    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> None:
        """Add records (RECORD_SCHEMA); the ``offset`` column may be absent and is ignored."""
        self._check_open()
        rows = self._log.prepare(topic, partition, records)
        self._appends.setdefault(TopicPartition(topic, partition), []).append(rows)
        self._bytes += sum(row.payload.size for row in rows)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Add a group's next offsets, to be committed with the records."""
        self.commit_with_metadata(group, {tp: OffsetAndMetadata(each) for tp, each in offsets.items()})

    def commit_with_metadata(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Like ``commit_offsets``, with a text for each offset."""
        self._check_open()
        if offsets:
            self._offsets.setdefault(group, {}).update(offsets)

    def require_lease(self, application: str, epoch: int) -> None:
        """Let the commit fail with FencedError if the application's lease has a newer epoch."""
        self._check_open()
        self._leases.append((application, epoch))

    def require_member(self, group: str, membership: StreamsMembership) -> None:
        """Let the commit fail with FencedError unless this member may commit its offsets of the group."""
        self._check_open()
        self._members[group] = membership

    def change_record(self, change: RecordChange) -> None:
        """Change a record that only one writer at a time may change; the commit fails if it has another version."""
        self._check_open()
        self._changes.append(change)

    def commit_as(self, me: ConsumerIdentity, offsets: Mapping[TopicPartition, int]) -> None:
        """Like ``commit_offsets``, as a member; the commit fails if it does not own a partition (any more)."""
        self.commit_offsets(me.group, offsets)
        self._owners.append((me, tuple(offsets)))

    def ask_before_repeating(self, is_written: Callable[[], bool]) -> None:
        """Set a check that the commit asks first, within its SQLite transaction: nobody writes between the two."""
        self._check_open()
        self._is_written = is_written

    def put_ledger(self, application: str, task: str, batch: int, inputs: str = "") -> None:
        """Record that this task has written batch ``batch``; the commit checks that it had not."""
        self._check_open()
        self._ledger[application, task] = LedgerEntry(application, task, batch, inputs)

    def commit(self) -> None:
        """Write everything; called by the log when the block ends."""
        self._check_open()
        self._ended = True
        now_ms = unix_ms()
        with self._log.writing() as connection:
            check_producer(connection, self._id, self._epoch)
            for lease in self._leases:
                check_lease(connection, *lease)
            for group, membership in self._members.items():
                check_streams_member(connection, group, membership, self._offsets.get(group, ()))
            if self._is_written():
                self.already_written = True
                return
            for change in self._changes:
                replace_row(connection, change)
            done = []
            for entry in self._ledger.values():
                check_lease(connection, entry.application, self._epoch)
                done.append(write_ledger(connection, entry, now_ms))
            if any(done):
                if not all(done):
                    raise FencedError(
                        f"transaction {self._id!r}: some of its tasks have written their batch, others have not",
                        hint="give each task its own transaction",
                    )
                self.already_written = True
                return
            for me, places in self._owners:
                check_owner(connection, me, places)
            members = {*(application for application, _ in self._leases), *(me.group for me, _ in self._owners)}
            members |= self._members.keys()
            for group in self._offsets.keys() - members:
                check_outsider(connection, group)
            for tp, parts in self._appends.items():
                slot = catalog.slot(connection, tp.topic, tp.partition)
                following = self.first_offsets[tp] = slot.next_offset
                for rows in parts:
                    following = records.insert(connection, slot, following, rows, now_ms)
                self.following[tp] = following
            for group, offsets in self._offsets.items():
                write_offsets(connection, group, offsets, now_ms)
        if self._bytes:
            self._log.clean_sometimes(now_ms)

    def _check_open(self) -> None:
        if self._ended:
            raise InvalidStateError("this transaction has ended", hint="begin another with log.transaction(...)")


class _ProducerLog(Protocol):
    """The operations of an embedded log that a producer needs."""

    def new_producer_epoch(self, transactional_id: str, lease: tuple[str, int] | None = None) -> int: ...

    def transaction(
        self, transactional_id: str, epoch: int | None = None
    ) -> AbstractContextManager[EmbeddedTransaction]: ...


class EmbeddedCommitProducer:
    """The `CommitProducer` of an embedded log: each write is one transaction of SQLite.

    Each write also checks that this is the newest producer of its id, and that the application's lease has no newer
    epoch, or that its streams group has this member; at least once likewise, as that costs no more.

    Args:
        log: The log.
        writer: The identity of the producer.

    Raises:
        FencedError: A newer instance of the application has taken over.
    """

    def __init__(self, log: _ProducerLog, writer: Writer) -> None:
        self._log = log
        self._writer = writer
        self._epoch = log.new_producer_epoch(writer.transactional_id, writer.lease)
        self._parts: list[Part] = []
        self._following: dict[TopicPartition, int] = {}
        self.pending_bytes = 0
        self.firsts: Mapping[TopicPartition, int] = {}

    def send(self, parts: Sequence[Part]) -> None:
        """Collect records for the next commit; at least once: write them.

        Raises:
            ProductionError: At least once: a record of a compacted topic has no key.
            FencedError: A newer producer or instance has taken over.
        """
        if self._writer.exactly_once:
            self.collect(parts)
        elif parts:
            self._following |= self._write(parts, {})

    def collect(self, parts: Sequence[Part]) -> int:
        """Collect records for the next commit, also at least once; return the number of parts."""
        self._parts.extend(parts)
        self.pending_bytes += sum(record_bytes(records) for _, _, records in parts)
        return len(parts)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Mapping[TopicPartition, int]:
        """Write everything that waits, and the group's offsets, in one transaction.

        Returns:
            The offset after the last record of this commit, for each partition that was written.

        Raises:
            ProductionError: A record of a compacted topic has no key; nothing is written.
            FencedError: A newer producer or instance has taken over.
        """
        following = {**self._following, **self._write(self._parts, offsets)}
        self.replace(())
        self._following = {}
        return following

    def collected(self) -> Sequence[Part]:
        """Return the parts that wait for `commit`, in the order of `send`."""
        return tuple(self._parts)

    def replace(self, parts: Sequence[Part]) -> None:
        """Put these parts in place of those that wait for `commit`."""
        self._parts = list(parts)
        self.pending_bytes = sum(record_bytes(records) for _, _, records in parts)

    def close(self) -> None:
        """Forget what was not committed."""
        self.replace(())

    def _write(
        self, parts: Sequence[Part], offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, int]:
        try:
            return self._append([(tp.topic, tp.partition, records) for tp, records in joined(parts)], offsets)
        except ProductionError:  # nothing is written; which of the parts are refused?
            return self._append(parts, offsets)

    def _append(
        self, parts: Sequence[Part], offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, int]:
        refused: dict[int, object] = {}
        with self._log.transaction(self._writer.transactional_id, self._epoch) as transaction:
            if self._writer.lease is not None:
                transaction.require_lease(*self._writer.lease)
            membership = self._writer.membership()
            if isinstance(membership, StreamsMembership):
                transaction.require_member(self._writer.application, membership)
            for number, part in enumerate(parts):
                try:
                    transaction.append(*part)
                except ProductionError as error:
                    refused[number] = error.facts["rows"]
                    last = error
            if refused:
                last.facts["refused"] = refused
                raise last
            transaction.commit_with_metadata(self._writer.application, offsets)
        self.firsts = transaction.first_offsets
        return transaction.following
