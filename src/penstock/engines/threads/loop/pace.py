"""The pace of tasks whose records meet in windows: none of them runs ahead of the others in time.

Tasks of a sub-topology write to the same repartition topic. With a backlog in several partitions, one of them could be
processed to its end before another one is begun; the other's records would then be too late for the windows behind the
repartition. So tasks that lead to the same windows are a *group*, with a slack: the smallest time by which a record may
be late for any of these windows.

Of one thread, all tasks of a group process up to the same time in a turn, and what they write is merged by time. So any
piece may be long, whatever the slack.

Between threads, a thread goes no further than the slack beyond the oldest record that another one has not committed. So
what it writes makes no later record of the other too late. Threads report the time of that record, their *front*, when
it changes. They commit at once when they come to their limit, and soon while others may wait for them. The records
of a partition may be out of order, as windows allow by their grace; so the front is that of the partition less the
disorder that was seen.

All this is for backlogs. A thread whose records are new by the clock neither waits nor is waited for, and a thread that
has no records waiting holds back no other. One that does not catch up is waited for some seconds only: it may be
paused, may restore its state, or may be slower than its records come. Nor does a thread wait long for records that are
too late already, as it has passed their time while nothing held it back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.topology.nodes import ProcessorNode

if TYPE_CHECKING:
    from penstock.engines.threads.loop.task import ActiveTask
    from penstock.log.base import TopicPartition
    from penstock.log.thread_clients import Part
    from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology, TaskId
    from penstock.topology.topology import Topology

__all__ = ["Fronts", "Pace", "PaceBoard", "PaceChannel", "PaceGroup", "merged_by_time", "pace_groups"]

Fronts = Mapping[int, int]
"""Group -> the time of its oldest record that waits; without groups that have none."""

_UNKNOWN = -1  # the front of tasks that have not fetched yet
_PATIENCE_MS = 10_000
_CATCHING_UP = 1.5  # times as fast as the clock: records that come as fast as they are processed move by one
_NEW_MS = 1000  # so old are records, at most, that are processed as they come
_STRICT_MS = 1000  # a smaller slack cannot be kept between threads: a turn of theirs takes longer
_PART_OF_LAG = 1000  # that a turn may process, however small the slack is: turns between threads take some 20 ms
_PART_OF_BATCH = 4
_TURNS = 9
_NEAR_MS = 60_000
_MOST_DISORDER = 0.75  # of the slack: if the records themselves need more, some come too late in any order


@dataclass(frozen=True, slots=True)
class PaceGroup:
    """Sub-topologies whose records meet in windows.

    Attributes:
        id: The smallest number of its sub-topologies.
        slack_ms: The smallest time by which a record may be late for a window behind them.
        topics: The topics that they write and other sub-topologies read, by their names in the log.
    """

    id: int
    slack_ms: int
    topics: frozenset[str]


def pace_groups(topology: Topology, plan: PhysicalPlan) -> dict[int, PaceGroup]:
    """Return by sub-topology the group that it is in; those are missing that lead to no window, or have one task."""
    subs = plan.subtopologies
    readers = {sub.id: [each for topic in sub.sink_topics for each in plan.readers(topic)] for sub in subs}
    slacks = {sub.id: _slack_ms(sub, topology, readers) for sub in subs}
    together = {sub.id: {sub.id} for sub in subs if slacks[sub.id] is not None}
    for reader in subs:
        writers = [number for number in together if reader in readers[number]]
        joined = set().union(*(together[number] for number in writers))
        together |= dict.fromkeys(joined, joined)
    groups: dict[int, PaceGroup] = {}
    for numbers in together.values():
        members = [plan.subtopology(number) for number in numbers]
        if sum(sub.tasks for sub in members) > 1:
            slack = min(slack for number in numbers if (slack := slacks[number]) is not None)
            topics = {topic for sub in members for topic in sub.sink_topics if plan.readers(topic)}
            group = PaceGroup(min(numbers), slack, frozenset(map(plan.physical_name, topics)))
            groups |= dict.fromkeys(numbers, group)
    return groups


def _slack_ms(
    sub: PlannedSubTopology, topology: Topology, readers: Mapping[int, Sequence[PlannedSubTopology]]
) -> int | None:
    """Return the smallest time by which a record may be late for a window that is behind a sub-topology."""
    behind: dict[int, PlannedSubTopology] = {}
    waiting = list(readers[sub.id])
    while waiting:
        each = waiting.pop()
        if each.id not in behind:
            behind[each.id] = each
            waiting += readers[each.id]
    graces: list[int] = []
    for each in behind.values():
        for name in each.nodes:
            node = topology.nodes[name]
            operation = node.operation if isinstance(node, ProcessorNode) else None
            windows = getattr(operation, "windows", None)
            of_windows = getattr(windows, "closes_after_ms", getattr(windows, "grace_ms", None))
            graces += [ms for ms in (of_windows, getattr(operation, "grace_ms", None)) if ms is not None]
        graces += [spec.history_ms for store in each.stores if (spec := topology.stores[store]).kind == "versioned"]
    return min(graces, default=None)


class PaceChannel(Protocol):
    """The exchange of fronts with the application's other threads."""

    def others(self) -> Fronts | None:
        """Return the smallest fronts of the other threads by group; None: some have not reported yet."""
        ...

    def tell(self, fronts: Fronts) -> None:
        """Report the fronts of this thread, after all before them is committed."""
        ...


