"""Lines of a file or of the standard input as records, for `topics produce`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from penstock.base.clock import unix_ms
from penstock.base.terminal.human_numbers import counted
from penstock.cli.output import working
from penstock.errors import LogError, SerializationError

if TYPE_CHECKING:
    from penstock.console.producing import TextProducer

__all__ = ["LineConversion"]


@dataclass(frozen=True, slots=True)
class LineConversion:
    """The conversion of lines to records.

    Attributes:
        null_value: The text for null.
        separator: The text between key and value; None: a line is a value.
        key: The key of lines without one.
        timestamp_ms: The timestamp of all records; None: now.
    """

    null_value: str | None
    separator: str | None
    key: str | None
    timestamp_ms: int | None

    def one(self, producer: TextProducer, key: str | bytes | None, value: str | bytes) -> None:
        """Add one record."""
        now = unix_ms() if self.timestamp_ms is None else self.timestamp_ms
        null = self.null_value
        is_null = null is not None and value in (null, null.encode())
        producer.add(key, None if is_null else value, now)

    def all(self, producer: TextProducer, file: Path | None) -> None:
        """Add the lines of a file, or of the standard input.

        Raises:
            LogError: The file cannot be read.
            SerializationError: A line does not have the format; the message has its number.
        """
        size = file.stat().st_size if file is not None and file.is_file() else None
        with _opened(file) as lines, working("producing", size, in_bytes=True) as bar:
            for number, line in enumerate(lines, 1):
                bar.advance(len(line))
                try:
                    self._line(producer, line.removesuffix(b"\n").removesuffix(b"\r"))
                except SerializationError as error:
                    raise SerializationError(
                        f"line {number} of {file or 'the standard input'}: {error.message}",
                        hint=f"{error.hint} {counted(producer.sent, 'record')} before it were appended.",
                    ) from error

    def _line(self, producer: TextProducer, line: bytes) -> None:
        if self.separator is None:
            self.one(producer, self.key, line)
            return
        left, found, right = line.partition(self.separator.encode())
        self.one(producer, left if found else self.key, right if found else line)


@contextmanager
def _opened(file: Path | None) -> Iterator[IO[bytes]]:
    if file is None:
        yield sys.stdin.buffer
        return
    try:
        lines = file.open("rb")
    except OSError as error:
        raise LogError(f"{file} cannot be read: {error.strerror}", hint="Check the path.") from error
    with lines:
        yield lines
