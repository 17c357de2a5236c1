"""Functions of dates, times and timestamps. Their patterns are those of Java's ``DateTimeFormatter``."""

from __future__ import annotations

import time as clock
from datetime import date, time, timedelta, tzinfo

from penstock.sql.functions.java_dates import date_pattern
from penstock.sql.functions.registry import Family
from penstock.sql.types import SqlValueError
from penstock.sql.types.numbers import wrap_long
from penstock.sql.types.texts import (
    DAY_MS,
    date_of,
    days_of,
    from_datetime,
    millis_of_day,
    time_of_day,
    to_datetime,
    zone,
)

__all__ = ["DATES"]

DATES = Family("dates and times")
UNIT_NANOS = {
    "NANOSECONDS": 1,
    "MICROSECONDS": 1000,
    "MILLISECONDS": 1_000_000,
    "SECONDS": 1_000_000_000,
    "MINUTES": 60_000_000_000,
    "HOURS": 3_600_000_000_000,
    "DAYS": 86_400_000_000_000,
}


def _nanos(unit: str, amount: int) -> int:
    name = unit.upper()
    nanos = UNIT_NANOS.get(name, UNIT_NANOS.get(f"{name}S"))
    if nanos is None:
        raise SqlValueError(f"{unit} is not a unit of time: use MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS")
    return amount * nanos


def _millis(unit: str, amount: int) -> int:
    nanos = _nanos(unit, amount)
    return nanos // 1_000_000 if nanos >= 0 else -(-nanos // 1_000_000)


