"""Batches over time and the tasks of one of them, charts beside earlier times, and errors in groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.escapes import json_text
from penstock.base.terminal.human_numbers import size
from penstock.console.app_view import STEPS, UNKNOWN, BatchLine, Minute, Picture, step_of
from penstock.console.exposure import HIDDEN, LETTER_HEADERS
from penstock.console.messages import MessageQuery, original_of, read_messages
from penstock.console.web.page import Visit, whole
from penstock.console.web.pages.application_pages import failure_of, head_of, linked_nodes, linked_places, linked_topics
from penstock.metrics.batch_records import busy_seconds, times_the_median
from penstock.serde.plain_json import text_of

__all__ = ["RANGES", "ShownRange", "batches", "charts_of", "errors", "range_of", "tasks"]

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class ShownRange:
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
    ShownRange("15m", "15 minutes", 900_000, 5_000),
    ShownRange("1h", "1 hour", 3_600_000, _MINUTE_MS),
    ShownRange("1d", "1 day", 86_400_000, 5 * _MINUTE_MS),
)
PASTS = (("", "nothing", 0), ("hour", "an hour before", 3_600_000), ("day", "a day before", 86_400_000))


def range_of(name: str) -> ShownRange:
    """Return the range of a name; the first one for any other."""
    return next((each for each in RANGES if each.name == name), RANGES[0])


def charts_of(
    picture: Picture, minutes: Sequence[Sequence[Any]], shown: ShownRange, past_ms: int, end_ms: int
) -> dict[str, Any]:
    """Return the charts of a range, for JSON: the times of the steps, and for each chart its unit and its lines.

    Args:
        picture: The application.
        minutes: The minutes of its history, see `penstock.console.app_view.Minute`.
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

    return {
        "times": [at // 1000 for at in starts],
        "charts": [
            {"title": "Records a second", "unit": "/s", "lines": [*lines("in", _in), *lines("out", _out)]},
            {"title": "Lag", "unit": "records", "lines": lines("lag", _lag)},
            {
                "title": "Busy time by report" if picture.is_continuous else "Time of a batch",
                "unit": "s",
                "lines": lines("time", _time),
            },
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
        step_sums = sums.setdefault(each.start_ms // step * step, _Sums(step))
        step_sums.add(each.batches, each.seconds, each.records_in, each.records_out, each.lag)
    return sums


def _steps(picture: Picture, kept: Sequence[Minute], shown: ShownRange, begin: int) -> dict[int, _Sums]:
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
            step_sums = sums.get(at)
            if step_sums is None or step_sums.span_ms != step:
                step_sums = sums[at] = _Sums(step)
            lag = line.lag if at == parts[-1][0] else UNKNOWN
            step_sums.add(share, line.seconds * share, line.records_in * share, line.records_out * share, lag)
    if lines and picture.is_running:  # a step without a batch has processed nothing, and the lag is the last known one
        since = max(first // step * step, begin)
        lags = [line.lag for line in lines if line.end_ms <= since and line.lag != UNKNOWN]
        lag_then = lags[-1] if lags else None
        for at in range(since, lines[-1].end_ms, step):
            step_sums = sums.setdefault(at, _Sums(step))
            step_sums.lag = lag_then = lag_then if step_sums.lag is None else step_sums.lag
    return sums


def _shares(line: BatchLine, step: int, begin: int) -> list[tuple[int, float]]:
    """Return the steps in which a batch ran, and how much of it in each; a short one counts where it ended."""
    span = line.seconds * 1000
    if span <= step:
        return [(line.end_ms // step * step, 1.0)]
    start = line.end_ms - span
    steps = range(max(int(start) // step * step, begin), line.end_ms, step)
    return [(at, (min(at + step, line.end_ms) - max(at, start)) / span) for at in steps]


_TABLE = 40
_DAY = 1440
_GROUPS = 50  # of errors on one page
_WIDTH = 1000.0
_MOST = 20


def batches(visit: Visit) -> Mapping[str, Any]:
    """Return the charts of a range, the last batches, and the tasks of the chosen one as bars."""
    picture, facts = head_of(visit)
    application = visit.application
    lines = picture.lines
    shown = range_of(visit.get("range"))
    past_ms = next((length for name, _, length in PASTS if name == visit.get("past")), 0)
    asked = whole(visit.get("batch"), "the batch", 0, 2**62) if visit.get("batch") else None
    chosen = picture.batch(asked)
    kept_minutes = [] if application is None else application.minutes()
    minutes = kept_minutes[-_DAY:]
    return {
        **facts,
        "charts": json_text(charts_of(picture, kept_minutes, shown, past_ms, picture.figures_ms)),
        "ranges": RANGES,
        "range": shown,
        "pasts": PASTS,
        "lines": lines[:-_TABLE:-1],
        "kept": {each["batch"] for each in picture.get("tasks", ())},
        "chosen": chosen,
        "missing": asked if chosen is None else None,
        "bars": [] if chosen is None or picture.is_continuous else _bars(chosen["tasks"]),
        "span": 0.0 if chosen is None or picture.is_continuous else _span(chosen["tasks"]) / 1000,
        "steps": [*STEPS, "other"],
        "threads": _threads(picture),
        "task_rows": _task_rows(picture),
        "minutes": minutes[::-1],
    }


def _threads(picture: Picture) -> list[dict[str, Any]]:
    """Return the stream threads with their steps as parts of a bar; empty for micro-batches."""
    rows = []
    for thread in picture.thread_times():
        total, at, parts = max(sum(thread.steps.values()), 1e-9), 0.0, []
        for step, seconds in thread.steps.items():
            width = seconds / total * _WIDTH
            shown = "wait" if step == "poll" else step_of(step)
            parts.append({"step": shown, "name": step, "x": round(at, 1), "width": round(width, 1), "seconds": seconds})
            at += width
        busiest = max(thread.tasks, key=thread.tasks.__getitem__, default="")
        rows.append({"thread": thread, "parts": parts, "busiest": busiest})
    return rows


def _task_rows(picture: Picture) -> list[dict[str, Any]]:
    """Return the tasks of stream threads with their busy time, the busiest first; empty for micro-batches."""
    times = picture.task_times() if picture.is_continuous else {}
    ratios = dict(zip(times, times_the_median(list(times.values())), strict=True))
    newest = {task["task"]: task for task in picture.newest_tasks()}
    rows = [{**newest[name], "busy": busy, "ratio": ratios[name]} for name, busy in times.items()]
    return sorted(rows, key=lambda row: -row["busy"])


def _ends(task: Mapping[str, Any]) -> float:
    return float(task["began_ms"] + 1000 * sum(task["seconds"].values()))


def _span(tasks: list[Mapping[str, Any]]) -> float:
    """Return the milliseconds from the begin of the first task to the end of the last."""
    return max(map(_ends, tasks), default=0.0) - min((task["began_ms"] for task in tasks), default=0.0)


def _bars(tasks: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if not tasks:
        return []
    first, span = min(task["began_ms"] for task in tasks), max(_span(tasks), 1.0)
    seconds = [busy_seconds(task) for task in tasks]
    bars = []
    for task, taken, ratio in zip(tasks, seconds, times_the_median(seconds), strict=True):
        at, parts = (task["began_ms"] - first) / span * _WIDTH, []
        for step, each in task["seconds"].items():
            width = each * 1000 / span * _WIDTH
            parts.append(
                {
                    "step": step_of(step),
                    "name": step,
                    "x": round(at, 1),
                    "width": round(max(width, 0.5), 1),
                    "seconds": each,
                }
            )
            at += width
        bars.append({**task, "parts": parts, "taken": taken, "ratio": ratio})
    return sorted(bars, key=lambda each: [int(part) if part.isdecimal() else 0 for part in each["task"].split("_")])


def tasks(visit: Visit) -> Mapping[str, Any]:
    """Return the newest report of each task, with its time and what it restored."""
    picture, facts = head_of(visit)
    newest = picture.newest_tasks()
    seconds = [busy_seconds(task) for task in newest]
    rows = [
        {**task, "taken": taken, "ratio": ratio, "restored": _restored(task)}
        for task, taken, ratio in zip(newest, seconds, times_the_median(seconds), strict=True)
    ]
    return {**facts, "rows": rows}


def _restored(task: Mapping[str, Any]) -> str:
    if task.get("recovered"):
        return "took over the outputs of an earlier attempt"
    counts = task.get("restored")
    if not isinstance(counts, list) or len(counts) != 2:
        return ""
    return f"{counts[0]:,} segments, {size(counts[1])}"


def errors(visit: Visit) -> Mapping[str, Any]:
    """Return errors and drops in groups, those with the most records of the last hour first, and the dead letters."""
    picture, facts = head_of(visit)
    settings = picture.get("facts", {}).get("settings", {})
    there = linked_topics(visit)
    letters = settings.get("errors.dead.letter.queue.topic.name")
    newest = newest_letters(visit, letters) if letters in there else []
    all_groups = picture.errors
    groups = all_groups[:_GROUPS]
    places = [each.place for group in groups for each in group.examples] + [each["original"] for each in newest]
    return {
        "newest": newest,
        **facts,
        "groups": [(each, each.by_minute(picture.figures_ms)) for each in groups],
        "left_out": len(all_groups) - len(groups),
        "nodes": linked_nodes(visit),
        "links": linked_places(visit, there, places),
        "failure": failure_of(visit, picture),
        "letters": letters if letters in there else None,
        "lost": picture.get("lost", {}),
    }


def newest_letters(visit: Visit, topic: str) -> list[dict[str, Any]]:
    """Return the newest messages of a topic of dead letters, the newest first; none where messages may not be seen.

    Args:
        visit: The visit.
        topic: The topic, which is in the log.
    """
    log = visit.site.log
    if log is None or not visit.site.permissions.messages:
        return []
    masked = visit.site.permissions.masked
    query = MessageQuery(topic, limit=_MOST, key_format="bytes", value_format="bytes", masked=masked)
    rows = read_messages(log, query).rows
    return [
        {
            "timestamp": row["timestamp"],
            "place": (topic, row["partition"], row["offset"]),
            "original": original_of(row["headers"]),
            "why": _why(row["headers"]),
        }
        for row in rows
    ]


def _why(headers: list[tuple[str, bytes | None]]) -> str:
    named = {name: text_of(value or b"") for name, value in headers}
    for prefix in LETTER_HEADERS:
        kind = named.get(f"{prefix}exception", "") or named.get(f"{prefix}exception.class.name", "")
        said = named.get(f"{prefix}message", "") or named.get(f"{prefix}exception.message", "")
        if kind or said:
            kind = kind.rpartition(".")[2]
            return kind if said == HIDDEN else f"{kind}: {said}"[:300]
    return ""
