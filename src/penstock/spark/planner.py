"""Plans the batches of an application on the driver: what is new in its topics, and how much of it comes next."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import UnknownTopicError
from penstock.spark.moves import moved_since
from penstock.spark.offsets import SourceOffset, admit
from penstock.spark.pace import Pace
from penstock.spark.positions import first_positions, lost_error, overtaken
from penstock.spark.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from penstock.log.base import TopicLog, TopicPartition
    from penstock.spark.job import SparkJob
    from penstock.spark.offsets import Offsets

__all__ = ["Planner"]

_WAIT_FOR_DATA_S = 0.1
_LOOK_S = 10.0
_NONE = np.zeros(0, np.int64)


class Planner:
    """Where each batch of one start of an application ends; it runs in one process, beside the driver.

    Args:
        job: The application.
        log: Its log.
        clock: Gives seconds.
        sleep: Waits for seconds.
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
        self._pace = Pace(job.reading, clock)
        self._target: Offsets | None = None
        self._looked: float | None = None

    def close(self) -> None:
        """Closes the log."""
        self._log.close()

    def ends(self) -> dict[TopicPartition, int]:
        """Where the topics end that tasks read."""
        return self._ends(self._job.plan.external_topics)

    def stop_at_present_end(self) -> None:
        """Nothing that comes later is planned."""
        self._target = self._ends(self._job.plan.all_topics)

    def next_batch(self, before: SourceOffset, limit: int | None) -> SourceOffset | None:
        """Where the next batch ends; None as long as there is nothing to do.

        Args:
            before: The end of the batch before; without offsets there was none.
            limit: The most records; None: all that there are.

        Raises:
            OffsetOutOfRangeError: Retention was faster, and the settings do not allow that.
            UnknownTopicError: A topic is not there any more.
        """
        self._pace.ended()
        rest = self._pace.rest_s()
        if rest and self._target is None:
            self._sleep(min(rest, _WAIT_FOR_DATA_S))
            return None
        if rest:
            self._sleep(rest)
        ends = self._present_ends(before)
        moves, moved = moved_since(self._job.moves, before.moves)
        begin, starts, lost = self._begin(before, ends, moved)
        tables = {tp: end for tp, end in ends.items() if tp.topic in self._job.plan.global_topics}
        streams = {tp: end for tp, end in ends.items() if tp not in tables}
        waiting = sum(end - begin[tp] for tp, end in streams.items())
        tick = before.tick
        if self._job.tick_ms and self._target is None:
            tick = max(tick, int(time.time() * 1000) // self._job.tick_ms)
        settled = not starts and tables.items() <= before.ends.items() and tick == before.tick
        if settled and (not waiting or (self._target is None and self._pace.waits(waiting))):
            return None
        if limit is not None:
            most = self._pace.most(limit)
            streams = admit(begin, streams, most, self._job.reading.max_records_per_partition, self._timeline)
        self._pace.planned(sum(end - begin[tp] for tp, end in streams.items()))
        return SourceOffset(tables | streams, tick, starts, lost, moves)

    def _present_ends(self, before: SourceOffset) -> Offsets:
        """The ends of all topics; if nothing is new, after a short wait for something."""
        if self._target is not None:
            return self._target
        return self._ends(self._job.plan.all_topics, before.ends)

    def _ends(self, topics: Iterable[str], read: Offsets | None = None) -> dict[TopicPartition, int]:
        """Without partitions that the plan does not know: the driver plans anew when it sees them.

        If that is where ``read`` ends, it waits a little for more.
        """
        counts = self._job.plan.partitions

        def planned(found: Offsets) -> dict[TopicPartition, int]:
            return {tp: end for tp, end in found.items() if tp.partition < counts.get(tp.topic, 1 << 31)}

        wanted = list(topics)
        try:
            found = self._log.end_offsets(wanted)
            if planned(found) == read:
                found = self._log.wait_for_data(found, _WAIT_FOR_DATA_S)
        except UnknownTopicError as error:
            missing = error.facts.get("topic")
            if missing in self._job.reading.patterned and missing in wanted:
                return self._ends((topic for topic in wanted if topic != missing), read)
            raise UnknownTopicError(
                f"{error.message}: it was deleted while application {self._job.plan.application_id!r} reads it",
                hint="Make it again, or take it out of the topology; then start again. Its records are gone.",
                **error.facts,
            ) from error
        return planned(found)

    def _begin(self, before: SourceOffset, ends: Offsets, moved: Offsets) -> tuple[Offsets, Offsets, Offsets]:
        """Where the batch begins; of that, what is not where the last one has ended; and what was lost."""
        reading = self._job.reading
        at = {tp: offset for tp, offset in before.ends.items() if tp in ends}
        new = [tp for tp in ends if tp not in at or tp in moved]
        is_behind = any(ends[tp] - offset > reading.max_records_per_partition for tp, offset in at.items())
        is_due = self._looked is None or self._clock() - self._looked > _LOOK_S
        if not (new or is_behind or is_due or any(ends[tp] < offset for tp, offset in at.items())):
            return at, {}, {}
        self._looked = self._clock()
        first = self._log.beginning_offsets(sorted({tp.topic for tp in ends}))
        bounds = {tp: (first.get(tp, 0), end) for tp, end in ends.items()}
        tables = {tp: bounds[tp][0] for tp in new if tp.topic in self._job.plan.global_topics}  # never read in part
        starts = dict(tables)
        if len(new) > len(tables):
            group = {**self._log.committed_offsets(self._job.plan.application_id), **moved}
            known = {tp.topic for tp in at} if before.ends else set()
            others = [tp for tp in new if tp not in tables]
            starts |= first_positions(reading, others, bounds, group, self._log, known_topics=known)
        kept = {tp: o for tp, o in at.items() if tp not in starts and tp.topic not in self._job.plan.global_topics}
        lost = overtaken(kept, bounds)
        for tp in lost:
            if reading.loss_fails:
                raise lost_error(tp, at[tp], *bounds[tp])
            starts[tp] = bounds[tp][0]
        return {**at, **starts}, starts, lost

    def _timeline(self, tp: TopicPartition, start: int, end: int, most: int) -> Timeline:
        def times(first: int, following: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            parts = self._log.read_range(tp.topic, tp.partition, first, following)
            offsets, stamps = ([part.column(name).to_numpy() for part in parts] for name in ("offset", "timestamp"))
            return (np.concatenate(offsets), np.concatenate(stamps)) if parts else (_NONE, _NONE)

        return Timeline(start, self._log.stretches(tp.topic, tp.partition, start, end, most), times)
