"""The files that a source follows: one path, or those of a folder or pattern, each under the name that it has now."""

from __future__ import annotations

import codecs
import glob
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from penstock.base.log_lines import own_logger
from penstock.connect.connectors.line_reader import (
    FilePlace,
    LineReader,
    file_identity,
    is_begin,
    is_packed,
    is_whole,
)
from penstock.connect.connectors.rotated_files import base_name
from penstock.connect.connectors.rotated_lines import FollowedFile
from penstock.errors import ConnectError

__all__ = ["FollowedFiles"]

_log = own_logger(__name__)
STDIN = ""
ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar", ".lz4", ".lzo", ".lzma", ".z", ".br", ".sz", ".parquet")
_FIRST_BYTES = 1024
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class FollowedFiles:
    """The files of a path, folder or pattern, the oldest first; the standard input without one.

    Files of a folder or pattern that are renamed into one another, as logs are when they are rotated, are known again
    by their inodes and by what was read of them, so no line comes twice.

    Args:
        pattern: The path, folder or pattern.
        stored: The stored places, by names of files, and whether each is stored beside that of another file.
    """

    def __init__(self, pattern: str | None, stored: Callable[[], Iterable[tuple[str, FilePlace, bool]]]) -> None:
        self._pattern, self._stored = pattern, stored
        self._files: dict[str, FollowedFile] = {}
        self._gone: list[tuple[str, FollowedFile]] = []  # files whose names others have now
        self._copies: set[_Facts | None] = set()  # of copies of what was still read elsewhere
        self._left_out: set[str] = set()
        self._moved: set[str] = set()
        self._names: frozenset[str] = frozenset()

    def current(self) -> Iterator[tuple[str, FollowedFile]]:
        """Yield the files by name, those that are gone and not read to their end first."""
        names = self._listed()
        self._names = frozenset(names)
        self._rename()
        self._replace()
        new = [name for name in names if name not in self._files]
        if new:
            self._add(new)
        yield from list(self._gone)
        for name in [each for each in self._files if each not in self._names]:
            yield name, self._files[name]
        yield from [(name, self._files[name]) for name in names if name in self._files]

    def stored(self, name: str) -> dict[str, FilePlace]:
        """Note that the place of a file is stored under its name; return the others that have none of their own yet.

        They are stored beside it: else the place of a file that was renamed, and has no new line, would be lost with
        the next place under its old name.
        """
        self._moved.discard(name)
        moved = {each: self._files[each].place for each in sorted(self._moved) if each in self._files}
        return {each: place for each, place in moved.items() if place.position}

    def forget(self, name: str, file: FollowedFile) -> None:
        """Close a file that is gone."""
        if self._files.get(name) is file:
            del self._files[name]
        self._gone = [each for each in self._gone if each[1] is not file]
        file.close()

    def close(self) -> None:
        """Close all files."""
        for file in [*self._files.values(), *(file for _, file in self._gone)]:
            file.close()

    def names(self) -> frozenset[str]:
        """Return the names of the files at this moment."""
        return frozenset() if self.is_one else frozenset(self._listed())

    def adopt(self, name: str, place: FilePlace) -> None:
        """Go on in a file at a place, if nothing was read of it yet."""
        if name not in self._files:
            self._files[name] = self._followed(name, place)
            self._moved.add(name)

    @property
    def is_one(self) -> bool:
        """Whether it is a path, and not a folder or pattern."""
        return self._names == {self._pattern or STDIN}

    def _listed(self) -> list[str]:
        pattern = self._pattern
        if not pattern:
            return [STDIN]
        path = Path(pattern)
        if path.is_dir():
            names = [str(child) for child in path.iterdir() if child.is_file() and not child.name.startswith(".")]
        elif any(mark in pattern for mark in "*?[") and not path.exists():
            names = [name for name in glob.glob(pattern, recursive=True) if os.path.isfile(name)]  # noqa: PTH113, PTH207 - text in, text out
        else:
            return [pattern]
        return sorted((name for name in names if self._is_taken(name)), key=_age)

    def _is_taken(self, name: str) -> bool:
        """Return whether a file of a folder or pattern is read; the log says once which is left out, and why."""
        if name in self._files:
            return True
        reason = self._reason(name)
        if reason is None:
            self._left_out.discard(name)
        elif name not in self._left_out:
            _log.warning("%s is left out: %s", name, reason)
            self._left_out.add(name)
        return reason is None

    def _reason(self, name: str) -> str | None:
        if is_packed(name) and Path(name).with_suffix("").exists():
            return "it is packed, and what it was made of is still there"
        if name.lower().endswith(ARCHIVES):
            return "it is an archive, or packed in a way that is not unpacked here"
        try:
            if is_packed(name):
                problem = is_whole(Path(name))
                return None if problem is None else f"it cannot be unpacked ({problem}); it is read as soon as it can"
            with Path(name).open("rb") as file:
                first = file.read(_FIRST_BYTES)
        except OSError as error:
            return f"it cannot be read ({error.strerror})"
        if b"\0" in first and first[:2] not in _UTF16 and first.count(b"\0") > len(first) // 16:
            return "it is not a text file"
        return None

    def _rename(self) -> None:
        """Give open files the names that they have now, where these are followed too."""
        if self.is_one:
            return
        by_identity = {each.identity: name for name, each in self._files.items() if each.identity is not None}
        moved = {}
        for name in self._names:
            identity = file_identity(name)
            old = None if identity is None else by_identity.get(identity)
            if old is not None and old != name and file_identity(old) != identity:
                moved[name] = old
        renamed = {name: self._files.pop(old) for name, old in moved.items()}
        for name, file in renamed.items():
            if name in self._files:
                self._displace(name)
            file.path = Path(name)
            self._files[name] = file
            self._moved.add(name)

    def _replace(self) -> None:
        """Take the names of deleted files for the new files that have them now."""
        for name in [] if self.is_one else [each for each in self._names if each in self._files]:
            file = self._files[name]
            if file.is_gone and file_identity(name) not in (None, file.identity):
                self._displace(name)

    def _displace(self, name: str) -> None:
        file = self._files.pop(name)
        file.is_last = True
        self._gone.append((name, file))

    def _add(self, names: list[str]) -> None:
        entries = list(self._stored())
        stored = [(name, place) for name, place, _ in entries]
        beside = {(name, place) for name, place, is_beside in entries if is_beside}  # gone with the other's next place
        if self.is_one:
            own = dict(stored)
            for name in names:
                self._files[name] = FollowedFile(Path(name) if name else None, own.get(name, FilePlace()))
            return
        read_on = {file.identity for file in self._files.values()}  # what was cut of them, they find
        noted = [(name, place) for name, place in stored if place.note and place.note.identity not in read_on]
        now = {name: file_identity(name) for name in self._names}
        self._copies &= {_facts(name) for name in self._names} if self._copies else set()
        taken: set[FilePlace] = set()
        for name in names:
            path = Path(name)
            if self._is_made_of_gone(path):
                continue
            claim = _claimed(path, now, noted, taken)
            if claim is None and self._is_copy(path):
                continue
            if claim is None:
                own_place = next((place for of, place in stored if of == name and place.note is None), FilePlace())
                self._follow(name, own_place)
                continue
            taken.add(claim[1])
            self._follow(name, claim[1])
            if claim[0] != name or claim in beside:
                self._moved.add(name)

    def _is_made_of_gone(self, path: Path) -> bool:
        """Return whether a deleted file was packed or copied into this one; then this one is read on in its place."""
        log = base_name(path.name)
        if log == path.name:
            return False
        for name, file in [*self._files.items(), *self._gone]:
            if file.is_gone and base_name(Path(name).name) == log and file.is_source_of(path):
                place = file.place
                self.forget(name, file)
                self._moved.discard(name)
                self._follow(str(path), place)
                self._moved.add(str(path))
                return True
        return False

    def _is_copy(self, path: Path) -> bool:
        """Return whether a file is a copy, as it is made before the log is cut, of what is or was read elsewhere."""
        name, log = str(path), base_name(path.name)
        base = str(path.with_name(log))
        if base == name:
            return False
        facts = _facts(path)
        if base in self._names and not is_packed(path) and is_begin(path, Path(base)):
            self._copies.add(facts)
            return True
        open_files = [*self._files.items(), *self._gone]
        sources = [file for each, file in open_files if each != name and base_name(Path(each).name) == log]
        if any(not file.is_intact and file.is_source_of(path) for file in sources):
            return True  # it is adopted as soon as the source is seen to be cut
        if not facts or not facts.size or facts not in self._copies:
            return False
        self._copies.discard(facts)
        if any(file.size_before_cut >= facts.size for file in sources):
            self._follow(name, _end_of(path))  # it was read to its end, and beyond, where it was copied from
            return True
        return False

    def _follow(self, name: str, place: FilePlace) -> None:
        self._files[name] = file = self._followed(name, place)
        with suppress(ConnectError):  # which reading it will show
            file.open()

    def _followed(self, name: str, place: FilePlace) -> FollowedFile:
        return FollowedFile(Path(name), place, self)


