"""JSON as Jackson reads and writes it: byte for byte when writing, with its limits and leniencies when reading."""

from __future__ import annotations

import json
import re
from decimal import Decimal, DecimalException
from json.encoder import encode_basestring
from typing import Any

from penstock.base.java_text.numbers import double_text, float_text
from penstock.base.json_depth import depth_of
from penstock.serde.data import BytesError

__all__ = ["MISSING", "float_json", "node_type", "quoted", "read_json"]

MAX_DEPTH = 500  # Jackson's limit of 1,000 is beyond what a reader that calls itself can take
MAX_DIGITS = 1000
SPECIAL = re.compile(r'["\\\x00-\x1f\U00010000-\U0010ffff\ud800-\udfff]')
SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
BLANKS = " \t\n\r"


class _Missing:
    """The value of a text without any value."""


MISSING: Any = _Missing()


def quoted(text: str) -> str:
    r"""Return a text as a JSON string: characters beyond the basic plane as two escapes.

    >>> print(quoted('a"\n\U0001f600é'))
    "a\"\n\uD83D\uDE00é"

    Raises:
        BytesError: It has half a surrogate pair.
    """
    if text.isascii() and text.isprintable():
        return encode_basestring(text)
    return f'"{SPECIAL.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in SHORT:
        return SHORT[character]
    code = ord(character)
    if code > 0xFFFF:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"
    if code >= 0xD800:
        raise BytesError(f"Incomplete surrogate pair: first char 0x{code:x}")
    return f"\\u{code:04X}"


def float_json(value: float, *, single: bool = False) -> str:
    """Return a float as JSON: what is not finite as a string.

    >>> float_json(1e20), float_json(float("nan"))
    ('1.0E20', '"NaN"')
    """
    text = float_text(value) if single else double_text(value)
    return text if text[-1].isdigit() else f'"{text}"'


def node_type(value: Any) -> str:
    """Jackson's name of a value's type."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int | Decimal):
        return "NUMBER"
    kinds = {"str": "STRING", "list": "ARRAY", "dict": "OBJECT"}
    return kinds.get(type(value).__name__, "MISSING")


def read_json(data: bytes) -> Any:
    """Return the first JSON value of the bytes, numbers with a fraction as decimals; what follows it is not looked at.

    >>> read_json(b' {"a": [1, 2.50]} rest'), read_json(b" ") is MISSING
    ({'a': [1, Decimal('2.50')]}, True)

    Raises:
        BytesError: It is not JSON, or nests too deeply.
    """
    try:
        text = data.decode(json.detect_encoding(data))
        text = text.removeprefix("\ufeff").lstrip(BLANKS)
        if not text:
            return MISSING
        if depth_of(data) > MAX_DEPTH:
            raise BytesError(f"the JSON text nests more than {MAX_DEPTH} levels deep")
        value, end = _DECODER.raw_decode(text)
    except (ValueError, DecimalException, RecursionError) as error:
        raise BytesError(f"the text is not JSON: {error}") from error
    following = text[end : end + 1]
    if following in BLANKS or isinstance(value, str | list | dict):
        return value
    if (isinstance(value, int | Decimal) and not isinstance(value, bool)) or following.isalnum() or following in "_$":
        raise BytesError(f"the text is not JSON: unexpected character {text[end]!r} after the first value")
    return value  # a word that ends at a sign


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return int(text)


def _decimal(text: str) -> Decimal:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return Decimal(text)


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_decimal, parse_int=_integer, parse_constant=_constant)
