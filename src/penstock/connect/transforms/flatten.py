"""Flatten: nested structs and maps become one level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from penstock.connect.config import ConfigDef, Kind
from penstock.connect.data import DataError, Schema, Struct, Type, copy_basics, java_class, type_of, with_default
from penstock.connect.transforms.transformation import (
    R,
    SidedTransformation,
    require_map,
    require_struct,
    require_text_key,
    schema_cache,
    setting,
)

__all__ = ["Flatten"]

PURPOSE = "flattening"


class Flatten(SidedTransformation):
    """Flatten a nested data structure, joining the names of fields of each level with a delimiter.

    Array fields and their contents are not modified.
    """

    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting(
                "delimiter",
                Kind.STRING,
                "Delimiter to insert between field names from the input record when generating field names for the "
                "output record",
                default=".",
            )
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the delimiter."""
        delimiter = self.config.parse(settings)["delimiter"]
        self._delimiter = "null" if delimiter is None else delimiter  # as Java joins texts
        self._schemas = schema_cache(self._flat_schema)

    def apply(self, record: R) -> R:
        """Return the record with one level of fields."""
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None:
            return record
        if schema is None:
            return self.updated(record, None, self._flat_map(require_map(value, PURPOSE), ""))
        nested = require_struct(value, PURPOSE)
        changed = self._schemas(schema)
        flat = Struct(changed)
        self._fill(flat, nested, "")
        return self.updated(record, changed, flat)

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self._delimiter}{name}" if prefix else name

    def _flat_map(self, nested: dict[Any, Any], prefix: str) -> dict[str, Any]:
        """Return one level of fields. Of two of one name the nested one stays: maps such as JSON's have no order."""
        flat: dict[str, Any] = {}
        inner: dict[str, Any] = {}
        for key, value in nested.items():
            name = self._name(prefix, require_text_key(key))
            kind = None if value is None else type_of(value)
            if kind is None and value is not None:
                raise DataError(
                    f"Flatten transformation was passed a value of type class {java_class(value)} "
                    "which is not supported by Connect's data API"
                )
            if kind is Type.MAP:
                inner |= self._flat_map(value, name)
                flat |= inner
            elif kind is Type.STRUCT:
                raise DataError(
                    f"Flatten transformation does not support class {java_class(value)} for record without schemas "
                    f"(for field {name})."
                )
            elif name not in inner:
                flat[name] = value
        return flat

    def _flat_schema(self, schema: Schema) -> Schema:
        fields: list[tuple[str, Schema]] = []
        self._collect(schema, "", fields, optional=schema.optional, parent=schema.default)
        return copy_basics(schema, Type.STRUCT, fields)

    def _collect(
        self, schema: Schema, prefix: str, fields: list[tuple[str, Schema]], *, optional: bool, parent: Struct | None
    ) -> None:
        for part in schema.struct_fields():
            name = self._name(prefix, part.name)
            default = part.schema.default
            if default is None and parent is not None:
                default = parent[part.name]
            can_be_null = optional or part.schema.optional
            if part.schema.type is Type.STRUCT:
                self._collect(part.schema, name, fields, optional=can_be_null, parent=default)
                continue
            self._refuse_maps(part.schema, name)
            flat = replace(copy_basics(part.schema), optional=can_be_null)
            fields.append((name, flat if default is None else with_default(flat, default)))

    def _fill(self, flat: Struct, nested: Struct | None, prefix: str) -> None:
        if nested is None:
            return
        for part in nested.schema.fields:
            name = self._name(prefix, part.name)
            if part.schema.type is Type.STRUCT:
                self._fill(flat, nested.raw(part.name), name)
            else:
                self._refuse_maps(part.schema, name)
                flat[name] = nested.get(part)

    def _refuse_maps(self, schema: Schema, name: str) -> None:
        if schema.type is Type.MAP:
            raise DataError(
                f"Flatten transformation does not support {schema.type} for record with schemas (for field {name})."
            )
