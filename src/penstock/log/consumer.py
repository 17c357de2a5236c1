"""A consumer over any topic log: subscriptions and assignments, groups, seeking, ranges of time."""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Self

import pyarrow as pa

from penstock.durations import DurationLike, TimestampLike, duration_ms, timestamp_ms
from penstock.errors import ConfigError, InvalidStateError, LogError
from penstock.log.assignors import check_assignors
from penstock.log.base import Isolation, OffsetAndTime, TopicLog, TopicPartition
from penstock.log.consuming import ConsumerOptions, ConsumerRecord, OffsetReset, RebalanceListener, records_of
from penstock.log.ports import consumer_port
from penstock.log.time_range import first_from, offsets_of, span_of, within

__all__ = ["Consumer", "ConsumerRecord"]

_SLICE_S = 0.25


class Consumer:
    """Kafka's consumer, over an embedded log or over Kafka. Not for several threads at once.

    Args:
        log: Where from: a log, or its URL (a file, or Kafka's ``host:port``).
        group: The ``group.id``: members share the partitions of what they subscribe to, and start from its offsets.
        group_instance_id: Makes it a static member: its partitions wait for it while it restarts.
        auto_offset_reset: Where to start without a committed offset, or where retention has removed it; "none" raises.
        assignors: ``partition.assignment.strategy``: range, roundrobin, sticky or cooperative-sticky, by preference.
        auto_commit_interval_ms: Commits what earlier polls gave, this often; by default only ``commit`` does.
        session_timeout_ms: A member that was not heard of for so long is put out; on the embedded log one whose
            process is gone is put out at once.
        heartbeat_interval_ms: How often members say that they live.
        max_poll_interval_ms: A member that does not poll for so long is put out too.
        client_id: A name to recognise it by.
        isolation: "read_uncommitted" also reads what Kafka's open and aborted transactions wrote.
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
        if auto_offset_reset not in ("earliest", "latest", "none"):
            raise ConfigError(f"auto_offset_reset is {auto_offset_reset!r}", hint="earliest, latest or none")
        if group_instance_id and not group:
            raise ConfigError("a group_instance_id without a group", hint="give Consumer(log, group=...)")
        options = ConsumerOptions(
            group or "", group_instance_id, client_id, auto_offset_reset, check_assignors(assignors),
            session_timeout_ms, heartbeat_interval_ms, max_poll_interval_ms, isolation, dict(settings or {}),
        )  # fmt: skip
        self._group = group or ""
        self._hears = _Hears(self)
        self._port, self._opened = consumer_port(log, options, self._hears)
        self._ends: dict[TopicPartition, int] = {}
        self._span: tuple[int, int] | None = None
        self._too_new: int | None = None
        self._auto_commit_s = None if auto_commit_interval_ms is None or not group else auto_commit_interval_ms / 1000
        self._next_commit = time.monotonic() + (self._auto_commit_s or 0)
        self._subscribed = self._closed = False

    # What to read

    def subscribe(
        self, topics: Sequence[str] | str | re.Pattern[str], *, listener: RebalanceListener | None = None
    ) -> None:
        """Reads these topics: with a group this member's share of them, else all partitions.

        Args:
            topics: Names, or a compiled pattern that whole names match; topics that come later are found.
            listener: Hears of partitions that come and go.
        """
        self._check_open()
        self._hears.listener = listener or RebalanceListener()
        self._ends, self._span, self._too_new = {}, None, None
        if isinstance(topics, re.Pattern):
            self._port.subscribe([], topics)
        else:
            self._port.subscribe([topics] if isinstance(topics, str) else list(topics), None)
        self._subscribed = True

    def assign(
        self,
        places: Mapping[TopicPartition, int] | Iterable[TopicPartition],
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Reads these partitions, without sharing them with the group.

        Args:
            places: With the offsets to start from; without, from the group's offsets or as ``auto_offset_reset`` says.
            ends: Stops before these offsets; see ``finished``.
        """
        self._check_open()
        if self._subscribed:
            raise InvalidStateError("this consumer has subscribed", hint="call unsubscribe first")
        self._ends, self._span, self._too_new = dict(ends or {}), None, None
        self._port.assign(places if isinstance(places, Mapping) else dict.fromkeys(places))
        self._pause_finished()

    def unsubscribe(self) -> None:
        """Leaves the group and forgets its partitions."""
        self._port.unsubscribe()
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
        """All records with start <= timestamp < end that the topics hold now; then it ends.

        Timestamps need not be in order: what lies behind the first later record is searched too, up to where the log
        ends now. The embedded log knows from its index where to stop. Kafka does not: give ``disorder`` where a topic
        is large.

        Args:
            start: ISO time (UTC without a zone), milliseconds, or a datetime.
            end: The first time that is left out.
            topics: By default those that are assigned.
            disorder: How much older than its predecessors a record may be; the search ends at the first that is
                newer than ``end`` by this.
            timeout_s: How long to wait for records that must be there.

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
        for place, batch in self.batches_between(start, end, topics, disorder=disorder, timeout_s=timeout_s):
            yield from records_of(place, batch)

    def batches_between(
        self,
        start: TimestampLike,
        end: TimestampLike,
        topics: Sequence[str] | str | None = None,
        *,
        disorder: DurationLike | None = None,
        timeout_s: float = 30.0,
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """As ``between``, as Arrow batches."""
        self._check_open()
        names = [topics] if isinstance(topics, str) else topics
        if names is None:
            places = sorted(self._port.assignment())
        else:
            places = [TopicPartition(name, number) for name in names for number in range(self._port.partitions(name))]
        if not places:
            raise InvalidStateError("this consumer has no partitions", hint="give the topics, or call assign first")
        span = span_of(start, end)
        slack = None if disorder is None else duration_ms(disorder, "disorder")
        starts, ends = offsets_of(self._port, places, span, to_end=slack is not None)
        self.unsubscribe()
        self.assign(starts, ends)
        self._span, self._too_new = span, None if slack is None else span[1] + slack
        deadline = time.monotonic() + timeout_s
        while not self.finished:
            found = self.poll_batches(timeout_s=_SLICE_S, max_records=100_000)
            yield from found
            if found or self.finished:
                deadline = time.monotonic() + timeout_s
            elif time.monotonic() > deadline:
                left = {place: end for place, end in self._ends.items() if self.position(place) < end}
                raise LogError(
                    f"nothing came for {timeout_s:.0f} s, but these are not read to their ends: {left}",
                    hint="is the broker up? Raise timeout_s",
                )

    # Records

    def poll(self, timeout_s: float = 0.0, max_records: int = 500) -> list[ConsumerRecord]:
        """What there is, at most ``max_records``; waits up to ``timeout_s`` if there is nothing."""
        return [
            record for place, batch in self.poll_batches(timeout_s, max_records) for record in records_of(place, batch)
        ]

    def poll_batches(
        self, timeout_s: float = 0.0, max_records: int = 50_000
    ) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        """As ``poll``, as Arrow batches (RECORD_SCHEMA): many times faster than single records."""
        self._check_open()
        if not self._subscribed and not self._port.assignment():
            raise InvalidStateError("this consumer has no partitions", hint="call subscribe or assign first")
        if self._auto_commit_s is not None and time.monotonic() >= self._next_commit:
            self.commit()
            self._next_commit = time.monotonic() + self._auto_commit_s
        if self._ends and self.finished:
            return []
        found = [self._cut(place, batch) for place, batch in self._port.fetch(timeout_s, max_records)]
        self._pause_finished()
        return [(place, batch) for place, batch in found if batch.num_rows]

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records one by one, for ever, or until ``finished``."""
        while not self._closed and not (self._ends and self.finished):
            yield from self.poll(timeout_s=_SLICE_S)

    @property
    def finished(self) -> bool:
        """Whether every partition was given an end and has reached it."""
        places = self._port.assignment()
        return all(place in self._ends and self._port.position(place) >= self._ends[place] for place in places)

    def _cut(self, place: TopicPartition, batch: pa.RecordBatch) -> tuple[TopicPartition, pa.RecordBatch]:
        end = self._ends.get(place)
        if self._too_new is not None and (first := first_from(batch, self._too_new)) is not None:
            end = self._ends[place] = first.offset
        if end is not None and batch.num_rows and batch.column("offset")[-1].as_py() >= end:
            batch = batch.slice(0, int(batch.column("offset").to_numpy().searchsorted(end)))
        return place, batch if self._span is None else within(batch, self._span)

    def _pause_finished(self) -> None:
        done = [place for place, end in self._ends.items() if self._port.position(place) >= end]
        if done:
            self._port.pause(done)

    # Positions

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read at present."""
        return self._port.assignment()

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset of each partition."""
        return {place: self.position(place) for place in sorted(self._port.assignment())}

    def position(self, place: TopicPartition) -> int:
        """The next offset of a partition."""
        self._check_assigned([place])
        end = self._ends.get(place)
        position = self._port.position(place)
        return position if end is None else min(position, end)

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Reads on from this offset."""
        self._check_assigned([place])
        self._port.seek(place, offset)

    def seek_to_beginning(self, places: Iterable[TopicPartition] = ()) -> None:
        """Reads these (by default all) from their first record on."""
        for place, offset in self.beginning_offsets(places).items():
            self.seek(place, offset)

    def seek_to_end(self, places: Iterable[TopicPartition] = ()) -> None:
        """Reads only what comes from now on."""
        for place, offset in self.end_offsets(places).items():
            self.seek(place, offset)

    def seek_to_time(self, timestamp: TimestampLike) -> None:
        """Moves to the first records that are not older; to the end where there is none."""
        at = timestamp_ms(timestamp)
        ends = self.end_offsets()
        for place, found in self.offsets_for_times(dict.fromkeys(ends, at)).items():
            self.seek(place, ends[place] if found is None else found.offset)

    def pause(self, places: Collection[TopicPartition]) -> None:
        """Polls give nothing of these until ``resume``; they stay this member's."""
        self._check_assigned(places)
        self._port.pause(places)

    def resume(self, places: Collection[TopicPartition]) -> None:
        """Ends ``pause``."""
        self._check_assigned(places)
        self._port.resume(places)

    def paused(self) -> set[TopicPartition]:
        """What is paused."""
        return self._port.paused()

    def beginning_offsets(self, places: Iterable[TopicPartition] = ()) -> dict[TopicPartition, int]:
        """The first offsets of these partitions, by default of all that are assigned."""
        return self._port.beginning_offsets(list(places) or sorted(self._port.assignment()))

    def end_offsets(self, places: Iterable[TopicPartition] = ()) -> dict[TopicPartition, int]:
        """The offsets behind the last records."""
        return self._port.end_offsets(list(places) or sorted(self._port.assignment()))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, TimestampLike]
    ) -> dict[TopicPartition, OffsetAndTime | None]:
        """The first record of each partition that is not older than its time; None if there is none."""
        return self._port.offsets_for_times({place: timestamp_ms(at) for place, at in times.items()})

    # The group

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commits these offsets for the group, by default the positions: all that polls have given.

        Raises:
            FencedError: The group has given a partition to another member; its new owner reads it again.
        """
        self._check_open()
        if not self._group:
            raise InvalidStateError("this consumer has no group", hint="give Consumer(log, group=...)")
        chosen = self.positions if offsets is None else offsets
        if chosen:
            self._port.commit(chosen)

    def committed(self, places: Iterable[TopicPartition] = ()) -> dict[TopicPartition, int]:
        """The group's offsets of these partitions, by default of all that are assigned."""
        return self._port.committed(list(places) or sorted(self._port.assignment()))

    def group_metadata(self) -> object:
        """Who commits, for ``Producer.send_offsets``."""
        self._check_open()
        return self._port.group_metadata()

    def close(self) -> None:
        """Leaves the group (a static member stays for its session) and closes; safe to call twice."""
        if not self._closed:
            if self._auto_commit_s is not None and self._port.assignment():
                self.commit()
            self._port.close()
            self._closed = True
            if self._opened is not None:
                self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidStateError("this consumer is closed", hint="make another one")

    def _check_assigned(self, places: Collection[TopicPartition]) -> None:
        self._check_open()
        for place in set(places) - self._port.assignment():
            raise InvalidStateError(
                f"{place.topic}-{place.partition} is not assigned to this consumer",
                hint="see assignment(); after subscribe, partitions come with the first polls",
            )


class _Hears(RebalanceListener):
    """Commits what is to go, if that is wanted, then tells the user's listener."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = weakref.ref(consumer)
        self.listener = RebalanceListener()

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.listener.on_assigned(partitions)

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        consumer = self._consumer()
        if consumer is not None and consumer._auto_commit_s is not None:  # noqa: SLF001 - its own helper
            consumer.commit({place: consumer.position(place) for place in partitions})
        self.listener.on_revoked(partitions)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.listener.on_lost(partitions)
