"""Values to JSON and back, with a schema or without, as Kafka's JsonConverter has them, and JSON text as Jackson's."""

from __future__ import annotations

import base64
import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

from penstock.base.java_text.numbers import double_text, float_text, parse_big_decimal, to_float32
from penstock.base.java_text.texts import JavaTextError
from penstock.base.json_depth import depth_of
from penstock.serde.data import (
    BytesError,
    DataError,
    Field,
    Moment,
    Schema,
    Struct,
    Type,
    fits,
    java_class,
    type_of,
    wrapped,
)
from penstock.serde.data.logical import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    date_from_days,
    days_of,
    decimal_from_bytes,
    decimal_to_bytes,
    millis_of_day,
    time_from_millis,
)
from penstock.serde.data.values import BITS, validate_value

__all__ = ["MISSING", "JsonOptions", "from_json", "quoted", "read_integer", "read_json", "to_json"]

# Texts

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
    """Return Jackson's name of a value's type."""
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


# Values

# As Jackson reads it: groups with their padding, also in the middle; blanks between groups, and not in them.
_QUAD = re.compile(r"[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==")
_BASE64 = re.compile(rf"(?:[\x00-\x20]*(?:{_QUAD.pattern}))*[\x00-\x20]*")

_PLAIN_TYPES = frozenset(  # whose values fit as they are read
    {Type.BOOLEAN, Type.STRING, Type.FLOAT32, Type.FLOAT64, Type.INT8, Type.INT16, Type.INT32, Type.INT64}
)
LOGICAL = frozenset({DECIMAL_NAME, DATE_NAME, TIME_NAME, TIMESTAMP_NAME})
EXPECTED = {DECIMAL_NAME: "BigDecimal", DATE_NAME: "Date", TIME_NAME: "Date", TIMESTAMP_NAME: "Date"}


@dataclass(frozen=True, slots=True)
class JsonOptions:
    """The form in which values are written and read.

    Attributes:
        numeric_decimals: Decimals are numbers; else base64 of their unscaled bytes.
        replace_null: Null becomes the default, where there is one.
        entry_objects: Entries of maps whose keys are not plain strings are objects of key and value; else pairs.
            Fields that an object lacks stay unset.
        union: The name of structs that stand for the one field which they have; None: there are none.
    """

    numeric_decimals: bool = False
    replace_null: bool = True
    entry_objects: bool = False
    union: str | None = None


def to_json(schema: Schema | None, value: Any, options: JsonOptions) -> str:
    """Return the JSON text of a value.

    Raises:
        DataError: It does not fit its schema, or has no form in JSON.

    Example:
        >>> to_json(None, {"a": [1, 2.0, b"hi", None]}, JsonOptions())
        '{"a":[1,2.0,"aGk=",null]}'
    """
    if value is None:
        if schema is None:
            return "null"
        if schema.default is not None and options.replace_null:
            return to_json(schema, schema.default, options)
        if schema.optional:
            return "null"
        raise DataError("Conversion error: null value for field that is required and has no default value")
    if schema is not None and schema.name in LOGICAL:
        return _logical_json(schema, value, options)
    kind = type_of(value, schema)
    if schema is None and kind is None:
        raise DataError(f"Java class class {java_class(value)} does not have corresponding schema type.")
    if schema is not None and not fits(schema, value):
        word = "bytes type" if schema.type is Type.BYTES else schema.type
        raise DataError(f"Invalid type for {word}: class {java_class(value)}")
    match kind:
        case Type.STRING:
            return quoted(value)
        case Type.BOOLEAN:
            return "true" if value else "false"
        case Type.FLOAT32 | Type.FLOAT64:
            return float_json(value, single=kind is Type.FLOAT32)
        case Type.BYTES:
            return f'"{base64.b64encode(value).decode()}"'
        case Type.ARRAY:
            items = schema.values if schema is not None else None
            return f"[{','.join(to_json(items, part, options) for part in value)}]"
        case Type.MAP:
            return _map_json(schema, value, options)
        case Type.STRUCT:
            if schema is None:
                raise DataError("Mismatching schema.")
            return _struct_json(schema, value, options)
    return int.__repr__(value)


