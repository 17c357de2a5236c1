"""Stream threads: an application as long-running tasks of a Spark job, which process records by themselves.

The engine of stream threads: a Spark job for each epoch, with one task for each thread.

It needs Spark's context alone: a session, its planner and a streaming query would cost a start 2 s of CPU time.

The progress of stream threads, as listeners receive it: what has happened since the last look.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import InheritableThread

from penstock.base.log_lines import own_logger
from penstock.engines.spark.failures import (
    is_cancelled,
    is_lost_process,
    sealed_error_in,
    spark_error_reason,
    spark_error_text,
)
from penstock.engines.spark.job import load_app
from penstock.engines.spark.jvm import silence_py4j
from penstock.engines.spark.progress import BatchProgress
from penstock.engines.spark.pyspark_warnings import quiet_pyspark
from penstock.engines.spark.session import dataframe_query_settings, users_spark_settings
from penstock.engines.threads.assignment import StateHolders
from penstock.engines.threads.hosting.control_channel import ControlAddress, ControlServer, Member
from penstock.engines.threads.hosting.crashes import MOST_RESTARTS, CrashWatch, LostThreads, is_passing
from penstock.engines.threads.hosting.epoch import Epoch
from penstock.engines.threads.hosting.epoch_checks import (
    UnreadPatience,
    UnreadWatch,
    control_addresses,
    refuse_speculation,
    require_core_for_dataframes,
    require_same_topics,
)
from penstock.engines.threads.hosting.epoch_job import thread_name
from penstock.engines.threads.hosting.epoch_positions import KnownPositions, has_reached
from penstock.engines.threads.hosting.epoch_start import SPARE_SLOTS, THREAD_SETTINGS, EpochPlans, require_continuous
from penstock.engines.threads.hosting.instance_group import (
    InstanceGroup,
    leave_for_dead,
    require_sharable,
    sharing_identity,
    why_not_shared,
)
from penstock.engines.threads.hosting.restore_watch import RestoreWatch
from penstock.engines.threads.hosting.task_sharing import PlacedTasks
from penstock.engines.threads.hosting.thread_host import hosted_threads
from penstock.errors import AppFailedError, PenstockError
from penstock.log.base import TopicPartition
from penstock.log.streams_groups.description import Endpoint
from penstock.metrics.task_counts import TaskCounts
from penstock.query.placement import PlacementNote
from penstock.runtime.global_stores import GLOBAL_TASK
from penstock.topology.configured import with_serdes
from penstock.topology.topology import Topology

if TYPE_CHECKING:
    from pyspark import SparkContext

    from penstock.config import StreamsConfig
    from penstock.engines.application.planning import PlannedApp
    from penstock.engines.dataframes import DataFrameQuery
    from penstock.engines.engine import Start
    from penstock.engines.threads.hosting.epoch_job import ContinuousJob
    from penstock.engines.threads.hosting.task_sharing import TaskSharing
    from penstock.engines.threads.hosting.thread_state import ThreadState
    from penstock.log.base import GroupMembership, Lease, TopicLog
    from penstock.query.instances import HostInfo
    from penstock.state.restores.restore_progress import Restore
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.plan.plan_json import StoredPlan

__all__ = ["ProgressCounter", "StreamThreadsEngine"]

# "records_in" and "records_out" are of all topics, the others of those that are not internal.
_COUNTS = ("records_in", "records_out", "records_read", "records_written", "dropped")


class ProgressCounter:
    """A counter of what threads have done between two looks, across epochs."""

    def __init__(self) -> None:
        self._looks = 0
        self._counts: dict[tuple[int, str, str], Mapping[str, Any]] = {}
        self._seconds: dict[tuple[int, str], Mapping[str, float]] = {}
        self._commits: dict[tuple[int, str], int] = {}
        self._totals: dict[tuple[int, str, str], tuple[Mapping[str, Any], TaskCounts]] = {}  # as written, and read
        self._restored: dict[tuple[int, str], dict[tuple[str, int], tuple[int, bool]]] = {}
        self._globally: dict[tuple[int, str], TaskCounts] = {}
        self._clients: dict[tuple[int, str], dict[tuple[Any, ...], Sequence[Any]]] = {}
        self._lost: dict[str, int] = {}
        self._lives: dict[tuple[int, str], tuple[Any, ...]] = {}  # of each thread: its attempt, and when it began
        self._commits_before = 0  # by threads that have begun anew since

    def note_lost(self, lost: Mapping[str, int]) -> None:
        """Have the next progress say how many records were gone before they were read, by ``topic-partition``."""
        for name, count in lost.items():
            self._lost[name] = self._lost.get(name, 0) + count

    @property
    def commits(self) -> int:
        """The number of commits of all threads so far."""
        return self._commits_before + sum(self._commits.values())

    def progress(self, epoch: int, threads: Mapping[str, ThreadState]) -> BatchProgress | None:
        """Return what has happened since the last look; None if nothing has.

        Args:
            epoch: The number of the epoch.
            threads: Its threads.
        """
        for name, thread in threads.items():
            if "tasks" in thread.report:
                self._note_life((epoch, name), (thread.attempt, thread.report["began_ms"]))
        before = [dict(counted) for counted in self._counted()]
        tasks: list[dict[str, Any]] = []
        lag: dict[str, int] = {}
        seconds, moved = 0.0, False
        for name, thread in threads.items():
            report = thread.report
            if "tasks" not in report:
                continue
            steps = self._steps(epoch, name, report["seconds"])
            seconds += sum(time for step, time in steps.items() if step != "poll")
            moved |= report["commits"] != self._commits.get((epoch, name), 0)
            self._commits[epoch, name] = report["commits"]
            lag |= {tp: max(0, end - report["positions"].get(tp, end)) for tp, end in report["ends"].items()}
            new = [self._task(epoch, name, each, report.get("counts", {})) for each in report["tasks"]]
            self._note_restores((epoch, name), report.get("restores", ()), new)
            tasks += new
            if report["tasks"]:
                # Of the thread, whose tasks take turns.
                tasks[-1] |= {"ends": report["positions"], "seconds": steps}
                tasks[-1] |= {each: report[each] for each in ("began_ms", "committed_ms")}
                tasks[-1] |= {"restoring": sum(each["offset"] < each["end"] for each in report.get("restores", ()))}
                tasks[-1] |= {"clients": self._of_clients((epoch, name), report.get("clients", ()))}
        if tasks:
            self._add_global_task(epoch, threads, tasks[-1])
        sums = {name: sum(task[name] for task in tasks) for name in _COUNTS}
        if not (moved or any(sums.values()) or (tasks and self._lost)):
            for counted, had in zip(self._counted(), before, strict=True):  # for the next look that has more to say
                counted.clear()
                counted.update(had)
            return None
        self._looks += 1
        lost, self._lost = self._lost, {}
        return BatchProgress(
            self._looks - 1,
            sums["records_read"],
            sums["records_written"],
            sums["dropped"],
            max((task["stream_time_ms"] for task in tasks), default=-1),
            lag=lag,
            tasks=tuple(tasks),
            seconds=seconds,
            lost=lost,
        )

    def _note_life(self, at: tuple[int, str], life: tuple[Any, ...]) -> None:
        """Forget what a thread has counted before it began anew, in another process or as another member."""
        if self._lives.setdefault(at, life) == life:
            return
        self._lives[at] = life
        self._commits_before += self._commits.pop(at, 0)
        for counted in (self._seconds, *self._counted()):
            for key in [each for each in counted if each[:2] == at]:
                del counted[key]

    def _counted(self) -> tuple[dict[Any, Any], ...]:
        """Return what has been counted, of which reports have the differences."""
        return self._counts, self._totals, self._restored, self._globally, self._clients

    def _note_restores(
        self, thread: tuple[int, str], restores: Sequence[Mapping[str, Any]], tasks: Sequence[dict[str, Any]]
    ) -> None:
        """Add to each task the changes that were applied to its stores since the last look, and restores that ended."""
        before = self._restored.get(thread, {})
        now: dict[tuple[str, int], tuple[int, bool]] = {}
        holders = {(store, int(t["task"].rpartition("_")[2])): t for t in tasks if restores for store in t["entries"]}
        for each in restores:
            key, rows, is_done = (each["store"], each["partition"]), each["restored"], each["offset"] >= each["end"]
            had, was_done = before.get(key, (0, False))
            task = holders.get(key)
            if task is None:  # it is restored beside the loop, and counts once its task runs
                now |= {key: before[key]} if key in before else {}
                continue
            now[key] = (rows, is_done)
            task["restored_rows"] = task.get("restored_rows", 0) + (rows - had if rows >= had else rows)
            if is_done and not (was_done and rows == had):
                task.setdefault("restored_stores", {})[key[0]] = each["seconds"]
        self._restored[thread] = now

    def _add_global_task(self, epoch: int, threads: Mapping[str, ThreadState], task: dict[str, Any]) -> None:
        """Add to a task what the tasks of the global stores have counted since the last look, on all machines."""
        new = TaskCounts()
        sizes: Mapping[str, Mapping[str, int]] = {}
        for name, thread in threads.items():
            counted = thread.report.get("counts", {}).get(GLOBAL_TASK)
            sizes = thread.report.get("global") or sizes
            if counted is not None:
                totals = TaskCounts.of_document(counted)
                new.merge(totals.since(self._globally.get((epoch, name), TaskCounts())))
                self._globally[epoch, name] = totals
        task["dropped"] += new.dropped
        if sizes:
            task["global"] = {**sizes, "counts": new.document()}

    def _of_clients(self, at: tuple[int, str], counted: Sequence[Sequence[Any]]) -> list[list[Any]]:
        before = self._clients.get(at, {})
        self._clients[at] = {tuple(each[:3]): each for each in counted}
        changes = []
        for client, what, topic, number, total, *extremes in counted:
            _, _, _, then, had, *_ = before.get((client, what, topic), ("", "", "", 0, 0.0))
            if number != then:
                changes.append([client, what, topic, number - then, total - had, *extremes])
        return changes

    def _steps(self, epoch: int, thread: str, seconds: Mapping[str, float]) -> dict[str, float]:
        before, self._seconds[epoch, thread] = self._seconds.get((epoch, thread), {}), seconds
        return {step: round(time - before.get(step, 0.0), 3) for step, time in seconds.items()}

    def _task(
        self, epoch: int, thread: str, task: Mapping[str, Any], counted: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        key = (epoch, thread, task["task"])
        opened = {} if key in self._counts else {"opened": 1}
        before, self._counts[key] = self._counts.get(key, {}), task
        if task["records_in"] < before.get("records_in", 0):  # it has come back to this thread, and counts anew
            before = {}
        counts = {name: task[name] - before.get(name, 0) for name in _COUNTS}
        written = counted.get(task["task"], {})
        last, before_counts = self._totals.get(key, ({}, TaskCounts()))
        new = TaskCounts()
        if written != last:  # most tasks of many have done nothing since the last look
            totals = TaskCounts.of_document(written)
            new, self._totals[key] = totals.since(before_counts), (written, totals)
        shown = {"task": task["task"], "thread": thread, "stream_time_ms": task["stream_time_ms"], **opened, **counts}
        sizes = {"entries": task.get("entries", {}), "store_bytes": task.get("store_bytes", {})}
        return {**shown, **sizes, "busy_s": new.seconds.total, "counts": new.document()}


_log = own_logger(__name__)
_START_S = 15.0  # for Spark to start all threads
_GRACE_S = 20.0  # for threads to commit
_NOTE_S = 0.5  # for Spark to note that all tasks have ended
_CANCEL_S = 10.0  # for Spark to end tasks that do not answer
_REPORT_S = 1.0
_LATEST_S = 0.1
_TASK = re.compile(r"Task (\d+) in stage")


class ThreadJobs:
    """The Spark jobs that host the stream threads of an application, from its start to its end.

    Args:
        context: Spark's context.
        log: The application's log, for the driver.
        on_batch: Called on the driver once a second when threads have done something.
        session_s: The time after which a silent thread is given up: ``session.timeout.ms``.
        patience: The time for which a partition may stay unread.
        group: The group with which instances share the tasks; None: this one has all.

    Attributes:
        restores: The restores of all threads.
        note: The note of the places of all tasks, for queries; None: they are not noted.
        known: The committed offsets, as threads report them.
    """

    def __init__(
        self,
        context: SparkContext,
        log: TopicLog,
        on_batch: Callable[[BatchProgress], None],
        session_s: float,
        patience: UnreadPatience,
        group: InstanceGroup | None = None,
    ) -> None:
        self._context = context
        self._log = log
        self._on_batch = on_batch
        self._session_s = session_s
        self._secret = secrets.token_bytes(32)
        self._changed = threading.Condition()
        self._runner: threading.Thread | None = None
        self._server: ControlServer | None = None
        self._next: ContinuousJob | None = None
        self._epoch: Epoch | None = None
        self._is_in_epoch = False
        self._ending = False
        self._group = group
        self._holders = StateHolders()
        self._counter = ProgressCounter()
        self._crashes = CrashWatch()
        self._lost = LostThreads(log, self._crashes, context.getConf().get("spark.master") or "")
        self._unread = UnreadWatch(log, patience)
        self._membership: GroupMembership | tuple[()] | None = None
        self._is_woken = self._was_running = False
        self._reported = self._asked = 0.0
        self._seen: list[Mapping[str, Any]] = []  # the reports of the last look
        self._has_reached_end = False
        self.restores = RestoreWatch()
        self.note: PlacementNote | None = None
        self.known = KnownPositions()

    def start(self, job: ContinuousJob) -> None:
        """Open the control channel, and begin the first epoch."""
        refuse_speculation(self._context)
        host, bind = control_addresses(self._context)
        self._server = ControlServer(self._secret, self._on_message, host=bind)
        self._control = ControlAddress(host, self._server.port, self._secret, self._session_s)
        self.begin_epoch(job)
        name = f"penstock-jobs-{job.plan.application_id}"
        self._runner = InheritableThread(target=self._run_epochs, name=name, daemon=True)
        self._runner.start()

    def begin_epoch(self, job: ContinuousJob) -> None:
        """Run the threads of a job next; the epoch before has ended."""
        assert self._server is not None  # noqa: S101 - start() comes first
        job = replace(job, control=self._control)
        self._counter.note_lost(job.lost)
        with self._changed:
            self._epoch = Epoch(job, self._server.send, self._sharing(job))
            if self._membership is not None:
                self._epoch.show_membership(self._membership)
            self._next = job
            self._changed.notify_all()

    def _sharing(self, job: ContinuousJob) -> TaskSharing:
        """Return what decides about the tasks of an epoch's threads."""
        if self._group is None:
            return PlacedTasks(job, self._holders)
        topology, _ = load_app(job.pickled_app)
        return self._group.members(job.plan, topology)

    def go_over(self, group: InstanceGroup, known_positions: KnownPositions) -> None:
        """Have the threads of the next epoch be members of a group; those of the one before had a lease."""
        self._group, self.known = group, known_positions
        self._membership, self._holders = None, StateHolders()
        if self.note is not None:  # the group knows the places
            self.note.remove()
            self.note = None

    def may_begin_again(self, error: PenstockError) -> bool:
        """Note the error that has ended the epoch; return whether a new one may succeed.

        Raises:
            AppFailedError: A task has not got further for too many epochs.
        """
        if not is_passing(error):
            return False
        count = 1 if self._epoch is None else self._crashes.note_end(self._epoch, self._log, error)
        _log.warning("%s; the query is started again (%d of %d)", error.message, count, MOST_RESTARTS)
        return True

    def end_epoch(self) -> None:
        """End the present epoch: threads commit; those that do not answer are ended by Spark."""
        epoch = self._epoch
        if epoch is None:
            return
        epoch.stop()
        with self._changed:
            self._next = None
            has_failed = epoch.error is not None and not is_cancelled(epoch.error)
            deadline = time.monotonic() + (2.0 if has_failed else _GRACE_S)
            # A job that somebody has cancelled is over already; its threads still run, and commit.
            while (self._is_in_epoch or not has_failed) and epoch.awaited() and time.monotonic() < deadline:
                self._changed.wait(_LATEST_S)
            if not epoch.has_ended or self._ending:  # else Spark notes the end while the next epoch is prepared
                self._changed.wait_for(lambda: not self._is_in_epoch, _NOTE_S)
                self._cancel(epoch)
        epoch.end()
        self._report(epoch)
        self.known.write()
        self._holders = epoch.holders()

    def _cancel(self, epoch: Epoch) -> None:
        """End the tasks of threads that do not end by themselves; the lock is held."""
        if not self._is_in_epoch:
            return
        if late := epoch.awaited():
            _log.warning("%s of epoch %d do not end: their tasks are cancelled", ", ".join(late), epoch.job.epoch)
        self._context.cancelJobsWithTag(_tag(epoch.job))
        self._changed.wait_for(lambda: not self._is_in_epoch, _CANCEL_S)

    def is_running(self) -> bool:
        """Return whether jobs may run."""
        return self._runner is not None and self._runner.is_alive()

    def has_running_tasks(self) -> bool:
        """Return whether all threads process records."""
        return self._epoch is not None and self._epoch.is_running

    @property
    def job(self) -> ContinuousJob:
        """The present epoch's job."""
        assert self._epoch is not None  # noqa: S101 - start() comes first
        return self._epoch.job

    parallelism = property(lambda self: len(self.pids()), doc="The number of stream threads that have come.")

    def extend(self, job: ContinuousJob) -> None:
        """Go on with a plan that has more tasks or topics, within the present epoch."""
        assert self._epoch is not None  # noqa: S101 - it runs
        self._counter.note_lost(job.lost)
        self._epoch.extend(replace(job, control=self._control, error_key=self._epoch.job.error_key))

    def wants_plan(self) -> bool:
        """Return whether there are tasks that the plan does not know."""
        return self._epoch is not None and self._epoch.wants_plan()

    def show_membership(self, membership: GroupMembership | tuple[()]) -> None:
        """Tell the threads in whose name they commit; empty: the application was removed from its group."""
        if membership != self._membership:
            self._membership = membership
            if self._epoch is not None:
                self._epoch.show_membership(membership)

    def standbys(self) -> dict[str, dict[str, int | None]]:
        """Return for each task the machines with its standbys, and how many records these lack."""
        return {} if self._epoch is None else self._epoch.standbys()

    def pids(self) -> dict[str, int]:
        """Return the process of each thread."""
        return {} if self._epoch is None else {name: each.pid for name, each in self._epoch.threads.items()}

    def active_hosts(self) -> dict[str, str]:
        """Return the machine of each task."""
        return {} if self._epoch is None else self._epoch.active_hosts()

    def wake(self) -> None:
        """End a call of `wait`: there is something to see."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the run, or until there is something to see; return whether it has ended.

        Raises:
            PenstockError: The error that has ended the epoch; for some, a new epoch may succeed (`is_passing`).
        """
        assert self._runner is not None, "call start() first"  # noqa: S101
        epoch = self._epoch
        if epoch is not None and (epoch.job.bounds is not None or epoch.needs_looks()):
            timeout_s = min(timeout_s, _LATEST_S)
        with self._changed:
            self._changed.wait_for(lambda: self._is_woken or (epoch is not None and epoch.error is not None), timeout_s)
            self._is_woken = False
        if epoch is None:
            return True
        epoch.look(_START_S, self._session_s, partial(self._launched, epoch))
        self._lost.replace(epoch)
        now = time.monotonic()
        if now - self._reported >= _REPORT_S:
            self._reported = now
            if self._report(epoch) and epoch.error is None:
                require_same_topics(self._log, epoch.job)
        if epoch.error is not None:
            return self._failed(epoch.error)
        if not self._runner.is_alive():
            return True
        bounds = epoch.job.bounds
        if bounds is None and epoch.error is None and epoch.is_running:
            self._unread.look(epoch)
        if bounds is None or now - self._asked < _LATEST_S or not epoch.is_running:
            return self._has_reached_end
        self._asked = now
        if has_reached(self._log, epoch.job.plan, bounds):
            self._has_reached_end = True
            self.stop()
        return self._has_reached_end

    def _launched(self, epoch: Epoch) -> int:
        """Return how many threads of an epoch Spark has started; 0 if it does not say."""
        try:
            with silence_py4j():
                context = self._context
                tracker = context.statusTracker()
                numbers = context._jsc.sc().statusTracker().getJobIdsForTag(_tag(epoch.job))  # noqa: SLF001 - PySpark's lacks it
                jobs = [tracker.getJobInfo(number) for number in numbers]
                stages = [tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds]
        except Exception as error:  # noqa: BLE001 - whatever Py4J raises when its JVM is gone
            _log.debug("what Spark has started is not known: %s", error)
            return 0
        return max((each.numActiveTasks for each in stages if each is not None), default=0)

    def stop(self) -> None:
        """End the epoch, with everything committed; no further one begins."""
        with silence_py4j():
            try:
                self._ending = True
                self.end_epoch()
                with self._changed:
                    self._changed.notify_all()
                if self._runner is not None:
                    self._runner.join(_CANCEL_S)
            except Exception as error:  # noqa: BLE001 - it is over either way
                _log.debug("the stream threads did not stop cleanly: %s", error)
        if self._server is not None:
            self._server.close()
        if self.note is not None:
            self.note.remove()

    def committed(self) -> tuple[int, Mapping[TopicPartition, int]] | None:
        """Return the number of commits, and no offsets: threads commit them."""
        return (self._counter.commits, {}) if self._counter.commits else None

    def _run_epochs(self) -> None:
        """Run each epoch to its end, until there is no further one."""
        while not self._ending:
            self._run_epoch()

    def _run_epoch(self) -> None:
        """Run the next epoch to its end, if it comes soon."""
        with self._changed:
            self._changed.wait_for(lambda: self._next is not None or self._ending, _REPORT_S)
            job, self._next = self._next, None
            if job is None or self._ending:
                return
            epoch = self._epoch
            assert epoch is not None  # noqa: S101 - begin_epoch() has set it
            self._is_in_epoch = True
        try:
            error = self._failure_of(epoch)
        except Exception as failed:  # noqa: BLE001 - as when the JVM is gone
            error = self._of_spark(epoch, failed)
        finally:
            with self._changed:
                self._is_in_epoch, self._is_woken = False, True
                self._changed.notify_all()
        if error is not None and not self._ending:
            epoch.fail(error)
            with self._changed:
                self._changed.notify_all()

    def _failure_of(self, epoch: Epoch) -> PenstockError | None:
        """Run the threads; return the error of which the epoch has died."""
        job, context = epoch.job, self._context
        tag = _tag(job)
        try:
            with quiet_pyspark():
                context.addJobTag(tag)
                context.setJobDescription(f"{job.plan.application_id}, epoch {job.epoch}: {job.threads} stream threads")
                ended = (
                    context.parallelize(range(job.threads), job.threads).mapPartitions(hosted_threads(job)).collect()
                )
        except Exception as error:  # noqa: BLE001 - Spark wraps in many ways
            return self._of_spark(epoch, error)
        finally:
            context.removeJobTag(tag)
        for each in ended:
            if "report" in each:
                epoch.on_message(Member(each["thread"], job.epoch), {"report": each["report"]})
        failed = [each for each in ended if each["ended"] == "error"]
        if failed:
            return _of_thread(epoch.unsealed(failed[0]["error"]), failed[0]["thread"])
        lost = [each["thread"] for each in ended if each["ended"] == "lost"]
        if not lost:
            return None
        return AppFailedError(f"{lost[0]} could not reach the driver", lost_process=True, thread=lost[0])

    def _of_spark(self, epoch: Epoch, error: Exception) -> PenstockError:
        text = spark_error_text(error)
        sealed_error = sealed_error_in(text, epoch.job.error_key)
        task = _TASK.search(text)
        return sealed_error or AppFailedError(
            f"the Spark job of the stream threads failed: {spark_error_reason(text)[:500]}",
            hint="Start the application again: it continues where it stopped. The full text is in `.details`.",
            details=text,
            lost_process=is_lost_process(text),
            **({"thread": thread_name(int(task[1]))} if task is not None else {}),
        )

    def _on_message(self, member: Member, message: Mapping[str, Any]) -> None:
        epoch = self._epoch
        if epoch is None or member.epoch != epoch.job.epoch:
            if self._server is not None:
                self._server.send(member, {"stop": True})
            return
        epoch.on_message(member, message)
        if "hello" in message:
            epoch.look(_START_S, self._session_s, partial(self._launched, epoch))
        if epoch.error is not None and "error" in message:
            _of_thread(epoch.error, member.thread)
        is_running = epoch.is_running
        if "gone" in message or is_running != self._was_running:
            self._was_running = is_running
            self.wake()
        elif epoch.error is not None or epoch.has_ended:
            with self._changed:
                self._changed.notify_all()

    def _report(self, epoch: Epoch) -> bool:
        """Report the progress of the threads; return whether there was any."""
        reports = [each.report for each in epoch.threads.values()]
        if len(reports) == len(self._seen) and all(map(is_, reports, self._seen)):
            return False
        self._seen = reports
        self.restores.look(epoch.threads)
        if self.note is not None:
            self.note.write(epoch.places())
        self.known.note(epoch.job.epoch, epoch.threads)
        progress = self._counter.progress(epoch.job.epoch, epoch.threads)
        if progress is not None:
            self._on_batch(progress)
        return progress is not None

    def _failed(self, error: PenstockError) -> bool:
        """Raise the error that has ended the epoch; return True if somebody has cancelled its job: all is over."""
        if not is_cancelled(error) or self._is_context_lost():
            raise error
        _log.warning("the Spark job of the stream threads was cancelled: the application ends")
        self.stop()
        return True

    def _is_context_lost(self) -> bool:
        """Return whether Spark's context has ended without this program: the cluster has stopped it."""
        java_context = self._context._jsc  # noqa: SLF001 - None once this program has stopped it
        if java_context is None:
            return False
        try:
            with silence_py4j():
                return bool(java_context.sc().isStopped())
        except Exception:  # noqa: BLE001 - whatever Py4J raises when its JVM is gone
            return True


