"""A task's input of one batch, from ranges of the log and from rows of earlier stages."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.log.base import RECORD_SCHEMA, TopicPartition
from penstock.runtime.task import TopicBatch
from penstock.spark.envelope import Envelope, Kind, unpack_records
from penstock.spark.positions import lost_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.log.base import TopicLog

__all__ = ["topic_batches"]

_OFFSETS_A_BATCH = 1 << 32


def topic_batches(
    inbox: Sequence[Envelope], log: TopicLog, batch: int, lost: dict[str, int] | None = None
) -> list[TopicBatch]:
    """The input in the shape that a task takes; partitions in order.

    Rows of an internal topic that come from several tasks are merged as a broker would see them arrive: by time, each
    task's own order kept. The merge is the same in every attempt, whatever order the shuffle delivers.

    Args:
        inbox: What has come for the task.
        log: Holds the records of ranges.
        batch: The batch's number.
        lost: Is told how many offsets retention has taken since the batch was planned; None: that is an error.

    Raises:
        OffsetOutOfRangeError: See ``lost``.
    """
    found: list[TopicBatch] = []
    arrived: dict[tuple[str, int], list[Envelope]] = defaultdict(list)
    for envelope in inbox:
        if envelope.kind is Kind.RANGE:
            start, end = envelope.range
            records = list(log.read_range(envelope.topic, envelope.partition, start, end))
            _check_start(records, envelope, log, lost)
            if records:
                joined = records[0] if len(records) == 1 else pa.concat_batches(records)
                found.append(TopicBatch(envelope.topic, envelope.partition, joined))
        elif envelope.kind is Kind.RECORDS:
            arrived[envelope.topic, envelope.partition].append(envelope)
    for (topic, partition), envelopes in arrived.items():
        by_task: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        for envelope in sorted(envelopes, key=lambda e: e.origin):
            by_task[envelope.origin.partition(":")[0]].append(unpack_records(envelope.payload))
        parts = [pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces) for pieces in by_task.values()]
        found.append(TopicBatch(topic, partition, _with_offsets(_merged(parts), batch * _OFFSETS_A_BATCH)))
    return sorted(found, key=lambda b: (b.topic, b.partition))


def _check_start(
    records: Sequence[pa.RecordBatch], envelope: Envelope, log: TopicLog, lost: dict[str, int] | None
) -> None:
    start, end = envelope.range
    if records and records[0].column("offset")[0].as_py() == start:
        return
    first = log.beginning_offset(envelope.topic, envelope.partition)  # offsets have gaps: not all that miss are lost
    if first <= start:
        return
    if lost is None:
        tp = TopicPartition(envelope.topic, envelope.partition)
        raise lost_error(tp, start, first, log.end_offset(envelope.topic, envelope.partition))
    lost[f"{envelope.topic}-{envelope.partition}"] = min(first, end) - start


def _merged(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    joined = pa.concat_batches(parts)
    newest = np.concatenate([np.maximum.accumulate(p.column("timestamp").to_numpy()) for p in parts])
    return joined.take(pa.array(np.argsort(newest, kind="stable")))


def _with_offsets(rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
    offsets = pa.array(np.arange(first, first + rows.num_rows))
    columns = [offsets, *(rows.column(name) for name in RECORD_SCHEMA.names[1:])]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
