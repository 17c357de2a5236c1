"""Keys that LMDB does not take as they are: empty ones, and those beyond its limit of 511 bytes.

A long key is stored under its first 478 bytes and a digest, 510 bytes in all, and its value begins with the whole key;
the empty key is stored under 511 zeros. No other stored key has these lengths. Long keys with the same beginning lie
side by side in the order of their digests, so a scan puts each such group into the order of the keys.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from penstock.state.maps import Entries

__all__ = ["are_plain", "fold", "fold_entry", "read_folded", "scan_folded", "scan_plain", "unfold"]

_PREFIX_BYTES = 478
_FOLDED_BYTES = 510
_EMPTY = b"\x00" * 511
_PIECE = 4096  # entries read at a time


def are_plain(keys: Sequence[bytes]) -> bool:
    """Return whether all these keys are stored as they are."""
    lengths = set(map(len, keys))
    return not lengths or (min(lengths) > 0 and max(lengths) <= _PREFIX_BYTES)


def fold(key: bytes) -> bytes:
    """Return the bytes under which the key is stored."""
    if len(key) > _PREFIX_BYTES:
        return key[:_PREFIX_BYTES] + hashlib.blake2b(key, digest_size=_FOLDED_BYTES - _PREFIX_BYTES).digest()
    return key or _EMPTY


def fold_entry(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the entry as it is stored."""
    if len(key) > _PREFIX_BYTES:
        return fold(key), len(key).to_bytes(4, "big") + key + value
    return key or _EMPTY, value


def unfold(stored: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the entry as it was put in."""
    if len(stored) == _FOLDED_BYTES:
        end = 4 + int.from_bytes(value[:4], "big")
        return value[4:end], value[end:]
    return (b"" if stored == _EMPTY else stored), value


def scan_folded(
    transaction: Any, database: Any, start: bytes | None, end: bytes | None, *, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Yield entries with start <= key < end in byte order of the whole keys."""
    empty = transaction.get(_EMPTY, None, database) if not start and end != b"" else None
    if empty is not None and not reverse:
        yield b"", empty
    stored = _backward(transaction, database, start, end) if reverse else _forward(transaction, database, start, end)
    group: list[tuple[bytes, bytes]] = []
    for key, value in stored:
        if len(key) < _FOLDED_BYTES:
            if group:
                yield from _group(group, start, end, reverse=reverse)
                group = []
            yield key, value
        elif len(key) == _FOLDED_BYTES:
            if group and group[0][0][:_PREFIX_BYTES] != key[:_PREFIX_BYTES]:
                yield from _group(group, start, end, reverse=reverse)
                group = []
            group.append((key, value))
    yield from _group(group, start, end, reverse=reverse)
    if empty is not None and reverse:
        yield b"", empty


def scan_plain(cursor: Any, start: bytes, end: bytes) -> list[tuple[bytes, bytes]] | None:
    """Return the stored entries with start <= key < end, for plain bounds; None when one is not stored as it is."""
    entries: list[tuple[bytes, bytes]] = []
    if not cursor.set_range(start):
        return entries
    for entry in cursor.iternext():
        key = entry[0]
        if key >= end:
            return entries
        if len(key) >= _FOLDED_BYTES:
            return None
        entries.append(entry)
    return entries


def read_folded(transaction: Any, database: Any, start: bytes, end: bytes, limit: int) -> Entries | None:
    """Return keys and values of `scan_folded`; None for more than ``limit``. Plain keys are read in pieces."""
    keys: list[bytes] = []
    values: list[bytes] = []
    cursor = transaction.cursor(database)
    plain = 0 < len(start) <= _PREFIX_BYTES
    if plain and not cursor.set_range(start):
        return keys, values
    stored = cursor.iternext()
    while plain and len(keys) <= limit:
        piece = list(islice(stored, min(_PIECE, limit + 1 - len(keys))))
        if not piece:
            break
        more_keys, more_values = zip(*piece, strict=True)
        plain = max(map(len, more_keys)) < _FOLDED_BYTES
        inside = bisect_left(more_keys, end)
        keys += more_keys[:inside]
        values += more_values[:inside]
        if inside < len(piece):
            break
    if not plain:
        entries = list(islice(scan_folded(transaction, database, start, end, reverse=False), limit + 1))
        keys, values = [key for key, _ in entries], [value for _, value in entries]
    return None if len(keys) > limit else (keys, values)


def _group(
    group: list[tuple[bytes, bytes]], start: bytes | None, end: bytes | None, *, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    for key, value in sorted((unfold(*entry) for entry in group), reverse=reverse):
        if (start is None or key >= start) and (end is None or key < end):
            yield key, value


def _forward(transaction: Any, database: Any, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    """Yield stored entries from the start on; of long keys possibly some outside the range."""
    cursor = transaction.cursor(database)
    first = start[:_PREFIX_BYTES] if start else None
    if not (cursor.set_range(first) if first else cursor.first()):
        return
    for key, value in cursor.iternext():
        if len(key) >= _FOLDED_BYTES:
            if end is not None and len(key) == _FOLDED_BYTES and key[:_PREFIX_BYTES] > end[:_PREFIX_BYTES]:
                return
        elif end is not None and key >= end:
            return
        elif start is not None and key < start:
            continue  # the beginning that a long start was cut to
        yield key, value


def _backward(transaction: Any, database: Any, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    cursor = transaction.cursor(database)
    last = None
    if end is not None:
        last = end if len(end) <= _PREFIX_BYTES else end[:_PREFIX_BYTES].ljust(511, b"\xff")
    if last == b"":
        return
    if not (cursor.set_range(last) if last else cursor.last()) and not cursor.last():
        return
    for key, value in cursor.iterprev():
        if len(key) >= _FOLDED_BYTES:
            if start is not None and len(key) == _FOLDED_BYTES and key[:_PREFIX_BYTES] < start[:_PREFIX_BYTES]:
                return
        elif start is not None and key < start:
            return
        elif end is not None and key >= end:
            continue
        yield key, value
