"""Snapshots of a replica, written beside the running batches, and the removal of segments they make needless."""

from __future__ import annotations

import fcntl
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.state.replica import Replica, ReplicaReader
from penstock.state.segments import SegmentHead, SegmentName, changes_batch, pack
from penstock.state.storage import LocalStorage, SegmentStorage

__all__ = ["SnapshotWriter", "remove_needless"]

_log = logging.getLogger(__name__)
_PIECE_ROWS = 100_000
_KEPT_SNAPSHOTS = 2


class SnapshotWriter:
    """Writes one snapshot at a time in a thread of its own, from a reader that later batches do not disturb.

    A snapshot that fails is only a warning: the deltas still hold everything, and the next one is tried later.
    """

    def __init__(self, storage: SegmentStorage) -> None:
        self._storage = storage
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, replica: Replica, template: SegmentHead) -> None:
        """Begins a snapshot of what the replica holds now, unless another process is writing one.

        Args:
            replica: At rest.
            template: Application, fingerprint and task; the rest is the replica's.
        """
        self.wait()
        turn = (replica.directory / "snapshot.lock").open("wb")
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
        pieces = {store: _pieces(entries.scan()) for store, entries in maps.items() if len(entries)}
        arguments = (head, pieces, reader, turn, replica.directory)
        work = threading.Thread(target=self._write, args=arguments, name="penstock-snapshot", daemon=True)
        self._thread = work
        work.start()

    def _write(
        self,
        head: SegmentHead,
        pieces: dict[str, Iterator[pa.RecordBatch]],
        reader: ReplicaReader,
        turn: BinaryIO,
        scratch: Path,
    ) -> None:
        try:
            parts, _ = pack(head, pieces, {}, scratch=scratch)
            self._storage.create(SegmentName(head.batch, "snapshot"), parts)
            remove_needless(self._storage)
        except (PenstockError, OSError) as error:
            _log.warning("No snapshot of task %s at batch %d: %s", head.task_id, head.batch, error)
        finally:
            reader.close()  # an open reader keeps LMDB from using old pages again
            turn.close()

    def wait(self) -> None:
        """Until no snapshot is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def _pieces(entries: Iterator[tuple[bytes, bytes]]) -> Iterator[pa.RecordBatch]:
    while rows := list(islice(entries, _PIECE_ROWS)):
        keys, values = zip(*rows, strict=True)
        yield changes_batch(keys, values)


def remove_needless(storage: SegmentStorage) -> None:
    """Deletes what the newest two snapshots make needless: older snapshots, and the deltas that both of them hold."""
    names = storage.names()
    kept = [name.batch for name in names if name.kind == "snapshot"][-_KEPT_SNAPSHOTS:]
    if len(kept) == _KEPT_SNAPSHOTS:
        for name in names:
            if name.batch < kept[0] or (name.kind == "delta" and name.batch == kept[0]):
                storage.delete(name)
    if isinstance(storage, LocalStorage):
        storage.remove_stale_temporaries()
