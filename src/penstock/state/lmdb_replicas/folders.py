"""The folders of replicas on this machine that belong to one application and checkpoint."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.state.lmdb_replicas.lmdb_replica import replica_place

__all__ = ["global_place", "own_replicas", "remove_replica", "task_of"]

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
