"""The rules that a new Avro schema must keep: names, unions, enums, fixed types, defaults. The parser's own are few."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["BrokenRuleError", "check_avro"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]*")  # with dashes, which Java's parser takes too
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED = ("record", "error", "enum", "fixed")
_ORDERS = ("ascending", "descending", "ignore")
_BITS = {"int": 32, "long": 64}
_MOST_DEPTH = 100


class BrokenRuleError(ValueError):
    """A schema breaks a rule of Avro's specification."""


def check_avro(document: Any, named_types: Mapping[str, Any] | None = None) -> None:
    """Check a schema by the rules of Avro's specification.

    Args:
        document: The schema, as JSON.
        named_types: Types of other schemas that it refers to, by their full names.

    Raises:
        BrokenRuleError: It breaks a rule; the message says which, and where.

    Example:
        >>> check_avro(["null", ["int", "string"]])
        Traceback (most recent call last):
        ...
        penstock.serde.registry.avro_validity.BrokenRuleError: Nested union: ["int", "string"] in a union
    """
    _AvroCheck(named_types or {}).schema(document, "", "the schema")


class _AvroCheck:
    def __init__(self, named_types: Mapping[str, Any]) -> None:
        self._names: dict[str, Any] = dict(named_types)

    def schema(self, schema: Any, namespace: str, where: str) -> None:
        if isinstance(schema, list):
            self._union(schema, namespace, where)
        elif isinstance(schema, str):
            if schema not in _PRIMITIVES and self._full(schema, namespace) not in self._names:
                raise BrokenRuleError(f"Undefined name: {_shown(schema)} in {where}")
        elif not isinstance(schema, dict) or "type" not in schema:
            raise BrokenRuleError(f"No type: {_shown(schema)} in {where}")
        elif isinstance(schema["type"], dict | list):
            self.schema(schema["type"], namespace, where)
        else:
            self._typed(schema, schema["type"], namespace, where)

    def _typed(self, schema: Mapping[str, Any], kind: Any, namespace: str, where: str) -> None:
        if kind in _NAMED:
            self._named(schema, str(kind), namespace, where)
        elif kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            if part not in schema:
                raise BrokenRuleError(f"{str(kind).capitalize()} has no {part} type in {where}")
            self.schema(schema[part], namespace, f"the {part} of {where}")
        elif isinstance(kind, str):
            self.schema(kind, namespace, where)
        else:
            raise BrokenRuleError(f"No type: {_shown(kind)} in {where}")

    def _union(self, branches: list[Any], namespace: str, where: str) -> None:
        seen: set[str] = set()
        for branch in branches:
            if isinstance(branch, list) or (isinstance(branch, dict) and isinstance(branch.get("type"), list)):
                raise BrokenRuleError(f"Nested union: {_shown(branch)} in a union")
            self.schema(branch, namespace, f"a union of {where}")
            name = self._branch_name(branch, namespace)
            if name in seen:
                raise BrokenRuleError(f"Duplicate in union: {name} in {where}")
            seen.add(name)

    def _branch_name(self, branch: Any, namespace: str) -> str:
        while isinstance(branch, dict) and isinstance(branch["type"], dict):
            branch = branch["type"]
        if isinstance(branch, str):
            return branch if branch in _PRIMITIVES else self._full(branch, namespace)
        kind = str(branch["type"])
        if kind in _NAMED:
            return self._full(str(branch["name"]), branch.get("namespace", namespace))
        return kind if kind in (*_PRIMITIVES, "array", "map") else self._full(kind, namespace)

    def _named(self, schema: Mapping[str, Any], kind: str, namespace: str, where: str) -> None:
        name, own = schema.get("name"), schema.get("namespace", namespace)
        if not isinstance(name, str) or not name:
            raise BrokenRuleError(f"No name in schema: a {kind} in {where}")
        if not isinstance(own, str):
            raise BrokenRuleError(f"Illegal namespace {_shown(own)} of {name}")
        full = self._full(name, own)
        space, _, simple = full.rpartition(".")
        _check_name(simple, f"the name of a {kind}")
        _check_space(space)
        if full in _PRIMITIVES:
            raise BrokenRuleError(f"Schemas may not be named after primitives: {full}")
        if full in self._names:
            raise BrokenRuleError(f"Can't redefine: {full}")
        for alias in _texts(schema.get("aliases", []), f"the aliases of {full}"):
            _check_name(alias.rpartition(".")[2], f"an alias of {full}")
            _check_space(alias.rpartition(".")[0])
        self._names[full] = {**schema, "name": full, "namespace": space}
        if kind == "enum":
            self._enum(schema, full)
        elif kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 31:
                raise BrokenRuleError(f"Invalid or no size: {_shown(size)} of the fixed {full}")
        else:
            self._record(schema, full, space)

    def _enum(self, schema: Mapping[str, Any], full: str) -> None:
        symbols = schema.get("symbols")
        if not isinstance(symbols, list):
            raise BrokenRuleError(f"Enum has no symbols: {full}")
        for symbol in _texts(symbols, f"the symbols of {full}"):
            _check_name(symbol, f"a symbol of {full}")
        twice = next((symbol for at, symbol in enumerate(symbols) if symbol in symbols[:at]), None)
        if twice is not None:
            raise BrokenRuleError(f"Duplicate enum symbol: {twice} of {full}")
        if "default" in schema and schema["default"] not in symbols:
            raise BrokenRuleError(
                f"The Enum Default: {_shown(schema['default'])} is not in the enum symbol set of {full}"
            )

    def _record(self, schema: Mapping[str, Any], full: str, namespace: str) -> None:
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise BrokenRuleError(f"Record has no fields: {full}")
        seen: set[str] = set()
        for field in fields:
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str):
                raise BrokenRuleError(f"No field name: {_shown(field)} of {full}")
            _check_name(name, f"a field of {full}")
            if name in seen:
                raise BrokenRuleError(f"Duplicate field {name} in record {full}")
            seen.add(name)
            if "type" not in field:
                raise BrokenRuleError(f"No field type: {name} of {full}")
            self.schema(field["type"], namespace, f"the field {name} of {full}")
            order = field.get("order", "ascending")
            if order not in _ORDERS:
                raise BrokenRuleError(f"Illegal order {_shown(order)} of the field {name} of {full}")
            _texts(field.get("aliases", []), f"the aliases of the field {name} of {full}")
        for field in fields:  # a default may be of the record itself
            if "default" in field and not self._fits(field["type"], field["default"], namespace, 0):
                raise BrokenRuleError(
                    f"Invalid default for field {field['name']} of {full}: {_shown(field['default'])} not a "
                    f"{_shown(field['type'])}"
                )

    def _fits(self, schema: Any, value: Any, namespace: str, depth: int) -> bool:
        """Return whether a default is one of its type."""
        if depth > _MOST_DEPTH:
            return False
        if isinstance(schema, list):
            return any(self._fits(branch, value, namespace, depth + 1) for branch in schema)
        if isinstance(schema, str) and schema not in _PRIMITIVES:
            schema = self._names[self._full(schema, namespace)]
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, dict | list) or (kind not in (*_PRIMITIVES, *_NAMED, "array", "map")):
            return self._fits(kind, value, namespace, depth + 1)
        if kind in _PRIMITIVES:
            return _is_of(kind, value)
        if kind == "array":
            inner = schema["items"]
            return isinstance(value, list) and all(self._fits(inner, each, namespace, depth + 1) for each in value)
        if kind == "map":
            inner = schema["values"]
            elements = value.values() if isinstance(value, dict) else ()
            return isinstance(value, dict) and all(self._fits(inner, each, namespace, depth + 1) for each in elements)
        if kind == "enum":
            return value in schema["symbols"]
        if kind == "fixed":
            return _is_of("bytes", value) and len(value) == schema["size"]
        full = self._full(str(schema["name"]), schema.get("namespace", namespace))
        return isinstance(value, dict) and all(
            self._fits(field["type"], value[field["name"]], full.rpartition(".")[0], depth + 1)
            if field["name"] in value
            else "default" in field
            for field in schema["fields"]
        )

    def _full(self, name: str, namespace: Any) -> str:
        return name.lstrip(".") if "." in name or not namespace else f"{namespace}.{name}"


def _is_of(kind: str, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            bits = _BITS[kind]
            return number and isinstance(value, int) and -(1 << (bits - 1)) <= value < 1 << (bits - 1)
        case "float" | "double":
            return number
        case "bytes":
            return isinstance(value, str) and all(character <= "\xff" for character in value)
    return isinstance(value, str)


def _check_name(name: str, what: str) -> None:
    if not name:
        raise BrokenRuleError(f"Empty name: {what}")
    if _NAME.fullmatch(name) is None:
        raise BrokenRuleError(
            f"Illegal character in: {_shown(name)}, {what}: names are letters, digits and underscores"
        )


def _check_space(namespace: str) -> None:
    if namespace and any(_SPACE.fullmatch(part) is None for part in namespace.split(".")):
        raise BrokenRuleError(f"Illegal namespace {_shown(namespace)}: it is names joined by dots")


def _texts(value: Any, what: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BrokenRuleError(f"{what} is not a list of texts: {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:100]
