"""What follows the end of an epoch or of a thread: whether another one may succeed, and the fencing of what is lost.

What ends a process, or the query of a DataFrame, must not do so for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engines.spark.master_urls import is_one_process, retries_tasks
from penstock.errors import (
    AppFailedError,
    FencedError,
    LogUnavailableError,
    OffsetOutOfRangeError,
    PenstockError,
    UnknownTopicError,
)
from penstock.log.processes import has_ended
from penstock.topology.dataframe_source import ledger_task
from penstock.topology.plan.plan import TaskId

if TYPE_CHECKING:
    from penstock.engines.threads.hosting.epoch import Epoch
    from penstock.engines.threads.hosting.thread_state import ThreadState
    from penstock.log.base import TopicLog, TopicPartition
    from penstock.log.thread_clients import ThreadClients
    from penstock.topology.plan.plan import PhysicalPlan

__all__ = ["MOST_RESTARTS", "CrashWatch", "LostThreads", "is_passing"]

MOST_RESTARTS = 3
_FORGET_S = 600.0
_PASSING = (FencedError, LogUnavailableError, OffsetOutOfRangeError, UnknownTopicError)


def is_passing(error: PenstockError) -> bool:
    """Return whether a new epoch may succeed where this error has ended one, or its preparation says more.

    The query of a DataFrame is no thread of an epoch: what has ended it would end it again, unless the log was away.
    """
    if "dataframe" in error.facts:
        return isinstance(error, LogUnavailableError)
    return bool(error.facts.get("lost_process") or error.facts.get("plan_anew")) or isinstance(error, _PASSING)


@dataclass(frozen=True, slots=True)
class _Crash:
    """The ends of epochs at which a task, or the query of a DataFrame, had not got further.

    Attributes:
        count: Their number.
        progress: The committed offsets of the task's partitions, or the query's last batch, at the last one.
        at_s: Its time.
    """

    count: int
    progress: object
    at_s: float


class CrashWatch:
    """The tasks whose threads have ended epochs, and how often without a commit in between.

    Commits of other tasks do not count: they go on in each epoch, while one record ends its process again and again.

    Args:
        clock: Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._crashes: dict[TaskId | str, _Crash] = {}  # by task, or by the name of a DataFrame

    def note(
        self, tasks: Mapping[TaskId, Iterable[TopicPartition]], committed: Mapping[TopicPartition, int]
    ) -> tuple[int, TaskId | None]:
        """Note the end of an epoch.

        Args:
            tasks: The tasks that may be its cause, with the partitions that they read.
            committed: The committed offsets of the group.

        Returns:
            The most often that one of them has not got further, this time included, and that task.
        """
        worst, most = None, 0
        for task, places in tasks.items():
            count = self._count(task, {tp: committed.get(tp, 0) for tp in places})
            if count > most:
                worst, most = task, count
        return most, worst

    def _count(self, key: TaskId | str, progress: object) -> int:
        """Count an end; return how many there have been without progress in between, this one included."""
        now, before = self._clock(), self._crashes.get(key)
        is_again = before is not None and before.progress == progress and now - before.at_s < _FORGET_S
        crash = self._crashes[key] = _Crash(before.count + 1 if before and is_again else 1, progress, now)
        return crash.count

    def note_end(self, epoch: Epoch, log: TopicLog, error: PenstockError) -> int:
        """Note the end of an epoch; return how often in succession one has ended so.

        Args:
            epoch: The epoch.
            log: The log, which knows how far tasks have come.
            error: The error that has ended it, with its thread in ``facts["thread"]`` if that is known; the query of
                a DataFrame has its name in ``facts["dataframe"]``.

        Raises:
            AppFailedError: A task, or the query, has not got further for too many epochs.
        """
        if "dataframe" in error.facts:
            return self.note_feed(str(error.facts["dataframe"]), log.ledger(epoch.job.plan.application_id), error)
        plan, thread = epoch.job.plan, epoch.threads.get(str(error.facts.get("thread")))
        committed = log.committed_offsets(plan.application_id)
        own = [TaskId.parse(each["task"]) for each in thread.report.get("tasks", ())] if thread is not None else []
        suspects = _suspects(log, plan, own or epoch.tasks(), committed)
        count, worst = self.note(suspects, committed)
        if worst is not None and count > MOST_RESTARTS:
            raise _repeated_error(error, worst, suspects[worst], committed) from error
        return count

    def note_feed(self, name: str, ledger: Mapping[str, int], error: PenstockError) -> int:
        """Note the end of the query of a DataFrame; return how often in succession it has ended so.

        Args:
            name: The name of the DataFrame.
            ledger: The application's ledger, which has the last batch that the query has written.
            error: The error that has ended it.

        Raises:
            AppFailedError: It has written nothing for too many starts.
        """
        count = self._count(name, ledger.get(ledger_task(name)))
        if count > MOST_RESTARTS:
            raise AppFailedError(
                f"the query of DataFrame {name!r} has failed {count} times, and has written nothing in between. The "
                f"last time: {error.message}",
                hint=error.hint,
                details=str(error.facts.get("details", "")),
                dataframe=name,
            ) from error
        return count

    def note_crash(self, plan: PhysicalPlan, tasks: Iterable[TaskId], log: TopicLog, thread: str) -> None:
        """Note the end of a thread's process while its epoch goes on; a thread with nothing to do does not count.

        Args:
            plan: The plan.
            tasks: The tasks that the thread had.
            log: The log, which knows how far tasks have come.
            thread: The name of the thread.

        Raises:
            AppFailedError: A task has not got further for too many crashes.
        """
        committed = log.committed_offsets(plan.application_id)
        suspects = _behind(log, {task: plan.sources(task) for task in tasks}, committed)
        count, worst = self.note(suspects, committed)
        if worst is not None and count > MOST_RESTARTS:
            error = AppFailedError(f"the process of {thread} has ended", thread=thread)
            raise _repeated_error(error, worst, suspects[worst], committed)


