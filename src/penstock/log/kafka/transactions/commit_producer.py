"""The producer of commits, records with a group's offsets, over Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from confluent_kafka import KafkaError, KafkaException

from penstock.base.log_lines import own_logger
from penstock.errors import FencedError, LogError, LogUnavailableError, ProductionError
from penstock.log.base import GroupMembership, OffsetAndMetadata, StreamsMembership, TopicPartition
from penstock.log.kafka.error_codes import ErrorCategory
from penstock.log.kafka.failures import category_of, error_of, failure, membership_failure, not_in_time, persist
from penstock.log.kafka.transactions.failed_transactions import TransactionAttempts, refusal
from penstock.log.kafka.wire.groups import LATEST, list_offsets
from penstock.log.kafka.wire.produce import IdempotentWriter, NotWrittenError, ProduceRequests
from penstock.log.kafka.wire.transactions import ProducerTransactions
from penstock.log.kafka.writing import AnyPart, checked
from penstock.log.stored_batches import Placed, StoredRecords, joined, record_bytes
from penstock.log.thread_clients import Part, Writer

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.log.kafka.transactions.core import KafkaCore

__all__ = ["KafkaCommitProducer"]

_log = own_logger(__name__)
_JOIN_S, _JOIN_PAUSE_S = 10.0, 0.01
_LOST = (ErrorCategory.ABORTABLE, ErrorCategory.FENCED)
_WORTH_ANOTHER = (ErrorCategory.PASSES, ErrorCategory.SETTLES, *_LOST)


class KafkaCommitProducer:
    """The `CommitProducer` of Kafka.

    After an error other than ProductionError it is of no more use: a new producer, or the next start, goes on from what
    is committed. At least once, too, offsets are committed in a transaction of the thread's own id: so the commits of a
    fenced producer fail, and the group may have the running application as its member.

    Args:
        log: The log.
        writer: The identity of the producer.
        check_lease: Raises FencedError if the lease has a newer epoch.

    Raises:
        FencedError: A newer instance of the application has taken over.
    """

    def __init__(self, log: KafkaCore, writer: Writer, check_lease: Callable[[], None]) -> None:
        clients = log.clients
        self._log = log
        self._writer = writer
        self._timeouts = clients.thread_timeouts
        self._cluster = clients.own_cluster()
        self._transactions = ProducerTransactions(
            self._cluster, writer.transactional_id, writer.application, clients.limits()
        )
        self._plain = None if writer.exactly_once else IdempotentWriter(self._cluster, clients.limits())
        self._parts: list[AnyPart] = []
        self._changes: list[Part] = []  # at least once: those that wait for the commit
        self._flying: ProduceRequests | None = None  # at least once: the parts as they were sent
        self._following: dict[TopicPartition, int] = {}
        self._error: BaseException | None = None
        self._membership: GroupMembership | StreamsMembership | None = None  # of the last attempt
        self.pending_bytes = 0
        self.firsts: Mapping[TopicPartition, int] = {}
        try:
            check_lease()  # before, so that a zombie seldom fences a newer producer
            self._persist(lambda: self._init(self._timeouts.least_ms), "initialising")
            check_lease()  # and after: if the lease is taken later, its new owner fences this producer
        except BaseException:
            self.close()
            raise

    def send(self, parts: Sequence[Part]) -> None:
        """Collect records for the next commit; at least once: write them, after those that were sent before.

        At least once it does not wait for the brokers: their answers are taken by the next call, or by `commit`.

        Raises:
            ProductionError: At least once: Kafka refuses records for good (``facts["refused"]``).
            LogUnavailableError: At least once: they could not be written within ``task.timeout.ms``.
        """
        parts = [(topic, partition, checked(topic, partition, records)) for topic, partition, records in parts]
        if self._writer.exactly_once:
            self._parts += parts
            self.pending_bytes += sum(_size(records) for _, _, records in parts)
            return
        self._settle()
        if parts:
            self._flying = self._begin(parts)
            self._parts = parts

    def send_stored(self, tp: TopicPartition, records: StoredRecords) -> None:
        """Collect record batches of another log for the next commit; their producers and offsets are replaced."""
        assert self._writer.exactly_once  # noqa: S101 - at least once, records are columns
        if records.batches:
            self._parts.append((tp.topic, tp.partition, records))
            self.pending_bytes += records.nbytes

    def collect(self, parts: Sequence[Part]) -> int:
        """Collect records for the next commit, also at least once; return the number of parts."""
        if self._writer.exactly_once:
            self.send(parts)
        else:
            checked_parts = [(topic, partition, checked(topic, partition, rows)) for topic, partition, rows in parts]
            self._changes += checked_parts
        return len(parts)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Mapping[TopicPartition, int]:
        """Commit everything sent since the last commit together with these offsets of the group.

        Returns:
            The offset after the last record of this commit, for each partition that was written.

        Raises:
            ProductionError: Kafka refuses records for good (``facts["refused"]``); nothing is committed.
            FencedError: A newer producer or instance has taken over, or its streams group has given tasks of the
                thread to others (``facts["membership"]``); then the transaction is aborted, and others may follow.
            LogUnavailableError: It could not be written within ``task.timeout.ms``. If the end of the transaction has
                failed, the next start may find it committed.
        """
        self._settle()
        parts = joined(self.collected())
        if not parts and not offsets:
            self.replace(())
            following, self._following = self._following, {}
            return following
        if self._error is not None:
            raise self._error
        try:
            following = {**self._following, **self._commit(parts, offsets)}
        except ProductionError:
            raise
        except BaseException as error:
            if not (isinstance(error, FencedError) and "membership" in error.facts):
                self._error = error  # the transaction may be open, or committed
            raise
        self.replace(())
        self._following = {}
        return following

    def collected(self) -> Sequence[Part]:
        """Return the parts that wait for `commit`; at least once: for answers. They are in the order of `send`."""
        return (*self._parts, *self._changes)

    def replace(self, parts: Sequence[Part]) -> None:
        """Put these parts in place of those that wait; at least once they are written by the next call."""
        self._parts = [(topic, partition, checked(topic, partition, records)) for topic, partition, records in parts]
        self._flying, self._changes = None, []
        if self._writer.exactly_once:
            self.pending_bytes = sum(_size(records) for _, _, records in self._parts)

    def abort(self) -> None:
        """End a transaction whose end is unknown, as the same producer; its records show whether it was committed.

        Raises:
            FencedError: A newer producer has taken over, and with that the transaction has ended.
            LogUnavailableError: No broker answers.
        """
        self.replace(())
        self._cluster.forget()
        self._persist(self._transactions.abort, "aborting")
        self._error = None

    def close(self) -> None:
        """Forget what was not committed, and close its connections."""
        self.replace(())
        self._cluster.close()

    def _commit(
        self, parts: Sequence[Placed], offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, int]:
        """Retry until it is committed or fails for good; each attempt commits all or nothing."""
        attempts = TransactionAttempts(self._log.patience_s)
        while True:
            began = time.monotonic()
            try:
                return self._attempt(parts, offsets)
            except KafkaException as error:
                again = self._recover(error, time.monotonic() - began)
                if not attempts.allow_retry(again):
                    raise self._failure(again) from error
                text = "transaction %s is repeated: %s"
                _log.warning(text, self._writer.transactional_id, error_of(again).str())
                time.sleep(attempts.pause_s())

    def _attempt(
        self, parts: Sequence[Placed], offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, int]:
        needed = self._timeouts.needed(self.pending_bytes + sum(record_bytes(part[2]) for part in self._changes))
        if needed > self._transactions.timeout_ms:
            self._persist(lambda: self._init(needed, again=True), "initialising")
        self._membership = self._writer.membership()
        self._transactions.membership = _generation_of(self._membership)
        following = self._transactions.write(parts, offsets)
        self.firsts = self._transactions.firsts
        try:
            self._persist(self._transactions.end, "committing")
        except LogError as error:
            cause = error.__cause__
            if isinstance(cause, KafkaException) and category_of(cause) in _LOST:
                raise cause from error  # it is not committed
            raise
        return following

    def _init(self, timeout_ms: int, *, again: bool = False) -> None:
        allowed_ms = self._timeouts.allowed(timeout_ms)
        while True:
            try:
                return self._transactions.init(allowed_ms, again=again)
            except KafkaException as error:
                if error_of(error).code() != KafkaError.INVALID_TRANSACTION_TIMEOUT:
                    raise
                if not self._timeouts.refused(allowed_ms):
                    raise
                allowed_ms = self._timeouts.allowed(allowed_ms)

    def _recover(self, error: KafkaException, seconds: float) -> KafkaException:
        """Abort the transaction after an error, so that another attempt may succeed, or raise the final error.

        Raises:
            FencedError: A newer producer has taken over.
        """
        category = category_of(error)
        self._cluster.forget()
        self._persist(self._transactions.abort, "aborting")
        if isinstance(error, NotWrittenError) and category not in _WORTH_ANOTHER:
            refused = refusal(self._log, self.collected(), error)
            if refused is not None:
                raise refused from error
            self._transactions.limits = self._log.clients.limits()
        elif category is ErrorCategory.REJOIN and isinstance(self._membership, StreamsMembership):
            self._look_for_newer_epoch(self._membership, error)
        elif category is ErrorCategory.REJOIN:
            self._await_membership(error)
        elif category not in _WORTH_ANOTHER:
            raise self._failure(error) from error
        elif category in _LOST and seconds * 1000 >= self._transactions.timeout_ms:
            self._extend_timeout(seconds, error)
        return error

    def _await_membership(self, error: KafkaException) -> None:
        """Wait until the application has joined its group anew, as with other topics: then it is another member.

        Raises:
            FencedError: Another program has removed it.
            LogUnavailableError: It does not join in time.
        """
        before, deadline = self._membership, time.monotonic() + _JOIN_S
        while self._writer.membership() == before:
            if time.monotonic() > deadline:
                raise LogUnavailableError(
                    f"group {self._writer.application!r} does not know the application as its member any more, and it "
                    f"has not joined again for {_JOIN_S:.0f} s: {error_of(error).str()}",
                    hint="The driver may have been paused or unreachable. Nothing of this transaction is committed.",
                    group=self._writer.application,
                ) from error
            time.sleep(_JOIN_PAUSE_S)

    def _look_for_newer_epoch(self, before: StreamsMembership, error: KafkaException) -> None:
        """Allow another attempt if the thread knows a newer epoch of its member by now.

        Raises:
            FencedError: It does not: others have tasks of it, or the group does not know it.
        """
        now = self._writer.membership()
        if isinstance(now, StreamsMembership) and now.member == before.member and now.epoch > before.epoch:
            return
        raise membership_failure(self._writer.application, before, error) from error

    def _extend_timeout(self, seconds: float, error: KafkaException) -> None:
        """Use a longer time-out for the next attempt, as the coordinator has aborted this one after its time-out.

        Raises:
            LogUnavailableError: The brokers do not allow a longer one.
        """
        identity, timeout_ms = self._writer.transactional_id, self._transactions.timeout_ms
        longer = self._timeouts.longer(timeout_ms)
        if longer is None:
            raise not_in_time(identity, self.pending_bytes, timeout_ms) from error
        text = "transaction %s was aborted after %.1f s; it is written again, within %d s"
        _log.warning(text, identity, seconds, longer // 1000)
        self._persist(lambda: self._init(longer, again=True), "initialising")

    def _begin(self, parts: Sequence[Part]) -> ProduceRequests:
        """Send parts at least once, without waiting."""
        assert self._plain is not None  # noqa: S101 - at least once
        try:
            return self._plain.begin(joined(parts), self._patiently)
        except NotWrittenError as error:  # larger than any broker would take
            refused = refusal(self._log, parts, error)
            raise (self._failure(error) if refused is None else refused) from error

    def _settle(self) -> None:
        """Wait for the brokers' answers to what was sent at least once."""
        if self._plain is None or not self._parts:
            return
        written, self._flying = self._flying or self._begin(self._parts), None
        try:
            self._plain.finish(written, self._patiently)
        except LogError as error:
            if isinstance(error.__cause__, NotWrittenError):
                self._leave_out(written.accepted())  # else it would be written again with the rest
                self._following |= written.following
                refused = refusal(self._log, self._parts, error.__cause__)
                raise (error if refused is None else refused) from error.__cause__
            raise
        parts, self._parts = self._parts, []
        self._following |= written.following
        self.firsts = written.offsets
        places = {TopicPartition(topic, partition) for topic, partition, records in parts if records.num_rows}
        if unknown := places - written.following.keys():
            # The answer to an earlier attempt was lost, and the broker does not remember the offset any more.
            self._persist(lambda: self._look_up(unknown), "looking for the end of")

    def _leave_out(self, accepted: dict[TopicPartition, int]) -> None:
        """Take the first records of partitions out of the parts; all parts stay, as errors count them."""
        parts, self._parts = cast("list[Part]", self._parts), []
        for topic, partition, records in parts:
            tp = TopicPartition(topic, partition)
            taken = min(accepted.get(tp, 0), records.num_rows)
            accepted[tp] = accepted.get(tp, 0) - taken
            self._parts.append((topic, partition, records.slice(taken)))

    def _patiently(self, action: Callable[[], None]) -> None:
        self._persist(action, f"writing records of {self._writer.transactional_id!r}")

    def _look_up(self, places: Iterable[TopicPartition]) -> None:
        ends = list_offsets(self._cluster, dict.fromkeys(places, LATEST), "read_uncommitted")
        self._following |= {tp: each.offset for tp, each in ends.items()}

    def _persist(self, action: Callable[[], None], doing: str) -> None:
        identity = self._writer.transactional_id
        text = f"{doing} transaction {identity!r}"
        facts = {"transactional_id": identity, "operation": "WRITE"}
        persist(action, text, self._log.patience_s, self._log.clients.access, self._cluster.forget, **facts)

    def _failure(self, error: KafkaException) -> Exception:
        identity, access = self._writer.transactional_id, self._log.clients.access
        return failure(error, f"transaction {identity!r}", access, transactional_id=identity, operation="WRITE")


def _generation_of(membership: GroupMembership | StreamsMembership | None) -> GroupMembership | None:
    """Return a membership as requests have it: the epoch of a streams member is in place of a generation."""
    if isinstance(membership, StreamsMembership):
        return GroupMembership(membership.member, membership.instance, membership.epoch)
    return membership


def _size(records: pa.RecordBatch | StoredRecords) -> int:
    return records.nbytes if isinstance(records, StoredRecords) else record_bytes(records)
