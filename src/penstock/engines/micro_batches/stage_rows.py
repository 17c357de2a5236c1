"""Rows of internal topics on their way from the tasks of one stage to those of the next.

A Spark task combines all rows for the same Spark task of a later stage, from all of its own tasks and for all tasks
there. So a batch has an envelope for each pair of Spark tasks, not for each pair of tasks: with 1,000 partitions those
would be a million envelopes, each many times the size of the few rows in it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engines.micro_batches.envelope import PAYLOAD_BYTES, Envelope, EnvelopeKind, pack_records, unpack_records
from penstock.engines.micro_batches.spark_tasks import parse_run_name, run_name, slots_of
from penstock.log.base import RECORD_SCHEMA
from penstock.topology.plan.plan import TaskRun

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.engines.spark.job import SparkJob

__all__ = ["ALL_PARTITIONS", "ArrivedRows", "HandedRows", "Outbox", "rows_by_task"]

ALL_PARTITIONS = -1
_MOST = 1 << 62


@dataclass(frozen=True, slots=True)
class HandedRows:
    """Rows that one task has written to an internal topic in this batch, for one of the topic's readers.

    Attributes:
        level: The stage that reads the rows.
        reader: The reading sub-topology and phase; the partition is that of each row.
        topic: The internal topic.
        origin: The name of the task run that wrote the rows.
        rows: Records with their ``partition``.
    """

    level: int
    reader: TaskRun
    topic: str
    origin: str
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class ArrivedRows:
    """Rows of an internal topic for one task, from all tasks that wrote to it, in the order of processing."""

    topic: str
    partition: int
    rows: pa.RecordBatch


class Outbox:
    """A buffer of the rows that the tasks of one Spark task hand on, until there are enough for an envelope.

    Args:
        job: The application.
    """

    def __init__(self, job: SparkJob) -> None:
        self._job = job
        self._waiting: dict[tuple[int, TaskRun, str], list[HandedRows]] = defaultdict(list)
        self._bytes = 0
        self._sent = 0

    def add(self, handed: Iterable[HandedRows]) -> Iterator[Envelope]:
        """Add rows; yield envelopes when a payload is full."""
        for each in handed:
            if each.rows.num_rows:
                self._waiting[each.level, each.reader, each.topic].append(each)
                self._bytes += each.rows.nbytes
        if self._bytes >= PAYLOAD_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[Envelope]:
        """Yield envelopes with all rows that wait."""
        for (level, reader, topic), handed in self._waiting.items():
            yield from self._packed(level, reader, topic, handed)
        self._waiting.clear()
        self._bytes = 0

    def _packed(self, level: int, reader: TaskRun, topic: str, handed: list[HandedRows]) -> Iterator[Envelope]:
        rows = _joined([each.rows for each in handed])
        writers = np.repeat(np.arange(len(handed)), [each.rows.num_rows for each in handed])
        slots = slots_of(self._job, level, reader.subtopology, rows.column("partition").to_numpy())
        order = np.argsort(slots, kind="stable")
        if slots.size and slots.min() != slots.max():
            rows, writers, slots = rows.take(pa.array(order)), writers[order], slots[order]
        used_slots, starts = np.unique(slots, return_index=True)
        for slot, start, end in zip(used_slots, starts, [*starts[1:], len(slots)], strict=True):
            at = int(start)
            for payload, count in pack_records(rows.slice(at, int(end) - at)):
                names, counts = _runs(writers[at : at + count])
                parts = [
                    [handed[writer].origin, self._sent, n]
                    for writer, n in zip(names.tolist(), counts.tolist(), strict=True)
                ]
                self._sent += 1
                at += count
                yield Envelope(
                    level,
                    int(slot),
                    EnvelopeKind.RECORDS,
                    run_name(reader),
                    topic,
                    ALL_PARTITIONS,
                    json.dumps(parts),
                    payload,
                )


def rows_by_task(envelopes: Iterable[Envelope]) -> Iterator[tuple[TaskRun, ArrivedRows]]:
    """Iterate over the tasks that have rows, with the rows of each.

    Rows from several tasks are merged as they would arrive at a broker: by time, with each task's own order kept. The
    merge is the same in every attempt, in whatever order the shuffle delivers.
    """
    topics: dict[tuple[str, str], list[tuple[str, int, pa.RecordBatch]]] = defaultdict(list)
    for envelope in envelopes:
        records, at = unpack_records(envelope.payload), 0
        for origin, number, count in json.loads(envelope.parts):
            topics[envelope.run, envelope.topic].append((origin, number, records.slice(at, count)))
            at += count
    for (name, topic), parts in topics.items():
        reader = parse_run_name(name)
        parts.sort(key=lambda part: part[:2])
        rows = _joined([records for _, _, records in parts])
        places = {origin: rank for rank, origin in enumerate(dict.fromkeys(origin for origin, _, _ in parts))}
        writers = np.repeat([places[origin] for origin, _, _ in parts], [records.num_rows for _, _, records in parts])
        partitions = rows.column("partition").to_numpy()
        rows = rows.select(RECORD_SCHEMA.names[1:])
        order = _merge(partitions, writers, rows.column("timestamp").to_numpy())
        rows, partitions = rows.take(pa.array(order)), partitions[order]
        partition_numbers, counts = _runs(partitions)
        at = 0
        for partition, count in zip(partition_numbers.tolist(), counts.tolist(), strict=True):
            run = TaskRun(reader.subtopology, partition, reader.phase)
            yield run, ArrivedRows(topic, partition, rows.slice(at, count))
            at += count


def _merge(partitions: NDArray[np.int64], writers: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Compute the order of rows: by partition, then by the newest time that their writer has reached."""
    grouped = np.argsort(partitions, kind="stable")
    partitions, writers, times = partitions[grouped], writers[grouped], times[grouped]
    is_other = partitions[1:] != partitions[:-1]
    group = np.cumsum(np.r_[0, is_other | (writers[1:] != writers[:-1])])
    target = np.cumsum(np.r_[0, is_other])
    ranks, width = times - times.min(), int(times.max()) - int(times.min()) + 1
    if width * (int(group[-1]) + 1) > _MOST:
        ranks, width = np.unique(times, return_inverse=True)[1], len(times)
    begins = group * width
    newest = np.maximum.accumulate(ranks + begins) - begins  # a running maximum that begins anew with each group
    order: NDArray[np.int64] = grouped[np.argsort(target * width + newest, kind="stable")]
    return order


def _runs(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the values of runs of equal ones, and the length of each run."""
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]]) if len(values) else np.zeros(0, np.int64)
    return values[starts], np.diff(np.r_[starts, len(values)])


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
