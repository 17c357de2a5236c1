"""A task's changelog records of a batch, computed from its segment, so a batch that is written again writes the same.

Beside the records of the stores, the task writes one of its own: its numbers, and the segment that they and the records
belong to. With it the state can be rebuilt exactly (`penstock.engines.batches.recovery.rebuild`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.state.changelog.numbers import TaskNumbers
from penstock.state.changelog.writing import records_of_changes, records_of_puts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.engines.spark.job import SparkJob
    from penstock.state.overlay import BatchState
    from penstock.state.segments.segment import Segment
    from penstock.topology.plan.plan import TaskRun

__all__ = ["changelog_records", "noted_puts"]


def noted_puts(job: SparkJob, stores: Iterable[str], state: BatchState, partition: int) -> dict[str, pa.RecordBatch]:
    """Return the records that the segment's changes do not determine, by changelog topic; it holds them as outputs."""
    found: dict[str, pa.RecordBatch] = {}
    for topic, records in records_of_puts(job.changelogs, ((store, state.puts(store)) for store in stores)):
        partitions = pa.repeat(pa.scalar(partition, pa.int32()), records.num_rows)
        found[topic] = records.append_column("partition", partitions)
    return found


def changelog_records(job: SparkJob, run: TaskRun, segment: Segment) -> list[tuple[str, pa.RecordBatch]]:
    """Return (topic, records) of a batch in a fixed order, without those of `noted_puts`."""
    if job.numbers_topic is None or not segment.stored:
        return []
    meta: Mapping[str, int] = segment.head.meta
    changes = ((store, rows) for store in segment.stores for rows in segment.change_batches(store))
    found = records_of_changes(job.topology.stores, job.changelogs, changes, meta)
    return [*found, (job.numbers_topic, TaskNumbers(segment.batch, segment.checksum, dict(meta)).record(run.task_id))]
