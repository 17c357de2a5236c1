"""A transaction of the embedded log: buffered, then written in one go."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import FencedError, InvalidStateError
from penstock.log import catalog, records
from penstock.log.base import TopicPartition
from penstock.log.codec import EncodedRow
from penstock.log.coordination import check_lease, check_producer, write_ledger
from penstock.log.groups import write_offsets
from penstock.log.membership import Membership, check_owner

if TYPE_CHECKING:
    from penstock.log.embedded import EmbeddedLog

__all__ = ["EmbeddedTransaction"]


class EmbeddedTransaction:
    """Buffers appends, group offsets and ledger entries until the block ends.

    Attributes:
        first_offsets: After the commit, the offset of the first record appended to each partition.
        already_written: True after the commit if the ledger said that this very batch was written before: then nothing
            was written again.
    """

    def __init__(self, log: EmbeddedLog, transactional_id: str, epoch: int | None) -> None:
        self._log = log
        self._id = transactional_id
        self._epoch = epoch
        self._appends: dict[TopicPartition, list[list[EncodedRow]]] = {}
        self._offsets: dict[str, dict[TopicPartition, int]] = {}
        self._owners: list[tuple[Membership, tuple[TopicPartition, ...]]] = []
        self._ledger: dict[tuple[str, str], int] = {}
        self._bytes = 0
        self._ended = False
        self.first_offsets: dict[TopicPartition, int] = {}
        self.already_written = False

    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> None:
        """Records as RECORD_SCHEMA; the ``offset`` column may be absent and is not read."""
        self._check_open()
        rows = self._log.prepare(topic, partition, records)
        self._appends.setdefault(TopicPartition(topic, partition), []).append(rows)
        self._bytes += sum(row.payload.size for row in rows)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """The group's next offsets, committed with the records."""
        self._check_open()
        self._offsets.setdefault(group, {}).update(offsets)

    def commit_as(self, me: Membership, offsets: Mapping[TopicPartition, int]) -> None:
        """As ``commit_offsets`` for a member; the commit fails if a partition is not its own (any more)."""
        self.commit_offsets(me.group, offsets)
        self._owners.append((me, tuple(offsets)))

    def put_ledger(self, application: str, task: str, batch: int) -> None:
        """Notes that this task has written batch ``batch``; the commit checks that it had not."""
        self._check_open()
        self._ledger[application, task] = batch

    def commit(self) -> None:
        """Writes everything; called by the log when the block ends."""
        self._check_open()
        self._ended = True
        now_ms = time.time_ns() // 1_000_000
        with self._log.writing() as connection:
            check_producer(connection, self._id, self._epoch)
            done = []
            for (application, task), batch in self._ledger.items():
                check_lease(connection, application, self._epoch)
                done.append(write_ledger(connection, application, task, batch, now_ms))
            if any(done):
                if not all(done):
                    raise FencedError(
                        f"transaction {self._id!r}: some of its tasks have written their batch, others have not",
                        hint="give each task a transaction of its own",
                    )
                self.already_written = True
                return
            for me, places in self._owners:
                check_owner(connection, me, places)
            for place, parts in self._appends.items():
                slot = catalog.slot(connection, place.topic, place.partition)
                following = self.first_offsets[place] = slot.next_offset
                for rows in parts:
                    following = records.insert(connection, slot, following, rows, now_ms)
            for group, offsets in self._offsets.items():
                write_offsets(connection, group, offsets, now_ms)
        if self._bytes:
            self._log.clean_sometimes(now_ms)

    def _check_open(self) -> None:
        if self._ended:
            raise InvalidStateError("this transaction has ended", hint="begin another with log.transaction(...)")
