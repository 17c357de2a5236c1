"""The figures of a stream thread, for reports to the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from penstock.engines.threads.task import ActiveTask

__all__ = ["TaskFigures", "ThreadFigures"]


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The figures of one task since the start of its thread.

    Attributes:
        task: The task's id, such as ``0_1``.
        records_in: The number of records that it has processed.
        records_out: The number of records that it has written.
        dropped: Kafka's ``dropped-records-total``.
        stream_time_ms: The largest timestamp that it has seen; -1 before the first record.
        buffered: The number of records that are fetched and not yet processed.
        entries: The rows of each of its stores as of the last commit.
        store_bytes: The bytes on disk of each of its stores as of the last commit.
    """

    task: str
    records_in: int
    records_out: int
    dropped: int
    stream_time_ms: int
    buffered: int
    entries: Mapping[str, int] = field(default_factory=dict)
    store_bytes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, task: ActiveTask) -> TaskFigures:
        """Return the present figures of a task."""
        buffered = task.buffers.records
        counts = (task.records_in, task.records_out, task.dropped_records, task.stream_time_ms, buffered)
        return cls(str(task.id), *counts, task.replica.entries(), task.replica.store_bytes())


@dataclass(frozen=True, slots=True)
class ThreadFigures:
    """The figures of a thread since its start.

    Attributes:
        tasks: Those of its tasks.
        positions: The offset of the next record to process, by partition.
        committed: The committed offsets, by partition.
        ends: The ends of the partitions, as far as they are known.
        buffered_bytes: The size of the records that are fetched and not yet processed.
        pending_bytes: The size of the output that waits for the next commit.
        commits: The number of commits.
        seconds: The time spent, by step of the loop: poll, process, send, commit, replicas.
        began_ms: The wall-clock time since when it fetches.
        committed_ms: The wall-clock time of the last commit; 0 before the first.
        global_sizes: Rows and bytes of the global stores, see `penstock.runtime.global_stores.GlobalViews.sizes`.
    """

    tasks: tuple[TaskFigures, ...]
    positions: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    buffered_bytes: int
    pending_bytes: int
    commits: int
    seconds: Mapping[str, float]
    began_ms: int = 0
    committed_ms: int = 0
    global_sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
