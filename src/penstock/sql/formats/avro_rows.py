"""AVRO: rows as records, or the single column as it is; their schemas, and the columns of schemas.

Schemas of writers are changed so that fastavro reads what columns need: numbers of times, members of unions by name.
The bytes of a value do not say their schema, so a schema of the same layout reads them as well. Where a column is a
number or a text, logical types are taken off: it has the number that was written, as ksqlDB has it. Where it is a
TIMESTAMP or TIME, other units become milliseconds. A union of several types becomes records of one field each, which
has the name of the type.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import SerializationError
from penstock.serde.formats.avro import (
    ParsedSchema,
    branch_name,
    connect_schema_of_avro,
    is_entry_list,
    parse_avro,
    to_avro,
)
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.schemas.avro import AvroSerde
from penstock.serde.schemas.base import SchemaSerde
from penstock.serde.schemas.client import Registered
from penstock.sql.formats.connect_schemas import columns_schema, schema_columns, type_schema
from penstock.sql.formats.format import Columns, FormatInfo, FormatProperties, RowSerde, writing_settings
from penstock.sql.formats.json_values import pick
from penstock.sql.formats.schema_values import foreign_reader
from penstock.sql.types import TIME, TIMESTAMP, ArrayType, DecimalType, MapType, SqlType, SqlValueError, StructType

__all__ = ["DEFAULT_NAME", "avro_columns", "avro_schema", "resolved"]

DEFAULT_NAME = "io.confluent.ksql.avro_schemas.KsqlDataSourceSchema"


def avro_schema(columns: Columns, full_name: str | None, *, unwrapped: bool) -> str:
    """Return the text of the schema of columns.

    >>> from penstock.sql.types import INTEGER
    >>> avro_schema((("K", INTEGER),), None, unwrapped=True)
    '"int"'
    """
    name = full_name or DEFAULT_NAME
    schema = type_schema(columns[0][1], name) if unwrapped else columns_schema(columns, name)
    return json.dumps(to_avro(schema.as_optional(optional=False)))


def avro_columns(schema: SchemaText, *, unwrapped: bool, single: str) -> Columns:
    """Return the columns that a schema has: those of a record, or a single one of the name ``single``.

    Raises:
        DataError: Connect has no such schema, as a type of it holds itself.
        ValueError: It is not an Avro schema.
    """
    parse_avro(schema)
    return schema_columns(connect_schema_of_avro(schema), unwrapped=unwrapped, single=single)


def resolved(schema: Any, parsed: ParsedSchema) -> Any:
    """Return the schema behind a name, and that beside null in a union of the two."""
    word, definition = parsed.type_of(schema)
    if word != "union":
        return definition if word in ("record", "array", "map", "enum", "fixed") or len(definition) > 1 else word
    others = [branch for branch in definition if parsed.type_of(branch)[0] != "null"]
    return resolved(others[0], parsed) if len(others) == 1 else definition


def is_entries(items: Any, parsed: ParsedSchema) -> bool:
    """Return whether an array's items are entries of a map, as Kafka Connect writes maps whose keys are no texts."""
    return is_entry_list({"items": parsed.type_of(items)[1]})


def member_name(branch: Any, parsed: ParsedSchema) -> str:
    """Return the name that Kafka Connect gives a member of a union of several types.

    That of its type, without a namespace.
    """
    word, definition = parsed.type_of(branch)
    return branch_name(definition if word in ("record", "enum", "fixed") else word)


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
        """Return the conversion to the schema, which only the registry may know, hence not before the first row."""
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
    """Return the function that writes the one field of a struct that is not null, as a member of a union of types."""
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


NANOS, MICROS = "penstock-nanos", "penstock-micros"
UNITS: dict[tuple[SqlType, str], str] = {
    (TIMESTAMP, "timestamp-micros"): MICROS,
    (TIMESTAMP, "local-timestamp-micros"): MICROS,
    (TIMESTAMP, "timestamp-nanos"): NANOS,
    (TIMESTAMP, "local-timestamp-nanos"): NANOS,
    (TIME, "time-micros"): MICROS,
}


