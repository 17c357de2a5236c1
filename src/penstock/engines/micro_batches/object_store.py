"""Spark's own checkpoint where the application's is in an object store: a directory of the driver, and its copy.

Spark itself could write to an object store only through a file system of Hadoop's that PySpark lacks, in several
requests a file. So it writes to a local directory of the driver, and its notes are copied before anything depends on
them: the input of a batch before the batch's tasks begin, its commit before the next batch is planned. A start on
another machine begins from the copy.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from penstock.engines.spark.spark_log import QUERY
from penstock.errors import FencedError
from penstock.state.checkpoint import (
    create_document,
    delete_document,
    list_documents,
    read_document,
    write_document,
)

__all__ = ["CheckpointCopy"]

_COMMITS, _OFFSETS, _METADATA = "commits", "offsets", "metadata"
_KEPT = 100  # as many batches as Spark keeps of its own


class CheckpointCopy:
    """Spark's own checkpoint in a local directory, with its copy in an object store.

    Args:
        directory: The directory that Spark writes to.
        checkpoint: The application's checkpoint location in an object store.
    """

    def __init__(self, directory: str, checkpoint: str) -> None:
        self._directory = Path(directory)
        self._checkpoint = checkpoint
        self._copied: set[str] = set()
        self._oldest: int | None = None

    def fetch(self) -> None:
        """Recreate the directory from the copy: the newest batch and the one before."""
        shutil.rmtree(self._directory, ignore_errors=True)
        for folder in (_OFFSETS, _COMMITS):
            (self._directory / folder).mkdir(parents=True)
        planned = self._numbers(_OFFSETS)
        batch_files = [f"{folder}/{n}" for folder in (_OFFSETS, _COMMITS) for n in planned[-2:]]
        for name in [_METADATA, *batch_files]:
            text = read_document(self._checkpoint, f"{QUERY}/{name}")
            if text is not None:
                (self._directory / name).write_text(text, encoding="utf-8")

    def push(self) -> None:
        """Copy new notes to the object store.

        Raises:
            FencedError: Another instance has planned the same batch.
            StateError: The object store cannot be written to.
        """
        names = [f"{folder}/{n}" for folder in (_COMMITS, _OFFSETS) for n in self._local(folder)]
        for name in [_METADATA, *names]:  # a batch is planned when the one before is done
            path = self._directory / name
            if name not in self._copied and path.is_file():
                self._copy(name, path.read_text(encoding="utf-8"))
                self._copied.add(name)
        self._forget_old()

    def _copy(self, name: str, text: str) -> None:
        remote = f"{QUERY}/{name}"
        if not name.startswith(_OFFSETS):
            write_document(self._checkpoint, remote, text)
        elif not create_document(self._checkpoint, remote, text):
            there = read_document(self._checkpoint, remote)
            if there != text:
                batch = name.partition("/")[2]
                raise FencedError(
                    f"batch {batch} is planned in {self._checkpoint} already, by another instance, with other records",
                    hint="Stop this instance; the other one continues. If there is none, start again.",
                    checkpoint=self._checkpoint, batch=int(batch),
                )  # fmt: skip

    def _forget_old(self) -> None:
        newest = max(self._local(_OFFSETS), default=0)
        if self._oldest is None:
            self._oldest = min(self._numbers(_OFFSETS), default=newest)
        while self._oldest < newest - _KEPT:
            for folder in (_OFFSETS, _COMMITS):
                delete_document(self._checkpoint, f"{QUERY}/{folder}/{self._oldest}")
                self._copied.discard(f"{folder}/{self._oldest}")
            self._oldest += 1

    def _local(self, folder: str) -> list[int]:
        paths = (self._directory / folder).iterdir()
        return sorted(int(path.name) for path in paths if path.name.isdecimal())

    def _numbers(self, folder: str) -> list[int]:
        names = list_documents(self._checkpoint, f"{QUERY}/{folder}")
        return sorted(int(name) for name in names if name.isdecimal())
