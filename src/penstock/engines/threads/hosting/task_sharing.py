"""How the threads of an instance come by their tasks: from their driver, or from the application's group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.log_lines import own_logger
from penstock.engines.threads.assignment import (
    Ownership,
    Placement,
    PlacementLimits,
    StateHolders,
    TaskList,
    place_tasks,
)
from penstock.engines.threads.hosting.thread_state import caught_up_places, followed_places, places_on_disk
from penstock.topology.plan.plan import TaskId

if TYPE_CHECKING:
    from penstock.engines.threads.hosting.epoch_job import ContinuousJob
    from penstock.engines.threads.hosting.thread_state import ThreadState
    from penstock.errors import PenstockError

__all__ = ["PlacedTasks", "TaskSharing"]

_log = own_logger(__name__)
Lists = Mapping[str, TaskList]


class TaskSharing(Protocol):
    """The rule by which an epoch's threads get tasks; its methods are called one at a time.

    `place`, `reported` and `probe` return the lists to send to threads, by name.
    """

    @property
    def lists(self) -> Lists:
        """The newest list of each thread that has had one."""
        ...

    @property
    def owners(self) -> Mapping[TaskId, str]:
        """The thread of each task that this instance has."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether no task is about to move, as far as this instance knows."""
        ...

    def begin(self, changed: Callable[[Collection[str]], None], fail: Callable[[PenstockError], None]) -> None:
        """Begin the epoch.

        Args:
            changed: Called from another thread when threads are to have other lists, or commit in another name.
            fail: Called from another thread with an error that ends the epoch.
        """
        ...

    def place(self, job: ContinuousJob, threads: Mapping[str, ThreadState], starting: Collection[str]) -> Lists:
        """Take note of the threads that are there now, and of the plan.

        Args:
            job: The epoch's job with its newest plan.
            threads: The threads.
            starting: Those that cannot take over tasks yet.
        """
        ...

    def probe(self, job: ContinuousJob, threads: Mapping[str, ThreadState], starting: Collection[str]) -> Lists:
        """Look whether warm-ups have caught up; called at the interval of probing."""
        ...

    def reported(self, name: str, thread: ThreadState) -> Lists:
        """Take note of a thread's report."""
        ...

    def restarted(self, name: str) -> None:
        """Take note that a thread has begun anew: it knows nothing of its tasks; `place` comes next."""
        ...

    def fenced(self, name: str) -> None:
        """Take note that a thread is gone, and can commit no more; `place` comes next."""
        ...

    def outdate(self) -> None:
        """Have `place` send each thread a new list, also of the same tasks: the plan has changed."""
        ...

    def membership(self, name: str) -> Sequence[Any] | None:
        """Return in whose name a thread commits; None: in that of the application."""
        ...

    def tasks(self, job: ContinuousJob) -> Collection[TaskId]:
        """Return the tasks that this instance is to run."""
        ...

    def wants_plan(self) -> bool:
        """Return whether there are tasks that the plan does not know."""
        ...

    def holders(self, threads: Mapping[str, ThreadState]) -> StateHolders:
        """Return where the tasks and their state are, for the next epoch."""
        ...

    def end(self) -> None:
        """End the epoch: its threads have ended."""
        ...


class PlacedTasks:
    """The tasks of an application that one driver has alone, and places on its threads.

    Args:
        before: Where tasks and their state were in the epoch before.
        job: The epoch's job.
    """

    def __init__(self, job: ContinuousJob, before: StateHolders | None = None) -> None:
        self._job, self._before = job, before or StateHolders()
        self._owners = Ownership()
        self._placed = Placement({}, {}, {})
        self._warned = 0

    @property
    def lists(self) -> Lists:
        """The newest list of each thread."""
        return self._owners.lists

    @property
    def owners(self) -> Mapping[TaskId, str]:
        """The thread of each task."""
        return self._owners.owners

    @property
    def is_settled(self) -> bool:
        """Whether every task is with the thread that it is wanted at."""
        return self._owners.is_settled

    def begin(self, changed: Callable[[Collection[str]], None], fail: Callable[[PenstockError], None]) -> None:
        """Do nothing: lists change only when threads report."""

    def place(self, job: ContinuousJob, threads: Mapping[str, ThreadState], starting: Collection[str]) -> Lists:
        """Place all tasks on the threads that are there, and return the lists that change."""
        self._job, owners = job, self.owners
        caught_up = caught_up_places(threads, owners, job.acceptable_lag)
        here = {each.place for each in threads.values()}
        for task, places in {**places_on_disk(threads), **self._before.caught_up}.items():
            if task not in caught_up and task not in owners:
                caught_up[task] = {place for place in places if place in here}
        held = StateHolders({**self._before.threads, **owners}, caught_up, followed_places(threads))
        limits = PlacementLimits(job.standbys, job.warmups)
        spots = {name: each.spot for name, each in threads.items()}
        able = {name: spot for name, spot in spots.items() if name not in starting} or spots
        self._placed = place_tasks(job.tasks(), set(job.stateful_tasks()), able, held, limits)
        self._placed = self._placed.with_idle(spots)
        self._warn(self._placed.missing, threads)
        return self._owners.aim(self._placed, spots)

    def probe(self, job: ContinuousJob, threads: Mapping[str, ThreadState], starting: Collection[str]) -> Lists:
        """Move tasks whose warm-ups have caught up."""
        return self.place(job, threads, starting) if self._placed.has_warmups else {}

    def reported(self, name: str, thread: ThreadState) -> Lists:
        """Take note of what a thread has let go of."""
        return self._owners.reported(name, thread.revision, thread.held)

    def restarted(self, name: str) -> None:
        """Do nothing: a new attempt fences the earlier one, and keeps its tasks."""

    def fenced(self, name: str) -> None:
        """Take the tasks from a thread that can commit no more."""
        self._owners.fenced(name)

    def outdate(self) -> None:
        """Have `place` send each thread a new list."""
        self._owners.outdate()

    def membership(self, name: str) -> None:
        """Return None: all threads commit in the name of the application."""

    def tasks(self, job: ContinuousJob) -> Collection[TaskId]:
        """Return all tasks."""
        return [*job.tasks()]

    def wants_plan(self) -> bool:
        """Return False: the plan says which tasks there are."""
        return False

    def holders(self, threads: Mapping[str, ThreadState]) -> StateHolders:
        """Return where the tasks and their state are, for the next epoch."""
        caught_up = caught_up_places(threads, self.owners, self._job.acceptable_lag)
        names = {**self._before.threads, **self.owners}
        return StateHolders(names, {**self._before.caught_up, **caught_up}, followed_places(threads))

    def end(self) -> None:
        """Do nothing: the next epoch has all tasks again."""

    def _warn(self, missing: int, threads: Mapping[str, ThreadState]) -> None:
        if missing > self._warned:
            count = len({each.place for each in threads.values()})
            _log.warning(
                "%d standby tasks have no place: num.standby.replicas is %d, and there %s %d with stream threads. "
                "Threads of one machine share its replicas, so a standby needs another machine",
                missing, self._job.standbys, "is 1 machine" if count == 1 else "are machines:", count,
            )  # fmt: skip
        self._warned = missing
