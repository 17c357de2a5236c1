"""The frame before a value: magic byte 0 and an id of 4 bytes, or magic byte 1 and a GUID of 16.

Frames in headers are the same bytes in another place: a source puts them before the value, a sink takes them away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np
import pyarrow as pa

from penstock.errors import SerializationError
from penstock.serde.buffers import large_binary, parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Group", "frame", "groups", "read_frame", "starts_with"]

_BY_ID, _BY_GUID = 0, 1
_SIZES = {_BY_ID: 5, _BY_GUID: 17}


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one schema; the value begins ``skip`` bytes after the row's start."""

    schema_id: int | str
    rows: NDArray[np.int64]
    skip: int


def frame(schema_id: int | str) -> bytes:
    """Return the frame of an id (number) or GUID (text)."""
    if isinstance(schema_id, int):
        return b"\x00" + schema_id.to_bytes(4, "big")
    return b"\x01" + UUID(schema_id).bytes


def read_frame(data: bytes, serde: str) -> tuple[int | str, int]:
    """Return the id or GUID, and the start of the value.

    Raises:
        SerializationError: There is no frame.
    """
    if len(data) >= 5 and data[0] == _BY_ID:
        return int.from_bytes(data[1:5], "big"), 5
    if len(data) >= 17 and data[0] == _BY_GUID:
        return str(UUID(bytes=data[1:17])), 17
    from penstock.serde.rowwise import show

    raise SerializationError(
        f"the {serde} serde reads a magic byte, a schema id and a value, not {len(data)} bytes {show(data)}"
        f"{_guess(data)}",
        hint="Give the topic the serde it was written with, or set deserialization.exception.handler.",
        serde=serde,
    )


def _guess(data: bytes) -> str:
    """Return a guess of what such bytes are."""
    if data[:1] in (b"{", b"["):
        return ": this looks like plain JSON, written without a registry (Serdes.json())"
    if data[:1] in (b"\x00", b"\x01"):
        return ": it is cut short"
    if data and data.isascii():
        return ": this looks like plain text (Serdes.string())"
    return f": it begins with byte {data[0]}, not 0 or 1" if data else ": there are no bytes"


def groups(data: pa.Array) -> list[Group] | None:
    """Return the rows that are not null by their schemas; None if some row has no frame."""
    data = large_binary(data)
    body, offsets = parts(data)
    rows = np.flatnonzero(np.asarray(data.is_valid())) if data.null_count else np.arange(len(data))
    if not len(rows):
        return []
    starts, lengths = offsets[:-1][rows], np.diff(offsets)[rows]
    if int(lengths.min()) < _SIZES[_BY_ID]:
        return None
    magic = body[starts]
    if not (magic == _BY_ID).all():
        return _mixed(body, rows, starts, lengths, magic)
    ids = body[starts[:, None] + np.arange(1, 5)].copy().view(">u4").ravel()
    if (ids == ids[0]).all():
        return [Group(int(ids[0]), rows, _SIZES[_BY_ID])]
    unique_ids, inverse = np.unique(ids, return_inverse=True)
    return [Group(int(one), rows[inverse == number], _SIZES[_BY_ID]) for number, one in enumerate(unique_ids.tolist())]


def starts_with(data: pa.Array, prefix: bytes) -> bool:
    """Return whether every row that is not null begins with these bytes."""
    present = data.drop_null() if data.null_count else data
    body, offsets = parts(present)
    if len(present) and int(np.diff(offsets).min()) < len(prefix):
        return False
    return all((body[offsets[:-1] + at] == byte).all() for at, byte in enumerate(prefix))


def _mixed(
    body: NDArray[np.uint8],
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    magic: NDArray[np.uint8],
) -> list[Group] | None:
    """Return groups of rows of which some or all frames have GUIDs."""
    if (magic > _BY_GUID).any() or (lengths[magic == _BY_GUID] < _SIZES[_BY_GUID]).any():
        return None
    row_groups: list[Group] = []
    for kind, size in _SIZES.items():
        mine = np.flatnonzero(magic == kind)
        if not len(mine):
            continue
        names = np.ascontiguousarray(body[starts[mine][:, None] + np.arange(1, size)])
        unique_names, inverse = np.unique(names, axis=0, return_inverse=True)
        for number, name in enumerate(unique_names):
            raw = name.tobytes()
            schema_id = int.from_bytes(raw, "big") if kind == _BY_ID else str(UUID(bytes=raw))
            row_groups.append(Group(schema_id, rows[mine[inverse.ravel() == number]], size))
    return row_groups
