"""The output of a task as parts for the log: one for each topic and partition, in the order of the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from penstock.engines.threads.app import ThreadApp
    from penstock.log.thread_clients import Part

__all__ = ["by_partition", "parts_of_output"]


def parts_of_output(app: ThreadApp, records: Mapping[str, pa.RecordBatch]) -> list[Part]:
    """Return what a task has written (`TaskOutput.records`) as parts; internal topics get their names in the log.

    Records for a topic whose partitions are not known go to partition 0.
    """
    return [
        (app.plan.physical_name(topic), max(partition, 0), part)
        for topic, rows in records.items()
        for partition, part in by_partition(rows)
    ]


def by_partition(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split rows by their column ``partition``, which is left out, in order of the partitions."""
    if not rows.num_rows:
        return
    partitions = rows.column("partition").to_numpy()
    rows = rows.drop_columns(["partition"])
    first = partitions[0]
    if (partitions == first).all():
        yield int(first), rows
        return
    found = np.unique(partitions)
    order = np.argsort(partitions, kind="stable")
    starts = np.searchsorted(partitions[order], found)
    for partition, start, end in zip(found, starts, [*starts[1:], len(order)], strict=True):
        yield int(partition), rows.take(pa.array(order[start:end]))
