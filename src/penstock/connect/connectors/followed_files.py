"""The files that a source follows: one path, or those of a folder or pattern, each under the name that it has now."""

from __future__ import annotations

import codecs
import glob
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from penstock.base.log_lines import own_logger
from penstock.connect.connectors.line_reader import LineReader, is_packed, is_whole
from penstock.connect.connectors.lines import FollowedFile, Place
from penstock.connect.connectors.rotation import base_name

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
        stored: The stored places, by names of files.
    """

    def __init__(self, pattern: str | None, stored: Callable[[], Iterable[tuple[str, Place]]]) -> None:
        self._pattern, self._stored = pattern, stored
        self._files: dict[str, FollowedFile] = {}
        self._left_out: set[str] = set()
        self._moved: set[str] = set()
        self._names: frozenset[str] = frozenset()

    def current(self) -> Iterator[tuple[str, FollowedFile]]:
        """Yield the files by name, also those that are gone and not read to their end."""
        names = self._listed()
        self._names = frozenset(names)
        self._rename()
        new = [name for name in names if name not in self._files]
        if new:
            self._add(new)
        yield from [(name, self._files[name]) for name in names if name in self._files]
        for name in [each for each in self._files if each not in self._names]:
            yield name, self._files[name]

    def stored(self, name: str) -> dict[str, Place]:
        """Note that the place of a file is stored under its name; return the others that have none of their own yet.

        They are stored beside it: else the place of a file that was renamed, and has no new line, would be lost with
        the next place under its old name.
        """
        self._moved.discard(name)
        moved = {each: self._files[each].place for each in sorted(self._moved) if each in self._files}
        return {each: place for each, place in moved.items() if place[0]}

    def forget(self, name: str) -> None:
        """Close a file that is gone."""
        self._files.pop(name).close()

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()

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
            identity = _identity(name)
            old = None if identity is None else by_identity.get(identity)
            if old is not None and old != name and _identity(old) != identity:
                moved[name] = self._files.pop(old)
        for name, file in moved.items():
            if name in self._files:
                self._files.pop(name).close()
            file.path = Path(name)
            self._files[name] = file
            self._moved.add(name)

    def _add(self, names: list[str]) -> None:
        stored = list(self._stored())
        if self.is_one:
            own = dict(stored)
            for name in names:
                self._files[name] = FollowedFile(Path(name) if name else None, own.get(name, (0, None)))
            return
        places = [*((name, file.place) for name, file in self._files.items()), *stored]
        noted = [(name, place) for name, place in places if place[0] and place[1] is not None]
        now = {name: _identity(name) for name in self._names}
        for name in names:
            path = Path(name)
            claim = _claimed(path, now[name], noted)
            if claim is None:
                place = next((each for of, each in stored if of == name), (0, None))
                self._files[name] = self._followed(name, (0, None) if _is_of_another(name, place, now) else place)
                continue
            self._files[name] = self._followed(name, claim[1])
            if claim[0] != name:
                self._moved.add(name)
                if claim[0] in self._files and self._files[claim[0]].is_gone:  # packed, and deleted
                    self._files[claim[0]].close()
                    self._files[claim[0]] = self._followed(claim[0], (0, None))

    def _followed(self, name: str, place: Place) -> FollowedFile:
        return FollowedFile(Path(name), place, lambda: self._names)


def _claimed(path: Path, identity: tuple[int, int] | None, noted: list[tuple[str, Place]]) -> tuple[str, Place] | None:
    """Return the place, under whatever name, up to which this very file, or the one that it was packed of, was read."""

    def rank(pair: tuple[str, Place]) -> tuple[bool, int]:
        return pair[0] != str(path), -pair[1][0]

    same = [pair for pair in noted if pair[1][1] is not None and identity == (pair[1][1].device, pair[1][1].inode)]
    own = [pair for pair in noted if pair[0] == str(path)]
    packed = (
        [pair for pair in noted if base_name(Path(pair[0]).name) == base_name(path.name)] if is_packed(path) else []
    )
    candidates = [*sorted(same, key=rank), *own, *sorted(packed, key=rank)]
    return next((pair for pair in candidates if _matches(path, pair[1])), None)


def _is_of_another(name: str, own: Place, now: dict[str, tuple[int, int] | None]) -> bool:
    """Return whether the place that is stored under a name is that of a file which has another name now."""
    note = own[1]
    return note is not None and any(
        each == (note.device, note.inode) and _matches(Path(other), own) for other, each in now.items() if other != name
    )


def _matches(path: Path, place: Place) -> bool:
    try:
        reader = LineReader.of(path)
    except OSError:
        return False
    try:
        return reader.skip(place[0]) and place[1] is not None and reader.note().lines == place[1].lines
    finally:
        reader.close()


def _identity(name: str) -> tuple[int, int] | None:
    try:
        facts = Path(name).stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _age(name: str) -> tuple[float, str]:
    try:
        return Path(name).stat().st_mtime, name
    except OSError:
        return float("inf"), name
