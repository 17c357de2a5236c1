"""PROTOBUF: rows as messages with a schema in a registry (PROTOBUF_NOSR: without), and schemas of columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from penstock.errors import SerializationError
from penstock.serde.formats.proto_classes import message_class, message_class_at
from penstock.serde.formats.protobuf import BOX, BOX_FIELD, WRAPPED, ProtobufReading, message_schema
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.schemas.base import SchemaSerde
from penstock.serde.schemas.client import Registered, RegistryClient
from penstock.serde.schemas.value_bytes import index_bytes, indexes_of, read_indexes, skip_indexes
from penstock.sql.formats.connect_schemas import schema_columns
from penstock.sql.formats.format import Columns, FormatInfo, FormatProperties, RowSerde, writing_settings
from penstock.sql.formats.json_values import pick
from penstock.sql.formats.schema_values import foreign_reader
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

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

__all__ = ["DEFAULT_MESSAGE", "message_columns"]

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


Step = Callable[[Any], Any]


class _Messages(SchemaSerde):
    """Dicts as messages: written with its own schema or the registry's, read with that they were written with."""

    def __init__(
        self, schema: SchemaText, message: str | None, framing: str | None, registry: Any, columns: Columns
    ) -> None:
        super().__init__(framing, registry)
        self._schema, self._message = schema, message
        self._columns = frozenset(name.upper() for name, _ in columns)

    @property
    def name(self) -> str:
        return f"protobuf<{self._message or 'message'}>"

    @property
    def schema_key(self) -> Any:
        return self._schema, self._message

    @property
    def record_name(self) -> str | None:
        return str(message_class(self._schema, self._message)[0].DESCRIPTOR.full_name)

    def to_register(self, client: RegistryClient) -> Schema | None:  # noqa: ARG002
        from confluent_kafka.schema_registry import Schema

        return Schema(self._schema.text, "PROTOBUF")

    def write(self, value: Any, registered: Registered | None) -> bytes:
        message_type, _ = message_class(self._schema if registered is None else registered.schema, self._message)
        message = message_type()
        fill_message(message, value)
        data: bytes = message.SerializeToString(deterministic=True)
        return data if registered is None else index_bytes(indexes_of(message_type.DESCRIPTOR)) + data

    def read(self, data: bytes, start: int, registered: Registered | None) -> Any:
        from google.protobuf.message import DecodeError

        try:
            message_type, _ = message_class(self._schema, self._message)
            if registered is not None:
                end = skip_indexes(data, start)
                if end < 0:
                    self.reject(data, "the path of a message in its file")
                message_type = message_class_at(registered.schema, tuple(read_indexes(data[start:end])))
                start = end
            return message_values(message_type.FromString(data[start:]), self._columns)
        except (DecodeError, RuntimeError, ValueError, LookupError) as error:
            if isinstance(error, SerializationError):
                raise
            self.reject(data, f"messages of its schema ({error})", error)

    def read_column(self, data: pa.Array, skip: int, registered: Registered | None) -> pl.Series | None:  # noqa: ARG002
        return None


class ProtobufRows(RowSerde):
    """Rows as messages of one field for each column."""

    def __init__(self, info: FormatInfo, columns: Columns, properties: FormatProperties) -> None:
        super().__init__(info, columns, properties)
        name = properties.schema_full_name
        text = properties.schema or proto_schema(columns, name, properties.nullable)
        framing = None if info.infers else "none"
        self.messages = _Messages(SchemaText(text, "PROTOBUF"), name, framing, writing_settings(properties), columns)
        self._prepare()

    def _prepare(self) -> None:
        self._names = tuple(name for name, _ in self.columns)
        self._box = [boxing(kind) for _, kind in self.columns]
        self._read = [_reader(kind) for _, kind in self.columns]

    @property
    def schema_serde(self) -> SchemaSerde:
        return self.messages

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            boxed = [item if box is None else box(item) for item, box in zip(value, self._box, strict=True)]
            return self.messages.serialize(dict(zip(self._names, boxed, strict=True)))
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            self.refuse(value, f"rows of its schema ({error})", error)

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        values = pick(self.messages.deserialize(data), self._names)
        try:
            return tuple([read(value) for read, value in zip(self._read, values, strict=True)])
        except (ValueError, ArithmeticError, LookupError, TypeError) as error:
            self.reject(data, f"Protobuf of its columns ({error})", error)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_read", "_box")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()


def _reader(kind: SqlType) -> Callable[[Any], Any]:
    read, unbox = foreign_reader(kind), unboxing(kind)
    return read if unbox is None else lambda value: read(unbox(value))


def fill_message(message: Any, values: dict[str, Any]) -> None:
    """Set the fields of a message by their names, exactly or in upper case; nulls stay unset.

    Raises:
        TypeError: A value does not fit its field.
        ValueError: A value is out of its field's range.
    """
    fields = message.DESCRIPTOR.fields
    upper = {name.upper(): value for name, value in values.items()}
    for field in fields:
        value = values[field.name] if field.name in values else upper.get(field.name.upper())
        if value is not None:
            _set(message, field, value)


