"""Headers of records, bytes from and to columns. Few records have any, so this goes record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.log.base import HEADERS_TYPE
from penstock.log.kafka.wire.varints import read_unsigned

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["read_headers", "write_headers"]


def read_headers(data: pa.Buffer, at: NDArray[np.int64], counts: NDArray[np.int64]) -> pa.Array:
    """The headers of each record: so many, beginning there."""
    view = memoryview(data)
    return pa.array(
        [_read(view, a, n) if n else None for a, n in zip(at.tolist(), counts.tolist(), strict=True)], HEADERS_TYPE
    )


def _read(view: memoryview, at: int, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for _ in range(count):
        length, at = _number(view, at)
        key = bytes(view[at : at + length]).decode("utf-8", "replace")
        length, at = _number(view, at + length)
        found.append({"key": key, "value": None if length < 0 else bytes(view[at : at + length])})
        at += max(length, 0)
    return found


def _number(view: memoryview, at: int) -> tuple[int, int]:
    value, at = read_unsigned(view, at)
    return (value >> 1) ^ -(value & 1), at


def write_headers(headers: pa.Array) -> pa.Array | None:
    """The bytes of each record's headers, their count first; None if no record has any."""
    if headers.null_count == len(headers):
        return None
    return pa.array([_write(each or ()) for each in headers.to_pylist()], pa.large_binary())


def _write(headers: Any) -> bytes:
    out = bytearray(_varint(len(headers)))
    for each in headers:
        key, value = each["key"].encode(), each["value"]
        out += _varint(len(key)) + key
        out += _varint(-1) if value is None else _varint(len(value)) + value
    return bytes(out)


def _varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
