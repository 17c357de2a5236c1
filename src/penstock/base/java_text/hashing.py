"""The order in which Java's hash maps have their keys."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["bucket_order", "copy_order", "hash_order", "string_hash", "value_hash"]

_LEAST_BUCKETS = 16


def string_hash(text: str) -> int:
    """Return the hash of a text, without its sign. Java's ``String.hashCode``.

    >>> string_hash("name"), string_hash("")
    (3373707, 0)
    """
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (code * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return code


def value_hash(value: Any, *, longs: bool = False) -> int:
    """Return the hash of a value that was read from JSON, without its sign.

    Args:
        value: The value, in the class that Jackson chooses: whole numbers are of 32 bits, of 64, or large.
        longs: Whether whole numbers of 32 bits were made such of 64.

    >>> value_hash({"a": "b", "n": None}) == (97 ^ 98) + 110
    True
    >>> value_hash([1, True]), value_hash(1.5), value_hash(-1), value_hash(-1, longs=True), value_hash(1 << 64)
    (2223, 1073217536, 4294967295, 0, 961)
    """
    match value:
        case None:
            code = 0
        case bool():
            code = 1231 if value else 1237
        case int():
            code = _number_hash(value, longs=longs)
        case float():
            (bits,) = struct.unpack(">Q", struct.pack(">d", value))
            code = bits ^ bits >> 32
        case str():
            code = string_hash(value)
        case dict():
            code = sum(string_hash(key) ^ value_hash(each, longs=longs) for key, each in value.items())
        case _:
            code = 1
            for each in value:
                code = code * 31 + value_hash(each, longs=longs)
    return code & 0xFFFFFFFF


def _number_hash(value: int, *, longs: bool) -> int:
    if -(1 << 31) <= value < 1 << 31 and not longs:
        return value
    if -(1 << 63) <= value < 1 << 63:
        return value ^ (value & 0xFFFFFFFFFFFFFFFF) >> 32
    code, left = 0, abs(value)
    for at in reversed(range(0, left.bit_length(), 32)):
        code = code * 31 + (left >> at & 0xFFFFFFFF)
    return code if value > 0 else -code


def bucket_order(hashes: Sequence[int]) -> list[int]:
    """Return the places of different keys in the order of a ``HashMap`` to which they were added one by one.

    >>> bucket_order([string_hash(text) for text in ("name", "topic", "file")])
    [2, 0, 1]
    """
    buckets = _LEAST_BUCKETS
    while buckets * 3 // 4 < len(hashes):
        buckets *= 2
    return _walked(hashes, buckets)


def hash_order(texts: Iterable[str]) -> list[str]:
    """Return texts in the order of a ``HashSet`` or ``HashMap`` to which they were added one by one, each of them once.

    >>> hash_order(["name", "topic", "file"])
    ['file', 'name', 'topic']
    """
    elements = list(dict.fromkeys(texts))
    return [elements[at] for at in bucket_order([string_hash(text) for text in elements])]


def copy_order(texts: Iterable[str]) -> list[str]:
    """Return texts in the order of a ``HashMap`` that is the copy of another map: it is no larger than it must be.

    >>> copy_order(["name", "connector.class", "tasks.max", "file", "topic"])
    ['name', 'connector.class', 'topic', 'file', 'tasks.max']
    """
    elements = list(texts)
    order = _walked([string_hash(text) for text in elements], 1 << (len(elements) * 4 // 3).bit_length())
    return [elements[at] for at in order]


def _walked(hashes: Sequence[int], buckets: int) -> list[int]:
    return sorted(range(len(hashes)), key=lambda at: (hashes[at] ^ hashes[at] >> 16) & (buckets - 1))
