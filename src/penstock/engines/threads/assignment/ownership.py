"""The assignment of tasks to threads that run, changed step by step, so that a task never has two owners.

The driver sends each thread the whole list of its tasks, with a revision. A task that is to move is left out of the
list of its owner first. The owner commits, lets go of it, and reports that revision; only then is the task in the list
of its next owner. Meanwhile that one follows its changelogs as a standby.

So a task is owned from the moment that a list names it, until its owner reports a later list as done, or its owner can
commit no more because the driver has fenced it. Reports of an earlier attempt at a thread do not count: a new attempt
reports nothing before its producer is initialised, which fences the earlier one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from penstock.engines.threads.assignment.task_assignor import Placement, Spot
from penstock.topology.plan.plan import TaskId

__all__ = ["Ownership", "TaskList"]


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
