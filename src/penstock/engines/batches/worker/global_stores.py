"""Global stores: one copy for all tasks of a machine, filled from the whole of their topics.

A batch's offsets include the position of the copy: the ends of those topics when the batch was planned. So all tasks of
a batch see the same contents, on every machine, and a batch that runs again sees what it saw. The first process that
runs one of its tasks brings the machine's copy there. Segments hold nothing of it, as the topics are the truth: the
copy is rebuilt from them wherever it is missing, or further on than a batch that has to run again.
"""

from __future__ import annotations

import fcntl
import hashlib
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.base.clock import unix_ms
from penstock.runtime.context import Surroundings
from penstock.runtime.global_stores import GLOBAL_TASK, GlobalViews
from penstock.runtime.sensor import Sensor
from penstock.runtime.task import StreamTask, TaskPart, TopicBatch
from penstock.state.counted_overlay import count_calls, take_calls
from penstock.state.memory import MemoryMap
from penstock.state.overlay import TaskOverlay
from penstock.state.own_folder import open_lock, own_folder
from penstock.state.replicas.folders import global_place
from penstock.state.replicas.lmdb_replica import LmdbReplica, LmdbRows
from penstock.state.replicas.position import ReplicaPosition
from penstock.topology.plan.partitions import source_topics

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.config import StreamsConfig
    from penstock.engines.spark.job import SparkJob
    from penstock.log.base import TopicLog, TopicPartition
    from penstock.topology.topology import Topology

__all__ = ["GlobalStores", "global_stores"]

_OFFSET = "offset/"
_TOPIC = "topic/"
_PIECE_RECORDS = 50_000


class GlobalStores:
    """The global stores of an application in this process; the files are shared with the machine's other processes.

    Args:
        topology: The whole topology.
        config: The application's settings.
        log: The log with the topics, open; see `read_from`.
        root: The machine's directory of replicas.
        identity: The identity of the copy's contents; a copy with another identity is emptied.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, log: TopicLog, root: str, identity: str) -> None:
        self._topology = topology
        self._config = config
        self._log = log
        topics = source_topics(topology, [t.name for t in log.topics()])
        self._nodes = topology.global_nodes
        self.topics = sorted({t for name in self._nodes if name in topics for t in topics[name]})
        self._names = sorted(topology.global_stores)
        self._directory = global_place(root, identity)
        with_headers = [name for name in self._names if topology.stores[name].keeps_headers]
        self._identity = f"{identity} keeps_headers {' '.join(with_headers)}" if with_headers else identity
        self._replica: LmdbReplica | None = None
        self._reader: LmdbRows | None = None
        self._ends: Mapping[TopicPartition, int] | None = None
        self._meta: dict[str, int] = {}
        specs = {name: topology.stores[name] for name in self._names}
        self.views = GlobalViews(specs, dict.fromkeys(specs, MemoryMap()), self._meta)

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
        if ends is not None and ends == self._ends and self._replica is not None and self._replica.is_there():
            return False
        with self._locked():
            self._close_reader()
            replica = self._opened()
            try:
                ends = self._log.end_offsets(self.topics) if ends is None else ends
                beginnings = self._log.beginning_offsets(self.topics)
                ids = self._log.topic_ids(self.topics)
                if any(_offset(replica, tp) > end for tp, end in ends.items()) or _has_recreated_topic(replica, ids):
                    replica.reset()
                for tp, end in sorted(ends.items()):
                    start = max(_offset(replica, tp), beginnings[tp])
                    for piece in _pieces(self._log.iterate(tp.topic, tp.partition, start, end)):
                        self._apply(replica, tp, piece, ids.get(tp.topic), sensor or Sensor())
                self._show(replica)
            finally:
                replica.release()
        self._ends = dict(ends)
        return True

    def close(self) -> None:
        """Close the files."""
        self._close_reader()
        if self._replica is not None:
            self._replica.close()
            self._replica = None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the machine's lock on the copy."""
        own_folder(self._directory)
        with open_lock(self._directory / "turn.lock") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            yield

    def _opened(self) -> LmdbReplica:
        if self._replica is not None:
            if self._replica.is_there() and self._replica.retake():
                return self._replica
            self._replica.close()
        self._replica = LmdbReplica(self._directory, self._identity, self._names)
        return self._replica

    def _apply(
        self, replica: LmdbReplica, tp: TopicPartition, records: list[pa.RecordBatch], id_: str | None, sensor: Sensor
    ) -> None:
        reader = replica.reader()
        try:
            at = replica.position
            state = TaskOverlay(at.batch + 1, {name: reader.map(name) for name in self._names}, at.meta)
            if sensor.detailed:
                count_calls(state)
            part = TaskPart(GLOBAL_TASK, {}, self._nodes)
            task = StreamTask(self._topology, self._config, part, state, Surroundings(sensor))
            batches = [TopicBatch(tp.topic, tp.partition, batch) for batch in records]
            task.process(batches, unix_ms())
            task.close()
            changes = state.sorted_changes()
        finally:
            reader.close()
        meta = {**state.meta, _name(tp): int(records[-1].column("offset")[-1].as_py()) + 1}
        meta |= {} if id_ is None else {_TOPIC + tp.topic: _number(id_)}
        pieces = {name: [(rows.column(0).to_pylist(), rows.column(1).to_pylist())] for name, rows in changes.items()}
        began = time.perf_counter()
        replica.apply(list(pieces), pieces.__getitem__, ReplicaPosition(at.batch + 1, meta=meta))
        sensor.on_store_calls(GLOBAL_TASK, take_calls(state))
        sensor.on_flushed(GLOBAL_TASK, changes, time.perf_counter() - began)

    def _show(self, replica: LmdbReplica) -> None:
        self._reader = reader = replica.reader()
        self._meta.clear()
        self._meta.update(replica.position.meta)
        self.views.rebase({name: reader.map(name) for name in self._names})

    def _close_reader(self) -> None:
        self._ends = None
        if self._reader is not None:
            self.views.rebase(dict.fromkeys(self._names, MemoryMap()))
            self._reader.close()
            self._reader = None


