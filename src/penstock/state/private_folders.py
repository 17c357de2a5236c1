"""Folders and files of state that other users of the machine can neither read, nor prepare, nor replace.

A folder is made with mode 0700 and a file with 0600. Before a folder is used, its owner is looked at: one that another
user has made is refused, and so is a way to it that leads through another user's folder or link in a place where all
may write (as the directory for temporary files). Files are opened without following links.

A folder with the setgid bit that its group may write to has been shared on purpose, by users whose drivers and workers
differ. Folders and files below it are shared with that group in the same way.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

from penstock.errors import ConfigError, EnvironmentProblemError
from penstock.state.durable_files import sync_directory

__all__ = ["check_folder", "create_file", "folder_mode", "new_file", "open_lock", "own_folder", "state_home"]

_SHARED = stat.S_ISGID | stat.S_IWGRP


def own_folder(path: Path) -> Path:
    """Create a folder, and its missing parents, for this user alone; return ``path``.

    An existing one of this user's is closed to others.

    Raises:
        EnvironmentProblemError: It is another user's.
        OSError: It could not be created.
    """
    path = path.absolute()
    if not path.is_dir():
        missing_ones = _missing(path)
        _check_way((missing_ones or [path])[0].parent)
        for missing in missing_ones:
            with suppress(FileExistsError):
                missing.mkdir(mode=0o700)
                if _is_shared(missing.parent.stat()):
                    missing.chmod(0o2770)
        for missing in missing_ones:
            sync_directory(missing.parent)  # their names must last
    status = check_folder(path)
    if status.st_uid == os.geteuid() and status.st_mode & 0o077 and not _is_shared(status):
        path.chmod(0o700)
    return path


def check_folder(path: Path) -> os.stat_result:
    """Check an existing folder; return its status.

    Raises:
        EnvironmentProblemError: It is another user's, or no folder, or another user could put another in its place.
    """
    _check_way(path)
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(20, "Not a directory", str(path))
    if not (_is_trusted(status) or _is_shared(status) or _is_mapped(path, status)):
        raise _refused(path)
    return status


@contextmanager
def new_file(folder: Path, name: str) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a scratch file with an unpredictable name; it is removed at the end if it still exists.

    Args:
        folder: The folder of the file.
        name: A part of the file's name; the file is hidden.
    """
    path = folder / f".{name}.{os.getpid()}.{secrets.token_hex(8)}.tmp"
    try:
        with create_file(path) as file:
            yield path, file
    finally:
        path.unlink(missing_ok=True)


def create_file(path: Path) -> BinaryIO:
    """Create a file and open it.

    Raises:
        FileExistsError: It is there, or a link of its name.
    """
    return _opened(path, os.O_EXCL, "w+b")


def open_lock(path: Path) -> BinaryIO:
    """Open a lock file, created if it is missing; its content stays as it is.

    Raises:
        OSError: It could not be opened, or is a link.
    """
    return _opened(path, 0, "r+b")


def _missing(path: Path) -> list[Path]:
    """Return the missing folders, the outermost first."""
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = path.parent
    return missing[::-1]


def _check_way(path: Path) -> None:
    for each in dict.fromkeys((path.absolute(), path.resolve())):
        for part in (each, *each.parents):
            if part.parent.stat().st_mode & stat.S_IWOTH and not _is_trusted(part.lstat()):
                raise _refused(part)


def _opened(path: Path, flags: int, mode: Literal["w+b", "r+b"]) -> BinaryIO:
    rights = folder_mode(path.parent)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flags, rights)
    if rights & 0o060 and os.fstat(handle).st_uid == os.geteuid():
        os.fchmod(handle, rights)  # whatever the umask is
    return os.fdopen(handle, mode)


def _is_trusted(status: os.stat_result) -> bool:
    return status.st_uid in (os.geteuid(), 0)


def _is_shared(status: os.stat_result) -> bool:
    return status.st_mode & _SHARED == _SHARED and not status.st_mode & stat.S_IWOTH


def _is_mapped(path: Path, status: os.stat_result) -> bool:
    """Return whether files of this user belong to the folder's owner: a network file system that maps all users."""
    try:
        with new_file(path, "owner") as (_, file):
            return os.fstat(file.fileno()).st_uid == status.st_uid
    except OSError:
        return False


def folder_mode(folder: Path) -> int:
    """Return the mode of a new file in a folder."""
    return 0o660 if _is_shared(folder.stat()) else 0o600


def state_home() -> Path:
    """Return the user's directory of state: ``XDG_STATE_HOME``, by default ``~/.local/state``.

    Raises:
        ConfigError: The user has no home directory.
    """
    xdg_home = Path(os.environ.get("XDG_STATE_HOME", ""))
    if xdg_home.is_absolute():
        return xdg_home
    try:
        return Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise ConfigError("this user has no home directory to keep state in", hint="Set state.dir.") from error


def _refused(path: Path) -> EnvironmentProblemError:
    status = path.lstat()
    what = "link" if stat.S_ISLNK(status.st_mode) else "folder"
    return EnvironmentProblemError(
        f"the {what} {path} is of another user (id {status.st_uid}), "
        "who could read and change state that is kept there",
        hint="Set state.dir or penstock.checkpoint.location to a folder of your own, or change the owner of this one.",
        directory=str(path),
    )
