"""Lists of bytes: few values one by one, without the columns that take longer to begin than to work through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.serde.buffers import bytes_column, to_bytes_list
from penstock.serde.rowwise import BaseSerde

if TYPE_CHECKING:
    from penstock.serde.base import Serde
    from penstock.serde.column import Column

__all__ = ["FEW", "decode_rows", "encode_one", "encode_rows"]

FEW = 24
_BYTES = {bytes, type(None)}


def encode_rows(serde: Serde[Any], column: Column) -> list[bytes | None]:
    """Return the bytes of a column as ``serde.encode`` does."""
    if len(column) <= FEW and isinstance(serde, BaseSerde) and serde.few_by_row:
        rows = serde.serialize_rows(column.items())
        if _BYTES.issuperset(map(type, rows)):
            return rows
    return to_bytes_list(serde.encode(column))


def encode_one(serde: Serde[Any], value: Any) -> bytes | None:
    """Return the bytes of one value as ``serde.encode`` does: those of a user may come as a bytearray or a text."""
    data: Any = serde.serialize(value)
    return data if data is None or type(data) is bytes else to_bytes_list(bytes_column([data]))[0]


def decode_rows(serde: Serde[Any], rows: Sequence[bytes | None]) -> Column:
    """Return the values of rows as ``serde.decode`` does."""
    if len(rows) <= FEW and isinstance(serde, BaseSerde):
        return serde.decode_rows(list(rows))
    return serde.decode(bytes_column(rows))
