"""A transaction of the embedded log: buffered, then written at once; and the producer of commits over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from sqlite3 import Connection
from typing import Protocol

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.errors import FencedError, InvalidStateError, ProductionError
from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.log.embedded import catalog, records
from penstock.log.embedded.codec import EncodedRow
from penstock.log.embedded.coordination import LedgerEntry, check_lease, check_producer, write_ledger
from penstock.log.embedded.coordination_rows import RecordChange, replace_row, write_offsets
from penstock.log.embedded.membership import ConsumerIdentity, check_outsider, check_owner
from penstock.log.embedded.streams_groups import check_streams_member
from penstock.log.membership import StreamsMembership
from penstock.log.parts import joined, record_bytes
from penstock.log.thread_clients import Part, Writer

__all__ = ["EmbeddedCommitProducer", "EmbeddedTransaction"]


class _TransactionLog(Protocol):
    """The operations of an embedded log that a transaction needs."""

    def prepare(self, topic: str, partition: int, batch: pa.RecordBatch) -> list[EncodedRow]: ...

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
        self._appends: dict[TopicPartition, list[list[EncodedRow]]] = {}
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
