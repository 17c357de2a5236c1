"""Protobuf messages of columns, as Kafka Connect's converter names them, and columns of messages."""

from __future__ import annotations

from typing import Any

from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.formats.walks import SchemaWalk
from penstock.serde.schemas.proto_classes import message_class
from penstock.sql.formats.interface import Columns
from penstock.sql.formats.protobuf_boxes import BOX
from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    SqlType,
    StructType,
)

__all__ = ["DEFAULT_MESSAGE", "WRAPPERS", "message_columns", "proto_schema"]

Parameters = dict[tuple[str, str], dict[str, str]]
DEFAULT_MESSAGE = "ConnectDefault1"
BOX_MESSAGE = "Collection"
PLAIN: dict[SqlType, str] = {
    BOOLEAN: "bool",
    INTEGER: "int32",
    BIGINT: "int64",
    DOUBLE: "double",
    STRING: "string",
    BYTES: "bytes",
    DATE: "google.type.Date",
    TIME: "google.type.TimeOfDay",
    TIMESTAMP: "google.protobuf.Timestamp",
}
NULLABLE = {
    "bool": "BoolValue",
    "int32": "Int32Value",
    "int64": "Int64Value",
    "double": "DoubleValue",
    "string": "StringValue",
    "bytes": "BytesValue",
}
WRAPPERS: dict[str, SqlType] = {
    "google.protobuf.BoolValue": BOOLEAN,
    "google.protobuf.Int32Value": INTEGER,
    "google.protobuf.UInt32Value": BIGINT,
    "google.protobuf.Int64Value": BIGINT,
    "google.protobuf.UInt64Value": BIGINT,
    "google.protobuf.FloatValue": DOUBLE,
    "google.protobuf.DoubleValue": DOUBLE,
    "google.protobuf.StringValue": STRING,
    "google.protobuf.BytesValue": BYTES,
}
MESSAGES: dict[str, SqlType] = {
    "google.type.Date": DATE,
    "google.type.TimeOfDay": TIME,
    "google.protobuf.Timestamp": TIMESTAMP,
}
IMPORTS = {
    "google.type.Date": "google/type/date.proto",
    "google.type.TimeOfDay": "google/type/timeofday.proto",
    "google.protobuf.Timestamp": "google/protobuf/timestamp.proto",
    "google.protobuf.": "google/protobuf/wrappers.proto",
    "confluent.type.Decimal": "confluent/type/decimal.proto",
}
# Descriptors' numbers of types: those of 64 bits or without sign are BIGINT.
SCALARS: dict[int, SqlType] = {
    **dict.fromkeys((1, 2), DOUBLE),
    **dict.fromkeys((3, 4, 6, 7, 13, 16, 18), BIGINT),
    **dict.fromkeys((5, 15, 17), INTEGER),
    8: BOOLEAN,
    9: STRING,
    12: BYTES,
    14: STRING,
}


def proto_schema(columns: Columns, full_name: str | None, nullable: str) -> str:
    """The text of the file that holds the message of columns.

    >>> print(proto_schema((("A", INTEGER),), None, "OPTIONAL"))
    syntax = "proto3";
    <BLANKLINE>
    message ConnectDefault1 {
      optional int32 A = 1;
    }
    <BLANKLINE>
    """
    return _Writer(nullable.upper()).file(columns, full_name or DEFAULT_MESSAGE)


