"""Following the lines of a file with positions that count as Java's readers do: in UTF-16 units."""

from __future__ import annotations

import codecs
import glob
import os
import re
import sys
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

from penstock.errors import ConnectError

__all__ = ["FollowedFile", "Lines", "followed_files"]

_CHUNK_BYTES = 1 << 20
_LONGEST_LINE = 256 << 20
STDIN = ""
_ENDS = re.compile(r"\r\n|\n|\r")


def followed_files(pattern: str | None) -> list[str]:
    """The files of a path, folder or pattern, the oldest first; the standard input (an empty name) without one."""
    if not pattern:
        return [STDIN]
    place = Path(pattern)
    if place.is_dir():
        found = [str(child) for child in place.iterdir() if child.is_file() and not child.name.startswith(".")]
    elif any(mark in pattern for mark in "*?[") and not place.exists():
        found = [name for name in glob.glob(pattern, recursive=True) if os.path.isfile(name)]  # noqa: PTH113, PTH207 - text in, text out
    else:
        return [pattern]
    return sorted(found, key=_age)


def _age(name: str) -> tuple[float, str]:
    try:
        return Path(name).stat().st_mtime, name
    except OSError:
        return float("inf"), name


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines, each with the position after it.

    Attributes:
        texts: The lines, without their ends.
        positions: The positions.
    """

    texts: list[str] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, rows: slice) -> Lines:
        return Lines(self.texts[rows], self.positions[rows])


NO_LINES = Lines()


class FollowedFile:
    """The lines of a file from a position on.

    A line ends with LF, CR LF or CR. A last line without an end waits until it is complete. When the path names another
    file, the old one is read to its end first; when the file has become shorter than the position, it is read from its
    start.

    Args:
        path: The file, which need not exist yet; None: the standard input.
        position: The number of UTF-16 units that were read before.
    """

    def __init__(self, path: Path | None, position: int) -> None:
        self._path = path
        self._position = position
        self._file: BinaryIO | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._ready, self._at = NO_LINES, 0
        self._bytes = 0

    @property
    def has_more(self) -> bool:
        """Whether there is something that was not read yet, if only a part of a line."""
        if self._at < len(self._ready):
            return True
        return self._path is not None and self._file is not None and os.fstat(self._file.fileno()).st_size > self._bytes

    def read(self, most: int) -> Lines:
        """The next complete lines, at most so many.

        Raises:
            ConnectError: The file cannot be read.
        """
        if self._file is None and not self._open():
            return NO_LINES
        lines = self._lines(most)
        while not lines and self._more():
            lines = self._lines(most)
        if not lines and self._is_replaced():
            rest, self._text = self._text, ""
            position = self._position + _units(rest)
            self._restart()
            return Lines([rest], [position]) if rest else self.read(most)
        return lines

    def close(self) -> None:
        """Close the file."""
        if self._file is not None and self._path is not None:
            self._file.close()
        self._file = None

    def _open(self) -> bool:
        if self._path is None:
            self._file = sys.stdin.buffer
            return True
        try:
            self._file = self._path.open("rb")
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConnectError(
                f"{self._path} cannot be read: {error.strerror}", hint="Give the path of a readable text file."
            ) from error
        self._skip(self._position)
        return True

    def _skip(self, units: int) -> None:
        """Read over what was delivered before; a file that is shorter now is another one, and read from its start."""
        left = units
        while left > 0:
            if not self._more():
                self._restart()
                self._open_again()
                return
            taken = min(left, _units(self._text))
            left -= taken
            self._text = _without(self._text, taken)

    def _open_again(self) -> None:
        if self._path is not None and self._path.exists():
            self._file = self._path.open("rb")

    def _restart(self) -> None:
        self.close()
        self._decoder.reset()
        self._text, self._position, self._bytes = "", 0, 0
        self._ready, self._at = NO_LINES, 0

    def _more(self) -> bool:
        assert self._file is not None  # noqa: S101 - callers hold it open
        if self._path is None:
            data = self._file.read1(_CHUNK_BYTES) if hasattr(self._file, "read1") else self._file.read(_CHUNK_BYTES)
        else:
            data = self._file.read(_CHUNK_BYTES)
        if not data:
            return False
        self._bytes += len(data)
        self._text += self._decoder.decode(data)
        if len(self._text) > _LONGEST_LINE:
            raise ConnectError(
                f"a line of {self._path} has more than {_LONGEST_LINE:,} characters",
                hint="Is it a text file? Read it with another connector.",
            )
        return True

    def _lines(self, most: int) -> Lines:
        """The next complete lines."""
        if self._at >= len(self._ready):
            self._ready, self._at = self._cut(), 0
        found = self._ready[self._at : self._at + most]
        self._at += len(found)
        if found:
            self._position = found.positions[-1]
        return found

    def _cut(self) -> Lines:
        """Cut all complete lines off the text; a CR at its end may be half of a CR LF, and waits."""
        text = self._text
        if "\r" in text:
            return self._cut_at_all_ends(text)
        end = text.rfind("\n") + 1
        if not end:
            return NO_LINES
        self._text = text[end:]
        texts = text[: end - 1].split("\n")
        sizes = (len(line) + 1 for line in texts) if text.isascii() else (_units(line) + 1 for line in texts)
        return Lines(texts, list(accumulate(sizes, initial=self._position))[1:])

    def _cut_at_all_ends(self, text: str) -> Lines:
        texts, positions, start, position = [], [], 0, self._position
        for found in _ENDS.finditer(text):
            if found[0] == "\r" and found.end() == len(text):
                break
            texts.append(text[start : found.start()])
            position += _units(texts[-1]) + len(found[0])
            positions.append(position)
            start = found.end()
        self._text = text[start:]
        return Lines(texts, positions)

    def _is_replaced(self) -> bool:
        """Whether the path names another file by now, or the file was cut."""
        if self._path is None or self._file is None:
            return False
        try:
            now, own = self._path.stat(), os.fstat(self._file.fileno())
        except FileNotFoundError:
            return False  # between the two steps of a rotation
        return (now.st_ino, now.st_dev) != (own.st_ino, own.st_dev) or own.st_size < self._bytes


def _units(text: str) -> int:
    """The length of a text in UTF-16 units."""
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)


def _without(text: str, units: int) -> str:
    """The text without so many UTF-16 units at its start."""
    if text.isascii():
        return text[units:]
    at = 0
    while units > 0:
        units -= 2 if text[at] > "\uffff" else 1
        at += 1
    return text[at:]
