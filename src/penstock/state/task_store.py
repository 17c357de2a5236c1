"""The state of one task, kept through crashes; a worker holds on to it between batches.

The life of batch N: `TaskStore.find` (has N been published already, before a crash or by another attempt? then its
recorded outputs count and nothing runs), else `TaskStore.begin` returns the state as batch N-1 left it, the batch runs,
and `TaskStore.publish` puts segment N in place, or finds that another attempt was first and returns that one's segment.
Segment N is applied to the local replica only by ``begin(N+1)``, which proves that N was committed; so a retry of N
always starts from N-1 and there is nothing to roll back.

Empty batches. A batch that had no input, changed nothing and wrote nothing has no segment. So that a missing file is
not taken for an empty batch, each segment names the one before it (batch and checksum): a gap in the chain is a lost
segment. The newest segment has no successor to vouch for it. It is vouched for by the local replica, when that holds
it already, and by the caller, who may know the newest batch that was published (`Segment.head`) from its own records:
``begin(N, expected_head=...)``. Batches count from 0.

A task that runs in two levels of one batch (the cycle of a foreign-key join) numbers them 2N and 2N+1: a published
segment is final, so the second level may build on the first before Spark has committed the batch.

A view opened on a batch's state is good until the batch is published, and again when the next one has begun.

Between batches a process may `TaskStore.pause`: others of the machine can then work on the replica, and `resume` goes
on from where they have left it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import lmdb
import pyarrow as pa

from penstock.base.log_lines import own_logger
from penstock.errors import (
    CheckpointMismatchError,
    CorruptSegmentError,
    InvalidStateError,
    MissingSegmentError,
    other_inputs,
)
from penstock.state.free_memory import release_memory
from penstock.state.lmdb_replicas.lmdb_replica import MAP_BYTES, LmdbReplica, LmdbRows, replica_place
from penstock.state.maps import MemoryMap, TaskOverlay
from penstock.state.restores.replica_restore import CaughtUp, apply_segment, catch_up
from penstock.state.restores.restore_progress import SegmentRestore
from penstock.state.segments.segment import Segment, SegmentHead, SegmentName, pack
from penstock.state.segments.storage import open_storage, read_segment
from penstock.state.snapshots import SnapshotPolicy, SnapshotWriter
from penstock.topology.stores import StoreSpec

__all__ = ["StateOwner", "StatePlace", "TaskStore"]


@dataclass(frozen=True)
class StatePlace:
    """The place of an application's state.

    Attributes:
        checkpoint: A path or URI, the same on all executors (see `penstock.state.segments.storage.open_storage`).
        replica_root: A directory of this machine for replicas (``state.dir``).
        map_bytes: The size beyond which a replica's file has to be mapped anew.
        durable: Whether a segment is on the disk before it counts as published.
        storage_options: Settings of the object store.
    """

    checkpoint: str
    replica_root: str | Path
    map_bytes: int = MAP_BYTES
    durable: bool = True
    storage_options: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class StateOwner:
    """The application that state belongs to.

    Attributes:
        application_id: The ``application.id``; segments of another application are refused.
        fingerprint: Of the topology; segments of another one are refused. Empty: not compared.
        accepts: Fingerprints of earlier topologies that this one may continue.
    """

    application_id: str
    fingerprint: str = ""
    accepts: Collection[str] = ()


_log = own_logger(__name__)
_KEPT_BYTES = 1 << 20
_POLICY = SnapshotPolicy()


class TaskStore:
    """Replica, segments and the running batch of one task in this process; nothing is read before it is needed.

    Args:
        place: The place of the state.
        owner: The application that it belongs to.
        task_id: The task, ``<sub-topology>_<partition>``.
        specs: Its stores.
        policy: The thresholds for merged deltas and snapshots.
    """

    def __init__(
        self,
        place: StatePlace,
        owner: StateOwner,
        task_id: str,
        specs: Iterable[StoreSpec],
        policy: SnapshotPolicy = _POLICY,
    ) -> None:
        self._checkpoint = place.checkpoint
        self._storage = open_storage(place.checkpoint, task_id, durable=place.durable, options=place.storage_options)
        identity, directory = replica_place(place.replica_root, owner.application_id, place.checkpoint, task_id)
        self._replica = LmdbReplica(directory, identity, [spec.name for spec in specs], map_bytes=place.map_bytes)
        self._template = SegmentHead("delta", owner.application_id, owner.fingerprint, task_id, 0, 0, "")
        self._stores = self._replica.readable_stores
        self._accepts = {owner.fingerprint, *owner.accepts}
        self._policy = policy
        self._snapshots = SnapshotWriter(self._storage, policy)
        self._replica.quiesce = self._snapshots.wait
        self._reader: LmdbRows | None = None
        self._state: TaskOverlay | None = None
        self._views: TaskOverlay | None = None  # the same one for all batches, so that views need not be opened anew
        self.caught_up: CaughtUp | None = None  # in the running batch, if the replica was behind
        self.restored_rows = 0  # changes that this took
        self._known: Segment | None = None  # the newest segment that this process has seen, published or found
        self._skipped: int | None = None
        self._is_fresh = True
        self._deltas = 0
        self._delta_bytes = 0

    def find(self, batch: int, *, inputs: str = "", discard_damaged: bool = False) -> Segment | None:
        """Return the segment of a batch, if one is published.

        Args:
            batch: The batch.
            inputs: A checksum of the whole batch's input; empty: not compared.
            discard_damaged: Remove a damaged segment and return None, so that the batch runs anew. Only right when the
                batch has not been committed.

        Raises:
            CheckpointMismatchError: Its batch has read something else.
        """
        try:
            segment = self._read(SegmentName(batch, "delta"))
        except CorruptSegmentError:
            if not discard_damaged:
                raise
            self._storage.delete(SegmentName(batch, "delta"))
            return None
        if segment is not None and inputs and segment.head.inputs not in ("", inputs):
            raise other_inputs(self._template.task_id, batch, f"segment {segment.where}", segment=segment.where)
        if segment is not None:
            self._storage.make_durable(SegmentName(batch, "delta"))  # who put it there may have died before it was
            self._known = segment
        return segment

    def begin(self, batch: int, *, expected_head: int | None = None) -> TaskOverlay:
        """Return the state as the batch before this one left it; the call states that that one is committed.

        Args:
            batch: The batch to run; the same one again after a failure.
            expected_head: The newest batch before this one for which a segment is known to have been published.

        Raises:
            MissingSegmentError: A segment is lost.
            CorruptSegmentError: A segment that is needed is damaged.
            CheckpointMismatchError: The segments are of another application or topology.
        """
        self._end_batch()
        self.caught_up = None
        target = batch - 1
        if not self._replica.is_there():
            self._replica.reset()
            self._is_fresh = True
        try:
            self._move(target)
        except lmdb.Error as error:
            _log.warning("The replica %s is damaged (%s) and is rebuilt", self._replica.directory, error)
            self._replica.reset()
            self._is_fresh = True
            try:
                self._move(target)
            except lmdb.Error as again:
                raise self._replica.unusable(again) from again
        at = self._replica.position
        if expected_head is not None and at.head < expected_head:
            where = self._storage.where(SegmentName(expected_head, "delta"))
            raise MissingSegmentError(
                f"segment {where} is gone: its batch was published",
                hint="Bring the file back from a backup, or run `penstock state rebuild`.",
                batch=expected_head,
            )
        if at.batch < target:  # empty batches
            self._replica.position = at = replace(at, batch=target)
        self._snapshot_if_due()
        self._reader = self._replica.reader()
        maps = {store: self._reader.map(store) for store in self._stores}
        if self._views is None:
            self._views = TaskOverlay(batch, maps, at.meta)
        else:
            self._views.rebase(batch, maps, at.meta)
        self._state = self._views
        return self._state

    def read_committed(self, batch: int) -> TaskOverlay:
        """Return the state as this batch left it, for queries; writes to it are discarded.

        Args:
            batch: A committed batch.
        """
        state = self.begin(batch + 1)
        self._state = None
        return state

    def publish(
        self,
        batch: int,
        outputs: Mapping[str, pa.RecordBatch],
        input_offsets: Mapping[str, Any] | None = None,
        *,
        inputs: str = "",
        discard_damaged: bool = False,
    ) -> Segment:
        """Put the batch's segment in place; the first one published wins.

        Args:
            batch: The batch that `begin` was called for.
            outputs: Topic -> rows that the batch wrote.
            input_offsets: The input of the batch, as JSON; empty when it had none.
            inputs: A checksum of the whole batch's input, which is noted.
            discard_damaged: As in `find`, for a damaged segment that is in the way.

        Returns:
            The segment that counts: this one (``published_here``), or that of the attempt that was faster, whose
            outputs are to be emitted in place of these. ``stored`` is false for an empty batch.

        Raises:
            StateError: It could not be written; nothing is left behind and the call may be repeated.
            CheckpointMismatchError: Another attempt was faster, and has read something else.
        """
        state = self._state
        if state is None or state.batch != batch:
            raise InvalidStateError(
                f"batch {batch} of task {self._template.task_id} has not begun",
                hint="Call begin(batch) before publish(batch).",
                task=self._template.task_id,
                batch=batch,
            )
        at = self._replica.position
        head = replace(
            self._template,
            batch=batch,
            previous=at.head,
            previous_checksum=at.checksum,
            meta=dict(state.meta),
            input_offsets=dict(input_offsets or {}),
            inputs=inputs,
        )
        written = {topic: rows for topic, rows in outputs.items() if rows.num_rows}
        if not written and not head.input_offsets and not state.is_changed:
            self._end_batch()
            self._skipped = batch
            return Segment.empty(head)
        changes = state.sorted_changes()
        parts, checksum = pack(head, {store: [rows] for store, rows in changes.items()}, written)
        name = SegmentName(batch, "delta")
        while True:
            if self._storage.create(name, parts):
                size = sum(len(part) for part in parts)
                segment = Segment.of_publisher(head, checksum, size, changes, written)
                break
            winner = self.find(batch, inputs=inputs, discard_damaged=discard_damaged)
            if winner is not None:
                segment = winner
                break
        self._known = segment
        self._end_batch()
        return segment

    @property
    def version(self) -> tuple[int, str]:
        """The newest segment that the running batch starts from: its batch and checksum."""
        return self._replica.position.head, self._replica.position.checksum

    @property
    def is_tidying(self) -> bool:
        """Whether a snapshot is being written, or deltas are merged."""
        return self._snapshots.is_running

    def pause(self) -> None:
        """Let other processes work on the replica; an unpublished batch is forgotten."""
        self._end_batch()
        if self._views is not None:
            self._views.rebase(-1, dict.fromkeys(self._stores, MemoryMap()), {})
        if self._known is not None and self._known.size_bytes > _KEPT_BYTES:
            self._known = None  # to be read again rather than kept
        self._replica.release()

    def resume(self) -> bool:
        """Continue after `pause`; return False if that cannot be, then close it and open another."""
        return self._replica.retake()

    def close(self) -> None:
        """Release everything; an unpublished batch is forgotten."""
        self._end_batch()
        self._snapshots.wait()
        self._replica.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end_batch(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._state = None

    def _move(self, target: int) -> None:
        """Bring the replica to the end of batch ``target``."""
        if not self._move_by_one(target):
            before = self._replica.applied_rows
            restore = SegmentRestore(self._checkpoint, self._template.task_id, self._storage)
            try:
                done = catch_up(self._replica, self._storage, target, self._read, restore)
            finally:
                restore.end()
            self.restored_rows = self._replica.applied_rows - before
            if not self._snapshots.is_running and self._replica.give_back():  # else a snapshot reads it
                release_memory()
            self._is_fresh = False
            self.caught_up = done
            self._deltas = done.deltas
            self._delta_bytes += done.delta_bytes

    def _move_by_one(self, target: int) -> bool:
        """Move the replica without listing the storage, if the segment is known; else return False."""
        segment, skipped = self._known, self._skipped
        self._known = self._skipped = None
        if self._is_fresh:
            return False
        at = self._replica.position
        if at.batch == target:
            return True
        if segment is not None and segment.batch == target:
            if (segment.head.previous, segment.head.previous_checksum) != (at.head, at.checksum):
                return False
            apply_segment(self._replica, segment)
            self._deltas += 1
            self._delta_bytes += segment.size_bytes
            return True
        # Another attempt may have found something to do (wall-clock punctuation) where this one found nothing.
        return skipped == target == at.batch + 1 and not self._storage.exists(SegmentName(target, "delta"))

    def _snapshot_if_due(self) -> None:
        if self._snapshots.is_running or not self._deltas:
            return
        if self._deltas >= self._policy.every or self._delta_bytes >= self._policy.delta_bytes:
            self._snapshots.start(self._replica, self._template)
            self._deltas = self._delta_bytes = 0

    def _read(self, name: SegmentName) -> Segment | None:
        segment = read_segment(self._storage, name)
        if segment is None:
            return None
        head, own = segment.head, self._template
        if (head.application_id, head.task_id) != (own.application_id, own.task_id):
            raise CheckpointMismatchError(
                f"segment {segment.where} is of task {head.task_id} of application {head.application_id!r}, "
                f"not of task {own.task_id} of {own.application_id!r}",
                hint="Give each application its own checkpoint location.",
                segment=segment.where,
            )
        if own.fingerprint and head.fingerprint and head.fingerprint not in self._accepts:
            raise CheckpointMismatchError(
                f"segment {segment.where} was written by another topology ({head.fingerprint[:12]})",
                hint="Run the topology that wrote the checkpoint, migrate it, or start with a new checkpoint location.",
                segment=segment.where,
            )
        return segment
