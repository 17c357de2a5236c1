"""Kafka's file connectors: lines of a file to a topic, and the records of topics to lines of a file.

The files that a source follows: one path, or those of a folder or pattern, each under the name that it has now.
"""

from __future__ import annotations

import codecs
import errno
import fcntl
import glob
import os
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from penstock.base.escapes import visible
from penstock.base.log_lines import own_logger
from penstock.connect.api import ExactlyOnce, SinkConnector, SinkTask, SourceConnector, SourceTask
from penstock.connect.config import ConfigDef, Importance, Kind, NonEmptyText, Setting
from penstock.connect.connectors.file_positions import FILENAME, POSITION, noted_offset, stored_places
from penstock.connect.connectors.line_reader import (
    FilePlace,
    LineReader,
    ReadLines,
    file_identity,
    is_begin,
    is_packed,
    is_whole,
)
from penstock.connect.connectors.rotated_lines import FollowedFile, base_name
from penstock.connect.data import STRING, RetriableError, SinkBatch, SinkRecord, SourceBatch
from penstock.connect.data.stored_offsets import NotedOffset
from penstock.connect.plugins.registry import KAFKA_VERSION
from penstock.errors import ConnectError
from penstock.log.base import TopicPartition
from penstock.serde.data.values import java_text

__all__ = [
    "AppendedFile",
    "FILE_SINK",
    "FILE_SOURCE",
    "FileStreamSinkConnector",
    "FileStreamSinkTask",
    "FileStreamSourceConnector",
    "FileStreamSourceTask",
]

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
    continued = next((pair for pair in same if _matches(path, pair[1])), None)
    vacant = (pair for pair in [*own, *sorted(made_of, key=rank)] if is_vacant(pair[1]))
    other = next((pair for pair in vacant if _matches(path, pair[1])), None)
    claims = [pair for pair in (continued, other) if pair is not None]
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
        status = Path(path).stat()
    except OSError:
        return None
    return _Facts(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


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


FILE_SOURCE = ConfigDef(
    [
        Setting(
            name="file",
            kind=Kind.STRING,
            default=None,
            importance=Importance.HIGH,
            doc=("Source filename. If not specified, the standard input will be used"),
        ),
        Setting(
            name="topic",
            kind=Kind.STRING,
            rule=NonEmptyText(),
            importance=Importance.HIGH,
            doc=("The topic to publish data to"),
        ),
        Setting(
            name="batch.size",
            kind=Kind.INT,
            default="2000",
            importance=Importance.LOW,
            doc=("The maximum number of records the source task can read from the file each time it is polled"),
        ),
    ]
)
FILE_SINK = ConfigDef(
    [
        Setting(
            name="file",
            kind=Kind.STRING,
            default=None,
            importance=Importance.HIGH,
            doc=("Destination filename. If not specified, the standard output will be used"),
        ),
    ]
)


_PACKAGE = "org.apache.kafka.connect.file"
_STDIN = (
    "Offsets cannot be modified if the 'file' configuration is unspecified. This is because stdin is used for input "
    "and offsets are not tracked."
)
_LONGEST = (1 << 63) - 1
_NO_OFFSET = "Offset objects should either be null or contain the key 'position'"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FileStreamSourceTask(SourceTask):
    """The lines of a file, or of the files of a folder or pattern, as they come."""

    java_class: ClassVar[str] = f"{_PACKAGE}.FileStreamSourceTask"

    def start(self, settings: Mapping[str, str]) -> None:
        """Take the config; files are opened by `poll`."""
        self._topic = settings["topic"]
        self._batch = max(FILE_SOURCE.parse(settings)["batch.size"], 1)
        self._path = settings.get("file")
        self._files = FollowedFiles(self._path, self._stored)

    def poll(self) -> SourceBatch | None:
        """Return the next lines, at most ``batch.size`` of one file."""
        for name, file in self._files.current():
            lines = file.read(self._batch)
            if not lines and file.is_gone and not self._files.is_one:
                lines = file.finish()
                if not lines:
                    self._files.forget(name, file)
            if lines:
                return self._records(name, lines, more=file.has_more)
        return None

    def stop(self) -> None:
        """Close the files."""
        if hasattr(self, "_files"):
            self._files.close()

    def _stored(self) -> Iterator[tuple[str, FilePlace, bool]]:
        """Yield the stored places by names of files, and whether each is beside that of another file."""
        for partition, offset in self.context.offset_reader.all() if self._path else ():
            name = partition.get(FILENAME)
            if name is not None and len(partition) == 1:  # else of another connector that had this name
                yield from ((each, place, each != name) for each, place in stored_places(name, offset))

    def _records(self, name: str, lines: ReadLines, *, more: bool) -> SourceBatch:
        if not self._path:
            return SourceBatch(self._topic, lines.texts, STRING, None, lambda _: None, more=more)
        others = self._files.stored(name)

        def offset_at(row: int) -> NotedOffset:
            return noted_offset(lines.place_at(row), others)

        return SourceBatch(self._topic, lines.texts, STRING, {FILENAME: name}, offset_at, more=more)


class FileStreamSourceConnector(SourceConnector):
    """Lines of a file to a topic. Kafka's ``FileStreamSourceConnector``.

    ``file`` may also be a folder or a pattern such as ``/var/log/nginx/*.log``: all of its files are followed. A file
    that is rotated, by renaming or by copying and cutting, is read to its end first, also if that happened while the
    connector did not run, and then all that came after it. What is still written to a renamed file is read too.
    Rotated files in the folder are known again; packed ones (gz, bz2, xz, zst) are unpacked. A file is known by its
    device and inode, and by the first and last kilobyte of what was read of it.

    What no reader can know: lines that are deleted or cut off between two looks at the file, or before its offset
    is committed; the first rotation by copying of a file that was empty at the last look; a file that was cut and
    then begins with all that was read of it, which is taken for the same.
    """

    java_class: ClassVar[str] = f"{_PACKAGE}.FileStreamSourceConnector"
    version: ClassVar[str] = KAFKA_VERSION
    config = FILE_SOURCE
    task_class = FileStreamSourceTask

    def start(self, settings: Mapping[str, str]) -> None:
        """Take the config."""
        self._settings = dict(settings)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:  # noqa: ARG002 - one task reads all files
        """Return the config of the only task."""
        return [dict(self._settings)]

    def exactly_once_support(self, settings: Mapping[str, str]) -> ExactlyOnce | None:
        """Supported, unless it reads the standard input."""
        return ExactlyOnce.SUPPORTED if settings.get("file") else ExactlyOnce.UNSUPPORTED

    def alter_offsets(
        self,
        settings: Mapping[str, str],
        offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
    ) -> bool:
        """Check positions: whole numbers from 0 on, by file name.

        Raises:
            ConnectError: A partition or an offset is none of a file.
        """
        if not settings.get("file"):
            raise ConnectError(_STDIN)
        for partition, offset in offsets:
            if offset is None:
                continue
            if POSITION not in offset:
                raise ConnectError(_NO_OFFSET)
            position = offset[POSITION]
            if isinstance(position, bool) or not isinstance(position, int) or position > _LONGEST:
                raise ConnectError("The value for the 'position' key in the offset is expected to be a Long value")
            if position < 0:
                raise ConnectError("The value for the 'position' key in the offset should be a non-negative value")
            if partition is None:
                raise ConnectError("Partition objects cannot be null")
            if FILENAME not in partition:
                raise ConnectError("Partition objects should contain the key 'filename'")
        return True


class FileStreamSinkTask(SinkTask):
    """Appends the value of each record to a file, as Java's ``toString`` shows it."""

    java_class: ClassVar[str] = f"{_PACKAGE}.FileStreamSinkTask"
    _file: AppendedFile | None = None

    def start(self, settings: Mapping[str, str]) -> None:
        """Open the file, or the standard output.

        Raises:
            ConnectError: The file cannot be opened.
        """
        name = settings.get("file")
        if not name:
            return
        try:
            self._file = AppendedFile(name)
        except OSError as error:
            raise ConnectError(f"Couldn't find or create file '{name}' for FileStreamSinkTask") from error

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Write a line for each record.

        Raises:
            RetriableError: The disk is full. Nothing is written.
            ConnectError: The file cannot be written.
        """
        if not records:
            return
        batch = records if isinstance(records, SinkBatch) else SinkBatch(records)
        text = "".join(
            "\n".join([*(value if type(value) is str else java_text(value, schema) for value in values), ""])
            for values, schema in batch.values()
        )
        if self._file is None:
            sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
            sys.stdout.flush()
        else:
            self._file.append(text.encode("utf-8", "replace"))

    def stop(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class FileStreamSinkConnector(SinkConnector):
    """Records of topics to lines of a file. Kafka's ``FileStreamSinkConnector``."""

    java_class: ClassVar[str] = f"{_PACKAGE}.FileStreamSinkConnector"
    version: ClassVar[str] = KAFKA_VERSION
    config = FILE_SINK
    task_class = FileStreamSinkTask

    def start(self, settings: Mapping[str, str]) -> None:
        """Take the config."""
        self._settings = dict(settings)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Return the same config for each task; the group shares the partitions among them."""
        return [dict(self._settings) for _ in range(max_tasks)]

    def alter_offsets(
        self,
        settings: Mapping[str, str],  # noqa: ARG002 - any offset will do
        offsets: Mapping[TopicPartition, int | None],  # noqa: ARG002
    ) -> bool:
        """Nothing to check: a file has no offsets of its own."""
        return True


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
        """Yield the turn of one writer, of which nothing stays if it fails."""
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
