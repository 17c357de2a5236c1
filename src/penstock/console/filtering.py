"""Filters applied to messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from penstock.base.json_depth import MOST_DEPTH, depth_of
from penstock.console.filter_syntax import All, Any_, Compare, Filter, Has, Literal, Negation, Path, parse_filter
from penstock.console.prefilter import Columns, candidates
from penstock.serde.plain import plain, text_of

__all__ = ["Selection", "document_in", "matches"]


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


def document_in(value: Any) -> Any:
    """Return the object or list that a value is or has as JSON; None if it is none, or too deep.

    >>> document_in('{"a": 1}'), document_in({"a": 2}), document_in("plain")
    ({'a': 1}, {'a': 2}, None)
    """
    if isinstance(value, str | bytes):
        return _document(value)
    return value if isinstance(value, Mapping | list) else None


def _document(text: str | bytes) -> Any:
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
    """What messages are selected by; by default all are.

    Attributes:
        wanted: A filter.
        text: A plain text that is in the key, the value or a header.
        key: The bytes of the key.
    """

    wanted: Filter | None = None
    text: str = ""
    key: bytes | None = None

    @classmethod
    def of(cls, filter_text: str, text: str = "", key: bytes | None = None) -> Self:
        """Parse a filter; an empty one is none.

        Raises:
            ConfigError: It is not a filter.
        """
        return cls(parse_filter(filter_text) if filter_text.strip() else None, text, key)

    @property
    def is_everything(self) -> bool:
        """Whether every message is selected."""
        return self == type(self)()

    def candidates(self, columns: Columns) -> pa.RecordBatch:
        """Return the records that may be selected, by their bytes; all others are not."""
        records = columns.records
        keep = np.ones(columns.number, np.bool_)
        if self.wanted is not None:
            keep &= candidates(self.wanted, columns)
        if self.text:
            within = Any_(tuple(Compare(Path(root), "~", (self.text,)) for root in ("key", "value")))
            has_headers = np.asarray(records.column("headers").is_valid())
            keep &= candidates(within, columns) | has_headers
        if self.key is not None:
            keep &= columns.data("key").eq_missing(self.key).to_numpy()
        return records if keep.all() else records.filter(pa.array(keep))

    def among(self, messages: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the selected ones of messages whose keys and values need not have JSON's types."""
        for message in messages:
            shown = message if self.wanted is None else _plain(message)
            if self.holds(shown):
                yield message

    def holds(self, message: Mapping[str, Any]) -> bool:
        """Return whether a message is selected."""
        if self.text and not any(self.text in each for each in _texts(message)):
            return False
        return self.wanted is None or matches(self.wanted, message)


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a message that a plain text is looked for in."""
    for part in (message["key"], message["value"]):
        if part is not None:
            yield _words(part)
    for name, value in message.get("headers") or ():
        yield name
        if value is not None:
            yield text_of(value)