def _map_json(schema: Schema | None, value: dict[Any, Any], options: JsonOptions) -> str:
    keys, values = (schema.keys, schema.values) if schema is not None else (None, None)
    if _is_object(keys, value, options):
        return f"{{{','.join(f'{to_json(keys, k, options)}:{to_json(values, v, options)}' for k, v in value.items())}}}"
    entry = '{{"key":{},"value":{}}}' if options.entry_objects else "[{},{}]"
    parts = (entry.format(to_json(keys, k, options), to_json(values, v, options)) for k, v in value.items())
    return f"[{','.join(parts)}]"


def _is_object(keys: Schema | None, value: Any, options: JsonOptions) -> bool:
    if keys is None:
        return all(isinstance(key, str) for key in value)
    return keys.type is Type.STRING and not (options.entry_objects and keys.optional)


def _struct_json(schema: Schema, value: Struct, options: JsonOptions) -> str:
    if value.schema != schema:
        raise DataError("Mismatching schema.")
    if options.union is not None and schema.name == options.union:
        chosen = [part for part in schema.fields if value.get(part) is not None]
        return to_json(chosen[0].schema, value.get(chosen[0]), options) if chosen else "null"
    parts = [
        head + (quoted(one) if is_text and type(one) is str else to_json(part.schema, one, options))
        for (head, part, is_text), one in zip(_heads(schema), value.all_raw(), strict=True)
    ]
    return f"{{{','.join(parts)}}}"


@lru_cache(maxsize=256)
def _heads(schema: Schema) -> tuple[tuple[str, Field, bool], ...]:
    """Return the quoted name of each field of a struct, the field, and whether it is a plain text."""
    return tuple(
        (f"{quoted(part.name)}:", part, part.schema.type is Type.STRING and part.schema.name is None)
        for part in schema.fields
    )


def _logical_json(schema: Schema, value: Any, options: JsonOptions) -> str:
    name = schema.name or ""
    if not isinstance(value, Decimal if name == DECIMAL_NAME else Moment):
        word = name.rpartition(".")[2]
        raise DataError(f"Invalid type for {word}, expected {EXPECTED[name]} but was class {java_class(value, schema)}")
    if isinstance(value, Decimal):
        if options.numeric_decimals:
            return str(value)
        return f'"{base64.b64encode(decimal_to_bytes(schema, value)).decode()}"'
    if name == DATE_NAME:
        return str(days_of(value))
    return str(millis_of_day(value) if name == TIME_NAME else value.ms)


def from_json(schema: Schema | None, value: Any, options: JsonOptions) -> Any:
    """Return the value of parsed JSON.

    Raises:
        DataError: It does not fit the schema.

    Example:
        >>> from_json(Schema(Type.INT8), 300, JsonOptions()), from_json(None, [1, Decimal("2.5")], JsonOptions())
        (44, [1, 2.5])
    """
    if schema is None:
        return _plain(value)
    if value is None or value is MISSING:
        if schema.default is not None and options.replace_null:
            return schema.default
        if schema.optional:
            return None
        raise DataError(f"Invalid null value for required {schema.type} field")
    if schema.name in LOGICAL:
        return _logical(schema, value)
    number = value if isinstance(value, int | Decimal) and not isinstance(value, bool) else 0
    match schema.type:
        case Type.STRING:
            return value if isinstance(value, str) else None
        case Type.BOOLEAN:
            return value is True
        case Type.FLOAT32:
            return to_float32(_float(number))
        case Type.FLOAT64:
            return _float(number)
        case Type.BYTES:
            return _bytes(value, "Invalid bytes field")
        case Type.ARRAY:
            parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            return [from_json(schema.values, part, options) for part in parts]
        case Type.MAP:
            return _map(schema, value, options)
        case Type.STRUCT:
            return _struct(schema, value, options)
    return wrapped(number, BITS[schema.type])


def _plain(value: Any) -> Any:
    if value is MISSING:
        return None
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, Decimal):
        return _float(value)
    return wrapped(value, 64) if type(value) is int else value


