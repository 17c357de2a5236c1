"""Compatibility rules for JSON Schema: every document of the old schema must be valid under the new one.

The rules compare types, values, bounds, properties, items and combinations keyword by keyword, as Confluent's do. A
keyword that no rule covers must be the same in both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from penstock.serde.formats.json_schema import part_at

__all__ = ["json_differences"]

_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_EXACT = ("pattern", "multipleOf", "uniqueItems", "not", "if", "then", "else", "patternProperties", "dependencies")
_NESTING = 40
_MOST_COMPARISONS = 50_000


def json_differences(new: Any, old: Any) -> list[str]:
    """List the reasons why the new schema rejects documents of the old one, each with its place.

    Raises:
        ValueError: The schemas have so many combinations that comparing them would take too long.
    """
    return _JsonComparison(new, old).compare(new, old, "#", 0)


def _types(schema: dict[str, Any]) -> set[str] | None:
    kinds = schema.get("type")
    if kinds is None:
        return None
    return {kinds} if isinstance(kinds, str) else set(kinds)


class _JsonComparison:
    """A comparison of two documents; each pair of their parts once, as parts may refer to each other in circles.

    A pair that is being compared counts as compatible: its differences are reported at the place where its comparison
    began. Results that rest on this assumption are dropped when it turns out wrong.
    """

    def __init__(self, new: Any, old: Any) -> None:
        self._new = new
        self._old = old
        self._problems: dict[
            tuple[int, int], tuple[Any, Any, list[str]]
        ] = {}  # by identity, so the parts are kept, too
        self._compatible: list[tuple[int, int]] = []
        self._compared = 0

    def compare(self, new: Any, old: Any, path: str, depth: int) -> list[str]:
        new, old = _resolved(new, self._new), _resolved(old, self._old)
        pair = (id(new), id(old))
        compared = self._problems.get(pair)
        if compared is not None:
            return compared[2]
        self._compared += 1
        if self._compared > _MOST_COMPARISONS:
            raise ValueError(f"they combine in more than {_MOST_COMPARISONS:,} ways; split the schema")
        assumed = len(self._compatible)
        self._problems[pair] = (new, old, [])
        self._compatible.append(pair)
        problems = self._differences(new, old, path, depth)
        if problems:
            for doubtful in self._compatible[assumed:]:
                self._problems.pop(doubtful, None)
            del self._compatible[assumed:]
            self._problems[pair] = (new, old, problems)
        return problems

    def _differences(self, new: Any, old: Any, path: str, depth: int) -> list[str]:
        if new in (True, {}) or old is False or new == old or depth > _NESTING:
            return []
        if new is False:
            return [f"{path}: everything is refused now"]
        old = {} if old is True else old
        combined = self._combined(new, old, path, depth)
        if combined is not None:
            return combined
        return [
            *_type_changes(new, old, path),
            *_value_changes(new, old, path),
            *_bound_changes(new, old, path),
            *self._objects(new, old, path, depth),
            *self._arrays(new, old, path, depth),
        ]

    def _combined(self, new: Any, old: Any, path: str, depth: int) -> list[str] | None:
        """Compare alternatives: each old one must fit one of the new; return None if neither schema has any."""
        new_key, old_key = _alternatives(new), _alternatives(old)
        if new_key is None and old_key is None:
            return None
        if "allOf" in (new_key, old_key):
            if new_key != old_key:
                return [f"{path}: combination changed from {old_key} to {new_key}"]
            return self._each(
                new["allOf"], old["allOf"], path, lambda n, o: not self.compare(n, o, path, depth + 1), swapped=True
            )
        news, olds = (new[new_key] if new_key else [new]), (old[old_key] if old_key else [old])
        return self._each(news, olds, path, lambda n, o: not self.compare(n, o, path, depth + 1), swapped=False)

    def _each(
        self, news: list[Any], olds: list[Any], path: str, fits: Callable[[Any, Any], bool], *, swapped: bool
    ) -> list[str]:
        if swapped:
            return [
                f"{path}: part {number} of the combination is new"
                for number, new in enumerate(news)
                if not any(fits(new, old) for old in olds)
            ]
        return [
            f"{path}: alternative {number} is no longer allowed"
            for number, old in enumerate(olds)
            if not any(fits(new, old) for new in news)
        ]

    def _objects(self, new: Any, old: Any, path: str, depth: int) -> list[str]:
        have, had = new.get("properties", {}), old.get("properties", {})
        problems = [
            f"{path}/required: property {name!r} is required now"
            for name in new.get("required", [])
            if name not in old.get("required", []) and not _has_default(_resolved(have.get(name, {}), self._new))
        ]
        rest, old_rest = new.get("additionalProperties", True), old.get("additionalProperties", True)
        for name, schema in have.items():
            here = f"{path}/properties/{name}"
            if name in had:
                problems += self.compare(schema, had[name], here, depth + 1)
            elif old_rest is not False and self.compare(schema, old_rest, here, depth + 1):
                problems.append(f"{here}: the old schema allowed any property of this name")
        for name, schema in had.items():
            if name not in have and self.compare(rest, schema, f"{path}/additionalProperties", depth + 1):
                problems.append(f"{path}/properties/{name}: the property is no longer allowed")
        return problems + self.compare(rest, old_rest, f"{path}/additionalProperties", depth + 1)

    def _arrays(self, new: Any, old: Any, path: str, depth: int) -> list[str]:
        items, old_items = new.get("items", True), old.get("items", True)
        if isinstance(items, list) or isinstance(old_items, list):
            return [] if items == old_items else [f"{path}/items: the list of items changed"]
        return self.compare(items, old_items, f"{path}/items", depth + 1)


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _alternatives(schema: dict[str, Any]) -> str | None:
    return next((key for key in ("oneOf", "anyOf", "allOf") if key in schema), None)


def _resolved(schema: Any, root: Any) -> Any:
    """Resolve a ``$ref`` within the document or to a registered reference."""
    for _ in range(_NESTING):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        target = str(schema["$ref"])
        others = root.get("$penstock:references", {}) if isinstance(root, dict) else {}
        if target in others:
            return others[target]
        if not target.startswith("#"):
            return schema
        part = part_at(root, target.lstrip("#"))
        schema = part if isinstance(part, dict | bool) else {}
    return schema


def _type_changes(new: dict[str, Any], old: dict[str, Any], path: str) -> list[str]:
    now, before = _types(new), _types(old)
    if now is None:
        return []
    if before is None:
        return [f"{path}/type: narrowed to {', '.join(sorted(now))}"]
    lost = {kind for kind in before if kind not in now and not (kind == "integer" and "number" in now)}
    return [f"{path}/type: {', '.join(sorted(lost))} is no longer allowed"] if lost else []


def _value_changes(new: dict[str, Any], old: dict[str, Any], path: str) -> list[str]:
    now, before = _values(new), _values(old)
    if now is None:
        return []
    if before is None:
        return [f"{path}/enum: narrowed to {len(now)} values"]
    lost = sorted(before - now)
    return [f"{path}/enum: {', '.join(lost)} is no longer allowed"] if lost else []


def _values(schema: dict[str, Any]) -> set[str] | None:
    if "const" in schema:
        return {json.dumps(schema["const"], sort_keys=True)}
    if "enum" in schema:
        return {json.dumps(value, sort_keys=True) for value in schema["enum"]}
    return None


def _bound_changes(new: dict[str, Any], old: dict[str, Any], path: str) -> list[str]:
    problems = [f"{path}/{key}: changed" for key in _EXACT if key in new and new[key] != old.get(key)]
    return [*problems, *_tighter(new, old, path, _UPPER, 1), *_tighter(new, old, path, _LOWER, -1)]


def _tighter(new: dict[str, Any], old: dict[str, Any], path: str, keys: Iterable[str], sign: int) -> list[str]:
    return [
        f"{path}/{key}: tightened to {new[key]}"
        for key in keys
        if key in new and (key not in old or new[key] * sign < old[key] * sign)
    ]
