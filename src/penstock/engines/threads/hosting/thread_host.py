"""A stream thread inside of a Spark task: it gets its tasks from the driver, runs until asked to stop, and reports."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from penstock.base.log_lines import Work, own_logger
from penstock.engines.spark.failures import to_worker_error
from penstock.engines.spark.job import load_app
from penstock.engines.spark.worker_process import prepare_worker
from penstock.engines.threads.hosting.epoch_job import thread_name
from penstock.engines.threads.hosting.restore_notes import RestoreNotes
from penstock.errors import FencedError, OffsetOutOfRangeError
from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from penstock.engines.threads.hosting.control_channel import ControlClient
    from penstock.engines.threads.hosting.epoch_job import ContinuousJob
    from penstock.engines.threads.hosting.hosted_tasks import HostedTasks
    from penstock.engines.threads.loop.pace import Fronts
    from penstock.engines.threads.loop.stream_thread import StreamThread
    from penstock.engines.threads.loop.thread_environment import ThreadLog
    from penstock.engines.threads.loop.thread_figures import ThreadCounts
    from penstock.log.base import GroupMembership, StreamsMembership
    from penstock.state.restores.restore_progress import RestoreProgress

__all__ = ["ThreadHost", "hosted_threads", "run_thread"]

_log = own_logger(__name__)
_STEP_S = 0.1  # the longest wait for records of a thread that looks for news, and for global rows of others
_IDLE_STEP_S, _IDLE_AFTER_S = 0.25, 2.0  # the same after seconds without work: looks cost, and find nothing
_TOLD_STEP_S = 1.0  # the same of one that is told of news
_HURRY_S = 0.01  # the same while a task is about to come
_NOTE_S = 0.25  # the age of a report, but for long steps
_NOTES_ALIKE = 4  # of a thread without work, before one is made anew
_ANSWER_S = 5.0
_MOST_ON_DISK = 100  # named in the hello, which is short
_MOST_LOGS = 4  # applications whose logs a worker keeps open from epoch to epoch
_logs: OrderedDict[tuple[str, str], ThreadLog] = OrderedDict()


class _EndedEarlyError(Exception):
    """The thread is to end before it has its state."""


def hosted_threads(job: ContinuousJob) -> Callable[[Iterable[int]], Iterator[Mapping[str, Any]]]:
    """Return the function that runs a thread for each number in a Spark task."""

    def run(numbers: Iterable[int]) -> Iterator[Mapping[str, Any]]:
        prepare_worker()
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.taskAttemptId() if context is not None else 0
        for number in numbers:
            with Work(application=job.plan.application_id):
                ended = run_thread(job, number, attempt)
            yield ended

    return run


def run_thread(job: ContinuousJob, number: int, attempt: int = 0) -> Mapping[str, Any]:
    """Run a thread until the driver ends it, or an error does, which the driver receives whole.

    Args:
        job: The epoch.
        number: The number of the thread.
        attempt: Larger for a later attempt of Spark's at the same thread.

    Returns:
        The thread's name, how it has ended, and its last report.
    """
    from penstock.engines.threads.hosting.control_channel import ControlClient
    from penstock.engines.threads.replicas.replica_folders import place_of, tasks_on_disk

    assert job.control is not None  # noqa: S101 - set by the engine
    name = thread_name(number)
    facts: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid(), "place": place_of(job.replica_root)}
    held = tasks_on_disk(job.replica_root, job.plan.application_id, job.identity)
    facts["on_disk"] = [str(task) for task in held[:_MOST_ON_DISK]]
    hello = {"thread": name, "epoch": job.epoch, "attempt": attempt, **facts}
    host = ThreadHost(job, name)
    with closing(ControlClient(job.control, hello, host.report)) as control:
        try:
            how = host.run(control)
        except _EndedEarlyError:
            how = "stopped" if control.has_to_stop else "lost"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the driver decides
            _close_log(job)
            raised = error if isinstance(error, Exception) else RuntimeError(f"SystemExit: {error}")
            text = str(to_worker_error(raised, job.error_key))
            control.send({"error": text}, _ANSWER_S)
            return {"thread": name, "ended": "error", "error": text}
        report = host.ended()
        control.send({"report": report}, _ANSWER_S if how == "stopped" else 0.0)
        return {"thread": name, "ended": how, "report": report}


class ThreadHost:
    """One thread, and its present report.

    Args:
        job: The epoch.
        name: The thread's name.
    """

    def __init__(self, job: ContinuousJob, name: str) -> None:
        self._job = job
        self._name = name
        self._report: dict[str, Any] = {"state": "starting"}
        self._taken_s = 0.0  # when the control client has taken one
        self._restores = RestoreNotes()
        self._control: ControlClient | None = None
        self._counts: ThreadCounts | None = None
        self._thread: StreamThread | None = None
        self._tasks: HostedTasks | None = None
        self._notes = self._whole_note = self._taken_note = 0
        self._news = threading.Event()
        self._fenced: str | None = None  # the member without which the group has gone on

    def report(self) -> dict[str, Any]:
        """Return the newest report; called by the control client's thread."""
        if self._counts is not None:
            self._counts.sent()
        self._taken_s, report = time.monotonic(), self._report
        if not report.get("is_same"):
            self._taken_note = report.get("notes", 0)
        doing = None if self._thread is None else self._thread.doing()
        return report if doing is None else {**report, "doing": doing}

    def ended(self) -> dict[str, Any]:
        """Return the last report: from now on no other one is sent, which would come after it."""
        self._report = {**self._report, "state": "ended"}
        return self.report()

    def run(self, control: ControlClient) -> str:
        """Run the thread; return "stopped" or "lost"."""
        import polars as pl  # noqa: F401 - while the driver waits for the other threads

        job = self._job
        self._control = control
        load_app(job.pickled_app)
        log = _log_of(job)
        first = self._assigned()
        while True:
            how, revision = self._live(log, first)
            if how != "dropped":
                return how
            first = {"revision": revision, "active": [], "standby": []}

    def _live(self, log: ThreadLog, first: Mapping[str, Any]) -> tuple[str, int]:
        """Run the thread until it is stopped or lost, or its tasks are dropped: they belong to others by now.

        Args:
            log: The log.
            first: The list of the driver that it begins with.

        Returns:
            How it has ended, "stopped", "lost" or "dropped", and the revision of the last list that is carried out.
        """
        from penstock.engines.threads.hosting.hosted_tasks import HostedTasks
        from penstock.engines.threads.loop.stream_thread import StreamThread
        from penstock.engines.threads.loop.thread_environment import ThreadHooks
        from penstock.engines.threads.loop.thread_figures import ThreadCounts
        from penstock.engines.threads.replicas.replica_folders import ReplicaCleanup
        from penstock.log.thread_clients import Writer

        job, control = self._job, self._control
        assert control is not None  # noqa: S101 - run() has set it
        self._report = {"state": "restoring"}
        producer = job.producer_of(self._name)
        writer = Writer(job.plan.application_id, producer, job.lease_epoch, job.exactly_once, self._membership)
        tasks = self._tasks = HostedTasks(job, log, self._restores, first, control.newest("plan"), self._fenced)
        counts = self._counts = ThreadCounts(str(tasks.app.config["metrics.recording.level"]))
        hooks = ThreadHooks(
            sensor=counts.sensor,
            on_restore=self._restoring,
            pace=_DriversPace(control),
            until_latest=job.bounds is not None,
        )
        thread = self._thread = StreamThread(tasks.app, log, writer, sorted(tasks.active), hooks)
        cleanup, is_clean = ReplicaCleanup(tasks.app), False
        control.on_news = self._tell
        try:
            thread.start()
            how = self._loop(thread, tasks)
            is_clean = how == "stopped"
        except FencedError as error:
            if "membership" not in error.facts:
                raise
            _log.warning("%s: %s", self._name, error.message)
            self._fenced, how = tasks.member, "dropped"
        except OffsetOutOfRangeError as error:
            if not _others_read_on(log, thread, job.plan.application_id, error):
                raise
            if job.lease_epoch is not None:
                raise _overtaken(self._name, error) from error
            _log.warning("%s: %s, as its next owner has deleted it after a commit", self._name, error.message)
            self._fenced, how = tasks.member, "dropped"
        finally:
            control.on_news = self._news.set
            cleanup.close()
            tasks.close()
            thread.close(commit=is_clean)
        return how, tasks.revision

    def _loop(self, thread: StreamThread, tasks: HostedTasks) -> str:
        control = self._control
        assert control is not None  # noqa: S101 - run() has set it
        tasks.follow()
        if not tasks.active:  # the driver gives it some after its first report
            thread.rehearse()
        self._note(thread, tasks)
        control.send({"report": self._report}, 0.0)
        now = noted = worked = time.monotonic()
        has_news = True  # since the last note
        while not control.has_to_stop:
            if control.is_lost:
                return "lost"
            assignment = control.newest("assign")
            if tasks.belong_to_another(assignment):
                return "dropped"
            has_changed = tasks.change(thread, assignment, control.newest("plan"))
            if has_changed:  # before the next step: others may wait for what it has let go of
                self._note(thread, tasks)
                noted = worked = time.monotonic()
                control.send({"report": self._report}, 0.0)
            has_worked = False
            longest_s = self._longest_s(thread, tasks, now, worked)
            if tasks.active or thread.follows_globals:  # others of this machine may read the copy that it writes
                has_worked = thread.step(longest_s)
            elif not has_changed:
                self._await_news(longest_s)
            now = time.monotonic()
            worked = now if has_worked else worked
            has_news |= has_worked or has_changed
            if self._is_due(now, noted):
                if has_news or not self._note_again(tasks):
                    self._note(thread, tasks)
                noted, has_news = now, False
        thread.commit()
        self._note(thread, tasks)
        return "stopped"

    def _longest_s(self, thread: StreamThread, tasks: HostedTasks, now: float, worked: float) -> float:
        """Return the longest time to wait for records, or for news of the driver."""
        assert self._control is not None and self._job.control is not None  # noqa: S101, PT018 - run() has set it
        if tasks.pending or not (tasks.active or self._control.tells_news):
            return _HURRY_S
        if not self._control.tells_news or thread.follows_globals:
            if not tasks.active:
                return _HURRY_S
            return _IDLE_STEP_S if now - worked > _IDLE_AFTER_S else _STEP_S
        every_s = self._job.control.every_s
        return min(max((self._taken_s + every_s - _NOTE_S - now) % every_s, _HURRY_S), _TOLD_STEP_S)

    def _await_news(self, timeout_s: float) -> None:
        if self._control is None or not self._control.tells_news:
            time.sleep(timeout_s)
        elif self._news.wait(timeout_s):
            self._news.clear()

    def _tell(self) -> None:
        """End a wait of the thread: there is news; called by the control client's thread."""
        self._news.set()
        if self._thread is not None:
            self._thread.wake()

    def _is_due(self, now: float, noted: float) -> bool:
        """Return whether to make a new report: one will soon be taken. With many tasks that takes milliseconds."""
        assert self._job.control is not None  # noqa: S101 - set by the engine
        soon_s = self._taken_s + self._job.control.every_s - _NOTE_S
        return now >= soon_s and (noted < soon_s or now - noted > _NOTE_S)

    def _membership(self) -> GroupMembership | StreamsMembership | None:
        """Return the membership in whose name the thread commits, see `Writer.membership`."""
        from penstock.log.base import GroupMembership, StreamsMembership

        membership = None if self._control is None else self._control.newest("member")
        if membership == []:
            from penstock.log.kafka.failures import removed_from_group  # needs Kafka's clients, which others lack

            raise removed_from_group(self._job.plan.application_id)
        if self._job.lease_epoch is not None:
            return None if membership is None else GroupMembership(*membership)
        # Without a membership a broker would not fence the commit.
        if membership is None or self._tasks is None or membership[0] != self._tasks.member:
            raise _no_member_any_more(self._job.plan.application_id)
        return StreamsMembership(*membership)

    def _assigned(self) -> Mapping[str, Any]:
        assert self._control is not None  # noqa: S101 - run() has set it
        while True:
            assignment: Mapping[str, Any] | None = self._control.assignment(1.0)
            if assignment is not None:
                return assignment
            self._check()

    def _check(self) -> None:
        if self._control is not None and (self._control.is_lost or self._control.has_to_stop):
            raise _EndedEarlyError

    def _restoring(self, progress: RestoreProgress) -> None:
        self._check()
        self._restores.note(progress)
        if self._report["state"] == "restoring":
            self._report = {"state": "restoring", "restores": self._restores.newest()}

    def _note_again(self, tasks: HostedTasks) -> bool:
        """Say again what was said before, which is little work; return False if it is to be found out anew."""
        is_known = self._taken_note == self._whole_note and self._notes - self._whole_note < _NOTES_ALIKE
        if not is_known or tasks.follow_others:
            return False
        self._notes += 1
        self._report = {**self._report, "notes": self._notes, "is_same": True}
        return True

    def _note(self, thread: StreamThread, tasks: HostedTasks) -> None:
        figures = thread.figures()
        self._notes += 1
        self._whole_note = self._notes
        self._report = {
            "state": "restoring" if tasks.pending else "running",
            "notes": self._notes,  # the same again: the positions are those before the present turn
            "tasks": [each.document() for each in figures.tasks],
            "positions": {f"{tp.topic}-{tp.partition}": at for tp, at in figures.positions.items()},
            "committed": {f"{tp.topic}-{tp.partition}": at for tp, at in figures.committed.items()},
            "ends": {f"{tp.topic}-{tp.partition}": at for tp, at in figures.ends.items()},
            "buffered_bytes": figures.buffered_bytes,
            "pending_bytes": figures.pending_bytes,
            "global": dict(figures.global_sizes),
            "counts": {} if self._counts is None else self._counts.note(),
            "clients": [] if self._counts is None else self._counts.clients(),
            "commits": figures.commits,
            "seconds": dict(figures.seconds),
            "began_ms": figures.began_ms,
            "committed_ms": figures.committed_ms,
            "restores": self._restores.newest(),
            **({} if self._fenced is None else {"fenced": self._fenced}),
            **tasks.report(),
        }


