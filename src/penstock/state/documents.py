"""Small documents in the checkpoint location, local or in an object store."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock.errors import StateError
from penstock.state.durable import replace_durably
from penstock.state.own_folder import new_file, own_folder

__all__ = [
    "create_document",
    "delete_document",
    "document_time_ms",
    "list_documents",
    "local_directory",
    "read_document",
    "replace_document",
    "write_document",
]


@lru_cache(maxsize=64)
def local_directory(location: str) -> Path | None:
    """Return the directory that a location names; None if it is in an object store."""
    if location.startswith("file:"):
        return Path(unquote(urlsplit(location).path))
    return None if "://" in location else Path(location)


def _remote(location: str) -> Any:
    from penstock.state.segments.object_storage import (
        object_store,  # with it Polars, which a planner of batches does without
    )

    return object_store(location, ())


def read_document(location: str, name: str) -> str | None:
    """Return the text of a document; None if there is none."""
    directory = local_directory(location)
    if directory is not None:
        try:
            return (directory / name).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
    import obstore

    try:
        return bytes(obstore.get(_remote(location), name).bytes()).decode()
    except (FileNotFoundError, obstore.exceptions.NotFoundError):
        return None


def document_time_ms(location: str, name: str) -> int | None:
    """Return the time when a document was last written; None if there is none."""
    directory = local_directory(location)
    if directory is not None:
        try:
            # Not by way of pathlib: every query asks this, and a Path costs more than the question.
            return os.stat(f"{directory}/{name}").st_mtime_ns // 1_000_000  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            return None
    import obstore

    try:
        return int(obstore.head(_remote(location), name)["last_modified"].timestamp() * 1000)
    except (FileNotFoundError, obstore.exceptions.NotFoundError):
        return None


def list_documents(location: str, folder: str) -> list[str]:
    """Return the names of the documents in a folder, without the folder; hidden ones are left out."""
    directory = local_directory(location)
    if directory is not None:
        try:
            names = [path.name for path in (directory / folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
    else:
        import obstore

        pages = obstore.list(_remote(location), prefix=folder)
        paths = [entry["path"].removeprefix(f"{folder}/") for page in pages for entry in page]
        names = [path for path in paths if "/" not in path]
    return sorted(name for name in names if not name.startswith("."))


def write_document(location: str, name: str, text: str) -> None:
    """Replace a document as a whole; it is on the disk when this returns."""
    directory = local_directory(location)
    try:
        if directory is not None:
            target = directory / name
            if target.parent != directory or not directory.is_dir():  # it may hold other things, for others to read
                own_folder(target.parent)
            with new_file(target.parent, target.name) as (temporary, file):
                file.write(text.encode())
                replace_durably(file, temporary, target)
            return
        import obstore

        obstore.put(_remote(location), name, text.encode())
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "Free space there and start again." if is_full else "Check that the checkpoint location is writable."
        raise StateError(f"{location}/{name} could not be written: {error}", hint=hint) from error


def replace_document(location: str, name: str, text: str) -> None:
    """Replace a document. A local one is not waited for to reach the disk: after a power cut it may be missing."""
    directory = local_directory(location)
    if directory is None:
        write_document(location, name, text)
        return
    target = directory / name
    if not target.parent.is_dir():
        own_folder(target.parent)
    with new_file(target.parent, target.name) as (temporary, file):
        file.write(text.encode())
        file.close()
        temporary.replace(target)


def create_document(location: str, name: str, text: str) -> bool:
    """Write a document in an object store unless there is one of that name; return whether it was written."""
    import obstore

    try:
        obstore.put(_remote(location), name, text.encode(), mode="create", use_multipart=False)
    except obstore.exceptions.AlreadyExistsError:
        return False
    except (OSError, obstore.exceptions.BaseError) as error:
        raise StateError(
            f"{location}/{name} could not be written: {error}", hint="Check that the checkpoint location is writable."
        ) from error
    return True


def delete_document(location: str, name: str) -> None:
    """Remove a document; do nothing when there is none."""
    directory = local_directory(location)
    if directory is not None:
        (directory / name).unlink(missing_ok=True)
        return
    import obstore

    with suppress(FileNotFoundError, obstore.exceptions.NotFoundError):
        obstore.delete(_remote(location), name)
