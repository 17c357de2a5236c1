"""Figures as text in templates: numbers, durations, times, small pictures."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from penstock.base.terminal.human_numbers import duration, size, time_of

__all__ = ["FILTERS"]

_NONE = "-"
_UNITS = ((1e9, "G"), (1e6, "M"), (1e4, "k"))
_WIDTH, _HEIGHT = 160.0, 36.0


def whole(value: float | None) -> str:
    """Format a count in full.

    >>> whole(1204113), whole(None)
    ('1,204,113', '-')
    """
    return _NONE if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """Format a count or a rate in few characters.

    >>> short(0.25), short(9.96), short(512), short(12480), short(1204113)
    ('0.25', '10', '512', '12.5 k', '1.2 M')
    """
    if value is None:
        return _NONE
    for least, unit in _UNITS:
        if abs(value) >= least:
            return f"{value / (1000 if unit == 'k' else least):,.1f} {unit}"
    if 0 < abs(value) < 9.95:
        return f"{value:.2g}"
    return f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Format a length of time.

    >>> seconds(75), seconds(None)
    ('1 min 15 s', '-')
    """
    return _NONE if value is None else duration(value)


def percent(value: float | None) -> str:
    """Format a share.

    >>> percent(0.614), percent(0.004), percent(0)
    ('61 %', '0.4 %', '0 %')
    """
    if value is None:
        return _NONE
    return f"{value * 100:.1f} %" if 0 < value < 0.01 else f"{value * 100:.0f} %"


def when(value_ms: int | None) -> Markup | str:
    """Return a time as an element that the page shows in the reader's zone; in UTC without scripts."""
    if value_ms is None or value_ms < 0:
        return _NONE
    text = time_of(value_ms)
    try:
        dt.datetime.fromtimestamp(value_ms / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return text
    return Markup('<time datetime="{}">{}</time>').format(text, text)


def ago(value_ms: int | None) -> Markup | str:
    """Return a time as an element that the page shows as an age."""
    found = when(value_ms)
    return found.replace("<time ", Markup("<time data-ago "), 1) if isinstance(found, Markup) else found


def spark(values: Sequence[float | None], label: str = "") -> Markup:
    """Return a line of values as a small picture, scaled from zero to its largest value."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return Markup('<svg class="spark" viewBox="0 0 160 36" aria-hidden="true"></svg>')
    most = max(known) or 1
    step = _WIDTH / (len(values) - 1)
    points = [
        f"{number * step:.1f},{_HEIGHT - 2 - (_HEIGHT - 4) * value / most:.1f}"
        for number, value in enumerate(values)
        if value is not None
    ]
    line = " ".join(points)
    first, last = points[0].partition(",")[0], points[-1].partition(",")[0]
    return Markup(
        '<svg class="spark" viewBox="0 0 160 36" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<polygon points="{},36 {} {},36"/><polyline points="{}"/></svg>'
    ).format(label, first, line, last, line)


def columns(values: Sequence[int], label: str = "") -> Markup:
    """Return counts as columns of a small picture, scaled from zero to the largest."""
    most, width = max(values, default=0) or 1, _WIDTH / max(len(values), 1)
    found = Markup("").join(
        Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
            number * width, _HEIGHT - max(_HEIGHT * value / most, 2), width * 0.8, max(_HEIGHT * value / most, 2)
        )
        for number, value in enumerate(values)
        if value
    )
    return Markup(
        '<svg class="columns-chart" viewBox="0 0 160 36" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<path d="M0 36H160"/>{}</svg>'
    ).format(label, found)


def plain(value: Any) -> str:
    """Return the words of a name that was written for programs.

    >>> plain("read_committed")
    'read committed'
    """
    return str(value).replace("_", " ")


def filename(path: str) -> str:
    """Return the last part of a file's path.

    >>> filename("/srv/jobs/weblog.py"), filename("<stdin>")
    ('weblog.py', '<stdin>')
    """
    return path.replace("\\", "/").rpartition("/")[2] or path


FILTERS = {
    "whole": whole,
    "short": short,
    "seconds": seconds,
    "percent": percent,
    "when": when,
    "ago": ago,
    "spark": spark,
    "size": lambda value: _NONE if value is None else size(int(value)),
    "plain": plain,
    "filename": filename,
    "columns": columns,
}
