"""Java's ``SimpleDateFormat``, in English and UTC: formatting, lenient parsing, and the days of its calendar."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

from penstock.base.java_text.texts import JavaTextError

__all__ = ["SimpleDateFormat", "civil_from_days", "days_from_civil"]

CUTOVER = -141_427  # 1582-10-15, in days since 1970
JULIAN_SHIFT = 719_470  # from the start of March of year 0 (Julian) to 1970
GREGORIAN_SHIFT = 719_468


def days_from_civil(year: int, month: int, day: int = 1) -> int:
    """Return the days since 1970 of a date; months beyond 1 to 12 and any days count on. Year 0 is 1 BC.

    >>> days_from_civil(1970, 1, 1), days_from_civil(1582, 10, 15), days_from_civil(1, 1, 3) * 86_400_000
    (0, -141427, -62135596800000)
    """
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    shifted = year - (month <= 2)
    in_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    gregorian = shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + in_year - GREGORIAN_SHIFT
    return gregorian if gregorian >= CUTOVER else shifted * 365 + shifted // 4 + in_year - JULIAN_SHIFT


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since 1970.

    >>> civil_from_days(0), civil_from_days(-141428), civil_from_days(-719162)
    ((1970, 1, 1), (1582, 10, 4), (1, 1, 3))
    """
    if days >= CUTOVER:
        moved = days + GREGORIAN_SHIFT
        era, rest = divmod(moved, 146_097)
        of_era = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
        year, in_year = of_era + era * 400, rest - (365 * of_era + of_era // 4 - of_era // 100)
    else:
        cycle, rest = divmod(days + JULIAN_SHIFT, 1461)
        of_cycle = min(rest // 365, 3)
        year, in_year = cycle * 4 + of_cycle, rest - 365 * of_cycle
    shifted = (5 * in_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + (month <= 2), month, in_year - (153 * shifted + 2) // 5 + 1


def weekday(days: int) -> int:
    """Return the day of the week, 0 for Sunday.

    >>> weekday(0)
    4
    """
    return (days + 4) % 7


def on_or_before(days: int, day_of_week: int) -> int:
    """Return the last such day of the week, 0 for Sunday, that is not after a day."""
    return days - (weekday(days) - day_of_week) % 7


def month_length(year: int, month: int) -> int:
    """Return the number of days of a month."""
    return days_from_civil(year, month + 1) - days_from_civil(year, month)


def year_length(year: int) -> int:
    """Return the number of days of a year."""
    return days_from_civil(year + 1, 1) - days_from_civil(year, 1)


NUMBER = re.compile(r"-?[0-9]+")
ZONES = {
    **dict.fromkeys(("coordinated universal time", "greenwich mean time", "utc", "wet"), 0),
    "est": -300,
    "edt": -240,
    "cst": -360,
    "cdt": -300,
    "mst": -420,
    "mdt": -360,
    "pst": -480,
    "pdt": -420,
    "cet": 60,
    "cest": 120,
    "eet": 120,
    "eest": 180,
    "bst": 60,
    "west": 60,
    "msk": 180,
    "jst": 540,
    "ist": 120,
    "hst": -600,
    "ast": -240,
    "adt": -180,
    "akst": -540,
    "nst": -210,
    "ndt": -150,
    "kst": 540,
    "sgt": 480,
    "hkt": 480,
    "pkt": 300,
    "wib": 420,
    "aest": 600,
    "aedt": 660,
    "acst": 570,
    "awst": 480,
    "nzst": 720,
    "nzdt": 780,
    "sast": 120,
    "eat": 180,
    "cat": 120,
    "wat": 60,
}
NAMES: dict[str, tuple[str, ...]] = {
    "M": (
        *("january", "february", "march", "april", "may", "june"),
        *("july", "august", "september", "october", "november", "december"),
    ),
    "E": ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"),
}
OTHER_NAMES = {
    "G": {"bc": 0, "before christ": 0, "ad": 1, "anno domini": 1},
    "a": {"am": 0, "pm": 1},
}


@dataclass(frozen=True, slots=True)
class Part:
    """A letter of a pattern, so many times."""

    letter: str
    count: int


@dataclass(slots=True)
class _Fields:
    """The fields that were read, by letter, in the order of reading: later fields win."""

    values: dict[str, int] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)
    offset_minutes: int = 0
    ambiguous_year: bool = False

    def set(self, name: str, value: int) -> None:
        self.values[name] = value
        self.order[name] = len(self.order) + 1 if name not in self.order else max(self.order.values()) + 1


def parse_parts(parts: tuple[str | Part, ...], text: str) -> int | None:
    """Return the milliseconds since 1970 of the moment that a text begins with; None if it does not match."""
    fields = _Fields()
    at = 0
    for index, part in enumerate(parts):
        if isinstance(part, str):
            if not text.startswith(part, at):
                return None
            at += 1
            continue
        following = parts[index + 1] if index + 1 < len(parts) else ""
        limit = at + part.count if _is_digits(following) else None
        end = _read(fields, part, text, at, limit)
        if end is None:
            return None
        at = end
    moment_ms = _resolved(fields)
    if fields.ambiguous_year and moment_ms < _century_start() * 86_400_000:
        fields.values["y"] += 100
        moment_ms = _resolved(fields)
    return moment_ms


def _is_digits(part: str | Part) -> bool:
    if isinstance(part, str):
        return False
    return part.count <= 2 if part.letter in "ML" else part.letter in "ydkHmsSDFwWhKYu"


def _century_start() -> int:
    """Return the day 80 years ago, where the hundred years of two-digit years begin."""
    year, month, day = civil_from_days(int(time.time() // 86_400))
    return days_from_civil(year - 80, month, day)


def _read(fields: _Fields, part: Part, text: str, start: int, limit: int | None) -> int | None:
    """Read one field; the position behind it, None if it is not there."""
    at = start
    while text[at : at + 1] in (" ", "\t") and at < len(text):
        at += 1
    if at >= len(text):
        return None
    letter = "M" if part.letter == "L" else part.letter
    if letter == "E" or (letter == "M" and part.count > 2):
        names = {name: number for number, name in enumerate(NAMES[letter])}
        return _named(fields, letter, names | {name[:3]: number for name, number in names.items()}, text, start)
    if letter in OTHER_NAMES:
        return _named(fields, letter, OTHER_NAMES[letter], text, start)
    if letter in "zZX":
        return _zone(fields, part, text, at)
    if limit is not None and limit > len(text):
        return None
    number = NUMBER.match(text, at, len(text) if limit is None else limit)
    if number is None:
        return None
    value, end = int(number[0][:18]), number.end()
    if letter in "yY" and part.count <= 2 and end - at == 2 and value >= 0:
        first = civil_from_days(_century_start())[0]
        fields.ambiguous_year = value == first % 100
        value += first // 100 * 100 + (100 if value < first % 100 else 0)
    elif letter == "M":
        value -= 1
    elif (letter == "k" and value == 24) or (letter == "h" and value == 12):
        value = 0
    fields.set({"k": "H", "K": "h"}.get(letter, letter), value)
    return end


def _named(fields: _Fields, letter: str, names: dict[str, int], text: str, start: int) -> int | None:
    lowered = text[start : start + 20].lower()
    longest = max((name for name in names if lowered.startswith(name)), key=len, default=None)
    if longest is None:
        return None
    fields.set(letter, names[longest])
    return start + len(longest)


def _zone(fields: _Fields, part: Part, text: str, at: int) -> int | None:
    first = text[at]
    if part.letter == "X":
        if first == "Z":
            return at + 1
        pattern = {1: r"([+-])(\d\d)", 2: r"([+-])(\d\d)(\d\d)", 3: r"([+-])(\d\d):(\d\d)"}[part.count]
    elif first in "+-":
        pattern = r"([+-])(\d\d)(\d\d)"
    elif text[at : at + 3].lower() == "gmt":
        if text[at + 3 : at + 4] not in ("+", "-"):
            return at + 3
        pattern, at = r"([+-])(\d\d?):(\d\d)", at + 3
    else:
        lowered = text[at : at + 30].lower()
        name = max((name for name in ZONES if lowered.startswith(name)), key=len, default=None)
        if name is None:
            return None
        fields.offset_minutes = ZONES[name]
        return at + len(name)
    match = re.compile(pattern, re.ASCII).match(text, at)
    if match is None:
        return None
    hours, minutes = int(match[2]), int(match[3]) if match.re.groups > 2 else 0
    if hours > 23 or minutes > 59:
        return None
    fields.offset_minutes = (hours * 60 + minutes) * (-1 if match[1] == "-" else 1)
    return match.end()


def _resolved(fields: _Fields) -> int:
    values, order = fields.values, fields.order
    hour = values.get("H", 0)
    half = min(order.get("h", 0), order.get("a", 0)) and max(order.get("h", 0), order.get("a", 0))
    if half > order.get("H", 0) or (not half and "H" not in values):
        hour = values.get("h", 0) + 12 * values.get("a", 0)
    of_day = ((hour * 60 + values.get("m", 0)) * 60 + values.get("s", 0)) * 1000 + values.get("S", 0)
    return _day(values, order) * 86_400_000 + of_day - fields.offset_minutes * 60_000


def _day(values: dict[str, int], order: dict[str, int]) -> int:
    if "u" in values:
        values, order = dict(values), dict(order)
        values["E"], order["E"] = values["u"] % 7, order["u"]
    if order.get("Y", 0) > order.get("y", 0):
        return _of_week(values["Y"], values.get("w", 1), values.get("E", 0))
    year, month = values.get("y", 1970), values.get("M", 0) + 1
    if values.get("G", 1) == 0:
        year = 1 - year
    by_week = {key: max(order[key], order["E"]) if key in order and "E" in order else 0 for key in "WFw"}
    ranks = {"d": order.get("d", 0), "D": order.get("D", 0), **by_week}
    if not any(ranks.values()):
        ranks = {"W": order.get("W", 0), "F": max(order.get("F", 0), order.get("E", 0)), "w": order.get("w", 0)}
    best = max(ranks, key=lambda key: (ranks[key], "wDFWd".index(key)))
    first = days_from_civil(year, month)
    if not ranks[best]:
        return first
    match best:
        case "d":
            return first + values["d"] - 1
        case "D":
            return days_from_civil(year, 1) + values["D"] - 1
        case "w":
            return _of_week(year, values["w"], values.get("E", 0))
        case "W":
            return on_or_before(first, 0) + values.get("E", 0) + 7 * (values["W"] - 1)
    week = values.get("F", 1)
    days = 7 * week if week >= 0 else month_length(year, month) + 7 * (week + 1)
    return on_or_before(first + days - 1, values.get("E", 0))


def _of_week(year: int, week: int, day_of_week: int) -> int:
    return on_or_before(days_from_civil(year, 1), 0) + day_of_week + 7 * (week - 1)


LETTERS = "GyMdkHmsSEDFwWahKzZYuXL"
DAY_MS = 86_400_000
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


class SimpleDateFormat:
    """A pattern of dates and times as ``java.text.SimpleDateFormat`` has it.

    Args:
        pattern: Such as ``yyyy-MM-dd'T'HH:mm:ss.SSSX``.

    Raises:
        JavaTextError: The pattern has a letter that means nothing, or a quote that does not end.

    Example:
        >>> form = SimpleDateFormat("yyyy-MM-dd HH:mm")
        >>> form.format(1_700_000_000_123), form.parse("2023-13-01 25:00")
        ('2023-11-14 22:13', 1704157200000)
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._parts = _compiled(pattern)

    def format(self, ms: int) -> str:
        """Return the text of a moment, given in milliseconds since 1970."""
        days, of_day = divmod(ms, DAY_MS)
        moment = _Moment(days, of_day)
        return "".join(part if isinstance(part, str) else moment.text(part.letter, part.count) for part in self._parts)

    def parse(self, text: str) -> int:
        """Return the milliseconds since 1970 of the moment that a text begins with. Fields beyond their range count on.

        Raises:
            JavaTextError: The text does not match the pattern.
        """
        moment_ms = parse_parts(self._parts, text)
        if moment_ms is None:
            raise JavaTextError(f'Unparseable date: "{text}"')
        return moment_ms


def _compiled(pattern: str) -> tuple[str | Part, ...]:
    parts: list[str | Part] = []
    at, quoted = 0, False
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "'":
            if pattern.startswith("'", at):
                parts.append("'")
                at += 1
            else:
                quoted = not quoted
        elif quoted or not (character.isascii() and character.isalpha()):
            parts.append(character)
        else:
            if character not in LETTERS:
                raise JavaTextError(f"Illegal pattern character '{character}'")
            start = at - 1
            while pattern.startswith(character, at):
                at += 1
            if character == "X" and at - start > 3:
                raise JavaTextError(f"invalid ISO 8601 format: length={at - start}")
            parts.append(Part(character, at - start))
    if quoted:
        raise JavaTextError("Unterminated quote")
    return tuple(parts)


class _Moment:
    """The fields of one moment."""

    def __init__(self, days: int, of_day: int) -> None:
        self.days, self.of_day = days, of_day
        self.year, self.month, self.day = civil_from_days(days)
        self.weekday = weekday(days)
        self.of_year = days - days_from_civil(self.year, 1) + 1

    def text(self, letter: str, count: int) -> str:
        match letter:
            case "G":
                eras = ("AD", "Anno Domini") if self.year > 0 else ("BC", "Before Christ")
                return eras[count >= 4]
            case "y" | "Y":
                year = self.year if letter == "y" else self._week()[0]
                shown = year if year > 0 else 1 - year
                return f"{shown % 100:02}" if count == 2 else f"{shown:0{count}}"
            case "M" | "L":
                name = MONTHS[self.month - 1]
                return name if count >= 4 else name[:3] if count == 3 else f"{self.month:0{count}}"
            case "E":
                return DAYS[self.weekday] if count >= 4 else DAYS[self.weekday][:3]
            case "a":
                return "AM" if self.of_day < DAY_MS // 2 else "PM"
            case "z":
                return "Coordinated Universal Time" if count >= 4 else "UTC"
            case "Z":
                return "+0000"
            case "X":
                return "Z"
        return f"{self._number(letter):0{count}}"

    def _number(self, letter: str) -> int:
        hour = self.of_day // 3_600_000
        return {
            "d": self.day,
            "H": hour,
            "k": hour or 24,
            "K": hour % 12,
            "h": hour % 12 or 12,
            "m": self.of_day // 60_000 % 60,
            "s": self.of_day // 1000 % 60,
            "S": self.of_day % 1000,
            "D": self.of_year,
            "F": (self.day - 1) // 7 + 1,
            "w": self._week()[1],
            "W": (self.day - 1 + (self.weekday - self.day + 1) % 7) // 7 + 1,
            "u": self.weekday or 7,
        }[letter]

    def _week(self) -> tuple[int, int]:
        """Year and number of the week: weeks begin on Sunday, and the first has 1 January."""
        first = (self.weekday - self.of_year + 1) % 7  # the weekday of 1 January
        length = year_length(self.year)
        if self.of_year > length - (first + length) % 7:
            return self.year + 1, 1
        return self.year, (self.of_year - 1 + first) // 7 + 1
