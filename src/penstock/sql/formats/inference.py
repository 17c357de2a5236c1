"""Schema inference: the columns of a source that names none, from the registry's schema of its topic."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, SchemaRegistryError, SerializationError, SqlError
from penstock.serde.data import DataError
from penstock.sql.formats.format import Columns, FormatProperties
from penstock.sql.formats.formats import format_info
from penstock.sql.types import SqlType, SqlTypeError, StructType
from penstock.sql.types.sql_type import with_inner_types

if TYPE_CHECKING:
    from penstock.serde.formats.schema_text import SchemaText
    from penstock.serde.model_serde import ModelCodec

__all__ = ["SINGLE_KEY", "SINGLE_VALUE", "columns_of_model", "inferred_columns"]

SINGLE_KEY, SINGLE_VALUE = "ROWKEY", "ROWVAL"
NOT_FOUND = 404


def inferred_columns(name: str, topic: str, properties: FormatProperties) -> Columns | None:
    """Return the columns of the keys or values of a topic by their schema: that of an id, or the newest of the subject.

    The names of the newest schema become upper case; those of a schema by its id stay, as rows are written with it.

    Args:
        name: The format.
        topic: The topic.
        properties: Its ``part``, ``wrapped``, ``schema_id``, ``schema_full_name`` and ``registry`` are used.

    Returns:
        The columns, or None if there is no such schema, or no such message in it.

    Raises:
        SqlError: The schema is of another format, or has no columns.
        SchemaRegistryError: The registry does not answer.
    """
    from penstock.serde.schemas.client import client_for
    from penstock.serde.schemas.schema_settings import SchemaSettings

    info = format_info(name)
    client = client_for(SchemaSettings.of(properties.registry))
    try:
        if properties.schema_id is not None:
            schema: SchemaText = client.schema(properties.schema_id).schema
        else:
            schema = client.latest(f"{topic}-{properties.part}").schema
    except (SchemaRegistryError, SerializationError) as error:
        if isinstance(error, SerializationError) or error.facts.get("status") == NOT_FOUND:
            return None
        raise
    kind = {"JSON_SR": "JSON"}.get(info.name, info.name)
    if schema.kind != kind:
        raise SqlError(f"The schema of the {properties.part}s of topic '{topic}' is {schema.kind}, not {kind}.")
    try:
        columns = _columns(info.name, schema, properties)
        return columns if properties.schema_id is not None or columns is None else _upper(columns)
    except DataError as error:
        raise SqlError(
            f"The schema of the {properties.part}s of topic '{topic}' has no columns: {error.message}; declare columns"
        ) from error
    except (ValueError, LookupError, SqlTypeError, TypeError, AttributeError, RecursionError) as error:
        raise SqlError(f"The schema of the {properties.part}s of topic '{topic}' has no columns: {error}") from error


def columns_of_model(model: ModelCodec) -> Columns:
    """Return the columns of a Python type: what its JSON Schema has, with names in upper case; empty without fields.

    Times, decimals and UUIDs are STRING, as they are in JSON text.
    """
    from penstock.serde.formats.schema_text import SchemaText
    from penstock.sql.formats.json_sr_rows import json_columns

    try:
        columns = json_columns(
            SchemaText(json.dumps(model.shape.schema()), "JSON"), unwrapped=False, single=SINGLE_VALUE
        )
    except (DataError, ConfigError, ValueError, LookupError, SqlTypeError, TypeError, AttributeError, RecursionError):
        return ()
    return _upper(columns)


def _columns(name: str, schema: SchemaText, properties: FormatProperties) -> Columns | None:
    single = SINGLE_KEY if properties.part == "key" else SINGLE_VALUE
    if name == "AVRO":
        from penstock.sql.formats.avro_rows import avro_columns

        return avro_columns(schema, unwrapped=not properties.wrapped, single=single)
    if name == "JSON_SR":
        from penstock.sql.formats.json_sr_rows import json_columns

        return json_columns(schema, unwrapped=not properties.wrapped, single=single)
    from penstock.sql.formats.protobuf_rows import message_columns

    try:
        return message_columns(schema, properties.schema_full_name)
    except ValueError:
        if properties.schema_full_name is not None:
            return None
        raise


def _upper(columns: Columns) -> Columns:
    return tuple((name.upper(), _upper_fields(kind)) for name, kind in columns)


def _upper_fields(kind: SqlType) -> SqlType:
    kind = with_inner_types(kind, _upper_fields)
    if isinstance(kind, StructType):
        return StructType.of([(field.name.upper(), field.type) for field in kind.fields])
    return kind
