"""One copy of the global stores for all threads of a machine: an LMDB environment that one thread writes and all read.

The writer is the thread that holds a lock on a file beside the copy. It follows the topics, and commits rows with the
offsets that they stand for, so nothing is read twice after a start. The others look once a step whether there is
something new, which takes microseconds, and once a second whether the writer has gone; then one of them goes on at the
offsets of the copy. The system lets go of the locks of a process that dies, and LMDB drops its open transaction.
"""

from __future__ import annotations

import fcntl
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import lmdb

from penstock.engines.threads.replicas.positions import layout_of, time_notes, time_since
from penstock.engines.threads.replicas.replica_folders import global_folder
from penstock.engines.threads.replicas.restoring import OnProgress
from penstock.log.base import TopicPartition
from penstock.log.topic_settings import setting
from penstock.runtime.context import Surroundings
from penstock.runtime.global_stores import GLOBAL_TASK, GlobalViews
from penstock.runtime.record import TopicBatch
from penstock.runtime.task import StreamTask, TaskPart
from penstock.serde.buffers import to_bytes_list
from penstock.state.counted_overlay import count_calls, take_calls
from penstock.state.memory import MemoryMap
from penstock.state.overlay import TaskOverlay
from penstock.state.own_folder import open_lock, own_folder
from penstock.state.replicas.lmdb_replica import LmdbReplica, LmdbRows
from penstock.state.replicas.position import ReplicaPosition
from penstock.state.restores.progress import RestoreProgress
from penstock.state.segments.segment import NO_BATCH

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engines.threads.app import ThreadApp
    from penstock.log.base import Fetched, TopicLog
    from penstock.runtime.sensor import Sensor
    from penstock.state.base import TaskState
    from penstock.topology.stores import StoreSpec

__all__ = ["GlobalCopy", "GlobalFiller", "global_specs", "is_open_here"]

_PIECE_RECORDS = 50_000  # what a transaction of the copy takes, so what is in memory
_LOOK_S = 1.0
_WAIT_S = 0.05
_STALLED_S = 10.0  # without progress of the writer, whose process may have been paused
_open_here: set[Path] = set()  # LMDB allows a process to open a file once


def is_open_here(app: ThreadApp) -> bool:
    """Return whether another thread of this process has the copy open."""
    assert app.replica_root is not None  # noqa: S101 - the caller has looked
    return global_folder(app.replica_root, app.application_id, app.identity) in _open_here


