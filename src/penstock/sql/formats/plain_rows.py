"""KAFKA, a single primitive as Kafka's own serializers write it; NONE, no columns at all."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SerializationError
from penstock.serde.base import BaseSerde
from penstock.serde.column import Column, RowColumn
from penstock.serde.primitives import BytesSerde, NumberSerde, StringSerde
from penstock.sql.formats.interface import Columns, FormatInfo, FormatProperties, RowSerde
from penstock.sql.formats.layouts import FEW
from penstock.sql.types import BIGINT, BYTES, DOUBLE, INTEGER, STRING, SqlType
from penstock.sql.types.columns import typed_series

__all__ = ["KafkaRows", "NoRows"]

INT, LONG, FLOAT = struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">d")
WRITERS: dict[SqlType, Callable[[Any], bytes]] = {
    INTEGER: INT.pack,
    BIGINT: LONG.pack,
    DOUBLE: FLOAT.pack,
    STRING: str.encode,
    BYTES: bytes,
}
READERS: dict[SqlType, Callable[[bytes], Any]] = {
    INTEGER: lambda data: INT.unpack(data)[0],
    BIGINT: lambda data: LONG.unpack(data)[0],
    DOUBLE: lambda data: FLOAT.unpack(data)[0],
    STRING: bytes.decode,
    BYTES: bytes,
}
BY_COLUMN: dict[SqlType, BaseSerde] = {
    INTEGER: NumberSerde("integer"),
    BIGINT: NumberSerde("long"),
    DOUBLE: NumberSerde("double"),
    STRING: StringSerde(),
    BYTES: BytesSerde(),
}


class KafkaRows(RowSerde):
    """Rows of one column: integers and doubles big-endian, text as UTF-8, bytes as they are."""

    def __init__(self, info: FormatInfo, columns: Columns, properties: FormatProperties) -> None:
        super().__init__(info, columns, properties)
        self._prepare()

    def _prepare(self) -> None:
        kind = self.columns[0][1] if self.columns else STRING
        self._write, self._read = WRITERS[kind], READERS[kind]

    def serialize(self, value: Any) -> bytes | None:
        if not value or value[0] is None:
            return None
        try:
            return self._write(value[0])
        except (struct.error, TypeError, ValueError) as error:
            self.refuse(value, "rows of its columns", error)

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        if not self.columns:
            return ()
        try:
            return (self._read(data),)
        except (struct.error, ValueError) as error:
            self.reject(data, f"one {self.columns[0][1]} ({error})", error)

    def decode(self, data: pa.Array) -> Column:
        if not self.columns or len(data) <= FEW:
            return super().decode(data)
        column = BY_COLUMN[self.columns[0][1]].decode(data)  # its errors make the caller go row by row
        return RowColumn([column], len(column), column.null_mask())

    def encode(self, column: Column) -> pa.Array:
        if not isinstance(column, RowColumn) or len(column.columns) != 1 or len(self.columns) != 1:
            return super().encode(column)
        kind = self.columns[0][1]
        only_column = column.columns[0]
        if kind != BYTES:
            series = typed_series(only_column, kind)
            if series is None:
                return super().encode(column)
            only_column = Column.of_series(series)
        try:
            encoded = BY_COLUMN[kind].encode(only_column)
        except SerializationError:
            return super().encode(column)
        if column.absent is None:
            return encoded
        return pc.if_else(pa.array(column.absent), pa.scalar(None, encoded.type), encoded)

    def __getstate__(self) -> dict[str, Any]:
        return {"format": self.format, "columns": self.columns, "properties": self.properties}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()


class NoRows(RowSerde):
    """Rows of no columns: always null in the log, and an empty row, whatever stands there."""

    def serialize(self, value: Any) -> bytes | None:  # noqa: ARG002
        return None

    def deserialize(self, data: bytes | None) -> Any:  # noqa: ARG002
        return ()

    def decode(self, data: pa.Array) -> Column:
        return RowColumn([], len(data))

    def encode(self, column: Column) -> pa.Array:
        return pa.nulls(len(column), pa.large_binary())
