"""The consumer of Kafka, and a member of its groups: librdkafka's consumer as a LogConsumer."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from penstock.errors import AuthorizationError, FencedError, LogError, OffsetOutOfRangeError, UnknownTopicError
from penstock.log.base import HEADERS_TYPE, RECORD_SCHEMA, OffsetAndTime, TopicPartition
from penstock.log.client_interfaces import ConsumerOptions, RebalanceListener
from penstock.log.kafka.error_codes import LocalCode
from penstock.log.kafka.failures import error_of, failure, is_transient

if TYPE_CHECKING:
    from confluent_kafka import Message

    from penstock.log.base import TopicLog
    from penstock.log.kafka.clients.connections import Clients

__all__ = ["KafkaConsumer"]

_T = TypeVar("_T")
_REQUEST_S = 30.0
_NO_GROUP = "penstock-reader"  # the client requires a group; nothing is ever committed to this one
_NO_OFFSET = {KafkaError.OFFSET_OUT_OF_RANGE, LocalCode.AUTO_OFFSET_RESET, LocalCode.NO_OFFSET}
_OUT_OF_GROUP = {
    KafkaError.FENCED_INSTANCE_ID,
    LocalCode.FENCED,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.UNKNOWN_MEMBER_ID,
    LocalCode.ASSIGNMENT_LOST,
}


class KafkaConsumer:
    """The consumer of Kafka, a `LogConsumer`.

    Args:
        log: The log, for topics and offsets.
        clients: The log's clients.
        options: The settings of the consumer.
        listener: Called when partitions come and go.
    """

    def __init__(self, log: TopicLog, clients: Clients, options: ConsumerOptions, listener: RebalanceListener) -> None:
        self._log = log
        self._options = options
        self._listener = listener
        self._positions: dict[TopicPartition, int] = {}
        self._places: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        own = {
            "group.id": options.group or _NO_GROUP,
            "auto.offset.reset": "error" if options.auto_offset_reset == "none" else options.auto_offset_reset,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": options.isolation,
            "session.timeout.ms": options.session_timeout_ms,
            "heartbeat.interval.ms": options.heartbeat_interval_ms,
            "max.poll.interval.ms": max(options.max_poll_interval_ms, options.session_timeout_ms),
            "partition.assignment.strategy": ",".join(
                "cooperative-sticky" if name == "sticky" else name for name in options.assignors
            ),
        }
        if options.group_instance_id:
            own["group.instance.id"] = options.group_instance_id
        if options.client_id:
            own["client.id"] = options.client_id
        self._access = clients.access
        self._consumer = clients.member(own)

    def subscribe(self, topics: Sequence[str], pattern: re.Pattern[str] | None) -> None:
        for topic in topics:
            self._log.partitions(topic)  # raises for a misspelt name
        if not self._options.group:
            if pattern is not None:
                topics = [each.name for each in self._log.topics() if pattern.fullmatch(each.name)]
            self.assign({TopicPartition(name, n): None for name in topics for n in range(self.partitions(name))})
            return
        names = list(topics) if pattern is None else [f"^({pattern.pattern})$"]
        self._consumer.subscribe(names, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def unsubscribe(self) -> None:
        self._forget(self._places)
        self._consumer.unsubscribe()
        self._consumer.unassign()

    def assign(self, starts: Mapping[TopicPartition, int | None]) -> None:
        self._forget(self._places)
        if not self._options.group:  # there is nothing committed to start from
            first = self._reset_of([tp for tp, offset in starts.items() if offset is None])
            starts = {tp: first[tp] if offset is None else offset for tp, offset in starts.items()}
        self._consumer.assign([_entry(tp, offset) for tp, offset in starts.items()])
        self._places = set(starts)
        self._positions = {tp: offset for tp, offset in starts.items() if offset is not None}

    def assignment(self) -> set[TopicPartition]:
        return set(self._places)

    def position(self, tp: TopicPartition) -> int:
        if tp not in self._positions:
            committed = self.committed([tp])
            self._positions[tp] = committed[tp] if tp in committed else self._reset_of([tp])[tp]
        return self._positions[tp]

    def seek(self, tp: TopicPartition, offset: int) -> None:
        deadline = time.monotonic() + _REQUEST_S
        while True:
            try:
                self._consumer.seek(_entry(tp, offset))
                break
            except KafkaException as error:  # it has not begun to fetch
                if error_of(error).code() != LocalCode.STATE or time.monotonic() > deadline:
                    raise self._problem(error, f"seeking in {tp.topic}-{tp.partition}") from error
                time.sleep(0.01)
        self._positions[tp] = offset

    def pause(self, places: Collection[TopicPartition]) -> None:
        if new := set(places) - self._paused:
            self._consumer.pause([_entry(tp) for tp in new])
            self._paused |= new

    def resume(self, places: Collection[TopicPartition]) -> None:
        if paused := set(places) & self._paused:
            self._consumer.resume([_entry(tp) for tp in paused])
            self._paused -= paused

    def paused(self) -> set[TopicPartition]:
        return set(self._paused)

    def fetch(self, timeout_s: float, max_records: int) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                messages = self._consumer.consume(max_records, 0)
                left = deadline - time.monotonic()
                if not messages and left > 0 and (one := self._consumer.poll(left)) is not None:
                    messages = [one]
                    if max_records > 1:
                        messages += self._consumer.consume(max_records - 1, 0)
            except KafkaException as error:
                raise self._problem(error, "polling") from error
            batches = self._sort(messages)
            if batches or time.monotonic() >= deadline:
                return batches

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        entries = [_entry(tp, offset) for tp, offset in offsets.items()]

        def act() -> None:
            for each in self._consumer.commit(offsets=entries, asynchronous=False) or ():
                if each.error is not None:
                    raise KafkaException(each.error)

        self._do(act, f"committing offsets of group {self._options.group!r}")

    def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        entries = [_entry(tp) for tp in places]
        if not entries or not self._options.group:
            return {}
        committed = self._do(lambda: self._consumer.committed(entries, _REQUEST_S), "asking for committed offsets")
        return {TopicPartition(each.topic, each.partition): each.offset for each in committed if each.offset >= 0}

    def group_metadata(self) -> object:
        return self._consumer.consumer_group_metadata()

    def partitions(self, topic: str) -> int:
        return self._log.partitions(topic)

    def beginning_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return _chosen(self._log.beginning_offsets, places)

    def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return _chosen(self._log.end_offsets, places)

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime | None]:
        return self._log.offsets_for_times(times)

    def last_offset_before(self, tp: TopicPartition, timestamp: int, end: int) -> int:
        try:
            config = self._log.topic(tp.topic).config
        except AuthorizationError:
            return end  # a user who may read a topic may still lack the right to read its settings
        if config.get("message.timestamp.type") != "LogAppendTime":
            return end
        first = self._log.offset_for_time(tp.topic, tp.partition, timestamp)
        return end if first is None else min(first.offset, end)

    def close(self) -> None:
        self._consumer.close()
        self._places.clear()

    # Callbacks of librdkafka, within poll and close

    def _assigned(self, _: Any, entries: list[KafkaTopicPartition]) -> None:
        places = _places(entries)
        self._places |= places
        if places:
            self._listener.on_assigned(sorted(places))

    def _revoked(self, _: Any, entries: list[KafkaTopicPartition]) -> None:
        if places := _places(entries) & self._places:
            self._listener.on_revoked(sorted(places))
        self._forget(places)

    def _lost(self, _: Any, entries: list[KafkaTopicPartition]) -> None:
        places = _places(entries)
        self._forget(places)
        if places:
            self._listener.on_lost(sorted(places))

    def _forget(self, places: Collection[TopicPartition]) -> None:
        self.resume(places)  # in the client, a pause outlives the assignment
        for tp in list(places):
            self._positions.pop(tp, None)
            self._places.discard(tp)
            self._paused.discard(tp)

    def _reset_of(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if places and self._options.auto_offset_reset == "none":
            raise _no_offset(min(places))
        latest = self._options.auto_offset_reset == "latest"
        return self.end_offsets(places) if latest else self.beginning_offsets(places)

    def _sort(self, messages: list[Message]) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        """Group messages by partition; those that are not records move the position, or are errors.

        What has come with an error is fetched again: it has not been returned, and so must not be counted as read.
        """
        by_partition: dict[tuple[str, int], list[Message]] = defaultdict(list)
        problem: Exception | None = None
        for message in messages:
            error = message.error()
            if error is None:
                by_partition[message.topic(), message.partition()].append(message)
                continue
            tp = TopicPartition(message.topic() or "", message.partition() or 0)
            if error.code() == LocalCode.PARTITION_EOF:
                if tp in self._places:  # transactions leave markers at the end, which are not records
                    self._positions[tp] = max(self._positions.get(tp, 0), message.offset() or 0)
            elif error.code() in _NO_OFFSET:
                problem = problem or _no_offset(tp)
            elif error.code() != LocalCode.MAX_POLL_EXCEEDED and not is_transient(error):
                problem = problem or self._problem(error, f"reading {tp.topic}-{tp.partition}")
        if problem is not None:
            for (topic, partition), group in by_partition.items():
                with suppress(LogError):  # the client itself has failed
                    self.seek(TopicPartition(topic, partition), group[0].offset())
            raise problem
        batches = []
        for at, group in by_partition.items():
            tp = TopicPartition(*at)
            offsets = [message.offset() for message in group]
            self._positions[tp] = offsets[-1] + 1
            batches.append((tp, _batch_of(group, offsets)))
        return batches

    def _do(self, action: Callable[[], _T], doing: str) -> _T:
        try:
            return action()
        except KafkaException as error:
            raise self._problem(error, doing) from error

    def _problem(self, error: KafkaException | KafkaError, doing: str) -> LogError | UnknownTopicError:
        inner = error_of(error)
        is_fatal = inner.code() == LocalCode.FATAL
        if inner.code() in _OUT_OF_GROUP or (is_fatal and "fenced" in inner.str()):
            return FencedError(
                f"{doing}: {inner.str()} ({inner.name()})",
                hint="The group has assigned the partitions to another member: poll again. Each running consumer needs "
                "a group.instance.id of its own.",
                code=inner.name(),
            )
        return failure(error, doing, self._access, group=self._options.group, operation="READ")


def _no_offset(tp: TopicPartition) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"{tp.topic}-{tp.partition}: no offset to start from, and auto.offset.reset is none",
        hint="seek, commit an offset for the group, or set auto_offset_reset to earliest or latest",
        topic=tp.topic, partition=tp.partition,
    )  # fmt: skip


def _entry(tp: TopicPartition, offset: int | None = None) -> KafkaTopicPartition:
    if offset is None:
        return KafkaTopicPartition(tp.topic, tp.partition)
    return KafkaTopicPartition(tp.topic, tp.partition, offset)


def _places(entries: Iterable[KafkaTopicPartition]) -> set[TopicPartition]:
    return {TopicPartition(each.topic, each.partition) for each in entries}


def _chosen(
    ask: Callable[[Sequence[str]], dict[TopicPartition, int]], places: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    partitions = set(places)
    offsets = ask(sorted({tp.topic for tp in partitions})) if partitions else {}
    return {tp: offsets[tp] for tp in sorted(partitions)}


def _batch_of(messages: list[Message], offsets: list[int]) -> pa.RecordBatch:
    """Convert messages of one partition, without errors, to a record batch."""
    headers = [message.headers() for message in messages]
    packed: pa.Array = pa.nulls(len(messages), HEADERS_TYPE)
    if any(headers):
        packed = pa.array([None if not h else [{"key": k, "value": v} for k, v in h] for h in headers], HEADERS_TYPE)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(offsets, pa.int64()),
            pa.array([message.timestamp()[1] for message in messages], pa.int64()),
            pa.array([message.key() for message in messages], pa.large_binary()),
            pa.array([message.value() for message in messages], pa.large_binary()),
            packed,
        ],
        schema=RECORD_SCHEMA,
    )