def schema_for(parsed: ParsedSchema, kind: SqlType) -> ParsedSchema:
    """Return the schema that reads values of a writer's schema for columns of a type."""
    from fastavro.read import LOGICAL_READERS
    from fastavro.schema import parse_schema

    LOGICAL_READERS[f"long-{MICROS}"] = lambda number, *_: number // 1000
    LOGICAL_READERS[f"long-{NANOS}"] = lambda number, *_: number // 1_000_000
    names: dict[str, Any] = {}
    changed = _SchemaChange(parsed).of(parsed.schema, kind)
    return ParsedSchema(parse_schema(changed, named_schemas=names), names)


class _SchemaChange:
    """The change of one schema; types without a column keep their names, others get new ones."""

    def __init__(self, parsed: ParsedSchema) -> None:
        self._parsed = parsed
        self._kept: set[str] = set()
        self._renamed = 0

    def of(self, schema: Any, kind: SqlType | None) -> Any:
        """Return a schema for a column; None where there is no column for it."""
        word, definition = self._parsed.type_of(schema)
        if word == "union":
            return self._union(definition, kind)
        if word == "record":
            return self._record(definition, kind)
        if word == "array":
            return {"type": "array", "items": self._items(definition["items"], kind)}
        if word == "map":
            return {
                "type": "map",
                "values": self.of(definition["values"], kind.value if isinstance(kind, MapType) else None),
            }
        if word in ("enum", "fixed"):
            return self._named(definition, lambda: self._plain(definition, kind))
        return self._plain({**definition, "type": word}, kind)

    def _items(self, items: Any, kind: SqlType | None) -> Any:
        if isinstance(kind, ArrayType):
            return self.of(items, kind.element)
        if isinstance(kind, MapType) and is_entries(items, self._parsed):
            _, entry = self._parsed.type_of(items)
            pair = zip(entry["fields"], (kind.key, kind.value), strict=False)
            return self._new([(field["name"], self.of(field["type"], inner)) for field, inner in pair])
        return self.of(items, None)

    def _union(self, branches: list[Any], kind: SqlType | None) -> Any:
        others = [branch for branch in branches if self._parsed.type_of(branch)[0] != "null"]
        members = _fields(kind) if len(others) > 1 else {}
        names = {id(branch): member_name(branch, self._parsed) for branch in others}
        if not any(_member(members, name) for name in names.values()):
            return [self.of(branch, kind) for branch in branches]
        new_branches = []
        for branch in branches:
            name = names.get(id(branch))
            new_branches.append(
                "null" if name is None else self._new([(name, self.of(branch, _member(members, name)))])
            )
        return new_branches

    def _record(self, schema: dict[str, Any], kind: SqlType | None) -> Any:
        members = _fields(kind)
        if not members:
            pairs = schema["fields"]
            return self._named(
                schema, lambda: {"fields": [{**each, "type": self.of(each["type"], None)} for each in pairs]}
            )
        return self._new(
            [(each["name"], self.of(each["type"], _member(members, each["name"]))) for each in schema["fields"]]
        )

    def _named(self, schema: dict[str, Any], make_body: Callable[[], dict[str, Any]]) -> Any:
        """Return a type with the name that it has, written out where it comes first."""
        name = schema["name"]
        if name in self._kept:
            return name
        self._kept.add(name)
        kept = {key: value for key, value in schema.items() if not key.startswith("__")}
        return {**kept, **make_body()}

    def _new(self, fields: list[tuple[str, Any]]) -> dict[str, Any]:
        self._renamed += 1
        while (name := f"penstock_sql_{self._renamed}") in self._parsed.names:
            self._renamed += 1
        return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields]}

    def _plain(self, schema: dict[str, Any], kind: SqlType | None) -> dict[str, Any]:
        logical = schema.get("logicalType")
        kept = {key: value for key, value in schema.items() if key != "logicalType" and not key.startswith("__")}
        if logical == "decimal" and (kind is None or isinstance(kind, DecimalType)):
            return {**kept, "logicalType": logical}
        unit = None if kind is None else UNITS.get((kind, logical or ""))
        return kept if unit is None else {**kept, "logicalType": unit}


def _fields(kind: SqlType | None) -> dict[str, SqlType]:
    return {field.name: field.type for field in kind.fields} if isinstance(kind, StructType) else {}


def _member(members: dict[str, SqlType], name: str) -> SqlType | None:
    return members.get(name) or members.get(name.upper())
