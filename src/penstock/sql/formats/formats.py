"""The formats by their names, and the columns that each can hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module

from penstock.errors import SqlError
from penstock.sql.formats.delimited_rows import DelimitedRows
from penstock.sql.formats.interface import Columns, FormatInfo, FormatProperties, RowSerde
from penstock.sql.formats.json_rows import JsonRows
from penstock.sql.formats.plain_rows import KafkaRows, NoRows
from penstock.sql.types import ArrayType, MapType, SqlType, StructType
from penstock.sql.types.sql_type import STRING, base_name, quoted

__all__ = ["FORMATS", "check_columns", "format_info", "row_format"]

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
