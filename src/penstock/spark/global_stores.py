"""Global stores: one copy for all tasks of a machine, filled from the whole of their topics.

Before a task runs, the copy is brought to the present end of those topics, as Kafka's global thread does before it lets
the others start. Tasks read it as of that moment; nothing about it is kept in their segments, for the topics are the
truth and the copy is rebuilt from them wherever it is missing.
"""

from __future__ import annotations

import fcntl
import hashlib
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.plan.partitions import source_topics
from penstock.runtime.task import StreamTask, TopicBatch
from penstock.state.overlay import BatchState
from penstock.state.replica import Position, Replica, ReplicaReader

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from penstock.config import StreamsConfig
    from penstock.log.base import TopicPartition
    from penstock.log.embedded import EmbeddedLog
    from penstock.spark.job import SparkJob
    from penstock.state.base import ByteMap, TaskState
    from penstock.topology.topology import Topology

__all__ = ["GlobalStores", "WithGlobals", "global_stores"]

_TASK = "-1_0"
_OFFSET = "offset/"


class GlobalStores:
    """The global stores of an application in this process; the files are shared with the machine's other ones.

    Args:
        topology: The whole topology.
        config: The application's settings.
        log: Where the topics are.
        root: The machine's directory of replicas.
        identity: What the copy must be a copy of; another identity empties it.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, log: EmbeddedLog, root: str, identity: str) -> None:
        self._topology = topology
        self._config = config
        self._log = log
        topics = source_topics(topology, [t.name for t in log.topics()])
        groups = [group for group in topology.node_groups if topology.is_global(group)]
        self._nodes = {name for group in groups for name in group}
        self._topics = sorted({t for name in self._nodes if name in topics for t in topics[name]})
        self._names = sorted(topology.global_stores)
        place = hashlib.blake2b(identity.encode(), digest_size=6).hexdigest()
        self._directory = Path(root) / f"global-{place}"
        self._identity = identity
        self._replica: Replica | None = None
        self._reader: ReplicaReader | None = None
        self.state: BatchState | None = None

    def refresh(self) -> BatchState:
        """Brings the copy to the end of its topics and gives its contents as of now.

        The same object every time: views that were opened on it see the new contents.
        """
        with self._alone():
            self._close_reader()
            replica = self._opened()
            try:
                ends = self._log.end_offsets(self._topics)
                beginnings = self._log.beginning_offsets(self._topics)
                if any(_offset(replica, tp) > end for tp, end in ends.items()):
                    replica.reset()  # a topic that was deleted and made anew
                for tp, end in ends.items():
                    start = max(_offset(replica, tp), beginnings[tp])
                    for records in self._log.iterate(tp.topic, tp.partition, start, end):
                        last = int(records.column("offset")[-1].as_py())
                        self._apply(replica, TopicBatch(tp.topic, tp.partition, records), tp, last + 1)
                return self._read(replica)
            finally:
                replica.release()

    def close(self) -> None:
        """Closes the files."""
        self._close_reader()
        if self._replica is not None:
            self._replica.close()
            self._replica = None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While no other process of the machine is at it."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / "turn.lock").open("wb") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            yield

    def _opened(self) -> Replica:
        if self._replica is not None:
            if self._replica.retake():
                return self._replica
            self._replica.close()
        self._replica = Replica(self._directory, self._identity, self._names)
        return self._replica

    def _apply(self, replica: Replica, batch: TopicBatch, tp: TopicPartition, following: int) -> None:
        reader = replica.reader()
        try:
            at = replica.position
            state = BatchState(at.batch + 1, {name: reader.map(name) for name in self._names}, at.meta)
            task = StreamTask(self._topology, self._config, _TASK, state, nodes=self._nodes, partitions={})
            task.process([batch], int(time.time() * 1000))
            task.close()
            changes = state.sorted_changes()
        finally:
            reader.close()
        meta = {**state.meta, _name(tp): following}
        pieces = {name: [(rows.column(0).to_pylist(), rows.column(1).to_pylist())] for name, rows in changes.items()}
        replica.apply(list(pieces), pieces.__getitem__, Position(at.batch + 1, meta=meta))

    def _read(self, replica: Replica) -> BatchState:
        self._reader = reader = replica.reader()
        maps = {name: reader.map(name) for name in self._names}
        if self.state is None:
            self.state = BatchState(replica.position.batch, maps, replica.position.meta)
        else:
            self.state.rebase(replica.position.batch, maps, replica.position.meta)
        return self.state

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class WithGlobals:
    """The state of a task together with the global stores: a `TaskState`."""

    def __init__(self, own: TaskState, shared: BatchState, names: frozenset[str]) -> None:
        self._own = own
        self._shared = shared
        self._names = names

    def map(self, store: str) -> ByteMap:
        return self._shared.map(store) if store in self._names else self._own.map(store)

    @property
    def meta(self) -> MutableMapping[str, int]:
        return self._own.meta


_kept: OrderedDict[tuple[str, int, str], GlobalStores] = OrderedDict()
_MOST = 4  # applications


def global_stores(job: SparkJob, log: EmbeddedLog) -> GlobalStores:
    """Those of an application, opened once a process."""
    identity = f"{job.plan.application_id} {job.checkpoint} {job.fingerprint}"
    key = (identity, job.epoch, job.program_id)
    found = _kept.get(key)
    if found is None:
        for other in [k for k in _kept if k[0] == identity] + list(_kept)[: max(0, len(_kept) + 1 - _MOST)]:
            if other in _kept:
                _kept.pop(other).close()
        found = _kept[key] = GlobalStores(job.topology, job.config, log, job.replica_root, identity)
    return found


def _name(tp: TopicPartition) -> str:
    return f"{_OFFSET}{tp.topic}-{tp.partition}"


def _offset(replica: Replica, tp: TopicPartition) -> int:
    return replica.position.meta.get(_name(tp), 0)
