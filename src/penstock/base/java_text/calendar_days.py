"""Days of Java's ``GregorianCalendar``: Julian before 15 October 1582, Gregorian from then on."""

from __future__ import annotations

__all__ = ["civil_from_days", "days_from_civil", "month_length", "on_or_before", "weekday", "year_length"]

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
    """Year, month and day of a number of days since 1970.

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