_opened: OrderedDict[tuple[str, int, str], GlobalStores] = OrderedDict()
_MOST = 4  # applications


def global_stores(job: SparkJob, log: TopicLog) -> GlobalStores:
    """Return the global stores of an application, opened once in a process."""
    identity = f"{job.plan.application_id} {job.checkpoint} {job.fingerprint}"
    key = (identity, job.epoch, job.app_digest)
    stores = _opened.get(key)
    if stores is not None:
        stores.read_from(log)  # this process closes logs when it has many
        _opened.move_to_end(key)
    else:
        for other in [k for k in _opened if k[0] == identity] + list(_opened)[: max(0, len(_opened) + 1 - _MOST)]:
            if other in _opened:
                _opened.pop(other).close()
        stores = _opened[key] = GlobalStores(job.topology, job.config, log, job.replica_root, identity)
    return stores


def _pieces(stored: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Group stored batches into pieces that are worth a transaction of the copy."""
    piece: list[pa.RecordBatch] = []
    for batch in stored:
        piece.append(batch)
        if sum(each.num_rows for each in piece) >= _PIECE_RECORDS:
            yield piece
            piece = []
    if piece:
        yield piece


def _name(tp: TopicPartition) -> str:
    return f"{_OFFSET}{tp.topic}-{tp.partition}"


def _offset(replica: LmdbReplica, tp: TopicPartition) -> int:
    return replica.position.meta.get(_name(tp), 0)


def _has_recreated_topic(replica: LmdbReplica, ids: Mapping[str, str]) -> bool:
    """Return whether the copy was made from a topic that has been deleted and created again since."""
    meta = replica.position.meta
    return any(meta.get(_TOPIC + topic, _number(id_)) != _number(id_) for topic, id_ in ids.items())


def _number(id_: str) -> int:
    """Convert a topic's id to a number, as a copy can note only numbers."""
    return int.from_bytes(hashlib.blake2b(id_.encode(), digest_size=7).digest(), "big")
