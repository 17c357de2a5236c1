"""Conversion of durations and points in time to milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from penstock.errors import ConfigError

__all__ = [
    "DurationLike",
    "TimestampLike",
    "duration_ms",
    "format_duration",
    "timedelta_of",
    "timedelta_text",
    "timestamp_ms",
]

DurationLike = int | str | timedelta
TimestampLike = int | str | datetime | date

_UNITS_MS: dict[str, float] = {}
for _names, _factor in (
    (("ms", "milli", "millis", "msec", "millisecond"), 1),
    (("s", "sec", "second"), 1_000),
    (("m", "min", "minute"), 60_000),
    (("h", "hr", "hour"), 3_600_000),
    (("d", "day"), 86_400_000),
    (("w", "week"), 604_800_000),
):
    for _name in _names:
        _UNITS_MS[_name] = _factor
        _UNITS_MS.setdefault(_name if _name in {"ms", "millis"} else _name + "s", _factor)  # "ms" is not "m" + "s"

_PART = re.compile(r"([+-]?\d+(?:[._]\d+)*)\s*([a-z]+)", re.IGNORECASE)
_ISO = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<w>\d+(?:\.\d+)?)W)?(?:(?P<d>\d+(?:\.\d+)?)D)?"
    r"(?P<time>T(?:(?P<h>\d+(?:\.\d+)?)H)?(?:(?P<m>\d+(?:\.\d+)?)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_EXACT = re.compile(r"(-?)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,6})\d*)?S)?)?")
_HINT = 'Write milliseconds (60_000), "1 minute", "1h 30m", "PT1M" or datetime.timedelta(minutes=1).'
_TIMESTAMP_HINT = 'Write milliseconds since 1970, "2024-05-01T12:00:00Z" or a datetime.'


def duration_ms(value: DurationLike, what: str = "duration") -> int:
    """Convert a duration to milliseconds.

    >>> duration_ms("1 minute"), duration_ms("PT1M"), duration_ms(timedelta(minutes=1)), duration_ms(60_000)
    (60000, 60000, 60000, 60000)
    >>> duration_ms("1h 30m")
    5400000

    Args:
        value: Milliseconds, a text with units, an ISO-8601 duration, or a timedelta.
        what: Its name in error messages.

    Raises:
        ConfigError: The value is not a duration, or not a whole number of milliseconds.
    """
    if isinstance(value, bool):
        raise ConfigError(f"{what} is {value!r}, which is not a duration", hint=_HINT)
    if isinstance(value, int):
        return value
    if isinstance(value, timedelta):
        whole, rest = divmod(value, timedelta(milliseconds=1))
        if rest:
            raise ConfigError(f"{what} {value!r} is not a whole number of milliseconds", hint=_HINT)
        return whole
    if isinstance(value, str):
        milliseconds = _parse(value.strip())
        if milliseconds is not None and milliseconds == round(milliseconds):
            return round(milliseconds)
    raise ConfigError(f"{what} is {value!r}, which is not a duration", hint=_HINT)


def _parse(text: str) -> float | None:
    if re.fullmatch(r"[+-]?\d[\d_]*", text):
        return int(text)
    iso = _ISO.fullmatch(text)
    if iso and any(iso[unit] for unit in "wdhms") and iso["time"] not in {"T", "t"}:
        total = sum(round(float(iso[unit] or 0) * _UNITS_MS[unit], 6) for unit in "wdhms")
        return -total if iso["sign"] == "-" else total
    total, end = 0.0, 0
    for part in _PART.finditer(text):
        unit = _UNITS_MS.get(part[2].lower())
        if unit is None or text[end : part.start()].strip(" ,"):
            return None
        total += round(float(part[1].replace("_", "")) * unit, 6)
        end = part.end()
    return total if end and not text[end:].strip() else None


def format_duration(milliseconds: int) -> str:
    """Format a duration as a short text that `duration_ms` can read.

    >>> format_duration(5_400_000), format_duration(1_500), format_duration(0)
    ('1h 30m', '1s 500ms', '0ms')
    """
    parts = []
    rest = abs(milliseconds)
    for unit, factor in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, rest = divmod(rest, factor)
        if count:
            parts.append(f"{'-' if milliseconds < 0 else ''}{count}{unit}")
    return " ".join(parts) or "0ms"


def timestamp_ms(value: TimestampLike, what: str = "timestamp") -> int:
    """Convert a point in time to milliseconds since 1970-01-01 UTC; a datetime without a zone is UTC.

    >>> timestamp_ms("1970-01-01T00:00:01Z"), timestamp_ms(1_000), timestamp_ms("1970-01-02")
    (1000, 1000, 86400000)

    Raises:
        ConfigError: The value is not a point in time.
    """
    if isinstance(value, bool):
        raise ConfigError(f"{what} is {value!r}, which is not a point in time", hint=_TIMESTAMP_HINT)
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d{5,30}\s*", value):
        value = int(value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ConfigError(f"{what} is {value}, which has more than 64 bits", hint=_TIMESTAMP_HINT)
        return value
    if isinstance(value, str):
        text = value.strip()
        try:
            value = datetime.fromisoformat(text)
        except ValueError as error:
            raise ConfigError(f"{what} is {text!r}, which is not a point in time", hint=_TIMESTAMP_HINT) from error
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    raise ConfigError(f"{what} is {value!r}, which is not a point in time", hint=_TIMESTAMP_HINT)


def timedelta_of(text: str) -> timedelta:
    """Return a duration of days to seconds (ISO 8601), exact to microseconds; raise ValueError if it is none.

    >>> timedelta_of("P1DT2H0.5S")
    datetime.timedelta(days=1, seconds=7200, microseconds=500000)
    """
    match = _EXACT.fullmatch(text)
    if match is None or text.endswith(("P", "T")):
        raise ValueError(text)
    sign, days, hours, minutes, seconds, fraction = match.groups()
    length = timedelta(
        days=int(days or 0),
        hours=int(hours or 0),
        minutes=int(minutes or 0),
        seconds=int(seconds or 0),
        microseconds=int((fraction or "0").ljust(6, "0")),
    )
    return -length if sign else length


def timedelta_text(value: timedelta) -> str:
    """Return a duration as text that `timedelta_of` reads.

    >>> timedelta_text(timedelta(days=-1, hours=2))
    '-PT79200S'
    """
    whole = abs(value)
    fraction = f".{whole.microseconds:06}".rstrip("0") if whole.microseconds else ""
    days = f"{whole.days}D" if whole.days else ""
    return f"{'-' if value < timedelta() else ''}P{days}T{whole.seconds}{fraction}S"