def _suspects(
    log: TopicLog, plan: PhysicalPlan, tasks: Iterable[TaskId], committed: Mapping[TopicPartition, int]
) -> dict[TaskId, list[TopicPartition]]:
    """Return the tasks that had something to do, with their partitions; all of them if none had."""
    sources = {task: plan.sources(task) for task in tasks}
    return _behind(log, sources, committed) or sources


def _behind(
    log: TopicLog, sources: Mapping[TaskId, list[TopicPartition]], committed: Mapping[TopicPartition, int]
) -> dict[TaskId, list[TopicPartition]]:
    """Return the tasks that had something to do, with their partitions; none while one of their topics is not there."""
    try:
        ends = log.end_offsets(sorted({tp.topic for places in sources.values() for tp in places}))
    except UnknownTopicError:  # deleted, and perhaps about to be made again: the next start says what it finds
        return {}
    return {
        task: places for task, places in sources.items() if any(committed.get(tp, 0) < ends.get(tp, 0) for tp in places)
    }


def _repeated_error(
    error: PenstockError, task: TaskId, places: Iterable[TopicPartition], committed: Mapping[TopicPartition, int]
) -> AppFailedError:
    """Make the error for a task that has not got further for several epochs."""
    at = [f"{tp.topic}-{tp.partition} from offset {committed.get(tp, 0)} on" for tp in places]
    thread = error.facts.get("thread") or "a thread"
    return AppFailedError(
        f"{thread} has failed {MOST_RESTARTS + 1} times, and task {task} has made no progress; it had to read "
        f"{', '.join(at)}. The last time: {error.message}",
        hint="A record there, or a function of the application that it calls, may end the process (a native library, "
        "memory, os._exit). Nothing after the last commit counts; the application continues there when it is started.",
        details=str(error.facts.get("details", "")),
        task=str(task),
        positions={f"{tp.topic}-{tp.partition}": committed.get(tp, 0) for tp in places},
    )


_ENDING_S = 0.02  # from the end of a process's connections to its own


class LostThreads:
    """The replacement of lost threads within an epoch.

    Where Spark does not start a task again its job fails, and with it the epoch.

    Args:
        log: The application's log.
        crashes: Limits the crashes at which a task gets no further.
        master: Spark's master.
    """

    def __init__(self, log: TopicLog, crashes: CrashWatch, master: str) -> None:
        self._log = log
        self._crashes = crashes
        self._retries_tasks = retries_tasks(master)
        self._is_local = is_one_process(master)

    def replace(self, epoch: Epoch) -> None:
        """Fence threads that are gone, and have others take over their tasks, while Spark starts them again.

        A thread that comes back meanwhile is not fenced by its name: `Epoch.lost` has it wait for its tasks.

        Raises:
            AppFailedError: A task has not got further for too many crashes.
        """
        if not self._retries_tasks:
            return
        clients: ThreadClients = self._log  # type: ignore[assignment] # both logs are
        for name in epoch.lost(self._is_dead):
            job = epoch.job
            clients.fence_threads(job.plan.application_id, [job.producer_of(name)], job.lease_epoch)
            epoch.fenced(name)
        for name, tasks in epoch.take_crashes():
            self._crashes.note_crash(epoch.job.plan, tasks, self._log, name)

    def _is_dead(self, thread: ThreadState) -> bool:
        """Return whether a thread's process is known to be gone; on other machines that cannot be seen."""
        return self._is_local and has_ended(thread.pid, _ENDING_S)
