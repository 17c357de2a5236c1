"""Transformations of headers: DropHeaders, HeaderFrom, InsertHeader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from penstock.connect.config import ConfigDef, Importance, Kind, NonEmptyList, NonNull, OneOf, UniqueList
from penstock.connect.converters import parse_header
from penstock.connect.data import Schema, SettingError, Struct, Type, UnexpectedDataError, copy_basics
from penstock.connect.transforms.transformation import (
    PACKAGE,
    REPLACE_NULL,
    R,
    SidedTransformation,
    Transformation,
    require_map,
    require_struct,
    required,
    schema_cache,
    setting,
)

__all__ = ["DropHeaders", "HeaderFrom", "InsertHeader"]


class DropHeaders(Transformation):
    """Removes one or more headers from each record."""

    java_class: ClassVar[str] = f"{PACKAGE}.DropHeaders"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "headers",
                Kind.LIST,
                "The name of the headers to be removed.",
                rule=UniqueList(),
                importance=Importance.HIGH,
            )
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the names."""
        self._names = frozenset(self.config.parse(settings)["headers"])

    def apply(self, record: R) -> R:
        """Return the record without these headers."""
        return record.with_(headers=record.headers.without(self._names))


class InsertHeader(Transformation):
    """Add a header to each record."""

    java_class: ClassVar[str] = f"{PACKAGE}.InsertHeader"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting("header", Kind.STRING, "The name of the header.", rule=NonNull(), importance=Importance.HIGH),
            setting(
                "value.literal",
                Kind.STRING,
                "The literal value that is to be set as the header value on all records.",
                rule=NonNull(),
                importance=Importance.HIGH,
            ),
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take name and value; the value's type is guessed as for headers that are read."""
        parsed = self.config.parse(settings)
        self._name = parsed["header"]
        self._literal = parse_header(parsed["value.literal"])

    def apply(self, record: R) -> R:
        """Return the record with one more header."""
        return record.with_(headers=record.headers.add(self._name, self._literal.value, self._literal.schema))


class HeaderFrom(SidedTransformation):
    """Moves or copies fields in the key/value of a record into that record's headers.

    Corresponding elements of ``fields`` and ``headers`` together identify a field and the header it should be moved
    or copied to.
    """

    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "fields",
                Kind.LIST,
                "Field names in the record whose values are to be copied or moved to headers.",
                rule=NonEmptyList(),
                importance=Importance.HIGH,
            ),
            setting(
                "headers",
                Kind.LIST,
                "Header names, in the same order as the field names listed in the fields configuration property.",
                rule=NonEmptyList(),
                importance=Importance.HIGH,
            ),
            setting(
                "operation",
                Kind.STRING,
                "Either <code>move</code> if the fields are to be moved to the headers (removed from the key/value), "
                "or <code>copy</code> if the fields are to be copied to the headers (retained in the key/value).",
                rule=OneOf(("move", "copy")),
                importance=Importance.HIGH,
            ),
            REPLACE_NULL,
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        if len(parsed["headers"]) != len(parsed["fields"]):
            raise SettingError("'fields' config must have the same number of elements as 'headers' config.")
        self._pairs: list[tuple[str, str]] = list(zip(parsed["fields"], parsed["headers"], strict=True))
        self._moves = parsed["operation"] == "move"
        self._purpose = f"header {parsed['operation']}"
        self.replace_null = required(parsed, REPLACE_NULL.name)
        self._schemas = schema_cache(self._rest)

    def apply(self, record: R) -> R:
        """Return the record with more headers, and if moved, fewer fields."""
        value, schema = self.value_of(record), self.schema_of(record)
        headers = record.headers
        if schema is None:
            fields = require_map(value, self._purpose)
            for name, header in self._pairs:
                headers = headers.add(header, fields.get(name))
            moved = {name for name, _ in self._pairs} if self._moves else set()
            kept = {name: part for name, part in fields.items() if name not in moved}
            return self.updated(record, None, kept, headers=headers)
        source = require_struct(value, self._purpose)
        changed = self._schemas(schema) if self._moves else schema
        result = source
        if self._moves:
            result = Struct(changed)
            for part in changed.fields:
                result[part.name] = source[part.name] if self.replace_null else source.raw(part.name)
        for name, header in self._pairs:
            field = schema.field(name)
            if field is None:
                raise UnexpectedDataError(f"there is no field {name} to make the header {header} of")
            headers = headers.add(header, self.field_of(source, field), field.schema)
        return self.updated(record, changed, result, headers=headers)

    def _rest(self, schema: Schema) -> Schema:
        moved = {name for name, _ in self._pairs}
        kept = [(part.name, part.schema) for part in schema.struct_fields() if part.name not in moved]
        return copy_basics(schema, Type.STRUCT, kept)
