"""Small documents in the checkpoint location, local or in an object store."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from penstock.errors import StateError

__all__ = ["read_document", "remove_tree", "write_document"]


def _local(location: str) -> Path | None:
    if location.startswith("file:"):
        return Path(location.removeprefix("file:").replace("//", "", 1))
    return None if "://" in location else Path(location)


def read_document(location: str, name: str) -> str | None:
    """The text of a document; None if there is none."""
    directory = _local(location)
    if directory is not None:
        path = directory / name
        return path.read_text(encoding="utf-8") if path.exists() else None
    import obstore
    import obstore.store

    store = obstore.store.from_url(location.replace("s3a://", "s3://", 1))
    try:
        return bytes(obstore.get(store, name).bytes()).decode()
    except FileNotFoundError:
        return None


def write_document(location: str, name: str, text: str) -> None:
    """Replaces a document as a whole."""
    directory = _local(location)
    try:
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            temporary = directory / f".{name}.{os.getpid()}"
            try:
                temporary.write_text(text, encoding="utf-8")
                temporary.replace(directory / name)
            finally:
                temporary.unlink(missing_ok=True)
            return
        import obstore
        import obstore.store

        obstore.put(obstore.store.from_url(location.replace("s3a://", "s3://", 1)), name, text.encode())
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "Free space there and start again." if is_full else "Check that the checkpoint location is writable."
        raise StateError(f"{location}/{name} could not be written: {error}", hint=hint) from error


def remove_tree(location: str) -> None:
    """Deletes a checkpoint location and all in it."""
    import shutil

    directory = _local(location)
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
        return
    import obstore
    import obstore.store

    store = obstore.store.from_url(location.replace("s3a://", "s3://", 1))
    for page in obstore.list(store):
        obstore.delete(store, [entry["path"] for entry in page])
