"""The identity of a folder of replicas: threads that share the folder share the state in it."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from pathlib import Path

from penstock.engines.threads.backing import continuous_replicas, global_folder
from penstock.state.own_folder import own_folder
from penstock.topology.plan.plan import TaskId

__all__ = ["known_place", "place_of", "tasks_on_disk"]

_FILE = "place"


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
            made = path.with_name(f"{_FILE}.{os.getpid()}.{secrets.token_hex(4)}")
            made.write_text(secrets.token_hex(8))
            with suppress(FileExistsError):
                os.link(made, path)  # the first of several processes wins
            made.unlink()
        return path.read_text()
    except OSError:  # whoever opens a replica there says why
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
    found = continuous_replicas(Path(root), application_id, identity)
    return [TaskId.parse(each.name.split("-")[1]) for each in found if each != shared]
