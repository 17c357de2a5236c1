"""Defaults of columns, as Debezium takes them out of the text of an expression."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from penstock.connect.connectors.postgres.columns import MOST_SCALE, ColumnForm, Handling
from penstock.connect.connectors.postgres.types import PgType
from penstock.connect.data import Type
from penstock.serde.data.logical import scaled_decimal, unscaled

__all__ = ["default_value"]

_INFINITE = ("infinity", "-infinity")
_FUNCTION = re.compile(r"[(]?[A-Za-z0-9_.]+\((?:.+(?:, ?.+)*)?\)")
_CLOCK = ("current_timestamp", "current_time", "current_date", "localtime", "localtimestamp")
_LITERAL = re.compile(r"'(.*?)'")
# The types whose defaults Debezium reads, with what stands for the result of a function.
_PLACEHOLDERS: Mapping[str, str] = {
    "int2": "0",
    "int4": "0",
    "int8": "0",
    "float4": "0.0",
    "float8": "0.0",
    "numeric": "0.0",
    "bit": "0",
    "varbit": "0",
    "bool": "false",
    "text": "",
    "varchar": "",
    "bpchar": "",
    "date": "1970-01-01",
    "time": "00:00:00",
    "timestamp": "1970-01-01 00:00:00",
    "timestamptz": "1970-01-01 00:00:00+00",
    "interval": "P0D",
    "uuid": "00000000-0000-0000-0000-000000000000",
    "json": "{}",
    "jsonb": "{}",
    "xml": "",
}


def default_value(expression: str, kind: PgType, form: ColumnForm, handling: Handling) -> Any:
    """Return the default of a column whose default is this expression; None: its schema has none.

    It is what stands between the first two quotes, or the text as a whole; for a function a zero of the type.
    """
    if (
        kind.element is not None
        or form.schema.type is Type.STRUCT
        or expression.startswith("NULL::")
        or expression == "NULL"
    ):
        return None
    is_enum = kind.kind == "e"
    if not is_enum and (kind.name not in _PLACEHOLDERS or kind.domain is not None):
        return None
    if _FUNCTION.match(expression) or expression.lower() in _CLOCK:
        if is_enum:
            return None
        text = _PLACEHOLDERS[kind.name]
    else:
        literal = _LITERAL.search(expression)
        if literal is None and "'" in expression:
            return None  # a text of several lines
        text = literal[1] if literal is not None else expression
    if is_enum:
        return text
    if text in _INFINITE:
        return _infinite(text, kind, handling, form)
    return _parsed(text, kind, form)


def _infinite(text: str, kind: PgType, handling: Handling, form: ColumnForm) -> Any:
    """Return the default of a time without end: the ends of Java's times, as far as they go."""
    is_end = text == "infinity"
    if kind.name == "date" and form.schema.type is Type.INT32 and handling.times != "connect":
        return 169_560_311 if is_end else -170_999_002
    if kind.name == "timestamp" and (form.schema.name or "").endswith("MicroTimestamp"):
        return -9_223_372_036_853_775_810 if is_end else -(1 << 63)
    return None


def _parsed(text: str, kind: PgType, form: ColumnForm) -> Any:
    if kind.name == "numeric" and not re.fullmatch(r"\s*[+-]?[\d.]+(?:[eE][+-]?\d+)?\s*", text):
        return None
    prepare = _FORMS.get(kind.name)
    try:
        if kind.name == "numeric" and kind.modifier >= 0:
            text = _padded(text.strip(), (kind.modifier - 4) & 0x7FF)
        value = form.read(text if prepare is None else prepare(text))
    except (ValueError, InvalidOperation, OverflowError, TypeError):
        return None
    return value


def _padded(text: str, scale: int) -> str:
    """Return a number with at least so many digits behind its point."""
    number, digits = unscaled(Decimal(text))
    return (
        text if digits >= scale or scale > MOST_SCALE else f"{scaled_decimal(number * 10 ** (scale - digits), scale):f}"
    )


def _boolean(text: str) -> str:
    if text.lower() in ("t", "true", "y", "yes", "on", "1"):
        return "t"
    return "f"


_FORMS: Mapping[str, Callable[[str], str]] = {"bool": _boolean}
