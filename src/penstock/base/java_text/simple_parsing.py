"""How ``SimpleDateFormat`` reads a text: greedy numbers, names in any case, fields that run over."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

from penstock.base.java_text.calendar_days import civil_from_days, days_from_civil, month_length, on_or_before

__all__ = ["Part", "parse_parts"]

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
    """What was read, by letter, with the order in which it was: later fields win."""

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
