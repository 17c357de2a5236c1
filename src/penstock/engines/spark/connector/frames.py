"""Messages between a connector's task and its child process: a line of JSON, and bytes behind it."""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO, NamedTuple

__all__ = ["Frame", "read_frame", "write_frame"]

_SIZES = struct.Struct(">IQ")
_MOST_HEADER = 16 << 20


class Frame(NamedTuple):
    """A message.

    Attributes:
        head: Its fields; ``kind`` says what it is.
        data: A table as Arrow's stream format, or nothing.
    """

    head: dict[str, Any]
    data: bytes = b""


def write_frame(out: BinaryIO, frame: Frame) -> None:
    """Write a message, and flush."""
    head = json.dumps(frame.head).encode()
    out.write(_SIZES.pack(len(head), len(frame.data)))
    out.write(head)
    out.write(frame.data)
    out.flush()


def read_frame(source: BinaryIO) -> Frame | None:
    """Read a message; None at the end.

    Raises:
        ValueError: The bytes are not a message.
    """
    sizes = source.read(_SIZES.size)
    if len(sizes) < _SIZES.size:
        return None
    head_size, size = _SIZES.unpack(sizes)
    if head_size > _MOST_HEADER:
        raise ValueError(f"a message begins with {head_size} bytes")
    head, data = source.read(head_size), source.read(size)
    return Frame(json.loads(head), data) if len(data) == size else None
