"""Values as Java's ``toString`` writes them, as StringConverter and messages show them."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from penstock.base.java_text.numbers import double_text, float_text
from penstock.serde.data.numbers import Float32
from penstock.serde.data.schema import Schema, Type
from penstock.serde.data.structs import Struct

__all__ = ["java_text", "number_text"]


def java_text(value: Any, schema: Schema | None = None) -> str:
    """Return the text of a value as Java's ``toString`` has it.

    Args:
        value: The value.
        schema: Its schema, which tells a float of 32 bits from one of 64.

    Example:
        >>> java_text({"a": [1, None, 2.0, True]})
        '{a=[1, null, 2.0, true]}'
    """
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return number_text(value, schema)
    if isinstance(value, bytes):
        return f"[B@{hash(value) & 0xFFFFFFFF:x}"  # Java shows the object's hash, not what it holds
    if isinstance(value, list | tuple):
        items = schema.values if schema is not None else None
        return f"[{', '.join(java_text(part, items) for part in value)}]"
    if isinstance(value, Mapping):
        keys, values = (schema.keys, schema.values) if schema is not None else (None, None)
        return f"{{{', '.join(f'{java_text(k, keys)}={java_text(v, values)}' for k, v in value.items())}}}"
    if isinstance(value, Struct):
        set_ = ((part, value.get(part, with_default=False)) for part in value.schema.fields)
        shown = (f"{part.name}={java_text(one, part.schema)}" for part, one in set_ if one is not None)
        return f"Struct{{{','.join(shown)}}}"
    return str(value)


def number_text(value: float | Decimal, schema: Schema | None = None) -> str:
    """Return the text of a number.

    >>> number_text(1e20), number_text(Float32(0.1)), number_text(Decimal("1E+3")), number_text(7)
    ('1.0E20', '0.1', '1E+3', '7')
    """
    if isinstance(value, float):
        plain = type(value) is float and schema is not None and schema.type is Type.FLOAT32
        single = plain or isinstance(value, Float32)
        return float_text(value) if single else double_text(value)
    return int.__repr__(value) if isinstance(value, int) else str(value)
