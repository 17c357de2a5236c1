"""The path of a message in its file, which stands between the schema's id and a message's bytes."""

from __future__ import annotations

from typing import Any

from penstock.base.varints import INT_BYTES, read_signed, signed

__all__ = ["index_bytes", "indexes_of", "read_indexes", "skip_indexes"]


def indexes_of(descriptor: Any) -> list[int]:
    """Return the message's place in its file: its number, or those of the messages around it and its own."""
    if descriptor.containing_type is None:
        return [list(descriptor.file.message_types_by_name.values()).index(descriptor)]
    around = descriptor.containing_type
    return [*indexes_of(around), [inner.name for inner in around.nested_types].index(descriptor.name)]


def index_bytes(indexes: list[int]) -> bytes:
    """Return zigzag varints: how many, then each; the usual [0] is one zero."""
    return b"\x00" if indexes == [0] else b"".join(map(signed, (len(indexes), *indexes)))


def skip_indexes(data: bytes, start: int) -> int:
    """Return the end of the path; -1 if it is malformed."""
    try:
        count, at = read_signed(data, start, INT_BYTES)
        if not 0 <= count <= len(data):
            return -1
        for _ in range(count):
            _, at = read_signed(data, at, INT_BYTES)
    except (IndexError, ValueError):
        return -1
    return at


def read_indexes(path: bytes) -> list[int]:
    """Return the numbers of a path, whose end `skip_indexes` has found."""
    count, at = read_signed(path, 0, INT_BYTES)
    indexes = []
    for _ in range(count):
        number, at = read_signed(path, at, INT_BYTES)
        indexes.append(number)
    return indexes or [0]