def _float(value: int | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _bytes(value: Any, message: str) -> bytes | None:
    if not isinstance(value, str):
        return None
    if _BASE64.fullmatch(value) is None:
        raise DataError(message) from BytesError("the text is not whole groups of four characters of base64")
    return b"".join(map(base64.b64decode, _QUAD.findall(value)))


def _map(schema: Schema, value: Any, options: JsonOptions) -> dict[Any, Any]:
    keys = schema.keys
    if keys is None or _is_object(keys, (), options):
        if not isinstance(value, dict):
            actual_type = node_type(value)
            raise DataError(f"Maps with string fields should be encoded as JSON objects, but found {actual_type}")
        return {key: from_json(schema.values, part, options) for key, part in value.items()}
    if not isinstance(value, list):
        actual_type = node_type(value)
        raise DataError(
            f"Maps with non-string fields should be encoded as JSON array of tuples, but found {actual_type}"
        )
    result: dict[Any, Any] = {}
    for each in value:
        entry = [each.get("key"), each.get("value")] if options.entry_objects and isinstance(each, dict) else each
        if not isinstance(entry, list):
            raise DataError(f"Found invalid map entry instead of array tuple: {node_type(entry)}")
        if len(entry) != 2:
            raise DataError(f"Found invalid map entry, expected length 2 but found :{len(entry)}")
        key = from_json(keys, entry[0], options)
        if isinstance(key, list | dict):
            raise DataError(f"a map's key cannot be of type {keys.type}")
        result[key] = from_json(schema.values, entry[1], options)
    return result


def _struct(schema: Schema, value: Any, options: JsonOptions) -> Struct:
    if options.union is not None and schema.name == options.union:
        return _chosen(schema, value, options)
    if not isinstance(value, dict):
        raise DataError(f"Structs should be encoded as JSON objects, but found {node_type(value)}")
    values: list[Any] = []
    for part in schema.fields:
        if options.entry_objects and part.name not in value and part.schema.default is None:
            values.append(None)
            continue
        each = from_json(part.schema, value.get(part.name), options)
        if each is None or part.schema.type not in _PLAIN_TYPES or part.schema.name is not None:
            validate_value(part.schema, each, part.name)
        values.append(each)
    return Struct.of_checked(schema, values)


def _chosen(schema: Schema, value: Any, options: JsonOptions) -> Struct:
    """Return the struct of a union.

    The first field whose type fits, else the one that shares most names with an object.
    """
    best, most = None, -1
    for part in schema.fields:
        if _is_of(part.schema, value):
            return Struct(schema, {part.name: from_json(part.schema, value, options)})
        if part.schema.type is Type.STRUCT and isinstance(value, dict):
            shared = sum(inner.name in value for inner in part.schema.fields)
            best, most = (part, shared) if shared > most else (best, most)
    if best is None:
        raise DataError("Did not find matching oneof field for data")
    return Struct(schema, {best.name: from_json(best.schema, value, options)})


def _is_of(schema: Schema, value: Any) -> bool:
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    match schema.type:
        case Type.BOOLEAN:
            return isinstance(value, bool)
        case Type.STRING:
            return isinstance(value, str)
        case Type.FLOAT32 | Type.FLOAT64:
            return is_number
        case Type.BYTES:
            return isinstance(value, str) or (is_number and schema.name == DECIMAL_NAME)
        case Type.ARRAY:
            return isinstance(value, list)
        case Type.MAP:
            return isinstance(value, dict | list)
        case Type.STRUCT:
            return False
    return is_number and isinstance(value, int)


def _logical(schema: Schema, value: Any) -> Decimal | Moment:
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    is_whole = is_number and isinstance(value, int)
    if schema.name == DECIMAL_NAME:
        if is_number:
            return Decimal(value)
        if not isinstance(value, str):
            actual_type = node_type(value)
            raise DataError(
                f"Invalid type for Decimal, underlying representation should be numeric or bytes but was {actual_type}"
            )
        try:
            return decimal_from_bytes(schema, _bytes(value, "") or b"")
        except DataError as error:
            raise DataError("Invalid bytes for Decimal field") from error
    if schema.name == TIMESTAMP_NAME:
        if not is_whole:
            actual_type = node_type(value)
            raise DataError(
                f"Invalid type for Timestamp, underlying representation should be integral but was {actual_type}"
            )
        return Moment(wrapped(value, 64))
    word = (schema.name or "").rpartition(".")[2]
    if not is_whole or wrapped(value, 32) != value:
        actual_type = node_type(value)
        raise DataError(f"Invalid type for {word}, underlying representation should be integer but was {actual_type}")
    return date_from_days(value) if schema.name == DATE_NAME else time_from_millis(value)
