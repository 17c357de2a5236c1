"""Segments in a directory, on a local disk or a network file system."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import StateError
from penstock.state.durable_files import sync, sync_directory, sync_path
from penstock.state.private_folders import create_file, open_lock, own_folder
from penstock.state.segments.segment import SegmentName

__all__ = ["PARTS", "LocalStorage", "write_failed"]

_STALE_TEMPORARY_S = 600.0
PARTS = "parts"


class LocalStorage:
    """A directory on a local disk or a network file system."""

    def __init__(self, directory: Path, *, durable: bool = True) -> None:
        self._directory = directory
        self._durable = durable
        self._is_made = False

    def names(self) -> list[SegmentName]:
        try:
            names = [SegmentName.parse(path.name) for path in self._directory.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in names if name is not None)

    def where(self, name: SegmentName) -> str:
        return str(self._directory / str(name))

    def read(self, name: SegmentName) -> bytes | memoryview | None:
        path = self._directory / str(name)
        try:
            if name.kind == "delta":
                return path.read_bytes()
            with pa.memory_map(str(path)) as mapped:  # as large as the store
                return memoryview(mapped.read_buffer())
        except FileNotFoundError:
            return None

    def exists(self, name: SegmentName) -> bool:
        return (self._directory / str(name)).exists()

    def create(self, name: SegmentName, parts: Sequence[Any]) -> bool:
        target = self._directory / str(name)
        temporary = self._directory / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
        try:
            if not self._is_made:
                own_folder(self._directory)
                self._is_made = True
            self._write(temporary, parts)
            won = _link_new(temporary, target)
            temporary.unlink(missing_ok=True)  # so that its name does not outlast a power cut
            if self._durable:  # also where another attempt was faster: its segment is built on from here on
                sync_directory(self._directory)
        except OSError as error:
            raise write_failed(str(target), error) from error
        finally:
            with suppress(OSError):
                temporary.unlink()
        return won

    def _write(self, file_name: Path, parts: Sequence[Any]) -> None:
        with create_file(file_name) as file:
            for part in parts:
                file.write(part)
            if self._durable:
                sync(file)

    def put_part(self, name: SegmentName, label: str, parts: Sequence[Any]) -> None:
        folder = self._parts_of(name.batch)
        try:
            own_folder(folder)
            self._write(folder / label, parts)
            if self._durable:
                sync_directory(folder)
        except OSError as error:
            raise write_failed(str(folder / label), error) from error

    def read_part(self, name: SegmentName, label: str) -> bytes | memoryview | None:
        try:
            with pa.memory_map(str(self._parts_of(name.batch) / label)) as mapped:
                return memoryview(mapped.read_buffer())
        except FileNotFoundError:
            return None

    def delete_part(self, name: SegmentName, label: str) -> None:
        (self._parts_of(name.batch) / label).unlink(missing_ok=True)

    def remove_parts(self, before: int) -> None:
        folder = self._directory / PARTS
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name.isdecimal() and int(path.name) < before:
                shutil.rmtree(path, ignore_errors=True)

    def _parts_of(self, batch: int) -> Path:
        return self._directory / PARTS / str(batch)

    def make_durable(self, name: SegmentName) -> None:
        if self._durable:
            sync_path(self._directory / str(name))
            sync_directory(self._directory)

    def delete(self, name: SegmentName) -> None:
        (self._directory / str(name)).unlink(missing_ok=True)
        if name.kind == "snapshot":
            shutil.rmtree(self._parts_of(name.batch), ignore_errors=True)

    def sizes(self) -> dict[SegmentName, int]:
        sizes = {}
        for name in self.names():
            with suppress(FileNotFoundError):  # it has just been deleted
                sizes[name] = (self._directory / str(name)).stat().st_size
                if name.kind == "snapshot" and self._parts_of(name.batch).is_dir():
                    sizes[name] += sum(part.stat().st_size for part in self._parts_of(name.batch).iterdir())
        return sizes

    def size_bytes(self) -> int:
        return sum(self.sizes().values())

    def remove_stale_temporaries(self) -> None:
        """Remove temporary files of killed attempts."""
        oldest = time.time() - _STALE_TEMPORARY_S
        for path in self._directory.glob(".*.tmp"):
            with suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()


def _link_new(temporary: Path, target: Path) -> bool:
    """Give the finished file its name; return False if the name is taken."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}:
            raise
        return _rename_locked(temporary, target)
    return True


def _rename_locked(temporary: Path, target: Path) -> bool:
    """Rename under the directory's lock, for file systems without hard links; a killed holder loses the lock."""
    with open_lock(target.with_name(".lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return False
        temporary.rename(target)
        return True


def write_failed(where: str, error: Exception) -> StateError:
    """Make the error of a segment that could not be written: where, and what to do."""
    code = getattr(error, "errno", None)
    hint = {
        errno.ENOSPC: "The disk is full: free space there and start again; nothing of the batch is lost.",
        errno.EDQUOT: "The quota there is used up: free space and start again; nothing of the batch is lost.",
        errno.EACCES: "Give this process the right to write there, or choose another checkpoint location.",
        errno.EROFS: "The file system is read-only: choose another checkpoint location.",
    }.get(code or 0, "Check that the checkpoint location is reachable and writable, and start again.")
    return StateError(f"segment {where} could not be written: {error}", hint=hint, segment=where)
