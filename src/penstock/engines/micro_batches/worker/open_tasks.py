"""Tasks that a worker keeps open between batches: their replicas and StreamTasks.

Spark hands a task to any free worker, so an open task may be outdated. Its replica is checked before use
(`TaskStore.resume`), and its StreamTask is used only if this process ran the batch that the next one starts from: the
newest segment is the one that it published. Everything else is opened anew, as after a restart.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.engines.spark.worker_process import open_task_limit
from penstock.errors import PenstockError
from penstock.log.client_counts import CLOSED_TASKS, count
from penstock.state.lmdb_replicas.folders import remove_unused
from penstock.state.maps import MemoryTaskState
from penstock.state.snapshots import SnapshotPolicy
from penstock.state.task_store import StateOwner, StatePlace, TaskStore

if TYPE_CHECKING:
    from penstock.engines.spark.job import SparkJob
    from penstock.runtime.task import StreamTask
    from penstock.state.segments.segment import Segment
    from penstock.topology.plan.plan import TaskRun

__all__ = ["OpenTask", "acquire_task", "close_open_tasks", "release_task"]

_log = own_logger(__name__)
_LEAST_CLEANUP_S = 10.0  # between two searches for unused replicas, however short the setting
_Application = tuple[str, str]
_Key = tuple[_Application, int, str, str]


@dataclass(slots=True)
class OpenTask:
    """A task that is open in this process.

    Attributes:
        key: The application, its start, and the task.
        store: The task's state; None if it keeps none.
        numbers: The state in memory of a task that keeps none.
        is_new: Whether the task was opened for this batch.
    """

    key: _Key
    store: TaskStore | None
    numbers: MemoryTaskState = field(default_factory=lambda: MemoryTaskState([]))
    is_new: bool = True
    _task: StreamTask | None = None
    _shared: object = None
    _used: float = field(default_factory=time.monotonic)
    _version: tuple[int, str] | None = None  # of the state after the last batch that ``_task`` has processed

    def stream_task(self, make: Callable[[], StreamTask], shared: object = None) -> StreamTask:
        """Return the StreamTask for the batch that has begun.

        Args:
            make: Makes a StreamTask.
            shared: The global stores that it reads besides its state.
        """
        if self._task is not None and self.store is not None and self._version != self.store.version:
            self._drop_task()
        if self._shared is not shared:
            self._drop_task()
        if self._task is None:
            self._task = make()
            self._shared = shared
        return self._task

    def note_segment(self, segment: Segment) -> None:
        """Note the segment with which the batch ended."""
        assert self.store is not None  # noqa: S101 - there is a segment
        if not segment.stored:
            self._version = self.store.version
        elif segment.published_here:
            self._version = (segment.batch, segment.checksum)
        else:  # another attempt was faster, and may have done something else with the clock
            self._drop_task()

    def is_unused(self, since: float) -> bool:
        """Return whether the task has not run since then, by the monotonic clock."""
        return self._used < since

    def touch(self) -> None:
        """Note that the task has run just now."""
        self._used = time.monotonic()

    def close(self) -> None:
        """Close the user's processors and the state."""
        count("consumer", CLOSED_TASKS)
        self._drop_task()
        if self.store is not None:
            self.store.close()

    def _drop_task(self) -> None:
        if self._task is not None:
            with suppress(Exception):  # a user's close()
                self._task.close()
        self._task = self._version = None


_open_tasks: OrderedDict[_Key, OpenTask] = OrderedDict()
_looked: dict[_Application, float] = {}  # the time of the last search for unused tasks


def acquire_task(job: SparkJob, run: TaskRun, stores: Iterable[str], *, keeps_state: bool) -> OpenTask:
    """Return a task to run now, open already or opened now.

    Afterwards it must be released (`release_task`), or closed if it failed.
    """
    application = (job.checkpoint, job.plan.application_id)
    _tidy(job, application)
    key = (application, job.epoch, job.app_digest, run.task_id)
    task = _open_tasks.pop(key, None)
    if task is not None:
        if task.store is None or task.store.resume():
            return task
        task.close()
    _close([other for other in _open_tasks if other[0] == application and other[1:3] != key[1:3]])  # of earlier starts
    if not keeps_state:
        return OpenTask(key, None)
    return OpenTask(key, _opened(job, run, stores))


def _opened(job: SparkJob, run: TaskRun, stores: Iterable[str]) -> TaskStore:
    return TaskStore(
        StatePlace(job.checkpoint, job.replica_root, map_bytes=int(job.config["penstock.state.map.size"])),
        StateOwner(job.plan.application_id, job.fingerprint, job.accepts),
        run.task_id,
        [job.topology.stores[name] for name in stores],
        SnapshotPolicy(every=int(job.config["penstock.snapshot.interval.batches"])),
    )


def _tidy(job: SparkJob, application: _Application) -> None:
    """Close tasks that this process has not run for long, and remove replicas that nobody uses on this machine."""
    now, delay_s = time.monotonic(), int(job.config["state.cleanup.delay.ms"]) / 1000
    if now - _looked.setdefault(application, now) < max(delay_s, _LEAST_CLEANUP_S):
        return
    _looked[application] = now
    _close([key for key, task in _open_tasks.items() if key[0] == application and task.is_unused(now - delay_s)])
    arguments = (Path(job.replica_root), application[1], application[0], delay_s)
    threading.Thread(target=_remove_unused, args=arguments, name="unused-replicas", daemon=True).start()


def _remove_unused(root: Path, application: str, checkpoint: str, unused_s: float) -> None:
    try:
        remove_unused(root, application, checkpoint, unused_s)
    except Exception as error:  # noqa: BLE001 - the next attempt may succeed, and no batch depends on it
        _log.warning("Unused replicas in %s could not be removed: %s", root, error)


def release_task(task: OpenTask) -> None:
    """Keep a task open for its next batch, and let other processes use its replica."""
    task.touch()
    if task.store is not None:
        task.store.pause()
    task.is_new = False
    _open_tasks[task.key] = task
    while len(_open_tasks) > open_task_limit():
        _close([next(iter(_open_tasks))])


def close_open_tasks() -> None:
    """Close all open tasks, as if the process had ended."""
    _close(list(_open_tasks))


def _close(keys: Iterable[_Key]) -> None:
    for key in keys:
        with suppress(PenstockError, OSError):
            _open_tasks.pop(key).close()
