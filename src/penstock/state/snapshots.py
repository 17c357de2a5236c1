"""Snapshots of a replica, written beside the running batches, and the removal of segments that they make needless."""

from __future__ import annotations

import fcntl
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.base.log_lines import own_logger
from penstock.errors import PenstockError
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica, LmdbRows
from penstock.state.private_folders import open_lock
from penstock.state.segments.local_storage import LocalStorage
from penstock.state.segments.merging import merge_deltas, uncovered
from penstock.state.segments.segment import SegmentHead, SegmentName, changes_batch, pack
from penstock.state.segments.storage import SegmentStorage

__all__ = ["SnapshotPolicy", "SnapshotWriter", "pieces_of", "remove_needless", "write_snapshot"]

_log = own_logger(__name__)
_PIECE_ROWS = 50_000
_KEPT_SNAPSHOTS = 2
_PART_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    """The thresholds at which deltas are merged or a snapshot is written.

    A snapshot rewrites the whole state, so it is due when the deltas since the last one come to a share of its size.
    Where they are many and small before that, they are merged, so that a recovery reads few files.

    Attributes:
        every: The number of deltas that are considered together.
        delta_bytes: ... or the bytes of them.
        share: Of the newest snapshot's bytes; deltas of that size make another one due.
        part_bytes: The approximate size of the rows in a part of a snapshot.
        merged_bytes: Deltas are merged into segments of at most this size.
    """

    every: int = 100
    delta_bytes: int = 64 << 20
    share: float = 0.5
    part_bytes: int = _PART_BYTES
    merged_bytes: int = 32 << 20


class SnapshotWriter:
    """A writer of one snapshot at a time in a thread of its own, from a reader that later batches do not disturb.

    A failure is only a warning: the deltas still hold everything, and the next snapshot is tried later.
    """

    def __init__(self, storage: SegmentStorage, policy: SnapshotPolicy) -> None:
        self._storage = storage
        self._policy = policy
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, replica: LmdbReplica, template: SegmentHead) -> None:
        """Begin a snapshot of the present contents, or merge deltas, unless another process is doing so.

        Args:
            replica: At rest.
            template: Application, fingerprint and task; the rest is the replica's.
        """
        self.wait()
        turn = open_lock(replica.directory / "snapshot.lock")
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            turn.close()
            return
        at = replica.position
        head = replace(
            template,
            kind="snapshot",
            batch=at.batch,
            previous=at.head,
            previous_checksum=at.checksum,
            meta=dict(at.meta),
        )
        stores = replica.store_names()
        reader = replica.reader()
        maps = {store: reader.map(store) for store in stores}
        pieces = {store: pieces_of(entries.scan()) for store, entries in maps.items() if len(entries)}
        work = threading.Thread(
            target=self._work, args=(head, pieces, reader, turn), name="penstock-snapshot", daemon=True
        )
        self._thread = work
        work.start()

    def _work(
        self, head: SegmentHead, pieces: dict[str, Iterator[pa.RecordBatch]], reader: LmdbRows, turn: BinaryIO
    ) -> None:
        try:
            sizes = self._storage.sizes()
            if self._is_due(sizes):
                write_snapshot(self._storage, head, pieces, self._policy.part_bytes)
                remove_needless(self._storage)
            else:
                reader.close()
                merge_deltas(self._storage, head, sizes, self._policy.merged_bytes)
        except (PenstockError, OSError) as error:
            _log.warning("No snapshot of task %s at batch %d: %s", head.task_id, head.batch, error)
        finally:
            reader.close()  # an open reader keeps LMDB from using old pages again
            turn.close()

    def _is_due(self, sizes: Mapping[SegmentName, int]) -> bool:
        snapshots = [name for name in sizes if name.kind == "snapshot"]
        newest = max(snapshots, default=None)
        since = sum(sizes[name] for name in uncovered(sizes) if newest is None or name.batch > newest.batch)
        return newest is None or since >= self._policy.share * sizes[newest]

    def wait(self) -> None:
        """Wait until no snapshot is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def write_snapshot(
    storage: SegmentStorage,
    head: SegmentHead,
    stores: Mapping[str, Iterable[pa.RecordBatch]],
    part_bytes: int = _PART_BYTES,
) -> bool:
    """Put a snapshot in place; a large one in parts, each of them a segment. Return False if one exists already.

    The parts come first, under unique names. The snapshot names them, so it counts once it is there.
    """
    labels: list[str] = []
    parts: list[dict[str, Any]] = []
    waiting: dict[str, list[pa.RecordBatch]] = {}
    size = 0
    name = SegmentName(head.batch, "snapshot")
    token = secrets.token_hex(6)

    def put() -> None:
        nonlocal waiting, size
        label = f"{token}-{len(parts):05d}"
        data, checksum = pack(head, waiting, {})
        storage.put_part(name, label, data)
        labels.append(label)
        parts.append({"label": label, "checksum": checksum, "stores": list(waiting)})
        waiting, size = {}, 0

    for store, pieces in stores.items():
        for piece in pieces:
            waiting.setdefault(store, []).append(piece)
            size += piece.nbytes
            if size >= part_bytes:
                put()
    if parts and waiting:
        put()
    data, _ = pack(replace(head, parts=tuple(parts)), waiting, {})
    won = storage.create(name, data)
    if not won:
        for label in labels:
            storage.delete_part(name, label)
    return won


def pieces_of(entries: Iterator[tuple[bytes, bytes]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a store in batches, as `write_snapshot` takes them."""
    while rows := list(islice(entries, _PIECE_ROWS)):
        keys, values = zip(*rows, strict=True)
        yield changes_batch(keys, values)


def remove_needless(storage: SegmentStorage) -> None:
    """Delete the segments that the newest two snapshots make needless: older snapshots, and deltas that both hold."""
    names = storage.names()
    kept = [name.batch for name in names if name.kind == "snapshot"][-_KEPT_SNAPSHOTS:]
    if len(kept) == _KEPT_SNAPSHOTS:
        for name in names:
            if name.batch < kept[0] or (name.kind != "snapshot" and name.batch == kept[0]):
                storage.delete(name)
        storage.remove_parts(before=kept[0])
    if isinstance(storage, LocalStorage):
        storage.remove_stale_temporaries()
