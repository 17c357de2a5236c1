"""Avro's rules of schema resolution: whether a reader's schema can read a writer's data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.serde.registry.documents import parse_json

__all__ = ["AvroSchema", "avro_differences", "type_of"]

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


@dataclass(frozen=True)
class AvroSchema:
    """A schema with full names, and the types that the names stand for."""

    root: Any
    names: dict[str, Any]

    @classmethod
    def of(cls, text: str, referred: Sequence[str] = ()) -> AvroSchema:
        """Parse a schema text and the texts that it refers to.

        Raises:
            ValueError: The text is not an Avro schema.
        """
        from fastavro.schema import SchemaParseException, UnknownType, parse_schema

        names: dict[str, Any] = {}
        try:
            for other in referred:
                parse_schema(parse_json(other), named_schemas=names)
            root = parse_schema(parse_json(text), named_schemas=names)
        except (SchemaParseException, UnknownType, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(str(error) or type(error).__name__) from error
        return cls(root, names)

    @classmethod
    def names_of(cls, texts: Sequence[str]) -> dict[str, Any]:
        """The named types of schema texts, each of which may refer to those before it.

        Raises:
            ValueError: A text is not an Avro schema.
        """
        return cls.of('"null"', texts).names

    def type_of(self, schema: Any) -> tuple[str, Any]:
        """See the function `type_of`."""
        return type_of(schema, self.names)


def type_of(schema: Any, names: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the kind of a schema ("record", "union", "int", ...) and its definition.

    Args:
        schema: A part of a parsed schema.
        names: The types that its names stand for.
    """
    while True:
        if isinstance(schema, list):
            return "union", schema
        if isinstance(schema, str):
            if schema not in names:
                return schema, {"type": schema}
            schema = names[schema]
        kind = schema["type"]
        if isinstance(kind, str) and kind not in names:
            return ("record" if kind == "error" else kind), schema
        schema = kind


def avro_differences(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """List the reasons why the reader cannot read the writer's data, each with its place in the reader's schema."""
    return _AvroComparison(reader, writer).compare(reader.root, writer.root, "")


class _AvroComparison:
    def __init__(self, reader: AvroSchema, writer: AvroSchema) -> None:
        self._reader = reader
        self._writer = writer
        self._pairs: set[tuple[str, str]] = set()  # records being compared, or found good: schemas may be recursive

    def compare(self, reader: Any, writer: Any, place: str) -> list[str]:
        kind, new = self._reader.type_of(reader)
        old_kind, old = self._writer.type_of(writer)
        if old_kind == "union":
            return [
                problem
                for number, branch in enumerate(old)
                for problem in self.compare(reader, branch, f"{place}/{number}" if kind == "union" else place)
            ]
        if kind == "union":
            if any(not self.compare(branch, writer, place) for branch in new):
                return []
            return [f"{place or '/'}: MISSING_UNION_BRANCH: reader union lacking writer type {old_kind.upper()}"]
        if kind != old_kind:
            if kind in _PROMOTIONS.get(old_kind, ()):
                return []
            return [f"{place or '/'}: TYPE_MISMATCH: reader type {kind.upper()} not compatible with {old_kind.upper()}"]
        if kind in {"record", "enum", "fixed"} and not _same_name(new, old):
            return [f"{place}/name: NAME_MISMATCH: expected {old['name']}"]
        if kind == "record":
            return self._records(new, old, place)
        if kind == "enum":
            missing = [symbol for symbol in old["symbols"] if symbol not in new["symbols"]]
            return [f"{place}/symbols: MISSING_ENUM_SYMBOLS: {missing}"] if missing and "default" not in new else []
        if kind == "fixed":
            return [] if new["size"] == old["size"] else [f"{place}/size: FIXED_SIZE_MISMATCH: expected {old['size']}"]
        if kind == "array":
            return self.compare(new["items"], old["items"], f"{place}/items")
        if kind == "map":
            return self.compare(new["values"], old["values"], f"{place}/values")
        return []

    def _records(self, new: Any, old: Any, place: str) -> list[str]:
        pair = (new["name"], old["name"])
        if pair in self._pairs:
            return []
        self._pairs.add(pair)
        found: list[str] = []
        written = {field["name"]: field for field in old["fields"]}
        for number, field in enumerate(new["fields"]):
            here = f"{place}/fields/{number}"
            names = [field["name"], *field.get("aliases", ())]
            match = next((written[name] for name in names if name in written), None)
            if match is not None:
                found += self.compare(field["type"], match["type"], f"{here}/type")
            elif "default" not in field:
                found.append(f"{here}: READER_FIELD_MISSING_DEFAULT_VALUE: {field['name']}")
        if found:
            self._pairs.discard(pair)
        return found


def _same_name(reader: Any, writer: Any) -> bool:
    """Compare two names without their namespaces, and aliases in full."""
    name = writer["name"]
    short = name.rpartition(".")[2]
    return short == reader["name"].rpartition(".")[2] or any(
        alias in {name, short} for alias in reader.get("aliases", ())
    )
