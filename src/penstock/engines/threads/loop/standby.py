"""Standby tasks: replicas that follow the changelogs of tasks that run elsewhere, and restores beside a running thread.

Both are the work of Kafka's ``StateUpdater``: a thread beside the loop of a stream thread, with a log of its own, so
that active tasks never wait for it. Records are applied in pieces of a bounded size, and after each piece of a standby
it rests as long as the piece has taken. A task that becomes active is handed over with its replica open, and only the
rest of its changelogs is restored then.

What goes wrong reaches the stream thread, by `StateUpdater.check`: there is one place where an application ends. Only
what may pass by itself is tried again: without a limit while no broker answers, and for ``task.timeout.ms`` after other
errors of the log, as records or topics may be there a moment later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from penstock.base.log_lines import own_logger
from penstock.engines.threads.loop.thread_environment import AskedOnce
from penstock.engines.threads.replicas.restoring import source_topics
from penstock.engines.threads.replicas.task_replica import TaskReplica
from penstock.errors import (
    AuthenticationError,
    AuthorizationError,
    LogError,
    LogUnavailableError,
    PenstockError,
    StateError,
    UnknownTopicError,
)
from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from penstock.engines.threads.app import ThreadApp
    from penstock.engines.threads.loop.thread_environment import ThreadLog
    from penstock.state.restores.restore_progress import RestoreProgress
    from penstock.topology.plan.plan import TaskId

__all__ = ["StateUpdater", "followed_places", "replica_lag"]

_log = own_logger(__name__)
_IDLE_S = 0.25  # between two looks at the log while nothing arrives
_BUSY_S = 0.05
_LONG_S = 1.0
_AFTER_ERROR_S = 2.0
_MOST_REST_S = 0.5
_PASSING = (LogError, UnknownTopicError)  # records or topics that are missing for a moment, a file that is away
_LASTING = (AuthenticationError, AuthorizationError)


class _InterruptedError(Exception):
    """The task is wanted elsewhere, or the updater ends."""


@dataclass(slots=True)
class _Failures:
    """Failures of one kind of work, one after the other: since when they last."""

    since: float | None = None

    def may_pass(self, error: Exception, patience_s: float) -> bool:
        """Note a failure; return whether another attempt may succeed."""
        if not isinstance(error, _PASSING) or isinstance(error, _LASTING):
            return False
        if isinstance(error, LogUnavailableError):
            return True
        now = time.monotonic()
        self.since = now if self.since is None else self.since
        return now - self.since < patience_s

    def end(self) -> None:
        """Note a success."""
        self.since = None


@dataclass(slots=True)
class _Followed:
    """A task that is followed.

    Attributes:
        task: The task.
        replica: Its replica; None until it is opened, and after an error.
        is_standby: Whether it rests between pieces, and reports no progress.
        places: The partitions that it follows.
        seen: Their ends when the replica had caught up last.
        lag: The number of records that it lacked at the last look; None before the first one.
        end: The sum of the ends of its topics at the last look.
        retry_s: Not to be tried again before this time.
        failing: Its failures since it was restored last.
    """

    task: TaskId
    replica: TaskReplica | None
    is_standby: bool
    places: tuple[TopicPartition, ...]
    seen: Mapping[TopicPartition, int] = field(default_factory=dict)
    lag: int | None = None
    end: int = 0
    retry_s: float = 0.0
    failing: _Failures = field(default_factory=_Failures)


def followed_places(app: ThreadApp, task: TaskId) -> tuple[TopicPartition, ...]:
    """Return the partitions that a task's stores are restored from; none for a task without such stores."""
    logged = [app.changelogs[store] for store in app.subtopology(task).stores if store in app.changelogs]
    topics = dict.fromkeys((*logged, *source_topics(app, task).values()))
    return tuple(TopicPartition(topic, task.partition) for topic in topics)


def replica_lag(replica: TaskReplica, ends: Mapping[TopicPartition, int]) -> int:
    """Return the number of offsets by which a replica is behind these ends of its topics."""
    at = replica.following()
    return sum(max(0, end - at.get(tp, 0)) for tp, end in ends.items())


