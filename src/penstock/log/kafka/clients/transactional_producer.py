"""The transactional producer of Kafka, which writes by column as applications do.

It is not librdkafka's, to which the timestamp 0 means the present time, and whose transactions cannot be shared.
"""

from __future__ import annotations

import struct
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from penstock.errors import FencedError, LogError, LogUnavailableError, PenstockError
from penstock.log.base import GroupMembership, OffsetAndMetadata, TopicPartition
from penstock.log.client_interfaces import (
    Delivery,
    OnDelivery,
    ProducerOptions,
    ProducerRecord,
    as_batch,
    call_back,
    parts_of,
)
from penstock.log.kafka.error_codes import LocalCode
from penstock.log.kafka.failures import error_of, failure, is_fenced, may_pass, persist, too_large_here
from penstock.log.kafka.wire.transactions import ProducerTransactions
from penstock.log.kafka.writing import checked
from penstock.log.partitioner import partitions_for

if TYPE_CHECKING:
    from penstock.log.kafka.clients.connections import Clients
    from penstock.log.kafka.wire.produce import ProducedStretch

__all__ = ["TransactionalProducer", "timed_out"]

_T = TypeVar("_T")
_ENDED = (KafkaError.INVALID_TXN_STATE, KafkaError.TRANSACTION_ABORTABLE)
_LEAST_PAUSE_S = 0.005  # between two writes, each of which is waited for
_COUNTED_S = 5.0  # partitions may be added at any time
_RECORD_BYTES = 32  # of a record beside key, value and headers, about
_SMALL_BYTES = 16_384  # a batch of Kafka's own producer, which topics are made to take
_MEMBERSHIP_MAGIC = b"CGMDv2:"
_GENERATION = struct.Struct("=i")


@dataclass(slots=True)
class _RecordRun:
    """Records of one topic that follow each other, sent one by one or as a batch."""

    topic: str
    records: list[ProducerRecord] = field(default_factory=list)
    on_delivery: list[OnDelivery | None] = field(default_factory=list)
    batch: pa.RecordBatch | None = None


@dataclass(frozen=True, slots=True)
class _PartitionPart:
    """Records for one partition.

    Attributes:
        run: The run that they are from.
        rows: Their numbers in it; None: nobody waits for their deliveries.
    """

    tp: TopicPartition
    columns: pa.RecordBatch
    run: _RecordRun
    rows: Sequence[int] | None


