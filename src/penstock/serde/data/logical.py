"""Logical types: Decimal, Date, Time, Timestamp, as names of schemas over bytes and integers."""

from __future__ import annotations

from decimal import Decimal

from penstock.serde.data.errors import DataError
from penstock.serde.data.numbers import DAY_MS, Moment
from penstock.serde.data.schema import Schema, Type

__all__ = [
    "DATE",
    "DATE_NAME",
    "DECIMAL_NAME",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP_NAME",
    "TIME_NAME",
    "date_from_days",
    "decimal_from_bytes",
    "decimal_schema",
    "decimal_to_bytes",
    "days_of",
    "millis_of_day",
    "scale_of",
    "scaled_decimal",
    "time_from_millis",
    "unscaled",
]

_DATA = "org.apache.kafka.connect.data"
DECIMAL_NAME, DATE_NAME, TIME_NAME = f"{_DATA}.Decimal", f"{_DATA}.Date", f"{_DATA}.Time"
TIMESTAMP_NAME = f"{_DATA}.Timestamp"
DATE = Schema(Type.INT32, name=DATE_NAME, version=1)
TIME = Schema(Type.INT32, name=TIME_NAME, version=1)
TIMESTAMP = Schema(Type.INT64, name=TIMESTAMP_NAME, version=1)


def decimal_schema(scale: int) -> Schema:
    """Return the schema of decimals with this number of digits behind the point."""
    return Schema(Type.BYTES, name=DECIMAL_NAME, version=1, parameters={"scale": str(scale)})


def scale_of(schema: Schema) -> int:
    """Return the scale that a Decimal's schema gives.

    Raises:
        DataError: There is none, or it is not a number.
    """
    text = (schema.parameters or {}).get("scale")
    if text is None:
        raise DataError("Invalid Decimal schema: scale parameter not found.")
    try:
        return int(text)
    except ValueError as error:
        raise DataError("Invalid scale parameter found in Decimal schema: ") from error


def unscaled(value: Decimal) -> tuple[int, int]:
    """Return the digits of a decimal as a whole number, and its scale.

    >>> unscaled(Decimal("-12.30"))
    (-1230, 2)
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise DataError(f"{value} is not a number that a Decimal can hold")
    number = int(Decimal((0, digits, 0)))  # not by text: Python limits its digits
    return (-number if sign else number), -exponent


def scaled_decimal(number: int, scale: int) -> Decimal:
    """Return the decimal with these digits, so many of them behind the point.

    >>> scaled_decimal(-1230, 2), scaled_decimal(5, -2)
    (Decimal('-12.30'), Decimal('5E+2'))
    """
    sign, digits, _ = Decimal(number).as_tuple()
    return Decimal((sign, digits, -scale))


def decimal_to_bytes(schema: Schema, value: Decimal) -> bytes:
    """Return the bytes of a decimal: its unscaled digits, as Java's ``BigInteger`` writes them.

    >>> decimal_to_bytes(decimal_schema(2), Decimal("1.28")).hex()
    '0080'
    """
    number, scale = unscaled(value)
    schema_scale = scale_of(schema)
    if scale != schema_scale:
        raise DataError(
            "Decimal value has mismatching scale for given Decimal schema. "
            f"Schema has scale {schema_scale}, value has scale {scale}."
        )
    return number.to_bytes(((number if number >= 0 else ~number).bit_length() // 8) + 1, "big", signed=True)


def decimal_from_bytes(schema: Schema, data: bytes) -> Decimal:
    """Return the decimal whose unscaled digits these bytes are."""
    if not data:
        raise DataError("Zero length BigInteger")
    return scaled_decimal(int.from_bytes(data, "big", signed=True), scale_of(schema))


def days_of(value: Moment) -> int:
    """Return the days since 1970 of a Date.

    Raises:
        DataError: The moment is not midnight.
    """
    if value.ms % DAY_MS:
        raise DataError("Kafka Connect Date type should not have any time fields set to non-zero values.")
    return value.ms // DAY_MS


def date_from_days(days: int) -> Moment:
    """Return the Date of a number of days since 1970."""
    return Moment(days * DAY_MS)


def millis_of_day(value: Moment) -> int:
    """Return the milliseconds of a Time.

    Raises:
        DataError: The moment is not of 1970-01-01.
    """
    if not 0 <= value.ms <= DAY_MS:
        raise DataError("Kafka Connect Time type should not have any date fields set to non-zero values.")
    return value.ms


def time_from_millis(millis: int) -> Moment:
    """Return the Time of a number of milliseconds of the day.

    Raises:
        DataError: It is negative, or more than a day.
    """
    if not 0 <= millis <= DAY_MS:
        raise DataError("Time values must use number of milliseconds greater than 0 and less than 86400000")
    return Moment(millis)
