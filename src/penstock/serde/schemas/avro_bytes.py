"""Values of an Avro schema that is bytes alone: Kafka's serializers write them as they are, without a length."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

__all__ = ["is_plain", "plain_bytes", "plain_value"]


def is_plain(schema: Any) -> bool:
    """Return whether a schema is that of bytes, with or without a logical type."""
    return schema == "bytes" or (isinstance(schema, dict) and schema.get("type") == "bytes")


def plain_bytes(value: Any, schema: Any) -> bytes:
    """Return the bytes of a value: itself, or the unscaled number of a decimal.

    Raises:
        TypeError: It is neither bytes nor a decimal, where the schema has decimals.
        ValueError: The decimal has more digits behind the point, or in all, than the schema.

    >>> plain_bytes(Decimal("12.30"), {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}).hex()
    '04ce'
    """
    if isinstance(value, bytes):
        return value
    if not isinstance(value, Decimal) or not _is_decimal(schema):
        raise TypeError(f"{type(value).__name__} instead of bytes")
    sign, digits, exponent = value.as_tuple()
    scale, precision = schema.get("scale", 0), schema["precision"]
    zeros = scale + exponent if isinstance(exponent, int) else -1
    wrong = f"{value} is not a decimal of {precision} digits, {scale} of them after the point"
    if not 0 <= zeros <= precision + scale:
        raise ValueError(wrong)
    number = int("".join(map(str, digits))) * 10**zeros * (-1 if sign else 1)
    if abs(number) >= 10**precision:
        raise ValueError(wrong)
    encoded: bytes = number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
    return encoded


def plain_value(data: bytes, schema: Any) -> Any:
    """Return the value of bytes: themselves, or a decimal.

    >>> plain_value(bytes.fromhex("04ce"), {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    Decimal('12.30')
    """
    if not _is_decimal(schema):
        return data
    number = int.from_bytes(data, "big", signed=True)
    digits = tuple(map(int, str(abs(number))))
    return Decimal((int(number < 0), digits, -schema.get("scale", 0)))


def _is_decimal(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("logicalType") == "decimal"
