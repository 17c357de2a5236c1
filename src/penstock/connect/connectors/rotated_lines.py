"""The lines of a path over all rotations of its file: the files that its log was rotated into, and their order."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from penstock.base.log_lines import own_logger
from penstock.connect.connectors.line_reader import (
    NO_LINES,
    FileNote,
    FilePlace,
    LineReader,
    ReadLines,
    file_identity,
    is_begin,
    is_packed,
    is_whole,
)
from penstock.errors import ConnectError

__all__ = ["FollowedFile", "Neighbours", "base_name", "later_rotated", "named_files", "rotated_files", "rotated_since"]

_SUFFIX = re.compile(
    r"(?P<base>.+?)[.\-_](?P<turn>[0-9]{1,4}|[0-9]{4}-?[0-9]{2}-?[0-9]{2}(?:[T_.\-]?[0-9:\-]{2,12})?)"
    r"(?P<end>\.[A-Za-z]{2,8})?(?P<packing>\.(?:gz|bz2|xz|zst))?",
    re.IGNORECASE,
)
_PACKING = re.compile(r"\.(?:gz|bz2|xz|zst)$", re.IGNORECASE)


def base_name(name: str) -> str:
    """Return the name of the log that a rotated file was, or the name itself.

    >>> [base_name(each) for each in ("app.log.2.gz", "app.log-20240131", "app.2024-01-31.log", "app.log")]
    ['app.log', 'app.log', 'app.log', 'app.log']
    """
    plain = _PACKING.sub("", name)
    suffix = _SUFFIX.fullmatch(plain)
    return suffix["base"] + (suffix["end"] or "") if suffix is not None else plain


def named_files(path: Path, others: Collection[str]) -> Iterator[Path]:
    """Yield all plain files in the folder of a path, without the path itself and those that are followed themselves."""
    try:
        with os.scandir(path.parent) as entries:
            files = [Path(entry.path) for entry in entries if entry.is_file() and entry.name != path.name]
    except OSError:
        return
    yield from (each for each in sorted(files) if str(each) not in others)


def rotated_files(path: Path, others: Collection[str]) -> list[Path]:
    """Return the files that a path was rotated into, by their names, the newest first."""
    rotated = [each for each in named_files(path, others) if _is_rotation(each, path)]
    return sorted(rotated, key=lambda each: (-_time(each), each.name))


def later_rotated(path: Path, old: Path, others: Collection[str]) -> list[Path]:
    """Return the files that a path was rotated into after an old one, the oldest first."""
    return _oldest_first(each for each in rotated_files(path, others) if each != old and _is_later(each, old))


def rotated_since(path: Path, time_ns: int, others: Collection[str]) -> list[Path]:
    """Return the files that a path was rotated into, and that were changed after a time, the oldest first."""
    return _oldest_first(each for each in rotated_files(path, others) if _time(each) > time_ns)


def _oldest_first(files: Iterable[Path]) -> list[Path]:
    once: dict[str, Path] = {}
    for each in files:
        if each.name == _plain(each) or _plain(each) not in once:
            once[_plain(each)] = each  # while one is packed, both are there
    return sorted(once.values(), key=lambda each: (_order(each), _time(each)))


def _is_rotation(path: Path, of: Path) -> bool:
    return path.name != of.name and base_name(path.name) == of.name


def _is_later(path: Path, old: Path) -> bool:
    one, other = _turn(path), _turn(old)
    if one is not None and other is not None and one.isdigit() and other.isdigit() and max(len(one), len(other)) < 5:
        return int(one) < int(other)
    if one is not None and other is not None and len(one) == len(other):
        return one > other
    return _time(path) > _time(old)


def _order(path: Path) -> int:
    """Return the place among those with numbers: the largest number is the oldest file."""
    turn = _turn(path)
    return -int(turn) if turn is not None and turn.isdigit() and len(turn) < 5 else 0


def _turn(path: Path) -> str | None:
    suffix = _SUFFIX.fullmatch(path.name)
    return None if suffix is None else suffix["turn"]


def _plain(path: Path) -> str:
    return _PACKING.sub("", path.name)


def _time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


_log = own_logger(__name__)


class Neighbours(Protocol):
    """The files that are followed for themselves beside a path."""

    def names(self) -> Collection[str]:
        """Their names at this moment."""
        ...

    def adopt(self, name: str, place: FilePlace) -> None:
        """Go on in one of them at a place, if nothing was read of it yet."""
        ...


class _NoNeighbours:
    def names(self) -> Collection[str]:
        return ()

    def adopt(self, name: str, place: FilePlace) -> None:
        """There are none."""


_START, _ALONE = FilePlace(), _NoNeighbours()


class FollowedFile:
    """The lines of a path from a stored place on, over all rotations of its file.

    A last line without an end waits until it is complete. When the path names another file than the one that was read,
    the old one is read to its end first, wherever it is beside the path, then those that came between the two. What is
    still written to the old one is read too, as long as it has a name; a last line without an end comes when the
    old file is deleted or packed, or the next rotation is over. A file that has been cut is read on in the copy that
    was made of it, and then from its start.

    Args:
        path: The file, which need not exist yet; None: the standard input.
        place: How far it was read before.
        neighbours: The files that are followed for themselves.
        on_note: Called with a sentence when the file was rotated or truncated.
        keeps_bytes: UTF-16 stays as it is, for those who want the bytes of lines.
    """

    def __init__(
        self,
        path: Path | None,
        place: FilePlace = _START,
        neighbours: Neighbours = _ALONE,
        on_note: Callable[[str], object] = _log.info,
        *,
        keeps_bytes: bool = False,
    ) -> None:
        self._keeps_bytes = keeps_bytes
        self.path = path
        self._on_note = on_note
        self._neighbours = neighbours
        self._place = replace(place, late=())  # while no file is open
        self._line_count = place.lines
        self._late_places = place.late  # that are not open yet
        self._late: list[LineReader] = []  # files that were rotated away, the oldest first
        self._reader: LineReader | None = None
        self._finished: FilePlace | None = None  # the place of the file that was left last
        self._noted: set[Path] = set()
        self._cut_size = 0
        self._known_ns = 0 if place.note is None else place.note.modified_ns  # what was changed until then is known
        self.is_last = False  # another file has its name, which is followed for itself

    @property
    def place(self) -> FilePlace:
        """The place behind the last line that was returned."""
        current = self._place if self._reader is None else self._reader.place
        late = (*self._late_places, *(each.place for each in self._late))
        return replace(self._dated(current), lines=self._line_count, late=late)

    @property
    def has_more(self) -> bool:
        """Whether there is something that was not read yet, if only a part of a line."""
        readers = [*self._late, *([self._reader] if self._reader is not None else [])]
        return self._finished is not None or any(each.has_more for each in readers)

    @property
    def identity(self) -> tuple[int, int] | None:
        """The device and inode of the open file."""
        return None if self._reader is None else self._reader.identity

    def is_source_of(self, path: Path) -> bool:
        """Return whether a file has all that was read of this one; of a deleted one also what was not read yet."""
        read = None if self._reader is None else self._reader.read_place
        if self._reader is None or read is None or read.note is None:
            return False
        if not read.note.size:
            return self._reader.is_deleted and self._reader.begins_like(path)
        copy = self._matching([path], read)
        if copy is not None:
            copy.close()
        return copy is not None

    @property
    def is_intact(self) -> bool:
        """Whether the open file still has what was read of it."""
        return self._reader is not None and self._reader.is_intact

    @property
    def size_before_cut(self) -> int:
        """The number of bytes that were read of the file before it was cut last."""
        if self._reader is None or self._reader.is_intact:
            return self._cut_size
        return max(self._cut_size, self._reader.read_size)

    def open(self) -> None:
        """Open the file, so that it is known whatever name it gets."""
        if self._reader is None:
            self._open()

    @property
    def is_gone(self) -> bool:
        """Whether the open file has no name any more."""
        return self._reader is not None and self._reader.is_deleted

    def read(self, most: int) -> ReadLines:
        """Return the next complete lines, at most so many.

        Raises:
            ConnectError: The file cannot be read.
        """
        while True:
            if self._reader is None and (self.is_last or not self._open()):
                return self._read_late(most)
            reader = self._reader
            assert reader is not None  # noqa: S101 - it is open
            lines = self._read_late(most) or self._counted(reader.lines(most), reader)
            if not lines and reader.is_complete:
                lines = self._counted(reader.rest(), reader)
            if lines:
                return lines
            if reader.is_rewritten:
                lines = self._leave_cut(reader)
                if lines:
                    return lines
            elif self._is_replaced(reader) and not self._has_followed_name(reader):
                self._leave(reader)
            else:
                return NO_LINES

    def finish(self) -> ReadLines:
        """Return what stands behind the last end of a line, of a file that nobody writes to any more."""
        for reader in [*self._late, *([self._reader] if self._reader is not None else [])]:
            rest = self._counted(reader.rest(), reader)
            if rest:
                return rest
        return NO_LINES

    def close(self) -> None:
        """Close the file."""
        place = self.place
        self._place, self._late_places = replace(place, late=()), place.late
        readers = [self._reader, *self._late]
        self._reader, self._late = None, []
        for reader in readers:
            if reader is not None:
                reader.close()

    def _counted(self, lines: ReadLines, reader: LineReader, *, is_kept: bool = True) -> ReadLines:
        """Lines with the places of the path, in place of those of one file."""
        self._known_ns = max(self._known_ns, reader.modified_ns)
        if not lines:
            return lines
        before, current = self._line_count, self.place
        late = tuple(each.place for each in self._late if each is not reader)
        self._line_count += len(lines)
        is_late = reader is not self._reader

        def place_at(row: int) -> FilePlace:
            own, count = lines.place_at(row), before + row + 1
            if is_late:
                return replace(current, lines=count, late=(*late, own) if is_kept else late)
            return replace(self._dated(own), lines=count, late=late)

        return ReadLines(lines.texts, lines.raws, place_at)

    def _dated(self, place: FilePlace) -> FilePlace:
        """Return a place whose time is not before that of anything that was read: such files are no newer ones."""
        note = place.note
        if note is None or note.size is None or note.modified_ns >= self._known_ns:
            return place
        return replace(place, note=replace(note, modified_ns=self._known_ns))

    # Opening

    def _open(self) -> bool:
        """Open the file to go on in; return whether there is one."""
        if self.path is None:
            self._reader = LineReader(sys.stdin.buffer, None)
            return True
        self._open_late(self.path)
        if not self.path.exists():
            return False  # not yet; or between the two steps of a rotation
        reader = self._begin(self.path) if self._finished is None else self._following(self.path, self._finished)
        if reader is not None:
            self._reader, self._finished = reader, None
        return reader is not None

    def _begin(self, path: Path) -> LineReader | None:
        """Return the file to read from the stored place on; None: it is not whole yet."""
        place, note = self._place, self._place.note
        if note is None:
            reader = self._reader_of(path)
            if reader.go_to(place):
                return reader
            reader.close()
            return self._reader_of(path)
        others = self._neighbours.names()
        if note.size == 0:
            empty = [each for each in [path, *rotated_files(path, others)] if note.is_of(each)]
            return self._first(empty[:1] or self._since(path, note), path)
        current = self._matching([path], place) if note.is_of(path) else None
        if current is not None:
            return current
        same = [each for each in named_files(path, others) if note.is_of(each)]
        # The path itself may be a copy, as an editor writes it, or as it is on another machine.
        old = self._matching([*same, path, *rotated_files(path, others)], place)
        if old is None or old.path is None:
            self._on_note(f"{path} is another file than before, which is not beside it: the new one is read")
            return self._first([] if note.size is None else self._since(path, note), path)
        if old.path != path:
            old.is_complete = old.is_complete or old.identity != note.identity  # a copy: nobody writes to it
            self._on_note(f"{path} was rotated: {old.path} is read to its end first")
        return old

    def _following(self, path: Path, finished: FilePlace) -> LineReader | None:
        """Return the file to read behind one that was read to its end; None: it is not whole yet."""
        note = finished.note
        assert note is not None  # noqa: S101 - the standard input does not end
        others = self._neighbours.names()
        same = [each for each in named_files(path, others) if note.is_of(each)]
        old = self._matching([*same, *rotated_files(path, others)] if note.size else same, finished)
        if old is None or old.path is None:
            return self._first(self._since(path, note), path)
        old.close()
        later = self._between(path, old.path)
        if later:
            return self._first(later, path)
        unchanged = self._matching([path], finished) if note.size else None  # it was copied, and is not cut yet
        if unchanged is None:
            return self._reader_of(path)
        for copy in [each for each in self._late if note.identity == each.identity and each.path != path]:
            if copy.is_begin_of(path):  # then its rest is in the file, too
                self._late.remove(copy)
                copy.close()
        return unchanged

    def _first(self, files: list[Path], path: Path) -> LineReader | None:
        first = files[0] if files else path
        if is_packed(first) and not self._is_whole(first):
            return None
        return self._reader_of(first)

    def _open_late(self, path: Path) -> None:
        """Open the files that were rotated away before, and were still written to."""
        places, self._late_places = self._late_places, ()
        if not places:
            return
        others, note = self._neighbours.names(), self._place.note
        beside = list(named_files(path, others))
        same = [each for each in [path, *beside] if note is not None and note.is_of(each)]
        matching = self._matching([*same, path, *rotated_files(path, others)], self._place)
        if matching is not None:
            matching.close()
        current = path if matching is None or matching.path is None else matching.path
        later = [] if current == path else [current, *later_rotated(path, current, others)]
        older = [each for each in rotated_since(path, 0, others) if each not in later]
        for row, place in enumerate(places):
            same = [each for each in beside if place.note is not None and place.note.is_of(each)]
            if place.note is not None and not place.note.size:  # of an empty file only its inode is known
                before = older[row - len(places) :][:1] if len(older) >= len(places) - row else []
                written = rotated_since(path, place.note.modified_ns, others)
                packed = [each for each in before if is_packed(each) and each in written]
                candidates = [each for each in same if each not in later] or packed
            else:
                candidates = [*same, *rotated_files(path, others)]
            reader = self._matching(candidates, place)
            if reader is not None:
                self._late.append(reader)

    def _reader_of(self, path: Path) -> LineReader:
        try:
            return LineReader.of(path, keeps_bytes=self._keeps_bytes)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ConnectError(
                f"{path} cannot be read: {error.strerror or error}", hint="Give the path of a readable text file."
            ) from error

    def _is_whole(self, path: Path) -> bool:
        """Return whether a packed file can be read to its end; else it waits, and the log says why."""
        try:
            problem = is_whole(path)
        except FileNotFoundError:
            return True
        if problem is not None and path not in self._noted:
            self._noted.add(path)
            _log.warning("%s is left out until it can be unpacked: %s", path, problem)
        return problem is None

    def _matching(self, paths: Iterable[Path], place: FilePlace) -> LineReader | None:
        """Return the first of some files that has, up to a place, what was read before, open at that place."""
        for path in paths:
            with suppress(OSError, ConnectError):
                if is_packed(path) and is_whole(path) is not None:
                    continue
                reader = LineReader.of(path, keeps_bytes=self._keeps_bytes)
                is_found = False
                try:
                    is_found = reader.go_to(place)
                finally:
                    if not is_found:
                        reader.close()
                if is_found:
                    return reader
        return None

    def _between(self, path: Path, old: Path) -> list[Path]:
        """Files that were made and rotated after an old one."""
        return self._not_late(later_rotated(path, old, self._neighbours.names()))

    def _since(self, path: Path, note: FileNote) -> list[Path]:
        """Files that were rotated, and written to after a note: behind a file that is not there any more."""
        files = self._not_late(rotated_since(path, note.modified_ns, self._neighbours.names()))
        if not note.is_of(path):
            return files
        # It was cut where it is: what begins as it does was copied from it, and it is not cut again yet.
        return [each for each in files if not _is_copy(each, path)]

    def _not_late(self, paths: Iterable[Path]) -> list[Path]:
        late = {each.identity for each in self._late}
        return [each for each in paths if file_identity(each) not in late]

    # Changes while it is open

    def _is_replaced(self, reader: LineReader) -> bool:
        """Return whether the path names another file by now."""
        if self.path is None or self.is_last:
            return False
        now = file_identity(self.path)
        return now is not None and now != reader.identity  # None: between the two steps of a rotation

    def _has_followed_name(self, reader: LineReader) -> bool:
        """Return whether the next look at the folder finds the open file under its new name."""
        return any(file_identity(each) == reader.identity for each in self._neighbours.names())

    def _leave(self, reader: LineReader) -> None:
        """Go on in the next file; what is still written to this one is read too."""
        self._finished = self._dated(reader.place)
        self._reader, self._place = None, _START
        if reader.is_rewritten or reader.is_complete:
            reader.close()
        else:
            self._late.append(reader)

    def _leave_cut(self, reader: LineReader) -> ReadLines:
        """Go on in the copy beside the open file, which was cut, and then at the start."""
        path, read, others = self.path, reader.read_place, self._neighbours.names()
        has_content = path is not None and read.note is not None and read.note.size
        beside = rotated_files(path.with_name(base_name(path.name)), ()) if path is not None and has_content else ()
        copy = self._matching((each for each in beside if not reader.is_of(each)), read)
        if copy is None or copy.path is None:
            lines = self._counted(reader.rest(), reader)
            if path is None or self._is_replaced(reader):  # an old file
                self._leave(reader)
                return lines
            self._on_note(f"{path} was truncated: it is read from its start")
            self._cut_size = reader.read_size
            self._finished = self._dated(read)  # what was rotated since then comes first
            self._reader, self._place = None, _START
            reader.close()
            return lines
        copy.close()
        self._place = reader.place
        reader.close()
        self._reader, rest = None, None
        if str(copy.path) in others:
            self._neighbours.adopt(str(copy.path), self._place)
        else:
            rest = self._matching([copy.path], self._place)
        if rest is not None:
            rest.is_complete = True
        self._reader, self._place = rest, _START
        return NO_LINES

    def _read_late(self, most: int) -> ReadLines:
        """Lines of files that were rotated away."""
        open_ones = [each for each in self._late if not (each.is_complete or each.is_deleted)]
        for reader in list(self._late):
            lines = self._counted(reader.lines(most), reader)
            if lines:
                return lines
            if reader in open_ones[-1:] and not reader.is_rewritten:
                continue  # somebody may still write to it
            self._late.remove(reader)
            lines = self._counted(reader.rest(), reader, is_kept=False)
            reader.close()
            if lines:
                return lines
        return NO_LINES


def _is_copy(path: Path, of: Path) -> bool:
    """Return whether a plain file that is not empty is equal to the first bytes of another."""
    with suppress(OSError):
        return not is_packed(path) and path.stat().st_size > 0 and is_begin(path, of)
    return False
