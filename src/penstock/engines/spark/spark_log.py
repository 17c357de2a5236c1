"""Spark's own notes in a checkpoint: the input of each batch (``offsets``), and the committed batches (``commits``).

Spark writes them with a rename and without waiting for the disk. But the input of a batch must be on the disk before
its tasks write anything: a batch that is planned anew after a power cut would read more, and count as the one that is
done.
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import suppress
from pathlib import Path

from penstock.state.checkpoint import delete_document, list_documents, local_directory, read_document
from penstock.state.durable_files import sync_directory, sync_path

__all__ = [
    "QUERY",
    "committed_batches",
    "drop_damaged",
    "forget_batches",
    "newest_planned",
    "noted_inputs",
    "planned_batches",
    "sync_offsets",
]

QUERY = "spark"  # the folder of the application's query in the checkpoint location
_METADATA = "metadata"  # the query's id


def sync_offsets(query: str) -> int | None:
    """Wait until Spark's newest note of a batch's input is on the disk; object stores wait by themselves.

    Args:
        query: Spark's checkpoint of a query.

    Returns:
        The number of that batch; None without one, or in an object store.
    """
    directory = local_directory(query)
    newest = None if directory is None else _newest(directory / "offsets")
    if directory is None or newest is None:
        return None
    sync_path(newest)
    sync_directory(newest.parent)
    if newest.name == "0":  # the first one: the query's id, and the names of the directories too
        with suppress(FileNotFoundError):
            sync_path(directory / _METADATA)
        for each in (directory, *list(directory.parents)[:2]):
            with suppress(PermissionError):
                sync_directory(each)
    return int(newest.name)


def planned_batches(query: str) -> list[int]:
    """Return the numbers of the batches whose input Spark has noted, in order.

    Args:
        query: Spark's checkpoint of a query.
    """
    return _numbers(query, "offsets")


def committed_batches(checkpoint: str) -> list[int]:
    """Return the numbers of the batches that Spark has noted as done for an application's query, in order.

    Args:
        checkpoint: The checkpoint location of the application.
    """
    return _numbers(checkpoint, f"{QUERY}/commits")


def newest_planned(query: str) -> int | None:
    """Return the number of the newest batch whose input Spark has noted; None without one.

    Args:
        query: Spark's checkpoint of a query.
    """
    return max(planned_batches(query), default=None)


def _numbers(query: str, folder: str) -> list[int]:
    return sorted(int(name) for name in list_documents(query, folder) if name.isdecimal())


def drop_damaged(query: str) -> list[str]:
    """Remove notes that a power cut has left empty; Spark would refuse to start.

    An empty note of a batch's input belongs to a batch whose tasks never began (see `sync_offsets`). Without the note
    that a batch is done, the batch runs again, and finds in the ledger that nothing is left to do. Without its id the
    query gets a new one, which nothing else goes by.

    Returns:
        The paths of the removed files.
    """
    directory = local_directory(query)
    removed: list[str] = []
    if directory is None:
        return removed
    for folder in ("offsets", "commits"):
        while (newest := _newest(directory / folder)) is not None and _is_empty(newest):
            removed.append(_remove(newest))
    if _is_empty(directory / _METADATA):
        removed.append(_remove(directory / _METADATA))
    return removed


def _is_empty(path: Path) -> bool:
    """Return whether a file is there without contents; some file systems leave zeros."""
    with suppress(FileNotFoundError):
        return not path.read_bytes().strip(b"\0")
    return False


def _remove(path: Path) -> str:
    """Remove a file with the checksum that Hadoop has put beside it."""
    path.unlink(missing_ok=True)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return str(path)


def forget_batches(query: str) -> None:
    """Remove all notes of a query, with Hadoop's checksum files beside them.

    Args:
        query: Spark's checkpoint of the query.
    """
    directory = local_directory(query)
    if directory is None:
        for name in (f"{folder}/{n}" for folder in ("offsets", "commits") for n in list_documents(query, folder)):
            delete_document(query, name)
        return
    for folder in ("offsets", "commits"):
        shutil.rmtree(directory / folder, ignore_errors=True)
    _remove(directory / _METADATA)


def noted_inputs(query: str, batch: int) -> str:
    """Compute a checksum of a batch's input as Spark has noted it; empty if there is no note.

    Args:
        query: Spark's checkpoint of the query.
        batch: Spark's batch number.
    """
    text = read_document(query, f"offsets/{batch}")
    if text is None:
        return ""
    sources = text.splitlines()[2:]  # behind the version, and a line with the time of the batch
    return hashlib.blake2b("\n".join(sources).encode(), digest_size=12).hexdigest()


def _newest(folder: Path) -> Path | None:
    """Return the file with the largest number."""
    try:
        numbers = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
    except FileNotFoundError:
        return None
    return folder / str(max(numbers)) if numbers else None
