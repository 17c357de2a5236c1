"""Encoding and decoding of record headers. Few records have any, so this works record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.base.varints import read_signed, signed
from penstock.log.base import HEADERS_TYPE
from penstock.log.kafka.wire.batch_format import DamagedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["read_headers", "write_headers"]


def read_headers(
    data: pa.Buffer, at: NDArray[np.int64], counts: NDArray[np.int64], bounds: NDArray[np.int64]
) -> tuple[pa.Array, NDArray[np.int64]]:
    """Decode the headers of each record, from their positions and counts, and return the positions after them.

    Raises:
        DamagedError: Headers reach beyond the end of their record.
    """
    view = memoryview(data).cast("B")  # Arrow's own view has signed bytes
    all_headers: list[list[dict[str, Any]] | None] = []
    ends: list[int] = []
    for row, (begin, count, bound) in enumerate(zip(at.tolist(), counts.tolist(), bounds.tolist(), strict=True)):
        try:
            headers, end = _read(view[:bound], begin, count) if count else (None, begin)
        except (IndexError, ValueError) as error:
            raise DamagedError("the headers reach beyond their record", row=row) from error
        all_headers.append(headers)
        ends.append(end)
    return pa.array(all_headers, HEADERS_TYPE), np.array(ends, np.int64)


def _read(view: memoryview, at: int, count: int) -> tuple[list[dict[str, Any]], int]:
    headers: list[dict[str, Any]] = []
    for _ in range(count):
        key, at = _piece(view, at)
        value, at = _piece(view, at)
        headers.append({"key": (key or b"").decode("utf-8", "replace"), "value": value})
    return headers, at


def _piece(view: memoryview, at: int) -> tuple[bytes | None, int]:
    length, at = read_signed(view, at)
    end = at + max(length, 0)
    if end > len(view):
        raise IndexError(end)
    return None if length < 0 else bytes(view[at:end]), end


def write_headers(headers: pa.Array) -> pa.Array | None:
    """Encode each record's headers, their count first; None if no record has any."""
    if headers.null_count == len(headers):
        return None
    return pa.array([_write(each or ()) for each in headers.to_pylist()], pa.large_binary())


def _write(headers: Any) -> bytes:
    out = bytearray(signed(len(headers)))
    for each in headers:
        key, value = each["key"].encode(), each["value"]
        out += signed(len(key)) + key
        out += signed(-1) if value is None else signed(len(value)) + value
    return bytes(out)
