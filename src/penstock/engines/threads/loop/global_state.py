"""The global stores of a thread: read to the end before the first record, then followed.

Kafka Streams has a thread of its own for them, and a copy for each instance. Here the threads of a machine are
processes, and share one copy (`penstock.engines.global_store_copy`): one of them writes it, all read it. Without a
folder for replicas a thread keeps a copy in memory.
"""

from __future__ import annotations

import fcntl
import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from penstock.base.log_lines import own_logger
from penstock.engines.global_store_copy import CopyWriter, GlobalCopy, GlobalFiller, pieces_of
from penstock.engines.threads.replicas.replica_folders import global_folder
from penstock.engines.threads.replicas.restoring import OnProgress, layout_of
from penstock.runtime.global_stores import GlobalViews
from penstock.state.maps import MemoryTaskState
from penstock.state.private_folders import open_lock, own_folder
from penstock.state.restores.restore_progress import RestoreProgress

if TYPE_CHECKING:
    from penstock.engines.threads.app import ThreadApp
    from penstock.engines.threads.loop.thread_environment import ThreadHooks
    from penstock.log.base import Fetched, TopicLog, TopicPartition
    from penstock.runtime.sensor import Sensor
    from penstock.topology.stores import StoreSpec

__all__ = ["FollowedCopy", "GlobalState", "MemoryGlobals", "open_globals"]

_log = own_logger(__name__)
_LOOK_S = 1.0
_WAIT_S = 0.05
_STALLED_S = 10.0  # without progress of the writer, whose process may have been paused
_open_here: set[Path] = set()  # LMDB allows a process to open a file once


class GlobalState(Protocol):
    """The global stores as a thread uses them.

    Attributes:
        views: The stores, for its tasks.
    """

    views: GlobalViews

    def look(self) -> Mapping[TopicPartition, int] | None:
        """Show what others have written; return the positions to follow from now on, if this thread has to."""
        ...

    def add(self, tp: TopicPartition, fetched: Fetched) -> None:
        """Apply records that have been fetched."""
        ...

    def close(self) -> None: ...


def open_globals(app: ThreadApp, hooks: ThreadHooks, log: TopicLog) -> tuple[GlobalState, Mapping[TopicPartition, int]]:
    """Restore the global stores of an application: in the machine's copy, or in memory.

    Args:
        app: The application.
        hooks: The parts of the process that a thread uses.
        log: The log.

    Returns:
        The stores, and the positions to follow their topics from; none if another thread does.
    """
    if app.replica_root is not None and _folder_of(app) not in _open_here:
        copy = FollowedCopy(app, hooks.sensor, hooks.clock)
        try:
            return copy, copy.restore(log, hooks.on_restore)
        except TimeoutError:
            copy.close()
            _log.warning("The thread that writes this machine's global stores stands still; this one keeps its own")
        except BaseException:
            copy.close()
            raise
    own = MemoryGlobals(app, hooks.sensor, hooks.clock)
    return own, own.restore(log)


