"""The limits of what one request may read, decode and show, in bytes, and the pieces of a topic that keep to them.

A value that is too large for a list is cut there; its own page has it whole up to a megabyte, and its bytes come as a
file. So a topic with records of megabytes costs a request no more than one with small ones.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = [
    "ANSWER_CHARACTERS",
    "CELL_CHARACTERS",
    "EXPORTS",
    "FILE_BYTES",
    "HEADERS",
    "PIECE_BYTES",
    "READS",
    "REQUEST_BYTES",
    "SHOWN_CHARACTERS",
    "Piece",
    "cut",
    "exporting",
    "fit_for_file",
    "piece_before",
    "piece_from",
    "reading",
]

PIECE_BYTES = 8 << 20  # that are read from the log at a time; a stored batch that is larger is read whole
REQUEST_BYTES = 64 << 20  # that one request reads in all, before it says how to go on
CELL_CHARACTERS = 2_000  # of a key, value or header in a list
ANSWER_CHARACTERS = 4 << 20  # of the rows of a statement
SHOWN_CHARACTERS = 1 << 20  # of a key or value on its own page
FILE_BYTES = 64 << 20  # of a key or value as a file
HEADERS = 100  # of a message in a list
READS = 4  # at a time, in this process
EXPORTS = 2  # at a time; each keeps its file until it is sent
_TURN_S = 15.0
_LESS = 8

_turns = threading.BoundedSemaphore(READS)
_export_turns = threading.BoundedSemaphore(EXPORTS)


@dataclass(frozen=True, slots=True)
class Piece:
    """Records of one partition.

    Attributes:
        records: The records; None for none.
        start: The offset from which on they were read.
        end: The offset behind what was read.
        size: The bytes that were read.
    """

    records: pa.RecordBatch | None
    start: int
    end: int
    size: int


@contextmanager
def reading() -> Iterator[None]:
    """Wait for a turn to read: a few requests read at a time, however many browsers ask.

    Raises:
        PenstockError: There is none for too long; the answer is 503.
    """
    with _turn(_turns, "searches"):
        yield


@contextmanager
def exporting() -> Iterator[None]:
    """Wait for a turn to make a file of messages.

    Raises:
        PenstockError: There is none for too long; the answer is 503.
    """
    with _turn(_export_turns, "exports"):
        yield


@contextmanager
def _turn(turns: threading.BoundedSemaphore, what: str) -> Iterator[None]:
    if not turns.acquire(timeout=_TURN_S):
        raise PenstockError(f"too many {what} run at the same time", hint="Try again in some seconds.", status=503)
    try:
        yield
    finally:
        turns.release()


def piece_from(log: TopicLog, topic: str, partition: int, span: tuple[int, int]) -> Piece:
    """Read the first records of a range of offsets, up to `PIECE_BYTES`; at least one if there is any.

    Args:
        log: The log.
        topic: The topic.
        partition: The partition.
        span: The first offset, and the one behind the last.
    """
    batches: list[pa.RecordBatch] = []
    size, reached = 0, span[1]
    for batch in log.iterate(topic, partition, *span):
        if not batch.num_rows:
            continue
        batches.append(batch)
        size += batch.nbytes
        if size >= PIECE_BYTES:
            reached = int(batch.column("offset")[-1].as_py()) + 1
            break
    return Piece(pa.concat_batches(batches) if batches else None, span[0], reached, size)


def piece_before(log: TopicLog, topic: str, partition: int, span: tuple[int, int], count: int) -> Piece:
    """Read the last offsets of a range: ``count`` of them, or as many as `PIECE_BYTES` allow; at least one.

    Args:
        log: The log.
        topic: The topic.
        partition: The partition.
        span: The first offset, and the one behind the last.
        count: The most offsets.
    """
    low, end = span
    discarded = 0
    while True:
        start = max(low, end - max(count, 1))
        piece = piece_from(log, topic, partition, (start, end))
        if piece.end >= end or end - start <= 1:
            return replace(piece, size=piece.size + discarded)
        discarded += piece.size
        count = max(1, min(count // _LESS, (piece.end - start) // 2))  # half of what was read: others may be larger


def cut(text: str | None, most: int = CELL_CHARACTERS) -> str | None:
    """Return a text, with an ellipsis in place of what is behind its first characters.

    >>> cut("abcdef", 3), cut("abc", 3), cut(None)
    ('abc…', 'abc', None)
    """
    return text if text is None or len(text) <= most else text[:most] + "…"


def fit_for_file(data: bytes | None, what: str) -> bytes:
    """Return bytes that are small enough for a file.

    Raises:
        PenstockError: They are more than `FILE_BYTES`; the answer is 413.
    """
    content = data or b""
    if len(content) > FILE_BYTES:
        raise PenstockError(
            f"{what} has {len(content):,} bytes: more than the {FILE_BYTES:,} that the console sends",
            hint="Use penstock topics consume --value-format bytes.",
            status=413,
        )
    return content
