"""Throughput, lag and time of an application over 15 minutes, an hour or a day, beside those of an earlier time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.console.app_view import Picture
from penstock.console.batch_line import UNKNOWN, BatchLine, Minute

__all__ = ["PASTS", "RANGES", "Range", "charts_of", "range_of"]

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Range:
    """A stretch of time up to now.

    Attributes:
        name: Its name in addresses.
        title: Its name on the page.
        span_ms: Its length.
        step_ms: The time of one step of the charts.
    """

    name: str
    title: str
    span_ms: int
    step_ms: int


RANGES = (
    Range("15m", "15 minutes", 900_000, 5_000),
    Range("1h", "1 hour", 3_600_000, _MINUTE_MS),
    Range("1d", "1 day", 86_400_000, 5 * _MINUTE_MS),
)
PASTS = (("", "nothing", 0), ("hour", "an hour before", 3_600_000), ("day", "a day before", 86_400_000))


def range_of(name: str) -> Range:
    """Return the range of a name; the first one for any other."""
    return next((each for each in RANGES if each.name == name), RANGES[0])


def charts_of(
    picture: Picture, minutes: Sequence[Sequence[Any]], shown: Range, past_ms: int, end_ms: int
) -> dict[str, Any]:
    """Return the charts of a range, for JSON: the times of the steps, and for each chart its unit and its lines.

    Args:
        picture: The application.
        minutes: The minutes of its history, see `penstock.console.batch_line.Minute`.
        shown: The range.
        past_ms: How much earlier the time is that it is compared with; 0: with none.
        end_ms: The end of the range.
    """
    kept = [Minute(*row) for row in minutes]
    step = shown.step_ms
    last = end_ms // step * step  # the step that runs now would look like a fall
    starts = range(last - shown.span_ms, last, step)
    now = _steps(picture, kept, shown, starts.start)
    # Earlier times are known by the minute; a step of seconds shows the rate of its minute.
    before = _minutes(kept, max(step, _MINUTE_MS)) if past_ms else {}

    def earlier(at: int) -> _Sums | None:
        return before.get((at - past_ms) // max(step, _MINUTE_MS) * max(step, _MINUTE_MS))

    def lines(name: str, value: Callable[[_Sums], float | None]) -> list[dict[str, Any]]:
        own = [value(sums) if (sums := now.get(at)) else None for at in starts]
        drawn: list[dict[str, Any]] = [{"label": name, "values": own}]
        if past_ms:
            old = [value(sums) if (sums := earlier(at)) else None for at in starts]
            drawn.append({"label": f"{name}, {_past_title(past_ms)}", "values": old, "is_past": True})
        return drawn

    each_time = "look" if picture.is_continuous else "batch"
    return {
        "times": [at // 1000 for at in starts],
        "charts": [
            {"title": "Records a second", "unit": "/s", "lines": [*lines("in", _in), *lines("out", _out)]},
            {"title": "Lag", "unit": "records", "lines": lines("lag", _lag)},
            {"title": f"Time of a {each_time}", "unit": "s", "lines": lines("time", _time)},
        ],
    }


@dataclass(slots=True)
class _Sums:
    """What happened in one step."""

    span_ms: int
    count: float = 0
    seconds: float = 0.0
    records_in: float = 0
    records_out: float = 0
    lag: int | None = None

    def add(self, count: float, seconds: float, records_in: float, records_out: float, lag: int) -> None:
        self.count += count
        self.seconds += seconds
        self.records_in += records_in
        self.records_out += records_out
        self.lag = self.lag if lag == UNKNOWN else lag


def _in(sums: _Sums) -> float:
    return round(sums.records_in * 1000 / sums.span_ms, 2)


def _out(sums: _Sums) -> float:
    return round(sums.records_out * 1000 / sums.span_ms, 2)


def _lag(sums: _Sums) -> float | None:
    return sums.lag


def _time(sums: _Sums) -> float | None:
    return round(sums.seconds / sums.count, 4) if sums.count else None


def _past_title(past_ms: int) -> str:
    return next(title for _, title, length in PASTS if length == past_ms)


def _minutes(kept: Sequence[Minute], step: int) -> dict[int, _Sums]:
    """Return the sums of minutes by the start of their step."""
    sums: dict[int, _Sums] = {}
    for each in kept:
        found = sums.setdefault(each.start_ms // step * step, _Sums(step))
        found.add(each.batches, each.seconds, each.records_in, each.records_out, each.lag)
    return sums


def _steps(picture: Picture, kept: Sequence[Minute], shown: Range, begin: int) -> dict[int, _Sums]:
    """Return the sums of the steps of a range: of batches as far as they are kept one by one, else of minutes."""
    step = shown.step_ms
    if step >= _MINUTE_MS:
        return _minutes(kept, step)
    lines = picture.lines
    first = lines[0].end_ms if lines else 0
    sums: dict[int, _Sums] = {}
    for start, minute in _minutes(kept, _MINUTE_MS).items():
        if not lines or start + _MINUTE_MS <= first:
            sums |= dict.fromkeys(range(start, start + _MINUTE_MS, step), minute)
    for line in lines:
        parts = _shares(line, step, begin)
        for at, share in parts:
            found = sums.get(at)
            if found is None or found.span_ms != step:
                found = sums[at] = _Sums(step)
            lag = line.lag if at == parts[-1][0] else UNKNOWN
            found.add(share, line.seconds * share, line.records_in * share, line.records_out * share, lag)
    if lines and picture.is_running:  # a step without a batch has processed nothing, and the lag is the last known one
        since = max(first // step * step, begin)
        known = [line.lag for line in lines if line.end_ms <= since and line.lag != UNKNOWN]
        lag_then = known[-1] if known else None
        for at in range(since, lines[-1].end_ms, step):
            found = sums.setdefault(at, _Sums(step))
            found.lag = lag_then = lag_then if found.lag is None else found.lag
    return sums


def _shares(line: BatchLine, step: int, begin: int) -> list[tuple[int, float]]:
    """Return the steps in which a batch ran, and how much of it in each; a short one counts where it ended."""
    span = line.seconds * 1000
    if span <= step:
        return [(line.end_ms // step * step, 1.0)]
    start = line.end_ms - span
    steps = range(max(int(start) // step * step, begin), line.end_ms, step)
    return [(at, (min(at + step, line.end_ms) - max(at, start)) / span) for at in steps]
