"""Filters applied to messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from penstock.console.filter_syntax import All, Any_, Compare, Filter, Has, Literal, Not, Path, parse_filter
from penstock.console.prefilter import Columns, candidates
from penstock.serde.plain import plain, text_of

__all__ = ["Selection", "matches"]


def matches(wanted: Filter, message: Mapping[str, Any]) -> bool:
    """Return whether a message meets a filter; what is not there, or of another type, meets no comparison.

    >>> from penstock.console.filter_syntax import parse_filter
    >>> matches(parse_filter('value.user = "ann" and value.total > 10'), {"value": {"user": "ann", "total": 12}})
    True

    Args:
        wanted: The filter.
        message: Key, value, headers (name, bytes), timestamp, partition, offset.
    """
    if isinstance(wanted, Not):
        return not matches(wanted.inner, message)
    if isinstance(wanted, All):
        return all(matches(part, message) for part in wanted.parts)
    if isinstance(wanted, Any_):
        return any(matches(part, message) for part in wanted.parts)
    if isinstance(wanted, Has):
        return any(each is not None for each in _found(wanted.path, message))
    return any(_fits(each, wanted) for each in _found(wanted.path, message))


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "key": plain(message["key"]), "value": plain(message["value"])}


def _found(path: Path, message: Mapping[str, Any]) -> list[Any]:
    """Return what is at a place; a header may be there several times."""
    if path.root == "header":
        headers = message.get("headers") or ()
        if not path.steps:
            return [name for name, _ in headers]
        return [None if value is None else text_of(value) for name, value in headers if name == path.steps[0]]
    found: Any = message.get(path.root)
    for step in path.steps:
        if isinstance(step, str) and isinstance(found, Mapping):
            if step not in found:
                return []
            found = found[step]
        elif isinstance(step, int) and isinstance(found, Sequence) and not isinstance(found, str | bytes):
            if step >= len(found):
                return []
            found = found[step]
        else:
            return []
    return [found]


def _fits(found: Any, wanted: Compare) -> bool:
    if wanted.operator == "in":
        return any(_same(found, literal) for literal in wanted.literals)
    (literal,) = wanted.literals
    if wanted.operator == "=":
        return _same(found, literal)
    if wanted.operator == "!=":
        return not _same(found, literal)
    if wanted.operator in ("~", "!~"):
        return (_words(literal) in _words(found)) == (wanted.operator == "~")
    if isinstance(literal, bool) or isinstance(found, bool) or literal is None:
        return False
    if isinstance(literal, str):
        return isinstance(found, str) and _ordered(found, literal, wanted.operator)
    return isinstance(found, int | float) and _ordered(found, literal, wanted.operator)


def _same(found: Any, literal: Literal) -> bool:
    if isinstance(found, bytes):
        found = text_of(found)
    return bool(isinstance(found, bool) == isinstance(literal, bool) and found == literal)


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
