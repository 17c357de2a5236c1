"""The path of a message in its file, which stands between the schema's id and a message's bytes."""

from __future__ import annotations

from typing import Any

__all__ = ["index_bytes", "indexes_of", "read_indexes", "skip_indexes"]


def indexes_of(descriptor: Any) -> list[int]:
    """Return the message's place in its file: its number, or those of the messages around it and its own."""
    if descriptor.containing_type is None:
        return [list(descriptor.file.message_types_by_name.values()).index(descriptor)]
    around = descriptor.containing_type
    return [*indexes_of(around), [inner.name for inner in around.nested_types].index(descriptor.name)]


def index_bytes(indexes: list[int]) -> bytes:
    """Return zigzag varints: how many, then each; the usual [0] is one zero."""
    if indexes == [0]:
        return b"\x00"
    out = bytearray()
    for number in (len(indexes), *indexes):
        rest = number << 1
        while rest >= 0x80:
            out.append(rest & 0x7F | 0x80)
            rest >>= 7
        out.append(rest)
    return bytes(out)


def _varint(data: bytes, start: int) -> tuple[int, int]:
    """Return a zigzag varint and its end; -1 as the end if it is malformed."""
    number = 0
    for at, byte in enumerate(data[start : start + 5]):
        number |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), start + at + 1
    return 0, -1


def skip_indexes(data: bytes, start: int) -> int:
    """Return the end of the path; -1 if it is malformed."""
    count, at = _varint(data, start)
    if count < 0 or count > len(data):
        return -1
    for _ in range(count):
        if at < 0:
            return -1
        _, at = _varint(data, at)
    return at


def read_indexes(path: bytes) -> list[int]:
    """Return the numbers of a path."""
    count, at = _varint(path, 0)
    found = []
    for _ in range(count):
        number, at = _varint(path, at)
        found.append(number)
    return found or [0]
