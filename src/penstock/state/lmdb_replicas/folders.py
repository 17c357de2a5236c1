"""The folders of replicas on this machine: those of one checkpoint, and those of tasks that have moved away.

A replica is worth its space as long as deltas can bring it up to date. Once the newest snapshot holds all that it
lacks, a task that comes back is restored faster from that. So a replica is removed that no process has written for a
while and that the newest snapshot is ahead of. The replica of a task that merely rests is never behind: its snapshots
are made of it.

A stream thread has the replicas of the tasks that it runs or follows open all the time. So one that no process has had
open for a while is of a task that has moved away, and its files are removed, as by Kafka Streams.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import lmdb

from penstock.base.log_lines import own_logger
from penstock.errors import StateError
from penstock.state.lmdb_replicas.lmdb_replica import OWNER_LOCK, note_use, remove_files, replica_place
from penstock.state.lmdb_replicas.other_process import WatchedReplica
from penstock.state.maps import ReplicaPosition
from penstock.state.private_folders import open_lock
from penstock.state.segments.storage import open_storage, read_segment

__all__ = ["global_place", "own_replicas", "remove_idle", "remove_replica", "remove_unused", "task_of"]

_TASK = re.compile(r"(\d+_\d+)-[0-9a-f]{12}")


def global_place(root: str | Path, identity: str) -> Path:
    """Return the folder of a copy of global stores; ``identity`` is the identity that it must have."""
    return Path(root) / f"global-{hashlib.blake2b(identity.encode(), digest_size=6).hexdigest()}"


def task_of(folder: Path) -> str | None:
    """Return the task whose replicas are in a folder; None for one of global stores."""
    task = _TASK.fullmatch(folder.name)
    return task[1] if task else None


def own_replicas(root: Path, application: str, checkpoint: str, fingerprints: Iterable[str]) -> Iterator[Path]:
    """Yield the replicas of an application among the folders of a directory; each name shows the owner.

    Args:
        root: The directory of replicas, which several applications may share.
        application: The ``application.id``.
        checkpoint: Its checkpoint location.
        fingerprints: Of its topologies: global stores are kept for each.
    """
    if not root.is_dir():
        return
    identities = [f"queries {application} {checkpoint}", *(f"{application} {checkpoint} {f}" for f in fingerprints)]
    shared = {global_place(root, identity) for identity in identities}
    for folder in sorted(root.iterdir()):
        task = task_of(folder)
        if folder in shared or (task and replica_place(root, application, checkpoint, task)[1] == folder):
            yield folder


def remove_replica(folder: Path) -> None:
    """Delete a replica, and the directory around it when it is empty."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.parent.rmdir()
    except OSError:
        return


_log = own_logger(__name__)


def remove_unused(root: Path, application: str, checkpoint: str, unused_s: float) -> list[Path]:
    """Remove the files of replicas that are of no use any more; return their slots.

    The slots themselves stay, each with its lock: a process that takes one finds it empty. Replicas that a process
    works on are left alone, as are those that this very process has open.

    Args:
        root: The directory of replicas, which several applications may share.
        application: The ``application.id``.
        checkpoint: Its checkpoint location.
        unused_s: The time without a write after which a replica counts as unused.
    """
    removed = []
    for folder in own_replicas(root, application, checkpoint, ()):
        task = task_of(folder)
        if task is None:
            continue
        identity, _ = replica_place(root, application, checkpoint, task)
        for slot in sorted(folder.glob("slot-*")):
            if not _is_old(slot, unused_s):
                continue
            with _locked(slot) as is_free, suppress(lmdb.Error, OSError, StateError):
                if is_free and _is_old(slot, unused_s) and _is_behind(checkpoint, task, _position(slot, identity)):
                    remove_files(slot)
                    removed.append(slot)
                    _log.info("Removed the replica %s: task %s has moved on elsewhere", slot, task)
    return removed


def remove_idle(folder: Path, unused_s: float) -> bool:
    """Remove the files of a stream thread's replica if no process has had it open for a time; return whether it did.

    The slots themselves stay, each with its lock: a process that takes one finds it empty, and never half removed.

    Args:
        folder: The folder of the replica.
        unused_s: The time for which a replica that is not open is kept.
    """
    removed = False
    for slot in sorted(folder.glob("slot-*")):
        with suppress(OSError), _locked(slot) as is_free:
            if not is_free:
                note_use(slot)
            elif (slot / "data.mdb").exists() and _idle_s(slot) > unused_s:
                remove_files(slot)
                removed = True
    return removed


def _idle_s(slot: Path) -> float:
    """Return how long ago a slot was written to, or was seen open."""
    files = [slot / name for name in ("data.mdb", OWNER_LOCK)]
    return time.time() - max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


def _is_old(slot: Path, unused_s: float) -> bool:
    try:
        return time.time() - (slot / "data.mdb").stat().st_mtime > unused_s
    except FileNotFoundError:
        return False


@contextmanager
def _locked(slot: Path) -> Iterator[bool]:
    """Hold a slot's lock; yield whether no other process has it."""
    with open_lock(slot / OWNER_LOCK) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def _position(slot: Path, identity: str) -> ReplicaPosition:
    """Return its position; the beginning for one from before the machine was started, which no process would use."""
    try:
        replica = WatchedReplica(slot, identity, ())
    except ValueError:
        return ReplicaPosition()
    try:
        reader = replica.reader()
        reader.close()
        return reader.position
    finally:
        replica.close()


def _is_behind(checkpoint: str, task: str, position: ReplicaPosition) -> bool:
    """Return whether the newest snapshot holds segments that a replica lacks."""
    storage = open_storage(checkpoint, task)
    snapshots = [name for name in storage.names() if name.kind == "snapshot"]
    if not snapshots or snapshots[-1].batch <= position.batch:
        return False
    snapshot = read_segment(storage, snapshots[-1])
    return snapshot is not None and snapshot.head.previous > position.head
