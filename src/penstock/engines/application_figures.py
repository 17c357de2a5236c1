"""Figures of a running application for people: the record of a batch, totals since the start, and the present rates."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.base.terminal.html import facts_html
from penstock.base.terminal.human_numbers import counted
from penstock.engines.spark.progress import counted_by
from penstock.metrics.batch_records import BatchRecord, skew_of

if TYPE_CHECKING:
    from penstock.engines.spark.progress import BatchProgress
    from penstock.metrics.lag import PartitionLag

__all__ = ["BatchMeter", "RunFigures", "RunLog", "batch_record"]


def batch_record(progress: BatchProgress, ended_ms: int, lags: tuple[PartitionLag, ...]) -> BatchRecord:
    """Make the record of a batch.

    Args:
        progress: The reports of its tasks.
        ended_ms: When it ended.
        lags: How far the application is behind, as of the last look; it may be older than the batch.
    """
    lags = _after(progress, lags)
    steps: dict[str, float] = defaultdict(float)
    slowest: dict[str, float] = defaultdict(float)
    drops: dict[tuple[str, str], int] = defaultdict(int)
    for task in progress.tasks:
        seconds: Mapping[str, float] = task.get("seconds", {})
        for step, spent in seconds.items():
            steps[step] += spent
            slowest[step] = max(slowest[step], spent)
        for counts in counted_by(task):
            for node, why, count in counts.get("reasons", ()):
                drops[node, why] += count
    return BatchRecord(
        progress.batch,
        ended_ms,
        progress.seconds,
        progress.records_in,
        progress.records_out,
        progress.dropped,
        dict(steps),
        dict(slowest),
        skew_of(progress.tasks),
        dict(drops),
        lags,
        tuple(_shown(task) for task in progress.tasks),
        dict(progress.lost),
        progress.segment_bytes,
        _waiting(progress, lags),
    )


def _after(progress: BatchProgress, lags: tuple[PartitionLag, ...]) -> tuple[PartitionLag, ...]:
    """Return lags with the positions to which the batch has moved."""
    positions: dict[str, int] = {}
    for task in progress.tasks:
        positions |= task.get("ends", {})
    return tuple(_moved(lag, positions.get(f"{lag.topic}-{lag.partition}", lag.position)) for lag in lags)


def _moved(lag: PartitionLag, position: int) -> PartitionLag:
    if position <= lag.position:
        return lag
    seconds = None if position < lag.end else 0.0
    return replace(lag, position=position, end=max(position, lag.end), seconds=seconds)


def _waiting(progress: BatchProgress, lags: tuple[PartitionLag, ...]) -> int:
    """Return how many records wait: as of the batch, or else of the last look; -1 before the first."""
    if progress.lag:
        return sum(progress.lag.values())
    return sum(lag.records for lag in lags) if lags else -1


def _shown(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is shown of a task's report."""
    shown: dict[str, Any] = {
        "task": task["task"],
        "records_in": task.get("records_read", 0),
        "records_out": task.get("records_written", 0),
        "dropped": task.get("dropped", 0),
        "seconds": {step: round(time, 4) for step, time in task.get("seconds", {}).items()},
        "records": task.get("records_in", task.get("records_read", 0)),
        "rows": sum(task.get("entries", {}).values()),
        "host": (task.get("replica") or [task.get("thread", "")])[0],
    }
    return shown | {
        name: task[name] for name in ("began_ms", "level", "thread", "busy_s", "recovered", "restored") if name in task
    }


