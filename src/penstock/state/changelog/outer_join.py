"""Changelog of the records that wait for a match in a left or outer join of two streams.

Key: time (8 bytes), side (1: left), key. Value: Kafka's list of byte arrays, each of them the side again and the value.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.serde.column import bytes_column
from penstock.state.changelog.base import (
    NOTHING_NOTED,
    KeyedFormat,
    Written,
    changes_of,
    first_bytes,
    records_of,
    times_noted,
)
from penstock.state.views.frames import frame, unframe

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["OuterJoinFormat"]

_LENGTH = struct.Struct(">i")
_LIST = b"\x01"
_HEAD = np.dtype([("kind", "u1"), ("count", ">i4"), ("length", ">i4"), ("side", "u1")])  # of a list of one


class OuterJoinFormat(KeyedFormat):
    """Kafka's ``ListValueStore`` over ``LeftOrRightValue``."""

    in_key_order = True

    def records(
        self, changes: pa.RecordBatch, meta: Mapping[str, int], written: Written = NOTHING_NOTED
    ) -> pa.RecordBatch:
        rows, values = changes.column(0), changes.column(1)
        sides = first_bytes(rows, 9)[:, 8]
        bare, lengths, _ = unframe(values, before=4)
        single = lengths.view(">i4").reshape(-1) == pc.binary_length(bare).fill_null(-1).to_numpy(zero_copy_only=False)
        heads = np.zeros(len(rows), _HEAD)
        heads["kind"], heads["count"], heads["side"] = 1, 1, sides
        heads["length"] = lengths.view(">i4").reshape(-1) + 1
        lists = frame(bare, prefix=heads.view(np.uint8).reshape(-1, _HEAD.itemsize))
        several = np.flatnonzero(~single)
        if len(several):
            lists = _replaced(lists, several, [_list(values[i].as_py(), int(sides[i])) for i in several.tolist()])
        return records_of(times_noted(rows, meta, written), rows, lists)

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        lists = records.column("value")
        bare, prefixes, _ = unframe(lists, before=_HEAD.itemsize)
        heads = np.ascontiguousarray(prefixes).view(_HEAD).reshape(-1)
        fits = heads["length"] - 1 == pc.binary_length(bare).fill_null(0).to_numpy(zero_copy_only=False)
        if ((heads["kind"] != 1) | ((heads["count"] == 1) & ~fits)).any():
            raise ValueError("a list of values whose length is not its own")
        values = frame(bare, prefix=(heads["length"] - 1).astype(">i4").view(np.uint8).reshape(-1, 4))
        several = np.flatnonzero(heads["count"] != 1)
        if len(several):
            values = _replaced(values, several, [_values(lists[i].as_py()) for i in several.tolist()])
        return changes_of(records.column("key"), values)


def _replaced(column: pa.Array, places: NDArray[np.int64], by: list[bytes]) -> pa.Array:
    """Return the column with other elements at some places."""
    index = np.arange(len(column))
    index[places] = len(column) + np.arange(len(places))
    return pa.concat_arrays([column, bytes_column(by)]).take(pa.array(index))


def _list(values: bytes, side: int) -> bytes:
    """Return values, each behind its length, as Kafka's list of values with their side."""
    parts = []
    at = 0
    while at < len(values):
        (length,) = _LENGTH.unpack_from(values, at)
        at += 4
        parts += [_LENGTH.pack(length + 1), bytes([side]), values[at : at + length]]
        at += length
    return b"".join([_LIST, _LENGTH.pack(len(parts) // 3), *parts])


def _values(data: bytes) -> bytes:
    parts = []
    at = 5
    for _ in range(_LENGTH.unpack_from(data, 1)[0]):
        (length,) = _LENGTH.unpack_from(data, at)
        if not 1 <= length <= len(data) - at - 4:
            raise ValueError("a list of values that is cut short")
        parts += [_LENGTH.pack(length - 1), data[at + 5 : at + 4 + length]]
        at += 4 + length
    return b"".join(parts)