class _DriversPace:
    """The exchange of fronts over the control channel, see `penstock.engines.threads.loop.pace`."""

    def __init__(self, control: ControlClient) -> None:
        self._control = control

    def others(self) -> Fronts | None:
        fronts = self._control.newest("pace")
        return None if fronts is None else {int(group): front for group, front in fronts.items()}

    def tell(self, fronts: Fronts) -> None:
        self._control.send({"pace": fronts}, 0.0)


def _no_member_any_more(application: str) -> FencedError:
    """Return the error for a thread whose tasks were given to the member that it was before."""
    return FencedError(
        f"group {application!r} goes on without the member that had these tasks",
        hint="Others have them: they are closed without a commit, and the thread joins again.",
        membership="unknown",
    )


def _overtaken(name: str, error: OffsetOutOfRangeError) -> FencedError:
    """Return the error for a thread whose tasks others have, who have committed beyond what it was about to read."""
    return FencedError(
        f"{name} has been replaced: {error.message}, as its next owner has deleted it after a commit",
        hint="Its connection to the driver was away. All threads begin again from what is committed.",
    )


def _others_read_on(log: ThreadLog, thread: StreamThread, application: str, error: OffsetOutOfRangeError) -> bool:
    """Return whether the group's offset is behind the one that is gone: others have the task, and have committed."""
    facts: dict[str, Any] = error.facts
    if not {"topic", "partition", "offset"} <= facts.keys():
        return False
    tp, offset = TopicPartition(facts["topic"], facts["partition"]), int(facts["offset"])
    return thread.reads_from(tp, offset) and log.committed_offsets(application).get(tp, -1) > offset


def _key(job: ContinuousJob) -> tuple[str, str]:
    return job.log_url, repr(sorted(job.log_settings.items()))


def _log_of(job: ContinuousJob) -> ThreadLog:
    """Return the log, opened once in a worker process."""
    from penstock.engines.threads.loop.bounded_log import BoundedLog
    from penstock.log.open import open_log

    key = _key(job)
    if key not in _logs:
        while len(_logs) >= _MOST_LOGS:
            _logs.popitem(last=False)[1].close()
        _logs[key] = cast("ThreadLog", open_log(job.log_url, job.log_settings))
    log = _logs[key]
    return log if job.bounds is None else cast("ThreadLog", BoundedLog(log, job.bounds))


def _close_log(job: ContinuousJob) -> None:
    """Close the log after an error, which a connection may be the cause of."""
    log = _logs.pop(_key(job), None)
    if log is not None:
        log.close()