_log = own_logger("penstock.app")
_STEP_ENDS = re.compile("[,:]")
_RECENT_S = 10.0
_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Figures of an application since its start; `line` and `summary` put them into words.

    Attributes:
        application: The ``application.id``.
        state: The application's state.
        seconds: The time since the start.
        batches: The number of batches that did something; of stream threads, of looks at them.
        has_batches: Whether it runs in micro-batches.
        records_in: Records read from source topics.
        records_out: Records written to sink topics.
        dropped: Records that were dropped: late, null keys, skipped.
        never_found: Fields that operators use and no value has had yet, summed over tasks.
        rate: Records read per second, over the last ten seconds.
        seconds_a_batch: The mean time of the batches of the last ten seconds, else the time of the newest one.
        busy_seconds: The time that all batches have taken.
        lag: Records that wait in all partitions; None while unknown.
        state_rows: Rows in all stores.
        doing: The present step before tasks run; empty afterwards.
    """

    application: str
    state: str
    seconds: float = 0.0
    batches: int = 0
    records_in: int = 0
    records_out: int = 0
    dropped: int = 0
    rate: float = 0.0
    seconds_a_batch: float = 0.0
    busy_seconds: float = 0.0
    lag: int | None = None
    state_rows: int = 0
    doing: str = ""
    never_found: int = 0
    has_batches: bool = True

    def line(self) -> str:
        """Describe the present in one line."""
        if self.doing:
            return f"{self.application} {self.state}: {self.doing} ({self.seconds:.0f} s since the start)"
        dropped = f", {self.dropped:,} dropped" if self.dropped else ""
        dropped += f", {counted(self.never_found, 'field')} never found" if self.never_found else ""
        took = f"{self.seconds_a_batch:.2f} s a batch, " if self.has_batches else ""
        return (
            f"{self.application} {self.state}: {self.rate:,.0f} records/s, lag {self._lag()}, "
            f"{took}state {counted(self.state_rows, 'row')}; {self.records_in:,} in, "
            f"{self.records_out:,} out{dropped}"
            + (f", {counted(self.batches, 'batch', 'batches')}" if self.has_batches else "")
        )

    def summary(self) -> str:
        """Describe the whole run in one sentence."""
        mean = self.busy_seconds / self.batches if self.batches else 0.0
        return (
            f"{self.application} {self.state} after {self.seconds:,.0f} s: {counted(self.records_in, 'record')} in, "
            f"{self.records_out:,} out, {self.dropped:,} dropped, "
            + (f"{counted(self.batches, 'batch', 'batches')} of {mean:.2f} s, " if self.has_batches else "")
            + f"lag {self._lag()}, state {counted(self.state_rows, 'row')}"
            + (f"; {counted(self.never_found, 'field')} never found" if self.never_found else "")
        )

    def _repr_html_(self) -> str:
        """Make the table that a notebook shows."""
        facts = {
            "state": self.state,
            "records a second": self.rate,
            "lag": self.lag,
            **({"seconds a batch": self.seconds_a_batch} if self.has_batches else {}),
            "rows of state": self.state_rows,
            "records in": self.records_in,
            "records out": self.records_out,
            "dropped": self.dropped,
            **({"batches": self.batches} if self.has_batches else {}),
        }
        if self.doing:
            facts = {"state": self.state, "doing": self.doing, "seconds": self.seconds}
        return facts_html(self.application, facts)

    def _lag(self) -> str:
        return "not known" if self.lag is None else f"{self.lag:,}"


class BatchMeter:
    """A progress listener that sums the figures of batches.

    Args:
        application: The ``application.id``.
        now: Returns the time in seconds.
    """

    def __init__(self, application: str, now: Callable[[], float] = time.monotonic) -> None:
        self._application, self._now = application, now
        self._lock = threading.Lock()
        self._started = now()
        self._recent: deque[tuple[float, int, float]] = deque()  # end of a batch, its records, its seconds
        self._rows: dict[str, int] = {}  # by task
        self._never_found: dict[str, int] = {}  # by task
        self._sums = {"batches": 0, "records_in": 0, "records_out": 0, "dropped": 0}
        self._busy_seconds = self._last_seconds = 0.0
        self._lag: int | None = None
        self._doing = ""
        self.has_batches = True

    def __call__(self, progress: BatchProgress) -> None:
        with self._lock:
            self._recent.append((self._now(), progress.records_in, progress.seconds))
            self._busy_seconds += progress.seconds
            self._last_seconds = progress.seconds
            done = (1, progress.records_in, progress.records_out, progress.dropped)
            self._sums = {name: total + more for (name, total), more in zip(self._sums.items(), done, strict=True)}
            wanting = {task["task"]: task.get("fields_never_found", 0) for task in progress.tasks}
            self._never_found |= wanting
            self._rows |= {task["task"]: sum(task["entries"].values()) for task in progress.tasks if "entries" in task}
        self.behind(progress.lag)

    def doing(self, what: str) -> None:
        """Note the present step before tasks run, and log it when it begins; an empty text says that they run.

        The progress of a step, behind a comma or colon, is part of the lines of `RunLog` alone.
        """
        has_begun = _STEP_ENDS.split(what)[0] != _STEP_ENDS.split(self._doing)[0]
        self._doing = what
        if not has_begun:
            return
        if what:
            _log.info("%s: %s", self._application, what)
        else:
            _log.info("%s: tasks run, %.1f s after the start", self._application, self._now() - self._started)

    def behind(self, lag: Mapping[str, int]) -> None:
        """Note the number of waiting records by ``topic-partition``; an empty mapping changes nothing."""
        if lag:
            self._lag = sum(lag.values())

    def figures(self, state: str) -> RunFigures:
        """Return the present figures.

        Args:
            state: The application's state.
        """
        with self._lock:
            now = self._now()
            while self._recent and self._recent[0][0] <= now - _RECENT_S:
                self._recent.popleft()
            times = [seconds for _, _, seconds in self._recent] or [self._last_seconds]
            span = min(_RECENT_S, max(now - self._started, 1.0))
            return RunFigures(
                self._application,
                state,
                now - self._started,
                **self._sums,
                rate=sum(records for _, records, _ in self._recent) / span,
                seconds_a_batch=sum(times) / len(times),
                busy_seconds=self._busy_seconds,
                lag=self._lag,
                state_rows=sum(self._rows.values()),
                doing=self._doing,
                never_found=sum(self._never_found.values()),
                has_batches=self.has_batches,
            )


class RunLog:
    """A log of the figures every ten seconds and of a summary at the end, by the logger ``penstock.app`` at level INFO.

    Args:
        figures: Returns the present figures.
        now: Returns the time in seconds.
    """

    def __init__(self, figures: Callable[[], RunFigures], now: Callable[[], float] = time.monotonic) -> None:
        self._figures, self._now = figures, now
        self._said_at = now()

    def tick(self) -> None:
        """Log the figures if ten seconds have passed; call it often."""
        if self._now() - self._said_at >= _EVERY_S:
            self._said_at = self._now()
            self._say(RunFigures.line)

    def end(self) -> None:
        """Log the summary."""
        self._say(RunFigures.summary)

    def _say(self, words: Callable[[RunFigures], str]) -> None:
        figures = self._figures()
        facts = {name: value for name, value in asdict(figures).items() if name not in ("application", "doing")}
        _log.info("%s", words(figures), extra={"application": figures.application, "figures": facts})
