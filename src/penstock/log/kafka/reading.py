"""Reading of offset ranges as columns, with retries; offsets, times and sizes of records, without reading them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from penstock.base.backoff import Backoff
from penstock.base.log_lines import own_logger
from penstock.errors import LogUnavailableError, OffsetOutOfRangeError
from penstock.log.base import RECORD_SCHEMA, OffsetAndTime, Span, Stretch, TopicPartition
from penstock.log.kafka.failures import error_of, failure, is_transient, may_pass, patience_for
from penstock.log.kafka.wire.fetch import fetch_once, fetch_range, first_records, stored_bytes
from penstock.log.kafka.wire.groups import LATEST
from penstock.log.time_range import first_from

if TYPE_CHECKING:
    from penstock.log.base import Isolation
    from penstock.log.kafka.cluster_topics import Topics
    from penstock.log.kafka.refused_access import ClusterAccess
    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.kafka.wire.fetch import DataWaiter

__all__ = ["EMPTY", "RangeReader", "first_in_time", "record_sizes", "settled_ends", "stretches", "wait_for_data"]

EMPTY = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in RECORD_SCHEMA], schema=RECORD_SCHEMA)
_log = own_logger(__name__)
_BACKOFF = Backoff(0.05, 0.3)
_AT_ONCE_BYTES = 4 << 20


class RangeReader:
    """A reader of offset ranges, one after the other.

    Args:
        cluster: The cluster.
        isolation: Whether records of aborted and open transactions are left out.
        patience_s: The time without progress after which it gives up.
        access: Explains refusals.

    Attributes:
        position: The next offset after `read`, behind the gaps that transactions and compaction have left.
    """

    def __init__(
        self, cluster: Cluster, isolation: Isolation, patience_s: float, access: ClusterAccess | None = None
    ) -> None:
        self._access = access
        self._cluster = cluster
        self._isolation = isolation
        self._patience_s = patience_s
        self.position = 0

    def read(
        self, topic: str, partition: int, start: int, end: int | None = None, most: int = 1 << 60
    ) -> Iterator[pa.RecordBatch]:
        """Yield records with start <= offset < end, at most ``most``; without ``end``, up to the present end.

        Raises:
            OffsetOutOfRangeError: Retention has removed ``start``, or the log ends before it.
            LogUnavailableError: No broker answers.
        """
        tp = TopicPartition(topic, partition)
        self.position = start
        deadline, failures = time.monotonic() + self._patience_s, 0
        while most > 0 and (end is None or self.position < end):
            before = self.position
            try:
                for batch in self._now(tp) if end is None else self._until(tp, end):
                    if batch.num_rows >= most:
                        self.position = batch.column("offset")[most - 1].as_py() + 1
                        yield batch.slice(0, most)
                        return
                    most -= batch.num_rows
                    yield batch
            except KafkaException as error:
                if self.position > before:
                    deadline, failures = time.monotonic() + self._patience_s, 0
                failures += 1
                self._pause_or_raise(error, tp, deadline, _BACKOFF.pause_s(failures))
            else:
                return

    def _until(self, tp: TopicPartition, end: int) -> Iterator[pa.RecordBatch]:
        for fetched in fetch_range(self._cluster, tp, (self.position, end), self._isolation, self._patience_s):
            self.position = fetched.next_offset
            if fetched.records.num_rows:
                yield fetched.records

    def _now(self, tp: TopicPartition) -> Iterator[pa.RecordBatch]:
        while True:
            fetched = fetch_once(self._cluster, tp, self.position, _AT_ONCE_BYTES, self._isolation)
            if fetched.next_offset == self.position:
                return
            self.position = fetched.next_offset
            if fetched.records.num_rows:
                yield fetched.records

    def _pause_or_raise(self, error: KafkaException, tp: TopicPartition, deadline: float, pause: float) -> None:
        name = f"{tp.topic}-{tp.partition}"
        if error_of(error).code() == KafkaError.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRangeError(
                f"{name} has no offset {self.position}",
                hint="Retention has removed it, or the topic was created again.",
                topic=tp.topic, partition=tp.partition, offset=self.position,
            ) from error  # fmt: skip
        deadline += patience_for(error, self._patience_s) - self._patience_s
        if not may_pass(error) or time.monotonic() + pause > deadline:
            facts = {"topic": tp.topic, "partition": tp.partition, "operation": "READ"}
            raise failure(error, f"reading {name}", self._access, **facts) from error
        _log.warning("reading %s at offset %d: %s; trying again", name, self.position, error_of(error).str())
        self._cluster.forget()
        time.sleep(pause)


_PIECES = 16
_PAUSE_S = 0.02
_AFTER_ERROR_S = 0.1
_SETTLE_PAUSE_S = 0.005
_SUSPICIOUS_S, _AGAIN_S = 3.0, 30.0
_LEAST_TIME = 0
_SAMPLED_PARTITIONS = 8
_SAMPLED_AT = (0.0, 0.5)  # of each of their ranges


def wait_for_data(
    topics: Topics, waiter: DataWaiter, known_ends: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, int]:
    """Wait until partitions end elsewhere than at ``known_ends`` or the timeout; return their end offsets.

    Errors of brokers (a leader moves, a topic is gone) are left to the request that follows.
    """
    deadline = time.monotonic() + timeout_s
    names = sorted({tp.topic for tp in known_ends})
    while True:
        left = max(0.0, deadline - time.monotonic())
        pause = _PAUSE_S
        try:
            if not waiter.wait(known_ends, left):
                return dict(known_ends)
        except KafkaException as error:
            if not is_transient(error):
                _log.debug("waiting for records: %s", error_of(error).str())
            pause = _AFTER_ERROR_S
        ends = topics.ends(names)
        left = deadline - time.monotonic()
        if left <= 0 or any(ends.get(tp) != offset for tp, offset in known_ends.items()):
            return ends
        time.sleep(min(pause, left))


def settled_ends(
    topics: Topics, places: Sequence[TopicPartition], patience_s: float, settle: Callable[[], None] = lambda: None
) -> dict[TopicPartition, int]:
    """Wait until the last stable offsets have reached the present high watermarks; return the last stable offsets.

    An open transaction hides all later records: its writer commits soon, or is fenced, or its time-out ends.

    Args:
        topics: For offsets.
        places: The partitions.
        patience_s: The longest wait.
        settle: Called when a transaction stays open for long; ends those that only the broker has left open.

    Raises:
        LogUnavailableError: A transaction stays open for longer than ``patience_s``.
    """
    deadline = time.monotonic() + patience_s
    suspicious = time.monotonic() + _SUSPICIOUS_S
    written = topics.offsets(places, LATEST, committed=False)
    while True:
        stable = {tp: each.offset for tp, each in topics.offsets(places, LATEST).items()}
        late = [tp for tp, each in written.items() if stable[tp] < each.offset]
        if not late:
            return stable
        if time.monotonic() > deadline:
            raise LogUnavailableError(
                f"{late[0].topic}-{late[0].partition}: a transaction has been open for {patience_s:.0f} s",
                hint="Its producer may have died; the broker aborts it after its transaction.timeout.ms. "
                "kafka-transactions.sh finds it.",
                topic=late[0].topic,
                partition=late[0].partition,
            )
        if time.monotonic() > suspicious:
            _log.warning("%s-%d: waiting for an open transaction", late[0].topic, late[0].partition)
            settle()
            suspicious = time.monotonic() + _AGAIN_S
        time.sleep(_SETTLE_PAUSE_S)


def first_in_time(
    cluster: Cluster, topics: Topics, times: Mapping[TopicPartition, int], reader: RangeReader
) -> dict[TopicPartition, OffsetAndTime | None]:
    """Find the first record of each partition whose timestamp is at least this; None if there is none.

    The index includes the markers of transactions, with the times of the commits: for records older than their commits
    it returns a marker. Nearly always the first record after it is the right one, and one request fetches the first
    batches of all partitions.
    """
    near = {tp: each.offset for tp, each in topics.for_times(times).items() if each is not None}
    firsts: dict[TopicPartition, OffsetAndTime | None] = dict.fromkeys(times)
    batches: Mapping[TopicPartition, pa.RecordBatch] = {}
    with suppress(KafkaException):  # the reader of a single partition retries
        batches = first_records(cluster, near, "read_committed")
    for tp, offset in near.items():
        at = first_from(batches[tp], times[tp]) if tp in batches else None
        if at is None:
            pieces = reader.read(tp.topic, tp.partition, offset)
            at = next((first for each in pieces if (first := first_from(each, times[tp])) is not None), None)
        firsts[tp] = at
    return firsts


def stretches(topics: Topics, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, list[Stretch]]:
    """List stretches of records from the start of each span until they hold its ``most``.

    The broker's index returns the first offset from a time on. So the range of time is halved until each stretch is a
    small part of the span; one request to each broker halves those of all partitions. Times are bounds of the latest
    record so far, not of each record.
    """
    newest = topics.newest_times(spans)
    searches = {tp: _Search(span, last) for tp, span in spans.items() if (last := newest[tp]) is not None}
    while times := {tp: at for tp, search in searches.items() if (at := search.next_time()) is not None}:
        for tp, first in topics.for_times(times).items():
            searches[tp].cut(None if first is None else first.offset)
    return {tp: searches[tp].stretches if tp in searches else [] for tp in spans}


class _Search:
    """The search in one partition.

    Args:
        span: The range of offsets.
        last: The newest timestamp of the partition.

    Attributes:
        stretches: Those so far.
    """

    def __init__(self, span: Span, last: int) -> None:
        self.stretches: list[Stretch] = []
        self._span = span
        self._small = max(1, span.most // _PIECES)
        # Each entry: records of [first, following) are the first of times in [low, high]; the earliest stretch on top.
        self._waiting = [(span.start, span.end, _LEAST_TIME, last)] if span.start < span.end else []

    def next_time(self) -> int | None:
        """Return the next time to look up; None when the search is done."""
        while self._waiting and (
            not self.stretches or self.stretches[-1].following < self._span.start + self._span.most
        ):
            first, following, low, high = self._waiting[-1]
            if following - first > self._small and low < high:
                return (low + high) // 2 + 1
            self._waiting.pop()
            self.stretches.append(Stretch(following, low, high))
        return None

    def cut(self, offset: int | None) -> None:
        """Divide the stretch at the first offset from that time on; None: there is no such record."""
        first, following, low, high = self._waiting.pop()
        middle = (low + high) // 2
        at = following if offset is None else min(max(offset, first), following)
        if at < following:
            self._waiting.append((at, following, middle + 1, high))
        if at > first:
            self._waiting.append((first, at, low, middle))


def record_sizes(cluster: Cluster, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
    """Estimate how many bytes the broker stores for these ranges, compressed or not, as the producer has sent them.

    The largest partitions are sampled. Others get the average of their topic's samples, or of all samples.
    """
    largest = sorted(ranges, key=lambda tp: ranges[tp][0] - ranges[tp][1])[:_SAMPLED_PARTITIONS]
    samples = [(tp, int(ranges[tp][0] * (1 - at) + ranges[tp][1] * at)) for tp in largest for at in _SAMPLED_AT]
    bytes_per_offset: dict[TopicPartition, list[float]] = {}
    for (tp, _), (offsets, size) in zip(samples, stored_bytes(cluster, samples), strict=True):
        if offsets:
            bytes_per_offset.setdefault(tp, []).append(size / offsets)
    own = {tp: sum(each) / len(each) for tp, each in bytes_per_offset.items()}
    topics: dict[str, list[float]] = {}
    for tp, each in own.items():
        topics.setdefault(tp.topic, []).append(each)
    usual = sum(own.values()) / max(1, len(own))
    of_topic = {topic: sum(each) / len(each) for topic, each in topics.items()}
    return {tp: int((end - start) * own.get(tp, of_topic.get(tp.topic, usual))) for tp, (start, end) in ranges.items()}
