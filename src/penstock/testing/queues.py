"""The input queues of the test driver's task: Kafka's ``PartitionGroup`` with one partition for each topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.log.base import RECORD_SCHEMA
from penstock.runtime.priority_queue import PriorityQueue
from penstock.runtime.record import Headers, TopicBatch

__all__ = ["PartitionQueues", "RawRecord", "batches_of"]


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record of the task, as bytes; those of a test have partition 0."""

    topic: str
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int = 0


class PartitionQueues:
    """Records in the order of Kafka Streams: the queue with the smallest head timestamp first."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[RawRecord]] = {}
        self._waiting: PriorityQueue[deque[RawRecord]] = PriorityQueue(lambda queue: queue[0].timestamp)

    def __bool__(self) -> bool:
        return len(self._waiting) > 0

    def add(self, record: RawRecord) -> None:
        queue = self._queues.setdefault(record.topic, deque())
        queue.append(record)
        if len(queue) == 1:
            self._waiting.add(queue)

    def take(self) -> RawRecord:
        """Remove and return the next record; there must be one."""
        queue = self._waiting.poll()
        assert queue is not None, "the queues are empty"  # noqa: S101
        record = queue.popleft()
        if queue:
            self._waiting.add(queue)
        return record


def batches_of(records: Sequence[RawRecord]) -> list[TopicBatch]:
    """Return the records as batches of one topic and partition each, in the same order."""
    runs: list[list[RawRecord]] = []
    for record in records:
        if runs and (runs[-1][0].topic, runs[-1][0].partition) == (record.topic, record.partition):
            runs[-1].append(record)
        else:
            runs.append([record])
    return [TopicBatch(run[0].topic, run[0].partition, _arrow(run)) for run in runs]


def _arrow(records: list[RawRecord]) -> pa.RecordBatch:
    headers = [[{"key": name, "value": value} for name, value in r.headers] or None for r in records]
    columns = [
        [r.offset for r in records],
        [r.timestamp for r in records],
        [r.key for r in records],
        [r.value for r in records],
        headers,
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)
