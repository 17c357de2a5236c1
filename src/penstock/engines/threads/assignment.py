"""The assignment of tasks to stream threads: their placement, and its changes, so that a task never has two owners.

A task runs where its state is until another place has caught up within ``acceptable.recovery.lag``: if a balanced
assignment has it elsewhere, that place gets a *warm-up* first, at most ``max.warmup.replicas`` at once. Standbys
(``num.standby.replicas``) lie in other places than the active task and each other, on other machines first.

A *place* is a folder of replicas. Threads that share one, as all threads of a machine usually do, have the same state:
a task moves between them without a restore, and a standby beside its active task would be of no use.

The driver sends each thread the whole list of its tasks, with a revision. A task that is to move is left out of the
list of its owner first. The owner commits, lets go of it, and reports that revision; only then is the task in the list
of its next owner. Meanwhile that one follows its changelogs as a standby.

So a task is owned from the moment that a list names it, until its owner reports a later list as done, or its owner can
commit no more because the driver has fenced it. Reports of an earlier attempt at a thread do not count: a new attempt
reports nothing before its producer is initialised, which fences the earlier one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.topology.plan.plan import TaskId

__all__ = [
    "Holders",
    "Ownership",
    "Placement",
    "PlacementLimits",
    "Spot",
    "StateHolders",
    "TaskList",
    "assign_tasks",
    "place_tasks",
]


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


def _by_thread(threads: Iterable[str], pairs: Iterable[tuple[TaskId, str]]) -> Assignment:
    lists: dict[str, list[TaskId]] = {thread: [] for thread in threads}
    for task, thread in pairs:
        lists[thread].append(task)
    return {thread: tuple(sorted(tasks)) for thread, tasks in lists.items()}


Assignment = Mapping[str, tuple[TaskId, ...]]
"""Thread -> its tasks, in order."""


@dataclass(frozen=True, slots=True)
class Holders:
    """The threads and machines that tasks were on.

    Attributes:
        threads: Task -> the thread that had it last.
        hosts: Task -> the machines that have a replica of its state.
    """

    threads: Mapping[TaskId, str] = field(default_factory=dict)
    hosts: Mapping[TaskId, Iterable[str]] = field(default_factory=dict)


def assign_tasks(tasks: Iterable[TaskId], threads: Mapping[str, str], before: Holders | None = None) -> Assignment:
    """Assign each task to a thread.

    The numbers of tasks of any two threads differ by one at most. Within that limit a task stays on its thread, else it
    goes to a thread of a machine that has a replica of its state. The other tasks are spread so that the partitions of
    a sub-topology lie on different threads.

    Args:
        tasks: All tasks.
        threads: The threads, each with its machine; at least one.
        before: Where the tasks were.

    Example:
        >>> first = assign_tasks([TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)], {"a": "h1", "b": "h2"})
        >>> {thread: [str(task) for task in tasks] for thread, tasks in first.items()}
        {'a': ['0_0', '1_0'], 'b': ['0_1']}
    """
    before = before or Holders()
    ordered = sorted(set(tasks))
    room = _Room(len(ordered), sorted(threads))
    for task in ordered:
        thread = before.threads.get(task, "")
        if room.has(thread) and _may_stay(threads[thread], before.hosts.get(task)):
            room.put(task, thread)
    for task in room.waiting(ordered):
        hosts = set(before.hosts.get(task, ()))
        near = [thread for thread, host in threads.items() if host in hosts and room.has(thread)]
        if near:
            room.put(task, room.best(task, near))
    for task in room.waiting(ordered):
        room.put(task, room.best(task, [thread for thread in threads if room.has(thread)]))
    return {thread: tuple(sorted(held)) for thread, held in room.held.items()}


def _may_stay(host: str, hosts: Iterable[str] | None) -> bool:
    """Return whether a thread's machine is as good as any: Spark may have started the thread on another one."""
    host_names = set(hosts or ())
    return not host_names or host in host_names


class _Room:
    """The tasks that each thread has, and how many more it may take."""

    def __init__(self, tasks: int, threads: Sequence[str]) -> None:
        self.held: dict[str, list[TaskId]] = {thread: [] for thread in threads}
        self._placed: set[TaskId] = set()
        self._least, self._larger = divmod(tasks, len(threads))

    def has(self, thread: str) -> bool:
        """Return whether a thread may take one more: only so many may have one more than the others."""
        if thread not in self.held:
            return False
        held = len(self.held[thread])
        full = sum(len(each) > self._least for each in self.held.values())
        return held < self._least or (held == self._least and full < self._larger)

    def put(self, task: TaskId, thread: str) -> None:
        self.held[thread].append(task)
        self._placed.add(task)

    def waiting(self, tasks: Iterable[TaskId]) -> list[TaskId]:
        """List the tasks without a thread."""
        return [task for task in tasks if task not in self._placed]

    def best(self, task: TaskId, threads: Iterable[str]) -> str:
        """Return the thread with the fewest tasks of the same sub-topology, then with the fewest tasks."""

        def load(thread: str) -> tuple[int, int, str]:
            held = self.held[thread]
            return sum(each.subtopology == task.subtopology for each in held), len(held), thread

        return min(threads, key=load)


