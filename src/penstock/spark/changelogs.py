"""A task's changelog records of a batch, worked out from its segment: so a batch that is written again writes the same.

Beside the stores' records goes one of the task itself: its numbers, and which segment they and the records stand for.
With it the state can be rebuilt just as it was (`penstock.state.rebuild`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.state.changelog import VersionedFormat, changelog_format
from penstock.state.changelog.numbers import TaskNumbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.plan.plan import TaskRun
    from penstock.spark.job import SparkJob
    from penstock.state.overlay import BatchState
    from penstock.state.segments import Segment

__all__ = ["changelog_records", "noted_puts"]


def noted_puts(job: SparkJob, stores: Iterable[str], state: BatchState, partition: int) -> dict[str, pa.RecordBatch]:
    """Changelog topic -> records that cannot be worked out from the segment; they go into it with the outputs."""
    found: dict[str, pa.RecordBatch] = {}
    for store in stores:
        puts = state.puts(store)
        topic = job.changelogs.get(store)
        if puts and topic is not None:
            records = VersionedFormat.of_puts(puts)
            partitions = pa.repeat(pa.scalar(partition, pa.int32()), records.num_rows)
            found[topic] = records.append_column("partition", partitions)
    return found


def changelog_records(job: SparkJob, run: TaskRun, segment: Segment) -> list[tuple[str, pa.RecordBatch]]:
    """(topic, records) of a batch, in an order that is always the same; without those of `noted_puts`."""
    if job.numbers_topic is None or not segment.stored:
        return []
    found = []
    meta: Mapping[str, int] = segment.head.meta
    for store in segment.stores:
        spec, topic = job.topology.stores[store], job.changelogs.get(store)
        if topic is not None and spec.kind != "versioned":
            form = changelog_format(spec)
            found += [(topic, form.records(changes, meta)) for changes in segment.change_batches(store)]
    numbers = TaskNumbers(segment.batch, segment.checksum, dict(meta)).record(run.task_id)
    return [*((topic, records) for topic, records in found if records.num_rows), (job.numbers_topic, numbers)]