def _claimed(
    path: Path,
    now: Mapping[str, tuple[int, int] | None],
    noted: list[tuple[str, FilePlace]],
    taken: Collection[FilePlace],
) -> tuple[str, FilePlace] | None:
    """Return the place, under whatever name, up to which this very file, or the one that it was made of, was read."""
    name, free = str(path), [pair for pair in noted if pair[1] not in taken]

    def rank(pair: tuple[str, FilePlace]) -> tuple[bool, int]:
        return pair[0] != name, -pair[1].position

    def is_vacant(place: FilePlace) -> bool:
        note = place.note
        others = [Path(each) for each, identity in now.items() if note is not None and identity == note.identity]
        return not any(_matches(each, place) for each in others if each != path)

    log = base_name(path.name)
    free = [pair for pair in free if pair[1].position]
    same = sorted((pair for pair in free if pair[1].note and now[name] == pair[1].note.identity), key=rank)
    own = [pair for pair in free if pair[0] == name]
    made_of = [pair for pair in free if log not in (path.name, name) and base_name(Path(pair[0]).name) == log]
    found = next((pair for pair in same if _matches(path, pair[1])), None)
    vacant = (pair for pair in [*own, *sorted(made_of, key=rank)] if is_vacant(pair[1]))
    other = next((pair for pair in vacant if _matches(path, pair[1])), None)
    claims = [pair for pair in (found, other) if pair is not None]
    return max(claims, key=lambda pair: pair[1].position, default=None)  # a new file may have the inode of an old one


def _matches(path: Path, place: FilePlace) -> bool:
    try:
        reader = LineReader.of(path)
    except OSError:
        return False
    try:
        return reader.go_to(place)
    except ConnectError:
        return False
    finally:
        reader.close()


class _Facts(NamedTuple):
    """What shows that a file is the same, whatever its name is: another one may have the inode of a deleted file."""

    device: int
    inode: int
    size: int
    modified_ns: int


def _facts(path: Path | str) -> _Facts | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return _Facts(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _end_of(path: Path) -> FilePlace:
    reader = LineReader.of(path)
    try:
        while reader.lines(1 << 20) or reader.rest():
            pass
        return reader.place
    finally:
        reader.close()


def _age(name: str) -> tuple[float, str]:
    try:
        return Path(name).stat().st_mtime, name
    except OSError:
        return float("inf"), name