@DATES.scalar(
    "DATEADD(unit INTERVALUNIT, amount INTEGER, date DATE) DATE",
    examples=[("DATEADD(DAYS, 10, CAST('2024-02-20' AS DATE))", "CAST('2024-03-01' AS DATE)")],
)
def dateadd(unit: str, amount: int, day: date) -> date:
    """A date moved on by an interval."""
    moment = days_of(day) * DAY_MS + _millis(unit, amount)
    return date_of(moment // DAY_MS if moment >= 0 else -(-moment // DAY_MS))  # towards 1970, as Java's TimeUnit


@DATES.scalar(
    "DATESUB(unit INTERVALUNIT, amount INTEGER, date DATE) DATE",
    examples=[("DATESUB(DAYS, 1, CAST('2024-03-01' AS DATE))", "CAST('2024-02-29' AS DATE)")],
)
def datesub(unit: str, amount: int, day: date) -> date:
    """A date moved back by an interval."""
    return dateadd(unit, -amount, day)


@DATES.scalar(
    "TIMEADD(unit INTERVALUNIT, amount INTEGER, time TIME) TIME",
    examples=[("TIMEADD(HOURS, 2, CAST('23:30:00' AS TIME))", "CAST('01:30:00' AS TIME)")],
)
def timeadd(unit: str, amount: int, moment: time) -> time:
    """A time of day moved on by an interval; after midnight it begins anew."""
    return time_of_day((millis_of_day(moment) * 1_000_000 + _nanos(unit, amount)) // 1_000_000)


@DATES.scalar(
    "TIMESUB(unit INTERVALUNIT, amount INTEGER, time TIME) TIME",
    examples=[("TIMESUB(HOURS, 2, CAST('01:30:00' AS TIME))", "CAST('23:30:00' AS TIME)")],
)
def timesub(unit: str, amount: int, moment: time) -> time:
    """A time of day moved back by an interval."""
    return timeadd(unit, -amount, moment)


@DATES.scalar(
    "TIMESTAMPADD(unit INTERVALUNIT, amount INTEGER, timestamp TIMESTAMP) TIMESTAMP",
    examples=[("UNIX_TIMESTAMP(TIMESTAMPADD(SECONDS, 2, FROM_UNIXTIME(500)))", "2500")],
)
def timestampadd(unit: str, amount: int, timestamp: int) -> int:
    """A timestamp moved on by an interval."""
    return wrap_long(timestamp + _millis(unit, amount))


@DATES.scalar(
    "TIMESTAMPSUB(unit INTERVALUNIT, amount INTEGER, timestamp TIMESTAMP) TIMESTAMP",
    examples=[("UNIX_TIMESTAMP(TIMESTAMPSUB(SECONDS, 2, FROM_UNIXTIME(2500)))", "500")],
)
def timestampsub(unit: str, amount: int, timestamp: int) -> int:
    """A timestamp moved back by an interval."""
    return timestampadd(unit, -amount, timestamp)


@DATES.scalar("UNIX_DATE() INTEGER", examples=[("UNIX_DATE() > 19000", "true")])
def unix_date() -> int:
    """The number of days since 1970, of today in UTC or of a date."""
    return int(clock.time() * 1000) // DAY_MS


@DATES.scalar("UNIX_DATE(date DATE) INTEGER", examples=[("UNIX_DATE(FROM_DAYS(11))", "11")])
def unix_date_of(day: date) -> int:
    return days_of(day)


@DATES.scalar("UNIX_TIMESTAMP() BIGINT", examples=[("UNIX_TIMESTAMP() > 1700000000000", "true")])
def unix_timestamp() -> int:
    """The number of milliseconds since 1970, of now or of a timestamp."""
    return int(clock.time() * 1000)


@DATES.scalar("UNIX_TIMESTAMP(timestamp TIMESTAMP) BIGINT", examples=[("UNIX_TIMESTAMP(FROM_UNIXTIME(11))", "11")])
def unix_timestamp_of(timestamp: int) -> int:
    return timestamp


@DATES.scalar("FROM_DAYS(days INTEGER) DATE", examples=[("FROM_DAYS(31)", "CAST('1970-02-01' AS DATE)")])
def from_days(days: int) -> date:
    """The date of a number of days since 1970."""
    return date_of(days)


@DATES.scalar(
    "FROM_UNIXTIME(millis BIGINT) TIMESTAMP",
    examples=[("FROM_UNIXTIME(1000)", "CAST('1970-01-01T00:00:01' AS TIMESTAMP)")],
)
def from_unixtime(millis: int) -> int:
    """The timestamp of a number of milliseconds since 1970."""
    return millis


@DATES.scalar(
    "CONVERT_TZ(timestamp TIMESTAMP, source STRING, target STRING) TIMESTAMP",
    examples=[("CONVERT_TZ(FROM_UNIXTIME(0), 'UTC', '+01:30')", "FROM_UNIXTIME(5400000)")],
)
def convert_tz(timestamp: int, source: str, target: str) -> int:
    """A timestamp moved by the difference of two time zones, as it is at that moment."""
    moment = to_datetime(timestamp)
    before, after = (moment.astimezone(zone(zone_name)).utcoffset() or timedelta() for zone_name in (source, target))
    return timestamp + (after - before) // timedelta(milliseconds=1)


@DATES.scalar(
    "FORMAT_DATE(date DATE, pattern STRING) STRING", examples=[("FORMAT_DATE(FROM_DAYS(0), 'dd/MM/yy')", "'01/01/70'")]
)
def format_date(day: date, pattern: str) -> str:
    """A date as text by a pattern."""
    return date_pattern(pattern).format_date(day)


@DATES.scalar(
    "FORMAT_TIME(time TIME, pattern STRING) STRING",
    examples=[("FORMAT_TIME(CAST('13:05:00' AS TIME), 'hh.mm a')", "'01.05 PM'")],
)
def format_time(moment: time, pattern: str) -> str:
    """A time of day as text by a pattern."""
    return date_pattern(pattern).format_time(moment)


@DATES.scalar(
    "FORMAT_TIMESTAMP(timestamp TIMESTAMP, pattern STRING) STRING",
    "FORMAT_TIMESTAMP(timestamp TIMESTAMP, pattern STRING, zone STRING) STRING",
    examples=[("FORMAT_TIMESTAMP(FROM_UNIXTIME(0), 'yyyy-MM-dd HH:mm X', '+02:00')", "'1970-01-01 02:00 +02'")],
)
def format_timestamp(timestamp: int, pattern: str, zone_name: str = "UTC") -> str:
    """A timestamp as text by a pattern, in UTC or a time zone."""
    return date_pattern(pattern).format(to_datetime(timestamp, zone(zone_name)))


@DATES.scalar(
    "TIMESTAMPTOSTRING(millis BIGINT, pattern STRING) STRING",
    "TIMESTAMPTOSTRING(millis BIGINT, pattern STRING, zone STRING) STRING",
    examples=[("TIMESTAMPTOSTRING(0, 'yyyy')", "'1970'")],
)
def timestamptostring(millis: int, pattern: str, zone_name: str = "UTC") -> str:
    """A number of milliseconds since 1970 as text by a pattern; FORMAT_TIMESTAMP is its successor."""
    return format_timestamp(millis, pattern, zone_name)


@DATES.scalar("DATETOSTRING(days INTEGER, pattern STRING) STRING", examples=[("DATETOSTRING(0, 'yyyy')", "'1970'")])
def datetostring(days: int, pattern: str) -> str:
    """A number of days since 1970 as text by a pattern; FORMAT_DATE is its successor."""
    return format_date(date_of(days), pattern)


@DATES.scalar(
    "PARSE_DATE(text STRING, pattern STRING) DATE",
    examples=[("PARSE_DATE('2.3.2024', 'd.M.yyyy')", "CAST('2024-03-02' AS DATE)")],
)
def parse_date(text: str, pattern: str) -> date:
    """A date out of text by a pattern; further text behind it is ignored."""
    moment = date_pattern(pattern).parse(text, whole=False)
    if moment.time() != time():
        raise SqlValueError(f"the text {text!r} has a time of day by the pattern {pattern!r}: use PARSE_TIMESTAMP")
    return moment.date()


@DATES.scalar(
    "STRINGTODATE(text STRING, pattern STRING) INTEGER", examples=[("STRINGTODATE('1970-02', 'yyyy-MM')", "31")]
)
def stringtodate(text: str, pattern: str) -> int:
    """The number of days since 1970 of a date in text; PARSE_DATE is its successor."""
    return days_of(date_pattern(pattern).parse(text, whole=False).date())


@DATES.scalar(
    "PARSE_TIME(text STRING, pattern STRING) TIME",
    examples=[("PARSE_TIME('7:05', 'H:mm')", "CAST('07:05:00' AS TIME)")],
)
def parse_time(text: str, pattern: str) -> time:
    """A time of day out of text by a pattern."""
    moment = date_pattern(pattern).parse_time(text)
    return time_of_day(millis_of_day(moment.time()))


def _timestamp(text: str, pattern: str, time_zone: tzinfo) -> int:
    return from_datetime(date_pattern(pattern).parse(text, time_zone))


@DATES.scalar(
    "PARSE_TIMESTAMP(text STRING, pattern STRING) TIMESTAMP",
    "PARSE_TIMESTAMP(text STRING, pattern STRING, zone STRING) TIMESTAMP",
    examples=[("PARSE_TIMESTAMP('1970-01-01 00:01', 'yyyy-MM-dd HH:mm')", "FROM_UNIXTIME(60000)")],
)
def parse_timestamp(text: str, pattern: str, zone_name: str = "UTC") -> int:
    """A timestamp out of text by a pattern; a text without a time zone is of UTC, or of the zone given."""
    return _timestamp(text, pattern, zone(zone_name))


@DATES.scalar(
    "STRINGTOTIMESTAMP(text STRING, pattern STRING) BIGINT",
    "STRINGTOTIMESTAMP(text STRING, pattern STRING, zone STRING) BIGINT",
    examples=[("STRINGTOTIMESTAMP('1970-01-02', 'yyyy-MM-dd')", "86400000")],
)
def stringtotimestamp(text: str, pattern: str, zone_name: str = "UTC") -> int:
    """The milliseconds since 1970 of a timestamp in text; PARSE_TIMESTAMP is its successor."""
    return _timestamp(text, pattern, zone(zone_name))
