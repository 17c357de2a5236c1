"""One batch as the console keeps it: a line of figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from penstock.metrics.batches import BatchRecord

__all__ = ["STEPS", "UNKNOWN", "BatchLine", "Minute", "step_of"]

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
