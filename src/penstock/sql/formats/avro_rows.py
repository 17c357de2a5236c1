"""AVRO: rows as records, or the single column as it is, with their schema in a registry."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import SerializationError
from penstock.serde.formats.avro import ParsedSchema, parse_avro
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.schemas.avro import AvroSerde
from penstock.serde.schemas.base import SchemaSerde
from penstock.serde.schemas.client import Registered
from penstock.sql.formats.avro_reading import schema_for
from penstock.sql.formats.avro_schema import avro_schema, member_name, resolved
from penstock.sql.formats.foreign import foreign_reader
from penstock.sql.formats.interface import Columns, FormatInfo, FormatProperties, RowSerde, writing_settings
from penstock.sql.formats.json_values import pick
from penstock.sql.types import TIMESTAMP, ArrayType, MapType, SqlType, SqlValueError, StructType

__all__ = ["AvroRows"]

Write = Callable[[Any], Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _RowReading(AvroSerde):
    """A reader of values as the columns of a type need them."""

    def __init__(self, kind: SqlType, registry: Any) -> None:
        super().__init__(None, registry=registry)
        self._kind = kind

    def _planned(self, registered: Registered | None, parsed: Callable[[SchemaText], ParsedSchema]) -> Any:
        return super()._planned(registered, lambda text: schema_for(parsed(text), self._kind))


class AvroRows(RowSerde):
    """Rows in Avro: written with the schema of the columns, or that of an id; read with the schema of the writer."""

    def __init__(self, info: FormatInfo, columns: Columns, properties: FormatProperties) -> None:
        super().__init__(info, columns, properties)
        text = properties.schema or avro_schema(columns, properties.schema_full_name, unwrapped=self.unwrapped)
        self._text = None if properties.schema_id is not None and properties.schema is None else text
        self.writing = AvroSerde(text, registry=writing_settings(properties))
        kind = columns[0][1] if self.unwrapped else StructType.of(columns)
        self.reading = _RowReading(kind, registry=properties.registry)
        self._prepare()

    def _prepare(self) -> None:
        self._write: Write | None = None
        self._names = tuple(name for name, _ in self.columns)
        self._read = [foreign_reader(kind) for _, kind in self.columns]

    @property
    def schema_serde(self) -> SchemaSerde:
        return self.writing

    def serialize(self, value: Any) -> bytes | None:
        if value is None or (self.unwrapped and value[0] is None):
            return None
        try:
            datum = value[0] if self.unwrapped else dict(zip(self._names, value, strict=True))
            write = self._write or self._writer()
            return self.writing.serialize(write(datum))
        except (TypeError, ValueError, LookupError) as error:
            self.refuse(value, f"rows of its schema ({error})", error)

    def _writer(self) -> Write:
        """The conversion to the schema, which may be known only to the registry, hence not before the first row."""
        schema = self.writing.target().schema if self._text is None else SchemaText(self._text)
        kind = self.columns[0][1] if self.unwrapped else StructType.of(self.columns)
        parsed = parse_avro(schema)
        self._write = avro_writer(kind, parsed.schema, parsed)
        return self._write

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        datum = self.reading.deserialize(data)
        try:
            if self.unwrapped:
                return (self._read[0](datum),)
            if not isinstance(datum, dict):
                raise SqlValueError(f"{type(datum).__name__} instead of a record")
            values = pick(datum, self._names)
            return tuple([read(value) for read, value in zip(self._read, values, strict=True)])
        except (ValueError, ArithmeticError, LookupError, TypeError) as error:
            if isinstance(error, SerializationError):
                raise
            self.reject(data, f"Avro of its columns ({error})", error)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_write", "_read")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()


def avro_writer(kind: SqlType, schema: Any, parsed: ParsedSchema) -> Write:
    """Return the function that makes of values of a type what fastavro writes with a schema."""
    write = _writer(kind, resolved(schema, parsed), parsed)
    return lambda value: None if value is None else write(value)


def _writer(kind: SqlType, schema: Any, parsed: ParsedSchema) -> Write:
    if isinstance(schema, list):
        return _member_writer(kind, schema, parsed) if isinstance(kind, StructType) else _same
    if not isinstance(schema, dict):
        return _same
    match kind:
        case StructType() if schema["type"] == "record":
            fields = [
                (field["name"], _column(kind, field["name"]), field["type"], "default" in field)
                for field in schema["fields"]
            ]
            steps = [
                (name, column[0], avro_writer(column[1], inner, parsed), has_default)
                for name, column, inner, has_default in fields
                if column is not None
            ]
            return lambda row: _record(row, steps)
        case ArrayType(element) if schema["type"] == "array":
            item = avro_writer(element, schema["items"], parsed)
            return lambda values: [item(value) for value in values]
        case MapType(_, inner) if schema["type"] == "map":
            each = avro_writer(inner, schema["values"], parsed)
            return lambda entries: {key: each(value) for key, value in entries.items()}
        case MapType(key, inner) if schema["type"] == "array":
            first, second = resolved(schema["items"], parsed)["fields"]
            left, right = avro_writer(key, first["type"], parsed), avro_writer(inner, second["type"], parsed)
            names = first["name"], second["name"]
            return lambda entries: [{names[0]: left(k), names[1]: right(v)} for k, v in entries.items()]
    return _timestamp_writer(schema.get("logicalType", "")) if kind == TIMESTAMP else _same


def _timestamp_writer(logical: str) -> Write:
    """Return the function that makes a logical type of milliseconds; without one they are written as they are."""
    if logical.endswith("timestamp-nanos"):
        return lambda value: value * 1_000_000
    if logical.startswith("timestamp"):
        return lambda value: EPOCH + timedelta(milliseconds=value)
    if logical.startswith("local-timestamp"):
        return lambda value: EPOCH.replace(tzinfo=None) + timedelta(milliseconds=value)
    return _same


def _member_writer(kind: StructType, branches: list[Any], parsed: ParsedSchema) -> Write:
    """The function that writes the one field of a struct that is not null, as a member of a union of several types."""
    writers = {}
    for branch in branches:
        word, definition = parsed.type_of(branch)
        column = None if word == "null" else _column(kind, member_name(branch, parsed))
        if column is not None:
            writers[column[0]] = (
                avro_writer(column[1], branch, parsed),
                definition["name"] if word == "record" else None,
            )

    def write(row: dict[str, Any]) -> Any:
        there = [name for name, value in row.items() if value is not None and name in writers]
        if len(there) != 1:
            raise SqlValueError(f"a union has one of {', '.join(writers)}, not {len(there)} of them")
        write_member, name = writers[there[0]]
        return write_member(row[there[0]]) if name is None else (name, write_member(row[there[0]]))

    return write


def _record(row: dict[str, Any], steps: list[tuple[str, str, Write, bool]]) -> dict[str, Any]:
    record = {}
    for name, column, write, has_default in steps:
        value = row.get(column)
        if value is not None or not has_default:
            record[name] = write(value)
    return record


def _column(kind: StructType, name: str) -> tuple[str, SqlType] | None:
    for field in kind.fields:
        if field.name in (name, name.upper()):
            return field.name, field.type
    return None


def _same(value: Any) -> Any:
    return value
