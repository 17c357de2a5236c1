"""A machine's copy of the global stores: an LMDB environment, and the offsets of the topics that its rows stand for.

Processes of a machine share its files, and one of them writes at a time. Rows and offsets change in one transaction, so
a copy never lacks or repeats a record whatever ends its writer. Nothing else holds these stores: a copy that does not
fit its topics any more is emptied and filled from them.

Stream threads follow the topics (`penstock.engines.threads.loop.global_state`). `GlobalStores` brings a copy to given
offsets, for micro-batches and queries.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb

from penstock.base.clock import unix_ms
from penstock.log.base import TopicPartition
from penstock.log.topic_settings import may_miss_deletions, setting
from penstock.runtime.context import TaskEnvironment
from penstock.runtime.global_stores import GLOBAL_TASK, GlobalViews
from penstock.runtime.rows import TopicBatch, volumes_of_changes
from penstock.runtime.sensor import Sensor
from penstock.runtime.task import StreamTask, TaskPart
from penstock.serde.column import to_bytes_list
from penstock.state.lmdb_replicas.folders import global_place
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica, LmdbRows
from penstock.state.maps import (
    NO_BATCH,
    MemoryMap,
    ReplicaPosition,
    TaskOverlay,
    count_calls,
    take_calls,
    time_notes,
    time_since,
)
from penstock.state.private_folders import open_lock, own_folder
from penstock.topology.plan.partitions import source_topics

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog
    from penstock.state.maps import TaskState
    from penstock.topology.topology import Topology

__all__ = ["CopyWriter", "GlobalCopy", "GlobalFiller", "GlobalStores", "pieces_of"]

_PIECE_RECORDS = 50_000  # what a transaction of the copy takes, so what is in memory
_NOTED_FOR_MS = 60_000  # how old a note may become while somebody looks at the topics, and finds nothing new


def pieces_of(stored: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
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
        topology: The topology.
        config: The application's settings.
        state: The stores.
        sensor: Its sensor.
        clock: The wall clock, in milliseconds.
    """

    def __init__(
        self, topology: Topology, config: StreamsConfig, state: TaskState, sensor: Sensor, clock: Callable[[], int]
    ) -> None:
        self._clock = clock
        part = TaskPart(GLOBAL_TASK, {}, topology.global_nodes)
        self._task = StreamTask(topology, config, part, state, TaskEnvironment(sensor, clock()))

    def apply(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        """Process records of a global topic."""
        batch = TopicBatch(tp.topic, tp.partition, records)
        self._task.process([batch], self._clock(), depth_first=records.num_rows == 1)

    def close(self) -> None:
        """Close the user's processors."""
        self._task.close()


class GlobalCopy:
    """The files of a copy, and what this process shows of them.

    Args:
        topology: The topology.
        folder: The folder of the copy.
        identity: The identity of its contents; a copy with another identity is emptied.

    Attributes:
        views: The stores, for the tasks that read them.
        positions: For the writer: the offsets that the rows stand for.
        ids: For the writer: the ids of the topics.
    """

    def __init__(self, topology: Topology, folder: Path, identity: str) -> None:
        self._specs = {name: topology.stores[name] for name in sorted(topology.global_stores)}
        self._folder = folder
        self._identity = identity
        self._replica: LmdbReplica | None = None
        self._reader: LmdbRows | None = None
        self._meta: dict[str, int] = {}
        self.seen = -1  # the number of LMDB's last transaction that is shown
        self.positions: dict[TopicPartition, int] = {}
        self.ids: dict[str, str] = {}
        self.views = GlobalViews(self._specs, dict.fromkeys(self._specs, MemoryMap()), self._meta)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Have the files open, those that are in place now, and keep other processes from opening or emptying them."""
        own_folder(self._folder)
        with open_lock(self._folder / "turn.lock") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            replica = self._replica
            if replica is None or not (replica.is_there() and replica.retake()):
                self._close_files()
                replica = self._replica = LmdbReplica(self._folder, self._identity, list(self._specs))
            try:
                yield
            finally:
                replica.release()

    def is_there(self) -> bool:
        """Return whether the files that it has open are still in place."""
        return self._replica is not None and self._replica.is_there()

    def noted(self) -> tuple[dict[TopicPartition, int], dict[str, str]]:
        """Return the offsets that the rows stand for, and the ids of the topics, as their writer has noted them."""
        notes = self._files.position.notes
        if not notes:
            return {}, {}
        return {TopicPartition(topic, partition): at for topic, partition, at in notes["positions"]}, notes["ids"]

    def begin(
        self, log: TopicLog, topics: Sequence[str], ids: Mapping[str, str], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Find the positions to write on from; empty a copy that does not fit the topics, or may have missed deletions.

        The files are taken.

        Args:
            log: The log.
            topics: The topics.
            ids: The ids of the topics.
            ends: The offsets that the copy will be brought to; one that is further on is filled anew.
        """
        beginnings = log.beginning_offsets(topics)
        self.positions, noted_ids = self.noted()
        is_other = any(noted_ids.get(topic, id_) != id_ for topic, id_ in ids.items())
        is_ahead = bool(ends) and any(at > ends.get(tp, 0) for tp, at in self.positions.items())
        is_old = not self.positions and self._files.position != ReplicaPosition()  # of a version with other notes
        if is_other or is_ahead or is_old or self._may_miss_deletions(log, ends):
            self._close_reader()
            self._files.reset()
            self.positions = {}
        self.ids = dict(ids)
        self.positions = {tp: max(self.positions.get(tp, 0), start) for tp, start in beginnings.items()}
        self.show()

    def _may_miss_deletions(self, log: TopicLog, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether a compacted topic has new records, deletions among which may be gone since the last note."""
        away_ms = self.noted_for_ms()
        for tp, at in self.positions.items():
            end = ends.get(tp, -1)
            if at < end:
                config = log.topic(tp.topic).config
                is_compacted = "compact" in setting(config, "cleanup.policy")
                if is_compacted and may_miss_deletions(log, tp, config, at, end, away_ms):
                    return True
        return False

    def noted_for_ms(self) -> int | None:
        """Return the milliseconds since the last note that is known here; None if the machine's clock was set back."""
        notes = self._files.position.notes
        return time_since(notes.get("noted_ms", 0), tuple(notes.get("boot", ("", 0))))

    def write(self, changes: Mapping[str, pa.RecordBatch], meta: Mapping[str, int]) -> None:
        """Commit changes of the rows together with `positions`, and show them."""
        rows = {
            name: [(to_bytes_list(each.column(0)), to_bytes_list(each.column(1)))] for name, each in changes.items()
        }
        at = [[tp.topic, tp.partition, offset] for tp, offset in self.positions.items()]
        position = ReplicaPosition(meta=dict(meta), notes={"positions": at, "ids": self.ids, **time_notes()})
        self._close_reader()
        self._files.apply(list(rows), rows.__getitem__, position)  # type: ignore[arg-type]

    def show(self) -> None:
        """Show the present rows, if they are others than before."""
        number = self._files.transaction_number
        if number == self.seen and self._reader is not None:
            return
        self._close_reader()
        self._reader = self._files.newest_reader()
        self.seen = number
        self._meta.clear()
        self._meta.update(self._files.position.meta)
        self.views.rebase({name: self._reader.map(name) for name in self._specs})

    def rebase(self, state: TaskOverlay) -> None:
        """Let a writing task go on over the rows that are shown."""
        assert self._reader is not None  # noqa: S101 - show() has made it
        maps = {name: self._reader.map(name) for name in self._specs}
        state.rebase(NO_BATCH, maps, dict(self._files.position.meta))

    def close(self) -> None:
        """Close the files."""
        self._close_files()

    @property
    def _files(self) -> LmdbReplica:
        assert self._replica is not None  # noqa: S101 - taken() has opened it
        return self._replica

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


class CopyWriter:
    """A writer that fills a copy.

    Args:
        copy: The copy.
        topology: The topology.
        config: The application's settings.
        sensor: The sensor of the task that fills the stores.
        clock: The wall clock, in milliseconds.
    """

    def __init__(
        self,
        copy: GlobalCopy,
        topology: Topology,
        config: StreamsConfig,
        sensor: Sensor,
        clock: Callable[[], int] = unix_ms,
    ) -> None:
        self._copy = copy
        self._sensor = sensor
        self._state = TaskOverlay(NO_BATCH, dict.fromkeys(sorted(topology.global_stores), MemoryMap()), {})
        if sensor.detailed:
            count_calls(self._state)
        self._filler = GlobalFiller(topology, config, self._state, sensor, clock)

    def begin(self) -> None:
        """Go on over the rows that the copy shows."""
        self._copy.rebase(self._state)

    def apply(self, tp: TopicPartition, piece: list[pa.RecordBatch]) -> None:
        """Process records, and commit their rows with the positions behind them: what is noted is in the rows."""
        for records in piece:
            self._filler.apply(tp, records)
        if piece:
            self._copy.positions[tp] = int(piece[-1].column("offset")[-1].as_py()) + 1
        changes = self._state.sorted_changes()
        began = time.perf_counter()
        self._copy.write(changes, self._state.meta)
        self._sensor.on_store_calls(GLOBAL_TASK, take_calls(self._state))
        self._sensor.on_flushed(GLOBAL_TASK, volumes_of_changes(changes), time.perf_counter() - began)
        self._copy.show()
        self._copy.rebase(self._state)

    def close(self) -> None:
        """Close the user's processors."""
        self._filler.close()


class GlobalStores:
    """Global stores at given offsets, which a batch or a query sees, on every machine and at every repetition the same.

    Args:
        topology: The whole topology.
        config: The application's settings.
        log: The log with the topics, open; see `read_from`.
        root: The machine's directory of copies.
        identity: The identity of the copy's contents; a copy with another identity is emptied.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, log: TopicLog, root: str, identity: str) -> None:
        self._topology = topology
        self._config = config
        self._log = log
        topics = source_topics(topology, [t.name for t in log.topics()])
        self.topics = sorted({t for name in topology.global_nodes if name in topics for t in topics[name]})
        with_headers = [name for name in sorted(topology.global_stores) if topology.stores[name].keeps_headers]
        full = f"{identity} keeps_headers {' '.join(with_headers)}" if with_headers else identity
        self._copy = GlobalCopy(topology, global_place(root, identity), full)
        self._ends: Mapping[TopicPartition, int] | None = None
        self.views = self._copy.views

    def read_from(self, log: TopicLog) -> None:
        """Read from this log from now on: the same one, opened again."""
        self._log = log

    def move_to(self, ends: Mapping[TopicPartition, int] | None = None, sensor: Sensor | None = None) -> bool:
        """Bring the copy, which `views` shows, to these offsets.

        Args:
            ends: The offsets; None: the present ends of its topics.
            sensor: Its methods are called for each event of the task that fills the stores.

        Returns:
            Whether other rows are shown than before.
        """
        if ends is not None and ends == self._ends and self._copy.is_there() and self._is_noted_lately():
            return False
        self._ends = None
        with self._copy.taken():
            ends = self._log.end_offsets(self.topics) if ends is None else ends
            self._copy.begin(self._log, self.topics, self._log.topic_ids(self.topics), ends)
            writer = CopyWriter(self._copy, self._topology, self._config, sensor or Sensor())
            try:
                writer.begin()
                for tp, end in sorted(ends.items()):
                    for piece in pieces_of(self._log.iterate(tp.topic, tp.partition, self._copy.positions[tp], end)):
                        writer.apply(tp, piece)
                if ends and not self._is_noted_lately():  # that nothing was missed until now
                    self._copy.positions.update(ends)
                    writer.apply(next(iter(ends)), [])
            finally:
                writer.close()
        self._ends = dict(ends)
        return True

    def _is_noted_lately(self) -> bool:
        age_ms = self._copy.noted_for_ms()
        return age_ms is not None and age_ms < _NOTED_FOR_MS

    def close(self) -> None:
        """Close the files."""
        self._ends = None
        self._copy.close()