@dataclass(frozen=True, slots=True)
class TaskList:
    """The tasks of a thread.

    Attributes:
        revision: Its number; each list of a thread has a larger one.
        active: The tasks that it runs.
        standby: The tasks that it follows, warm-ups too.
        member: The member of the group that has been given them; a thread with tasks of another one, or with a list of
            none, closes these without a commit. Empty, too, where the driver has all tasks.
    """

    revision: int = 0
    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    member: str = field(default="", repr=False)


@dataclass(slots=True)
class _Moving:
    """A task that its owner is to let go of.

    Attributes:
        owner: The owner.
        revision: The first list of the owner that does not name it.
    """

    owner: str
    revision: int


@dataclass
class Ownership:
    """The owners of all tasks, and the lists that threads have been sent.

    Example:
        >>> a, task = Spot("h", "p"), TaskId(0, 0)
        >>> owners = Ownership()
        >>> first = Placement({"x": (task,), "y": ()}, {}, {})
        >>> sorted(owners.aim(first, {"x": a, "y": a}))
        ['x', 'y']
        >>> second = Placement({"x": (), "y": (task,)}, {}, {})
        >>> owners.aim(second, {"x": a, "y": a})
        {'x': TaskList(revision=2, active=frozenset(), standby=frozenset())}
        >>> owners.reported("x", 2, [])
        {'y': TaskList(revision=2, active=frozenset({TaskId(subtopology=0, partition=0)}), standby=frozenset())}
    """

    lists: dict[str, TaskList] = field(default_factory=dict)
    _target: Placement = field(default_factory=lambda: Placement({}, {}, {}))
    _spots: Mapping[str, Spot] = field(default_factory=dict)
    _owners: dict[TaskId, str] = field(default_factory=dict)
    _moving: dict[TaskId, _Moving] = field(default_factory=dict)
    _outdated: set[str] = field(default_factory=set)

    @property
    def owners(self) -> Mapping[TaskId, str]:
        """The owner of each task that has one."""
        return dict(self._owners)

    @property
    def is_settled(self) -> bool:
        """Whether every task is with the thread that it is wanted at."""
        return self._owners == self._target.thread_of() and not self._moving

    def aim(self, target: Placement, spots: Mapping[str, Spot]) -> dict[str, TaskList]:
        """Set the assignment to reach; return the lists to send.

        Args:
            target: The assignment.
            spots: The threads.
        """
        self._target, self._spots = target, spots
        return self._next()

    def outdate(self) -> None:
        """Have `aim` send each thread a new list, also of the same tasks: they read or write other topics than before.

        A thread follows a new plan with its next list, and the revision that it reports says that it has done so.
        """
        self._outdated = set(self.lists)

    def reported(self, thread: str, revision: int, held: Collection[TaskId]) -> dict[str, TaskList]:
        """Note that a thread has done as a list says; return the lists to send.

        Args:
            thread: The thread.
            revision: The revision of that list.
            held: The tasks that it runs, or prepares to run.
        """
        for task, moving in [*self._moving.items()]:
            if moving.owner == thread and revision >= moving.revision and task not in held:
                self._release(task)
        return self._next()

    def fenced(self, thread: str) -> None:
        """Note that a thread can commit no more: its tasks have no owner; `aim` comes next."""
        for task in [task for task, owner in self._owners.items() if owner == thread]:
            self._release(task)
        if thread in self.lists:
            self.lists[thread] = TaskList(self.lists[thread].revision + 1)

    def _release(self, task: TaskId) -> None:
        self._owners.pop(task, None)
        self._moving.pop(task, None)

    def _next(self) -> dict[str, TaskList]:
        sent: dict[str, TaskList] = {}
        for thread in self._target.active:
            before = self.lists.get(thread)
            active = frozenset(task for task in self._target.active[thread] if self._may_have(task, thread))
            standby = self._standbys(thread) - active
            is_same = before is not None and (active, standby) == (before.active, before.standby)
            if is_same and thread not in self._outdated:
                continue
            self._outdated.discard(thread)
            revision = 1 if before is None else before.revision + 1
            sent[thread] = self.lists[thread] = TaskList(revision, active, standby)
            for task in active:
                self._owners[task] = thread
            for task, owner in self._owners.items():
                if owner == thread and task not in active and task not in self._moving:
                    self._moving[task] = _Moving(thread, revision)
        return sent

    def _may_have(self, task: TaskId, thread: str) -> bool:
        return self._owners.get(task, thread) == thread and task not in self._moving

    def _standbys(self, thread: str) -> frozenset[TaskId]:
        """Return the tasks that a thread follows: not those whose owner uses the same folder."""
        tasks: Iterable[TaskId] = (
            *self._target.standby.get(thread, ()),
            *self._target.warmup.get(thread, ()),
            *self._target.active[thread],  # those that another thread still has
        )
        place = self._spots[thread].place
        return frozenset(task for task in tasks if not self._shares(task, place))

    def _shares(self, task: TaskId, place: str) -> bool:
        owner = self._owners.get(task)
        return owner is not None and owner in self._spots and self._spots[owner].place == place
