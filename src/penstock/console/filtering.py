"""Filters applied to messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from penstock.base.json_depth import MOST_DEPTH, depth_of
from penstock.console.filter_syntax import All, Any_, Compare, Filter, Has, Literal, Negation, Path, parse_filter
from penstock.console.prefilter import Columns, candidates
from penstock.serde.plain import plain, text_of

__all__ = ["Selection", "matches"]


def matches(condition: Filter, message: Mapping[str, Any]) -> bool:
    """Return whether a message meets a filter; what is not there, or of another type, meets no comparison.

    >>> from penstock.console.filter_syntax import parse_filter
    >>> matches(parse_filter('value.user = "ann" and value.total > 10'), {"value": {"user": "ann", "total": 12}})
    True

    Args:
        condition: The filter.
        message: Key, value, headers (name, bytes), timestamp, partition, offset.
    """
    if isinstance(condition, Negation):
        return not matches(condition.inner, message)
    if isinstance(condition, All):
        return all(matches(part, message) for part in condition.parts)
    if isinstance(condition, Any_):
        return any(matches(part, message) for part in condition.parts)
    if isinstance(condition, Has):
        return any(each is not None for each in _found(condition.path, message))
    return any(_fits(each, condition) for each in _found(condition.path, message))


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "key": plain(message["key"]), "value": plain(message["value"])}


def _found(path: Path, message: Mapping[str, Any]) -> list[Any]:
    """Return what is at a place; a header may be there several times."""
    if path.root == "header":
        headers = message.get("headers") or ()
        if not path.steps:
            return [name for name, _ in headers]
        return [None if value is None else text_of(value) for name, value in headers if name == path.steps[0]]
    part: Any = message.get(path.root)
    if path.steps and isinstance(part, str | bytes):  # a text in which there may be JSON
        part = _document(part)
    for step in path.steps:
        if isinstance(step, str) and isinstance(part, Mapping):
            if step not in part:
                return []
            part = part[step]
        elif isinstance(step, int) and isinstance(part, Sequence) and not isinstance(part, str | bytes):
            if step >= len(part):
                return []
            part = part[step]
        else:
            return []
    return [part]


def _document(text: str | bytes) -> Any:
    """Return the JSON in a text; None if it is none, or too deep."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if data.lstrip()[:1] not in (b"{", b"[") or depth_of(data) > MOST_DEPTH:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _fits(part: Any, comparison: Compare) -> bool:
    if comparison.operator == "in":
        return any(_same(part, literal) for literal in comparison.literals)
    (literal,) = comparison.literals
    if comparison.operator == "=":
        return _same(part, literal)
    if comparison.operator == "!=":
        return not _same(part, literal)
    if comparison.operator in ("~", "!~"):
        return (_words(literal) in _words(part)) == (comparison.operator == "~")
    if isinstance(literal, bool) or isinstance(part, bool) or literal is None:
        return False
    if isinstance(literal, str):
        return isinstance(part, str) and _ordered(part, literal, comparison.operator)
    return isinstance(part, int | float) and _ordered(part, literal, comparison.operator)


def _same(part: Any, literal: Literal) -> bool:
    if isinstance(part, bytes):
        part = text_of(part)
    return bool(isinstance(part, bool) == isinstance(literal, bool) and part == literal)


def _ordered(a: Any, b: Any, operator: str) -> bool:
    return bool({"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator])


def _words(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return text_of(value)
    return json.dumps(value, ensure_ascii=False, default=plain)


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter, or none: then every message is selected."""

    wanted: Filter | None = None

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a filter; an empty text is none.

        Raises:
            ConfigError: The text is not a filter.
        """
        return cls(parse_filter(text) if text.strip() else None)

    def candidates(self, columns: Columns) -> pa.RecordBatch:
        """Return the records that may be selected, by their bytes; all others are not."""
        if self.wanted is None:
            return columns.records
        return columns.records.filter(pa.array(candidates(self.wanted, columns)))

    def among(self, messages: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the selected ones of messages whose keys and values need not have JSON's types."""
        for message in messages:
            shown = message if self.wanted is None else _plain(message)
            if self.holds(shown):
                yield message

    def holds(self, message: Mapping[str, Any]) -> bool:
        """Return whether a message is selected."""
        return self.wanted is None or matches(self.wanted, message)