class TransactionalProducer:
    """A `LogProducer` whose writes are transactions. It has no thread: ``send`` and ``poll`` check the clock.

    Args:
        clients: The clients of the log.
        limit_of: Returns the size of the largest batch that a topic takes.
        options: The settings of the producer, with a transactional id.

    Raises:
        LogError: The transactional id cannot be taken over.
    """

    def __init__(self, clients: Clients, limit_of: Callable[[str], int], options: ProducerOptions) -> None:
        self._clients, self._limit_of = clients, limit_of
        self._id = options.transactional_id
        self._limit_ms, self._most_bytes = clients.timeouts.least_ms, clients.max_request_bytes
        self._linger_s, self._batch_bytes, self._patience_s = clients.tuning(options)
        self._pause_s = max(self._linger_s, _LEAST_PAUSE_S)
        self._cluster = clients.own_cluster()
        self._close = weakref.finalize(self, self._cluster.close)
        limits = clients.limits()
        limits.batch_bytes = min(limits.batch_bytes, self._batch_bytes)
        self._transactions = ProducerTransactions(self._cluster, self._id, "", limits, self._patience_s)
        self._runs: dict[str, list[_RecordRun]] = {}  # by topic: those that wait
        self._bytes = 0
        self._since = 0.0
        self._limited: set[str] = set()  # topics whose limits count
        self._counts: dict[str, tuple[int, float]] = {}  # partitions of topics, and until when that holds
        self._turn = 0
        self._began = time.monotonic()
        self._has_written = False  # the coordinator may have an open transaction
        self._error: PenstockError | None = None
        try:
            self._persist(lambda: self._transactions.init(self._limit_ms), f"starting the producer {self._id!r}")
        except BaseException:
            self._close()
            raise

    def send(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> None:
        self._check()
        topic, value, key, _, partition, headers = record
        size = len(key or b"") + len(value or b"")
        if headers:
            size += sum(len(name) + len(each or b"") for name, each in headers)
        if size > self._most_bytes:
            raise too_large_here(f"writing to {topic}", size, self._most_bytes, topic=topic)
        if partition is not None and not 0 <= partition < self._partitions(topic):
            error = KafkaError(LocalCode.UNKNOWN_PARTITION)
            raise failure(error, f"writing to {topic}-{partition}", topic=topic, partition=partition)
        runs = self._runs.get(topic)
        if runs is None:
            runs = self._runs[topic] = []
        if not runs or runs[-1].batch is not None:
            runs.append(_RecordRun(topic))
        run = runs[-1]
        run.records.append(record)
        run.on_delivery.append(on_delivery)
        self._add(size + _RECORD_BYTES)

    def send_batch(self, topic: str, records: pa.RecordBatch) -> None:
        self._check()
        if records.num_rows:
            self._runs.setdefault(topic, []).append(_RecordRun(topic, batch=records))
            self._add(records.nbytes + _RECORD_BYTES * records.num_rows)

    def _add(self, size: int) -> None:
        if not self._bytes:
            self._since = time.monotonic()
        self._bytes += size
        if self._bytes >= self._batch_bytes:
            self._write()
        else:
            self.poll()

    def poll(self) -> None:
        if self._bytes and time.monotonic() - self._since >= self._pause_s:
            self._write()

    def flush(self) -> None:
        self._write()
        self._check()

    def begin(self) -> None:
        if self._has_written:  # the one before could not be ended
            self._persist(self._transactions.abort, f"aborting transaction {self._id!r}")
        self._forget()
        self._began = time.monotonic()

    def commit(self) -> None:
        try:
            self.flush()
            if self._has_written:
                self._persist(self._transactions.end, "committing a transaction")
        except BaseException as error:  # readers wait for the end of a transaction, whatever has interrupted it
            if not isinstance(error, PenstockError):
                self._cluster.forget()  # an answer may be still to come
            with suppress(PenstockError):  # a fenced producer has nothing left to abort
                self.abort()
            raise
        self._forget()

    def abort(self) -> None:
        given_up = KafkaError(LocalCode.PURGE_QUEUE)
        for runs in self._runs.values():
            for run in runs:
                self._report_failure(run, self._failed(given_up, f"writing to {run.topic}", topic=run.topic))
        if self._has_written:
            if self._error is not None:
                self._cluster.forget()
            with suppress(FencedError):  # the newer producer has ended it
                self._persist(self._transactions.abort, "aborting a transaction")
        self._forget()

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group_metadata: object) -> None:
        self.flush()
        self._transactions.group, self._transactions.membership = _group_of(group_metadata)
        chosen = {tp: OffsetAndMetadata(offset, "") for tp, offset in offsets.items()}
        try:
            self._send([], chosen)
        except KafkaException as error:
            facts = {"operation": "READ", "group": self._transactions.group}
            self._error = self._failure(error, "committing offsets with a transaction", **facts)
            raise self._error from error

    def close(self) -> None:
        self._close()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _forget(self) -> None:
        """Forget everything of a transaction that has ended."""
        self._runs, self._bytes = {}, 0
        self._has_written, self._error = False, None

    def _write(self) -> None:
        """Write all that waits; after an error nothing of the transaction can be committed any more."""
        runs = [run for runs in self._runs.values() for run in runs]
        self._runs, self._bytes = {}, 0
        if not runs or self._error is not None:
            return
        try:
            parts = [part for run in runs for part in self._parts(run)]
            self._limit_batches(parts)
            self._send([(part.tp, part.columns) for part in parts], {})
        except PenstockError as error:
            self._error = error
        except KafkaException as error:
            tp = getattr(error, "tp", None)
            doing = "writing" if tp is None else f"writing to {tp.topic}-{tp.partition}"
            self._error = self._failure(error, doing)
        except BaseException:  # values of a wrong type, an interrupt
            self._error = LogUnavailableError(
                f"transaction {self._id!r}: records were left out by an error before", hint="Begin it again."
            )
            raise
        finally:
            if self._error is None:
                self._report(parts)
            else:
                for run in runs:
                    self._report_failure(run, self._error)

    def _limit_batches(self, parts: Sequence[_PartitionPart]) -> None:
        """Make batches no larger than each topic takes; brokers refuse them where that limit may not be seen."""
        for part in parts:
            topic = part.tp.topic
            if topic not in self._limited and part.columns.nbytes > _SMALL_BYTES:
                self._limited.add(topic)
                with suppress(PenstockError):
                    most = max(1, int(0.9 * self._limit_of(topic)) - 100)
                    limits = self._transactions.limits
                    limits.batch_bytes = min(limits.batch_bytes, most)

    def _send(
        self,
        parts: Sequence[tuple[TopicPartition, pa.RecordBatch]],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        self._has_written = True
        began = time.monotonic()
        self._transactions.write(parts, offsets, may_pass)
        self._pause_s = max(self._linger_s, _LEAST_PAUSE_S, time.monotonic() - began)  # no more than half of the time

    def _parts(self, run: _RecordRun) -> Iterator[_PartitionPart]:
        count, topic = self._partitions(run.topic), run.topic
        self._turn += 1
        if run.batch is not None:
            for number, columns in parts_of(run.batch, count, self._turn):
                yield _PartitionPart(TopicPartition(topic, number), checked(topic, number, columns), run, None)
            return
        columns = as_batch(run.records)
        keys = columns.column("key")
        targets = np.full(len(keys), self._turn % count, np.int32)
        if keys.null_count < len(keys):
            targets = np.where(np.asarray(keys.is_valid()), partitions_for(keys, count), targets)
        partitions = [each.partition for each in run.records]
        if partitions.count(None) < len(partitions):
            own = np.array([-1 if each is None else each for each in partitions], np.int64)
            targets = np.where(own >= 0, own, targets)
        heard = any(run.on_delivery)
        for number in np.unique(targets).tolist():
            rows = np.flatnonzero(targets == number)
            part = columns if len(rows) == len(keys) else columns.take(pa.array(rows))
            yield _PartitionPart(TopicPartition(topic, number), part, run, rows.tolist() if heard else None)

    def _partitions(self, topic: str) -> int:
        """Return a topic's number of partitions; brokers may create one that is missing, as for any producer."""
        count_and_expiry, now = self._counts.get(topic), time.monotonic()
        if count_and_expiry is None or now >= count_and_expiry[1]:
            ask = lambda: self._cluster.produced_partitions(topic)  # noqa: E731
            count_and_expiry = self._persist(ask, f"writing to {topic}", topic=topic), now + _COUNTED_S
            self._counts[topic] = count_and_expiry
        return count_and_expiry[0]

    def _report(self, parts: Sequence[_PartitionPart]) -> None:
        """Call those who wait for the deliveries of records that are written."""
        if all(part.rows is None for part in parts):
            return
        offsets = {tp: _offsets(stretches) for tp, stretches in self._transactions.stretches().items()}
        for part in parts:
            written = offsets[part.tp]
            if part.rows is None:
                for _ in range(part.columns.num_rows):
                    next(written)
                continue
            own = {part.run.records[row].timestamp for row in part.rows}
            for row in part.rows:
                offset, appended_ms = next(written)
                on_delivery = part.run.on_delivery[row]
                if on_delivery is not None:
                    # To a batch that was sent again, a broker answers with the largest of its own timestamps.
                    is_own = appended_ms < 0 or appended_ms in own
                    at = part.run.records[row].timestamp if is_own else appended_ms
                    call_back(on_delivery, Delivery(part.tp.topic, part.tp.partition, offset, at), None)

    def _report_failure(self, run: _RecordRun, error: PenstockError) -> None:
        for on_delivery in run.on_delivery:
            if on_delivery is not None:
                call_back(on_delivery, None, error)

    def _persist(self, action: Callable[[], _T], doing: str, **facts: object) -> _T:
        facts = {"transactional_id": self._id, "operation": "WRITE", **facts}
        try:
            return persist(action, doing, self._patience_s, self._clients.access, self._cluster.forget, **facts)
        except PenstockError as error:
            cause = error.__cause__
            if isinstance(cause, KafkaException) and _may_have_ended(cause):
                raise timed_out(doing, self._began, self._limit_ms, error) or error from cause
            raise

    def _failure(self, error: KafkaException, doing: str, **facts: object) -> PenstockError:
        """Return the error to raise; a transaction that has timed out is not fenced by another producer."""
        problem = self._failed(error, doing, **facts)
        return (timed_out(doing, self._began, self._limit_ms, problem) if _may_have_ended(error) else None) or problem

    def _failed(self, error: KafkaException | KafkaError, doing: str, **facts: object) -> PenstockError:
        facts = {"transactional_id": self._id, "operation": "WRITE", **facts}
        return failure(error, doing, self._clients.access, **facts)


def _may_have_ended(error: KafkaException) -> bool:
    """Return whether the coordinator may have aborted the transaction after its time-out."""
    return is_fenced(error) or error_of(error).code() in _ENDED


def _offsets(stretches: Sequence[ProducedStretch]) -> Iterator[tuple[int, int]]:
    """Yield the offset of each record, -1 if it is unknown, and the time at which the broker appended it, or -1."""
    for first, count, appended_ms in stretches:
        for number in range(count):
            yield first + number if first >= 0 else -1, appended_ms


def timed_out(doing: str, began: float, limit_ms: int, error: PenstockError) -> LogUnavailableError | None:
    """Return the error of a transaction that its coordinator has aborted after its time-out; None: it took less."""
    seconds = time.monotonic() - began
    if seconds * 1000 < limit_ms:
        return None
    return LogUnavailableError(
        f"{doing}: the transaction was aborted, as it took {seconds:.1f} s and may take {limit_ms / 1000:g} s",
        hint="Begin it again with a new producer; smaller transactions, or a larger transaction.timeout.ms.",
        code=error.facts.get("code"), timeout_ms=limit_ms,
    )  # fmt: skip


def _group_of(metadata: object) -> tuple[str, GroupMembership]:
    r"""Unpack the group of a consumer, and its membership.

    Args:
        metadata: What ``consumer_group_metadata`` of the client has returned.

    Raises:
        LogError: It has another form.

    >>> _group_of(b"CGMDv2:" + _GENERATION.pack(7) + b"app\0member-1\0\x00mine\0")
    ('app', GroupMembership(member='member-1', instance='mine', generation=7))
    >>> _group_of(b"CGMDv2:" + _GENERATION.pack(-1) + b"app\0\0\x01")
    ('app', GroupMembership(member='', instance='', generation=-1))
    """
    if not isinstance(metadata, bytes) or not metadata.startswith(_MEMBERSHIP_MAGIC):
        raise LogError(
            "the membership of the consumer has a form that is not known",
            hint="This version of confluent-kafka is newer than this version of Penstock.",
        )
    at = len(_MEMBERSHIP_MAGIC)
    (generation,) = _GENERATION.unpack_from(metadata, at)
    group, member, rest = metadata[at + _GENERATION.size :].split(b"\0", 2)
    instance = rest[1:].partition(b"\0")[0] if rest[:1] == b"\0" else b""
    return group.decode(), GroupMembership(member.decode(), instance.decode(), generation)
