"""Numbers and times that know their Java type, for values without a schema.

A plain ``int`` stands for Java's ``Long`` and a plain ``float`` for ``Double``; with a schema, for whatever it says.
The classes here are the same numbers with a type of their own, as transformations and header parsing make them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from penstock.base.java_text.simple_dates import SimpleDateFormat

__all__ = [
    "BigInteger",
    "DAY_MS",
    "Float32",
    "Float64",
    "Int16",
    "Int32",
    "Int64",
    "Int8",
    "Moment",
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