@dataclass(slots=True)
class _Hold:
    """The front of others at the beginning of some seconds, and whether they are waited for in these seconds."""

    front: int
    since_ms: int
    seen_ms: int
    is_over: bool = False


@dataclass
class Pace:
    """The limits of a thread's tasks.

    Args:
        groups: The groups by sub-topology.
        channel: The exchange with other threads; None: there are none.
        clock: Returns the time in milliseconds.

    Attributes:
        is_held: Whether other threads hold back some task, as of the last call of `limits`.
        is_awaited: Whether other threads may wait for what this one commits next, likewise.
    """

    groups: Mapping[int, PaceGroup]
    channel: PaceChannel | None = None
    clock: Callable[[], int] = unix_ms
    is_held: bool = False
    is_awaited: bool = False
    _holds: dict[int, _Hold] = field(default_factory=dict)
    _free: dict[int, int] = field(default_factory=dict)  # the times that groups have reached without a limit by others
    _told: Fronts | None = None

    def limits(self, tasks: Iterable[ActiveTask], ends: Mapping[TopicPartition, int]) -> dict[TaskId, int]:
        """Return the times up to which tasks may process now; those that are missing have no limit.

        Args:
            tasks: All tasks of the thread.
            ends: The ends of the partitions as they are known.
        """
        self.is_held = self.is_awaited = False
        if not self.groups:
            return {}
        others: Fronts | None = {}
        if self.channel is not None:
            others = self.channel.others()
            self.is_awaited = self._told is None or not self._told.keys().isdisjoint(others or ())
        limit_by_task: dict[TaskId, int] = {}
        for group, loaded in self._by_group(task for task in tasks if task.buffers.records).items():
            limit = self._limit(group, loaded, tasks, ends, others)
            if limit is not None:
                limit_by_task |= dict.fromkeys((task.id for task in loaded), limit)
        return limit_by_task

    def report(self, tasks: Iterable[ActiveTask], ends: Mapping[TopicPartition, int]) -> None:
        """Report the fronts, if they have changed; everything that was processed is committed."""
        if self.channel is None or not self.groups:
            return
        fronts: dict[int, int] = {}
        new_from = self._new_from_ms()
        behind = (task for task in tasks if task.buffers.records or task.buffers.awaited(ends))
        for group, own in self._by_group(behind).items():
            old = [_oldest(group, task, ends) for task in own if task.front(ends) < new_from]
            if old:
                fronts[group.id] = min(old)
        if fronts != self._told:
            self._told = fronts
            self.channel.tell(fronts)

    def _by_group(self, tasks: Iterable[ActiveTask]) -> dict[PaceGroup, list[ActiveTask]]:
        by_group: dict[PaceGroup, list[ActiveTask]] = {}
        for task in tasks:
            group = self.groups.get(task.id.subtopology)
            if group is not None:
                by_group.setdefault(group, []).append(task)
        return by_group

    def _limit(
        self,
        group: PaceGroup,
        loaded: Sequence[ActiveTask],
        tasks: Iterable[ActiveTask],
        ends: Mapping[TopicPartition, int],
        others: Fronts | None,
    ) -> int | None:
        front = None
        if min(task.time_of(1) for task in loaded) < self._new_from_ms():
            awaited = (task for task in tasks if task.buffers.awaited(ends))
            front = self._front(group, self._by_group(awaited).get(group, ()), ends, others)
        if front is None:
            self._free[group.id] = max(task.stream_time_ms for task in loaded)
            if len(loaded) == 1:
                return None
        limit = min((ms for task in loaded if (ms := task.piece_ends_ms(ends)) is not None), default=None)
        if front is None:
            return limit
        least = max(self._span_ms(group, task, ends) for task in loaded)
        if limit is None:  # it is nearly at the end: so that turns of others that are there too do not hold it back
            least = max(least, _STRICT_MS)
        bound = front + max(group.slack_ms, least)
        passed = self._free.get(group.id, bound)
        if passed - bound > min(group.slack_ms, _NEAR_MS) or (limit is not None and limit <= max(bound, passed)):
            return limit
        self.is_held = True
        return max(bound, passed)

    def _front(
        self,
        group: PaceGroup,
        awaited: Sequence[ActiveTask],
        ends: Mapping[TopicPartition, int],
        others: Fronts | None,
    ) -> int | None:
        """Return the smallest front of other threads, and of tasks whose records have not come yet.

        None: there is none, or it is not to be waited for.
        """
        fronts = [_oldest(group, task, ends) for task in awaited]
        fronts += [_UNKNOWN] if others is None else [others[group.id]] if group.id in others else []
        front = min(fronts, default=None)
        return front if front is not None and self._waits_for(group, front) else None

    def _waits_for(self, group: PaceGroup, front: int) -> bool:
        """Return whether others are waited for: for some seconds, then as long as they catch up with the clock."""
        now = self.clock()
        hold = self._holds.get(group.id)
        is_known = hold is not None and (hold.front != _UNKNOWN or front == _UNKNOWN)
        if hold is None or not is_known or abs(now - hold.seen_ms) > _PATIENCE_MS:
            self._holds[group.id] = hold = _Hold(front, now, now)
        elif (elapsed := abs(now - hold.since_ms)) > _PATIENCE_MS:
            self._holds[group.id] = hold = _Hold(front, now, now, front - hold.front < _CATCHING_UP * elapsed)
        hold.seen_ms = now
        return not hold.is_over

    def _new_from_ms(self) -> int:
        """Return the time from which on records are new."""
        return self.clock() - _NEW_MS

    @staticmethod
    def _span_ms(group: PaceGroup, task: ActiveTask, ends: Mapping[TopicPartition, int]) -> int:
        """Return the time that the least records of a turn span, where they are densest: so turns are not too many."""
        least = max(1, task.buffers.lag(ends) // _PART_OF_LAG)
        if group.slack_ms < _STRICT_MS:
            least = max(least, task.batch_records // _PART_OF_BATCH)
        times = [task.time_of(1 + least * turn) for turn in range(_TURNS)]
        return min(after - before for before, after in pairwise(times))


def _oldest(group: PaceGroup, task: ActiveTask, ends: Mapping[TopicPartition, int]) -> int:
    """Return the time of the oldest record that a task may still process: its records need not be in order of time."""
    return task.front(ends) - min(task.buffers.disorder_ms, int(group.slack_ms * _MOST_DISORDER))


class PaceBoard:
    """The fronts of all threads, on the driver.

    >>> board = PaceBoard()
    >>> board.take("a", {0: 7})
    >>> board.news(["a", "b"]), board.news(["a", "b"])
    ({'a': None}, {})
    >>> board.take("b", {})
    >>> board.news(["a", "b"])
    {'a': {}, 'b': {0: 7}}
    >>> board.news(["b"])  # the tasks of the other one have gone to it
    {'b': {}}
    """

    def __init__(self) -> None:
        self._fronts: dict[str, Fronts] = {}
        self._sent: dict[str, Fronts | None] = {}

    def take(self, thread: str, fronts: Fronts) -> None:
        """Note the fronts of a thread."""
        self._fronts[thread] = fronts

    def forget(self, thread: str) -> None:
        """Forget a thread that has ended."""
        self._fronts.pop(thread, None)
        self._sent.pop(thread, None)

    def repeat(self, thread: str) -> None:
        """Have the next news sent to a thread again: it may have missed the last ones."""
        self._sent.pop(thread, None)

    def news(self, running: Collection[str]) -> dict[str, Fronts | None]:
        """Return by thread what `PaceChannel.others` is to return there now, where that is not what it was.

        Args:
            running: The threads that have tasks.
        """
        is_complete = self._fronts.keys() >= set(running)
        news: dict[str, Fronts | None] = {}
        for thread in self._fronts:
            fronts: dict[int, int] = {}
            for other, each in self._fronts.items():
                for group, front in each.items() if other != thread and other in running else ():
                    fronts[group] = min(front, fronts.get(group, front))
            newest = fronts if is_complete else None
            if thread not in self._sent or self._sent[thread] != newest:
                self._sent[thread] = news[thread] = newest
        return news


def merged_by_time(
    written: Sequence[tuple[TaskId, Sequence[Part]]], topics: Collection[str]
) -> Iterator[tuple[str, list[Part]]]:
    """Merge what tasks have written in one turn into partitions of these topics, by the newest time that each reached.

    Args:
        written: The parts of each task, in the order of its records.
        topics: The topics.

    Returns:
        Parts, and the names of their tasks.
    """
    places: dict[tuple[str, int], list[tuple[TaskId, pa.RecordBatch]]] = {}
    for task, parts in written:
        alone = [part for part in parts if part[0] not in topics]
        if alone:
            yield str(task), alone
        for topic, partition, rows in parts:
            if topic in topics:
                places.setdefault((topic, partition), []).append((task, rows))
    for (topic, partition), pieces in places.items():
        names = dict.fromkeys(str(task) for task, _ in pieces)
        yield ", ".join(names), [(topic, partition, _merged([rows for _, rows in pieces]))]


def _merged(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Merge batches by the running maxima of their times.

    >>> pieces = [pa.record_batch({"timestamp": times}) for times in ([1, 5, 2], [3, 4])]
    >>> _merged(pieces).column("timestamp").to_pylist()
    [1, 3, 4, 5, 2]
    """
    if len(pieces) == 1:
        return pieces[0]
    rows = pa.concat_batches(pieces)
    reached = np.concatenate([np.maximum.accumulate(piece.column("timestamp").to_numpy()) for piece in pieces])
    if (reached[1:] >= reached[:-1]).all():
        return rows
    return rows.take(pa.array(np.argsort(reached, kind="stable")))
