"""The checkpoint location: the names of an application's files in it, and small documents. All else is left alone.

    plan.json, moves.json, ...          small documents
    state/<task>/                       segments
    spark/, realtime/<n>/               Spark's own checkpoints of the application's query
    dataframes/<name>/                  ... and of the queries that fill its topics
    instances/                          the processes that answer queries

A location may be a folder that holds other things too, so a file that is not in this list belongs to another program.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock.errors import StateError
from penstock.state.durable_files import replace_durably
from penstock.state.private_folders import new_file, own_folder
from penstock.state.segments.object_storage import object_store

__all__ = [
    "PLAN",
    "create_document",
    "delete_document",
    "document_time_ms",
    "foreign_files",
    "list_documents",
    "local_directory",
    "mark_removed",
    "own_part",
    "read_document",
    "read_plan",
    "remove_checkpoint",
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


PLAN = "plan.json"
DOCUMENTS = (
    PLAN,
    "moves.json",
    "changelogs.json",
    "mode.json",
    "log.json",
    "standing.json",
    "positions.json",
    "continuous.json",
    "placement.json",
)
_FOLDERS = ("state", "spark", "realtime", "dataframes", "instances", "console")
_OF_SPARK = r"(\.?metadata(\.crc)?|(commits|offsets|sources|state)/.*)"
_DOCUMENT = "|".join(map(re.escape, DOCUMENTS))
_OWN = re.compile(
    rf"({_DOCUMENT}|\.({_DOCUMENT})\..*"
    r"|state/\d+_\d+/.*"
    rf"|(spark|realtime/\d+|dataframes/[^/]+)/{_OF_SPARK}"
    r"|(instances|console)/.*\.json(\..*)?)"
)


def read_plan(location: str) -> dict[str, Any] | None:
    """Return the plan that is noted at a checkpoint location; None if there is no checkpoint."""
    text = read_document(location, PLAN)
    return None if text is None else dict(json.loads(text))


def own_part(location: str, folder: str) -> None:
    """Make a folder of a checkpoint, before Spark makes it readable for others; do nothing in object stores."""
    directory = local_directory(location)
    if directory is not None:
        own_folder(directory / folder)


def foreign_files(location: str) -> list[str]:
    """Return the files at a location, or in our folders there, that are not ours; of a foreign folder only its name."""
    directory = local_directory(location)
    if directory is None:
        return sorted({_top(path) for path in _objects(location) if not _OWN.fullmatch(path)})
    top = [entry.name for entry in directory.iterdir()] if directory.is_dir() else []
    others = [name for name in top if name not in _FOLDERS and not _OWN.fullmatch(name)]
    inside = [path for folder in _FOLDERS for path in _files(directory, folder) if not _OWN.fullmatch(path)]
    return sorted([*others, *inside])


def mark_removed(location: str, plan: Mapping[str, Any]) -> None:
    """Note that a checkpoint is being removed: no process continues it from now on.

    Args:
        location: The checkpoint location.
        plan: The result of `read_plan`.
    """
    write_document(location, PLAN, json.dumps({**plan, "removed": True}))


def remove_checkpoint(location: str, keep: Collection[str] = ()) -> None:
    """Delete a checkpoint, its plan last.

    Args:
        location: The checkpoint location.
        keep: Folders in it that stay.

    Raises:
        OSError: A file could not be removed.
    """
    directory = local_directory(location)
    if directory is None:
        import obstore

        store = object_store(location, ())
        own = [path for path in _objects(location) if _OWN.fullmatch(path) and path != PLAN]
        own = [path for path in own if path.split("/", 1)[0] not in keep]
        obstore.delete(store, own)
        obstore.delete(store, PLAN)
        return
    for folder in (each for each in _FOLDERS if each not in keep):
        own = [path for path in _files(directory, folder) if _OWN.fullmatch(path)]
        for path in own:
            (directory / path).unlink(missing_ok=True)
        _remove_empty(directory / folder)
    others = [entry.name for entry in directory.iterdir() if _OWN.fullmatch(entry.name)]
    for name in sorted(others, key=lambda name: name == PLAN):  # the plan last
        (directory / name).unlink(missing_ok=True)
    with suppress(OSError):
        directory.rmdir()


def _objects(location: str) -> Iterator[str]:
    import obstore

    for page in obstore.list(object_store(location, ())):
        yield from (str(entry["path"]) for entry in page)


def _files(directory: Path, folder: str) -> Iterator[str]:
    """Yield the files below a folder, by their paths in ``directory``; links are not followed."""
    for root, _, names in os.walk(directory / folder):
        yield from (str(Path(root, name).relative_to(directory)) for name in names)


def _top(path: str) -> str:
    return path if path.split("/", 1)[0] in _FOLDERS else path.split("/", 1)[0]


def _remove_empty(folder: Path) -> None:
    """Remove a folder and its subfolders if they are empty."""
    for root, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            Path(root).rmdir()
