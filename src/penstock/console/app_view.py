"""An application as the pages show it: lines of batches, figures, and where to look first."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from penstock.base.clock import unix_ms
from penstock.console.error_groups import ErrorGroup
from penstock.console.lag_trend import Trend, trend_of
from penstock.metrics.batch_records import BatchRecord, busy_seconds, times_the_median
from penstock.state.restores.restore_progress import Restore

__all__ = [
    "DIED",
    "ENDED",
    "STEPS",
    "UNKNOWN",
    "BatchLine",
    "Minute",
    "Picture",
    "findings_of",
    "sentence_of",
    "step_of",
]

# Lines of batches

UNKNOWN = -1
# Names of the shown steps, and the steps of task reports that they sum up.
STEPS: dict[str, tuple[str, ...]] = {
    "read": ("state", "read", "poll"),
    "process": ("process",),
    "publish": ("publish", "changelog", "replicas"),
    "write": ("write", "send", "commit"),
}
_OTHER = "other"


@dataclass(frozen=True, slots=True)
class BatchLine:
    """The figures of one batch, or of what stream threads did between two looks.

    Attributes:
        number: Its number.
        end_ms: When it ended.
        seconds: The time that it took.
        records_in: Records read from source topics.
        records_out: Records written to sink topics.
        dropped: Dropped records.
        lag: Records that wait in all partitions; -1 while unknown.
        skew: The time of its slowest task over that of the median task of the same sub-topology; 1 for none.
        segment_bytes: Bytes of state written.
        steps: Seconds of its tasks by step.
    """

    number: int
    end_ms: int
    seconds: float
    records_in: int
    records_out: int
    dropped: int
    lag: int
    skew: float
    segment_bytes: int
    steps: Mapping[str, float]

    @classmethod
    def of_record(cls, batch: BatchRecord) -> Self:
        """Return the line of a batch."""
        steps: dict[str, float] = {}
        for name, seconds in batch.steps.items():
            steps[step_of(name)] = round(steps.get(step_of(name), 0.0) + seconds, 4)
        return cls(
            batch.number,
            batch.ended_ms,
            round(batch.seconds, 4),
            batch.records_in,
            batch.records_out,
            batch.dropped,
            batch.waiting,
            round(batch.skew, 2),
            batch.segment_bytes,
            steps,
        )

    def record(self) -> BatchRecord:
        """Return what the line knows of its batch."""
        done = (self.records_in, self.records_out, self.dropped)
        record = BatchRecord(self.number, self.end_ms, self.seconds, *done, dict(self.steps), skew=self.skew)
        return replace(record, segment_bytes=self.segment_bytes, waiting=self.lag)

    def row(self) -> list[Any]:
        """Return it for JSON."""
        return [
            self.number, self.end_ms, self.seconds, self.records_in, self.records_out, self.dropped, self.lag,
            self.skew, self.segment_bytes, dict(self.steps),
        ]  # fmt: skip

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> Self:
        """Return what `row` has written."""
        return cls(*row)


@dataclass(frozen=True, slots=True)
class Minute:
    """The sums of the batches of one minute, for the history of a day."""

    start_ms: int
    batches: int = 0
    seconds: float = 0.0
    records_in: int = 0
    records_out: int = 0
    dropped: int = 0
    lag: int = UNKNOWN

    def plus(self, line: BatchLine) -> Minute:
        """Return the sums with one more batch; the lag is that of the newest one."""
        return Minute(
            self.start_ms,
            self.batches + 1,
            round(self.seconds + line.seconds, 3),
            self.records_in + line.records_in,
            self.records_out + line.records_out,
            self.dropped + line.dropped,
            self.lag if line.lag == UNKNOWN else line.lag,
        )

    def row(self) -> list[Any]:
        """Return it for JSON."""
        return [
            self.start_ms, self.batches, self.seconds, self.records_in, self.records_out, self.dropped, self.lag,
        ]  # fmt: skip


def step_of(name: str) -> str:
    """Return the shown step that a step of a task report belongs to.

    >>> step_of("changelog"), step_of("process"), step_of("a new one")
    ('publish', 'process', 'other')
    """
    return next((shown for shown, names in STEPS.items() if name in names), _OTHER)


# Figures

DIED = "DIED"
"""The state of an application whose process is gone without having ended it; Kafka has no name for it."""
ENDED = ("NOT_RUNNING", "ERROR", DIED)
_RECENT = 60
_OLD_MS = 30_000  # figures are written every few seconds, to object stores every fifteen


@dataclass(frozen=True, slots=True)
class PartitionBehind:
    """A source partition: its lag in records and seconds, and the part of its records that is still kept before it.

    Attributes:
        name: ``topic-partition``.
        position: The offset of the next record.
        lag: Records that wait.
        seconds: The age of the first of them; None while unknown.
        margin: The share of the kept records that lies before the position; retention reaches the position at 0.
    """

    name: str
    position: int | None
    lag: int
    seconds: float | None
    margin: float | None


@dataclass(slots=True)
class ThreadTime:
    """The time of a stream thread by what it was spent on, in the looks that are kept (about one a second).

    Attributes:
        name: The thread.
        steps: Step -> seconds; ``poll`` is waiting for records.
        tasks: Its tasks and the seconds of each one's own processing.
        records: Records that its tasks have processed.
    """

    name: str
    steps: dict[str, float] = field(default_factory=dict)
    tasks: dict[str, float] = field(default_factory=dict)
    records: int = 0

    def add(self, task: Mapping[str, Any]) -> None:
        """Add the report of a task, the last of which has the steps of the thread."""
        for step, seconds in task["seconds"].items():
            self.steps[step] = self.steps.get(step, 0.0) + seconds
        self.tasks[task["task"]] = self.tasks.get(task["task"], 0.0) + busy_seconds(task)
        self.records += task["records"]

    @property
    def busy(self) -> float:
        """The share of its time in which it did not wait for records."""
        total = sum(self.steps.values())
        return 1 - self.steps.get("poll", 0.0) / total if total else 0.0


class Picture:
    """Figures of an application.

    Args:
        document: The document of a `penstock.console.recorder.Recorder`.
        lines: The newest batches, oldest first, where they are at hand; else they are read from the document.
    """

    def __init__(self, document: Mapping[str, Any], lines: Sequence[BatchLine] | None = None) -> None:
        self._document = document
        self._lines = lines

    @property
    def document(self) -> Mapping[str, Any]:
        """All facts, as they are recorded."""
        return self._document

    @property
    def application(self) -> str:
        """The ``application.id``."""
        return str(self._document.get("application", ""))

    @property
    def state(self) -> str:
        """The state by Kafka's name."""
        return str(self._document.get("state", "NOT_RUNNING"))

    @property
    def is_running(self) -> bool:
        """Whether tasks run."""
        return self.state in ("RUNNING", "REBALANCING")

    @property
    def is_live(self) -> bool:
        """Whether rates, lag and times are those of now; else they are the last ones, as old as the document."""
        return self.state not in ENDED and unix_ms() - self.get("written_ms", 0) <= _OLD_MS

    @property
    def is_continuous(self) -> bool:
        """Whether stream threads run it; else micro-batches do."""
        return bool(self.get("facts", {}).get("mode") == "continuous")

    @property
    def is_in_batches(self) -> bool:
        """Whether micro-batches run it: False, too, before anything is known of it."""
        return bool(self.get("facts", {}).get("mode") == "micro_batch")

    def __getitem__(self, name: str) -> Any:
        return self._document[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a fact of the document."""
        return self._document.get(name, default)

    @cached_property
    def lines(self) -> Sequence[BatchLine]:
        """The newest batches, oldest first."""
        if self._lines is not None:
            return self._lines
        return [BatchLine.of_row(row) for row in self.get("lines", ())]

    @property
    def newest(self) -> BatchLine | None:
        """The newest batch."""
        return self.lines[-1] if self.lines else None

    @cached_property
    def recent(self) -> Sequence[BatchLine]:
        """The last sixty batches."""
        return self.lines[-_RECENT:]

    @property
    def batch_seconds(self) -> float:
        """The median time of the recent batches."""
        return statistics.median(line.seconds for line in self.recent) if self.recent else 0.0

    @property
    def skew(self) -> float:
        """The median skew of the recent batches."""
        return statistics.median(line.skew for line in self.recent) if self.recent else 1.0

    @cached_property
    def steps(self) -> dict[str, float]:
        """The share of each step in the time of the tasks of the recent batches."""
        sums: dict[str, float] = {}
        for line in self.recent:
            for step, seconds in line.steps.items():
                sums[step] = sums.get(step, 0.0) + seconds
        total = sum(sums.values())
        return {step: seconds / total for step, seconds in sums.items()} if total else {}

    @cached_property
    def partitions(self) -> list[PartitionBehind]:
        """The source partitions by name."""
        behind = self.get("behind", {})
        positions = self.get("positions", {})
        partitions_behind = []
        for name, lag in sorted(behind.get("lag", {}).items()):
            position = positions.get(name)
            seconds = behind.get("seconds", {}).get(name)
            bounds = behind.get("beginnings", {}).get(name)
            margin = None
            if bounds is not None and position is not None and bounds[1] > bounds[0]:
                margin = (position - bounds[0]) / (bounds[1] - bounds[0])
            partitions_behind.append(PartitionBehind(name, position, lag, 0.0 if not lag else seconds, margin))
        return partitions_behind

    @property
    def lag(self) -> int | None:
        """Records that wait; None while unknown."""
        return sum(each.lag for each in self.partitions) if self.partitions else None

    @property
    def behind_seconds(self) -> float | None:
        """The age of the oldest record that waits; 0 if none does, None while unknown."""
        if not self.partitions:
            return None
        if not self.lag:
            return 0.0
        return max((each.seconds for each in self.partitions if each.seconds), default=None)

    @cached_property
    def trend(self) -> Trend:
        """How the lag moves over the last minute, by least squares: after batches, and sampled while one runs."""
        points = [(line.end_ms / 1000, line.lag) for line in self.lines if line.lag != UNKNOWN]
        points += [(when_ms / 1000, lag) for when_ms, lag in self.get("lags", ())]
        return trend_of(sorted(points))

    @property
    def caught_up_seconds(self) -> float | None:
        """The time until nothing waits, at the present trend; None if the lag does not fall."""
        return self.trend.until_none(self.lag)

    @cached_property
    def shares(self) -> dict[str, float]:
        """The share of each node in the processing time of the last ten seconds, or else since the start."""
        rates = {node: each[2] for node, each in self.get("rates", {}).get("nodes", {}).items() if each[2] > 0}
        if not rates:
            rates = {node: each[2] for node, each in self.get("nodes", {}).items() if each[2] > 0}
        total = sum(rates.values())
        return {node: seconds / total for node, seconds in rates.items()} if total else {}

    @property
    def store_rows(self) -> dict[str, int]:
        """Rows of each store."""
        return {name: sum(by_task.values()) for name, by_task in self.get("stores", {}).items()}

    @cached_property
    def restores(self) -> list[Restore]:
        """The restores that are under way, the one with the most to do first."""
        under_way = [Restore.of_document(each) for each in self.get("restores", ())]
        return sorted(under_way, key=lambda each: each.share)

    @cached_property
    def errors(self) -> list[ErrorGroup]:
        """The errors and drops of the last day in groups; those with the most records of the last hour come first."""
        groups: list[ErrorGroup] = []
        with suppress(KeyError, TypeError, ValueError):  # another version's
            groups = [ErrorGroup.of_row(row) for row in self.get("errors", ())]
        return sorted(groups, key=lambda each: (-sum(each.by_minute(self.figures_ms)), -each.newest_ms))

    @property
    def figures_ms(self) -> int:
        """The time of the newest figures: now, or when they were written the last time."""
        return unix_ms() if self.is_live else int(self.get("written_ms", 0))

    @property
    def failure(self) -> Mapping[str, Any] | None:
        """The facts of the error that has ended the application: see `penstock.console.exposure.facts_of`."""
        facts = self.get("failure_facts")
        return facts if isinstance(facts, Mapping) else None

    def newest_tasks(self) -> list[dict[str, Any]]:
        """Return the newest report of each task that is still kept, by task."""
        newest: dict[str, dict[str, Any]] = {}
        for kept in self.get("tasks", ()):
            for task in kept["tasks"]:
                newest[task["task"]] = {**task, "batch": kept["batch"], "end_ms": kept["end_ms"]}
        return [newest[name] for name in sorted(newest, key=lambda name: [int(part) for part in name.split("_")])]

    def thread_times(self) -> list[ThreadTime]:
        """Return what each stream thread has done in the looks that are kept, by name; empty for micro-batches."""
        times: dict[str, ThreadTime] = {}
        for kept in self.get("tasks", ()):
            for task in kept["tasks"]:
                if "thread" in task:
                    thread_time = times.setdefault(task["thread"], ThreadTime(task["thread"]))
                    thread_time.add(task)
        return [times[name] for name in sorted(times)]

    def task_times(self) -> dict[str, float]:
        """Return the busy seconds of each task in the batches or looks that are kept."""
        times: dict[str, float] = {}
        for kept in self.get("tasks", ()):
            for task in kept["tasks"]:
                times[task["task"]] = times.get(task["task"], 0.0) + busy_seconds(task)
        return times

    def usual_seconds(self, task: str) -> float:
        """Return the median time of a task in the batches that are kept; 0 where there is none."""
        taken = [busy_seconds(each) for kept in self.get("tasks", ()) for each in kept["tasks"] if each["task"] == task]
        return statistics.median(taken) if taken else 0.0

    def batch(self, number: int | None = None) -> Mapping[str, Any] | None:
        """Return the tasks of a batch that is still kept, by default of the newest."""
        kept = self.get("tasks", [])
        batches = [each for each in kept if number is None or each["batch"] == number]
        return batches[-1] if batches else None


# Where to look first

_MOST = 6


@dataclass(frozen=True, slots=True)
class Finding:
    """A thing to look at.

    Attributes:
        kind: "task", "node", "partition", "store".
        name: Its name.
        share: How much of the whole it is, from 0 to 1.
        said: What about it, in words.
    """

    kind: str
    name: str
    share: float
    said: str


def findings_of(picture: Picture) -> list[Finding]:
    """Return the first things to look at, the largest share first.

    >>> findings_of(Picture({"nodes": {"A": [10, 10, 3.0], "B": [10, 10, 1.0]}}))[0]
    Finding(kind='node', name='A', share=0.75, said='75 % of the processing time')
    """
    findings = [*_tasks(picture)[:2], *_nodes(picture)[:2], *_partitions(picture)[:2]]
    findings += _stores(picture)[: max(1, _MOST - len(findings))]
    return sorted(findings, key=lambda each: -each.share)[:_MOST]


def sentence_of(picture: Picture, called: Mapping[str, str] | None = None) -> str:
    """Say in one sentence whether the lag grows, and what takes the time; empty if all is well.

    Args:
        picture: The application.
        called: Node -> the function that it calls, with its line, for names that nobody has chosen.

    >>> sampled = [[1000 * n, 100 + 60 * n] for n in range(30)]
    >>> facts = {"state": "RUNNING", "written_ms": 2**60, "lags": sampled, "nodes": {"PARSE": [10, 10, 3.0]}}
    >>> sentence_of(Picture(facts))
    'The lag grows by 60 records a second: PARSE takes 100 % of the processing time.'
    >>> slowly = {**facts, "lags": [[5000 * n, 100 + 2 * n] for n in range(12)]}
    >>> sentence_of(Picture(slowly), {"PARSE": "parse (a.py:4)"})
    'The lag grows by 0.4 records a second: parse (a.py:4) takes 100 % of the processing time.'
    """
    if not picture.is_live or picture.trend.word != "grows":
        return ""
    rate = picture.trend.per_second
    said = f"The lag grows by {f'{rate:,.0f}' if rate >= 10 else f'{rate:.1f}'} records a second"
    if under_way := picture.get("long_steps"):
        return f"{said}: {under_way[0]['what']}."
    node, share = max(picture.shares.items(), key=lambda item: item[1], default=("", 0.0))
    name = (called or {}).get(node, node)
    return f"{said}: {name} takes {share * 100:.0f} % of the processing time." if node else f"{said}."


def _tasks(picture: Picture) -> list[Finding]:
    batch, line = picture.batch(), picture.newest
    if batch is None or line is None or len(batch["tasks"]) < 2:
        return []
    seconds = {task["task"]: busy_seconds(task) for task in batch["tasks"]}
    ratios = dict(zip(seconds, times_the_median(list(seconds.values())), strict=True))
    whole = max(line.seconds, *seconds.values()) or 1e-9
    of = "the threads' time" if picture.is_continuous else "the batch"
    # In stream threads most tasks rest in one report: that a task works while others rest makes it no slow one.
    beside = {
        name: "" if picture.is_continuous else f", {ratio:.1f} times the median" for name, ratio in ratios.items()
    }
    return [
        Finding(
            "task",
            name,
            min(each / whole, 1.0),
            f"{each / whole * 100:.0f} % of {of}{beside[name]}",
        )
        for name, each in sorted(seconds.items(), key=lambda item: -item[1])
        if each > 0
    ]


def _nodes(picture: Picture) -> list[Finding]:
    ranked = sorted(picture.shares.items(), key=lambda item: -item[1])
    return [Finding("node", name, share, f"{share * 100:.0f} % of the processing time") for name, share in ranked]


def _partitions(picture: Picture) -> list[Finding]:
    total = picture.lag or 0
    ranked = sorted((each for each in picture.partitions if each.lag), key=lambda each: -each.lag)
    return [
        Finding(
            "partition",
            each.name,
            each.lag / total,
            f"{each.lag:,} records wait" + ("" if each.seconds is None else f", {each.seconds:,.0f} s behind"),
        )
        for each in ranked
    ]


def _stores(picture: Picture) -> list[Finding]:
    rows = picture.store_rows
    total = sum(rows.values())
    ranked = sorted(rows.items(), key=lambda item: -item[1])
    return [
        Finding("store", name, 0.0, f"{count:,} rows, {count / total * 100:.0f} % of all")
        for name, count in ranked
        if count
    ]
