"""The formats by their names, the columns that each can hold, and the plain ones: KAFKA and NONE."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SerializationError, SqlError
from penstock.serde.base import BaseSerde
from penstock.serde.column import Column, RowColumn
from penstock.serde.primitives import BytesSerde, NumberSerde, StringSerde
from penstock.sql.formats.delimited_rows import DelimitedRows
from penstock.sql.formats.format import Columns, FormatInfo, FormatProperties, RowSerde
from penstock.sql.formats.json_rows import JsonRows
from penstock.sql.formats.layouts import FEW
from penstock.sql.types import BIGINT, BYTES, DOUBLE, INTEGER, STRING, ArrayType, MapType, SqlType, StructType
from penstock.sql.types.columns import typed_series
from penstock.sql.types.sql_type import base_name, quoted

__all__ = ["FORMATS", "check_columns", "format_info", "row_format"]

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


SCHEMA = frozenset({"SCHEMA_ID", "SCHEMA_FULL_NAME"})
FORMATS = {
    info.name: info
    for info in (
        FormatInfo("JSON", wraps=True, wraps_by_default=True),
        FormatInfo("DELIMITED", properties=frozenset({"DELIMITER"})),
        FormatInfo("KAFKA"),
        FormatInfo("NONE", unwraps=False),
        FormatInfo("AVRO", infers=True, wraps=True, wraps_by_default=True, properties=SCHEMA),
        FormatInfo("JSON_SR", infers=True, wraps=True, wraps_by_default=True, properties=SCHEMA),
        FormatInfo(
            "PROTOBUF",
            infers=True,
            wraps=True,
            unwraps=False,
            wraps_by_default=True,
            properties=SCHEMA | {"NULLABLE_REPRESENTATION"},
        ),
        FormatInfo(
            "PROTOBUF_NOSR",
            wraps=True,
            unwraps=False,
            wraps_by_default=True,
            properties=frozenset({"NULLABLE_REPRESENTATION"}),
        ),
    )
}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAMED = {"AVRO": "Avro", "PROTOBUF": "Protobuf", "PROTOBUF_NOSR": "Protobuf"}
RENAME = "Rename it with AS."
NESTED = (ArrayType, MapType, StructType)
STRING_KEYS = {
    "JSON": "JSON needs STRING as the key type of a MAP",
    "JSON_SR": "JSON needs STRING as the key type of a MAP",
    "AVRO": "Avro needs STRING as the key type of a MAP",
    "PROTOBUF": "PROTOBUF needs STRING as the key type of a MAP",
    "PROTOBUF_NOSR": "PROTOBUF needs STRING as the key type of a MAP",
}


def format_info(name: str) -> FormatInfo:
    """Return the format of a name, in any case.

    Raises:
        SqlError: there is none.

    >>> format_info("json").name
    'JSON'
    """
    info = FORMATS.get(name.upper())
    if info is None:
        raise SqlError(f"Unknown format: {name.upper()}", hint=f"Formats are {', '.join(FORMATS)}.")
    return info


def check_columns(name: str, columns: Columns, part: str = "value") -> None:
    """Check that a format can hold columns.

    Raises:
        SqlError: it cannot; the message names the type.
    """
    info = format_info(name)
    shown = ", ".join(f"{quoted(column)} {kind}{' KEY' if part == 'key' else ''}" for column, kind in columns)
    if info.name == "NONE":
        if columns:
            raise SqlError(f"The format 'NONE' holds no columns, and these are declared: [{shown}]")
        return
    for column, kind in columns:
        _check_type(info.name, kind)
        _check_name(info.name, column)
    if info.name == "KAFKA" and len(columns) > 1:
        raise SqlError(f"The format 'KAFKA' holds a single field, and these are declared: [{shown}]")


def _check_type(name: str, kind: SqlType) -> None:
    flat = name in ("DELIMITED", "KAFKA")
    if flat and (isinstance(kind, NESTED) or (name == "KAFKA" and base_name(kind) in KAFKA_LACKS)):
        raise SqlError(f"The format '{name}' has no type '{base_name(kind)}'")
    match kind:
        case ArrayType(element):
            _check_type(name, element)
        case MapType(key, value):
            if key != STRING and name in STRING_KEYS:
                raise SqlError(STRING_KEYS[name])
            _check_type(name, value)
        case StructType(fields):
            for field in fields:
                _check_type(name, field.type)
                _check_name(name, field.name)


def _check_name(form: str, name: str) -> None:
    """Refuse the name of a field that the schemas of a format do not allow."""
    if form not in NAMED or NAME.fullmatch(name):
        return
    kind = "initial character" if not NAME.match(name) else "character in"
    raise SqlError(f"The {NAMED[form]} schema takes no field of this name, for its {kind}: {name}", hint=RENAME)


KAFKA_LACKS = frozenset({"BOOLEAN", "DECIMAL", "DATE", "TIME", "TIMESTAMP"})
Maker = Callable[[FormatInfo, Columns, FormatProperties], RowSerde]


def _later(module: str, name: str) -> Maker:
    """Return the maker in a module of this package that needs the libraries of schemas, imported on its first use."""

    def make(info: FormatInfo, columns: Columns, properties: FormatProperties) -> RowSerde:
        serde: RowSerde = getattr(import_module(f"penstock.sql.formats.{module}"), name)(info, columns, properties)
        return serde

    return make


MAKERS: dict[str, Maker] = {
    "JSON": JsonRows,
    "DELIMITED": DelimitedRows,
    "KAFKA": KafkaRows,
    "NONE": NoRows,
    "AVRO": _later("avro_rows", "AvroRows"),
    "JSON_SR": _later("json_sr_rows", "JsonSchemaRows"),
    "PROTOBUF": _later("protobuf_rows", "ProtobufRows"),
    "PROTOBUF_NOSR": _later("protobuf_rows", "ProtobufRows"),
}


def row_format(
    name: str, columns: Sequence[tuple[str, SqlType]], properties: FormatProperties | None = None
) -> RowSerde:
    """Return the serde of rows of some columns in a format.

    Raises:
        SqlError: there is no such format, or it cannot hold the columns.
    """
    info, held = format_info(name), tuple(columns)
    format_properties = properties or FormatProperties()
    check_columns(name, held, format_properties.part)
    return MAKERS[info.name](info, held, format_properties)
