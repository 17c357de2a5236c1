"""How a consumer reads Kafka, and takes part in its groups: librdkafka's consumer behind the seam of ours."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from penstock.errors import AuthorizationError, FencedError, LogError, OffsetOutOfRangeError
from penstock.log.base import OffsetAndTime, TopicPartition
from penstock.log.consuming import ConsumerOptions, RebalanceListener
from penstock.log.kafka.failures import error_of, failure, is_transient
from penstock.log.kafka.messages import batch_of

if TYPE_CHECKING:
    from confluent_kafka import Message

    from penstock.log.kafka.log import KafkaLog

__all__ = ["KafkaConsumer"]

_T = TypeVar("_T")
_REQUEST_S = 30.0
_NO_GROUP = "penstock-reader"  # the client asks for a group; nothing is ever committed to this one
_NO_OFFSET = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._NO_OFFSET}  # noqa: SLF001
_OUT_OF_GROUP = {
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError._FENCED,  # noqa: SLF001
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001
}


class KafkaConsumer:
    """A ConsumerPort over Kafka."""

    def __init__(self, log: KafkaLog, options: ConsumerOptions, listener: RebalanceListener) -> None:
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
        self._consumer = log.clients.member(own)

    def subscribe(self, topics: Sequence[str], pattern: re.Pattern[str] | None) -> None:
        for topic in topics:
            self._log.partitions(topic)  # a misspelt one is told at once
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
            first = self._reset_of([place for place, offset in starts.items() if offset is None])
            starts = {place: first[place] if offset is None else offset for place, offset in starts.items()}
        self._consumer.assign([_entry(place, offset) for place, offset in starts.items()])
        self._places = set(starts)
        self._positions = {place: offset for place, offset in starts.items() if offset is not None}

    def assignment(self) -> set[TopicPartition]:
        return set(self._places)

    def position(self, place: TopicPartition) -> int:
        if place not in self._positions:
            committed = self.committed([place])
            self._positions[place] = committed[place] if place in committed else self._reset_of([place])[place]
        return self._positions[place]

    def seek(self, place: TopicPartition, offset: int) -> None:
        deadline = time.monotonic() + _REQUEST_S
        while True:
            try:
                self._consumer.seek(_entry(place, offset))
                break
            except KafkaException as error:  # it has not begun to fetch
                if error_of(error).code() != KafkaError._STATE or time.monotonic() > deadline:  # noqa: SLF001
                    raise failure(error, f"seeking in {place.topic}-{place.partition}") from error
                time.sleep(0.01)
        self._positions[place] = offset

    def pause(self, places: Collection[TopicPartition]) -> None:
        if new := set(places) - self._paused:
            self._consumer.pause([_entry(place) for place in new])
            self._paused |= new

    def resume(self, places: Collection[TopicPartition]) -> None:
        if paused := set(places) & self._paused:
            self._consumer.resume([_entry(place) for place in paused])
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
                    messages = [one, *self._consumer.consume(max_records - 1, 0)] if max_records > 1 else [one]
            except KafkaException as error:
                raise _problem(error, "polling") from error
            found = self._sort(messages)
            if found or time.monotonic() >= deadline:
                return found

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        entries = [_entry(place, offset) for place, offset in offsets.items()]

        def act() -> None:
            for each in self._consumer.commit(offsets=entries, asynchronous=False) or ():
                if each.error is not None:
                    raise KafkaException(each.error)

        self._do(act, f"committing offsets of group {self._options.group!r}")

    def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        entries = [_entry(place) for place in places]
        if not entries or not self._options.group:
            return {}
        found = self._do(lambda: self._consumer.committed(entries, _REQUEST_S), "asking for committed offsets")
        return {TopicPartition(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def group_metadata(self) -> object:
        return self._consumer.consumer_group_metadata()

    def partitions(self, topic: str) -> int:
        return self._log.partitions(topic)

    def beginning_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return _chosen(self._log.beginning_offsets, places)

    def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return _chosen(self._log.end_offsets, places)

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime | None]:
        return {place: self._log.offset_for_time(place.topic, place.partition, at) for place, at in times.items()}

    def last_offset_before(self, place: TopicPartition, timestamp: int, end: int) -> int:
        try:
            config = self._log.topic(place.topic).config
        except AuthorizationError:
            return end  # who may read a topic need not be one who may know its settings
        if config.get("message.timestamp.type") != "LogAppendTime":
            return end
        found = self._log.offset_for_time(place.topic, place.partition, timestamp)
        return end if found is None else min(found.offset, end)

    def close(self) -> None:
        self._consumer.close()
        self._places.clear()

    # Partitions come and go: librdkafka calls these from within poll and close

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
        self.resume(places)  # the client remembers a pause for longer than an assignment
        for place in list(places):
            self._positions.pop(place, None)
            self._places.discard(place)
            self._paused.discard(place)

    def _reset_of(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if places and self._options.auto_offset_reset == "none":
            raise _no_offset(min(places))
        latest = self._options.auto_offset_reset == "latest"
        return self.end_offsets(places) if latest else self.beginning_offsets(places)

    def _sort(self, messages: list[Message]) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        """By partition; what is not a record moves the position, or is an error."""
        found: dict[TopicPartition, list[Message]] = {}
        for message in messages:
            error = message.error()
            if error is None:
                found.setdefault(TopicPartition(message.topic(), message.partition()), []).append(message)
                continue
            place = TopicPartition(message.topic() or "", message.partition() or 0)
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                if place in self._places:  # transactions leave marks at the end that are no records
                    self._positions[place] = max(self._positions.get(place, 0), message.offset() or 0)
            elif error.code() in _NO_OFFSET:
                raise _no_offset(place)
            elif error.code() != KafkaError._MAX_POLL_EXCEEDED and not is_transient(error):  # noqa: SLF001
                raise _problem(error, f"reading {place.topic}-{place.partition}")
        batches = []
        for place, group in found.items():
            offsets = [message.offset() for message in group]
            self._positions[place] = offsets[-1] + 1
            batches.append((place, batch_of(group, offsets)))
        return batches

    def _do(self, action: Callable[[], _T], doing: str) -> _T:
        try:
            return action()
        except KafkaException as error:
            raise _problem(error, doing) from error


def _problem(error: KafkaException | KafkaError, doing: str) -> LogError | Exception:
    inner = error_of(error)
    is_fatal = inner.code() == KafkaError._FATAL  # noqa: SLF001
    if inner.code() in _OUT_OF_GROUP or (is_fatal and "fenced" in inner.str()):
        return FencedError(
            f"{doing}: {inner.str()} ({inner.name()})",
            hint="The group has given the partitions to another member: poll again. A group.instance.id must be of one "
            "running consumer only.",
            code=inner.name(),
        )
    return failure(error, doing)


def _no_offset(place: TopicPartition) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"{place.topic}-{place.partition}: no offset to start from, and auto.offset.reset is none",
        hint="seek, commit an offset for the group, or set auto_offset_reset to earliest or latest",
        topic=place.topic, partition=place.partition,
    )  # fmt: skip


def _entry(place: TopicPartition, offset: int | None = None) -> KafkaTopicPartition:
    if offset is None:
        return KafkaTopicPartition(place.topic, place.partition)
    return KafkaTopicPartition(place.topic, place.partition, offset)


def _places(entries: Iterable[KafkaTopicPartition]) -> set[TopicPartition]:
    return {TopicPartition(each.topic, each.partition) for each in entries}


def _chosen(
    ask: Callable[[Sequence[str]], dict[TopicPartition, int]], places: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    wanted = set(places)
    found = ask(sorted({place.topic for place in wanted})) if wanted else {}
    return {place: found[place] for place in sorted(wanted)}
