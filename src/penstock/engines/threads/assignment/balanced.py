"""The assignment of tasks to stream threads: balanced, and sticky to the threads and machines that hold their state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.topology.plan.plan import TaskId

__all__ = ["Assignment", "Holders", "assign_tasks"]

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
