"""JSON schemas of columns, as Kafka Connect's converter makes them, and columns of JSON schemas."""

from __future__ import annotations

import json

from penstock.serde.data import STRING
from penstock.serde.data.json_values import JsonOptions
from penstock.serde.formats.json_schema import from_json_schema, to_json_schema
from penstock.serde.formats.schema_text import SchemaText
from penstock.sql.formats.connect_schemas import columns_schema, schema_columns, type_schema
from penstock.sql.formats.interface import Columns

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
