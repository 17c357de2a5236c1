"""The lines of one open file: plain or packed text, positions, and a sum of all that was read."""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

from penstock.errors import ConnectError

__all__ = ["NO_LINES", "FileNote", "LineReader", "ReadLines", "is_packed", "is_whole"]

_CHUNK_BYTES = 1 << 20
_LONGEST_LINE = 256 << 20
_EDGE_BYTES = 1024
_ENDS = re.compile(r"\r\n|\n|\r")
_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def _unpack_zstd(file: BinaryIO) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")


PACKED: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": _unpack_zstd,
}


def is_packed(path: Path | str) -> bool:
    """Return whether a file's name says that it is packed in a way that is unpacked here.

    >>> is_packed("app.log.2.gz"), is_packed("app.log")
    (True, False)
    """
    return str(path).lower().endswith(tuple(PACKED))


def is_whole(path: Path) -> str | None:
    """Why a packed file cannot be read to its end, as while it is still being written; None: it can.

    Raises:
        OSError: It cannot be opened.
    """
    with path.open("rb") as file:
        try:
            content = _unpacked(path, file)
            while content.read(_CHUNK_BYTES):
                pass
        except (OSError, EOFError, lzma.LZMAError, ValueError, zlib.error) as error:
            return str(error) or type(error).__name__
    return None


def _unpacked(path: Path, file: BinaryIO) -> BinaryIO:
    """Return the contents of a file: unpacked, if its name says that it is packed."""
    make = PACKED.get(path.suffix.lower())
    return file if make is None else cast("BinaryIO", make(file))


