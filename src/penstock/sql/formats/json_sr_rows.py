"""JSON_SR: rows as JSON text, with their schema in a registry."""

from __future__ import annotations

from typing import Any

from penstock.serde.schemas.base import SchemaSerde
from penstock.serde.schemas.client import Registered
from penstock.serde.schemas.json_schema import JsonSchemaSerde
from penstock.sql.formats.interface import Columns, FormatInfo, FormatProperties, RowSerde, writing_settings
from penstock.sql.formats.json_rows import JsonRows
from penstock.sql.formats.json_schema import json_schema

__all__ = ["JsonSchemaRows"]


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