def _of_thread(error: PenstockError, thread: str) -> PenstockError:
    """Note on an error the thread that it comes from."""
    error.facts.setdefault("thread", thread)
    return error


def _tag(job: ContinuousJob) -> str:
    return f"penstock-{job.plan.application_id}-{job.epoch}"


_SESSION_MS = 45_000  # Kafka's default of session.timeout.ms


class StreamThreadsEngine:
    """The `Engine` of stream threads.

    The log holds its plan, its positions and its state. A run is a sequence of epochs, each with its threads.

    Args:
        config: The application's settings.
        on_batch: Called on the driver once a second when threads have done something.
        reads_nothing: Whether it ends where it begins, for a conversion.
    """

    mode = "continuous"
    look_s = 0.5
    plans_at_resume = True
    has_batches = False
    spare_slots = SPARE_SLOTS

    def __init__(
        self, config: StreamsConfig, on_batch: Callable[[BatchProgress], None], *, reads_nothing: bool
    ) -> None:
        self._config, self._on_batch = config, on_batch
        self._reads_nothing = reads_nothing
        self._epochs = EpochPlans(reads_nothing=reads_nothing)
        self._feeds: list[DataFrameQuery] = []  # which write DataFrames into their topics, under the present lease
        self._jobs: ThreadJobs | None = None
        self._group: InstanceGroup | None = None
        self._topology = Topology()
        self._restores = RestoreWatch()
        self._shares_tasks = bool(config["group.protocol"] == "streams" and not reads_nothing)
        self._is_open = False
        self._endpoint: Endpoint | None = None  # where queries reach this instance

    @property
    def shares_tasks(self) -> bool:
        """Whether threads are members of the application's group, with those of other instances."""
        return self._shares_tasks

    def may_share(self, *, until_latest: bool) -> bool:
        """Return whether the run goes on, and ``group.protocol`` is not set."""
        return not (until_latest or self._reads_nothing or self.shares_tasks or self._config["group.protocol"])

    def sharing_identity(self, app: PlannedApp) -> str:
        """Return the identity of the topology that the group knows, and of the processing guarantee."""
        return sharing_identity(app)

    def why_not_shared(self, app: PlannedApp) -> str:
        """Return why the tasks cannot be shared; empty: they can."""
        return why_not_shared(app)

    def share(self) -> None:
        """Have threads be members from the next `start`, or `resume`, on."""
        self._shares_tasks = True

    def forget_dead(self, app: PlannedApp) -> None:
        """Leave the group in the name of threads of this machine that were killed with their driver."""
        leave_for_dead(Path(app.places.replicas).parent, app)

    def check(self, topology: Topology, *, until_latest: bool) -> None:
        """Raise ConfigError for state without changelogs, and for what instances cannot share."""
        require_continuous(topology, self._config)
        if self.shares_tasks:
            require_sharable(topology, until_latest=until_latest)

    def read_notes(self, log: TopicLog) -> None:
        """Read the note of the last run."""
        self._epochs.read(log, self._config["application.id"])

    def take_notes(self, log: TopicLog, lease: Lease | None) -> bool:
        """Read the note again, as the holder of the lease; return whether another instance has changed it since."""
        return self._epochs.take(log, self._config["application.id"], lease)

    @property
    def stored_plan(self) -> StoredPlan | None:
        """The plan that the log notes."""
        return self._epochs.stored

    @property
    def spark_settings(self) -> Mapping[str, Any]:
        """The user's settings of Spark, over those that threads need."""
        return {**THREAD_SETTINGS, **users_spark_settings(self._config)}

    def cores_to_leave(self, cores: int, topology: Topology) -> int:
        """Return one: threads never give theirs back, and other queries need one; those of DataFrames in any case."""
        if topology.dataframes:
            require_core_for_dataframes(cores)
            return 1
        return 0 if self._config["num.stream.threads"] else 1

    def keeps(self, cores: int) -> bool:
        """Return whether there are so many threads."""
        return self._jobs is not None and self._jobs.job.threads >= cores

    def topics_of_group(self, plan: PhysicalPlan) -> list[str]:
        """Return source topics and repartition topics, as in Kafka Streams."""
        return [*plan.external_topics, *plan.repartition_topics]

    def known_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the offsets that threads have reported as committed."""
        return self._epochs.known.committed()

    def start(self, start: Start) -> None:
        """Prepare the first epoch, and start its threads."""
        start.doing("planning the tasks")
        config, app = self._config, start.app
        session_s = int(config.get("session.timeout.ms") or _SESSION_MS) / 1000
        patience = UnreadPatience.of(int(config["max.task.idle.ms"]), int(config["task.timeout.ms"]))
        self._epochs.until_latest = start.until_latest
        self._restores = RestoreWatch(start.restore_listener)
        if self.shares_tasks:
            self._group = self._group_of(app)
        jobs = ThreadJobs(start.spark.context, app.log, self._on_batch, session_s, patience, self._group)
        jobs.restores, jobs.known = self._restores, self._epochs.known
        if self._group is None:  # else the group knows the places
            jobs.note = PlacementNote(app.places.checkpoint)
        if start.until_latest:  # which ends at what is in their topics then
            self._start_feeds(start)
        job = self._next_epoch(start)
        self._jobs = jobs
        start.join()
        jobs.start(job)
        if not start.until_latest:
            self._start_feeds(start)
        start.doing("starting stream threads")

    def _group_of(self, app: PlannedApp) -> InstanceGroup:
        """Return the group whose members the threads of the next epoch are.

        Raises:
            TopologyError: Other instances run with another topology.
        """
        group = InstanceGroup(app)
        try:
            group.check()
        except BaseException:
            group.close()
            raise
        self._topology = app.topology
        if self._is_open:
            group.open_at(self._endpoint)
        return group

    def _start_feeds(self, start: Start) -> None:
        """Start the queries of DataFrames; in a run until "latest" return when all present rows are written."""
        if self._reads_nothing or not start.app.topology.dataframes:
            return
        from penstock.engines.dataframes import dataframe_queries

        app, checkpoint = start.app, start.app.checkpoint
        settings = dataframe_query_settings(self.spark_settings, checkpoint)
        topology = with_serdes(app.topology, self._config)
        self._feeds = dataframe_queries(topology, app.log, start.own_lease, checkpoint, settings)
        for feed in self._feeds:
            feed.start(int(self._config["commit.interval.ms"]), until_latest=start.until_latest)

    def _stop_feeds(self) -> None:
        with silence_py4j():
            for feed in self._feeds:
                feed.stop()
        self._feeds = []

    def _next_epoch(self, start: Start) -> ContinuousJob:
        job = self._epochs.next(start.app, start.lease, start.slots, self._group)
        if self._group is not None:
            self._group.prepare(start.app.log)
        return job

    def serve_at(self, address: HostInfo | None) -> None:
        """Have the members of the group tell the others; from now on threads may join."""
        self._is_open, self._endpoint = True, None if address is None else Endpoint(address.host, address.port)
        if self._group is not None:
            self._group.open_at(self._endpoint)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the run; return whether it has ended. Raise the error that has ended the epoch."""
        assert self._jobs is not None, "call start() first"  # noqa: S101
        for feed in self._feeds:
            feed.check()
        return self._jobs.wait(timeout_s)

    def wake(self) -> None:
        """End a call of `wait`."""
        if self._jobs is not None:
            self._jobs.wake()

    def has_running_tasks(self) -> bool:
        """Return whether all threads process records."""
        return self._jobs is not None and self._jobs.has_running_tasks()

    def has_room_for(self, plan: PhysicalPlan) -> int:
        """Return the number of threads that the tasks of a plan can use."""
        tasks = sum(sub.tasks for sub in plan.subtopologies)
        return min(tasks, self._config["num.stream.threads"] or tasks)

    def extend(self, start: Start) -> bool:
        """Have the running threads take more tasks; return whether they can."""
        jobs = self._jobs
        if jobs is None or not (self.shares_tasks or jobs.has_running_tasks()):
            return False
        job = self._epochs.extension(start.app, start.lease, start.slots, jobs.job)
        if job is not None:
            start.join()
            jobs.extend(job)
        return job is not None

    def wants_plan(self) -> bool:
        """Return whether the group has given this instance tasks that its plan does not know yet."""
        return self._jobs is not None and self._jobs.wants_plan()

    def may_recover(self, error: PenstockError, is_removed: Callable[[], bool]) -> bool:
        """Return whether a new epoch may succeed."""
        return self._jobs is not None and not is_removed() and self._jobs.may_begin_again(error)

    def suspend(self) -> None:
        """End the epoch: threads commit; those that do not answer are ended by Spark."""
        self._stop_feeds()
        if self._jobs is not None:
            self._jobs.end_epoch()

    def resume(self, start: Start) -> None:
        """Begin the next epoch."""
        assert self._jobs is not None, "call start() first"  # noqa: S101
        if self.shares_tasks and self._group is None:
            self._group = self._group_of(start.app)
            self._epochs.go_over(self._jobs.job.epoch)
            self._jobs.go_over(self._group, self._epochs.known)
        job = self._next_epoch(start)
        start.join()
        self._jobs.begin_epoch(job)
        if not start.until_latest:
            self._start_feeds(start)

    def show_membership(self, membership: GroupMembership | tuple[()]) -> None:
        """Tell the threads in whose name they commit."""
        if self._jobs is not None:
            self._jobs.show_membership(membership)

    def commit(self) -> None:
        """Do nothing: threads commit by themselves."""

    def note_end(self) -> None:
        """Do nothing: the group's offsets and the changelogs say where the application stands."""

    def stop(self) -> None:
        """End the epoch and the jobs, with everything committed."""
        self._stop_feeds()
        if self._jobs is not None:
            self._jobs.stop()
        if self._group is not None:
            self._group.close()

    @property
    def parallelism(self) -> int:
        """The number of stream threads that have come."""
        return 0 if self._jobs is None else self._jobs.parallelism

    def step(self) -> str:
        """Describe the restores that are under way."""
        return self._restores.doing()

    def phase(self) -> str:
        """Describe what stream threads do that seem stuck."""
        return self._restores.phase()

    def under_way(self) -> Sequence[Restore]:
        """Return the restores that have not ended."""
        return self._restores.under_way()

    def long_steps(self) -> Sequence[Mapping[str, Any]]:
        """Return the tasks that are in one step of their thread for long."""
        return self._restores.long_steps()

    def replicas(self) -> dict[str, dict[str, int | None]]:
        """Return by task its machine (0), and the machines of its standbys with the number of records they lack.

        None stands for a number that is not known yet.
        """
        if self._jobs is None:
            return {}
        if self._group is not None:
            return self._group.replicas(self._jobs.job.plan, self._topology)
        standbys = self._jobs.standbys()
        return {task: {**standbys.get(task, {}), host: 0} for task, host in sorted(self._jobs.active_hosts().items())}
