r"""The texts of PostgreSQL's types: dates and times of any year, and arrays of any depth.

Python's own classes end at the year 9999 and begin at 1, so days and microseconds are counted here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

__all__ = [
    "DAY_US",
    "array_text",
    "civil_of_days",
    "days_of_civil",
    "iso_text",
    "parse_array",
    "parse_date",
    "parse_time",
    "parse_timestamp",
    "timestamp_text",
]

DAY_US = 86_400_000_000
_ERA_DAYS, _ERA_YEARS = 146_097, 400
_OFFSET = r"(?P<zone>Z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?"
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d+))?)?"
_DATE = r"(?P<year>\d{4,})-(?P<month>\d\d)-(?P<day>\d\d)"
_TIME = re.compile(_CLOCK + _OFFSET)
_MOMENT = re.compile(rf"{_DATE}(?:[ T]{_CLOCK}{_OFFSET})?(?P<era> BC)?")
_SPECIAL = re.compile(r'[{}",\\\s]|^$|^null$', re.IGNORECASE)


def days_of_civil(year: int, month: int, day: int) -> int:
    """Return the days since 1970 of a day of the Gregorian calendar; the year before 1 is 0.

    >>> days_of_civil(1970, 1, 1), days_of_civil(20000, 1, 1), days_of_civil(0, 12, 31)
    (0, 6585322, -719163)
    """
    shifted = year - (month <= 2)
    era = shifted // _ERA_YEARS
    of_era = shifted - era * _ERA_YEARS
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * _ERA_DAYS + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


@lru_cache(maxsize=1024)
def civil_of_days(days: int) -> tuple[int, int, int]:
    """Return the year, month and day of a number of days since 1970.

    >>> civil_of_days(6585322), civil_of_days(-719163)
    ((20000, 1, 1), (0, 12, 31))
    """
    days += 719_468
    era, of_era = divmod(days, _ERA_DAYS)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year + era * _ERA_YEARS + (month <= 2), month, day


def parse_date(text: str) -> int:
    """Return the days since 1970 of a date.

    Raises:
        ValueError: The text is not a date.

    >>> parse_date("2024-02-29"), parse_date("0044-03-15 BC")
    (19782, -735160)
    """
    moment = _MOMENT.fullmatch(text)
    if moment is None or moment["hour"] is not None:
        raise ValueError(f"{text!r} is not a date")
    return _days(moment)


def parse_timestamp(text: str) -> int:
    """Return the microseconds since 1970 of a timestamp; without an offset as if it were in UTC.

    Raises:
        ValueError: The text is not a timestamp.

    >>> parse_timestamp("1970-01-01 02:00:00.5+02"), parse_timestamp("20000-01-01 00:00:00")
    (500000, 568971820800000000)
    """
    moment = _MOMENT.fullmatch(text)
    if moment is None:
        raise ValueError(f"{text!r} is not a timestamp")
    clock = 0 if moment["hour"] is None else _clock_us(moment) - _offset_us(moment["zone"])
    return _days(moment) * DAY_US + clock


def parse_time(text: str) -> tuple[int, int]:
    """Return the microseconds of a time of the day, and its offset from UTC in microseconds.

    Raises:
        ValueError: The text is not a time.

    >>> parse_time("24:00:00"), parse_time("04:05:06.789012-08:30")
    ((86400000000, 0), (14706789012, -30600000000))
    """
    time_of_day = _TIME.fullmatch(text)
    if time_of_day is None:
        raise ValueError(f"{text!r} is not a time of the day")
    return _clock_us(time_of_day), _offset_us(time_of_day["zone"])


def _days(moment: re.Match[str]) -> int:
    year = int(moment["year"])
    return days_of_civil(1 - year if moment["era"] else year, int(moment["month"]), int(moment["day"]))


def _clock_us(moment: re.Match[str]) -> int:
    fraction = (moment["fraction"] or "").ljust(6, "0")[:6]
    seconds = (int(moment["hour"]) * 60 + int(moment["minute"])) * 60 + int(moment["second"] or 0)
    return seconds * 1_000_000 + int(fraction)


def _offset_us(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(6, "0")
    seconds = (int(digits[:2]) * 60 + int(digits[2:4])) * 60 + int(digits[4:])
    return (-seconds if zone[0] == "-" else seconds) * 1_000_000


def timestamp_text(micros: int) -> str:
    """Return a timestamp in the form in which PostgreSQL, SQLite and others read it.

    >>> timestamp_text(500000), timestamp_text(-62167305600000000)
    ('1970-01-01 00:00:00.500000', '0002-12-31 00:00:00.000000 BC')
    """
    days, rest = divmod(micros, DAY_US)
    year, month, day = civil_of_days(days)
    era = " BC" if year < 1 else ""
    return f"{1 - year if era else year:04}-{month:02}-{day:02} {_clock_text(rest)}{era}"


def iso_text(micros: int) -> str:
    """A timestamp in ISO's form, to the microsecond; years before 1 and after 9999 have a sign, as Java writes them.

    >>> iso_text(500000), iso_text(568971820800000000)
    ('1970-01-01T00:00:00.500000', '+20000-01-01T00:00:00.000000')
    """
    days, rest = divmod(micros, DAY_US)
    year, month, day = civil_of_days(days)
    years = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    return f"{years}-{month:02}-{day:02}T{_clock_text(rest)}"


def _clock_text(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"


def parse_array(text: str, delimiter: str = ",") -> list[Any]:
    r"""The elements of an array as texts, with lists for further dimensions; bounds such as ``[0:1]=`` are left out.

    Raises:
        ValueError: The text is not an array.

    >>> parse_array('{1,NULL,"a\\"b,c"}'), parse_array("[0:1]={{x,y},{}}")
    (['1', None, 'a"b,c'], [['x', 'y'], []])
    """
    if text.startswith("["):
        text = text.partition("=")[2]
    if not text.startswith("{"):
        raise ValueError(f"{text[:100]!r} is not an array")
    open_lists: list[list[Any]] = []
    at, end = 0, len(text)
    while at < end:
        letter = text[at]
        if letter == "{":
            inner: list[Any] = []
            if open_lists:
                open_lists[-1].append(inner)
            open_lists.append(inner)
            at += 1
        elif letter == "}":
            done = open_lists.pop()
            at += 1
            if not open_lists:
                if at != end:
                    raise ValueError(f"{text[:100]!r} has something after its array")
                return done
        elif letter == delimiter:
            at += 1
        elif letter == '"':
            part, at = _quoted(text, at + 1)
            open_lists[-1].append(part)
        else:
            stop = at
            while stop < end and text[stop] not in (delimiter, "}"):
                stop += 1
            part = text[at:stop]
            open_lists[-1].append(None if part == "NULL" else part)
            at = stop
    raise ValueError(f"{text[:100]!r} is cut short")


def _quoted(text: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    while at < len(text):
        letter = text[at]
        if letter == '"':
            return "".join(parts), at + 1
        if letter == "\\":
            at += 1
            letter = text[at : at + 1]
        parts.append(letter)
        at += 1
    raise ValueError("a quoted element is cut short")


def array_text(items: Iterable[Any], delimiter: str = ",") -> str:
    r"""Return an array as PostgreSQL reads it, of texts, nulls, and lists of them.

    >>> array_text(["a", None, 'x"y', "null", ["b", ""]])
    '{a,NULL,"x\\"y","null",{b,""}}'
    """
    return "{" + delimiter.join(_element(each, delimiter) for each in items) + "}"


def _element(item: Any, delimiter: str) -> str:
    if item is None:
        return "NULL"
    if isinstance(item, Sequence) and not isinstance(item, str | bytes):
        return array_text(item, delimiter)
    text = str(item)
    if delimiter in text or _SPECIAL.search(text):
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return text
