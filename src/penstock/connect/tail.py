"""Following a text file that grows, is rotated or is truncated, in chunks of whole lines with positions."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from penstock.errors import LogError

__all__ = ["FilePosition", "LineChunk", "Tail"]

_HEAD_BYTES = 64


@dataclass(frozen=True, slots=True)
class FilePosition:
    """The position of a connector in a file.

    Attributes:
        inode: The inode of the file; another one at the same path means a rotation.
        offset_bytes: The byte before which all lines are in the log.
        lines: The number of lines in the log, of all files of the path.
        head: The first bytes of the file, in hexadecimal, to detect a new file with the old one's inode.
    """

    inode: int = 0
    offset_bytes: int = 0
    lines: int = 0
    head: str = ""


@dataclass(frozen=True, slots=True)
class LineChunk:
    """Whole lines without their ends, as bytes, and the position after them."""

    lines: list[bytes]
    position: FilePosition


class Tail:
    """A reader of a file's lines from a position on.

    Rotation: when the path names another file, the old one is read to its end first, if it is still open or is found
    beside the path under another name. Truncation: when the file is shorter than the position, or its first bytes have
    changed, reading starts again at 0.

    Args:
        path: The file; it need not exist yet.
        position: The start position; by default the start of the file.
        max_bytes: The size of a chunk. A longer line is read whole.
    """

    def __init__(self, path: Path, position: FilePosition | None = None, *, max_bytes: int = 4 << 20) -> None:
        self.path = path
        self.position = position or FilePosition()
        self.notes: list[str] = []
        self._max_bytes = max_bytes
        self._file: BinaryIO | None = None

    def read(self, *, final: bool = False) -> LineChunk | None:
        """Read the next whole lines; None if there are none yet.

        Args:
            final: Accept a last line without newline as complete.
        """
        if self._file is None and not self._open():
            return None
        piece = self._read_lines(final=False)
        if piece:
            return piece
        if self._replaced():
            last = self._read_lines(final=True)  # the end of the old file
            self.close()
            self.position = FilePosition(lines=self.position.lines)
            self.notes.append(f"{self.path} was rotated; reading the new file")
            return last or self.read(final=final)
        if self._cut():
            self.position = FilePosition(self.position.inode, 0, self.position.lines)
            self.notes.append(f"{self.path} was truncated; reading from its start")
            self.close()
            return self.read(final=final)
        return self._read_lines(final=True) if final else None

    def behind_bytes(self) -> int:
        """Return the number of bytes that are not read yet."""
        try:
            return max(self.path.stat().st_size - self.position.offset_bytes, 0)
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        """Close the file; the position remains."""
        if self._file:
            self._file.close()
            self._file = None

    def _open(self) -> bool:
        before = self.position
        if before.inode and not self._is_same(self.path):
            old = self._rotated_away()
            if old:
                self._file = old.open("rb")
                return True
            if self.path.exists():
                self.notes.append(f"{self.path} is another file than before; reading it from its start")
                self.position = FilePosition(lines=before.lines)
        try:
            self._file = self.path.open("rb")
        except FileNotFoundError:
            return False
        except OSError as error:
            raise LogError(
                f"{self.path} cannot be read: {error.strerror}", hint="Give the path of a readable text file."
            ) from error
        status = os.fstat(self._file.fileno())
        if status.st_size < self.position.offset_bytes:
            self.notes.append(f"{self.path} was truncated; reading from its start")
            self.position = FilePosition(lines=self.position.lines)
        self.position = replace(self.position, inode=status.st_ino)
        return True

    def _is_same(self, path: Path) -> bool:
        """Return whether this is the file of the position, by its inode and first bytes."""
        try:
            with path.open("rb") as file:
                same = os.fstat(file.fileno()).st_ino == self.position.inode
                head = bytes.fromhex(self.position.head)
                return same and file.read(len(head)) == head
        except OSError:
            return False

    def _rotated_away(self) -> Path | None:
        beside = self.path.parent.glob(self.path.name + "?*") if self.path.parent.is_dir() else ()
        return next((p for p in beside if p.is_file() and self._is_same(p)), None)

    def _replaced(self) -> bool:
        assert self._file is not None  # noqa: S101 - callers hold the file open
        try:
            return self.path.stat().st_ino != os.fstat(self._file.fileno()).st_ino
        except FileNotFoundError:
            return False  # between the two steps of a rotation

    def _cut(self) -> bool:
        assert self._file is not None  # noqa: S101 - callers hold the file open
        if os.fstat(self._file.fileno()).st_size < self.position.offset_bytes:
            return True
        return not self._is_same(self.path) and self.path.exists()  # cut, and grown beyond the position since

    def _read_lines(self, *, final: bool) -> LineChunk | None:
        assert self._file is not None  # noqa: S101 - callers hold the file open
        start = self.position.offset_bytes
        self._file.seek(start)
        data = self._file.read(self._max_bytes)
        end = data.rfind(b"\n") + 1
        while not end and len(data) and len(data) % self._max_bytes == 0:
            more = self._file.read(self._max_bytes)
            if not more:
                break
            end = more.rfind(b"\n") + 1 and len(data) + more.rfind(b"\n") + 1
            data += more
        if final and not end:
            end = len(data)
        if not end:
            return None
        lines = data[:end].removesuffix(b"\n").split(b"\n")
        head = self.position.head
        if start == 0:
            head = data[: min(end, _HEAD_BYTES)].hex()
        self.position = FilePosition(self.position.inode, start + end, self.position.lines + len(lines), head)
        return LineChunk([line.removesuffix(b"\r") for line in lines], self.position)
