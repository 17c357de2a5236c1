"""JSON_SR: rows as JSON text with a schema in a registry; schemas of columns, and columns of schemas."""

from __future__ import annotations

import json
from typing import Any

from penstock.serde.data import STRING
from penstock.serde.data.json_values import JsonOptions
from penstock.serde.formats.json_schema import from_json_schema, to_json_schema
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.schemas.base import SchemaSerde
from penstock.serde.schemas.client import Registered
from penstock.serde.schemas.json_schema import JsonSchemaSerde
from penstock.sql.formats.connect_schemas import columns_schema, schema_columns, type_schema
from penstock.sql.formats.format import Columns, FormatInfo, FormatProperties, RowSerde, writing_settings
from penstock.sql.formats.json_rows import JsonRows

__all__ = ["json_columns", "json_schema"]


def json_schema(columns: Columns, *, unwrapped: bool) -> str:
    """Return the text of the schema of columns; maps are objects."""
    schema = type_schema(columns[0][1], keys=STRING) if unwrapped else columns_schema(columns, keys=STRING)
    return json.dumps(to_json_schema(schema, JsonOptions()))


def json_columns(schema: SchemaText, *, unwrapped: bool, single: str) -> Columns:
    """Return the columns that a schema has: those of an object, or a single one of the name ``single``.

    Properties of types that SQL lacks are left out.

    Raises:
        DataError: It does not say a type, or a type of it holds itself.
        ValueError: It is not JSON.
    """
    return schema_columns(from_json_schema(schema, JsonOptions(), for_columns=True), unwrapped=unwrapped, single=single)


class _Framed(JsonSchemaSerde):
    """JSON text as it is, within the frame of its schema."""

    def write(self, value: Any, registered: Registered | None) -> bytes:  # noqa: ARG002
        text: bytes = value
        return text

    def read(self, data: bytes, start: int, registered: Registered | None) -> Any:  # noqa: ARG002
        return data[start:]


class JsonSchemaRows(RowSerde):
    """Rows as JSON behind the id of their schema."""

    def __init__(self, info: FormatInfo, columns: Columns, properties: FormatProperties) -> None:
        super().__init__(info, columns, properties)
        text = properties.schema or json_schema(columns, unwrapped=self.unwrapped)
        self.framed = _Framed(text, registry=writing_settings(properties))
        self.rows = JsonRows(info, columns, properties)

    @property
    def schema_serde(self) -> SchemaSerde:
        return self.framed

    def serialize(self, value: Any) -> bytes | None:
        return self.framed.serialize(self.rows.serialize(value))

    def deserialize(self, data: bytes | None) -> Any:
        return self.rows.deserialize(self.framed.deserialize(data))
