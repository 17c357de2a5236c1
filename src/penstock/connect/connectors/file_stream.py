"""Kafka's file connectors: lines of a file to a topic, and the records of topics to lines of a file."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

from penstock.base.escapes import visible
from penstock.connect.api import (
    ExactlyOnce,
    SinkConnector,
    SinkTask,
    SourceConnector,
    SourceTask,
)
from penstock.connect.config import ConfigDef, Importance, Kind, NonEmptyText, Setting
from penstock.connect.connectors.file_positions import FILENAME, POSITION, noted_offset, stored_places
from penstock.connect.connectors.followed_files import FollowedFiles
from penstock.connect.connectors.line_reader import FilePlace, ReadLines
from penstock.connect.data import STRING, RetriableError, SinkBatch, SinkRecord, SourceBatch
from penstock.connect.data.stored_offsets import NotedOffset
from penstock.connect.plugins.registry import KAFKA_VERSION
from penstock.errors import ConnectError
from penstock.log.base import TopicPartition
from penstock.serde.data.values import java_text

__all__ = [
    "FILE_SINK",
    "FILE_SOURCE",
    "AppendedFile",
    "FileStreamSinkConnector",
    "FileStreamSinkTask",
    "FileStreamSourceConnector",
    "FileStreamSourceTask",
]

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
