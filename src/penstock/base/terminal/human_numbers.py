"""Sizes, durations and times as text for people."""

from __future__ import annotations

import datetime as dt

__all__ = ["clock", "counted", "duration", "size", "span_of", "time_of", "with_article"]

_NO_END = 2**63 - 1  # of windows whose size is not known


def counted(count: int, noun: str, plural: str = "") -> str:
    """Format a number of things.

    >>> counted(1, "batch", "batches"), counted(1200, "record"), counted(0, "row")
    ('1 batch', '1,200 records', '0 rows')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def with_article(noun: str) -> str:
    """Return a noun behind "a" or "an", by its first letter.

    >>> with_article("integer"), with_article("KStream"), with_article("UUID")
    ('an integer', 'a KStream', 'a UUID')
    """
    return f"{'an' if noun[:1] in 'aeioAEIO' else 'a'} {noun}"


def size(count: int) -> str:
    """Format a number of bytes.

    >>> size(512), size(3 << 20), size(5 << 30)
    ('512 bytes', '3 MiB', '5.0 GiB')
    """
    number = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return f"{number:,.0f} {unit}"
        number /= 1024
    return f"{number:,.1f} GiB"


def duration(seconds: float) -> str:
    """Format a length of time.

    >>> duration(0), duration(0.0421), duration(4.25), duration(58), duration(125), duration(7300), duration(273_600)
    ('0 s', '42 ms', '4.2 s', '58 s', '2 min 5 s', '2 h 1 min', '3 d 4 h')
    """
    if seconds == 0:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def clock() -> str:
    """Return the present time of day, for the beginning of a line of a live view."""
    return f"{dt.datetime.now().astimezone():%H:%M:%S}"


def time_of(timestamp_ms: int, *, short: bool = False) -> str:
    """Format a timestamp as ISO text in UTC; one beyond the calendar stays a number.

    >>> time_of(0), time_of(60_000, short=True), time_of(2**63 - 1)
    ('1970-01-01T00:00:00.000Z', '1970-01-01T00:01:00Z', '9223372036854775807')
    """
    try:
        when = dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    precise = "milliseconds" if timestamp_ms % 1000 or not short else "seconds"
    return when.isoformat(timespec=precise).replace("+00:00", "Z")


def span_of(start_ms: int, end_ms: int) -> str:
    """Format the start and end of a window.

    >>> span_of(0, 60_000), span_of(0, 2**63 - 1)
    ('1970-01-01T00:00:00Z/1970-01-01T00:01:00Z', '1970-01-01T00:00:00Z/..')
    """
    end = ".." if end_ms == _NO_END else time_of(end_ms, short=True)
    return f"{time_of(start_ms, short=True)}/{end}"
