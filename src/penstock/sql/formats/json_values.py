"""Parsed JSON to values of SQL types, and values as Jackson writes them. What does not fit spoils the record."""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    SqlType,
    SqlTypeError,
    SqlValueError,
    StructType,
)
from penstock.sql.types.conversions import nested_conversion
from penstock.sql.types.numbers import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    decimal_text,
    double_text,
    parse_decimal,
    parse_double,
    parse_whole,
    rescale,
)
from penstock.sql.types.texts import date_of, days_of, millis_of_day, time_of

__all__ = ["exact", "json_reader", "json_writer", "object_writer", "parse_json", "pick"]

Read = Callable[[Any], Any]


def parse_json(text: str) -> Any:
    """Return JSON with numbers that are not integers as exact decimals; NaN and Infinity are none."""
    return _DECODER.decode(text)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_constant)


def json_reader(kind: SqlType) -> Read:
    """Return the function that reads values of a type from parsed JSON.

    >>> from penstock.sql.types import ArrayType
    >>> json_reader(ArrayType(STRING))([1, Decimal("2.50"), None, True, {"a": [1]}])
    ['1', '2.50', None, 'true', '{"a":[1]}']

    It raises `SqlValueError` for what is not a value of the type.
    """
    read = _reader(kind)
    return lambda value: None if value is None else read(value)


def pick(values: dict[str, Any], names: tuple[str, ...]) -> list[Any]:
    """Return the values of fields: those of exactly the name, else those of the name in another case.

    >>> pick({"a": 1, "B": 2, "b": 3}, ("A", "B", "C"))
    [1, 2, None]
    """
    if all(name in values for name in names):
        return [values[name] for name in names]
    upper = {key.upper(): value for key, value in values.items()}
    return [values[name] if name in values else upper.get(name) for name in names]


def exact(number: Decimal, kind: DecimalType) -> Decimal:
    """Return a number as a decimal of a type; digits that the type does not have are an error."""
    if number.adjusted() > kind.precision + kind.scale:
        raise SqlValueError(f"{number} does not fit {kind}")
    rounded = rescale(number, kind.scale)
    if rounded != number or (rounded and rounded.adjusted() >= kind.precision - kind.scale):
        raise SqlValueError(f"{number} does not fit {kind}")
    return rounded


def _reader(kind: SqlType) -> Read:
    nested = nested_conversion(
        kind,
        json_reader,
        elements=lambda value: _of(value, list, kind),
        entries=lambda value: _of(value, dict, kind).items(),
        members=lambda value, names: pick(_of(value, dict, kind), names),
        convert_keys=False,
    )
    if nested is not None:
        return nested
    if isinstance(kind, DecimalType):
        return lambda value: exact(_number(value, kind), kind)
    if kind not in READERS:
        raise SqlTypeError(f"{kind} has no JSON form")
    return READERS[kind]


def _of(value: Any, expected: type, kind: SqlType) -> Any:
    if type(value) is not expected:
        raise _wrong(value, kind)
    return value


def _wrong(value: Any, kind: SqlType) -> SqlValueError:
    return SqlValueError(f"Can't convert type. sourceType: {type(value).__name__}, requiredType: {kind}")


def _number(value: Any, kind: SqlType) -> Decimal:
    if isinstance(value, str):
        return parse_decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _wrong(value, kind)
    return Decimal(value)


def _whole(value: Any, low: int, high: int, kind: SqlType) -> int:
    if isinstance(value, str):
        return parse_whole(value, low, high)
    number = int(_number(value, kind))
    if not low <= number <= high:
        raise SqlValueError(f"{number} is out of range of {kind}")
    return number


def _double(value: Any) -> float:
    if type(value) is Decimal or type(value) is int:
        return float(value)
    if isinstance(value, str):
        return parse_double(value)
    raise _wrong(value, DOUBLE)


def _boolean(value: Any) -> bool:
    flag: bool = _of(value, bool, BOOLEAN)
    return flag


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{encode_basestring(name)}:{_nested(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(_nested, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return decimal_text(value) if isinstance(value, Decimal) else str(value)


def _nested(value: Any) -> str:
    if value is None:
        return "null"
    return encode_basestring(value) if isinstance(value, str) else _text(value)


def _bytes(value: Any) -> bytes:
    try:
        return b64decode(_of(value, str, BYTES), validate=True)
    except ValueError as error:
        raise SqlValueError(f"{value!r:.40} is not base64") from error


READERS: dict[SqlType, Read] = {
    BOOLEAN: _boolean,
    INTEGER: lambda value: _whole(value, INT_MIN, INT_MAX, INTEGER),
    BIGINT: lambda value: _whole(value, LONG_MIN, LONG_MAX, BIGINT),
    DOUBLE: _double,
    STRING: _text,
    BYTES: _bytes,
    DATE: lambda value: date_of(_whole(value, INT_MIN, INT_MAX, DATE)),
    TIME: lambda value: time_of(_whole(value, INT_MIN, INT_MAX, TIME)),
    TIMESTAMP: lambda value: _whole(value, LONG_MIN, LONG_MAX, TIMESTAMP),
}


Write = Callable[[Any], str]


def json_writer(kind: SqlType) -> Write:
    """Return the function that writes values of a type as JSON.

    >>> from decimal import Decimal
    >>> json_writer(ArrayType(DecimalType(4, 2)))([Decimal("1.50"), None])
    '[1.50,null]'
    >>> json_writer(DOUBLE)(math.nan)
    '"NaN"'
    """
    write = _writer(kind)
    return lambda value: "null" if value is None else write(value)


def object_writer(fields: list[tuple[str, SqlType]]) -> Callable[[Any], str]:
    """Return the function that writes values in the order of fields as a JSON object."""
    parts = [(f"{encode_basestring(name)}:", json_writer(kind)) for name, kind in fields]

    def write(values: Any) -> str:
        return "{" + ",".join([name + text(value) for (name, text), value in zip(parts, values, strict=True)]) + "}"

    return write


def _writer(kind: SqlType) -> Write:
    match kind:
        case DecimalType():
            return decimal_text
        case ArrayType(element):
            item = json_writer(element)
            return lambda values: "[" + ",".join([item(value) for value in values]) + "]"
        case MapType(_, inner):
            value = json_writer(inner)
            return lambda entries: (
                "{" + ",".join([f"{encode_basestring(str(k))}:{value(v)}" for k, v in entries.items()]) + "}"
            )
        case StructType(fields):
            names = [field.name for field in fields]
            inside = object_writer([(field.name, field.type) for field in fields])
            return lambda row: inside([row.get(name) for name in names])
    if kind not in WRITERS:
        raise SqlTypeError(f"{kind} has no JSON form")
    return WRITERS[kind]


def _double_text(value: float) -> str:
    if 1e-3 <= abs(value) < 1e7:
        return repr(value)  # the same as Java's there
    text = double_text(value)
    return text if math.isfinite(value) else f'"{text}"'


def _bytes_text(value: bytes) -> str:
    return f'"{b64encode(value).decode()}"'


def _days(value: date) -> str:
    return str(days_of(value))


def _millis(value: time) -> str:
    return str(millis_of_day(value))


WRITERS: dict[SqlType, Write] = {
    BOOLEAN: lambda value: "true" if value else "false",
    INTEGER: str,
    BIGINT: str,
    DOUBLE: _double_text,
    STRING: encode_basestring,
    BYTES: _bytes_text,
    DATE: _days,
    TIME: _millis,
    TIMESTAMP: str,
}
