"""Files that survive a power cut: on the disk, under their final name, before any other file builds on them.

A rename alone is not enough: without `fsync` of the file its new name may stand for nothing after a power cut, and
without `fsync` of the directory the name may be gone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

__all__ = ["replace_durably", "sync", "sync_directory", "sync_path"]


def sync(file: IO[bytes]) -> None:
    """Wait until the writes to an open file are on the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_path(path: Path) -> None:
    """Wait until a file that another process has written is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Wait until the names in a directory are on the disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_durably(file: IO[bytes], temporary: Path, target: Path) -> None:
    """Give a finished file its final name, replacing a file of that name.

    Args:
        file: The file, open; it is closed.
        temporary: Its name, in the same directory.
        target: Its name from now on.
    """
    sync(file)
    file.close()
    temporary.replace(target)
    sync_directory(target.parent)
