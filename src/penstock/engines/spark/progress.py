"""The progress of a batch, as listeners receive it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.base.terminal.html import facts_html, table_html

__all__ = ["BatchProgress", "batch_progress", "counted_by"]


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Figures of one micro-batch.

    Attributes:
        batch: The number of the batch.
        records_in: Records read from source topics.
        records_out: Records written to sink topics.
        dropped: Kafka's ``dropped-records``: late, null keys, skipped.
        never_found: Fields that operators use and no value has had yet, summed over the tasks that ran.
        stream_time_ms: The largest timestamp seen; -1 for none.
        lag: Records that wait, by ``topic-partition``.
        store_entries: Rows per store over all tasks that ran: before the batch, or after it in stores that were empty.
        segment_bytes: Bytes of state segments written.
        tasks: The report of each task: seconds per step, its begin (``began_ms``), its records.
        lost: Offsets that retention removed before they were read, by ``topic-partition``.
        seconds: The time that the batch took on the driver, without its planning.
    """

    batch: int
    records_in: int
    records_out: int
    dropped: int
    stream_time_ms: int
    lag: Mapping[str, int] = field(default_factory=dict)
    store_entries: Mapping[str, int] = field(default_factory=dict)
    segment_bytes: int = 0
    tasks: tuple[Mapping[str, Any], ...] = ()
    lost: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    never_found: int = 0

    def _repr_html_(self) -> str:
        """Make the tables that a notebook shows: the sums, and a row for each task."""
        sums: dict[str, Any] = {
            "seconds": self.seconds,
            "records in": self.records_in,
            "records out": self.records_out,
            "dropped": self.dropped,
            "lag": sum(self.lag.values()) if self.lag else None,
            "rows of state": sum(self.store_entries.values()),
            "bytes of state written": self.segment_bytes,
        }
        if self.lost:
            sums["lost"] = ", ".join(f"{partition}: {count:,}" for partition, count in self.lost.items())
        columns = ("task", "records_read", "records_written", "dropped")
        rows = ([task.get(column) for column in columns] for task in self.tasks)
        tasks = table_html("tasks", ["task", "records in", "records out", "dropped"], rows) if self.tasks else ""
        return facts_html(f"batch {self.batch}", sums) + tasks


def counted_by(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what a task's report has counted: the task's own counts, and those of the global stores' task."""
    both_counts = (report.get("counts"), report.get("global", {}).get("counts"))
    return [counts for counts in both_counts if counts is not None]


def batch_progress(batch: int, reports: Iterable[bytes], seconds: float = 0.0) -> BatchProgress:
    """Sum the reports of a batch's tasks."""
    documents = [json.loads(report) for report in reports]
    tasks = tuple(one for one in documents if "task" in one)
    entries: dict[str, int] = {}
    lost: dict[str, int] = {}
    for one in documents:
        for name, count in one.get("lost", {}).items():
            lost[name] = lost.get(name, 0) + count
    for task in tasks:
        for store, count in task.get("entries", {}).items():
            entries[store] = entries.get(store, 0) + count
    return BatchProgress(
        batch,
        sum(t.get("records_read", 0) for t in tasks),
        sum(t.get("records_written", 0) for t in tasks),
        sum(t.get("dropped", 0) for t in tasks),
        max((t.get("stream_time_ms", -1) for t in tasks), default=-1),
        store_entries=entries,
        segment_bytes=sum(t.get("segment_bytes", 0) for t in tasks),
        tasks=tasks,
        lost=lost,
        seconds=seconds,
        never_found=sum(t.get("fields_never_found", 0) for t in tasks),
    )
