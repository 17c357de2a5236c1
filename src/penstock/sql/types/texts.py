"""Values as text, as Java prints them; dates, times and timestamps in ISO form, read and written."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.sql.types.numbers import decimal_text, double_text
from penstock.sql.types.sql_type import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL_UNIT,
    NULL,
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

__all__ = [
    "DAY_MS",
    "EPOCH",
    "date_of",
    "date_text",
    "days_of",
    "from_datetime",
    "millis_of_day",
    "parse_date",
    "parse_time",
    "parse_timestamp",
    "text_function",
    "time_of",
    "time_of_day",
    "time_text",
    "timestamp_text",
    "to_datetime",
    "to_text",
    "zone",
]

DAY_MS = 86_400_000
EPOCH = date(1970, 1, 1)
EPOCH_TIME = datetime(1970, 1, 1, tzinfo=UTC)
PARTIAL = re.compile(
    r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[T ](?:([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,9}))?)?)?)?)?)?)?(.*)",
)
CLOCK = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?")
OFFSET = re.compile(r"([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")


def date_of(days: int) -> date:
    """Return the date of a number of days since 1970."""
    try:
        return EPOCH + timedelta(days=days)
    except OverflowError as error:
        raise SqlValueError(f"day {days} is outside the years 1 to 9999") from error


def days_of(day: date) -> int:
    """Return days from 1970 to a date."""
    return (day - EPOCH).days


def time_of(millis: int) -> time:
    """Return the time of day at a number of milliseconds after midnight."""
    if not 0 <= millis < DAY_MS:
        raise SqlValueError(f"{millis} ms is not within a day")
    return time_of_day(millis)


def time_of_day(timestamp: int) -> time:
    """Return the time of day of a timestamp, in UTC."""
    seconds, millis = divmod(timestamp % DAY_MS, 1000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, millis * 1000)


def millis_of_day(value: time) -> int:
    """Return milliseconds from midnight to a time of day."""
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000


def to_datetime(timestamp: int, where: tzinfo = UTC) -> datetime:
    """Return a timestamp as a datetime in a time zone."""
    try:
        return (EPOCH_TIME + timedelta(milliseconds=timestamp)).astimezone(where)
    except (OverflowError, ValueError) as error:
        raise SqlValueError(f"timestamp {timestamp} is outside the years 1 to 9999") from error


def from_datetime(moment: datetime) -> int:
    """Return milliseconds since 1970 of a datetime that has a time zone."""
    return (moment - EPOCH_TIME) // timedelta(milliseconds=1)


def date_text(day: date) -> str:
    """Return a date as ``yyyy-MM-dd``."""
    return day.isoformat()


def time_text(value: time) -> str:
    """Return a time of day as Java's ``LocalTime.toString``: seconds and fraction only if they are not 0.

    >>> [time_text(x) for x in (time(9, 5), time(0, 0, 4), time(0, 0, 0, 10_000))]
    ['09:05', '00:00:04', '00:00:00.010']
    """
    if value.microsecond:
        return value.isoformat("milliseconds")
    return value.isoformat("seconds" if value.second else "minutes")


def timestamp_text(timestamp: int) -> str:
    """Return a timestamp as ``yyyy-MM-dd'T'HH:mm:ss.SSS`` in UTC.

    >>> timestamp_text(10)
    '1970-01-01T00:00:00.010'
    """
    return to_datetime(timestamp).replace(tzinfo=None).isoformat(timespec="milliseconds")


def parse_timestamp(text: str, where: tzinfo = UTC) -> int:
    """Return a timestamp from ISO text, which may end early (``2018``, ``2018-03``) and name a zone (``+0100``, ``Z``).

    >>> parse_timestamp("1970-01-01T24"), parse_timestamp("1970-01-01T01:00:00+01:00")
    (86400000, 0)
    """
    match = PARTIAL.fullmatch(text.strip())
    if match is None:
        raise SqlValueError(f"{text!r} is not a timestamp of the form yyyy-MM-dd'T'HH:mm:ss.SSS")
    year, month, day, hour, minute, second, fraction, suffix = match.groups()
    time_zone = zone(suffix.strip()) if suffix.strip() else where
    micros = int((fraction or "0").ljust(6, "0")[:6])
    midnight = hour == "24" and not int(minute or 0) and not int(second or 0) and not micros
    try:
        moment = datetime(
            int(year),
            int(month or 1),
            int(day or 1),
            0 if midnight else int(hour or 0),
            int(minute or 0),
            int(second or 0),
            micros,
            time_zone,
        )
        return from_datetime(moment + timedelta(days=1) if midnight else moment)
    except (ValueError, OverflowError) as error:
        raise SqlValueError(f"{text!r} is not a timestamp: {error}") from error


def parse_date(text: str) -> date:
    """Return a date from ISO text, which may end early.

    >>> parse_date("2020-02")
    datetime.date(2020, 2, 1)
    """
    match = PARTIAL.fullmatch(text.strip())
    if match is None or match[8] or (match[3] and match[4]):
        raise SqlValueError(f"{text!r} is not a date of the form yyyy-MM-dd")
    try:
        return date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    except ValueError as error:
        raise SqlValueError(f"{text!r} is not a date: {error}") from error


def parse_time(text: str) -> time:
    """Return a time of day from ISO text; seconds and fraction may be missing."""
    match = CLOCK.fullmatch(text.strip())
    if match is None:
        raise SqlValueError(f"{text!r} is not a time of the form HH:mm:ss.SSS")
    millis = int((match[4] or "0").ljust(3, "0")[:3])
    try:
        return time(int(match[1]), int(match[2]), int(match[3] or 0), millis * 1000)
    except ValueError as error:
        raise SqlValueError(f"{text!r} is not a time: {error}") from error


def zone(name: str) -> tzinfo:
    """Return a time zone by its name (``Europe/Berlin``) or offset (``+0130``, ``GMT+2``, ``Z``).

    >>> zone("+05:30").utcoffset(None)
    datetime.timedelta(seconds=19800)
    """
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    plain = re.sub(r"^(UTC|GMT|UT)(?=[+-])", "", name)
    match = OFFSET.fullmatch(plain)
    if match is not None:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0), seconds=int(match[4] or 0))
        if offset > timedelta(hours=18):
            raise SqlValueError(f"the offset {name!r} is not within 18 hours")
        return timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SqlValueError(f"{name!r} is not a time zone: use a name such as Europe/Paris or an offset") from error


PLAIN: dict[SqlType, Callable[[Any], str]] = {
    BOOLEAN: lambda value: "true" if value else "false",
    INTEGER: str,
    BIGINT: str,
    DOUBLE: double_text,
    STRING: str,
    DATE: date_text,
    TIME: time_text,
    TIMESTAMP: timestamp_text,
    INTERVAL_UNIT: str,
    NULL: lambda _: "null",
}


def text_function(kind: SqlType) -> Callable[[Any], str]:
    """Return the function that writes values of a type; a null inside of a value, or the value itself, is ``null``.

    >>> text_function(ArrayType(DOUBLE))([1e7, None])
    '[1.0E7, null]'
    >>> text_function(StructType.of(A=INTEGER, B=STRING))({"A": 1, "B": "x"})
    'Struct{A=1,B=x}'
    """
    write: Callable[[Any], str]
    match kind:
        case DecimalType():
            write = _decimal
        case ArrayType(element):
            item = text_function(element)
            write = lambda value: "[" + ", ".join(map(item, value)) + "]"  # noqa: E731
        case MapType(key, inner):
            left, right = text_function(key), text_function(inner)
            write = lambda value: "{" + ", ".join(f"{left(k)}={right(v)}" for k, v in value.items()) + "}"  # noqa: E731
        case StructType(fields):
            parts = [(field.name, text_function(field.type)) for field in fields]
            write = lambda value: _struct(value, parts)  # noqa: E731
        case _ if kind in PLAIN:
            write = PLAIN[kind]
        case _ if kind == BYTES:
            raise SqlTypeError("No CAST turns BYTES into STRING: use FROM_BYTES with an encoding")
        case _:
            raise SqlTypeError(f"{kind} has no text")
    return lambda value: "null" if value is None else write(value)


def to_text(value: Any, kind: SqlType) -> str:
    """Return one value of a type as text."""
    return text_function(kind)(value)


def _decimal(value: Decimal) -> str:
    return decimal_text(value)


def _struct(value: dict[str, Any], parts: list[tuple[str, Callable[[Any], str]]]) -> str:
    shown = (f"{name}={write(value[name])}" for name, write in parts if value.get(name) is not None)
    return "Struct{" + ",".join(shown) + "}"
