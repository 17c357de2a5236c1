"""Connect's schemas as JSON Schema and back, by the rules of Confluent's ``JsonSchemaData``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from penstock.connect.converters.json_values import JsonOptions, from_json, to_json
from penstock.connect.data import DataError, Schema, Type, map_of, struct
from penstock.connect.data import array as array_of
from penstock.serde.data.logical import DECIMAL_NAME
from penstock.serde.formats.schema_text import SchemaText

__all__ = ["ENUM", "ONE_OF", "from_json_schema", "to_json_schema"]

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
DEPTH = 50


def to_json_schema(schema: Schema, options: JsonOptions, *, open_objects: bool = True) -> dict[str, Any]:
    """The JSON Schema of a schema.

    Args:
        schema: Connect's schema.
        options: How defaults are written.
        open_objects: Objects may have other fields too.

    Example:
        >>> from penstock.connect.data import INT8, OPTIONAL_STRING
        >>> to_json_schema(INT8, JsonOptions())
        {'type': 'integer', 'connect.type': 'int8'}
        >>> to_json_schema(OPTIONAL_STRING, JsonOptions())
        {'oneOf': [{'type': 'null'}, {'type': 'string'}]}
    """
    return _Writer(options, open_objects=open_objects).made(schema, None, nullable=True)


class _Writer:
    def __init__(self, options: JsonOptions, *, open_objects: bool) -> None:
        self._options = options
        self._open = open_objects

    def made(self, schema: Schema, index: int | None, *, nullable: bool) -> dict[str, Any]:
        if schema.type is Type.STRUCT and schema.name == ONE_OF:
            null = [NULL] if schema.optional else []
            made: dict[str, Any] = {
                "oneOf": null + [self.made(part.schema, part.index, nullable=False) for part in schema.fields]
            }
        else:
            made = self._plain(schema)
            if schema.optional and nullable:
                made = {"oneOf": [NULL, made]}
        if index is not None:
            made["connect.index"] = index
        return made

    def _plain(self, schema: Schema) -> dict[str, Any]:
        made = self._typed(schema)
        if schema.name is not None:
            made["title"] = schema.name
        if schema.doc is not None:
            made["description"] = schema.doc
        if schema.version is not None:
            made["connect.version"] = schema.version
        parameters = {k: v for k, v in (schema.parameters or {}).items() if not k.startswith(NAMESPACE)}
        if parameters:
            made["connect.parameters"] = parameters
        if schema.default is not None:
            made["default"] = json.loads(to_json(schema, schema.default, self._options))
        return made

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
                return {"type": "array", "items": self.made(_known(schema.values), None, nullable=True)}
            case Type.MAP:
                return self._map(_known(schema.keys), _known(schema.values))
        properties = {part.name: self.made(part.schema, part.index, nullable=True) for part in schema.fields}
        made: dict[str, Any] = {"type": "object", "properties": properties}
        return made if self._open else {**made, "additionalProperties": False}

    def _map(self, keys: Schema, values: Schema) -> dict[str, Any]:
        if keys.type is Type.STRING and not keys.optional:
            inner = self.made(values, None, nullable=True)
            return {"type": "object", "additionalProperties": inner, "connect.type": "map"}
        entry = {"key": self.made(keys, 0, nullable=True), "value": self.made(values, 1, nullable=True)}
        return {"type": "array", "items": {"type": "object", "properties": entry}, "connect.type": "map"}


def from_json_schema(text: SchemaText, options: JsonOptions, *, optional_unless_required: bool = False) -> Schema:
    """Connect's schema of a JSON Schema.

    Raises:
        DataError: It refers to itself, or to what is not there, or says nothing of the type.

    Example:
        >>> made = from_json_schema(SchemaText('{"properties": {"a": {"type": "integer"}}}', "JSON"), JsonOptions())
        >>> str(made.field("a").schema)
        'Schema{INT64}'
    """
    document = json.loads(text.text, parse_float=Decimal)
    referred = {name: json.loads(one, parse_float=Decimal) for name, one in text.referred}
    return _Reader(document, referred, options, required_only=optional_unless_required).schema(document, ())


class _Reader:
    def __init__(self, root: Any, referred: Mapping[str, Any], options: JsonOptions, *, required_only: bool) -> None:
        self._root, self._referred = root, referred
        self._options = options
        self._required_only = required_only

    def schema(self, found: Any, above: tuple[int, ...], *, nullable: bool = False) -> Schema:
        if not isinstance(found, dict):
            raise DataError(f"the JSON Schema has {json.dumps(found)} in place of a schema")
        if id(found) in above or len(above) > DEPTH:
            raise DataError(
                "the JSON Schema refers to itself, which Connect's schemas cannot",
                hint="Read the topic with the JsonConverter without schemas.",
            )
        inside = (*above, id(found))
        if "$ref" in found:
            return self.schema(self._referred_to(str(found["$ref"])), inside, nullable=nullable)
        kinds = found.get("type")
        if isinstance(kinds, list):
            branches: Any = [{**found, "type": kind} for kind in kinds]
            return self._one_of(branches, inside, {}, nullable=nullable)
        for word in ("oneOf", "anyOf"):
            if word in found:
                return self._one_of(found[word], inside, found, nullable=nullable)
        if "allOf" in found:
            return self.schema(self._merged(found, inside), inside, nullable=nullable)
        made = self._described(self._typed(found, inside), found)
        return made.as_optional() if nullable else made

    def _typed(self, found: Mapping[str, Any], above: tuple[int, ...]) -> Schema:
        kind, word = found.get("type"), found.get("connect.type")
        if "enum" in found and kind in (None, "string"):
            symbols = [NULL_SYMBOL if each is None else str(each) for each in found["enum"]]
            return Schema(Type.STRING, parameters={ENUM: "", **{f"{ENUM}.{each}": each for each in symbols}})
        if kind is None:
            kind = "object" if "properties" in found else "array" if "items" in found else None
            kind = kind or {str: "string", bool: "boolean", int: "integer"}.get(type(found.get("const")))
        match kind:
            case "boolean":
                return Schema(Type.BOOLEAN)
            case "integer" | "number":
                plain = Type.INT64 if kind == "integer" else Type.FLOAT64
                return Schema(KINDS.get(str(word), plain))
            case "string":
                return Schema(Type.BYTES if word == "bytes" else Type.STRING)
            case "array":
                return self._array(found, above)
            case "object" if word == "map":
                return map_of(Schema(Type.STRING), self.schema(found.get("additionalProperties", {}), above))
            case "object":
                return self._struct(found, above)
        raise DataError(
            f"a part of the JSON Schema does not say its type: {json.dumps(found, default=str)[:100]}",
            hint="Connect needs the type of every field: give it type, properties, items or enum.",
        )

    def _array(self, found: Mapping[str, Any], above: tuple[int, ...]) -> Schema:
        items = found.get("items")
        if not isinstance(items, dict):
            raise DataError("Array schema did not specify the items type")
        if found.get("connect.type") == "map" and "properties" in items:
            key, value = (self.schema(items["properties"][part], above) for part in ("key", "value"))
            return map_of(key, value)
        return array_of(self.schema(items, above))

    def _struct(self, found: Mapping[str, Any], above: tuple[int, ...]) -> Schema:
        properties: Mapping[str, Any] = found.get("properties", {})
        indexes = {name: part.get("connect.index") for name, part in properties.items() if isinstance(part, dict)}
        places = {
            name: at if indexes.get(name) is None else int(indexes[name] or 0) for at, name in enumerate(properties)
        }
        required = found.get("required", ())
        fields = []
        for name in sorted(properties, key=lambda each: places[each]):
            nullable = self._required_only and name not in required
            fields.append((name, self.schema(properties[name], above, nullable=nullable)))
        return struct(fields)

    def _one_of(
        self, branches: list[Any], above: tuple[int, ...], found: Mapping[str, Any], *, nullable: bool
    ) -> Schema:
        real = [branch for branch in branches if branch != NULL and branch.get("type") != "null"]
        has_null = len(real) != len(branches)
        if len(real) == 1 and has_null:
            return self.schema(real[0], above, nullable=True)
        fields = [(f"{ONE_OF}.field.{at}", self.schema(one, above, nullable=True)) for at, one in enumerate(real)]
        return self._described(struct(fields, name=ONE_OF, optional=has_null or nullable), found)

    def _merged(self, found: Mapping[str, Any], above: tuple[int, ...]) -> dict[str, Any]:
        """The one schema that the parts of ``allOf`` make together."""
        made: dict[str, Any] = {name: value for name, value in found.items() if name != "allOf"}
        properties: dict[str, Any] = dict(found.get("properties", {}))
        required = list(found.get("required", ()))
        if len(above) > DEPTH:
            raise DataError("the parts of allOf in the JSON Schema refer to each other without end")
        for each in found["allOf"]:
            part = self._referred_to(str(each["$ref"])) if "$ref" in each else each
            if "allOf" in part:
                part = self._merged(part, (*above, id(part)))
            properties.update(part.get("properties", {}))
            required += part.get("required", ())
            made.update({k: v for k, v in part.items() if k not in ("properties", "required") and k not in made})
        return {**made, **({"properties": properties, "required": required} if properties else {})}

    def _described(self, made: Schema, found: Mapping[str, Any]) -> Schema:
        changes: dict[str, Any] = {}
        if found.get("title") is not None and made.name is None:
            changes["name"] = str(found["title"])
        if isinstance(found.get("connect.version"), int):
            changes["version"] = found["connect.version"]
        if found.get("description") is not None:
            changes["doc"] = str(found["description"])
        if found.get("connect.parameters"):
            given = {key: str(value) for key, value in found["connect.parameters"].items()}
            changes["parameters"] = {**(made.parameters or {}), **given}
        made = replace(made, **changes) if changes else made
        if found.get("default") is not None:
            made = replace(made, default=from_json(made, found["default"], self._options))
        return made

    def _referred_to(self, place: str) -> Any:
        name, _, path = place.partition("#")
        found = self._root if not name else self._referred.get(name)
        for part in path.split("/")[1:]:
            step = part.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, dict) else None
        if found is None:
            raise DataError(
                f"the JSON Schema refers to {place}, which is not there",
                hint="Register the schema with its references.",
            )
        return found


def _known(schema: Schema | None) -> Schema:
    if schema is None:
        raise DataError("an array or map whose elements have no schema in common has no JSON Schema")
    return schema
