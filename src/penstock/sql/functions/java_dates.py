"""Patterns of Java's ``DateTimeFormatter``: dates, times and timestamps as text, and text read by such a pattern."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache

from penstock.sql.types import SqlValueError
from penstock.sql.types.texts import zone

__all__ = ["DatePattern", "date_pattern"]

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
SHORT_ZONES = {
    "PST": "America/Los_Angeles",
    "PDT": "America/Los_Angeles",
    "MST": "America/Denver",
    "MDT": "America/Denver",
    "CST": "America/Chicago",
    "CDT": "America/Chicago",
    "EST": "America/New_York",
    "EDT": "America/New_York",
    "BST": "Europe/London",
    "CET": "Europe/Paris",
    "CEST": "Europe/Paris",
    "JST": "Asia/Tokyo",
}
DATE_LETTERS = frozenset("GyuYMLdDEewWQq")
CLOCK_LETTERS = frozenset("aHhKkmsSAnN")
NUMBERS = {"y": 4, "u": 4, "M": 2, "L": 2, "d": 2, "D": 3, "H": 2, "h": 2, "K": 2, "k": 2, "m": 2, "s": 2, "A": 8}


@dataclass(frozen=True, slots=True)
class DatePattern:
    """A compiled pattern: literals (``''``, text) and letters with their number."""

    text: str
    parts: tuple[tuple[str, int, str], ...]
    reading: re.Pattern[str]

    def format(self, moment: datetime) -> str:
        """Write a date and time."""
        return "".join(
            literal if not letter else _written(letter, count, moment) for letter, count, literal in self.parts
        )

    def format_date(self, day: date) -> str:
        """Write a date.

        Raises:
            SqlValueError: The pattern has letters of a time of day or a zone.
        """
        self._only(DATE_LETTERS, "a date")
        return self.format(datetime(day.year, day.month, day.day, tzinfo=UTC))

    def format_time(self, moment: time) -> str:
        """Write a time of day.

        Raises:
            SqlValueError: The pattern has letters of a date or a zone.
        """
        self._only(CLOCK_LETTERS, "a time of day")
        return self.format(datetime.combine(date(1970, 1, 1), moment, UTC))

    def _only(self, letters: frozenset[str], what: str) -> None:
        for letter, _, _ in self.parts:
            if letter.isalpha() and letter not in letters:
                raise SqlValueError(f"{what} has nothing for the letter {letter} of the pattern {self.text!r}")

    def parse_time(self, text: str) -> datetime:
        """Read a text of a time of day.

        Raises:
            SqlValueError: It does not fit the pattern, or the pattern has letters of a date.
        """
        wrong = next((letter for letter, _, _ in self.parts if letter in DATE_LETTERS), None)
        if wrong is not None:
            raise SqlValueError(f"a time of day has nothing for the letter {wrong} of the pattern {self.text!r}")
        return self.parse(text)

    def parse(self, text: str, where: tzinfo = UTC, *, whole: bool = True) -> datetime:
        """Read a text; fields that the pattern lacks are those of 1970-01-01T00:00 in a time zone.

        Args:
            text: the text.
            where: the zone, if the text has none.
            whole: whether text behind what the pattern reads is an error.
        """
        match = self.reading.fullmatch(text) if whole else self.reading.match(text)
        if match is None:
            raise SqlValueError(f"the text {text!r} does not fit the pattern {self.text!r}")
        values: dict[str, str] = {}
        for index, (letter, _, _) in enumerate(part for part in self.parts if part[0] not in ("", "[", "]")):
            if match[index + 1] is not None:
                values[letter] = match[index + 1]
        try:
            return _moment(values, where)
        except (ValueError, OverflowError) as error:
            raise SqlValueError(f"the text {text!r} is not a date by the pattern {self.text!r}: {error}") from error


@lru_cache(maxsize=512)
def date_pattern(text: str) -> DatePattern:
    """Compile a pattern.

    >>> pattern = date_pattern("dd-MMM-yyyy HH:mm")
    >>> pattern.format(datetime(2022, 1, 31, 9, 5))
    '31-Jan-2022 09:05'
    >>> pattern.parse("01-Feb-2022 10:00").isoformat()
    '2022-02-01T10:00:00+00:00'
    """
    parts = tuple(_split(text))
    reading: list[str] = []
    fields = [part for part in parts if part[0]]
    for index, (letter, count, literal) in enumerate(parts):
        adjacent = index + 1 < len(parts) and parts[index + 1][0] in (*NUMBERS, "S")
        if letter == "[":
            reading.append("(?:")
        elif letter == "]":
            reading.append(")?")
        else:
            reading.append(re.escape(literal) if not letter else _expression(letter, count, adjacent=adjacent))
    if not fields:
        raise SqlValueError(f"the pattern {text!r} has no fields")
    return DatePattern(text, parts, re.compile("".join(reading), re.IGNORECASE))


def _split(text: str) -> Iterator[tuple[str, int, str]]:
    for match in re.finditer(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([\[\]])|([^A-Za-z'\[\]]+|')", text):
        if match[1] is not None:
            yield "", 0, match[1].replace("''", "'") or "'"
        elif match[2]:
            if match[2] not in "GyuYMLwWdDEeahHKkmsSnNAVzXxZOQq":
                raise SqlValueError(f"the pattern {text!r} has the letter {match[2]}, which is not supported")
            yield match[2], len(match[0]), ""
        elif match[3]:
            yield match[3], 0, ""
        elif match[0] == "'":
            raise SqlValueError(f"the pattern {text!r} ends within quotes")
        else:
            yield "", 0, match[0]


def _expression(letter: str, count: int, *, adjacent: bool) -> str:
    if letter in "ML" and count >= 3:
        return f"({'|'.join(MONTHS if count == 4 else [name[:3] for name in MONTHS])})"
    if letter == "E" or (letter == "e" and count >= 3):
        return f"({'|'.join(DAYS if count == 4 else [name[:3] for name in DAYS])})"
    if letter == "a":
        return "(AM|PM)"
    if letter == "G":
        return "(AD|BC)"
    if letter == "S":
        return f"([0-9]{{{count}}})"
    if letter in "XxZO":
        return r"(Z|(?:GMT)?[+-][0-9]{1,2}(?::?[0-9]{2}){0,2}|GMT)"
    if letter in "Vz":
        return r"([A-Za-z][A-Za-z_/+\-0-9:]*|[+-][0-9]{2}:?[0-9]{2})"
    widest = NUMBERS.get(letter, 9)
    if letter in "yu":
        return "([0-9]{2})" if count == 2 else f"([0-9]{{{count}}})" if adjacent else f"([0-9]{{{count},9}})"
    return f"([0-9]{{{count}}})" if count > 1 or adjacent else f"([0-9]{{1,{widest}}})"


def _moment(values: dict[str, str], where: tzinfo) -> datetime:
    number = {letter: int(text) for letter, text in values.items() if text.isdigit()}
    year = number.get("y", number.get("u", 1970))
    if len(values.get("y", values.get("u", "1970"))) == 2:
        year += 2000
    month = number.get("M", number.get("L", 0)) or _named(values.get("M", values.get("L", "")), MONTHS) or 1
    hour = number.get("H", number["k"] % 24 if "k" in number else -1)
    if hour < 0:
        half = number.get("K", number.get("h", 0) % 12)
        hour = half + (12 if values.get("a", "").upper() == "PM" else 0)
    if values.keys() & {"Y", "w", "W"}:
        raise ValueError("years and weeks of weeks say no date: use y, M and d")
    micros = int(values.get("S", "0").ljust(6, "0")[:6])
    if "n" in number:
        micros = number["n"] // 1000
    time_zone = next((_zone(values[letter]) for letter in "XxZOVz" if letter in values), where)
    clock = (hour, number.get("m", 0), number.get("s", 0), micros)
    day = number.get("d", 1)
    if 1 <= month <= 12 and 1 <= year <= 9999 and 28 < day <= 31:  # a day that its month lacks is the month's last
        day = min(day, monthrange(year, month)[1])
    moment = datetime(year, month, day, *clock, tzinfo=time_zone)
    if "D" in number:
        moment = moment.replace(month=1, day=1) + timedelta(days=number["D"] - 1)
    return moment + timedelta(milliseconds=number.get("A", 0), microseconds=number.get("N", 0) // 1000)


def _named(text: str, names: tuple[str, ...]) -> int:
    lowered = text.lower()
    return next((at + 1 for at, name in enumerate(names) if lowered and name.lower().startswith(lowered)), 0)


def _zone(name: str) -> tzinfo:
    return zone(SHORT_ZONES.get(name.upper(), name.upper() if name in ("z", "gmt", "utc") else name))


def _written(letter: str, count: int, moment: datetime) -> str:
    match letter:
        case "y" | "u" | "Y":
            year = _week(moment)[0] if letter == "Y" else moment.year
            return f"{year % 100:02}" if count == 2 else f"{year:0{count}}"
        case "M" | "L":
            name = MONTHS[moment.month - 1]
            return (
                f"{moment.month:0{count}}"
                if count < 3
                else name[:3]
                if count == 3
                else name[:1]
                if count == 5
                else name
            )
        case "E":
            name = DAYS[moment.weekday()]
            return name if count == 4 else name[:1] if count == 5 else name[:3]
        case "e":
            name = DAYS[moment.weekday()]
            day = moment.isoweekday() % 7 + 1
            return f"{day:0{count}}" if count < 3 else name[:3] if count == 3 else name
        case "S":
            return f"{moment.microsecond:06}".ljust(count, "0")[:count]
        case "a":
            return "AM" if moment.hour < 12 else "PM"
        case "G":
            return "AD" if count < 4 else "Anno Domini"
        case "[" | "]":
            return ""
        case "X" | "x" | "Z" | "O":
            return _offset(letter, count, moment)
        case "V":
            return str(moment.tzinfo) if moment.tzinfo is not UTC else "UTC"
        case "z":
            return moment.tzname() or ""
    return f"{_number(letter, moment):0{count}}"


def _number(letter: str, moment: datetime) -> int:
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    micros = (moment - midnight) // timedelta(microseconds=1)
    return {
        "d": moment.day,
        "D": moment.timetuple().tm_yday,
        "H": moment.hour,
        "k": moment.hour or 24,
        "K": moment.hour % 12,
        "h": moment.hour % 12 or 12,
        "m": moment.minute,
        "s": moment.second,
        "w": _week(moment)[1],
        "W": (moment.day + (moment.replace(day=1).isoweekday() % 7) - 1) // 7 + 1,
        "n": moment.microsecond * 1000,
        "N": micros * 1000,
        "A": micros // 1000,
        "Q": (moment.month + 2) // 3,
        "q": (moment.month + 2) // 3,
    }[letter]


def _week(moment: datetime) -> tuple[int, int]:
    """Return the year and week of a date: weeks begin on Sundays, the first is that with January 1."""
    saturday = moment + timedelta(days=6 - moment.isoweekday() % 7)
    return saturday.year, (saturday.timetuple().tm_yday + 6) // 7


def _offset(letter: str, count: int, moment: datetime) -> str:
    minutes = int((moment.utcoffset() or timedelta()).total_seconds()) // 60
    sign, hours, rest = "-" if minutes < 0 else "+", abs(minutes) // 60, abs(minutes) % 60
    if letter == "O":
        shown = f"{sign}{hours}" + (f":{rest:02}" if rest else "") if count == 1 else f"{sign}{hours:02}:{rest:02}"
        return "GMT" + (shown if minutes or count > 1 else "")
    if letter == "X" and not minutes:
        return "Z"
    if letter == "Z":
        return (
            f"GMT{sign}{hours:02}:{rest:02}" if count == 4 else f"{sign}{hours:02}{':' if count == 5 else ''}{rest:02}"
        )
    if count == 1:
        return f"{sign}{hours:02}" + (f"{rest:02}" if rest else "")
    return f"{sign}{hours:02}{':' if count in (3, 5) else ''}{rest:02}"
