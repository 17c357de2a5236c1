"""The committed state of one task, at a given batch, and replicas that many queries read at once.

The base is a replica: one of a worker on this machine if there is one, read without blocking it; else one of this
process, which follows the segments. Changes that the replica does not have yet are layers over it. A worker's replica
is never far behind, so there is little to read and nothing to write; a replica of this process is updated only when it
has many layers.
"""

from __future__ import annotations

import errno
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb

from penstock.base.log_lines import own_logger
from penstock.errors import CheckpointMismatchError, MissingSegmentError, StateError
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica, replica_place
from penstock.state.lmdb_replicas.other_process import WatchedReplica, watch_replicas
from penstock.state.maps import Entries, ReadableMap, ReplicaPosition, merged
from penstock.state.restores.replica_restore import catch_up
from penstock.state.restores.restore_progress import CatchUpSteps
from penstock.state.segments.segment import Segment, SegmentName
from penstock.state.segments.storage import SegmentStorage, open_storage, read_segment

__all__ = ["AheadError", "Layer", "LayeredMap", "ReplicaFolders", "SharedReplica", "TaskReader", "TaskView"]

_PATIENCE_S = 10.0
_MOST_READERS = 100  # of a partition and process; LMDB has 512 slots for all, and the worker needs one


class SharedReplica:
    """An open replica and its number of readers: once retired, it is closed after the last one."""

    def __init__(self, replica: WatchedReplica | LmdbReplica) -> None:
        self.replica = replica
        self.source = "worker" if isinstance(replica, WatchedReplica) else "own"
        self._readers = 0
        self._retired = False
        self._changed = threading.Condition()
        self._opening = threading.Lock()  # LMDB lets one thread open its databases at a time
        if isinstance(replica, LmdbReplica):
            replica.quiesce = self._wait

    def reader(self) -> tuple[Any, ReplicaPosition]:
        """Return a consistent view, to be passed to `release`, and its position.

        Raises:
            OSError: It is retired.
            StateError: Too many queries read it.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._readers < _MOST_READERS, _PATIENCE_S):
                raise StateError(
                    f"{_MOST_READERS} queries are reading one partition, and none has ended for {_PATIENCE_S:.0f} s",
                    hint="Read iterators to their end, or close() them.",
                )
            if self._retired:
                raise OSError(errno.EBADF, "the replica is closed")
            self._readers += 1
        try:
            with self._opening:
                reader = self.replica.reader()
        except BaseException:
            self.release(None)
            raise
        return reader, reader.position

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
        """Close it after its last reader."""
        with self._changed:
            self._retired = True
            idle = not self._readers
        if idle:
            self.replica.close()

    def _wait(self) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: not self._readers, _PATIENCE_S):
                raise StateError(
                    "the query replica must be rebuilt, but a query has been reading it for too long",
                    hint="Read iterators to their end, or close() them.",
                )


_log = own_logger(__name__)
_MOST_LAYERS = 32
_MOST_BYTES = 32 << 20
_LISTED_GAP = 16  # from so many batches on, the storage is listed rather than asked for each segment
_MAP_BYTES = 1 << 38  # address space only: LMDB could not resize the map while queries read it
_LOOK_FOR_WORKERS_S = 2.0
Rows = tuple[list[bytes], list[bytes | None]]


class AheadError(Exception):
    """The replica is ahead of the requested batch; internal to this package."""


@dataclass(slots=True)
class TaskView:
    """One task's stores at the end of a batch; close it.

    Attributes:
        below: The replica.
        reader: The consistent view of the replica.
        layers: The changes over it.
        meta: The task's numbers.
    """

    below: SharedReplica
    reader: Any
    layers: tuple[Layer, ...]
    meta: Mapping[str, int]

    @property
    def source(self) -> str:
        """The owner of the replica: "worker" or "own"."""
        return self.below.source

    def map(self, store: str) -> ReadableMap:
        """Return the rows of one store."""
        rows = [layer_rows for layer in self.layers if (layer_rows := layer.rows(store)) is not None]
        below: ReadableMap = self.reader.map(store)
        return LayeredMap(below, rows) if rows else below

    def close(self) -> None:
        self.below.release(self.reader)


@dataclass(frozen=True, slots=True)
class ReplicaFolders:
    """The directories of replicas.

    Attributes:
        own: For replicas of this process.
        workers: Of this machine's workers; None: there are none.
    """

    own: str | Path
    workers: str | Path | None = None


class TaskReader:
    """A reader of one task's state; thread-safe.

    Args:
        checkpoint: The location of the segments.
        application_id: Segments of another application are refused.
        task_id: The task.
        stores: Its stores.
        replicas: The directories of replicas.
    """

    def __init__(
        self,
        checkpoint: str,
        application_id: str,
        task_id: str,
        stores: tuple[str, ...],
        replicas: ReplicaFolders,
    ) -> None:
        self._storage: SegmentStorage = open_storage(checkpoint, task_id)
        self._application_id = application_id
        self._task_id = task_id
        self._stores = stores
        of_task = (application_id, checkpoint, task_id)
        self._workers = None if replicas.workers is None else replica_place(Path(replicas.workers), *of_task)
        self._identity, self._own_directory = replica_place(Path(replicas.own), *of_task)
        self._below: SharedReplica | None = None
        self._layers: list[Layer] = []
        self._seen = -1  # segments up to this batch are in the replica, in the layers, or were never written
        self._looked = float("-inf")
        self._lock = threading.RLock()

    def view(self, target: int, *, insist: bool = False) -> TaskView:
        """Open the state at the end of batch ``target``, which is committed.

        Args:
            target: A batch, as segments are numbered.
            insist: Rebuild the state from the segments instead of raising AheadError.

        Raises:
            AheadError: The replica is ahead; try again with a newer batch.
            StateError: Segments are lost or damaged.
        """
        with self._lock:
            try:
                task_view = self._try(target)
            except AheadError:
                if not insist:
                    raise
                self._looked = time.monotonic()  # not the worker's
                self._retire()
                task_view = None
            if task_view is None:
                self._rebase(target)
                task_view = self._try(target)
            if task_view is None:
                raise MissingSegmentError(
                    f"the segments of task {self._task_id} do not follow one another up to batch {target}",
                    hint="Try again: segments may have been replaced by a snapshot just now. If that does not help, "
                    "one is lost: restore it from a backup.",
                    task=self._task_id,
                    batch=target,
                )
            return task_view

    def _try(self, target: int) -> TaskView | None:
        """Open a view; None if the open replica and its layers do not reach the batch."""
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

    def _collect(self, position: ReplicaPosition, target: int) -> tuple[Layer, ...] | None:
        """Return the layers up to ``target``; None if they are too many, or do not follow the replica."""
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
                kept.pop()  # it came too late: its batch was committed as empty, and nothing builds on it
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
        """Switch to a replica that is nearer to ``target``: a worker's, or one of its own."""
        self._layers, self._seen = [], -1
        if self._watch(target):
            return
        if self._below is None or not isinstance(self._below.replica, LmdbReplica):
            self._retire()
            own = LmdbReplica(self._own_directory, self._identity, self._stores, map_bytes=_MAP_BYTES)
            self._below = SharedReplica(own)
        replica = self._below.replica
        assert isinstance(replica, LmdbReplica)  # noqa: S101 - there is no worker's
        try:
            catch_up(replica, self._storage, target, self._read, CatchUpSteps())
        except (MissingSegmentError, lmdb.Error) as error:
            # A snapshot may have replaced segments between listing and reading them; or the replica is damaged.
            _log.info("The query replica %s is rebuilt: %s", replica.directory, error)
            replica.reset()
            catch_up(replica, self._storage, target, self._read, CatchUpSteps())
        if replica.position.batch < target:
            replica.position = replace(replica.position, batch=target)  # empty batches

    def _watch(self, target: int) -> bool:
        """Switch to the worker's replica that is nearest to ``target``; False if none is near enough.

        Raises:
            AheadError: A worker is ahead: a newer batch must have been committed.
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
            self._below = SharedReplica(best[1])
            view = None
            try:
                view = self._try(target)
            except AheadError:
                is_ahead = True
            except StateError as error:
                _log.debug("The replica of a worker is not usable: %s", error)
            if view is not None:
                view.close()
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
        """Close the files after the last view is closed."""
        with self._lock:
            self._retire()

    def _read(self, name: SegmentName) -> Segment | None:
        segment = read_segment(self._storage, name)
        if segment is None:
            return None
        if (segment.head.application_id, segment.head.task_id) != (self._application_id, self._task_id):
            raise CheckpointMismatchError(
                f"segment {segment.where} is of task {segment.head.task_id} of application "
                f"{segment.head.application_id!r}, not of task {self._task_id} of {self._application_id!r}",
                hint="Name the application that owns this checkpoint.",
                segment=segment.where,
            )
        return segment


class Layer:
    """One segment; the changes of a store are decoded on first use."""

    __slots__ = ("_rows", "_segment", "batch", "checksum", "meta", "previous", "size_bytes")

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._rows: dict[str, Rows | None] = {}
        self.batch = segment.batch
        self.checksum = segment.checksum
        self.previous = (segment.head.previous, segment.head.previous_checksum)
        self.meta = segment.head.meta
        self.size_bytes = segment.size_bytes

    def rows(self, store: str) -> Rows | None:
        """Return a store's keys in byte order and values (None deletes); None if it has no changes."""
        if store not in self._rows:
            keys: list[bytes] = []
            values: list[bytes | None] = []
            for some_keys, some_values in self._segment.changes(store):
                keys += some_keys
                values += some_values
            self._rows[store] = (keys, values) if keys else None
        return self._rows[store]


