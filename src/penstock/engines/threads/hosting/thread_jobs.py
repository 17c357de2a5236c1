"""The engine of stream threads: a Spark job for each epoch, with one task for each thread.

It needs Spark's context alone: a session, its planner and a streaming query would cost a start 2 s of CPU time.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
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
from penstock.engines.spark.pyspark_warnings import quiet_pyspark
from penstock.engines.threads.assignment import StateHolders
from penstock.engines.threads.hosting.control_channel import ControlAddress, ControlServer, Member
from penstock.engines.threads.hosting.crashes import MOST_RESTARTS, CrashWatch, LostThreads, is_passing
from penstock.engines.threads.hosting.epoch import Epoch
from penstock.engines.threads.hosting.epoch_checks import (
    UnreadPatience,
    UnreadWatch,
    control_addresses,
    refuse_speculation,
    require_same_topics,
)
from penstock.engines.threads.hosting.epoch_job import thread_name
from penstock.engines.threads.hosting.epoch_positions import KnownPositions, has_reached
from penstock.engines.threads.hosting.restore_watch import RestoreWatch
from penstock.engines.threads.hosting.task_sharing import PlacedTasks
from penstock.engines.threads.hosting.thread_host import hosted_threads
from penstock.engines.threads.hosting.thread_progress import ProgressCounter
from penstock.errors import AppFailedError, PenstockError
from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark import SparkContext

    from penstock.engines.spark.progress import BatchProgress
    from penstock.engines.threads.hosting.epoch_job import ContinuousJob
    from penstock.engines.threads.hosting.instance_group import InstanceGroup
    from penstock.engines.threads.hosting.task_sharing import TaskSharing
    from penstock.log.base import GroupMembership, TopicLog
    from penstock.query.placement import PlacementNote

__all__ = ["ThreadJobs"]

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
        self._has_gone = False
        self._reported = self._asked = 0.0
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

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the run; return whether it has ended.

        Raises:
            PenstockError: The error that has ended the epoch; for some, a new epoch may succeed (`is_passing`).
        """
        assert self._runner is not None, "call start() first"  # noqa: S101
        epoch = self._epoch
        with self._changed:
            self._changed.wait_for(lambda: self._has_gone or (epoch is not None and epoch.error is not None), timeout_s)
            self._has_gone = False
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
                self._is_in_epoch = False
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
        if epoch.error is not None or "gone" in message or epoch.has_ended:
            with self._changed:
                self._has_gone |= "gone" in message
                self._changed.notify_all()

    def _report(self, epoch: Epoch) -> bool:
        """Report the progress of the threads; return whether there was any."""
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
