"""Entries of stores that keep headers, in the bytes of Kafka's ``ValueTimestampHeaders``, ``AggregationWithHeaders``.

Before everything else stands the length of the headers, then the headers, each a varint (zigzag) with the bytes behind
it: their number, then of each header its name and value, length -1 for a null value. No headers at all are a length of
0. What follows is the entry of the older format: a timestamp and the value, or the value alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.base.varints import INT_BYTES, read_signed, signed
from penstock.serde.column import bytes_column, to_bytes_list
from penstock.state.views.keyvalue import first_byte, frame, unframe

__all__ = [
    "NO_HEADERS",
    "Headers",
    "pack_headers",
    "rows_without_headers",
    "split_headers",
    "unpack_headers",
    "with_headers",
]

Headers = tuple[tuple[str, bytes | None], ...]
NO_HEADERS = b"\x00"


def pack_headers(headers: Headers) -> bytes:
    """Return the headers of an entry, behind their length.

    >>> pack_headers((("h", b"1"),)).hex()
    '0a0202680231'
    """
    if not headers:
        return NO_HEADERS
    parts = [signed(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += [signed(len(encoded)), encoded, signed(-1 if value is None else len(value)), value or b""]
    packed = b"".join(parts)
    return signed(len(packed)) + packed


def unpack_headers(entry: bytes) -> tuple[Headers, int]:
    """Return the headers of an entry, and where they end.

    >>> unpack_headers(bytes.fromhex("0a0202680231") + b"value")
    ((('h', b'1'),), 6)
    """
    if entry[:1] == NO_HEADERS:
        return (), 1
    try:
        length, at = read_signed(entry, 0, INT_BYTES)
        end = at + length
        count, at = read_signed(entry, at, INT_BYTES)
        if end > len(entry) or count > length:
            raise ValueError("headers that are cut short")
        headers = []
        for _ in range(count):
            name, at = _taken(entry, at, end)
            value, at = _taken(entry, at, end)
            headers.append(((name or b"").decode(), value))
    except IndexError as error:
        raise ValueError("headers that are cut short") from error
    if at != end:
        raise ValueError(f"headers of {length} bytes that end after {length - end + at}")
    return tuple(headers), end


def _taken(entry: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_signed(entry, at, INT_BYTES)
    if length < 0:
        return None, at
    if at + length > end:
        raise ValueError("headers that are cut short")
    return entry[at : at + length], at + length


def rows_without_headers(entries: Sequence[bytes | None]) -> list[bytes | None]:
    """Return a list of entries as the older format has them."""
    return [
        None
        if entry is None
        else entry[1:]
        if entry[:1] == NO_HEADERS  # without a call: most have none
        else entry[unpack_headers(entry)[1] :]
        for entry in entries
    ]


def split_headers(entries: pa.Array) -> tuple[pa.Array, list[Headers] | None]:
    """Return entries as the older format has them, and the headers of each; None when no entry has any."""
    if not _any(entries):
        return unframe(entries, before=1)[0], None
    bare: list[bytes | None] = []
    headers: list[Headers] = []
    for row in to_bytes_list(entries):
        own, end = ((), 0) if row is None else unpack_headers(row)
        headers.append(own)
        bare.append(None if row is None else row[end:])
    return bytes_column(bare), headers


def with_headers(entries: pa.Array, headers: Sequence[Headers] | None = None) -> pa.Array:
    """Return entries of the older format with headers before them, by default none; nulls stay null."""
    if headers is None or not any(headers):
        return frame(entries, prefix=np.zeros((len(entries), 1), np.uint8))
    rows = zip(to_bytes_list(entries), headers, strict=True)
    return bytes_column([None if row is None else pack_headers(own) + row for row, own in rows])


def _any(entries: pa.Array) -> bool:
    """Return whether an entry has headers."""
    return bool(first_byte(entries).any())
