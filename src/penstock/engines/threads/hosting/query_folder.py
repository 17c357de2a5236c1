"""The folder of Spark's notes about the query of an instance, for each instance of a machine its own."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import suppress
from pathlib import Path

from penstock.log.processes import may_run, own_process
from penstock.state.documents import replace_document

__all__ = ["own_query_folder", "remove_query_folder"]

_OWNER = ".owner.json"


def own_query_folder(root: Path) -> Path:
    """Return the folder of this process, and remove those of processes that have ended.

    Containers may share a disk, and each have a process 1: so its name is not that of the process's number alone.

    Args:
        root: Where instances have their folders.
    """
    for owner in root.glob(f"query-*{_OWNER}"):
        if not _may_be_used(owner):
            remove_query_folder(_folder_of(owner))
    host, pid, start = own_process()
    digest = hashlib.sha256(f"{start} {pid}".encode()).hexdigest()[:12]
    owner = root / f"query-{digest}{_OWNER}"
    replace_document(str(root), owner.name, json.dumps([host, pid, start]))
    return _folder_of(owner)


def remove_query_folder(folder: Path) -> None:
    """Remove a folder, and the note of its owner, if it has one."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.with_name(f"{folder.name}{_OWNER}").unlink(missing_ok=True)


def _folder_of(owner: Path) -> Path:
    return owner.with_name(owner.name.removesuffix(_OWNER))


def _may_be_used(owner: Path) -> bool:
    try:
        host, pid, start = json.loads(owner.read_text())
        return may_run(str(host), int(pid), str(start))
    except (OSError, ValueError, TypeError):  # somebody else has removed it, or has written it
        return True
