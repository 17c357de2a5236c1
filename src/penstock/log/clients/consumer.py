"""A consumer for any topic log: subscriptions and assignments, groups, seeking, time ranges."""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Self

import pyarrow as pa

from penstock.base.durations import DurationLike, TimestampLike, duration_ms, timestamp_ms
from penstock.errors import InvalidStateError, LogError
from penstock.log.assignors import check_assignors
from penstock.log.base import Isolation, OffsetAndTime, TopicLog, TopicPartition
from penstock.log.client_interfaces import ConsumerOptions, ConsumerRecord, OffsetReset, RebalanceListener, records_of
from penstock.log.clients.dispatch import open_consumer
from penstock.log.time_range import first_from, offsets_of, span_of, within

__all__ = ["Consumer", "ConsumerRecord"]

_SLICE_S = 0.25


class Consumer:
    """Kafka's consumer, for an embedded log or for Kafka. Not thread-safe.

    Args:
        log: A log, or its URL (a file, or Kafka's ``host:port``).
        group: The ``group.id``: members share the partitions of their topics, and start from the group's offsets.
        group_instance_id: Makes it a static member: its partitions wait for it while it restarts.
        auto_offset_reset: The start without a committed offset, or if retention has removed it; "none" raises.
        assignors: ``partition.assignment.strategy``: range, roundrobin, sticky or cooperative-sticky, by preference.
        auto_commit_interval_ms: The interval of commits of earlier polls; by default only ``commit`` commits.
        session_timeout_ms: The group removes a member without a heartbeat for this long; on the embedded log it
            removes one whose process is gone at once.
        heartbeat_interval_ms: The interval of a member's heartbeats.
        max_poll_interval_ms: The group also removes a member that does not poll for this long.
        client_id: A name by which people recognise it.
        isolation: "read_uncommitted" also reads the records of Kafka's open and aborted transactions.
        settings: More of Kafka's client settings by their Java names (security, fetch sizes).

    Example:
        >>> from penstock.log.open import open_log
        >>> log = open_log("memory://doc-consumer")
        >>> log.create_topic("orders")
        >>> _ = log.append("orders", 0, pa.RecordBatch.from_pydict({"value": [b"apples"]}))
        >>> with Consumer(log, group="stock") as consumer:
        ...     consumer.subscribe(["orders"])
        ...     [record.value for record in consumer.poll(timeout_s=1)]
        ...     consumer.commit()
        [b'apples']
    """

    def __init__(
        self,
        log: TopicLog | str,
        group: str | None = None,
        *,
        group_instance_id: str = "",
        auto_offset_reset: OffsetReset = "earliest",
        assignors: str | Sequence[str] = ("range",),
        auto_commit_interval_ms: int | None = None,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        client_id: str = "",
        isolation: Isolation = "read_committed",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        options = ConsumerOptions(
            group=group or "",
            group_instance_id=group_instance_id,
            client_id=client_id,
            auto_offset_reset=auto_offset_reset,
            assignors=check_assignors(assignors),
            auto_commit_interval_ms=auto_commit_interval_ms if group else None,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            max_poll_interval_ms=max_poll_interval_ms,
            isolation=isolation,
            settings=dict(settings or {}),
        )
        self._group = options.group
        interval_ms = options.auto_commit_interval_ms
        self._auto_commit_s = None if interval_ms is None else interval_ms / 1000
        self._next_commit = time.monotonic() + (self._auto_commit_s or 0)
        self._rebalance = _CommitBeforeRevoke(self, auto_commit=interval_ms is not None)
        self._client, self._opened = open_consumer(log, options, self._rebalance)
        self._ends: dict[TopicPartition, int] = {}
        self._span: tuple[int, int] | None = None
        self._too_new: int | None = None
        self._subscribed = self._closed = False
        self._unread: dict[TopicPartition, int] = {}  # first records of the last poll that iteration has not reached
        self._lasts: dict[TopicPartition, int] = {}  # the last ones of that poll

    # What to read

    def subscribe(
        self, topics: Sequence[str] | str | re.Pattern[str], *, listener: RebalanceListener | None = None
    ) -> None:
        """Subscribe to topics: with a group to this member's share of the partitions, else to all.

        Args:
            topics: Names, or a compiled pattern that whole names match; topics created later are found.
            listener: Called when partitions come and go.
        """
        self._check_open()
        self._rebalance.listener = listener or RebalanceListener()
        self._ends, self._span, self._too_new = {}, None, None
        if isinstance(topics, re.Pattern):
            self._client.subscribe([], topics)
        else:
            self._client.subscribe([topics] if isinstance(topics, str) else list(topics), None)
        self._subscribed = True

    def assign(
        self,
        places: Mapping[TopicPartition, int] | Iterable[TopicPartition],
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Assign partitions to this consumer, without sharing them with the group.

        Args:
            places: The partitions, optionally with start offsets; by default it starts from the group's offsets, or
                by ``auto_offset_reset``.
            ends: The offsets before which to stop; see ``finished``.
        """
        self._check_open()
        if self._subscribed:
            raise InvalidStateError("this consumer has subscribed", hint="call unsubscribe first")
        self._ends, self._span, self._too_new = dict(ends or {}), None, None
        self._client.assign(places if isinstance(places, Mapping) else dict.fromkeys(places))
        self._pause_finished()

    def unsubscribe(self) -> None:
        """Leave the group and give up all partitions."""
        self._client.unsubscribe()
        self._ends, self._span, self._subscribed = {}, None, False

    def between(
        self,
        start: TimestampLike,
        end: TimestampLike,
        topics: Sequence[str] | str | None = None,
        *,
        disorder: DurationLike | None = None,
        timeout_s: float = 30.0,
    ) -> Iterator[ConsumerRecord]:
        """Yield all records with start <= timestamp < end that the topics hold now, then end.

        Timestamps need not be in order: the search goes on after the first later record, up to the present end of the
        log. The embedded log knows from its index where to stop. Kafka does not: give ``disorder`` for large topics.

        Args:
            start: ISO time (UTC without a zone), milliseconds, or a datetime.
            end: The end of the range, exclusive.
            topics: By default the assigned ones.
            disorder: By how much a record may be older than its predecessors; the search ends at the first record
                that is newer than ``end`` by this.
            timeout_s: The time to wait for each fetch of records that exist.

        Example:
            >>> from penstock.log.open import open_log
            >>> log = open_log("memory://doc-between")
            >>> log.create_topic("orders")
            >>> times = [timestamp_ms("2026-11-21T09:59"), timestamp_ms("2026-11-21T10:30")]
            >>> columns = {"timestamp": times, "value": [b"early", b"in time"]}
            >>> _ = log.append("orders", 0, pa.RecordBatch.from_pydict(columns))
            >>> with Consumer(log) as consumer:
            ...     [record.value for record in consumer.between("2026-11-21T10:00", "2026-11-21T11:00", "orders")]
            [b'in time']
        """
        for tp, batch in self.batches_between(start, end, topics, disorder=disorder, timeout_s=timeout_s):
            yield from records_of(tp, batch)

    def batches_between(
        self,
        start: TimestampLike,
        end: TimestampLike,
        topics: Sequence[str] | str | None = None,
        *,
        disorder: DurationLike | None = None,
        timeout_s: float = 30.0,
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """Like ``between``, as Arrow batches."""
        self._check_open()
        names = [topics] if isinstance(topics, str) else topics
        if names is None:
            places = sorted(self._client.assignment())
        else:
            places = [TopicPartition(name, number) for name in names for number in range(self._client.partitions(name))]
        if not places:
            raise InvalidStateError("this consumer has no partitions", hint="give the topics, or call assign first")
        span = span_of(start, end)
        slack = None if disorder is None else duration_ms(disorder, "disorder")
        starts, ends = offsets_of(self._client, places, span, to_end=slack is not None)
        self.unsubscribe()
        self.assign(starts, ends)
        self._span, self._too_new = span, None if slack is None else span[1] + slack
        deadline = time.monotonic() + timeout_s
        while not self.finished:
            batches = self.poll_batches(timeout_s=_SLICE_S, max_records=100_000)
            yield from batches
            if batches or self.finished:
                deadline = time.monotonic() + timeout_s
            elif time.monotonic() > deadline:
                left = {tp: end for tp, end in self._ends.items() if self.position(tp) < end}
                raise LogError(
                    f"nothing came for {timeout_s:.0f} s, but these are not read to their ends: {left}",
                    hint="is the broker up? Raise timeout_s",
                )

    # Records

    def poll(self, timeout_s: float = 0.0, max_records: int = 500) -> list[ConsumerRecord]:
        """Fetch up to ``max_records``; waits up to ``timeout_s`` if there is none."""
        return [record for tp, batch in self.poll_batches(timeout_s, max_records) for record in records_of(tp, batch)]

    def poll_batches(
        self, timeout_s: float = 0.0, max_records: int = 50_000
    ) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        """Like ``poll``, as Arrow batches (RECORD_SCHEMA): many times faster than single records."""
        self._check_open()
        if not self._subscribed and not self._client.assignment():
            raise InvalidStateError("this consumer has no partitions", hint="call subscribe or assign first")
        if self._auto_commit_s is not None and time.monotonic() >= self._next_commit:
            self.commit()
            self._next_commit = time.monotonic() + self._auto_commit_s
        if self._ends and self.finished:
            return []
        batches = [self._cut(tp, batch) for tp, batch in self._client.fetch(timeout_s, max_records)]
        self._pause_finished()
        return [(tp, batch) for tp, batch in batches if batch.num_rows]

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield records one by one, forever or until ``finished``.

        The position follows each record: a commit counts those that have been yielded, and after an early end of the
        loop the next poll goes on behind the last of them.
        """
        while not self._closed and not (self._ends and self.finished):
            yield from self._one_by_one(self.poll(timeout_s=_SLICE_S))

    def _one_by_one(self, records: Sequence[ConsumerRecord]) -> Iterator[ConsumerRecord]:
        self.hold(records)
        try:
            for record in records:
                self.delivered(record)
                yield record
        finally:
            self.give_back()

    def hold(self, records: Sequence[ConsumerRecord]) -> None:
        """Take the records of the last poll as not read yet: positions, and so commits, follow ``delivered``."""
        self._lasts = {TopicPartition(each.topic, each.partition): each.offset for each in records}
        self._unread = {TopicPartition(each.topic, each.partition): each.offset for each in reversed(records)}

    def delivered(self, record: ConsumerRecord) -> None:
        """Count a held record as read: the position of its partition is behind it."""
        tp = TopicPartition(record.topic, record.partition)
        if tp in self._unread:  # it was not sought in meanwhile
            if self._lasts.get(tp) == record.offset:
                del self._unread[tp]  # the client's position may be behind markers of transactions
            else:
                self._unread[tp] = record.offset + 1

    def give_back(self) -> None:
        """Go back to the first of the held records that were not delivered: the next poll returns them again."""
        unread, self._unread = self._unread, {}
        for tp, offset in unread.items():
            if not self._closed and tp in self._client.assignment():
                self._client.seek(tp, offset)

    @property
    def finished(self) -> bool:
        """Whether every partition has an end and has reached it."""
        places = self._client.assignment()
        return all(tp in self._ends and self._client.position(tp) >= self._ends[tp] for tp in places)

    def _cut(self, tp: TopicPartition, batch: pa.RecordBatch) -> tuple[TopicPartition, pa.RecordBatch]:
        end = self._ends.get(tp)
        if self._too_new is not None and (first := first_from(batch, self._too_new)) is not None:
            end = self._ends[tp] = first.offset
        if end is not None and batch.num_rows and batch.column("offset")[-1].as_py() >= end:
            batch = batch.slice(0, int(batch.column("offset").to_numpy().searchsorted(end)))
        return tp, batch if self._span is None else within(batch, self._span)

    def _pause_finished(self) -> None:
        done = [tp for tp, end in self._ends.items() if self._client.position(tp) >= end]
        if done:
            self._client.pause(done)

    # Positions

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this consumer reads at present."""
        return self._client.assignment()

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset of each partition."""
        return {tp: self.position(tp) for tp in sorted(self._client.assignment())}

    def position(self, place: TopicPartition) -> int:
        """Return the next offset of a partition."""
        self._check_assigned([place])
        end = self._ends.get(place)
        unread = self._unread.get(place)
        position = self._client.position(place) if unread is None else unread
        return position if end is None else min(position, end)

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Continue from this offset."""
        self._check_assigned([place])
        self._unread.pop(place, None)
        self._client.seek(place, offset)

    def seek_to_beginning(self, places: Iterable[TopicPartition] = ()) -> None:
        """Continue from the first records of these partitions, by default of all."""
        for tp, offset in self.beginning_offsets(places).items():
            self.seek(tp, offset)

    def seek_to_end(self, places: Iterable[TopicPartition] = ()) -> None:
        """Continue with records that come from now on, in these partitions, by default in all."""
        for tp, offset in self.end_offsets(places).items():
            self.seek(tp, offset)

    def seek_to_time(self, timestamp: TimestampLike) -> None:
        """Continue from the first record of each partition that is not older; from the end if there is none."""
        at = timestamp_ms(timestamp)
        ends = self.end_offsets()
        for tp, first in self.offsets_for_times(dict.fromkeys(ends, at)).items():
            self.seek(tp, ends[tp] if first is None else first.offset)

    def pause(self, places: Collection[TopicPartition]) -> None:
        """Fetch nothing from these partitions until ``resume``; they stay assigned to this member."""
        self._check_assigned(places)
        self._client.pause(places)

    def resume(self, places: Collection[TopicPartition]) -> None:
        """Fetch again from paused partitions."""
        self._check_assigned(places)
        self._client.resume(places)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return self._client.paused()

    def beginning_offsets(self, places: Iterable[TopicPartition] = ()) -> dict[TopicPartition, int]:
        """Return the first offsets of these partitions, by default of all assigned ones."""
        return self._client.beginning_offsets(list(places) or sorted(self._client.assignment()))

    def end_offsets(self, places: Iterable[TopicPartition] = ()) -> dict[TopicPartition, int]:
        """Return the offsets after the last records of these partitions, by default of all assigned ones."""
        return self._client.end_offsets(list(places) or sorted(self._client.assignment()))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, TimestampLike]
    ) -> dict[TopicPartition, OffsetAndTime | None]:
        """Find the first record of each partition that is not older than its time; None if there is none."""
        return self._client.offsets_for_times({tp: timestamp_ms(at) for tp, at in times.items()})

    # The group

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit these offsets for the group, by default the positions: all records that polls have returned.

        Raises:
            FencedError: The group has assigned a partition to another member, which reads the records again.
        """
        self._check_open()
        if not self._group:
            raise InvalidStateError("this consumer has no group", hint="give Consumer(log, group=...)")
        chosen = self.positions if offsets is None else offsets
        if chosen:
            self._client.commit(chosen)

    def committed(self, places: Iterable[TopicPartition] = ()) -> dict[TopicPartition, int]:
        """Return the group's offsets of these partitions, by default of all assigned ones."""
        return self._client.committed(list(places) or sorted(self._client.assignment()))

    def group_metadata(self) -> object:
        """Return the identity of this member, for ``Producer.send_offsets``."""
        self._check_open()
        return self._client.group_metadata()

    def close(self) -> None:
        """Leave the group (a static member stays for its session) and close; safe to call twice."""
        if not self._closed:
            if self._auto_commit_s is not None and self._client.assignment():
                self.commit()
            self._client.close()
            self._closed = True
            if self._opened is not None:
                self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidStateError("this consumer is closed", hint="create a new one")

    def _check_assigned(self, places: Collection[TopicPartition]) -> None:
        self._check_open()
        for tp in set(places) - self._client.assignment():
            raise InvalidStateError(
                f"{tp.topic}-{tp.partition} is not assigned to this consumer",
                hint="see assignment(); after subscribe, partitions come with the first polls",
            )


class _CommitBeforeRevoke(RebalanceListener):
    """A listener that commits the positions of revoked partitions, with auto-commit, before the user's is called."""

    def __init__(self, consumer: Consumer, *, auto_commit: bool) -> None:
        self._consumer = weakref.ref(consumer)
        self._auto_commit = auto_commit
        self.listener = RebalanceListener()

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.listener.on_assigned(partitions)

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        consumer = self._consumer()
        if consumer is not None and self._auto_commit:
            consumer.commit({tp: consumer.position(tp) for tp in partitions})
        self.listener.on_revoked(partitions)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.listener.on_lost(partitions)
