"""The lines of one open file: plain or packed text, the places behind them, and what the file is known again by."""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import lzma
import os
import re
import zlib
from bisect import bisect_right
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

from penstock.errors import ConnectError

__all__ = [
    "NO_LINES",
    "FileNote",
    "FilePlace",
    "LineReader",
    "ReadLines",
    "file_identity",
    "is_begin",
    "is_packed",
    "is_whole",
]

_CHUNK_BYTES = 1 << 20
_LONGEST_LINE = 256 << 20
_EDGE_BYTES = 1024
_ENDS = re.compile(rb"\r\n|\n|\r")
_NOT_UNPACKED = (OSError, EOFError, lzma.LZMAError, ValueError, zlib.error)
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
        except _NOT_UNPACKED as error:
            return str(error) or type(error).__name__
    return None


def _unpacked(path: Path, file: BinaryIO) -> BinaryIO:
    """Return the contents of a file: unpacked, if its name says that it is packed."""
    make = PACKED.get(path.suffix.lower())
    return file if make is None else cast("BinaryIO", make(file))


@dataclass(frozen=True, slots=True)
class FileNote:
    """What a file is known again by: its device and inode, and the first and last bytes of what was read of it.

    Attributes:
        device: The device.
        inode: The inode.
        fingerprint: A sum of the first and the last kilobyte that were read. In notes of earlier versions, which have
            no size, it is a sum of all lines that were read.
        size: The number of bytes that were read, unpacked and in UTF-8.
        modified_ns: The time of the file's last change by then.

    Example:
        >>> note = FileNote(1, 2, "ab", 7, 99)
        >>> note.text(), FileNote.parse(note.text()) == note, FileNote.parse("1:2:ab"), FileNote.parse("other")
        ('1:2:ab:7:99', True, FileNote(device=1, inode=2, fingerprint='ab', size=None, modified_ns=0), None)
    """

    device: int
    inode: int
    fingerprint: str
    size: int | None = None
    modified_ns: int = 0

    def text(self) -> str:
        """Return the note as text."""
        text = f"{self.device}:{self.inode}:{self.fingerprint}"
        return text if self.size is None else f"{text}:{self.size}:{self.modified_ns}"

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Return the note of a text; None if it is none."""
        device, inode, fingerprint, *read = [*(text or "").split(":"), "", ""][: max((text or "").count(":") + 1, 3)]
        if not device.isdigit() or not inode.isdigit() or not fingerprint or len(read) not in (0, 2):
            return None
        if not all(each.isdigit() for each in read):
            return None
        return cls(int(device), int(inode), fingerprint, *(int(each) for each in read))

    @property
    def identity(self) -> tuple[int, int]:
        """The device and inode."""
        return self.device, self.inode

    def is_of(self, path: Path) -> bool:
        """Return whether a path names the very file.

        Of an empty file only the inode is known, and one that was packed meanwhile may have it by now.
        """
        return file_identity(path) == self.identity and not (self.size == 0 and is_packed(path))


def file_identity(path: str | Path) -> tuple[int, int] | None:
    """Return the device and inode of the file that has a name; None: none has it."""
    try:
        facts = Path(path).stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


@dataclass(frozen=True, slots=True)
class FilePlace:
    """How far the files of a path were read.

    Attributes:
        position: The number of UTF-16 units of the file that were read, as Kafka's connector counts.
        note: What the file is known again by; None: somebody else has set the position.
        lines: The number of lines that were read, of all files of the path.
        late: The places of files that were rotated away, to whose ends somebody may still write.
    """

    position: int = 0
    note: FileNote | None = None
    lines: int = 0
    late: tuple[FilePlace, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadLines:
    """Lines, and the places behind them.

    Attributes:
        texts: The lines as text, without their ends; what is not UTF-8 is replaced.
        raws: Makes the bytes of the lines, without their ends.
        place_at: Makes the place behind a line.
    """

    texts: list[str] = field(default_factory=list)
    raws: Callable[[], list[bytes]] = list
    place_at: Callable[[int], FilePlace] = lambda _row: FilePlace()

    def __len__(self) -> int:
        return len(self.texts)


NO_LINES = ReadLines()


class LineReader:
    """Reads an open file line by line. A line ends with LF, CR LF or CR.

    Args:
        file: The file.
        path: Its path; None: the standard input.
        keeps_bytes: UTF-16 stays as it is.
    """

    def __init__(self, file: BinaryIO, path: Path | None, *, keeps_bytes: bool = False) -> None:
        self._file, self.path = file, path
        self._marks = {} if keeps_bytes else _MARKS
        self.is_complete = path is not None and is_packed(path)  # nobody appends to it
        self._content = _unpacked(path, file) if path is not None and self.is_complete else file
        self._utf16: codecs.IncrementalDecoder | None = None
        self._on_disk = _Edges()  # what was read of the file
        self._before, self._units = _Edges(), 0  # what stands before the lines that are cut
        self._cut, self._next = _NO_CUT_LINES, 0
        self._begun: list[bytes] = []  # the line whose end has not come yet
        self._begun_size = 0
        self._is_at_end = True  # as it was when it was read last
        self.is_rewritten = False
        facts = os.fstat(file.fileno()) if path is not None else None
        self.identity = None if facts is None else (facts.st_dev, facts.st_ino)
        self.modified_ns = 0 if facts is None else facts.st_mtime_ns

    @classmethod
    def of(cls, path: Path, *, keeps_bytes: bool = False) -> Self:
        """Open a file.

        Raises:
            OSError: It cannot be opened.
        """
        return cls(path.open("rb"), path, keeps_bytes=keeps_bytes)

    @property
    def has_more(self) -> bool:
        """Whether there is something that was not read yet, if only a part of a line."""
        if self._next < len(self._cut):
            return True
        if self.path is None or self.is_complete:
            return False
        return os.fstat(self._file.fileno()).st_size > self._on_disk.size

    @property
    def is_deleted(self) -> bool:
        """Whether the file has no name any more."""
        return self.path is not None and os.fstat(self._file.fileno()).st_nlink == 0

    @property
    def place(self) -> FilePlace:
        """The place behind what was returned."""
        return self._place_behind(self._cut, self._next, self._before, self._units)

    @property
    def read_place(self) -> FilePlace:
        """The place behind what was read, also if it was not returned; its position is not counted."""
        if self.identity is None or self._utf16 is not None or self.is_complete:
            return self.place
        return FilePlace(0, FileNote(*self.identity, self._on_disk.fingerprint(), self._on_disk.size, self.modified_ns))

    @property
    def read_size(self) -> int:
        """The number of bytes that were read, also if they were not returned."""
        return self._on_disk.size

    def is_of(self, path: Path) -> bool:
        """Return whether a path names the very file."""
        return file_identity(path) == self.identity

    @property
    def is_intact(self) -> bool:
        """Whether the file still begins as it did, and has what was read last where it was."""
        number, read = self._file.fileno(), self._on_disk
        if os.fstat(number).st_size < read.size or os.pread(number, len(read.head), 0) != read.head:
            return False
        return os.pread(number, len(read.tail), read.size - len(read.tail)) == read.tail

    def close(self) -> None:
        """Close the file."""
        if self.path is not None:
            self._file.close()

    def lines(self, most: int) -> ReadLines:
        """Return the next complete lines, at most so many; none: there are none now."""
        while self._next >= len(self._cut):
            if not self._more():
                return NO_LINES
        return self._taken(most)

    def rest(self) -> ReadLines:
        """Return what stands behind the last end of a line, as a line."""
        if self._utf16 is not None:
            self._begun.append(self._utf16.decode(b"", final=True).encode())
            self._utf16.reset()
        data = self._waiting()
        if not data or (self.is_rewritten and not self._is_at_end):  # the rest of this line was never seen
            return NO_LINES
        self._pass_over(self._cut.size)
        self._begun, self._begun_size = [], 0
        self._cut = _CutLines(data, [len(data)], [_units(_text(data))], [_text(data.removesuffix(b"\r"))])
        return self._taken(1)

    def begins_like(self, path: Path) -> bool:
        """Return whether the file has something, and another one, unpacked, begins with the same."""
        begin = os.pread(self._file.fileno(), _EDGE_BYTES, 0)
        with suppress(*_NOT_UNPACKED), path.open("rb") as file:
            return bool(begin) and _unpacked(path, file).read(len(begin)) == begin
        return False

    def is_begin_of(self, path: Path) -> bool:
        """Return whether another file begins with all that this one has, as far as both ends show it."""
        number = self._file.fileno()
        size = os.fstat(number).st_size
        edge = min(size, _EDGE_BYTES)
        with path.open("rb") as file:
            return all(os.pread(number, edge, at) == os.pread(file.fileno(), edge, at) for at in (0, size - edge))

    def begins_with(self, data: bytes) -> bool:
        """Return whether these are the first bytes of the file."""
        return os.pread(self._file.fileno(), len(data), 0) == data

    def go_to(self, place: FilePlace) -> bool:
        """Go on at a place; return whether the file has, up to there, what was read of it."""
        note = place.note
        if note is None:
            return self._skip(place.position)
        if note.size is None:
            lines_sum = hashlib.blake2b(digest_size=12)
            return self._skip(place.position, lines_sum) and lines_sum.hexdigest() == note.fingerprint
        if not (self._read_over(note.size) if self._is_converted() else self._jump_to(note.size)):
            return False
        self._units = place.position
        return self._before.fingerprint() == note.fingerprint

    def go_to_byte(self, size: int) -> bool:
        """Go on behind so many bytes of a plain file; return whether it has as many."""
        return self._read_over(size)

    # Going on at a place

    def _is_converted(self) -> bool:
        """Return whether the lines are made of something else than the bytes of the file."""
        return self.is_complete or os.pread(self._file.fileno(), 2, 0) in self._marks

    def _jump_to(self, size: int) -> bool:
        number, edge = self._file.fileno(), min(size, _EDGE_BYTES)
        if os.fstat(number).st_size < size:
            return False
        self._before = _Edges(size, os.pread(number, edge, 0), os.pread(number, edge, size - edge))
        self._on_disk = self._before
        self._file.seek(size)
        return True

    def _read_over(self, size: int) -> bool:
        """Go on behind so many bytes of the content."""
        while self._before.size < size:
            missing = size - self._before.size
            if self._cut.size + self._begun_size >= missing:
                self._pass_over(missing)
            elif self._cut.size:
                self._pass_over(self._cut.size)
            elif not self._more():
                return False
        return True

    def _skip(self, units: int, lines_sum: Any = None) -> bool:
        """Go on behind so many UTF-16 units, and add the lines to a sum; return whether the file has as many."""
        while self._units < units:
            if not self._cut.size and self._more():
                continue
            missing = units - self._units
            whole = bisect_right(self._cut.units, missing)
            texts, size = self._cut.texts[:whole], self._cut.ends[whole - 1] if whole else 0
            behind = self._cut.units[whole - 1] if whole else 0
            if behind < missing and (whole < len(self._cut) or not self._cut.size):
                line = self._cut.data[size:] or self._waiting()
                begin = _size_of(line, missing - behind)
                if begin is None:
                    return False
                texts.append(_text(line[:begin].removesuffix(b"\r")))
                size += begin
            if lines_sum is not None:
                lines_sum.update("".join(f"{text}\n" for text in texts).encode("utf-8", "surrogatepass"))
            self._pass_over(size)
        return True

    def _pass_over(self, size: int) -> None:
        """Count so many bytes as returned."""
        data, units, rest = self._cut.data, self._cut.units[-1] if self._cut.size else 0, b""
        if size != self._cut.size:
            data += self._waiting()
            data, rest = data[:size], data[size:]
            units = _units(_text(data))
            self._begun, self._begun_size = [], 0
        self._before, self._units = self._before.followed_by(data, size), self._units + units
        self._cut, self._next = _NO_CUT_LINES, 0
        if rest:
            self._accept(rest)

    # Reading

    def _taken(self, most: int) -> ReadLines:
        cut, first, before, units = self._cut, self._next, self._before, self._units
        self._next = last = min(first + most, len(cut))

        def place_at(row: int) -> FilePlace:
            return self._place_behind(cut, first + row + 1, before, units)

        return ReadLines(cut.texts[first:last], lambda: cut.raws(first, last), place_at)

    def _place_behind(self, cut: _CutLines, count: int, before: _Edges, units: int) -> FilePlace:
        """Return the place behind so many of the lines that are cut."""
        if count:
            before, units = before.followed_by(cut.data, cut.ends[count - 1]), units + cut.units[count - 1]
        if self.identity is None:
            return FilePlace(units)
        return FilePlace(units, FileNote(*self.identity, before.fingerprint(), before.size, self.modified_ns))

    def _more(self) -> bool:
        """Read on; return whether something came that is to be trusted."""
        modified_ns = 0 if self.path is None else os.fstat(self._file.fileno()).st_mtime_ns
        data = self._read_chunk()
        if self.path is not None and not self.is_complete:
            self.is_rewritten = not self.is_intact
            if self.is_rewritten:
                return False
        self.modified_ns = modified_ns
        if not data:
            return False
        content = data
        if not self._on_disk.size and data[:2] in self._marks:
            self._utf16 = codecs.getincrementaldecoder(self._marks[data[:2]])("replace")
            content = data[2:]
        self._on_disk = self._on_disk.followed_by(data, len(data))
        self._is_at_end = self.path is None or os.fstat(self._file.fileno()).st_size <= self._on_disk.size
        self._accept(content if self._utf16 is None else self._utf16.decode(content).encode())
        return True

    def _read_chunk(self) -> bytes:
        try:
            if self.path is None and hasattr(self._content, "read1"):
                return cast("bytes", self._content.read1(_CHUNK_BYTES))
            return self._content.read(_CHUNK_BYTES)
        except _NOT_UNPACKED as error:
            if not self.is_complete:
                raise
            raise ConnectError(
                f"{self.path} cannot be unpacked: {error}",
                hint="Remove the file, or unpack it where it is not followed.",
            ) from error

    def _waiting(self) -> bytes:
        """Return the line whose end has not come yet."""
        if len(self._begun) > 1:
            self._begun = [b"".join(self._begun)]
        return self._begun[0] if self._begun else b""

    def _accept(self, data: bytes) -> None:
        """Cut all complete lines off what was read."""
        self._pass_over(self._cut.size)
        if not self._begun and self._before.tail.endswith(b"\r") and data.startswith(b"\n"):
            self._before, self._units = self._before.followed_by(b"\n", 1), self._units + 1
            data = data[1:]  # the CR before it was taken for the end of a last line
        if b"\r" in data or (self._begun and self._begun[-1].endswith(b"\r")):
            data = self._waiting() + data
            self._begun = []
            self._cut = _CutLines.at_any_end(data)
            data = data[self._cut.size :]
        elif (end := data.rfind(b"\n") + 1) > 0:
            self._cut = _CutLines.at_line_feeds(b"".join([*self._begun, data[:end]]))
            self._begun, data = [], data[end:]
        self._begun += [data] if data else []
        self._begun_size = sum(map(len, self._begun))
        if self._begun_size > _LONGEST_LINE:
            raise ConnectError(
                f"a line of {self.path} has more than {_LONGEST_LINE:,} bytes",
                hint="Is it a text file? Read it with another connector.",
            )


def is_begin(path: Path, of: Path) -> bool:
    """Return whether a file is equal to the first bytes of another."""
    with suppress(OSError), closing(LineReader.of(path)) as reader:
        return reader.is_begin_of(of)
    return False


@dataclass(frozen=True, slots=True)
class _Edges:
    """The size, and the first and last bytes, of what was read."""

    size: int = 0
    head: bytes = b""
    tail: bytes = b""

    def followed_by(self, data: bytes, size: int) -> _Edges:
        """Return the same with the first bytes of what follows."""
        missing = min(_EDGE_BYTES - len(self.head), size)
        head = self.head + data[:missing] if missing > 0 else self.head
        tail = (self.tail + data[max(size - _EDGE_BYTES, 0) : size])[-_EDGE_BYTES:]
        return _Edges(self.size + size, head, tail)

    def fingerprint(self) -> str:
        """Return a sum of both ends."""
        return hashlib.blake2b(self.head + self.tail, digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class _CutLines:
    """Complete lines.

    Attributes:
        data: Their bytes, with the ends of lines.
        ends: Behind which byte of them each ends.
        units: Behind which UTF-16 unit of them each ends.
        texts: The lines without their ends.
    """

    data: bytes = b""
    ends: list[int] = field(default_factory=list)
    units: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self.data)

    @classmethod
    def at_line_feeds(cls, data: bytes) -> Self:
        """Cut bytes that have no CR and end with LF."""
        texts = _text(data[:-1]).split("\n")
        units = list(accumulate([_units(text) + 1 for text in texts]))
        if units[-1] == len(data):
            return cls(data, units, units, texts)
        return cls(data, list(accumulate([len(line) + 1 for line in data[:-1].split(b"\n")])), units, texts)

    @classmethod
    def at_any_end(cls, data: bytes) -> Self:
        """Cut all complete lines off bytes; a CR at their end may be half of a CR LF, and waits."""
        line_ends = [end for end in _ENDS.finditer(data) if end[0] != b"\r" or end.end() < len(data)]
        ends = [end.end() for end in line_ends]
        texts = [_text(data[first : end.start()]) for first, end in zip([0, *ends], line_ends, strict=False)]
        units = list(accumulate(_units(text) + len(end[0]) for text, end in zip(texts, line_ends, strict=True)))
        return cls(data[: ends[-1]] if ends else b"", ends, units, texts)

    def raws(self, first: int, last: int) -> list[bytes]:
        """Return the bytes of lines without their ends."""
        starts = [0, *self.ends]
        return [_without_end(self.data[starts[row] : starts[row + 1]]) for row in range(first, last)]


_NO_CUT_LINES = _CutLines()


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _units(text: str) -> int:
    """Return the length of a text in UTF-16 units."""
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)


def _size_of(data: bytes, units: int) -> int | None:
    """Return the number of bytes that make so many UTF-16 units; None if there are fewer."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for row in range(len(data)):
        units -= _units(decoder.decode(data[row : row + 1]))
        if units <= 0:
            return row + 1
    return len(data) if units <= _units(decoder.decode(b"", final=True)) else None
