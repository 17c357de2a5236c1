"""SetSchemaMetadata: another name or version of the schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from penstock.connect.config import ConfigDef, Importance, Kind
from penstock.connect.data import DataError, Schema, SettingError, Struct
from penstock.connect.transforms.transformation import (
    REPLACE_NULL,
    R,
    SidedTransformation,
    required,
    schema_cache,
    setting,
)

__all__ = ["SetSchemaMetadata"]


class SetSchemaMetadata(SidedTransformation):
    """Set the schema name, version or both on the record's key or value schema."""

    config: ClassVar[ConfigDef] = ConfigDef(
        [
            setting("schema.name", Kind.STRING, "Schema name to set.", default=None, importance=Importance.HIGH),
            setting("schema.version", Kind.INT, "Schema version to set.", default=None, importance=Importance.HIGH),
            REPLACE_NULL,
        ]
    )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings."""
        parsed = self.config.parse(settings)
        self._name, self._version = parsed["schema.name"], parsed["schema.version"]
        self.replace_null = required(parsed, REPLACE_NULL.name)
        if self._name is None and self._version is None:
            raise SettingError("Neither schema name nor version configured")
        self._schemas = schema_cache(self._changed)

    def apply(self, record: R) -> R:
        """Return the record with another schema. Kafka takes structs only: so does this."""
        value, schema = self.value_of(record), self.schema_of(record)
        if schema is None:
            if value is None:
                return record
            raise DataError("Schema required for [updating schema metadata]")
        changed = self._schemas(schema)
        if isinstance(value, Struct):
            value = self._moved(value, changed)
        return self.updated(record, changed, value)

    def _moved(self, value: Struct, schema: Schema) -> Struct:
        moved = Struct(schema)
        for part in schema.fields:
            moved[part.name] = self.field_of(value, part)
        return moved

    def _changed(self, schema: Schema) -> Schema:
        schema.struct_fields()
        name = schema.name if self._name is None else self._name
        return replace(schema, name=name, version=schema.version if self._version is None else self._version)
