"""Following the lines of files with positions that count as Java's readers do: in UTF-16 units."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from pathlib import Path

from penstock.base.log_lines import own_logger
from penstock.connect.connectors.line_reader import NO_LINES, FileNote, LineReader, ReadLines, is_packed, is_whole
from penstock.connect.connectors.rotation import later_rotated, named_files, rotated_files
from penstock.errors import ConnectError

__all__ = ["FollowedFile", "Place"]

_log = own_logger(__name__)
Place = tuple[int, FileNote | None]


class FollowedFile:
    """The lines of a path from a stored place on, over all rotations of its file.

    A line ends with LF, CR LF or CR. A last line without an end waits until it is complete. When the path names another
    file than the one that was read, the old one is read to its end first, wherever it is beside the path, and then
    those that came between the two. A file that has been cut, or is another one, is read from its start.

    Args:
        path: The file, which need not exist yet; None: the standard input.
        place: The number of UTF-16 units that were read before, and the note about the file that they were read of.
        others: The paths that are followed for themselves.
    """

    def __init__(
        self, path: Path | None, place: Place = (0, None), others: Callable[[], Collection[str]] = tuple
    ) -> None:
        self.path = path
        self._place = place
        self._others = others
        self._reader: LineReader | None = None
        self._waiting: list[tuple[Path, Place]] = []  # files to read behind the one that is open
        self._is_old = False  # the open file is another one than the path names
        self._readers: dict[Path, LineReader] = {}  # files that are open at their place already
        self._noted: set[Path] = set()

    @property
    def place(self) -> Place:
        """The place behind the last line that was returned, and the note about its file."""
        return self._place if self._reader is None else (self._reader.position, self._reader.note())

    @property
    def has_more(self) -> bool:
        """Whether there is something that was not read yet, if only a part of a line."""
        return bool(self._waiting) or (self._reader is not None and self._reader.has_more)

    @property
    def identity(self) -> tuple[int, int] | None:
        """The device and inode of the open file."""
        return None if self._reader is None else self._reader.identity

    def read(self, most: int) -> ReadLines:
        """Return the next complete lines, at most so many.

        Raises:
            ConnectError: The file cannot be read.
        """
        while True:
            if self._reader is None and not self._open():
                return NO_LINES
            reader = self._reader
            assert reader is not None  # noqa: S101 - it is open
            lines = reader.lines(most)
            if lines:
                return lines
            if self._is_old or reader.is_complete:
                rest = reader.rest()
                if self._is_old:
                    self._leave(reader)
                if rest:
                    return rest
                if self._is_old or self._reader is None:
                    continue
            if reader.is_rewritten:
                rest = self._go_on_behind_cut(reader)
                if rest:
                    return rest
            elif self._is_replaced(reader):
                self._go_on_behind_rotated(reader)
            else:
                return NO_LINES

    @property
    def is_gone(self) -> bool:
        """Whether the open file has no name any more."""
        return self._reader is not None and self._reader.is_deleted

    def finish(self) -> ReadLines:
        """Return what stands behind the last end of a line of a file that is gone."""
        return NO_LINES if self._reader is None else self._reader.rest()

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._place = self.place
            self._reader.close()
        for reader in self._readers.values():
            reader.close()
        self._reader, self._readers = None, {}

    # Opening

    def _open(self) -> bool:
        """Open the file to go on in; return whether there is one."""
        if self.path is None:
            self._reader = LineReader(sys.stdin.buffer, None)
            return True
        if not self._waiting:
            if not self.path.exists():
                return False  # not yet; or between the two steps of a rotation
            self._waiting = self._begin()
        path, place = self._waiting[0]
        try:
            if is_packed(path) and not self._is_whole(path):
                return False
            reader = self._readers.pop(path, None) or _opened(path, place) or _opened(path, (0, None))
        except FileNotFoundError:
            del self._waiting[0]
            return bool(self._waiting) and self._open()
        del self._waiting[0]
        self._reader, self._is_old = reader, bool(self._waiting)
        return reader is not None

    def _is_whole(self, path: Path) -> bool:
        """Return whether a packed file can be read to its end; else it waits, and the log says why."""
        problem = is_whole(path)
        if problem is not None and path not in self._noted:
            self._noted.add(path)
            _log.warning("%s is left out until it can be unpacked: %s", path, problem)
        return problem is None

    def _begin(self) -> list[tuple[Path, Place]]:
        """Return the files to read from the stored place on, in their order; the last one is that of the path."""
        assert self.path is not None  # noqa: S101 - callers have one
        path, (position, note) = self.path, self._place
        if note is None or not position:
            return [(path, self._place)]
        others = self._others()
        if note.is_of(path) and self._matches(path, self._place):
            return [(path, self._place)]
        old = next((e for e in named_files(path, others) if note.is_of(e) and self._matches(e, self._place)), None)
        if old is None and self._matches(path, self._place):
            return [(path, self._place)]  # a copy: as an editor writes it, or on another machine
        if old is None:
            old = next((each for each in rotated_files(path, others) if self._matches(each, self._place)), None)
        if old is None:
            _log.warning("%s is another file than before, which is not beside it: the new one is read", path)
            return [(path, (0, None))]
        _log.info("%s was rotated: %s is read to its end first", path, old)
        return [(old, self._place), *self._between(old), (path, (0, None))]

    def _matches(self, path: Path, place: Place) -> bool:
        """Return whether a file has, up to a position, what was read before; if so, it is kept open there."""
        try:
            if is_packed(path) and is_whole(path) is not None:
                return False
            reader = _opened(path, place)
        except (OSError, ConnectError):
            return False
        if reader is None:
            return False
        if place[1] is not None and reader.note().lines != place[1].lines:
            reader.close()
            return False
        self._readers[path] = reader
        return True

    def _between(self, old: Path) -> list[tuple[Path, Place]]:
        """Files that were made and rotated after an old one."""
        assert self.path is not None  # noqa: S101 - callers have one
        return [(each, (0, None)) for each in later_rotated(self.path, old, self._others())]

    # Changes while it is open

    def _is_replaced(self, reader: LineReader) -> bool:
        """Return whether the path names another file by now."""
        if self.path is None:
            return False
        try:
            now = self.path.stat()
        except OSError:
            return False  # between the two steps of a rotation
        return (now.st_dev, now.st_ino) != reader.identity

    def _go_on_behind_rotated(self, reader: LineReader) -> None:
        """Read what is left of the open file, which was renamed or deleted, then what came after it."""
        assert self.path is not None  # noqa: S101 - it is replaced
        note = reader.note()
        old = next((each for each in named_files(self.path, ()) if note.is_of(each)), None)
        self._waiting = [*(self._between(old) if old is not None else ()), (self.path, (0, None))]
        self._is_old = True

    def _go_on_behind_cut(self, reader: LineReader) -> ReadLines:
        """Go on in the copy beside the open file, which was cut; without one, half a line may be left of it."""
        assert self.path is not None  # noqa: S101 - the standard input is never cut
        place, rest = self.place, NO_LINES
        rotated = rotated_files(self.path, self._others()) if place[0] else []
        copy = next((each for each in rotated if self._matches(each, place)), None)
        self._waiting = [(self.path, (0, None))]
        if copy is None:
            rest = reader.rest()
            _log.info("%s was cut: it is read from its start", self.path)
        else:
            self._waiting.insert(0, (copy, place))
        self._leave(reader)
        return rest

    def _leave(self, reader: LineReader) -> None:
        reader.close()
        self._reader, self._is_old, self._place = None, False, (0, None)


def _opened(path: Path, place: Place) -> LineReader | None:
    """Return a reader at a place; None if the file does not reach that far."""
    try:
        reader = LineReader.of(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConnectError(
            f"{path} cannot be read: {error.strerror or error}", hint="Give the path of a readable text file."
        ) from error
    if place[0] and not reader.skip(place[0]):
        reader.close()
        return None
    return reader
