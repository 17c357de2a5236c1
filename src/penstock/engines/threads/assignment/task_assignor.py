"""The placement of tasks, standbys and warm-ups on stream threads, as Kafka Streams' ``HighAvailabilityTaskAssignor``.

A task runs where its state is until another place has caught up within ``acceptable.recovery.lag``: if a balanced
assignment has it elsewhere, that place gets a *warm-up* first, at most ``max.warmup.replicas`` at once. Standbys
(``num.standby.replicas``) lie in other places than the active task and each other, on other machines first.

A *place* is a folder of replicas. Threads that share one, as all threads of a machine usually do, have the same state:
a task moves between them without a restore, and a standby beside its active task would be of no use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.engines.threads.assignment.balanced import Assignment, Holders, assign_tasks
from penstock.topology.plan.plan import TaskId

__all__ = ["Placement", "PlacementLimits", "Spot", "StateHolders", "place_tasks"]


class Spot(NamedTuple):
    """The machine of a thread, and its folder of replicas."""

    host: str
    place: str


@dataclass(frozen=True, slots=True)
class PlacementLimits:
    """The settings of a placement.

    Attributes:
        standbys: ``num.standby.replicas``.
        warmups: ``max.warmup.replicas``.
    """

    standbys: int = 0
    warmups: int = 2


@dataclass(frozen=True, slots=True)
class StateHolders:
    """The threads and places that have tasks and their state.

    Attributes:
        threads: Task -> the thread that had it last.
        caught_up: Task -> the places whose replica is within ``acceptable.recovery.lag``.
        followed: Task -> the places that follow its changelogs, however far.
    """

    threads: Mapping[TaskId, str] = field(default_factory=dict)
    caught_up: Mapping[TaskId, Collection[str]] = field(default_factory=dict)
    followed: Mapping[TaskId, Collection[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Placement:
    """The tasks of each thread.

    Attributes:
        active: The tasks that it runs.
        standby: The tasks of which it keeps a standby.
        warmup: The tasks that it is to run once it has caught up.
        missing: The number of standbys for which there are too few places.
    """

    active: Assignment
    standby: Assignment
    warmup: Assignment
    missing: int = 0

    def thread_of(self) -> dict[TaskId, str]:
        """Return the thread of each task."""
        return {task: thread for thread, tasks in self.active.items() for task in tasks}

    def with_idle(self, threads: Iterable[str]) -> Placement:
        """Return it with threads that have no tasks, if they are not there yet.

        >>> Placement({"a": ()}, {}, {}).with_idle(["b"]).active
        {'b': (), 'a': ()}
        """
        return replace(self, active={**dict.fromkeys(threads, ()), **self.active})

    @property
    def has_warmups(self) -> bool:
        """Whether a task is to move when its new place has caught up."""
        return any(self.warmup.values())


def place_tasks(
    tasks: Iterable[TaskId],
    stateful: Collection[TaskId],
    threads: Mapping[str, Spot],
    held: StateHolders | None = None,
    limits: PlacementLimits | None = None,
) -> Placement:
    """Place tasks on threads.

    Args:
        tasks: All tasks.
        stateful: Those with stores that are restored; the others move without a warm-up.
        threads: The threads; at least one.
        held: The present holders of tasks and state.
        limits: The settings.

    Example:
        >>> threads = {"a": Spot("h1", "p1"), "b": Spot("h2", "p2")}
        >>> task = TaskId(0, 0)
        >>> found = place_tasks([task], [task], threads, limits=PlacementLimits(standbys=1))
        >>> found.active, found.standby
        ({'a': (TaskId(subtopology=0, partition=0),), 'b': ()}, {'a': (), 'b': (TaskId(subtopology=0, partition=0),)})
    """
    held, limits = held or StateHolders(), limits or PlacementLimits()
    ordered = sorted(set(tasks))
    places = {thread: spot.place for thread, spot in threads.items()}
    balanced = assign_tasks(ordered, places, Holders(held.threads, held.caught_up))
    on = {task: thread for thread, assigned in balanced.items() for task in assigned}
    warming: dict[TaskId, str] = {}
    left = limits.warmups
    load = {thread: len(assigned) for thread, assigned in balanced.items()}
    for task in ordered:
        target = on[task]
        ready = [thread for thread in sorted(threads) if places[thread] in held.caught_up.get(task, ())]
        if task not in stateful or not ready or target in ready:
            continue
        last = held.threads.get(task)
        stays = last if last in ready else min(ready, key=lambda thread: (load[thread], thread))
        assert stays is not None  # noqa: S101 - there is one that is ready
        on[task] = stays
        load[target] -= 1
        load[stays] += 1
        if left:
            left -= 1
            warming[task] = target
    standbys, missing = _standbys([task for task in ordered if task in stateful], on, warming, threads, held, limits)
    return Placement(
        _by_thread(threads, on.items()),
        _by_thread(threads, standbys),
        _by_thread(threads, warming.items()),
        missing,
    )


def _standbys(
    tasks: Iterable[TaskId],
    on: Mapping[TaskId, str],
    warming: Mapping[TaskId, str],
    threads: Mapping[str, Spot],
    held: StateHolders,
    limits: PlacementLimits,
) -> tuple[list[tuple[TaskId, str]], int]:
    """Return the standbys of tasks with their threads, and the number of those without a place."""
    load = dict.fromkeys(threads, 0)
    standbys: list[tuple[TaskId, str]] = []
    missing = 0
    for task in tasks:
        used = [threads[on[task]], *([threads[warming[task]]] if task in warming else [])]
        for _ in range(limits.standbys):
            places, hosts = {spot.place for spot in used}, {spot.host for spot in used}
            free = [thread for thread, spot in threads.items() if spot.place not in places]
            if not free:
                missing += 1
                continue

            def worth(thread: str, hosts: set[str] = hosts, task: TaskId = task) -> tuple[bool, bool, bool, int, str]:
                spot = threads[thread]
                return (
                    spot.host in hosts,
                    spot.place not in held.caught_up.get(task, ()),
                    spot.place not in held.followed.get(task, ()),
                    load[thread],
                    thread,
                )

            best = min(free, key=worth)
            load[best] += 1
            used.append(threads[best])
            standbys.append((task, best))
    return standbys, missing


def _by_thread(threads: Iterable[str], found: Iterable[tuple[TaskId, str]]) -> Assignment:
    lists: dict[str, list[TaskId]] = {thread: [] for thread in threads}
    for task, thread in found:
        lists[thread].append(task)
    return {thread: tuple(sorted(tasks)) for thread, tasks in lists.items()}