@dataclass(frozen=True, slots=True)
class FileNote:
    """What a file is known again by: its inode, and a sum of the lines that were read of it.

    >>> note = FileNote(1, 2, "ab")
    >>> FileNote.parse(note.text()) == note, FileNote.parse("other")
    (True, None)
    """

    device: int
    inode: int
    lines: str

    def text(self) -> str:
        """Return the note as text."""
        return f"{self.device}:{self.inode}:{self.lines}"

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Return the note of a text; None if it is none."""
        device, _, rest = (text or "").partition(":")
        inode, _, lines = rest.partition(":")
        return cls(int(device), int(inode), lines) if device.isdigit() and inode.isdigit() and lines else None

    def is_of(self, path: Path) -> bool:
        """Return whether a path names the very file."""
        try:
            facts = path.stat()
        except OSError:
            return False
        return (facts.st_dev, facts.st_ino) == (self.device, self.inode)


@dataclass(frozen=True, slots=True)
class ReadLines:
    """Lines, each with the position after it.

    Attributes:
        texts: The lines, without their ends.
        positions: The positions.
        note_at: Makes the note about the file behind a line.
    """

    texts: list[str] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    note_at: Callable[[int], FileNote | None] = lambda _row: None

    def __len__(self) -> int:
        return len(self.texts)


NO_LINES = ReadLines()


class LineReader:
    """A reader of an open file, line by line; it sums up what it has read, so that the file can be known again.

    Args:
        file: The file.
        path: Its path; None: the standard input.
    """

    def __init__(self, file: BinaryIO, path: Path | None) -> None:
        self._file, self._path = file, path
        self.is_complete = path is not None and is_packed(path)  # nobody appends to it
        self._content = _unpacked(path, file) if path is not None and self.is_complete else file
        self._decoder: codecs.IncrementalDecoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._texts: list[str] = []
        self._positions: list[int] = []
        self._at = 0
        self.position = 0
        self._sum = hashlib.blake2b(digest_size=12)
        self._bytes = 0
        self._head = self._tail = b""
        self.is_rewritten = False
        facts = os.fstat(file.fileno()) if path is not None else None
        self.identity = None if facts is None else (facts.st_dev, facts.st_ino)

    @classmethod
    def of(cls, path: Path) -> Self:
        """Open a file.

        Raises:
            OSError: It cannot be opened.
        """
        return cls(path.open("rb"), path)

    @property
    def has_more(self) -> bool:
        """Whether there is something that was not read yet, if only a part of a line."""
        if self._at < len(self._texts):
            return True
        if self._path is None or self.is_complete:
            return False
        return os.fstat(self._file.fileno()).st_size > self._bytes

    @property
    def is_deleted(self) -> bool:
        """Whether the file has no name any more."""
        return self._path is not None and os.fstat(self._file.fileno()).st_nlink == 0

    def note(self) -> FileNote:
        """Return what the file can be known by again, as far as it was returned."""
        return self._note(self._sum)

    def close(self) -> None:
        """Close the file."""
        if self._path is not None:
            self._file.close()

    def lines(self, most: int) -> ReadLines:
        """Return the next complete lines, at most so many; none: there are none now."""
        while self._at >= len(self._texts):
            self._cut()
            if self._at >= len(self._texts) and not self._more():
                return NO_LINES
        texts = self._texts[self._at : self._at + most]
        positions = self._positions[self._at : self._at + most]
        self._at += len(texts)
        return self._returned(texts, positions)

    def rest(self) -> ReadLines:
        """Return what stands behind the last end of a line, as a line."""
        text, self._text = self._text + self._decoder.decode(b"", final=True), ""
        self._decoder.reset()
        return self._returned([text.removesuffix("\r")], [self.position + _units(text)]) if text else NO_LINES

    def skip(self, units: int) -> bool:
        """Go on behind so many UTF-16 units; return whether the file has them."""
        begun = ""
        while self.position < units:
            if not self._text and not self._more():
                return False
            taken, self._text = _divided(self._text, units - self.position)
            self.position += _units(taken)
            texts, begun = _divided_lines(begun + taken)
            self._add(texts)
        if begun:  # a last line without an end; or somebody has set the position
            self._add([begun.removesuffix("\r")])
        return True

    def _add(self, texts: list[str]) -> None:
        if texts:
            self._sum.update("\n".join([*texts, ""]).encode("utf-8", "surrogatepass"))

    def _returned(self, texts: list[str], positions: list[int]) -> ReadLines:
        before = self._sum.copy()
        self._add(texts)
        self.position = positions[-1]

        def note_at(row: int) -> FileNote:
            own = before.copy()
            own.update("\n".join([*texts[: row + 1], ""]).encode("utf-8", "surrogatepass"))
            return self._note(own)

        return ReadLines(texts, positions, note_at)

    def _note(self, own: Any) -> FileNote:
        device, inode = self.identity or (0, 0)
        return FileNote(device, inode, own.hexdigest())

    def _more(self) -> bool:
        """Read on; return whether something came that is to be trusted."""
        try:
            if self._path is None and hasattr(self._content, "read1"):
                data = self._content.read1(_CHUNK_BYTES)
            else:
                data = self._content.read(_CHUNK_BYTES)
        except (OSError, EOFError, lzma.LZMAError) as error:
            if not self.is_complete:
                raise
            raise ConnectError(
                f"{self._path} cannot be unpacked: {error}",
                hint="Remove the file, or unpack it where it is not followed.",
            ) from error
        if self._path is not None and not self.is_complete:
            self.is_rewritten = not self._is_intact()
            if self.is_rewritten:
                return False
        if not data:
            return False
        content = data
        if not self._bytes and data[:2] in _MARKS:
            self._decoder = codecs.getincrementaldecoder(_MARKS[data[:2]])("replace")
            content = data[2:]
        self._bytes += len(data)
        if len(self._head) < _EDGE_BYTES:
            self._head = (self._head + data)[:_EDGE_BYTES]
        self._tail = (self._tail + data)[-_EDGE_BYTES:]
        self._text += self._decoder.decode(content)
        if len(self._text) > _LONGEST_LINE:
            raise ConnectError(
                f"a line of {self._path} has more than {_LONGEST_LINE:,} characters",
                hint="Is it a text file? Read it with another connector.",
            )
        return True

    def _is_intact(self) -> bool:
        """Return whether the file still begins as it did, and has what was read last where it was."""
        number = self._file.fileno()
        if os.fstat(number).st_size < self._bytes:
            return False
        if os.pread(number, len(self._head), 0) != self._head:
            return False
        return os.pread(number, len(self._tail), self._bytes - len(self._tail)) == self._tail

    def _cut(self) -> None:
        """Cut all complete lines off the text."""
        text, position = self._text, self.position
        self._texts, self._at = [], 0
        if "\r" not in text:
            end = text.rfind("\n") + 1
            if not end:
                return
            self._text, self._texts = text[end:], text[: end - 1].split("\n")
            plain = text.isascii()
            sizes = (len(line) + 1 if plain else _units(line) + 1 for line in self._texts)
            self._positions = list(accumulate(sizes, initial=position))[1:]
            return
        self._positions, start = [], 0
        for line_end in _line_ends(text):
            self._texts.append(text[start : line_end.start()])
            position += _units(text[start : line_end.end()])
            self._positions.append(position)
            start = line_end.end()
        self._text = text[start:]


def _line_ends(text: str) -> Iterator[re.Match[str]]:
    """Yield the ends of lines; a CR at the end of the text may be half of a CR LF, and waits."""
    for line_end in _ENDS.finditer(text):
        if line_end[0] == "\r" and line_end.end() == len(text):
            return
        yield line_end


def _divided_lines(text: str) -> tuple[list[str], str]:
    """Return the complete lines of a text, and the rest."""
    texts, start = [], 0
    for end in _line_ends(text):
        texts.append(text[start : end.start()])
        start = end.end()
    return texts, text[start:]


def _units(text: str) -> int:
    """Return the length of a text in UTF-16 units."""
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)


def _divided(text: str, units: int) -> tuple[str, str]:
    """At most so many UTF-16 units of a text, and the rest."""
    if text.isascii() or units >= 2 * len(text):
        return text[:units], text[units:]
    at = 0
    while units > 0 and at < len(text):
        units -= 2 if text[at] > "\uffff" else 1
        at += 1
    return text[:at], text[at:]
