"""What a worker keeps between batches: the replicas of the tasks that it has run, opened, and their StreamTasks.

Spark hands a task to any free worker, so what is kept may have been overtaken. A kept replica is looked at before it is
used (`TaskStore.resume`), and a kept StreamTask counts only if this very process ran the batch that the next one starts
from: the newest segment is the one that it published. Everything else is opened anew, as after a restart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.state.memory import MemoryTaskState
from penstock.state.task_store import TaskStore

if TYPE_CHECKING:
    from penstock.plan.plan import TaskRun
    from penstock.runtime.task import StreamTask
    from penstock.spark.job import SparkJob
    from penstock.state.segments import Segment

__all__ = ["KeptTask", "close_all", "put_back", "take"]

_MOST = 64  # tasks; each has a file open

_Application = tuple[str, str]
_Key = tuple[_Application, int, str, str]


@dataclass(slots=True)
class KeptTask:
    """One task in this process.

    Attributes:
        key: Which task of which start of which application.
        store: Its state; None if it keeps none.
        numbers: In place of a state, for a task that keeps none.
        is_new: Whether it has been opened for this batch.
    """

    key: _Key
    store: TaskStore | None
    numbers: MemoryTaskState = field(default_factory=lambda: MemoryTaskState([]))
    is_new: bool = True
    _task: StreamTask | None = None
    _shared: object = None
    _version: tuple[int, str] | None = None  # of the state after the last batch that ``_task`` has processed

    def task(self, make: Callable[[], StreamTask], shared: object = None) -> StreamTask:
        """The StreamTask for the batch that has begun; ``make`` makes one, which reads ``shared`` besides its state."""
        if self._task is not None and self.store is not None and self._version != self.store.version:
            self._drop_task()
        if self._shared is not shared:
            self._drop_task()
        if self._task is None:
            self._task = make()
            self._shared = shared
        return self._task

    def ran(self, segment: Segment) -> None:
        """Notes with which segment the batch ended."""
        assert self.store is not None  # noqa: S101 - there is a segment
        if not segment.stored:
            self._version = self.store.version
        elif segment.published_here:
            self._version = (segment.batch, segment.checksum)
        else:  # another attempt was faster, and may have done something else with the clock
            self._drop_task()

    def close(self) -> None:
        """Closes the user's processors and the state."""
        self._drop_task()
        if self.store is not None:
            self.store.close()

    def _drop_task(self) -> None:
        if self._task is not None:
            with suppress(Exception):  # a user's close()
                self._task.close()
        self._task = self._version = None


_kept: OrderedDict[_Key, KeptTask] = OrderedDict()


def take(job: SparkJob, run: TaskRun, stores: Iterable[str], *, keeps_state: bool) -> KeptTask:
    """A task to run now, kept or new; afterwards it is for `put_back`, or to be closed if it failed."""
    application = (job.checkpoint, job.plan.application_id)
    key = (application, job.epoch, job.program_id, run.task_id)
    found = _kept.pop(key, None)
    if found is not None:
        if found.store is None or found.store.resume():
            return found
        found.close()
    _close([other for other in _kept if other[0] == application and other[1:3] != key[1:3]])  # of earlier starts
    if not keeps_state:
        return KeptTask(key, None)
    store = TaskStore.open(
        job.checkpoint,
        job.replica_root,
        run.task_id,
        [job.topology.stores[name] for name in stores],
        application_id=job.plan.application_id,
        fingerprint=job.fingerprint,
        accepts=job.accepts,
        snapshot_every=int(job.config["penstock.snapshot.interval.batches"]),
    )
    return KeptTask(key, store)


def put_back(task: KeptTask) -> None:
    """Keeps a task for its next batch, and lets other processes have its replica."""
    if task.store is not None:
        task.store.pause()
    task.is_new = False
    _kept[task.key] = task
    _close(list(_kept)[: max(0, len(_kept) - _MOST)])


def close_all() -> None:
    """Keeps nothing any more, as if the process had ended."""
    _close(list(_kept))


def _close(keys: Iterable[_Key]) -> None:
    for key in keys:
        with suppress(PenstockError, OSError):
            _kept.pop(key).close()