class GlobalCopy:
    """The machine's copy as one thread uses it, see `penstock.engines.threads.loop.global_state.GlobalState`.

    Args:
        app: The application.
        sensor: The sensor of the task that fills it.
        clock: The wall clock, in milliseconds.
    """

    def __init__(self, app: ThreadApp, sensor: Sensor, clock: Callable[[], int]) -> None:
        assert app.replica_root is not None  # noqa: S101 - open_globals() has looked
        self._specs = global_specs(app)
        self._topics = tuple(app.plan.global_topics)
        layout = " ".join(f"{name} {layout_of(spec)}" for name, spec in self._specs.items())
        digest = hashlib.blake2b(f"{layout} {app.topology.describe()}".encode(), digest_size=6).hexdigest()
        self._identity = f"continuous {app.application_id} {app.identity} {digest}"
        self._folder = own_folder(global_folder(app.replica_root, app.application_id, app.identity))
        self._replica: LmdbReplica | None = None
        self._reader: LmdbRows | None = None
        self._seen = -1  # the number of LMDB's last transaction that is shown
        self._lead: BinaryIO | None = None  # the writer's lock
        self._looked_s = 0.0
        self._positions: dict[TopicPartition, int] = {}
        self._ids: dict[str, str] = {}
        self._meta: dict[str, int] = {}
        self._state = TaskOverlay(NO_BATCH, dict.fromkeys(self._specs, MemoryMap()), {})
        if sensor.detailed:
            count_calls(self._state)
        self._sensor = sensor
        self._filler = GlobalFiller(app, self._state, sensor, clock)
        self.views = GlobalViews(self._specs, dict.fromkeys(self._specs, MemoryMap()), self._meta)
        _open_here.add(self._folder)

    def restore(self, log: TopicLog, on_progress: OnProgress | None = None) -> Mapping[TopicPartition, int]:
        """Wait until the copy has the present ends of the topics; the writer reads them.

        Returns:
            The positions to follow the topics from; nothing if another thread is the writer.

        Raises:
            TimeoutError: The writer has stopped.
        """
        ends, started = log.end_offsets(self._topics), time.perf_counter()
        self._ids = dict(log.topic_ids(self._topics))
        number, moved_s = -1, time.monotonic()
        while not self._try_to_lead():
            self._check_files()
            self._show()
            at, ids = _position(self._opened().position)
            if ids == self._ids and all(at.get(tp, -1) >= end for tp, end in ends.items()):
                return {}
            if self._seen != number:
                number, moved_s = self._seen, time.monotonic()
            elif time.monotonic() - moved_s > _STALLED_S:
                raise TimeoutError
            self._tell(on_progress, at, ends, started)
            time.sleep(_WAIT_S)
        self._check_files()
        self._begin(log)
        for tp, end in ends.items():
            for piece in _pieces(log.iterate(tp.topic, tp.partition, self._positions[tp], end)):
                self._apply(tp, piece)
                self._tell(on_progress, self._positions, ends, started)
            self._positions[tp] = end
        self._apply(next(iter(ends)), [])  # the ends are noted even where a topic has no records
        return dict(self._positions)

    def look(self) -> Mapping[TopicPartition, int] | None:
        """Show what the writer has written; return the positions if this thread has become the writer."""
        if self._lead is not None:
            return None
        now = time.monotonic()
        if now - self._looked_s >= _LOOK_S:
            self._looked_s = now
            self._check_files()
            if self._try_to_lead():
                self._show()
                self._positions, _ = _position(self._opened().position)
                self._rebase()
                return dict(self._positions)
        self._show()
        return None

    def add(self, tp: TopicPartition, fetched: Fetched) -> None:
        """Apply records that have been fetched; only the writer fetches."""
        for piece in _pieces([fetched.records]):
            self._apply(tp, piece)
        self._positions[tp] = fetched.next_offset  # noted with the next rows: there are no records in between

    def close(self) -> None:
        """Close the files; another thread may become the writer."""
        self._filler.close()
        self._close_files()
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

    def _begin(self, log: TopicLog) -> None:
        """Find the positions to read from; empty a copy that does not fit the topics, or may have missed deletions."""
        replica = self._opened()
        self._positions, ids = _position(replica.position)
        beginnings, ends = log.beginning_offsets(self._topics), log.end_offsets(self._topics)
        is_other = any(ids.get(topic, id_) != id_ for topic, id_ in self._ids.items())
        is_ahead = any(at > ends.get(tp, -1) for tp, at in self._positions.items())
        if is_other or is_ahead or self._may_miss_deletions(log, ends):
            self._close_reader()
            with self._turn():
                replica.reset()
                replica.release()
            self._positions = {}
        self._positions = {tp: max(self._positions.get(tp, 0), start) for tp, start in beginnings.items()}
        self._show()
        self._rebase()

    def _may_miss_deletions(self, log: TopicLog, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether a compacted topic has new records, deletions among which may be gone since the last note."""
        notes = self._opened().position.notes
        away_ms = time_since(notes.get("noted_ms", 0), tuple(notes.get("boot", ("", 0))))
        for topic in {tp.topic for tp, at in self._positions.items() if at < ends.get(tp, -1)}:
            config = log.topic(topic).config
            kept_ms = int(setting(config, "delete.retention.ms"))
            if "compact" in setting(config, "cleanup.policy") and (away_ms is None or away_ms >= kept_ms):
                return True
        return False

    def _apply(self, tp: TopicPartition, piece: list[pa.RecordBatch]) -> None:
        """Process records, and commit their rows with the positions behind them: what is noted is in the rows."""
        replica = self._opened()
        for records in piece:
            self._filler.apply(tp, records)
        if piece:
            self._positions[tp] = int(piece[-1].column("offset")[-1].as_py()) + 1
        changes = self._state.sorted_changes()
        rows = {
            name: [(to_bytes_list(each.column(0)), to_bytes_list(each.column(1)))] for name, each in changes.items()
        }
        meta = dict(self._state.meta)
        at = [[tp.topic, tp.partition, offset] for tp, offset in self._positions.items()]
        self._close_reader()
        notes = {"positions": at, "ids": self._ids, **time_notes()}
        began = time.perf_counter()
        replica.apply(list(rows), rows.__getitem__, ReplicaPosition(meta=meta, notes=notes))  # type: ignore[arg-type]
        self._sensor.on_store_calls(GLOBAL_TASK, take_calls(self._state))
        self._sensor.on_flushed(GLOBAL_TASK, changes, time.perf_counter() - began)
        self._show()
        self._rebase()

    def _rebase(self) -> None:
        """Let the writing task go on over the present rows."""
        assert self._reader is not None  # noqa: S101 - _show() has made it
        maps = {name: self._reader.map(name) for name in self._specs}
        self._state.rebase(NO_BATCH, maps, dict(self._opened().position.meta))

    def _show(self) -> None:
        """Show the present rows, if they are others than before."""
        replica = self._opened()
        number = replica.transaction_number
        if number == self._seen and self._reader is not None:
            return
        self._close_reader()
        self._reader = reader = replica.newest_reader()
        self._seen = number
        self._meta.clear()
        self._meta.update(replica.position.meta)
        self.views.rebase({name: reader.map(name) for name in self._specs})

    def _opened(self) -> LmdbReplica:
        if self._replica is None:
            with self._turn():
                self._replica = LmdbReplica(self._folder, self._identity, list(self._specs))
                self._replica.release()
        return self._replica

    def _check_files(self) -> None:
        """Open the copy anew if another process has put new files in its place."""
        if self._replica is None:
            return
        with self._turn():
            is_same = self._replica.is_there() and self._replica.retake()
            if is_same:
                self._replica.release()
        if not is_same:
            self._close_files()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the machine's lock on opening and emptying the copy."""
        own_folder(self._folder)
        with open_lock(self._folder / "turn.lock") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            yield

    def _close_files(self) -> None:
        self._close_reader()
        if self._replica is not None:
            with suppress(lmdb.Error, OSError):
                self._replica.close()
            self._replica = None

    def _close_reader(self) -> None:
        if self._reader is not None:
            self.views.rebase(dict.fromkeys(self._specs, MemoryMap()))
            self._reader.close()
            self._reader = None

    def _tell(
        self,
        on_progress: OnProgress | None,
        at: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        started: float,
    ) -> None:
        if on_progress is None:
            return
        store, tp = ", ".join(self._specs), next(iter(ends))
        done, total = sum(at.get(each, 0) for each in ends), sum(ends.values())
        seconds = time.perf_counter() - started
        on_progress(RestoreProgress(store, tp.topic, tp.partition, 0, done, total, done, seconds))


def _position(noted: ReplicaPosition) -> tuple[dict[TopicPartition, int], dict[str, str]]:
    """Return the offsets that a copy stands for, and the ids of the topics."""
    notes = noted.notes
    if not notes:
        return {}, {}
    return {TopicPartition(topic, partition): at for topic, partition, at in notes["positions"]}, notes["ids"]


def _pieces(stored: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Group stored batches into pieces that are worth a transaction of the copy."""
    piece: list[pa.RecordBatch] = []
    count = 0
    for batch in stored:
        for start in range(0, batch.num_rows, _PIECE_RECORDS):
            piece.append(batch.slice(start, _PIECE_RECORDS))
            count += piece[-1].num_rows
            if count >= _PIECE_RECORDS:
                yield piece
                piece, count = [], 0
    if piece:
        yield piece


class GlobalFiller:
    """The task that fills the global stores.

    Args:
        app: The application.
        state: The stores.
        sensor: Its sensor.
        clock: The wall clock, in milliseconds.
    """

    def __init__(self, app: ThreadApp, state: TaskState, sensor: Sensor, clock: Callable[[], int]) -> None:
        topology = app.topology
        self._clock = clock
        surroundings = Surroundings(sensor, clock())
        self._task = StreamTask(
            topology, app.config, TaskPart(GLOBAL_TASK, {}, topology.global_nodes), state, surroundings
        )

    def apply(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        """Process records of a global topic."""
        batch = TopicBatch(tp.topic, tp.partition, records)
        self._task.process([batch], self._clock(), depth_first=records.num_rows == 1)

    def close(self) -> None:
        """Close the user's processors."""
        self._task.close()


def global_specs(app: ThreadApp) -> dict[str, StoreSpec]:
    """Return the global stores of an application by name."""
    return {name: app.topology.stores[name] for name in sorted(app.topology.global_stores)}