def _set(message: Any, field: Any, value: Any) -> None:
    held = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        for key, item in value.items():
            if inner.message_type is not None:
                _fill(held[key], inner.message_type.full_name, item)
            else:
                held[key] = _scalar(inner, item)
    elif field.is_repeated:
        # Connect's converter writes maps as messages of key and value that do not say to be a map
        items = [{"key": key, "value": each} for key, each in value.items()] if isinstance(value, dict) else value
        for item in items:
            if field.message_type is not None:
                _fill(held.add(), field.message_type.full_name, item)
            elif item is None:
                raise ValueError(f"a null within the array {field.name}, where Protobuf has none")
            else:
                held.append(_scalar(field, item))
    elif field.message_type is not None:
        held.SetInParent()
        _fill(held, field.message_type.full_name, value)
    else:
        setattr(message, field.name, _scalar(field, value))


def _scalar(field: Any, value: Any) -> Any:
    if value is None:
        return field.default_value
    if field.enum_type is not None and isinstance(value, str):
        return field.enum_type.values_by_name[value].number
    return value


def _fill(message: Any, name: str, value: Any) -> None:
    if value is None:
        return
    if name in WRAPPED:
        message.value = value
    elif isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        number = int(value.scaleb(-int(exponent)))
        message.value = number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)
        message.precision, message.scale = len(digits), -int(exponent)
    elif isinstance(value, date):
        message.year, message.month, message.day = value.year, value.month, value.day
    elif isinstance(value, time):
        message.hours, message.minutes, message.seconds = value.hour, value.minute, value.second
        message.nanos = value.microsecond * 1000
    elif name == "google.protobuf.Timestamp":
        message.FromMilliseconds(value)
    else:
        fill_message(message, value)


def message_values(message: Any, field_names: frozenset[str] | None = None) -> dict[str, Any]:
    """Return the values of a message's fields: null for those with presence that are not set, and for empty bytes.

    Args:
        message: The message.
        field_names: The names of fields in upper case; None takes all.
    """
    fields = message.DESCRIPTOR.fields
    return {
        field.name: _value(message, field)
        for field in fields
        if field_names is None or field.name.upper() in field_names
    }


def _value(message: Any, field: Any) -> Any:
    held = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {str(key): _item(inner, item) for key, item in held.items()}
    if field.is_repeated:
        return [_item(field, item) for item in held]
    if field.has_presence:
        return _item(field, held) if message.HasField(field.name) else None
    return None if held == b"" else _item(field, held)


def _item(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        enum_value = field.enum_type.values_by_number.get(value)
        return str(value) if enum_value is None else enum_value.name
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name in WRAPPED:
        return value.value
    if name == "confluent.type.Decimal":
        return Decimal(int.from_bytes(value.value, "big", signed=True)).scaleb(-value.scale)
    if name == "google.type.Date":
        return date(value.year, value.month, value.day)
    if name == "google.type.TimeOfDay":
        return time(value.hours, value.minutes, value.seconds, value.nanos // 1000)
    if name == "google.protobuf.Timestamp":
        return value.ToMilliseconds()
    return message_values(value)


def boxing(kind: SqlType) -> Step | None:
    """Return the function that puts inner arrays and maps of values into boxes; None where the type has none.

    >>> from penstock.sql.types import INTEGER
    >>> boxing(ArrayType(ArrayType(INTEGER)))([[1], None])
    [{'value': [1]}, {}]
    """
    return _step(kind, _boxed)


def unboxing(kind: SqlType) -> Step | None:
    """Return the function that takes inner arrays and maps out of their boxes; None where the type has none."""
    return _step(kind, _unboxed)


def _step(kind: SqlType, change: Callable[[Step | None], Step]) -> Step | None:
    match kind:
        case ArrayType(element):
            each = _inner(element, change)
            return None if each is None else lambda values: _null(values, lambda: [each(value) for value in values])
        case MapType(_, inner):
            item = _inner(inner, change)
            return None if item is None else lambda held: _null(held, lambda: {k: item(v) for k, v in held.items()})
        case StructType(fields):
            field_steps = [(field.name.upper(), _step(field.type, change)) for field in fields]
            steps = {name: step for name, step in field_steps if step is not None}
            return (lambda row: _null(row, lambda: _fields(row, steps))) if steps else None
    return None


def _inner(kind: SqlType, change: Callable[[Step | None], Step]) -> Step | None:
    """Return the step of an element or of a map's value: in a box, if it is an array or map itself."""
    step = _step(kind, change)
    return change(step) if isinstance(kind, ArrayType | MapType) else step


def _boxed(step: Step | None) -> Step:
    return lambda value: {} if value is None else {BOX_FIELD: value if step is None else step(value)}


def _unboxed(step: Step | None) -> Step:
    def unbox(message: Any) -> Any:
        value = next(iter(message.values()), None) if isinstance(message, dict) and len(message) == 1 else message
        return value if step is None else step(value)

    return unbox


def _fields(row: dict[str, Any], steps: dict[str, Step]) -> dict[str, Any]:
    return {name: value if (step := steps.get(name.upper())) is None else step(value) for name, value in row.items()}


def _null(value: Any, change: Callable[[], Any]) -> Any:
    return None if value is None else change()
