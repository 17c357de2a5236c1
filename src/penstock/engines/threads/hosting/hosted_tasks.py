"""The tasks of a hosted stream thread, which the driver's lists change while it runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

from penstock.engines.threads.loop.standby import StateUpdater, followed_places, replica_lag
from penstock.engines.threads.loop.thread_environment import AskedOnce
from penstock.engines.threads.replicas.task_replica import TaskReplica
from penstock.log.open import open_log
from penstock.topology.plan.plan import TaskId

if TYPE_CHECKING:
    from penstock.engines.threads.app import ThreadApp
    from penstock.engines.threads.hosting.epoch_job import ContinuousJob
    from penstock.engines.threads.hosting.restore_notes import RestoreNotes
    from penstock.engines.threads.loop.stream_thread import StreamThread
    from penstock.engines.threads.loop.thread_environment import ThreadLog

__all__ = ["HostedTasks"]

_NEAR = 10_000  # records: a replica that lacks no more is caught up by the loop itself, in some milliseconds


class HostedTasks:
    """The tasks that a thread runs, prepares to run, and follows as standbys.

    Args:
        job: The epoch.
        log: The thread's log.
        restores: Where restores are noted.
        first: The first list of the driver, whose active tasks the thread begins with.
        plan: The newest plan, if that is not the job's.
        fenced: The member without which the application's group has gone on: what it was given is not its own any more.

    Attributes:
        app: The application as it is planned now.
        active: The tasks that the thread runs.
        pending: Those that it is to run once their state is restored, beside the loop.
    """

    def __init__(
        self,
        job: ContinuousJob,
        log: ThreadLog,
        restores: RestoreNotes,
        first: Mapping[str, Any],
        plan: Mapping[str, Any] | None,
        fenced: str | None = None,
    ) -> None:
        self._job = job
        self._fenced = fenced
        self._log = log
        self._plan = plan
        self.app: ThreadApp = job.app if plan is None else job.app_with(plan)
        self._done = first
        self.active = _parsed(first["active"])
        self.pending: set[TaskId] = set()
        self._updater = StateUpdater(
            self.app, lambda: cast("ThreadLog", open_log(job.log_url, job.log_settings)), restores.note
        )

    def follow(self) -> None:
        """Begin with the standbys of the first list."""
        self._updater.follow(self.app, self._standbys(self._done))

    def change(self, thread: StreamThread, assignment: Mapping[str, Any], plan: Mapping[str, Any] | None) -> bool:
        """Do as the newest list says, and take over tasks whose state is restored; return whether anything changed.

        Args:
            thread: The running thread.
            assignment: The newest list of the driver.
            plan: The newest plan, if that is not the job's.

        Raises:
            PenstockError: The state of a task that is followed or restored beside the loop cannot be.
        """
        self._updater.check()
        if self._is_new(assignment):
            before = self.app
            if plan is not self._plan and plan is not None:
                self._plan, self.app = plan, self._job.app_with(plan)
            self._switch(thread, before, _parsed(assignment["active"]), self._standbys(assignment))
            self._done = assignment
            return True
        return bool(self.pending) and self._take_restored(thread)

    @property
    def revision(self) -> int:
        """The revision of the list that has been carried out."""
        return int(self._done["revision"])

    @property
    def member(self) -> str:
        """The member of the group that has been given the tasks; empty: none was, or the driver has all."""
        return str(self._done.get("member", ""))

    def belong_to_another(self, assignment: Mapping[str, Any]) -> bool:
        """Return whether the newest list is of another member: others may have had the tasks in between."""
        return self._is_new(assignment) and bool(self.member) and assignment.get("member", "") != self.member

    def _is_new(self, assignment: Mapping[str, Any]) -> bool:
        return bool(assignment["revision"] > self.revision) and (
            not self._fenced or assignment.get("member") != self._fenced
        )

    def report(self) -> dict[str, Any]:
        """Return what the driver needs to know of the tasks, see `penstock.engines.threads.assignment`."""
        lags = self._updater.lags()
        return {
            "revision": self._done["revision"],
            "owned": [str(task) for task in sorted(self.active | self.pending)],
            "ready": [str(task) for task in sorted(self.active)],
            "standbys": {str(task): lag for task, lag in lags.items() if task not in self.pending},
            "changelog_ends": {str(task): end for task, end in self._updater.end_sums().items()},
        }

    @property
    def follow_others(self) -> bool:
        """Whether some are prepared or followed, beside the loop."""
        return bool(self.pending or self._updater.lags())

    def close(self) -> None:
        """Close the replicas of standbys."""
        self._updater.close()

    def _standbys(self, assignment: Mapping[str, Any]) -> set[TaskId]:
        return {task for task in _parsed(assignment["standby"]) if followed_places(self.app, task)}

    def _switch(
        self, thread: StreamThread, before: ThreadApp, active: Collection[TaskId], standbys: Collection[TaskId]
    ) -> None:
        app = self.app
        ending = self.active.difference(active)
        altered = {task for task in self.active.intersection(active) if _is_altered(task, before, app)}
        open_: dict[TaskId, TaskReplica] = dict(thread.remove(ending | altered)) if ending or altered else {}
        for task in ending.difference(standbys):
            open_.pop(task).close()
        self.active -= ending
        self.pending.intersection_update(active)
        new_tasks = sorted(set(active) - self.active - self.pending)
        for task in new_tasks:
            open_[task] = self._updater.take(task) or TaskReplica.open(app, task)
        log = AskedOnce(self._log)
        near = {task for task in new_tasks if self._is_near(open_[task], task, log)}
        self.pending.update(set(new_tasks) - near)
        thread.add(app, {task: open_.pop(task) for task in sorted(near | altered)})
        self.active |= near
        self._updater.follow(app, standbys, self.pending, open_)

    def _is_near(self, replica: TaskReplica, task: TaskId, log: AskedOnce) -> bool:
        places = followed_places(self.app, task)
        logged = {tp for tp in places if tp.topic in set(self.app.changelogs.values())}
        ends = log.end_offsets(sorted({tp.topic for tp in logged})) if logged else {}
        committed = log.committed_offsets(self.app.application_id) if len(logged) < len(places) else {}
        return replica_lag(replica, {tp: ends.get(tp, committed.get(tp, 0)) for tp in places}) <= _NEAR

    def _take_restored(self, thread: StreamThread) -> bool:
        lags = self._updater.lags()
        ready = [task for task in sorted(self.pending) if (lag := lags.get(task)) is not None and lag <= _NEAR]
        if not ready:
            return False
        restored = {task: self._updater.take(task) for task in ready}
        self.pending.difference_update(ready)
        self.active.update(ready)
        thread.add(self.app, restored)
        return True


def _parsed(names: Collection[str]) -> set[TaskId]:
    return {TaskId.parse(each) for each in names}


def _is_altered(task: TaskId, before: ThreadApp, now: ThreadApp) -> bool:
    """Return whether another plan changes what a task reads, or the partitions that it writes to."""
    if before is now:
        return False
    sinks = now.subtopology(task).sink_topics
    was, is_ = before.plan.partitions, now.plan.partitions
    return before.plan.sources(task) != now.plan.sources(task) or any(
        was.get(topic) != is_.get(topic) for topic in sinks
    )
