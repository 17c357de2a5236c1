"""JSON as Jackson reads and writes it: byte for byte when writing, with its limits and leniencies when reading."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from decimal import Decimal, DecimalException
from json.encoder import encode_basestring
from typing import Any

from penstock.base.java_text.numbers import double_text, float_text, parse_big_decimal
from penstock.base.java_text.text_error import JavaTextError
from penstock.base.json_depth import depth_of
from penstock.serde.data import BytesError

__all__ = ["MISSING", "float_json", "node_type", "quoted", "read_integer", "read_json"]

MAX_DEPTH = 500  # Jackson's limit of 1,000 is beyond what a reader that calls itself can take
MAX_DIGITS = 1000
SPECIAL = re.compile(r'["\\\x00-\x1f\U00010000-\U0010ffff\ud800-\udfff]')
SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
# A text without an end goes to the end: what stands behind each of its quotes is not looked at again.
_LEADING_ZEROS = re.compile(r'("(?:[^"\\]++|\\.)*+(?:"|\\?\Z))|(?<![\w.+-])(-?)0+(?=[0-9])', re.DOTALL | re.ASCII)
_HALF_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_HALF = re.compile("[\ud800-\udfff]")
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


def read_json(data: bytes, *, leading_zeros: bool = False) -> Any:
    """Return the first JSON value of the bytes, numbers with a fraction as decimals; what follows it is not looked at.

    Args:
        data: The bytes.
        leading_zeros: Numbers may begin with zeros, as Kafka's JsonConverter reads them.

    >>> read_json(b' {"a": [1, 2.50]} rest'), read_json(b" ") is MISSING, read_json(b"[007]", leading_zeros=True)
    ({'a': [1, Decimal('2.50')]}, True, [7])

    Raises:
        BytesError: It is not JSON, or nests too deeply.
    """
    try:
        text = _decoded(data).removeprefix("\ufeff").lstrip(BLANKS)
        if not text:
            return MISSING
        if depth_of(data) > MAX_DEPTH:
            raise BytesError(f"the JSON text nests more than {MAX_DEPTH} levels deep")
    except ValueError as error:
        raise BytesError(f"the text is not JSON: {error}") from error
    try:
        return _first_value(text)
    except BytesError:
        shorter = _LEADING_ZEROS.sub(r"\1\2", text) if leading_zeros and "0" in text else text
        if shorter == text:
            raise
        return _first_value(shorter)


def _first_value(text: str) -> Any:
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, DecimalException, RecursionError) as error:
        raise BytesError(f"the text is not JSON: {error}") from error
    if _HALF_ESCAPE.search(text, 0, end) and any(map(_HALF.search, _names(value))):
        raise BytesError("the text is not JSON: a name has half a surrogate pair")
    following = text[end : end + 1]
    if following in BLANKS or isinstance(value, str | list | dict):
        return value
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if is_number or following.isalnum() or following in "_$" or following > "\x7f":
        raise BytesError(f"the text is not JSON: unexpected character {text[end]!r} after the first value")
    return value  # a word that ends at a sign


def _names(value: Any) -> Iterator[str]:
    left = [value]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            yield from node
            left += node.values()
        elif isinstance(node, list):
            left += node


def _decoded(data: bytes) -> str:
    """Return the text of the bytes; what is no text, which may stand after the first value, as a letter."""
    if data == codecs.BOM_UTF8:
        raise BytesError("the text is not JSON: it is a byte order mark alone")  # as Jackson, which needs one byte more
    data = data.removeprefix(codecs.BOM_UTF8)
    encoding = json.detect_encoding(data)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if not encoding.startswith("utf-8"):
            raise
        return data[: error.start].decode() + "\u00e9"


def read_integer(text: str) -> int:
    """Return a whole number of JSON text.

    Raises:
        ValueError: It has too many digits.
    """
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return int(text)


def _decimal(text: str) -> Decimal:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    if "e" not in text and "E" not in text:
        return Decimal(text) or Decimal(text).copy_abs()  # Java's decimals have no negative zero
    try:
        return parse_big_decimal(text)
    except JavaTextError as error:
        raise ValueError(str(error)) from error


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_decimal, parse_int=read_integer, parse_constant=_constant)
