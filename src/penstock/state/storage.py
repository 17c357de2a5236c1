"""Where the segments of one task are kept: a directory, or a prefix of an object store.

The one thing asked of a storage is an atomic create: of several attempts to put a segment in place exactly one wins,
and whoever reads the name finds either nothing or the whole file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from penstock.errors import StateError
from penstock.state.segments import SegmentName

__all__ = ["LocalStorage", "ObjectStorage", "SegmentStorage", "object_store", "open_storage"]

_OBJECT_SCHEMES = frozenset({"memory", "s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss"})
_STALE_TEMPORARY_S = 600.0


class SegmentStorage(Protocol):
    """The segments of one task."""

    def names(self) -> list[SegmentName]:
        """What is there, in order of batch."""
        ...

    def where(self, name: SegmentName) -> str:
        """The address of a segment, for messages."""
        ...

    def read(self, name: SegmentName) -> bytes | memoryview | None:
        """The whole segment; None when there is none."""
        ...

    def exists(self, name: SegmentName) -> bool:
        """Whether there is such a segment."""
        ...

    def create(self, name: SegmentName, parts: Sequence[Any]) -> bool:
        """Puts a segment in place if there is none of that name; False when there is one."""
        ...

    def delete(self, name: SegmentName) -> None:
        """Removes a segment; nothing happens when there is none."""
        ...

    def size_bytes(self) -> int:
        """Of all segments together."""
        ...


def open_storage(
    checkpoint: str, task_id: str, *, durable: bool = True, options: Mapping[str, Any] | None = None
) -> SegmentStorage:
    """The storage of a task's segments under ``<checkpoint>/state/<task>``.

    Args:
        checkpoint: A path, or a URI with one of the schemes file, memory, s3, gs, az.
        task_id: The task.
        durable: Whether a segment is flushed to the disk before it counts as published (local storage).
        options: Settings for the object store, as ``obstore.store.from_url`` takes them.
    """
    scheme = urlsplit(checkpoint).scheme if "://" in checkpoint or checkpoint.startswith("file:") else ""
    if scheme in {"", "file"}:
        path = unquote(urlsplit(checkpoint).path) if scheme else checkpoint
        return LocalStorage(Path(path) / "state" / task_id, durable=durable)
    if scheme in _OBJECT_SCHEMES:
        return ObjectStorage(object_store(checkpoint, tuple((options or {}).items())), f"state/{task_id}", checkpoint)
    raise StateError(
        f"state cannot be kept at {checkpoint!r}: there is no storage for {scheme}://",
        hint="Use a path that all executors share, or a URI with s3://, gs://, az:// or file://.",
        checkpoint=checkpoint,
    )


class LocalStorage:
    """A directory on a local disk or a network file system."""

    def __init__(self, directory: Path, *, durable: bool = True) -> None:
        self._directory = directory
        self._durable = durable
        self._is_made = False

    def names(self) -> list[SegmentName]:
        try:
            found = [SegmentName.parse(path.name) for path in self._directory.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if name is not None)

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
                self._directory.mkdir(parents=True, exist_ok=True)
                self._is_made = True
            with temporary.open("xb") as file:
                for part in parts:
                    file.write(part)
                if self._durable:
                    file.flush()
                    os.fsync(file.fileno())
            won = _link_new(temporary, target)
            if won and self._durable:
                _sync_directory(self._directory)
        except OSError as error:
            raise _write_failed(str(target), error) from error
        finally:
            with suppress(OSError):
                temporary.unlink()
        return won

    def delete(self, name: SegmentName) -> None:
        (self._directory / str(name)).unlink(missing_ok=True)

    def size_bytes(self) -> int:
        return sum((self._directory / str(name)).stat().st_size for name in self.names())

    def remove_stale_temporaries(self) -> None:
        """Removes what killed attempts have left behind."""
        oldest = time.time() - _STALE_TEMPORARY_S
        for path in self._directory.glob(".*.tmp"):
            with suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()


class ObjectStorage:
    """A prefix in an object store, through ``obstore``."""

    def __init__(self, store: Any, prefix: str, url: str) -> None:
        self._store = store
        self._prefix = prefix
        self._url = url.rstrip("/")

    def names(self) -> list[SegmentName]:
        import obstore

        found = [
            SegmentName.parse(entry["path"].rsplit("/", 1)[-1])
            for page in obstore.list(self._store, prefix=self._prefix)
            for entry in page
        ]
        return sorted(name for name in found if name is not None)

    def where(self, name: SegmentName) -> str:
        return f"{self._url}/{self._prefix}/{name}"

    def read(self, name: SegmentName) -> bytes | memoryview | None:
        import obstore

        try:
            return memoryview(obstore.get(self._store, f"{self._prefix}/{name}").bytes())
        except (FileNotFoundError, obstore.exceptions.NotFoundError):
            return None

    def exists(self, name: SegmentName) -> bool:
        import obstore

        try:
            obstore.head(self._store, f"{self._prefix}/{name}")
        except (FileNotFoundError, obstore.exceptions.NotFoundError):
            return False
        return True

    def create(self, name: SegmentName, parts: Sequence[Any]) -> bool:
        import obstore

        try:
            obstore.put(self._store, f"{self._prefix}/{name}", b"".join(parts), mode="create", use_multipart=False)
        except obstore.exceptions.AlreadyExistsError:
            return False
        except (OSError, obstore.exceptions.BaseError) as error:
            raise _write_failed(self.where(name), error) from error
        return True

    def delete(self, name: SegmentName) -> None:
        import obstore

        with suppress(FileNotFoundError, obstore.exceptions.NotFoundError):
            obstore.delete(self._store, f"{self._prefix}/{name}")

    def size_bytes(self) -> int:
        import obstore

        pages = obstore.list(self._store, prefix=self._prefix)
        return sum(int(entry["size"]) for page in pages for entry in page)


@cache
def object_store(url: str, options: tuple[tuple[str, Any], ...]) -> Any:
    """One store a URL and process: its connections are reused, and ``memory://`` is one memory."""
    import obstore.store

    if url.startswith("memory:"):
        return obstore.store.MemoryStore()
    return obstore.store.from_url(url.replace("s3a://", "s3://", 1), **dict(options))


def _link_new(temporary: Path, target: Path) -> bool:
    """Gives the finished file its name, unless the name is taken."""
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
    """For file systems without hard links: whoever holds the directory's lock may rename; a killed holder loses it."""
    with target.with_name(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return False
        temporary.rename(target)
        return True


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_failed(where: str, error: Exception) -> StateError:
    code = getattr(error, "errno", None)
    hint = {
        errno.ENOSPC: "The disk is full: free space there and start again; nothing of the batch is lost.",
        errno.EDQUOT: "The quota there is used up: free space and start again; nothing of the batch is lost.",
        errno.EACCES: "Give this process the right to write there, or choose another checkpoint location.",
        errno.EROFS: "The file system is read-only: choose another checkpoint location.",
    }.get(code or 0, "Check that the checkpoint location is reachable and writable, and start again.")
    return StateError(f"segment {where} could not be written: {error}", hint=hint, segment=where)
