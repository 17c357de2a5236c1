"""Threads whose processes are gone while others run: fenced, so that others may take their tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engines.spark.masters import is_one_process, retries_tasks
from penstock.log.processes import has_ended

if TYPE_CHECKING:
    from penstock.engines.threads.hosting.crashes import CrashWatch
    from penstock.engines.threads.hosting.epoch import Epoch
    from penstock.engines.threads.hosting.thread_state import ThreadState
    from penstock.log.base import TopicLog
    from penstock.log.thread_clients import ThreadClients

__all__ = ["LostThreads"]

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
