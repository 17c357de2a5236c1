"""A file that lines are appended to, by several tasks too: each block is there as a whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock.connect.data import RetriableError
from penstock.errors import ConnectError

__all__ = ["AppendedFile"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class AppendedFile:
    """A file to append to.

    Tasks that append to one file take turns, by a lock of the file, so their lines do not mix. What a full disk takes
    only in part is taken back, so no line is cut. A file that is deleted meanwhile is made anew; one that is renamed,
    as by a rotation of logs, is written to until the task starts again.

    Args:
        path: The file; it is made if it is not there.

    Raises:
        OSError: It cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = self._opened()

    def append(self, data: bytes) -> None:
        """Append a block.

        Raises:
            RetriableError: There is no space for it now. Nothing of it is written.
            ConnectError: It cannot be written.
        """
        try:
            if self._is_regular and os.fstat(self._file).st_nlink == 0:
                self.close()
                self._file = self._opened()
            with self._whole():
                left = memoryview(data)
                while left:
                    left = left[os.write(self._file, left) :]
        except OSError as error:
            text = f"{self._path} cannot be written: {error.strerror}"
            if error.errno in _FULL:
                raise RetriableError(f"{text}. It is tried again until there is space") from error
            raise ConnectError(text, hint="Correct the path or its rights, and restart the task.") from error

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _opened(self) -> int:
        opened = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._is_regular = stat.S_ISREG(os.fstat(opened).st_mode)
        return opened

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """The turn of one writer, of which nothing stays if it fails."""
        if not self._is_regular:
            yield
            return
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            size = os.fstat(self._file).st_size
            try:
                yield
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._file, size)
                raise
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
