"""The replicas of an application's stream threads on this machine: their folders, what opens one, and their removal."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb

from penstock.base.log_lines import own_logger
from penstock.state.lmdb_replicas.folders import global_place, remove_idle
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica
from penstock.state.lmdb_replicas.other_process import watch_replicas
from penstock.state.maps import MemoryReplica, Replica, ReplicaPosition
from penstock.state.private_folders import own_folder
from penstock.topology.plan.plan import TaskId

if TYPE_CHECKING:
    from penstock.engines.threads.app import ThreadApp

__all__ = [
    "ReplicaCleanup",
    "continuous_place",
    "continuous_replicas",
    "global_folder",
    "known_place",
    "open_replica",
    "place_of",
    "positions_of_others",
    "tasks_on_disk",
]

_FOLDER = re.compile(r"continuous-(\d+_\d+)-[0-9a-f]{12}")
_FILE = "place"


def open_replica(app: ThreadApp, task: TaskId) -> Replica:
    """Open the replica of a task; in memory if the application has no folder of replicas, or the task no state."""
    sub = app.subtopology(task)
    if app.replica_root is None or not sub.keeps_state:
        return MemoryReplica(sub.stores)
    identity, folder = continuous_place(app.replica_root, app.application_id, app.identity, str(task))
    return LmdbReplica(folder, identity, sub.stores)


def positions_of_others(app: ThreadApp, task: TaskId) -> list[ReplicaPosition]:
    """Return the positions of a task's replicas that this process does not have open: others do, or have left them.

    A thread that was fenced while its process is paused or cut off still holds the first slot: what it has committed
    last is noted there alone.
    """
    if app.replica_root is None or not app.subtopology(task).keeps_state:
        return []
    identity, folder = continuous_place(app.replica_root, app.application_id, app.identity, str(task))
    positions = []
    for replica in watch_replicas(folder, identity, ()):
        with closing(replica), suppress(lmdb.Error, ValueError), closing(replica.reader()) as rows:
            positions.append(rows.position)
    return positions


def continuous_place(root: str | Path, application_id: str, identity: str, task_id: str) -> tuple[str, Path]:
    """Return the identity of a stream thread's replica, and the directory of its slots on this machine.

    Neither is that of a replica of micro-batches, so the two are never taken for each other.

    >>> continuous_place("r", "app", "log", "0_1")[1].name
    'continuous-0_1-ef20002752ee'
    """
    full = f"continuous {application_id} {identity} {task_id}"
    digest = hashlib.blake2b(full.encode(), digest_size=6).hexdigest()
    return full, Path(root) / f"continuous-{task_id}-{digest}"


def global_folder(root: str | Path, application_id: str, identity: str) -> Path:
    """Return the folder of this machine's copy of an application's global stores for stream threads."""
    return global_place(root, f"continuous {application_id} {identity}")


def continuous_replicas(root: Path, application_id: str, identity: str) -> Iterator[Path]:
    """Yield the replicas of an application's stream threads among the folders of a directory."""
    shared = global_folder(root, application_id, identity)
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        match = _FOLDER.fullmatch(folder.name)
        if folder == shared or (match and continuous_place(root, application_id, identity, match[1])[1] == folder):
            yield folder


def place_of(root: str | None) -> str:
    """Return the identity of a folder of replicas, which is noted in it; that of the machine for a folder without one.

    Machines may have equal names, and containers of one machine folders of their own, so names of hosts do not do.
    """
    if root is None:
        return socket.gethostname()
    path = Path(root) / _FILE
    try:
        own_folder(path.parent)
        if not path.exists():
            new_path = path.with_name(f"{_FILE}.{os.getpid()}.{secrets.token_hex(4)}")
            new_path.write_text(secrets.token_hex(8))
            with suppress(FileExistsError):
                os.link(new_path, path)  # the first of several processes wins
            new_path.unlink()
        return path.read_text()
    except OSError:  # opening a replica there says why
        return socket.gethostname()


def known_place(root: str | None) -> str:
    """Return the identity of a folder of replicas, without making one; that of the machine if it has none."""
    with suppress(OSError):
        if root is not None:
            return (Path(root) / _FILE).read_text()
    return socket.gethostname()


def tasks_on_disk(root: str | None, application_id: str, identity: str) -> list[TaskId]:
    """List the tasks whose replicas are in a folder."""
    if root is None:
        return []
    shared = global_folder(root, application_id, identity)
    folders = continuous_replicas(Path(root), application_id, identity)
    return [
        TaskId.parse(each.name.split("-")[1])
        for each in folders
        if each != shared and any(each.glob("slot-*/data.mdb"))  # else a cleanup has emptied it
    ]


_log = own_logger(__name__)
_LEAST_PAUSE_S = 1.0


class ReplicaCleanup:
    """Kafka's cleanup thread: looks once in each delay, beside the loop of a stream thread, until `close`.

    A replica stays for the delay after the last process that had it open: the threads of this machine have those open
    that they run or follow. Several threads may look at once.

    Args:
        app: The application.
    """

    def __init__(self, app: ThreadApp) -> None:
        self._app = app
        self._delay_s = int(app.config["state.cleanup.delay.ms"]) / 1000
        self._ended = threading.Event()
        if app.replica_root is not None:
            threading.Thread(target=self._run, name="penstock-cleanup", daemon=True).start()

    def close(self) -> None:
        """Look no more; a removal that is under way goes on to its end."""
        self._ended.set()

    def remove(self) -> list[str]:
        """Remove what nobody has used for the delay; return the names of the folders."""
        app, removed = self._app, []
        root = Path(app.replica_root or "")
        shared = global_folder(root, app.application_id, app.identity)
        for folder in list(continuous_replicas(root, app.application_id, app.identity)):
            if folder != shared and remove_idle(folder, self._delay_s):
                removed.append(folder.name)
                _log.info("Removed the replica %s: its task has moved away, or is gone", folder)
        return removed

    def _run(self) -> None:
        while not self._ended.wait(max(_LEAST_PAUSE_S, self._delay_s)):
            try:
                self.remove()
            except Exception as error:  # noqa: BLE001 - the next look may succeed, and no task depends on it
                _log.warning("Unused replicas in %s could not be removed: %s", self._app.replica_root, error)