class LayeredMap:
    """A readable map: a base, and the rows of layers over it, the newest last."""

    __slots__ = ("_base", "_layers")

    def __init__(self, base: ReadableMap, layers: Sequence[Rows]) -> None:
        self._base = base
        self._layers = layers

    def __len__(self) -> int:
        newest: dict[bytes, bytes | None] = {}
        for keys, values in self._layers:
            newest.update(zip(keys, values, strict=True))
        below = self._base.get_many(list(newest))
        there = zip(newest.values(), below, strict=True)
        return len(self._base) + sum((new is not None) - (old is not None) for new, old in there)

    def get(self, key: bytes) -> bytes | None:
        for keys, values in reversed(self._layers):
            at = bisect_left(keys, key)
            if at < len(keys) and keys[at] == key:
                return values[at]
        return self._base.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys] if self._layers else self._base.get_many(keys)

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the entries with start <= key < end in byte order."""
        entries = self._base.scan(start, end, reverse=reverse)
        for keys, values in self._layers:
            low = 0 if start is None else bisect_left(keys, start)
            high = len(keys) if end is None else bisect_left(keys, end)
            own = list(zip(keys[low:high], values[low:high], strict=True))
            if own:
                entries = merged(own[::-1] if reverse else own, entries, reverse=reverse)
        return entries

    def scan_many(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        if not self._layers:
            return self._base.scan_many(ranges)
        return [list(self.scan(start, end)) for start, end in ranges]

    def read(self, start: bytes, end: bytes, limit: int) -> Entries | None:
        """Return the keys and values of `scan`; None if there are more than ``limit``."""
        if not self._layers:
            return self._base.read(start, end, limit)
        entries = list(islice(self.scan(start, end), limit + 1))
        return None if len(entries) > limit else ([key for key, _ in entries], [value for _, value in entries])
