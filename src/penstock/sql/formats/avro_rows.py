"""AVRO: rows as records, or the single column as it is, with their schema in a registry."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import SerializationError
from penstock.serde.schemas.avro import AvroSerde
from penstock.serde.schemas.base import SchemaSerde
from penstock.sql.formats.avro_schema import avro_schema, parsed_avro, resolved
from penstock.sql.formats.foreign import foreign_reader
from penstock.sql.formats.interface import Columns, FormatInfo, FormatProperties, RowSerde, writing_settings
from penstock.sql.formats.json_values import pick
from penstock.sql.types import TIMESTAMP, ArrayType, MapType, SqlType, SqlValueError, StructType

__all__ = ["AvroRows"]

Write = Callable[[Any], Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AvroRows(RowSerde):
    """Rows in Avro: written with the schema of the columns, or that of an id; read with the schema of the writer."""

    def __init__(self, info: FormatInfo, columns: Columns, properties: FormatProperties) -> None:
        super().__init__(info, columns, properties)
        text = properties.schema or avro_schema(columns, properties.schema_full_name, unwrapped=self.unwrapped)
        self._text = None if properties.schema_id is not None and properties.schema is None else text
        self.writing = AvroSerde(text, registry=writing_settings(properties))
        self.reading = AvroSerde(None, registry=properties.registry)
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
            given = value[0] if self.unwrapped else dict(zip(self._names, value, strict=True))
            write = self._write or self._writer()
            return self.writing.serialize(write(given))
        except (TypeError, ValueError, LookupError) as error:
            self.refuse(value, f"rows of its schema ({error})", error)

    def _writer(self) -> Write:
        """The conversion to the schema, which may be known only to the registry, hence not before the first row."""
        text = self._text or self.writing.target().schema.text
        kind = self.columns[0][1] if self.unwrapped else StructType.of(self.columns)
        self._write = avro_writer(kind, *parsed_avro(text))
        return self._write

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        found = self.reading.deserialize(data)
        try:
            if self.unwrapped:
                return (self._read[0](found),)
            if not isinstance(found, dict):
                raise SqlValueError(f"{type(found).__name__} in place of a record")
            values = pick(found, self._names)
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


def avro_writer(kind: SqlType, schema: Any, named: dict[str, Any]) -> Write:
    """The function that makes of values of a type what fastavro writes with a schema."""
    write = _writer(kind, resolved(schema, named)[0], named)
    return lambda value: None if value is None else write(value)


def _writer(kind: SqlType, schema: Any, named: dict[str, Any]) -> Write:
    if not isinstance(schema, dict):
        return _same
    match kind:
        case StructType() if schema["type"] == "record":
            fields = [
                (field["name"], _column(kind, field["name"]), field["type"], "default" in field)
                for field in schema["fields"]
            ]
            steps = [
                (name, known[0], avro_writer(known[1], inner, named), has_default)
                for name, known, inner, has_default in fields
                if known is not None
            ]
            return lambda row: _record(row, steps)
        case ArrayType(element) if schema["type"] == "array":
            item = avro_writer(element, schema["items"], named)
            return lambda values: [item(value) for value in values]
        case MapType(_, inner) if schema["type"] == "map":
            each = avro_writer(inner, schema["values"], named)
            return lambda entries: {key: each(value) for key, value in entries.items()}
        case MapType(key, inner) if schema["type"] == "array":
            first, second = resolved(schema["items"], named)[0]["fields"]
            left, right = avro_writer(key, first["type"], named), avro_writer(inner, second["type"], named)
            names = first["name"], second["name"]
            return lambda entries: [{names[0]: left(k), names[1]: right(v)} for k, v in entries.items()]
    if kind == TIMESTAMP and schema.get("logicalType", "").startswith("timestamp"):
        return lambda value: EPOCH + timedelta(milliseconds=value)
    return _same


def _record(row: dict[str, Any], steps: list[tuple[str, str, Write, bool]]) -> dict[str, Any]:
    found = {}
    for name, column, write, has_default in steps:
        value = row.get(column)
        if value is not None or not has_default:
            found[name] = write(value)
    return found


def _column(kind: StructType, name: str) -> tuple[str, SqlType] | None:
    for field in kind.fields:
        if field.name in (name, name.upper()):
            return field.name, field.type
    return None


def _same(value: Any) -> Any:
    return value
