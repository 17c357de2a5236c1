"""The file source: reads a growing text file, line by line, into a topic, exactly once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.connect.connectors.file_positions import FILENAME, noted_offset, place_of_bytes, stored_places
from penstock.connect.connectors.line_reader import FilePlace, ReadLines
from penstock.connect.connectors.rotated_lines import FollowedFile
from penstock.connect.delivery.source_writer import StoredOffsets
from penstock.errors import ConnectError, FencedError, LogError
from penstock.log.base import LogTransaction, TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic

__all__ = ["FilePositions", "FileSource", "FileSourceStatus"]

_MOST_LINES = 1 << 20


@dataclass(frozen=True, slots=True)
class FileSourceStatus:
    """The progress of a file source: lines in this run and in all runs, and the position in the file."""

    lines: int
    total_lines: int
    offset_bytes: int
    behind_bytes: int


class FilePositions:
    """The stored places of one file: source offsets of a connector, in Kafka Connect's format.

    Args:
        log: The log.
        connector: The connector's name.
        path: The file.
    """

    def __init__(self, log: TopicLog, connector: str, path: Path) -> None:
        self._log = log
        self._offsets = StoredOffsets(log, connector)
        self._path = path
        self._partition = {FILENAME: str(path)}
        self._former_key = connector.encode()  # of earlier versions, in partition 0
        self._former = self._read_former() if self._offsets.offset(self._partition) is None else None

    def stored(self) -> FilePlace | None:
        """Return the last committed place; None at the first start.

        Raises:
            LogError: It cannot be read.
        """
        topic = self._offsets.topic
        self._log.settled_ends([TopicPartition(topic, number) for number in range(self._log.partitions(topic))])
        offset = self._offsets.offset(self._partition)
        if offset is None:
            return self._former
        try:
            return dict(stored_places(str(self._path), offset))[str(self._path)]
        except ConnectError as error:
            raise self._unreadable(error) from error

    def write(self, transaction: LogTransaction, place: FilePlace) -> None:
        """Add a place to a transaction."""
        self._offsets.write(transaction, [(self._partition, noted_offset(place))])
        if self._former is not None:
            removal = {
                "timestamp": pa.array([unix_ms()], pa.int64()),
                "key": pa.array([self._former_key], pa.large_binary()),
                "value": pa.nulls(1, pa.large_binary()),
            }
            transaction.append(self._offsets.topic, 0, pa.RecordBatch.from_pydict(removal))

    def _read_former(self) -> FilePlace | None:
        """Read the position as earlier versions have stored it, under the connector's bare name."""
        tp = TopicPartition(self._offsets.topic, 0)
        first, end = self._log.beginning_offset(tp.topic, 0), self._log.settled_ends([tp])[tp]
        value: bytes | None = None
        for records in self._log.iterate(tp.topic, 0, first, end):
            keys = records.column("key").to_pylist()
            row = max((row for row, key in enumerate(keys) if key == self._former_key), default=None)
            if row is not None:
                value = records.column("value")[row].as_py()
        if value is None:
            return None
        try:
            facts = json.loads(value)
            return place_of_bytes(self._path, int(facts["offset_bytes"]), facts)
        except (ConnectError, ValueError, TypeError, KeyError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> LogError:
        return LogError(
            f"the position of connector {self._former_key.decode()!r} in topic {self._offsets.topic} cannot be read: "
            f"{error}",
            hint="Start the connector under another name; it then reads its file from the start.",
            topic=self._offsets.topic,
        )


class FileSource:
    r"""Kafka Connect's FileStreamSource, with exactly-once positions: lines and position are one log transaction.

    The file is read as by the connector: over its rotations, from the same stored offsets. A line is one record without
    key: its bytes are the value (even if they are not UTF-8: the topology's serde and exception handler decide about
    them), the time of reading is its timestamp. Lines go to the partitions in turn. A last line without newline waits
    until it is complete.

    Args:
        log: The topic log to write to.
        path: The file. It need not exist yet when following.
        topic: The topic; created if it does not exist.
        name: The connector's name, under which its position is stored; by default the file's absolute path.
        partitions: The partitions of a topic that is created.
        on_note: Called with a sentence when the file was rotated or truncated, or is missing.

    Example:
        >>> import tempfile
        >>> from penstock.log.open import open_log
        >>> path = Path(tempfile.mkdtemp(), "app.log")
        >>> _ = path.write_text("one\ntwo\n")
        >>> log = open_log("memory://")
        >>> FileSource(log, path, "lines").run_once()
        2
        >>> FileSource(log, path, "lines").run_once()
        0
    """

    def __init__(
        self,
        log: TopicLog,
        path: str | Path,
        topic: str,
        *,
        name: str = "",
        partitions: int = 1,
        on_note: Callable[[str], object] | None = None,
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        if self.path.is_dir():
            raise LogError(f"{self.path} is a folder", hint="Give the path of a text file.")
        self.topic = topic
        self.name = name or f"file:{self.path}"
        self._log = log
        self._on_note = on_note or (lambda _: None)
        self._stop = threading.Event()
        self._lines = 0
        self._partitions = ensure_topic(log, topic, partitions)
        self._positions = FilePositions(log, self.name, self.path)
        self._last_stored = self._positions.stored()  # as this source has read or written it last
        self._committed = self._last_stored or FilePlace()
        self._file = FollowedFile(self.path, self._committed, on_note=self._on_note, keeps_bytes=True)

    def status(self) -> FileSourceStatus:
        """Return the committed progress."""
        now, note = self._committed, self._committed.note
        read = 0 if note is None or note.size is None else note.size
        is_current = note is not None and note.is_of(self.path)
        size = self.path.stat().st_size if self.path.exists() else 0
        return FileSourceStatus(self._lines, now.lines, read, max(size - (read if is_current else 0), 0))

    def poll(self, *, final: bool = False) -> int:
        """Append the next lines of the file, and return their number.

        Args:
            final: Take a last line without newline as complete.
        """
        lines = self._file.read(_MOST_LINES)
        if not lines and final:
            lines = self._file.finish()
        if lines:
            self._append(lines)
        return len(lines)

    def run_once(self) -> int:
        """Read the file to its end, including a last line without newline, and return the number of lines.

        Raises:
            LogError: The file does not exist.
        """
        if not self.path.exists():
            raise LogError(f"there is no file {self.path}", hint="Check the path, or follow it until it appears.")
        try:
            return sum(iter(lambda: self.poll(final=True), 0))
        finally:
            self.close()

    def follow(self, interval_s: float = 0.1) -> None:
        """Read the file and wait for more, until ``stop()``; lines that exist by then are still read."""
        if not self.path.exists():
            self._on_note(f"there is no file {self.path} yet; waiting for it")
        try:
            while not self._stop.is_set():
                if not self.poll():
                    self._stop.wait(interval_s)
            while self.poll():
                pass
        finally:
            self.close()

    def close(self) -> None:
        """Close the file; the next ``poll`` opens it again at the same position."""
        self._file.close()

    def stop(self) -> None:
        """Make ``follow`` return; may be called from another thread or a signal handler."""
        self._stop.set()

    def _append(self, lines: ReadLines) -> None:
        count, place = len(lines), lines.place_at(len(lines) - 1)
        first = place.lines - count
        values = pa.array(lines.raws(), pa.large_binary())
        times = pa.array(np.full(count, unix_ms()))
        everything = pa.RecordBatch.from_arrays(
            [times, pa.nulls(count, pa.large_binary()), values], ["timestamp", "key", "value"]
        )
        target = (first + np.arange(count)) % self._partitions
        with self._log.transaction(f"connect-{self.name}") as transaction:
            transaction.ask_before_repeating(partial(self._is_written, place))
            for partition in range(min(self._partitions, count) if self._partitions > 1 else 1):
                number = (first + partition) % self._partitions
                part = (
                    everything if self._partitions == 1 else everything.take(pa.array(np.flatnonzero(target == number)))
                )
                transaction.append(self.topic, number, part)
            self._positions.write(transaction, place)
        self._committed = self._last_stored = place
        self._lines += count

    def _is_written(self, place: FilePlace) -> bool:
        """Return whether the lines before this place are written, as the stored one shows.

        Raises:
            FencedError: Another process reads the file under this name.
        """
        stored = self._positions.stored()
        if stored == place:
            return True
        if stored == self._last_stored:
            return False
        raise FencedError(
            f"another process reads {self.path} into {self.topic} as {self.name!r} too; nothing was written twice",
            hint="Stop one of them, or give one another name.",
            topic=self.topic,
        )
