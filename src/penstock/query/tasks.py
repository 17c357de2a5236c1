"""The committed state of one task, at whatever batch a query asks for.

What lies below is a replica: if a worker of this machine keeps one, that is read, without being in its way; else this
process keeps one of its own, which follows the segments. What the replica does not hold yet lies over it in layers. A
worker's replica is never far behind, so hardly anything has to be read and nothing is written; a replica of one's own
is brought on only when the layers over it have become many.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb

from penstock.errors import CheckpointMismatchError, MissingSegmentError, StateError
from penstock.query.layers import Layer, LayeredMap
from penstock.state.recovery import catch_up
from penstock.state.replica import Position, Replica, replica_place
from penstock.state.segments import Segment, SegmentName, unpack
from penstock.state.storage import SegmentStorage, open_storage
from penstock.state.watching import WatchedReplica, WatchingReader, watch_replicas

if TYPE_CHECKING:
    from penstock.state.overlay import ReadableMap

__all__ = ["AheadError", "TaskReader", "TaskView"]

_log = logging.getLogger(__name__)
_MOST_LAYERS = 32
_MOST_BYTES = 32 << 20
_LISTED_GAP = 16  # from so many batches on, the storage is asked what there is, rather than for each of them
_MAP_BYTES = 1 << 38  # addresses only: LMDB could not map the file anew while queries read it
_LOOK_FOR_WORKERS_S = 2.0
_PATIENCE_S = 10.0
_MOST_READERS = 100  # of a partition and process; LMDB has 512 places for all, and the worker needs one


class AheadError(Exception):
    """The replica holds more than the batch that is asked for; only inside this package."""


class _Below:
    """An open replica, and how many views are reading it: it is closed when nobody does any more."""

    def __init__(self, replica: WatchedReplica | Replica) -> None:
        self.replica = replica
        self.source = "worker" if isinstance(replica, WatchedReplica) else "own"
        self._readers = 0
        self._retired = False
        self._changed = threading.Condition()
        if isinstance(replica, Replica):
            replica.quiesce = self._wait

    def reader(self) -> tuple[Any, Position]:
        """A consistent view, and how far it is; to be given to `release`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._readers < _MOST_READERS, _PATIENCE_S):
                raise StateError(
                    f"{_MOST_READERS} queries are reading one partition, and none has ended for {_PATIENCE_S:.0f} s",
                    hint="Read iterators to their end, or close() them.",
                )
            self._readers += 1
        try:
            reader = self.replica.reader()
        except BaseException:
            self.release(None)
            raise
        if isinstance(reader, WatchingReader):
            return reader, reader.position
        assert isinstance(self.replica, Replica)  # noqa: S101 - only its owner moves it, under the lock of views
        return reader, self.replica.position

    def release(self, reader: Any) -> None:
        if reader is not None:
            reader.close()
        with self._changed:
            self._readers -= 1
            self._changed.notify_all()
            last = self._retired and not self._readers
        if last:
            self.replica.close()

    def retire(self) -> None:
        """No new views; it is closed after the last one."""
        with self._changed:
            self._retired = True
            idle = not self._readers
        if idle:
            self.replica.close()

    def _wait(self) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: not self._readers, _PATIENCE_S):
                raise StateError(
                    "the query replica has to be rebuilt, but a query has been reading it for too long",
                    hint="Read iterators to their end, or close() them.",
                )


@dataclass(slots=True)
class TaskView:
    """One task's stores at the end of a batch; to be closed.

    Attributes:
        below: The replica below.
        reader: What is read of it.
        layers: What is over it.
        meta: The task's numbers.
    """

    below: _Below
    reader: Any
    layers: tuple[Layer, ...]
    meta: Mapping[str, int]

    @property
    def source(self) -> str:
        """Where the replica is: "worker" or "own"."""
        return self.below.source

    def map(self, store: str) -> ReadableMap:
        """The rows of one store."""
        rows = [found for layer in self.layers if (found := layer.rows(store)) is not None]
        below: ReadableMap = self.reader.map(store)
        return LayeredMap(below, rows) if rows else below

    def close(self) -> None:
        self.below.release(self.reader)


