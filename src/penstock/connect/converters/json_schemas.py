"""Schemas to JSON and back, as Kafka's JsonConverter has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.connect.data import (
    DataError,
    Schema,
    SchemaBuilderError,
    Type,
    array,
    map_of,
    struct,
    with_default,
    wrapped,
)
from penstock.serde.data.json_values import JsonOptions, from_json, quoted, to_json

__all__ = ["schema_from_json", "schema_to_json"]

TYPES = {kind.value: kind for kind in Type}


def schema_to_json(schema: Schema | None, options: JsonOptions, *, field: str | None = None) -> str:
    """Return the JSON text of a schema.

    Args:
        schema: The schema.
        options: How its default is written.
        field: The field that it is of.

    Example:
        >>> schema_to_json(Schema(Type.INT8, name="size"), JsonOptions())
        '{"type":"int8","optional":false,"name":"size"}'
    """
    if schema is None:
        return "null"
    parts = [f'"type":"{schema.type.value}"']
    match schema.type:
        case Type.ARRAY:
            parts.append(f'"items":{schema_to_json(schema.values, options)}')
        case Type.MAP:
            parts.append(f'"keys":{schema_to_json(schema.keys, options)}')
            parts.append(f'"values":{schema_to_json(schema.values, options)}')
        case Type.STRUCT:
            fields = (schema_to_json(part.schema, options, field=part.name) for part in schema.fields)
            parts.append(f'"fields":[{",".join(fields)}]')
    parts.append(f'"optional":{"true" if schema.optional else "false"}')
    if schema.name is not None:
        parts.append(f'"name":{quoted(schema.name)}')
    if schema.version is not None:
        parts.append(f'"version":{schema.version}')
    if schema.doc is not None:
        parts.append(f'"doc":{quoted(schema.doc)}')
    if schema.parameters is not None:
        pairs = (f"{quoted(name)}:{quoted(value)}" for name, value in schema.parameters.items())
        parts.append(f'"parameters":{{{",".join(pairs)}}}')
    if schema.default is not None:
        parts.append(f'"default":{to_json(schema, schema.default, options)}')
    if field is not None:
        parts.append(f'"field":{quoted(field)}')
    return f"{{{','.join(parts)}}}"


def schema_from_json(node: Any, options: JsonOptions) -> Schema | None:
    """Return the schema of parsed JSON.

    Raises:
        DataError: It is not a schema.
        SchemaBuilderError: It cannot be: a field twice, a default that does not fit.

    Example:
        >>> str(schema_from_json({"type": "string", "optional": True}, JsonOptions()))
        'Schema{STRING}'
    """
    if node is None:
        return None
    name = node.get("type") if isinstance(node, dict) else None
    if not isinstance(name, str):
        raise DataError("Schema must contain 'type' field")
    kind = TYPES.get(name)
    if kind is None:
        raise DataError(f"Unknown schema type: {name}")
    version = node.get("version")
    schema = replace(
        _bare(kind, node, options),
        optional=node.get("optional") is True,
        name=_text(node, "name"),
        version=wrapped(version, 32) if isinstance(version, int) and not isinstance(version, bool) else None,
        doc=_text(node, "doc"),
        parameters=_parameters(node.get("parameters")),
    )
    if "default" not in node:
        return schema
    default = from_json(schema, node["default"], options)
    return with_default(schema, default)


def _bare(kind: Type, node: dict[str, Any], options: JsonOptions) -> Schema:
    match kind:
        case Type.ARRAY:
            if node.get("items") is None:
                raise DataError("Array schema did not specify the element type")
            return array(schema_from_json(node["items"], options))
        case Type.MAP:
            for part, word in (("keys", "key"), ("values", "value")):
                if part not in node:
                    raise DataError(f"Map schema did not specify the {word} type")
            keys, values = schema_from_json(node["keys"], options), schema_from_json(node["values"], options)
            for schema, word in ((keys, "keySchema"), (values, "valueSchema")):
                if schema is None:
                    raise SchemaBuilderError(f"{word} cannot be null.")
            return map_of(keys, values)
        case Type.STRUCT:
            fields = node.get("fields")
            if not isinstance(fields, list):
                raise DataError('Struct schema\'s "fields" argument is not an array.')
            return struct([_field(part, options) for part in fields])
    return Schema(kind)


def _field(node: Any, options: JsonOptions) -> tuple[str, Schema]:
    name = node.get("field") if isinstance(node, dict) else None
    if not isinstance(name, str):
        raise DataError("Struct schema's field name not specified properly")
    schema = schema_from_json(node, options)
    if schema is None:
        raise SchemaBuilderError(f"fieldSchema for field {name} cannot be null.")
    return name, schema


def _text(node: dict[str, Any], key: str) -> str | None:
    value = node.get(key)
    return value if isinstance(value, str) else None


def _parameters(node: Any) -> dict[str, str] | None:
    if not isinstance(node, dict) or not node:
        return None
    if not all(isinstance(value, str) for value in node.values()):
        raise DataError("Schema parameters must have string values.")
    return dict(node)
