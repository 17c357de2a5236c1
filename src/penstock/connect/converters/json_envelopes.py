"""Envelopes whose schema was read before: of such a text the payload alone is read, straight to the fields of a struct.

Whatever is unusual in a text is left to the reader of whole texts, which decides about it and has the errors.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from json.scanner import make_scanner
from typing import Any

from penstock.connect.data import DataError, Moment, Schema, SchemaAndValue, Struct, Type
from penstock.serde.data.json_values import read_integer
from penstock.serde.data.logical import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    date_from_days,
    time_from_millis,
)
from penstock.serde.data.values import BITS

__all__ = ["EnvelopeReader"]

MOST_ENVELOPES = 8
MOST_BRACKETS = 100  # fewer than the levels that a text may have
LONGEST_FLOAT = 24  # characters that Python writes for one
BLANKS = " \t\n\r"
_SCHEMA = re.compile(r'\{[ \t\n\r]*"schema"[ \t\n\r]*:[ \t\n\r]*')
_PAYLOAD = re.compile(r'[ \t\n\r]*,[ \t\n\r]*"payload"[ \t\n\r]*:')
_HALF_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_LOGICAL: dict[str, Callable[[int], Moment]] = {
    TIMESTAMP_NAME: Moment,
    DATE_NAME: date_from_days,
    TIME_NAME: time_from_millis,
}
_KINDS: dict[Type, type] = {Type.STRING: str, Type.BOOLEAN: bool, Type.FLOAT64: float}
_SCAN_ANY = make_scanner(json.JSONDecoder())  # type: ignore[arg-type]


class _UnusualError(ValueError):
    """The text is for the reader of whole texts."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A field.

    Attributes:
        name: Its name.
        kind: Python's type of its JSON.
        null: What is taken for null.
        may_be_null: Whether null is taken for something.
        limit: Whole numbers are below it, and not below its opposite.
        make: What makes the value of a whole number; None: it is the value.
    """

    name: str
    kind: type
    null: Any
    may_be_null: bool
    limit: int
    make: Callable[[int], Moment] | None


@dataclass(frozen=True, slots=True)
class _Envelope:
    """What texts of one schema begin with, and the fields of their payloads."""

    head: bytes
    brackets: int
    schema: Schema
    parts: tuple[_Part, ...]


class EnvelopeReader:
    """A reader of texts that begin as one before did.

    Args:
        replace_null: Null becomes the default, where there is one.
    """

    def __init__(self, *, replace_null: bool) -> None:
        self._replace_null = replace_null
        self._envelopes: list[_Envelope] = []
        self._others: list[Schema] = []  # whose payloads are not of plain fields

    def read(self, data: bytes) -> SchemaAndValue | None:
        """Return the value of a text; None: the text has to be read whole."""
        for envelope in self._envelopes:
            if data.startswith(envelope.head):
                try:
                    return SchemaAndValue(envelope.schema, _payload(envelope, data))
                except (ValueError, OverflowError, StopIteration, RecursionError, DataError):
                    return None
        return None

    def remember(self, data: bytes, schema: Schema | None) -> None:
        """Remember how a text begins that was read and has this schema, if its payloads are of plain fields."""
        if schema is None or data[1:2] == b"\0" or any(each is schema for each in self._others):
            return
        if any(data.startswith(each.head) for each in self._envelopes):
            return  # something is unusual in the payload
        parts = self._parts(schema) if schema.type is Type.STRUCT else None
        if parts is None:
            self._others = [schema, *self._others[: MOST_ENVELOPES - 1]]
            return
        try:
            text = data.decode()
            before = _SCHEMA.match(text)
            between = _PAYLOAD.match(text, _SCAN_ANY(text, before.end())[1]) if before is not None else None
        except (ValueError, StopIteration, RecursionError):
            return
        head = b"" if between is None else text[: between.end()].encode()
        if not head:
            return
        brackets = head.count(b"[") + head.count(b"{")
        self._envelopes = [_Envelope(head, brackets, schema, parts), *self._envelopes[: MOST_ENVELOPES - 1]]

    def _parts(self, schema: Schema) -> tuple[_Part, ...] | None:
        """Return the fields of a struct; None if one is not plain."""
        parts = [self._part(each.name, each.schema) for each in schema.fields]
        plain = [each for each in parts if each is not None]
        return tuple(plain) if len(plain) == len(parts) and schema.name not in (*_LOGICAL, DECIMAL_NAME) else None

    def _part(self, name: str, schema: Schema) -> _Part | None:
        has_default = schema.default is not None and self._replace_null
        null, may_be_null = (schema.default, True) if has_default else (None, schema.optional)
        if schema.name in _LOGICAL:
            bits = 64 if schema.name == TIMESTAMP_NAME else 32
            return _Part(name, int, null, may_be_null, 1 << (bits - 1), _LOGICAL[schema.name])
        if schema.name == DECIMAL_NAME:
            return None
        if schema.type in BITS:
            return _Part(name, int, null, may_be_null, 1 << (BITS[schema.type] - 1), None)
        kind = _KINDS.get(schema.type)
        return None if kind is None else _Part(name, kind, null, may_be_null, 0, None)


def _payload(envelope: _Envelope, data: bytes) -> Struct:
    """Return the payload of a text that begins as its envelope does.

    Raises:
        ValueError: Something is unusual; so do the other errors of reading and of values say.
    """
    tail = data[len(envelope.head) :]
    if envelope.brackets + tail.count(b"[") + tail.count(b"{") > MOST_BRACKETS:
        raise _UnusualError
    if b"\\u" in tail and _HALF_ESCAPE.search(tail):  # perhaps in a name
        raise _UnusualError
    text = tail.decode().lstrip(BLANKS)
    node, end = _scan(text, 0)
    if type(node) is not dict or text[end:].lstrip(BLANKS)[:1] != "}":
        raise _UnusualError
    values: list[Any] = []
    for part in envelope.parts:
        value: Any = node.get(part.name)
        kind = type(value)
        if kind is not part.kind:
            if kind is int and part.kind is float:
                value = float(value)
            elif value is None and part.may_be_null:
                value = part.null
            else:
                raise _UnusualError
        elif kind is int:
            if not -part.limit <= value < part.limit:
                raise _UnusualError
            if part.make is not None:
                value = part.make(value)
        values.append(value)
    return Struct.of_checked(envelope.schema, values)


def _double(text: str) -> float:
    """Return a number with a fraction or an exponent, but not one whose digits or exponent may be too many."""
    value = float(text)
    if len(text) > LONGEST_FLOAT or (not value and text != "0.0") or not math.isfinite(value):
        raise _UnusualError
    return value


def _constant(text: str) -> Any:
    raise _UnusualError(text)


_scan = make_scanner(json.JSONDecoder(parse_float=_double, parse_int=read_integer, parse_constant=_constant))  # type: ignore[arg-type]