class StateUpdater:
    """Kafka's ``StateUpdater``: follows the changelogs of tasks, in a thread of its own until `close`.

    Args:
        app: The application.
        open_log: Opens a log for the updater, which closes it.
        on_progress: Called in the updater's thread with the restores of tasks that are to run here.
    """

    def __init__(
        self,
        app: ThreadApp,
        open_log: Callable[[], ThreadLog],
        on_progress: Callable[[RestoreProgress], None] = lambda _: None,
    ) -> None:
        self._app = app
        self._open_log = open_log
        self._on_progress = on_progress
        self._changed = threading.Condition()
        self._tasks: dict[TaskId, _Followed] = {}
        self._working: TaskId | None = None
        self._to_end: set[TaskId] = set()  # whose restore is to end now
        self._closing = False
        self._thread: threading.Thread | None = None
        self._failures = _Failures()
        self._error: PenstockError | None = None  # of which it has ended
        self._patience_s = int(app.config["task.timeout.ms"]) / 1000

    def check(self) -> None:
        """Raise the error of which the updater has ended; to be called by the stream thread, in each of its steps.

        Raises:
            StateError: A task's changelogs cannot be applied, its replica cannot be written, or something unexpected.
            PenstockError: Another permanent error, of the log.
        """
        if self._error is not None:
            raise self._error
        if self._thread is not None and not self._thread.is_alive() and not self._closing:
            raise StateError(
                "the thread that follows changelogs has ended for an unknown reason",
                hint="Start the application again: it continues where it stopped.",
            )

    def follow(
        self,
        app: ThreadApp,
        standbys: Collection[TaskId],
        restoring: Collection[TaskId] = (),
        replicas: Mapping[TaskId, TaskReplica] | None = None,
    ) -> None:
        """Follow these tasks from now on, and no others.

        Args:
            app: The application as it is planned now.
            standbys: The tasks that run elsewhere.
            restoring: The tasks that are to run here.
            replicas: Open replicas of some of them.
        """
        replicas = dict(replicas or {})
        with self._changed:
            self._app = app
            for task in [*self._tasks]:
                if task not in standbys and task not in restoring:
                    self._close(self._taken(task))
            for task in (*standbys, *restoring):
                followed = self._tasks.get(task)
                if followed is None:
                    places = followed_places(app, task)
                    self._tasks[task] = _Followed(task, replicas.pop(task, None), task in standbys, places)
                else:
                    followed.is_standby = task in standbys
            for replica in replicas.values():
                replica.close()
            if self._tasks and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-state-updater", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def take(self, task: TaskId) -> TaskReplica | None:
        """Follow a task no further, and return its replica, which is the caller's now; None if there is none."""
        with self._changed:
            return self._taken(task)

    def lags(self) -> dict[TaskId, int | None]:
        """Return the number of records that each task lacked at the last look; None before the first one."""
        with self._changed:
            return {task: each.lag for task, each in self._tasks.items()}

    def end_sums(self) -> dict[TaskId, int]:
        """Return the sum of the ends of each task's topics at the last look, as Kafka's members report it."""
        with self._changed:
            return {task: each.end for task, each in self._tasks.items()}

    def close(self) -> None:
        """End, and close all replicas."""
        with self._changed:
            self._closing = True
            self._to_end.update(self._tasks)
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        for each in self._tasks.values():
            self._close(each.replica)
        self._tasks = {}

    def _taken(self, task: TaskId) -> TaskReplica | None:
        self._to_end.add(task)
        self._changed.notify_all()
        self._changed.wait_for(lambda: self._working != task)
        self._to_end.discard(task)
        followed = self._tasks.pop(task, None)
        return None if followed is None else followed.replica

    def _close(self, replica: TaskReplica | None) -> None:
        if replica is not None:
            replica.close()

    def _run(self) -> None:
        log: ThreadLog | None = None
        try:
            while not self._closing and self._error is None:
                pause = _AFTER_ERROR_S
                try:
                    log = log or self._open_log()
                    pause = _BUSY_S if self._look(log) else _IDLE_S
                    self._failures.end()
                except Exception as error:  # noqa: BLE001 - what may not pass reaches the stream thread
                    if not self._failures.may_pass(error, self._patience_s):
                        self._fail(error, "the changelogs of tasks cannot be followed")
                        return
                    _log.warning("standby tasks wait: %s", error)
                self._wait(pause)
        except BaseException as error:  # noqa: BLE001 - whatever ends the thread, the stream thread has to know
            self._fail(error, "the changelogs of tasks cannot be followed")
        finally:
            if log is not None:
                log.close()

    def _fail(self, error: BaseException, what: str) -> None:
        """Note the error of which the updater ends, unless there is one already."""
        if self._error is not None:
            return
        if isinstance(error, PenstockError):
            self._error = error
            return
        failed = StateError(
            f"{what}: {type(error).__name__}: {error}",
            hint="Start the application again: it continues where it stopped. If it fails again, delete the replicas "
            "of the application on that machine (state.dir): they are rebuilt.",
        )
        failed.__cause__ = error
        self._error = failed

    def _wait(self, pause_s: float) -> None:
        """Wait for the next look: until then, or until there is another task."""
        with self._changed:
            tasks = set(self._tasks)
            self._changed.wait_for(lambda: self._closing or bool(self._tasks.keys() - tasks), pause_s)

    def _look(self, log: ThreadLog) -> bool:
        """Bring all tasks to the present ends of their topics; return whether any had moved."""
        with self._changed:
            followed = [each for each in self._tasks.values() if time.monotonic() >= each.retry_s]
            app = self._app
        if not followed:
            return False
        # The offsets first: the records of what they have committed lie before the settled ends.
        committed = log.committed_offsets(app.application_id)
        logged = {*app.changelogs.values()}
        ends = log.settled_ends(tp for each in followed for tp in each.places if tp.topic in logged)
        moved, once = False, cast("ThreadLog", AskedOnce(log))
        for each in followed:
            if self._error is not None:
                break
            now = {tp: ends.get(tp, committed.get(tp, 0)) for tp in each.places}
            each.lag, each.end = self._lag(each, now), sum(now.values())
            if each.replica is None or now != each.seen:
                moved |= self._restore(each, once, committed, now)
        return moved

    def _lag(self, each: _Followed, ends: Mapping[TopicPartition, int]) -> int | None:
        return each.lag if each.replica is None else replica_lag(each.replica, ends)

    def _restore(
        self,
        each: _Followed,
        log: ThreadLog,
        committed: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> bool:
        with self._changed:
            if each.task in self._to_end or self._tasks.get(each.task) is not each:
                return False
            self._working = each.task
        try:
            if each.replica is None:
                each.replica = TaskReplica.open(self._app, each.task)
            began = time.monotonic()
            each.replica.restore(log, committed, partial(self._progressed, each, [time.perf_counter()]))
            has_taken_long = time.monotonic() - began > _LONG_S
            each.seen, each.lag = ends, None if has_taken_long else 0  # more has come meanwhile: the next look says
            each.failing.end()
        except _InterruptedError:
            pass
        except Exception as error:  # noqa: BLE001 - what may not pass reaches the stream thread
            if each.failing.may_pass(error, self._patience_s):
                _log.warning("the replica of task %s does not follow its changelogs: %s", each.task, error)
                each.retry_s = time.monotonic() + _AFTER_ERROR_S
            else:
                if isinstance(error, PenstockError):
                    error.facts.setdefault("task", str(each.task))
                self._fail(error, f"the state of task {each.task} cannot be restored")
        finally:
            with self._changed:
                self._working = None
                self._changed.notify_all()
        return True

    def _progressed(self, each: _Followed, began: list[float], progress: RestoreProgress) -> None:
        if not each.is_standby:
            self._on_progress(progress)
        with self._changed:
            rest = min(_MOST_REST_S, time.perf_counter() - began[0]) if each.is_standby else 0.0
            self._changed.wait_for(lambda: self._closing or each.task in self._to_end, rest)
            if self._closing or each.task in self._to_end:
                raise _InterruptedError
        began[0] = time.perf_counter()
