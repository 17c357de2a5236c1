"""Avro schemas of columns, as Kafka Connect's converter makes them of ksqlDB's, and columns of Avro schemas."""

from __future__ import annotations

import json
from typing import Any

from penstock.serde.formats.avro import (
    ParsedSchema,
    branch_name,
    connect_schema_of_avro,
    is_entry_list,
    parse_avro,
    to_avro,
)
from penstock.serde.formats.schema_text import SchemaText
from penstock.sql.formats.connect_schemas import columns_schema, schema_columns, type_schema
from penstock.sql.formats.interface import Columns

__all__ = ["DEFAULT_NAME", "avro_columns", "avro_schema", "is_entries", "member_name", "resolved"]

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
    """Whether the items of an array are the entries of a map, as Kafka Connect writes maps of other keys than texts."""
    return is_entry_list({"items": parsed.type_of(items)[1]})


def member_name(branch: Any, parsed: ParsedSchema) -> str:
    """Return the name that Kafka Connect gives a member of a union of several types.

    That of its type, without a namespace.
    """
    word, definition = parsed.type_of(branch)
    return branch_name(definition if word in ("record", "enum", "fixed") else word)
