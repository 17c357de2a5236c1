"""Schemas of writers, changed so that fastavro reads what columns need: numbers of times, members of unions by name.

The bytes of a value do not say their schema, so a schema of the same layout reads them as well. Where a column is a
number or a text, logical types are taken off: it has the number that was written, as ksqlDB has it. Where it is a
TIMESTAMP or TIME, other units become milliseconds. A union of several types becomes records of one field each, which
has the name of the type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.serde.formats.avro import ParsedSchema
from penstock.sql.formats.avro_schema import is_entries, member_name
from penstock.sql.types import TIME, TIMESTAMP, ArrayType, DecimalType, MapType, SqlType, StructType

__all__ = ["schema_for"]

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
