"""Protobuf messages of columns, as Kafka Connect's converter names them, and columns of messages."""

from __future__ import annotations

from penstock.serde.formats.proto_classes import message_class
from penstock.serde.formats.protobuf import BOX, BOX_FIELD, ProtobufReading, message_schema
from penstock.serde.formats.schema_text import SchemaText
from penstock.sql.formats.connect_schemas import schema_columns
from penstock.sql.formats.interface import Columns
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

__all__ = ["DEFAULT_MESSAGE", "message_columns", "proto_schema"]

READING = ProtobufReading(wraps=True, unwraps=False, flattens=True)
DEFAULT_MESSAGE = "ConnectDefault1"
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
IMPORTS = {
    "google.type.Date": "google/type/date.proto",
    "google.type.TimeOfDay": "google/type/timeofday.proto",
    "google.protobuf.Timestamp": "google/protobuf/timestamp.proto",
    "google.protobuf.": "google/protobuf/wrappers.proto",
    "confluent.type.Decimal": "confluent/type/decimal.proto",
}


def proto_schema(columns: Columns, full_name: str | None, nullable: str) -> str:
    """Return the text of the file that holds the message of columns.

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
                name = f"{BOX}{self._messages}"
                inner += self.message(((BOX_FIELD, kind),), name, indent)
                return "", name, ""
        shown = PLAIN[kind]
        if shown in IMPORTS:
            self._imports.add(IMPORTS[shown])
        return "", shown, ""


def message_columns(schema: SchemaText, name: str | None) -> Columns:
    """Return the columns of a message.

    Raises:
        DataError: The message holds itself.
        ValueError: There is no such message.
    """
    message, parameters = message_class(schema, name)
    return schema_columns(message_schema(message.DESCRIPTOR, parameters, READING), unwrapped=False, single="")
