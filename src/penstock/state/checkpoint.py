"""The names of an application's files in a checkpoint location: only these are ever deleted.

    plan.json, moves.json, ...          small documents
    state/<task>/                       segments
    spark/, realtime/<n>/               Spark's own checkpoints of the application's query
    dataframes/<name>/                  ... and of the queries that fill its topics
    instances/                          the processes that answer queries

A location may be a folder that holds other things too, so a file that is not in this list belongs to another program.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.state.documents import local_directory, read_document, write_document
from penstock.state.own_folder import own_folder
from penstock.state.segments.object_storage import object_store

__all__ = ["DOCUMENTS", "PLAN", "foreign_files", "mark_removed", "own_part", "read_plan", "remove_checkpoint"]

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