class _Writer:
    def __init__(self, nullable: str) -> None:
        self._nullable = nullable
        self._messages = 1
        self._imports: set[str] = set()

    def file(self, columns: Columns, full_name: str) -> str:
        package, _, name = full_name.rpartition(".")
        body = self.message(columns, name, "")
        head = ['syntax = "proto3";']
        head += [f"package {package};"] if package else []
        if self._imports:
            head += ["", *(f'import "{path}";' for path in sorted(self._imports))]
        return "\n".join([*head, "", *body, ""])

    def message(self, columns: Columns, name: str, indent: str) -> list[str]:
        fields: list[str] = []
        inner: list[str] = []
        for number, (column, kind) in enumerate(columns, 1):
            label, shown, options = self.field(kind, inner, f"{indent}  ")
            fields.append(f"{indent}  {label}{shown} {column} = {number}{options};")
        return [f"{indent}message {name} {{", *fields, *inner, f"{indent}}}"]

    def field(self, kind: SqlType, inner: list[str], indent: str) -> tuple[str, str, str]:
        match kind:
            case ArrayType(element):
                _, shown, options = self.plain(element, inner, indent)
                return "repeated ", shown, options
            case MapType(key, value):
                _, left, _ = self.plain(key, inner, indent)
                _, right, _ = self.plain(value, inner, indent)
                return "", f"map<{left}, {right}>", ""
        label, shown, options = self.plain(kind, inner, indent)
        if self._nullable == "WRAPPER" and shown in NULLABLE:
            self._imports.add(IMPORTS["google.protobuf."])
            return "", f"google.protobuf.{NULLABLE[shown]}", options
        is_scalar = shown in NULLABLE
        return ("optional " if self._nullable == "OPTIONAL" and is_scalar else label), shown, options

    def plain(self, kind: SqlType, inner: list[str], indent: str) -> tuple[str, str, str]:
        match kind:
            case DecimalType(precision, scale):
                self._imports |= {IMPORTS["confluent.type.Decimal"], "confluent/meta.proto"}
                pairs = f'{{ value: "{precision}", key: "precision" }}, {{ value: "{scale}", key: "scale" }}'
                return "", "confluent.type.Decimal", f" [(confluent.field_meta) = {{ params: [{pairs}] }}]"
            case StructType(fields):
                self._messages += 1
                name = f"ConnectDefault{self._messages}"
                inner += self.message(tuple((field.name, field.type) for field in fields), name, indent)
                return "", name, ""
            case ArrayType() | MapType():
                self._messages += 1
                name = f"{BOX_MESSAGE}{self._messages}"
                inner += self.message(((BOX, kind),), name, indent)
                return "", name, ""
        shown = PLAIN[kind]
        if shown in IMPORTS:
            self._imports.add(IMPORTS[shown])
        return "", shown, ""


def message_columns(schema: SchemaText, name: str | None) -> Columns:
    """The columns of a message; fields of types that SQL lacks are left out.

    Raises:
        ValueError: There is no such message, or it holds itself.
    """
    message, parameters = message_class(schema, name)
    return _columns(message.DESCRIPTOR, parameters, SchemaWalk())


def _columns(descriptor: Any, parameters: Parameters, walk: SchemaWalk) -> Columns:
    with walk.inside(descriptor.full_name):
        found = [(field.name, _kind(field, parameters, walk)) for field in descriptor.fields]
    return tuple((name, kind) for name, kind in found if kind is not None)


def _kind(field: Any, parameters: Parameters, walk: SchemaWalk) -> SqlType | None:
    walk.field()
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        value = _kind(message.fields_by_name["value"], parameters, walk)
        return None if value is None else MapType(STRING, value)
    if message is None:
        kind: SqlType = SCALARS[field.type]
    elif message.full_name == "confluent.type.Decimal":
        path = field.containing_type.full_name.removeprefix(f"{field.file.package}.")
        given = parameters.get((path, field.name), {})
        kind = DecimalType(int(given.get("precision", 64)), int(given.get("scale", 0)))
    else:
        known = WRAPPERS.get(message.full_name) or MESSAGES.get(message.full_name)
        kind = known or _message(message, parameters, walk)
    return ArrayType(kind) if field.is_repeated else kind


def _message(message: Any, parameters: Parameters, walk: SchemaWalk) -> SqlType:
    """The struct of a message, or the array or map that it holds as a box."""
    columns = _columns(message, parameters, walk)
    if message.name.startswith(BOX_MESSAGE) and [name for name, _ in columns] == [BOX]:
        return columns[0][1]
    return StructType.of(columns)
