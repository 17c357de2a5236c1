"""Connect's schemas as JSON Schema and back, by the rules of Confluent's ``JsonSchemaData``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from penstock.serde.data import DataError, Schema, Type, map_of, struct
from penstock.serde.data import array as array_of
from penstock.serde.data.json_values import JsonOptions, from_json, to_json
from penstock.serde.data.logical import DECIMAL_NAME
from penstock.serde.formats.schema_text import MOST_LEVELS, SchemaText, SchemaWalk

__all__ = ["ENUM", "ONE_OF", "from_json_schema", "part_at", "to_json_schema"]

NAMESPACE = "io.confluent.connect.json"
ENUM, ONE_OF = f"{NAMESPACE}.Enum", f"{NAMESPACE}.OneOf"
NULL = {"type": "null"}
NULL_SYMBOL = "<NULL>"
NUMBERS = {
    Type.INT8: ("integer", "int8"),
    Type.INT16: ("integer", "int16"),
    Type.INT32: ("integer", "int32"),
    Type.INT64: ("integer", "int64"),
    Type.FLOAT32: ("number", "float32"),
    Type.FLOAT64: ("number", "float64"),
}
KINDS = {word: kind for kind, (_, word) in NUMBERS.items()} | {"bytes": Type.BYTES}


class _UntypedError(DataError):
    """A part of a schema from which no type follows."""


def to_json_schema(schema: Schema, options: JsonOptions, *, open_objects: bool = True) -> dict[str, Any]:
    """Return the JSON Schema of a schema.

    Args:
        schema: Connect's schema.
        options: How defaults are written.
        open_objects: Objects may have other fields too.

    Example:
        >>> from penstock.serde.data import INT8, OPTIONAL_STRING
        >>> to_json_schema(INT8, JsonOptions())
        {'type': 'integer', 'connect.type': 'int8'}
        >>> to_json_schema(OPTIONAL_STRING, JsonOptions())
        {'oneOf': [{'type': 'null'}, {'type': 'string'}]}
    """
    return _SchemaWriter(options, open_objects=open_objects).written(schema, None, nullable=True)


class _SchemaWriter:
    def __init__(self, options: JsonOptions, *, open_objects: bool) -> None:
        self._options = options
        self._open = open_objects

    def written(self, schema: Schema, index: int | None, *, nullable: bool) -> dict[str, Any]:
        if schema.type is Type.STRUCT and schema.name == ONE_OF:
            null = [NULL] if schema.optional else []
            json_schema: dict[str, Any] = {
                "oneOf": null + [self.written(part.schema, part.index, nullable=False) for part in schema.fields]
            }
        else:
            json_schema = self._plain(schema)
            if schema.optional and nullable:
                json_schema = {"oneOf": [NULL, json_schema]}
        if index is not None:
            json_schema["connect.index"] = index
        return json_schema

    def _plain(self, schema: Schema) -> dict[str, Any]:
        json_schema = self._typed(schema)
        if schema.name is not None:
            json_schema["title"] = schema.name
        if schema.doc is not None:
            json_schema["description"] = schema.doc
        if schema.version is not None:
            json_schema["connect.version"] = schema.version
        parameters = {k: v for k, v in (schema.parameters or {}).items() if not k.startswith(NAMESPACE)}
        if parameters:
            json_schema["connect.parameters"] = parameters
        if schema.default is not None:
            json_schema["default"] = json.loads(to_json(schema, schema.default, self._options))
        return json_schema

    def _typed(self, schema: Schema) -> dict[str, Any]:
        match schema.type:
            case kind if kind in NUMBERS:
                return {"type": NUMBERS[kind][0], "connect.type": NUMBERS[kind][1]}
            case Type.BOOLEAN:
                return {"type": "boolean"}
            case Type.STRING:
                symbols = [k.removeprefix(f"{ENUM}.") for k in schema.parameters or {} if k.startswith(f"{ENUM}.")]
                if symbols:
                    return {"enum": [None if symbol == NULL_SYMBOL else symbol for symbol in symbols]}
                return {"type": "string"}
            case Type.BYTES:
                return {"type": "number" if schema.name == DECIMAL_NAME else "string", "connect.type": "bytes"}
            case Type.ARRAY:
                return {"type": "array", "items": self.written(_known(schema.values), None, nullable=True)}
            case Type.MAP:
                return self._map(_known(schema.keys), _known(schema.values))
        properties = {part.name: self.written(part.schema, part.index, nullable=True) for part in schema.fields}
        json_schema: dict[str, Any] = {"type": "object", "properties": properties}
        return json_schema if self._open else {**json_schema, "additionalProperties": False}

    def _map(self, keys: Schema, values: Schema) -> dict[str, Any]:
        if keys.type is Type.STRING and not keys.optional:
            inner = self.written(values, None, nullable=True)
            return {"type": "object", "additionalProperties": inner, "connect.type": "map"}
        entry = {"key": self.written(keys, 0, nullable=True), "value": self.written(values, 1, nullable=True)}
        return {"type": "array", "items": {"type": "object", "properties": entry}, "connect.type": "map"}


def from_json_schema(
    text: SchemaText, options: JsonOptions, *, optional_unless_required: bool = False, for_columns: bool = False
) -> Schema:
    """Return Connect's schema of a JSON Schema.

    Args:
        text: The schema.
        options: How defaults are read.
        optional_unless_required: Properties that are not required are optional.
        for_columns: Read what columns can have of schemas that are not Connect's own: properties from which no type
            follows are left out, as are choices of several types; the first of several words for a type counts, and
            objects of additional properties alone are maps.

    Raises:
        DataError: It refers to itself, or to what is not there, or does not say a type.

    Example:
        >>> made = from_json_schema(SchemaText('{"properties": {"a": {"type": "integer"}}}', "JSON"), JsonOptions())
        >>> str(made.field("a").schema)
        'Schema{INT64}'
    """
    document = json.loads(text.text, parse_float=Decimal)
    referred = {name: json.loads(one, parse_float=Decimal) for name, one in text.referred}
    return _SchemaReader(
        document, referred, options, required_only=optional_unless_required, for_columns=for_columns
    ).read()


def part_at(document: Any, pointer: str) -> Any:
    """Return the part of a document that a JSON pointer names; None if there is none.

    >>> part_at({"$defs": {"a/b": True}}, "/$defs/a~1b")
    True
    """
    part = document
    for step in pointer.strip("/").split("/") if pointer.strip("/") else ():
        name = step.replace("~1", "/").replace("~0", "~")
        part = part.get(name) if isinstance(part, dict) else None
    return part


class _SchemaReader:
    def __init__(
        self,
        root: Any,
        referred: Mapping[str, Any],
        options: JsonOptions,
        *,
        required_only: bool,
        for_columns: bool,
    ) -> None:
        self._root, self._referred = root, referred
        self._options = options
        self._required_only = required_only
        self._for_columns = for_columns
        self._walk = SchemaWalk()

    def read(self) -> Schema:
        """Return the schema of the whole document."""
        with self._walk.inside("#"):
            return self._inside(self._root, nullable=False)

    def _schema(self, json_schema: Any, *, nullable: bool = False) -> Schema:
        with self._walk.inside():
            return self._inside(json_schema, nullable=nullable)

    def _inside(self, json_schema: Any, *, nullable: bool) -> Schema:
        self._walk.field()
        if not isinstance(json_schema, dict):
            raise _UntypedError(f"the JSON Schema has {json.dumps(json_schema)} instead of a schema")
        if "$ref" in json_schema:
            reference = str(json_schema["$ref"])
            with self._walk.inside(reference):
                return self._inside(self._referred_to(reference), nullable=nullable)
        kinds = json_schema.get("type")
        if isinstance(kinds, list) and self._for_columns:
            json_schema = {**json_schema, "type": next((kind for kind in kinds if kind != "null"), None)}
        elif isinstance(kinds, list):
            return self._one_of([{**json_schema, "type": kind} for kind in kinds], {}, nullable=nullable)
        for word in ("oneOf", "anyOf"):
            if word in json_schema:
                return self._one_of(json_schema[word], json_schema, nullable=nullable)
        if "allOf" in json_schema:
            return self._schema(self._merged(json_schema, 0), nullable=nullable)
        connect_schema = self._described(self._typed(json_schema), json_schema)
        return connect_schema.as_optional() if nullable else connect_schema

    def _typed(self, json_schema: Mapping[str, Any]) -> Schema:
        kind, word = json_schema.get("type"), json_schema.get("connect.type")
        if "enum" in json_schema and kind in (None, "string"):
            symbols = [NULL_SYMBOL if each is None else str(each) for each in json_schema["enum"]]
            return Schema(Type.STRING, parameters={ENUM: "", **{f"{ENUM}.{each}": each for each in symbols}})
        if kind is None:
            kind = "object" if "properties" in json_schema else "array" if "items" in json_schema else None
            kind = kind or {str: "string", bool: "boolean", int: "integer"}.get(type(json_schema.get("const")))
        match kind:
            case "boolean":
                return Schema(Type.BOOLEAN)
            case "integer" | "number":
                plain = Type.INT64 if kind == "integer" else Type.FLOAT64
                return Schema(KINDS.get(str(word), plain))
            case "string":
                return Schema(Type.BYTES if word == "bytes" else Type.STRING)
            case "array":
                return self._array(json_schema)
            case "object" if word == "map" or (self._for_columns and _is_map(json_schema)):
                return map_of(Schema(Type.STRING), self._schema(json_schema.get("additionalProperties", {})))
            case "object":
                return self._struct(json_schema)
        raise _UntypedError(
            f"a part of the JSON Schema does not say its type: {json.dumps(json_schema, default=str)[:100]}",
            hint="Connect needs the type of every field: give it type, properties, items or enum.",
        )

    def _array(self, json_schema: Mapping[str, Any]) -> Schema:
        items = json_schema.get("items")
        if not isinstance(items, dict):
            raise _UntypedError("Array schema did not specify the items type")
        if json_schema.get("connect.type") == "map" and "properties" in items:
            key, value = (self._schema(items["properties"][part]) for part in ("key", "value"))
            return map_of(key, value)
        return array_of(self._schema(items))

    def _struct(self, json_schema: Mapping[str, Any]) -> Schema:
        properties: Mapping[str, Any] = json_schema.get("properties", {})
        indexes = {name: part.get("connect.index") for name, part in properties.items() if isinstance(part, dict)}
        places = {
            name: at if indexes.get(name) is None else int(indexes[name] or 0) for at, name in enumerate(properties)
        }
        required = json_schema.get("required", ())
        fields = []
        for name in sorted(properties, key=lambda each: places[each]):
            nullable = self._required_only and name not in required
            try:
                fields.append((name, self._schema(properties[name], nullable=nullable)))
            except _UntypedError:
                if not self._for_columns:
                    raise
        return struct(fields)

    def _one_of(self, branches: list[Any], json_schema: Mapping[str, Any], *, nullable: bool) -> Schema:
        real = [branch for branch in branches if branch != NULL and branch.get("type") != "null"]
        has_null = len(real) != len(branches)
        if len(real) == 1 and (has_null or self._for_columns):
            return self._schema(real[0], nullable=True)
        if self._for_columns:
            raise _UntypedError("a part of the JSON Schema is a choice of several types")
        fields = [(f"{ONE_OF}.field.{at}", self._schema(one, nullable=True)) for at, one in enumerate(real)]
        return self._described(struct(fields, name=ONE_OF, optional=has_null or nullable), json_schema)

    def _merged(self, json_schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """Return the one schema that the parts of ``allOf`` make together."""
        merged: dict[str, Any] = {name: value for name, value in json_schema.items() if name != "allOf"}
        properties: dict[str, Any] = dict(json_schema.get("properties", {}))
        required = list(json_schema.get("required", ()))
        if depth > MOST_LEVELS:
            raise DataError("the parts of allOf in the JSON Schema refer to each other without end")
        for each in json_schema["allOf"]:
            self._walk.field()
            part = self._referred_to(str(each["$ref"])) if "$ref" in each else each
            if "allOf" in part:
                part = self._merged(part, depth + 1)
            properties.update(part.get("properties", {}))
            required += part.get("required", ())
            merged.update({k: v for k, v in part.items() if k not in ("properties", "required") and k not in merged})
        return {**merged, **({"properties": properties, "required": required} if properties else {})}

    def _described(self, connect_schema: Schema, json_schema: Mapping[str, Any]) -> Schema:
        changes: dict[str, Any] = {}
        if json_schema.get("title") is not None and connect_schema.name is None:
            changes["name"] = str(json_schema["title"])
        if isinstance(json_schema.get("connect.version"), int):
            changes["version"] = json_schema["connect.version"]
        if json_schema.get("description") is not None:
            changes["doc"] = str(json_schema["description"])
        if json_schema.get("connect.parameters"):
            parameters = {key: str(value) for key, value in json_schema["connect.parameters"].items()}
            changes["parameters"] = {**(connect_schema.parameters or {}), **parameters}
        connect_schema = replace(connect_schema, **changes) if changes else connect_schema
        if json_schema.get("default") is not None and not self._for_columns:
            connect_schema = replace(
                connect_schema, default=from_json(connect_schema, json_schema["default"], self._options)
            )
        return connect_schema

    def _referred_to(self, reference: str) -> Any:
        name, _, pointer = reference.partition("#")
        json_schema = part_at(self._referred.get(name) if name else self._root, pointer)
        if json_schema is None:
            raise _UntypedError(
                f"the JSON Schema refers to {reference}, which is not there",
                hint="Register the schema with its references.",
            )
        return json_schema


def _is_map(json_schema: Mapping[str, Any]) -> bool:
    return "properties" not in json_schema and isinstance(json_schema.get("additionalProperties"), dict)


def _known(schema: Schema | None) -> Schema:
    if schema is None:
        raise DataError("an array or map whose elements have no schema in common has no JSON Schema")
    return schema
