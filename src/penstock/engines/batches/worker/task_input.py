"""The input of a task in one batch, from ranges of the log and rows of earlier stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engines.batches.envelope import Envelope, EnvelopeKind
from penstock.engines.batches.ranges import read_planned_range
from penstock.engines.batches.stage_rows import ArrivedRows
from penstock.log.base import RECORD_SCHEMA
from penstock.runtime.task import TopicBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.log.base import TopicLog

__all__ = ["topic_batches"]

_OFFSETS_A_BATCH = 1 << 32


def topic_batches(
    inbox: Sequence[Envelope | ArrivedRows], log: TopicLog, batch: int, lost: dict[str, int] | None = None
) -> list[TopicBatch]:
    """Collect the input of a task, in order of topics and partitions.

    Args:
        inbox: The envelopes and rows for the task.
        log: The log that holds the records of ranges.
        batch: The batch's number.
        lost: Receives the number of offsets that are gone, by ``topic-partition``; None: a lost offset is an error.

    Raises:
        OffsetOutOfRangeError: Offsets are gone, and ``lost`` is None.
    """
    found: list[TopicBatch] = []
    for envelope in inbox:
        if isinstance(envelope, ArrivedRows):
            rows = _with_offsets(envelope.rows, batch * _OFFSETS_A_BATCH)
            found.append(TopicBatch(envelope.topic, envelope.partition, rows))
        elif envelope.kind is EnvelopeKind.RANGE:
            records = read_planned_range(envelope, log, lost)
            if records:
                joined = records[0] if len(records) == 1 else pa.concat_batches(records)
                found.append(TopicBatch(envelope.topic, envelope.partition, joined))
    return sorted(found, key=lambda b: (b.topic, b.partition))


def _with_offsets(rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
    offsets = pa.array(np.arange(first, first + rows.num_rows))
    columns = [offsets, *(rows.column(name) for name in RECORD_SCHEMA.names[1:])]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
