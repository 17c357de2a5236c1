"""Java's ``SimpleDateFormat``, in English and UTC: formatting, and lenient parsing."""

from __future__ import annotations

from penstock.base.java_text.calendar_days import civil_from_days, days_from_civil, weekday, year_length
from penstock.base.java_text.simple_parsing import Part, parse_parts
from penstock.base.java_text.text_error import JavaTextError

__all__ = ["SimpleDateFormat"]

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
