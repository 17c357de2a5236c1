"""Planning of the batches of an application on the driver: new records in its topics, and how many come next."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.clock import unix_ms
from penstock.engines.application.identities import recreated_error, recreated_topics
from penstock.engines.micro_batches.planned_batch import PlannedBatch, note_planned
from penstock.engines.micro_batches.spark_tasks import cut_into_bins
from penstock.engines.offsets.offsets import PartitionBacklog, SourceOffset, batch_ends
from penstock.engines.offsets.start_positions import (
    added_positions,
    first_positions,
    lost_offsets,
    lost_records_error,
    resets_since,
)
from penstock.engines.spark.spark_log import QUERY, newest_planned, sync_offsets
from penstock.errors import UnknownTopicError
from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from penstock.engines.micro_batches.spark_tasks import Bin
    from penstock.engines.offsets.offsets import Offsets
    from penstock.engines.offsets.start_positions import ReadSettings
    from penstock.engines.spark.job import SparkJob
    from penstock.log.base import Span, TopicLog

__all__ = ["ByteLimit", "Planner", "Throttle"]

_WAIT_FOR_DATA_S = 0.4  # the log ends the wait; this is how long a stop of the query may have to wait
_LOOK_S = 10.0
_NONE = np.zeros(0, np.int64)
_LEAST_OF_A_BATCH = 1_000  # records: with fewer, the fixed cost of a batch dominates
_GROWTH_OF_A_BATCH = 1.5


class Planner:
    """A planner of the batches of a started application, in a process beside the driver.

    Args:
        job: The application.
        log: Its log.
        clock: Returns the time in seconds.
        sleep: Waits for a number of seconds.
    """

    def __init__(
        self,
        job: SparkJob,
        log: TopicLog,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._job = job
        self._log = log
        self._clock = clock
        self._sleep = sleep
        self._throttle = Throttle(job.reading, clock)
        most_bytes = job.reading.max_bytes_per_batch
        self._bytes = None if most_bytes is None else ByteLimit(most_bytes, log.record_sizes, clock)
        self._target: Offsets | None = None
        self._looked: float | None = None
        self._ids: Mapping[str, str] | None = None
        self._asked = 0.0
        self._planned: SourceOffset | None = None
        self._seen: dict[TopicPartition, int] = {}  # where the topics ended when the log was asked last
        self._seen_at = 0.0

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def ends(self) -> dict[TopicPartition, int]:
        """Return the last known ends of the topics that tasks read; Spark asks for them each time."""
        topics = set(self._job.plan.external_topics)
        return {tp: end for tp, end in (self._seen or self._ends(topics)).items() if tp.topic in topics}

    def stop_at_present_end(self) -> None:
        """Plan nothing behind the present ends."""
        self._target = self._ends(self._job.plan.all_topics)

    def next_batch(self, before: SourceOffset, limit: int | None) -> SourceOffset | None:
        """Plan the end of the next batch; return None as long as there is nothing to do.

        Args:
            before: The end of the batch before; without offsets there was none.
            limit: The most records; None: all.

        Raises:
            OffsetOutOfRangeError: Retention removed unread records, or a topic was created again, and the settings
                do not allow that.
            UnknownTopicError: A topic no longer exists.
        """
        if self._job.reads_nothing:
            return None
        self._throttle.ended()
        rest = self._throttle.rest_s()
        if rest and self._target is None:
            self._sleep(min(rest, _WAIT_FOR_DATA_S))
            return None
        if rest:
            self._sleep(rest)
        ends = self._present_ends(before)
        ids = self._identities(before, ends)
        recreated = recreated_topics(before.ids, ids)
        if recreated and self._job.reading.loss_fails:
            raise recreated_error(recreated, self._job.plan.application_id)
        if recreated and self._target is not None:
            ends = self._target = self._ends(self._job.plan.all_topics)
        resets, moved = resets_since(self._job.group_resets, before.resets)
        begin, starts, lost = self._begin(before, ends, moved, recreated)
        tables = {tp: end for tp, end in ends.items() if tp.topic in self._job.plan.global_topics}
        streams = {tp: end for tp, end in ends.items() if tp not in tables}
        waiting = sum(end - begin[tp] for tp, end in streams.items())
        tick = before.tick
        if self._job.tick_ms and self._target is None:
            tick = max(tick, unix_ms() // self._job.tick_ms)
        settled = (
            not starts and tables.items() <= before.ends.items() and tick == before.tick and ids == dict(before.ids)
        )
        if settled and (not waiting or (self._target is None and self._throttle.waits(waiting))):
            return None
        if limit is not None:
            streams = self._admitted(begin, streams, self._throttle.most(limit))
        self._throttle.planned(sum(end - begin[tp] for tp, end in streams.items()))
        self._planned = SourceOffset(tables | streams, tick, starts, lost, resets, ids)
        return self._planned

    def _admitted(self, begin: Offsets, ends: Offsets, most: int) -> dict[TopicPartition, int]:
        """Return the ends of a batch of at most so many records, and of no more bytes than the settings allow."""
        of_partition = self._job.reading.max_records_per_partition

        def admitted(most: int) -> dict[TopicPartition, int]:
            return batch_ends(begin, ends, most, of_partition, self._backlogs)

        admitted_ends = admitted(most)
        return admitted_ends if self._bytes is None else self._bytes.admitted(begin, admitted_ends, admitted)

    def cut(self, before: SourceOffset, end: SourceOffset) -> list[Bin]:
        """Divide a batch into bins, with the offsets that Spark has noted, perhaps before the last restart.

        Spark's note is on the disk, and in the log too, when this returns.

        Raises:
            OffsetOutOfRangeError: A topic was created again since then, and the settings do not allow that.
        """
        noted = sync_offsets(f"{self._job.checkpoint}/{QUERY}")
        if self._job.journal:  # in an object store the note lasts already; the copy on this machine has its number
            noted = newest_planned(self._job.journal)
        recreated: frozenset[str] = frozenset()
        if end != self._planned:
            read = {tp.topic for tp in end.ends}.intersection(self._job.plan.all_topics)
            recreated = recreated_topics(end.ids, self._log.topic_ids(sorted(read)))
        if recreated and self._job.reading.loss_fails:
            raise recreated_error(recreated, self._job.plan.application_id)
        if noted is not None:
            note_planned(self._job, self._log, PlannedBatch(noted, before, end))
        return cut_into_bins(self._job, before, end, recreated)

    def _identities(self, before: SourceOffset, ends: Offsets) -> dict[str, str]:
        """Fetch the ids of all topics, after their ends, so a topic that was created again meanwhile is noticed.

        Without new records the last ids are used.
        """
        now = self._clock()
        if self._ids is None or ends != before.ends or now - self._asked > _LOOK_S:
            self._ids, self._asked = self._log.topic_ids(sorted({tp.topic for tp in ends})), now
        return {**before.ids, **self._ids}

    def _present_ends(self, before: SourceOffset) -> Offsets:
        """Fetch the ends of all topics; without new records wait a little for some."""
        if self._target is not None:
            return self._target
        return self._ends(self._job.plan.all_topics, before.ends)

    def _ends(self, topics: Iterable[str], read: Offsets | None = None) -> dict[TopicPartition, int]:
        """Fetch the ends of topics; if they are equal to ``read``, wait a little for more records.

        Partitions that the plan does not know are left out: the driver plans anew when it sees them.
        """
        counts = self._job.plan.partitions

        def planned(offsets: Offsets) -> dict[TopicPartition, int]:
            return {tp: end for tp, end in offsets.items() if tp.partition < counts.get(tp.topic, 1 << 31)}

        names = list(topics)
        ends = self._seen
        try:
            if read is None or not ends or planned(ends) != read or self._clock() - self._seen_at > _LOOK_S:
                ends, self._seen_at = self._log.end_offsets(names), self._clock()
            if ends and planned(ends) == read:
                ends = self._log.wait_for_data(ends, self._wait_s())
        except UnknownTopicError as error:
            self._seen = {}
            missing = error.facts.get("topic")
            if missing in self._job.reading.patterned and missing in names:
                return self._ends((topic for topic in names if topic != missing), read)
            raise UnknownTopicError(
                f"{error.message}: it was deleted while application {self._job.plan.application_id!r} reads it",
                hint="Create it again, or take it out of the topology; then start again. Its records are gone.",
                **error.facts,
            ) from error
        self._seen = planned(ends)
        return self._seen

    def _wait_s(self) -> float:
        """Return the time to wait for records: at most until the next tick of the clock."""
        tick_ms = self._job.tick_ms
        left_ms = tick_ms - time.time() * 1000 % tick_ms if tick_ms else 1000 * _WAIT_FOR_DATA_S
        return min(_WAIT_FOR_DATA_S, left_ms / 1000)

    def _begin(
        self, before: SourceOffset, ends: Offsets, moved: Offsets, recreated: frozenset[str]
    ) -> tuple[Offsets, Offsets, Offsets]:
        """Find the start of the batch.

        Returns:
            The start positions; those of them that differ from the end of the batch before; and the numbers of lost
            offsets.
        """
        reading = self._job.reading
        at = {tp: offset for tp, offset in before.ends.items() if tp in ends and tp.topic not in recreated}
        new = [tp for tp in ends if tp not in at or tp in moved]
        is_behind = any(ends[tp] - offset > reading.max_records_per_partition for tp, offset in at.items())
        is_due = self._looked is None or self._clock() - self._looked > _LOOK_S
        if not (new or is_behind or is_due or any(ends[tp] < offset for tp, offset in at.items())):
            return at, {}, {}
        self._looked = self._clock()
        first = self._log.beginning_offsets(sorted({tp.topic for tp in ends}))
        bounds = {tp: (first.get(tp, 0), end) for tp, end in ends.items()}
        tables = {tp: bounds[tp][0] for tp in new if tp.topic in self._job.plan.global_topics}  # never read in part
        again = {tp: bounds[tp][0] for tp in new if tp.topic in recreated and tp not in tables and tp not in moved}
        starts = tables | again
        if len(new) > len(starts):
            others = [tp for tp in new if tp not in starts]
            committed = self._log.group_offsets(self._job.plan.application_id, others)
            group = {**{tp: each.offset for tp, each in committed.items()}, **moved}
            read_topics = {tp.topic for tp in at} if before.ends else set()
            added = [tp for tp in others if tp.topic in read_topics]
            starts |= added_positions(added, bounds, group)
            first_read = [tp for tp in others if tp.topic not in read_topics]
            starts |= first_positions(reading, first_read, bounds, group, self._log)
        kept = {tp: o for tp, o in at.items() if tp not in starts and tp.topic not in self._job.plan.global_topics}
        lost = lost_offsets(kept, bounds)
        for tp in lost:
            cut_off = at[tp] > bounds[tp][1] and tp.topic in before.ids
            if reading.loss_fails:
                raise lost_records_error(tp, at[tp], *bounds[tp])
            # What is left of a topic that was cut off has been read. An unknown topic may be a new one.
            starts[tp] = bounds[tp][1] if cut_off else bounds[tp][0]
        lost |= {tp: 0 for tp in before.ends if tp.topic in recreated and tp in ends}
        return {**at, **starts}, starts, lost

    def _backlogs(self, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, PartitionBacklog]:
        stretches = self._log.stretches(spans)
        return {tp: PartitionBacklog(span.start, stretches[tp], partial(self._times, tp)) for tp, span in spans.items()}

    def _times(self, tp: TopicPartition, first: int, following: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        parts = self._log.read_range(tp.topic, tp.partition, first, following)
        offsets, stamps = ([part.column(name).to_numpy() for part in parts] for name in ("offset", "timestamp"))
        return (np.concatenate(offsets), np.concatenate(stamps)) if parts else (_NONE, _NONE)


class Throttle:
    """A throttle of batches by the time that earlier ones took; a batch has ended when the next one is asked for.

    Args:
        reading: The settings of reading.
        clock: Returns the time in seconds.

    Example:
        >>> from penstock.engines.offsets.start_positions import ReadSettings
        >>> times = iter([0.0, 4.0])
        >>> throttle = Throttle(ReadSettings(max_batch_ms=1000), lambda: next(times))
        >>> throttle.planned(100_000)
        >>> throttle.ended()
        >>> throttle.most(500_000)
        25000
    """

    def __init__(self, reading: ReadSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._reading = reading
        self._clock = clock
        self._planned = 0
        self._since = 0.0
        self._rests_until = 0.0
        self._waits_since: float | None = None
        self._limit: int | None = None

    def ended(self) -> None:
        """Note that the batch that was planned last, if any, has ended."""
        if not self._planned:
            return
        now = self._clock()
        target_s = self._reading.max_batch_ms / 1000
        if target_s:
            factor = min(target_s / max(now - self._since, 1e-3), _GROWTH_OF_A_BATCH)
            if factor < 1 or self._limit is not None:
                least = min(_LEAST_OF_A_BATCH, self._reading.max_records_per_batch)
                self._limit = max(least, int((self._limit or self._planned) * factor))
                if self._limit >= self._reading.max_records_per_batch:
                    self._limit = None
        self._planned = 0
        self._rests_until = now + self._reading.pause_ms / 1000

    def rest_s(self) -> float:
        """Return the rest of the pause between two batches, in seconds."""
        return max(0.0, self._rests_until - self._clock()) if self._reading.pause_ms else 0.0

    def waits(self, records: int) -> bool:
        """Return whether the next batch waits for more than these records."""
        if records >= self._reading.min_records_per_batch or not self._reading.max_wait_ms or not records:
            self._waits_since = None
            return False
        now = self._clock()
        if self._waits_since is None:
            self._waits_since = now
        if now - self._waits_since < self._reading.max_wait_ms / 1000:
            return True
        self._waits_since = None
        return False

    def most(self, limit: int) -> int:
        """Return the most records of the next batch."""
        return limit if self._limit is None else min(limit, self._limit)

    def planned(self, records: int) -> None:
        """Note that a batch of so many records begins."""
        if records:
            self._planned = records
            self._since = self._clock() if self._reading.max_batch_ms else 0.0


Ranges = Mapping[TopicPartition, tuple[int, int]]
Sizes = Callable[[Ranges], Mapping[TopicPartition, int]]

_LARGE_BYTES = 1 << 20  # of a record: as much as a topic takes by default
_RECENT_S, _LONG_S = 2.0, 60.0
_SAFETY = 16
_TRIES = 8


class ByteLimit:
    """The limit of a batch in bytes.

    Args:
        most_bytes: The most bytes of a batch.
        sizes: Estimates the bytes of the records of ranges.
        clock: Returns the time in seconds.
    """

    def __init__(self, most_bytes: int, sizes: Sizes, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_bytes = most_bytes
        self._sizes = sizes
        self._clock = clock
        self._looked: float | None = None
        self._record_bytes = 0.0  # mean of the partition with the largest records, when sizes were asked for last

    def admitted(
        self, begin: Offsets, ends: dict[TopicPartition, int], admit: Callable[[int], dict[TopicPartition, int]]
    ) -> dict[TopicPartition, int]:
        """Return the ends of a batch within the limit, with at least one record.

        If not every partition may have a record, the positions decide which ones come first, so none waits for long.

        Args:
            begin: The offsets at which the batch begins.
            ends: The offsets at which it would end by the limit of records.
            admit: Returns the ends of a batch of at most so many records, but at least one of each partition.
        """
        for _ in range(_TRIES):
            ranges = {tp: (begin[tp], end) for tp, end in ends.items() if end > begin[tp]}
            records = sum(end - start for start, end in ranges.values())
            if self._is_surely_small(records):
                return ends
            sizes = self._sizes(ranges)
            self._looked = self._clock()
            self._record_bytes = max(size / (ranges[tp][1] - ranges[tp][0]) for tp, size in sizes.items())
            total = sum(sizes.values())
            if total <= self._most_bytes:
                return ends
            if records <= len(ranges):
                return self._some(begin, ends, sizes)
            ends = admit(max(1, min(records - 1, int(records * self._most_bytes / total))))
        return ends

    def _is_surely_small(self, records: int) -> bool:
        """Return whether the records fit unless they are far larger than earlier ones; then no sizes are needed."""
        age = None if self._looked is None else self._clock() - self._looked
        if not records:
            return True
        if age is None or age > _LONG_S:
            return False
        if records * max(_LARGE_BYTES, self._record_bytes) <= self._most_bytes:
            return True
        return age < _RECENT_S and records * self._record_bytes * _SAFETY <= self._most_bytes

    def _some(self, begin: Offsets, ends: Offsets, sizes: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Admit a record of each of as many partition numbers as fit, in all topics of a number, as tasks join them."""
        numbers = sorted({tp.partition for tp in sizes})
        first = sum(begin[tp] for tp in sizes) % len(numbers)
        taken: set[int] = set()
        left = self._most_bytes
        for number in [*numbers[first:], *numbers[:first]]:
            left -= sum(size for tp, size in sizes.items() if tp.partition == number)
            if taken and left < 0:
                break
            taken.add(number)
        return {tp: end if tp.partition in taken else begin[tp] for tp, end in ends.items()}