class FollowedCopy:
    """The machine's copy as one thread uses it, see `GlobalState`.

    The writer is the thread that holds a lock on a file beside the copy. It follows the topics. The others look once a
    step whether there is something new, which takes microseconds, and once a second whether the writer has gone; then
    one of them goes on at the offsets of the copy. The system lets go of the locks of a process that dies, and LMDB
    drops its open transaction.

    Args:
        app: The application.
        sensor: The sensor of the task that fills it.
        clock: The wall clock, in milliseconds.
    """

    def __init__(self, app: ThreadApp, sensor: Sensor, clock: Callable[[], int]) -> None:
        self._stores = ", ".join(_global_specs(app))
        self._topics = tuple(app.plan.global_topics)
        layout = " ".join(f"{name} {layout_of(spec)}" for name, spec in _global_specs(app).items())
        digest = hashlib.blake2b(f"{layout} {app.topology.describe()}".encode(), digest_size=6).hexdigest()
        self._folder = own_folder(_folder_of(app))
        self._copy = GlobalCopy(app.topology, self._folder, f"continuous {app.application_id} {app.identity} {digest}")
        self._writer = CopyWriter(self._copy, app.topology, app.config, sensor, clock)
        self._lead: BinaryIO | None = None  # the writer's lock
        self._looked_s = 0.0
        self.views = self._copy.views
        _open_here.add(self._folder)

    def restore(self, log: TopicLog, on_progress: OnProgress | None = None) -> Mapping[TopicPartition, int]:
        """Wait until the copy has the present ends of the topics; the writer reads them.

        Returns:
            The positions to follow the topics from; nothing if another thread is the writer.

        Raises:
            TimeoutError: The writer has stopped.
        """
        copy, ends, started = self._copy, log.end_offsets(self._topics), time.perf_counter()
        ids = dict(log.topic_ids(self._topics))
        number, moved_s = -1, time.monotonic()
        while not self._try_to_lead():
            self._show_present_files()
            at, noted_ids = copy.noted()
            if noted_ids == ids and all(at.get(tp, -1) >= end for tp, end in ends.items()):
                return {}
            if copy.seen != number:
                number, moved_s = copy.seen, time.monotonic()
            elif time.monotonic() - moved_s > _STALLED_S:
                raise TimeoutError
            self._report(on_progress, at, ends, started)
            time.sleep(_WAIT_S)
        with copy.taken():
            copy.begin(log, self._topics, ids, log.end_offsets(self._topics))
        self._writer.begin()
        for tp, end in ends.items():
            for piece in pieces_of(log.iterate(tp.topic, tp.partition, copy.positions[tp], end)):
                self._writer.apply(tp, piece)
                self._report(on_progress, copy.positions, ends, started)
            copy.positions[tp] = end
        self._writer.apply(next(iter(ends)), [])  # the ends are noted even where a topic has no records
        return dict(copy.positions)

    def look(self) -> Mapping[TopicPartition, int] | None:
        """Show what the writer has written; return the positions if this thread has become the writer."""
        if self._lead is not None:
            return None
        now = time.monotonic()
        if now - self._looked_s >= _LOOK_S:
            self._looked_s = now
            self._show_present_files()
            if self._try_to_lead():
                self._copy.show()
                self._copy.positions, self._copy.ids = self._copy.noted()
                self._writer.begin()
                return dict(self._copy.positions)
        self._copy.show()
        return None

    def add(self, tp: TopicPartition, fetched: Fetched) -> None:
        """Apply records that have been fetched; only the writer fetches."""
        for piece in pieces_of([fetched.records]):
            self._writer.apply(tp, piece)
        self._copy.positions[tp] = fetched.next_offset  # noted with the next rows: there are no records in between

    def close(self) -> None:
        """Close the files; another thread may become the writer."""
        self._writer.close()
        self._copy.close()
        if self._lead is not None:
            self._lead.close()
            self._lead = None
        _open_here.discard(self._folder)

    def _try_to_lead(self) -> bool:
        """Become the writer, unless another process is."""
        lock = open_lock(self._folder / "writer.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return False
        self._lead = lock
        return True

    def _show_present_files(self) -> None:
        """Show the present rows, also if another process has put new files in place."""
        with self._copy.taken():
            pass
        self._copy.show()

    def _report(
        self,
        on_progress: OnProgress | None,
        at: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        started: float,
    ) -> None:
        if on_progress is None:
            return
        tp = next(iter(ends))
        done, total = sum(at.get(each, 0) for each in ends), sum(ends.values())
        seconds = time.perf_counter() - started
        on_progress(RestoreProgress(self._stores, tp.topic, tp.partition, 0, done, total, done, seconds))


def _folder_of(app: ThreadApp) -> Path:
    assert app.replica_root is not None  # noqa: S101 - open_globals() has looked
    return global_folder(app.replica_root, app.application_id, app.identity)


def _global_specs(app: ThreadApp) -> dict[str, StoreSpec]:
    return {name: app.topology.stores[name] for name in sorted(app.topology.global_stores)}


class MemoryGlobals:
    """A copy of all global stores in memory, see `GlobalState`.

    Args:
        app: The application.
        sensor: The sensor of the task that fills them.
        clock: The wall clock, in milliseconds.
    """

    def __init__(self, app: ThreadApp, sensor: Sensor, clock: Callable[[], int]) -> None:
        specs = _global_specs(app)
        state = MemoryTaskState(specs.values())
        self._topics = tuple(app.plan.global_topics)
        self._filler = GlobalFiller(app.topology, app.config, state, sensor, clock)
        self.views = GlobalViews(specs, {name: state.map(name) for name in specs}, state.meta)

    def restore(self, log: TopicLog) -> Mapping[TopicPartition, int]:
        """Read the topics from the beginning to their present ends; return the positions to follow them from."""
        ends = log.end_offsets(self._topics)
        beginnings = log.beginning_offsets(self._topics)
        for tp, end in ends.items():
            for records in log.iterate(tp.topic, tp.partition, beginnings[tp], end):
                self._filler.apply(tp, records)
        return dict(ends)

    def look(self) -> None:
        """Do nothing: nobody else writes here."""

    def add(self, tp: TopicPartition, fetched: Fetched) -> None:
        if fetched.records.num_rows:
            self._filler.apply(tp, fetched.records)

    def close(self) -> None:
        self._filler.close()
