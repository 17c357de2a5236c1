"""The consumer of an embedded log, which is a member of its groups, and its producer."""

from __future__ import annotations

import re
import threading
import time
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import InvalidStateError, LogError, OffsetOutOfRangeError, PenstockError
from penstock.log.base import OffsetAndTime, Span, TopicPartition
from penstock.log.client_interfaces import (
    ConsumerOptions,
    Delivery,
    OnDelivery,
    ProducerOptions,
    ProducerRecord,
    RebalanceListener,
    as_batch,
    call_back,
    parts_of,
)
from penstock.log.embedded.membership import ConsumerIdentity, JoinRequest
from penstock.log.partitioner import partition_for

if TYPE_CHECKING:
    from penstock.log.embedded.log import EmbeddedLog

__all__ = ["EmbeddedConsumer", "EmbeddedProducer"]

_LOOK_S = 0.05


class EmbeddedConsumer:
    """The consumer of an embedded log, a `LogConsumer`.

    A member sends heartbeats from a thread of its own, as in Kafka, as long as ``poll`` is called at least every
    ``max_poll_interval_ms``.
    """

    def __init__(self, log: EmbeddedLog, options: ConsumerOptions, listener: RebalanceListener) -> None:
        self._log = log
        self._options = options
        self._listener = listener
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._topics: tuple[str, ...] = ()
        self._pattern: re.Pattern[str] | None = None
        self._me: ConsumerIdentity | None = None
        self._generation = -1
        self._turn = 0
        self._next_look = 0.0
        self.last_poll = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def subscribe(self, topics: Sequence[str], pattern: re.Pattern[str] | None) -> None:
        for topic in topics:
            self._log.partitions(topic)  # raises for a misspelt name
        if self._me is None:
            self._positions.clear()
        self._topics, self._pattern = tuple(topics), pattern
        if not self._options.group:
            names = self.subscription()
            self._positions = self._starts([TopicPartition(n, p) for n in names for p in range(self.partitions(n))])
        self._generation, self._next_look = -1, 0.0

    def unsubscribe(self) -> None:
        if self._me is not None:
            self._give_up(set(self._positions))
            self._leave()
        self._positions.clear()
        self._paused.clear()
        self._topics, self._pattern = (), None

    def assign(self, starts: Mapping[TopicPartition, int | None]) -> None:
        default_starts = self._starts([tp for tp, offset in starts.items() if offset is None])
        self._positions = {tp: default_starts[tp] if offset is None else offset for tp, offset in starts.items()}
        self._paused.clear()

    def assignment(self) -> set[TopicPartition]:
        return set(self._positions)

    def position(self, tp: TopicPartition) -> int:
        return self._positions[tp]

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._positions[tp] = offset

    def pause(self, places: Collection[TopicPartition]) -> None:
        self._paused.update(places)

    def resume(self, places: Collection[TopicPartition]) -> None:
        self._paused.difference_update(places)

    def paused(self) -> set[TopicPartition]:
        return set(self._paused)

    def fetch(self, timeout_s: float, max_records: int) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        deadline = time.monotonic() + timeout_s
        while True:
            self.last_poll = time.monotonic()
            self._look_at_group()
            version = self._log.version()
            batches = self._read_in_turn(max_records)
            left = deadline - time.monotonic()
            if batches or left <= 0:
                return batches
            pause = 0.001
            until = time.monotonic() + min(left, _LOOK_S * 4)
            while self._log.version() == version and (rest := until - time.monotonic()) > 0:
                time.sleep(min(pause, rest))
                pause = min(pause * 1.5, _LOOK_S / 2)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._log.commit_as(self.group_metadata(), offsets)

    def group_metadata(self) -> ConsumerIdentity:
        """Return the identity for commits: this member, or a reader outside the group."""
        return self._me or ConsumerIdentity(self._options.group, "")

    def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        offsets = self._log.committed_offsets(self._options.group) if self._options.group else {}
        return {tp: offsets[tp] for tp in places if tp in offsets}

    def partitions(self, topic: str) -> int:
        return self._log.partitions(topic)

    def beginning_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._log.beginning_offset(tp.topic, tp.partition) for tp in places}

    def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._log.end_offset(tp.topic, tp.partition) for tp in places}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime | None]:
        return self._log.offsets_for_times(times)

    def last_offset_before(self, tp: TopicPartition, timestamp: int, end: int) -> int:
        first = self._log.beginning_offset(tp.topic, tp.partition)
        last = first
        for following, earliest, _ in self._log.stretches({tp: Span(first, end, end - first + 1)})[tp]:
            if earliest < timestamp:
                last = following
        return min(last, end)

    def close(self) -> None:
        self._stop.set()
        if self._me is not None:
            self._give_up(set(self._positions))
            if not self._options.group_instance_id:  # a static member may come back within its session
                self._leave()
        self._positions.clear()

    # The group

    def subscription(self) -> list[str]:
        """Return the topics that the subscription matches now."""
        if self._pattern is None:
            return list(self._topics)
        return [topic.name for topic in self._log.topics() if self._pattern.fullmatch(topic.name)]

    def beat(self) -> bool:
        """Send a heartbeat, from the thread; return False when the thread can end."""
        me = self._me
        if self._stop.is_set():
            return False
        idle_s = time.monotonic() - self.last_poll
        if me is None or idle_s * 1000 > self._options.max_poll_interval_ms:
            return True  # the group removes it when its session ends, and the next poll joins again
        try:
            self._log.heartbeat(me, self.subscription())
        except InvalidStateError:
            return True  # poll notices it too, and joins again
        except PenstockError:
            return False  # fenced, or the log is closed: poll raises it
        return True

    def _look_at_group(self) -> None:
        if not self._options.group or not (self._topics or self._pattern):
            return
        now = time.monotonic()
        if self._me is None:
            self._join()
        elif now < self._next_look and self._log.group_generation(self._options.group) == self._generation:
            return
        self._next_look = now + self._options.heartbeat_interval_ms / 1000
        try:
            self._settle()
        except InvalidStateError:  # removed from the group
            lost, self._me = set(self._positions), None
            self._forget(lost)
            if lost:
                self._listener.on_lost(lost)
            self._join()
            self._settle()

    def _settle(self) -> None:
        """Release partitions that are assigned elsewhere, and take those that are free."""
        assert self._me is not None  # noqa: S101 - after _join
        topics = self.subscription()
        share = self._log.sync_group(self._me, self._positions, topics)
        if going := set(self._positions) - share.target:
            self._give_up(going)
            share = self._log.sync_group(self._me, self._positions, topics)
        self._generation = share.generation
        if new := sorted(share.owned - set(self._positions)):
            self._positions |= self._starts(new)
            self._listener.on_assigned(new)

    def _join(self) -> None:
        options = self._options
        request = JoinRequest(
            topics=self.subscription(),
            assignors=options.assignors,
            instance=options.group_instance_id,
            client=options.client_id,
            session_ms=options.session_timeout_ms,
        )
        self._me = self._log.join_group(options.group, request)
        if self._thread is None:
            arguments = (weakref.ref(self), self._stop, options.heartbeat_interval_ms / 1000)
            self._thread = threading.Thread(target=_beats, args=arguments, name="penstock-heartbeat", daemon=True)
            self._thread.start()

    def _leave(self) -> None:
        if self._me is not None:
            self._log.leave_group(self._me)
            self._me = None

    def _give_up(self, places: set[TopicPartition]) -> None:
        if places:
            self._listener.on_revoked(sorted(places))
        self._forget(places)

    def _forget(self, places: set[TopicPartition]) -> None:
        for tp in places:
            self._positions.pop(tp, None)
        self._paused -= places

    # Reading

    def _starts(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        committed = self.committed(places)
        return {tp: committed[tp] if tp in committed else self._reset_of(tp) for tp in places}

    def _reset_of(self, tp: TopicPartition) -> int:
        if self._options.auto_offset_reset == "none":
            raise OffsetOutOfRangeError(
                f"{tp.topic}-{tp.partition}: no offset to start from, and auto.offset.reset is none",
                hint="seek, commit an offset for the group, or set auto_offset_reset to earliest or latest",
                topic=tp.topic, partition=tp.partition,
            )  # fmt: skip
        if self._options.auto_offset_reset == "latest":
            return self._log.end_offset(tp.topic, tp.partition)
        return self._log.beginning_offset(tp.topic, tp.partition)

    def _read_in_turn(self, max_records: int) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        """Read from the partitions in turn, so that a busy one does not starve the others."""
        places = sorted(set(self._positions) - self._paused)
        batches: list[tuple[TopicPartition, pa.RecordBatch]] = []
        reached: dict[TopicPartition, int] = {}
        if not places:
            return batches
        self._turn = (self._turn + 1) % len(places)
        for tp in places[self._turn :] + places[: self._turn]:
            try:
                fetched = self._log.read(tp.topic, tp.partition, self._positions[tp], max_records)
            except OffsetOutOfRangeError:
                self._positions[tp] = self._reset_of(tp)
                fetched = self._log.read(tp.topic, tp.partition, self._positions[tp], max_records)
            reached[tp] = fetched.next_offset
            if fetched.records.num_rows:
                batches.append((tp, fetched.records))
                max_records -= fetched.records.num_rows
            if max_records <= 0:
                break
        self._positions |= reached  # not before: if a partition fails, the records of the others are read again
        return batches


def _beats(consumer: weakref.ref[EmbeddedConsumer], stop: threading.Event, interval_s: float) -> None:
    while not stop.wait(interval_s):
        alive = consumer()
        if alive is None or not alive.beat():
            return
        del alive


_Row = tuple[ProducerRecord, OnDelivery | None]
_Piece = list[_Row] | Any  # or a record batch


class EmbeddedProducer:
    """The producer of an embedded log, a `LogProducer`. It has no thread: ``send`` and ``poll`` check the clock.

    Within a transaction everything waits for its end; otherwise a flush is one unit.
    """

    def __init__(self, log: EmbeddedLog, options: ProducerOptions) -> None:
        self._log = log
        self._id = options.transactional_id
        self._epoch = log.new_producer_epoch(self._id) if self._id else None
        self._linger_s = options.linger_ms / 1000
        self._batch_bytes = options.batch_bytes
        self._waiting: dict[TopicPartition, list[_Piece]] = {}
        self._offsets: list[tuple[ConsumerIdentity, Mapping[TopicPartition, int]]] = []
        self._bytes = 0
        self._since = 0.0
        self._counts: dict[str, int] = {}
        self._turn: dict[str, int] = {}
        self._in_transaction = False

    def send(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> None:
        topic, value, key, _, partition, _ = record
        count = self._partitions(topic)
        if partition is None:
            partition = self._sticky(topic) if key is None else partition_for(key, count)
        elif not 0 <= partition < count:
            raise LogError(
                f"topic {topic!r} has no partition {partition}",
                hint=f"it has {count}, numbered from 0",
                topic=topic,
                partition=partition,
            )
        if not self._waiting:
            self._since = time.monotonic()
        pieces = self._waiting.setdefault(TopicPartition(topic, partition), [])
        if not pieces or not isinstance(pieces[-1], list):
            pieces.append([])
        pieces[-1].append((record, on_delivery))
        self._bytes += len(key or b"") + len(value or b"") + 32
        if self._bytes >= self._batch_bytes and not self._in_transaction:
            self.flush()
        else:
            self.poll()

    def send_batch(self, topic: str, records: pa.RecordBatch) -> None:
        for partition, part in parts_of(records, self._partitions(topic), self._turn.get(topic, 0)):
            self._waiting.setdefault(TopicPartition(topic, partition), []).append(part)
        self._turn[topic] = self._turn.get(topic, 0) + 1
        if not self._in_transaction:
            self.flush()

    def poll(self) -> None:
        if self._waiting and not self._in_transaction and time.monotonic() - self._since >= self._linger_s:
            self.flush()

    def flush(self) -> None:
        """Write all waiting records, in one unit. If that fails, they remain."""
        if not self._in_transaction:
            self._write()

    def begin(self) -> None:
        self.flush()
        self._in_transaction = True

    def commit(self) -> None:
        try:
            self._write()
        except BaseException:
            self._forget()
            raise
        finally:
            self._in_transaction = False

    def abort(self) -> None:
        self._forget()
        self._in_transaction = False

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group_metadata: object) -> None:
        assert isinstance(group_metadata, ConsumerIdentity)  # noqa: S101 - it comes from a consumer of the same log
        self._offsets.append((group_metadata, dict(offsets)))

    def close(self) -> None:
        self.flush()

    def _write(self) -> None:
        if not self._waiting and not self._offsets:
            return
        with self._log.transaction(self._id, self._epoch) as transaction:
            for tp, pieces in self._waiting.items():
                for piece in pieces:
                    transaction.append(tp.topic, tp.partition, _batch(piece))
            for member, offsets in self._offsets:
                transaction.commit_as(member, offsets)
        written = self._waiting
        for topic in {tp.topic for tp in written}:
            self._turn[topic] = self._turn.get(topic, 0) + 1
        self._forget()
        self._counts.clear()  # partitions may be added at any time
        for tp, pieces in written.items():
            _report_deliveries(tp, transaction.first_offsets[tp], pieces)

    def _forget(self) -> None:
        self._waiting, self._offsets, self._bytes = {}, [], 0

    def _partitions(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._log.partitions(topic)
        return self._counts[topic]

    def _sticky(self, topic: str) -> int:
        """Return the partition of all records without a key until the next write."""
        return self._turn.get(topic, 0) % self._partitions(topic)


def _report_deliveries(tp: TopicPartition, offset: int, pieces: Sequence[_Piece]) -> None:
    for piece in pieces:
        if isinstance(piece, list):
            for at, (record, on_delivery) in enumerate(piece, offset):
                if on_delivery is not None:
                    call_back(on_delivery, Delivery(tp.topic, tp.partition, at, record.timestamp), None)
        offset += len(piece)


def _batch(piece: _Piece) -> pa.RecordBatch:
    return as_batch([record for record, _ in piece]) if isinstance(piece, list) else piece
