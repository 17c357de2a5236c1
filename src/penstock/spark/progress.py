"""What a batch did, as progress listeners see it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BatchProgress", "progress_of"]


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Figures of one micro-batch.

    Attributes:
        batch: Its number.
        records_in: Records read from source topics.
        records_out: Records written to sink topics.
        dropped: Kafka's ``dropped-records``: late, null keys, skipped.
        stream_time_ms: The largest timestamp seen; -1 for none.
        lag: Records that wait, by ``topic-partition``.
        store_entries: Rows per store over all tasks that ran, as they were before the batch.
        segment_bytes: Bytes of state segments written.
        tasks: What each task reported: seconds per step, when it began (``began_ms``), its records.
        lost: Offsets that retention has taken before they were read, by ``topic-partition``.
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


def progress_of(batch: int, reports: Iterable[bytes]) -> BatchProgress:
    """Sums up what the tasks of a batch reported."""
    told = [json.loads(report) for report in reports]
    tasks = tuple(one for one in told if "task" in one)
    entries: dict[str, int] = {}
    lost: dict[str, int] = {}
    for one in told:
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
    )
