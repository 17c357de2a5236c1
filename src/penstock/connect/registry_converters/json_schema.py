"""The JSON Schema converter: values between Connect's form and JSON with a registered schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from penstock.connect.config import ConfigDef, Importance, Kind, Model, Setting
from penstock.connect.converters.converter import Role
from penstock.connect.data import BytesError, DataError, Schema
from penstock.connect.registry_converters.registry_converter import (
    JSON_SCHEMA_MODEL,
    REGISTRY_SETTINGS,
    RegistryConverter,
    flag_setting,
)
from penstock.serde.data.json_values import MISSING, JsonOptions, from_json, read_json, to_json
from penstock.serde.formats.json_schema import ONE_OF, from_json_schema, to_json_schema
from penstock.serde.schemas.client import Registered

__all__ = ["JsonSchemaConverter"]


class JsonSchemaConverter(RegistryConverter):
    """Confluent's ``JsonSchemaConverter``: JSON behind the id of its schema in the registry."""

    java_class: ClassVar[str] = "io.confluent.connect.json.JsonSchemaConverter"
    kind: ClassVar[str] = "JSON"
    model: ClassVar[Model] = JSON_SCHEMA_MODEL
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            *REGISTRY_SETTINGS,
            flag_setting("object.additional.properties", "true", "Objects may have fields that their schema lacks."),
            flag_setting("use.optional.for.nonrequired", "false", "Fields that are not required are nullable."),
            flag_setting("ignore.default.for.nullables", "false", "Null stays null where there is a default."),
            Setting(
                name="decimal.format",
                kind=Kind.STRING,
                default="BASE64",
                importance=Importance.LOW,
                doc="Decimals as BASE64 of their digits, or NUMERIC.",
            ),
        ]
    )

    def configure(self, settings: Mapping[str, Any], role: Role = "value") -> None:
        super().configure(settings, role)
        self._options = JsonOptions(
            numeric_decimals=str(self.options["decimal.format"]).upper() == "NUMERIC",
            replace_null=not self.options["ignore.default.for.nullables"],
            entry_objects=True,
            union=ONE_OF,
        )

    def writing(self, schema: Schema) -> tuple[str, Any, str]:
        open_objects = self.options["object.additional.properties"]
        document = to_json_schema(schema, self._options, open_objects=open_objects)
        return json.dumps(document, ensure_ascii=False), None, schema.name or ""

    def write(self, plan: Any, schema: Schema, value: Any) -> bytes:  # noqa: ARG002 - the schema says all
        return to_json(schema, value, self._options).encode()

    def reading(self, registered: Registered) -> tuple[Any, Schema | None]:
        required = self.options["use.optional.for.nonrequired"]
        return None, from_json_schema(registered.schema, self._options, optional_unless_required=required)

    def read(self, data: bytes, start: int, plan: Any, schema: Schema | None) -> Any:  # noqa: ARG002
        try:
            parsed = read_json(data[start:])
        except BytesError as error:
            raise DataError(f"the bytes are not JSON: {error}") from error
        return None if parsed is MISSING else from_json(schema, parsed, self._options)