class TaskReader:
    """Gives views of one task; several threads may use it.

    Args:
        checkpoint: Where the segments are.
        application_id: Segments of another application are refused.
        task_id: The task.
        stores: Its stores.
        worker_root: Where workers of this machine keep replicas; None: there are none.
        own_root: Where this process may keep replicas.
    """

    def __init__(
        self,
        checkpoint: str,
        application_id: str,
        task_id: str,
        stores: tuple[str, ...],
        *,
        worker_root: Path | None,
        own_root: Path,
    ) -> None:
        self._storage: SegmentStorage = open_storage(checkpoint, task_id)
        self._application_id = application_id
        self._task_id = task_id
        self._stores = stores
        place = None if worker_root is None else replica_place(worker_root, application_id, checkpoint, task_id)
        self._workers = place
        self._identity, self._own_directory = replica_place(own_root, application_id, checkpoint, task_id)
        self._below: _Below | None = None
        self._layers: list[Layer] = []
        self._seen = -1  # segments up to this batch are in the replica, in the layers, or were never written
        self._looked = float("-inf")
        self._lock = threading.RLock()

    def view(self, target: int, *, insist: bool = False) -> TaskView:
        """The state at the end of batch ``target``, which is committed.

        Args:
            target: A batch, as segments are numbered.
            insist: Rather than to raise AheadError, rebuild the state from the segments.

        Raises:
            AheadError: The replica is further on; ask again for a newer batch.
            StateError: Segments are lost or damaged.
        """
        with self._lock:
            try:
                found = self._try(target)
            except AheadError:
                if not insist:
                    raise
                self._looked = time.monotonic()  # not the worker's
                self._retire()
                found = None
            if found is None:
                self._rebase(target)
                found = self._try(target)
            if found is None:
                raise MissingSegmentError(
                    f"the segments of task {self._task_id} do not follow one another up to batch {target}",
                    hint="Ask again: segments may have been replaced by a snapshot just now. If that does not help, "
                    "one is lost: bring it back from a backup.",
                    task=self._task_id,
                    batch=target,
                )
            return found

    def _try(self, target: int) -> TaskView | None:
        """A view; None if what is open does not reach the batch."""
        below = self._below
        if below is None:
            return None
        try:
            if not below.replica.is_there():
                raise FileNotFoundError
            reader, position = below.reader()
        except (lmdb.Error, OSError):
            self._retire()
            return None
        try:
            if position.batch > target:
                raise AheadError  # noqa: TRY301 - the reader is closed below
            layers = self._collect(position, target)
        except BaseException:
            below.release(reader)
            raise
        if layers is None:
            below.release(reader)
            return None
        return TaskView(below, reader, layers, layers[-1].meta if layers else position.meta)

    def _collect(self, position: Position, target: int) -> tuple[Layer, ...] | None:
        """The layers up to ``target``; None if they have become too many, or do not follow the replica."""
        if self._seen < position.batch:
            self._layers, self._seen = [], position.batch
        layers = [layer for layer in self._layers if layer.batch > position.batch]
        for batch in self._missing(target):
            segment = self._read(SegmentName(batch, "delta"))
            if segment is not None:
                layers.append(Layer(segment))
            if len(layers) > _MOST_LAYERS or sum(layer.size_bytes for layer in layers) > _MOST_BYTES:
                return None
        following = (position.head, position.checksum)
        kept: list[Layer] = []
        for layer in layers:
            if layer.previous != following and kept and layer.previous == kept[-1].previous:
                kept.pop()  # it came too late: its batch was committed as an empty one, and nothing builds on it
            elif layer.previous != following:
                return None
            kept.append(layer)
            following = (layer.batch, layer.checksum)
        self._layers, self._seen = kept, max(target, self._seen)
        return tuple(layer for layer in kept if layer.batch <= target)

    def _missing(self, target: int) -> list[int]:
        if target - self._seen <= _LISTED_GAP:
            return list(range(self._seen + 1, target + 1))
        names = self._storage.names()
        return [name.batch for name in names if name.kind == "delta" and self._seen < name.batch <= target]

    def _rebase(self, target: int) -> None:
        """Finds a replica that is nearer to ``target``: a worker's, or one of its own."""
        self._layers, self._seen = [], -1
        if self._watch(target):
            return
        if self._below is None or not isinstance(self._below.replica, Replica):
            self._retire()
            own = Replica(self._own_directory, self._identity, self._stores, map_bytes=_MAP_BYTES)
            self._below = _Below(own)
        replica = self._below.replica
        assert isinstance(replica, Replica)  # noqa: S101 - there is no worker's
        try:
            catch_up(replica, self._storage, target, self._read)
        except (MissingSegmentError, lmdb.Error) as error:
            # A snapshot may have replaced segments between listing and reading them; or the replica is damaged.
            _log.info("The query replica %s is rebuilt: %s", replica.directory, error)
            replica.reset()
            catch_up(replica, self._storage, target, self._read)
        if replica.position.batch < target:
            replica.position = replace(replica.position, batch=target)  # empty batches

    def _watch(self, target: int) -> bool:
        """Takes the worker's replica that is nearest to ``target``; False if none is near enough.

        Raises:
            AheadError: A worker has gone on already: a newer batch must have been committed.
        """
        now = time.monotonic()
        if self._workers is None or now - self._looked < _LOOK_FOR_WORKERS_S:
            return False
        self._looked = now
        before, self._below = self._below, None
        if before is not None and before.source == "worker":
            before.retire()
            before = None
        best: tuple[int, WatchedReplica] | None = None
        is_ahead = False
        for replica in watch_replicas(self._workers[1], self._workers[0], self._stores):
            reader = replica.reader()
            batch = reader.position.batch
            reader.close()
            is_ahead = is_ahead or batch > target
            if batch > target or (best is not None and best[0] >= batch):
                replica.close()
                continue
            if best is not None:
                best[1].close()
            best = (batch, replica)
        if best is not None:
            self._below = _Below(best[1])
            found = None
            try:
                found = self._try(target)
            except AheadError:
                is_ahead = True
            except StateError as error:
                _log.debug("The replica of a worker is of no use: %s", error)
            if found is not None:
                found.close()
                if before is not None:
                    before.retire()
                return True
            self._retire()
        self._below, self._layers, self._seen = before, [], -1
        if is_ahead:
            self._looked = float("-inf")
            raise AheadError
        return False

    def _retire(self) -> None:
        if self._below is not None:
            self._below.retire()
            self._below = None
        self._layers, self._seen = [], -1

    def close(self) -> None:
        """Closes the files when the last view of it is closed."""
        with self._lock:
            self._retire()

    def _read(self, name: SegmentName) -> Segment | None:
        data = self._storage.read(name)
        if data is None:
            return None
        segment = unpack(data, self._storage.where(name))
        if (segment.head.application_id, segment.head.task_id) != (self._application_id, self._task_id):
            raise CheckpointMismatchError(
                f"segment {segment.where} is of task {segment.head.task_id} of application "
                f"{segment.head.application_id!r}, not of task {self._task_id} of {self._application_id!r}",
                hint="Name the application whose checkpoint this is.",
                segment=segment.where,
            )
        return segment
