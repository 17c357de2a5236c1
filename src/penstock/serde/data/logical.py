"""Logical types (Decimal, Date, Time, Timestamp) over bytes and integers, and numbers that know their Java type.

A plain ``int`` stands for Java's ``Long`` and a plain ``float`` for ``Double``; with a schema, for whatever it says.
The classes here are the same numbers with a type of their own, as transformations and header parsing make them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from penstock.base.java_text.dates import SimpleDateFormat
from penstock.serde.data.schema import DataError, Schema, Type

__all__ = [
    "DATE",
    "DATE_NAME",
    "DAY_MS",
    "DECIMAL_NAME",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP_NAME",
    "TIME_NAME",
    "BigInteger",
    "Float32",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Moment",
    "date_from_days",
    "days_of",
    "decimal_from_bytes",
    "decimal_schema",
    "decimal_to_bytes",
    "millis_of_day",
    "scale_of",
    "scaled_decimal",
    "time_from_millis",
    "unscaled",
]

DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TO_STRING = SimpleDateFormat("EEE MMM dd HH:mm:ss zzz y")


class Int8(int):
    """A whole number of 8 bits: Java's ``Byte``."""

    __slots__ = ()


class Int16(int):
    """A whole number of 16 bits: Java's ``Short``."""

    __slots__ = ()


class Int32(int):
    """A whole number of 32 bits: Java's ``Integer``."""

    __slots__ = ()


class Int64(int):
    """A whole number of 64 bits: Java's ``Long``, also where a schema would take a plain ``int`` for another type."""

    __slots__ = ()


class BigInteger(int):
    """A whole number of any size: Java's ``BigInteger``, which no schema takes."""

    __slots__ = ()


class Float32(float):
    """A number of 32 bits: Java's ``Float``."""

    __slots__ = ()


class Float64(float):
    """A number of 64 bits: Java's ``Double``, also where a schema would take a plain ``float`` for another type."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """A point in time, to the millisecond: the value of Date, Time and Timestamp, as ``java.util.Date`` is in Java.

    A Date is midnight in UTC, a Time a moment of 1970-01-01. Its range is that of 64 bits, far beyond ``datetime``'s.

    Attributes:
        ms: Milliseconds since 1970 in UTC.

    Example:
        >>> Moment.of(date(2024, 2, 29)).ms, Moment(0).datetime().isoformat(), str(Moment(0))
        (1709164800000, '1970-01-01T00:00:00+00:00', 'Thu Jan 01 00:00:00 UTC 1970')
    """

    ms: int

    @classmethod
    def of(cls, value: date | time | datetime) -> Moment:
        """Return the moment of a date, a time of the day or a datetime; one without time zone is in UTC."""
        if isinstance(value, datetime):
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return cls((aware - _EPOCH) // timedelta(milliseconds=1))
        if isinstance(value, date):
            return cls((value - date(1970, 1, 1)).days * DAY_MS)
        return cls(((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000)

    def datetime(self) -> datetime:
        """Return the moment as a datetime in UTC.

        Raises:
            OverflowError: It lies outside of the years 1 to 9999.
        """
        return _EPOCH + timedelta(milliseconds=self.ms)

    def date(self) -> date:
        """Return the day in UTC."""
        return self.datetime().date()

    def time(self) -> time:
        """Return the time of the day in UTC."""
        return self.datetime().time()

    def __str__(self) -> str:
        return _TO_STRING.format(self.ms)


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
