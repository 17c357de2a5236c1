"""The producer of commits, records with a group's offsets, over an embedded log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.errors import ProductionError
from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.log.embedded.transaction import EmbeddedTransaction
from penstock.log.joining import joined
from penstock.log.membership import StreamsMembership
from penstock.log.record_bytes import record_bytes
from penstock.log.thread_clients import Part, Writer

__all__ = ["EmbeddedCommitProducer"]


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
