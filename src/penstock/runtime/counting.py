"""The counts of a task: what its batches have read, written, dropped and emitted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.sensor import Sensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.runtime.inputs import DecodedRecords
    from penstock.runtime.record import Headers

__all__ = ["CountingSensor", "Spread", "TaskCounts"]

# Kafka counts for each record its time and offset (8 bytes each) and its partition (4), and the name of its topic.
_BYTES_OF_A_RECORD = 20
_SPREADS = ("seconds", "lateness_ms", "punctuations")
_BY_TOPIC = ("consumed", "produced")
_BY_NODE = ("emitted", "e2e_latency_ms")


@dataclass(slots=True)
class Spread:
    """The number, sum, minimum and maximum of measured values."""

    count: int = 0
    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def document(self) -> list[float] | None:
        """Return it for JSON; None without values."""
        return [self.count, self.total, self.low, self.high] if self.count else None

    @classmethod
    def of_document(cls, document: list[float] | None) -> Spread:
        """Return what `document` has written."""
        if document is None:
            return cls()
        count, total, low, high = document
        return cls(int(count), total, low, high)

    def add(self, total: float, count: int, low: float, high: float) -> None:
        """Add values by their sum, number, minimum and maximum."""
        if count:
            self.count += count
            self.total += total
            self.low = min(self.low, low)
            self.high = max(self.high, high)

    def add_all(self, values: NDArray[np.int64]) -> None:
        """Add the values of an array."""
        if len(values):
            self.add(float(values.sum()), len(values), float(values.min()), float(values.max()))


@dataclass(slots=True)
class TaskCounts:
    """The counts of a task since they were last taken.

    Attributes:
        processed: The records that it has processed.
        seconds: The time of its batches a record, as means of the batches.
        dropped: The dropped records.
        lateness_ms: How far records were behind stream time.
        punctuations: The seconds of each punctuation.
        read: Source node -> records that it has decoded.
        consumed: (source node, topic) -> records, bytes.
        produced: (sink node, topic) -> records, bytes.
        emitted: Node -> records that a suppression or closed windows have sent.
        e2e_latency_ms: Source or last node -> age of records when it was done with them.
        reasons: (node, reason) -> dropped records.
        reported: Function or column -> errors that were reported and not raised.
        nodes: Node -> rows in, rows out, seconds; of nodes that run by column.
    """

    processed: int = 0
    seconds: Spread = field(default_factory=Spread)
    dropped: int = 0
    lateness_ms: Spread = field(default_factory=Spread)
    punctuations: Spread = field(default_factory=Spread)
    read: dict[str, int] = field(default_factory=dict)
    consumed: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    produced: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    emitted: dict[str, Spread] = field(default_factory=dict)
    e2e_latency_ms: dict[str, Spread] = field(default_factory=dict)
    reasons: dict[tuple[str, str], int] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, list[float]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the counts for JSON, those of nothing left out."""
        found: dict[str, Any] = {
            "processed": self.processed,
            "dropped": self.dropped,
            "read": self.read,
            "reported": self.reported,
            "nodes": self.nodes,
        }
        found |= {name: getattr(self, name).document() for name in _SPREADS}
        found |= {name: [[*at, *counts] for at, counts in getattr(self, name).items()] for name in _BY_TOPIC}
        found |= {name: {node: one.document() for node, one in getattr(self, name).items()} for name in _BY_NODE}
        found["reasons"] = [[*at, count] for at, count in self.reasons.items()]
        return {name: value for name, value in found.items() if value}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> TaskCounts:
        """Return what `document` has written.

        >>> counts = TaskCounts(3, consumed={("source", "in"): [3, 90]}, reasons={("source", "late"): 1})
        >>> counts.e2e_latency_ms["source"] = Spread(3, 30.0, 5.0, 15.0)
        >>> TaskCounts.of_document(counts.document()) == counts
        True
        """
        counts = cls(document.get("processed", 0), dropped=document.get("dropped", 0))
        counts.read, counts.nodes = dict(document.get("read", {})), dict(document.get("nodes", {}))
        counts.reported = dict(document.get("reported", {}))
        for name in _SPREADS:
            setattr(counts, name, Spread.of_document(document.get(name)))
        for name in _BY_TOPIC:
            entries = {(node, topic): [records, size] for node, topic, records, size in document.get(name, ())}
            setattr(counts, name, entries)
        for name in _BY_NODE:
            spreads = {node: Spread.of_document(one) for node, one in document.get(name, {}).items()}
            setattr(counts, name, spreads)
        counts.reasons = {(node, why): count for node, why, count in document.get("reasons", ())}
        return counts


class CountingSensor(Sensor):
    """A sensor that counts for each task what its batches do.

    Args:
        clock: The wall clock, in milliseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._counts: dict[str, TaskCounts] = {}

    def take(self) -> dict[str, TaskCounts]:
        """Return the counts of each task since the last call."""
        taken, self._counts = self._counts, {}
        return taken

    def _of(self, task_id: str) -> TaskCounts:
        found = self._counts.get(task_id)
        if found is None:
            found = self._counts[task_id] = TaskCounts()
        return found

    def on_batch_end(self, task_id: str, seconds: float, metrics: Mapping[str, int | float]) -> None:
        counts = self._of(task_id)
        counts.dropped += int(metrics["dropped"])
        records = int(metrics["records_in"])
        if records:
            counts.processed += records - int(metrics["unread"])
            counts.seconds.add(seconds, records, seconds / records, seconds / records)

    def on_input(
        self, task_id: str, timestamps: NDArray[np.int64], stream_times: NDArray[np.int64], unread: int
    ) -> None:
        lateness = self._of(task_id).lateness_ms
        lateness.add_all(stream_times[:-1] - timestamps)
        if unread:  # to Kafka, a record that cannot be used has the time -1
            late = float(stream_times[-1]) + 1
            lateness.add(late * unread, unread, late, late)

    def on_consumed(self, task_id: str, topic: str, records: DecodedRecords) -> None:
        batch = records.batch.records  # with what could not be decoded, as in Kafka
        keys, values, headers = (batch.column(name) for name in ("key", "value", "headers"))
        # Kafka's consumer says that a null has -1 bytes, and Kafka Streams adds that.
        size = _bytes_of(keys) + _bytes_of(values) - keys.null_count - values.null_count
        if headers.null_count < len(headers):
            size += _bytes_of_headers(headers.to_pylist())
        counts = self._of(task_id)
        self._add(counts.consumed, (records.source, topic), len(batch), size)
        counts.read[records.source] = counts.read.get(records.source, 0) + len(records)
        self.on_completed(task_id, records.source, records.timestamps)

    def on_produced(
        self, task_id: str, node: str, topic: str, keys: pa.Array, values: pa.Array, headers: list[Headers] | None
    ) -> None:
        size = _bytes_of(keys) + _bytes_of(values)
        if headers is not None:
            size += sum(len(name.encode()) + len(value or b"") for row in headers for name, value in row)
        self._add(self._of(task_id).produced, (node, topic), len(keys), size)

    def on_completed(self, task_id: str, node: str, timestamps: NDArray[np.int64]) -> None:
        spreads = self._of(task_id).e2e_latency_ms
        spreads.setdefault(node, Spread()).add_all(self._clock() - timestamps)

    def on_emitted(self, task_id: str, node: str, records: int) -> None:
        self._of(task_id).emitted.setdefault(node, Spread()).add(records, 1, records, records)

    def on_dropped(self, task_id: str, node: str, count: int, why: str) -> None:
        reasons = self._of(task_id).reasons
        reasons[node, why] = reasons.get((node, why), 0) + count

    def on_reported(self, task_id: str, where: str, count: int) -> None:
        reported = self._of(task_id).reported
        reported[where] = reported.get(where, 0) + count

    def on_punctuation(self, task_id: str, node: str, timestamp_ms: int, seconds: float) -> None:  # noqa: ARG002
        self._of(task_id).punctuations.add(seconds, 1, seconds, seconds)

    def on_node(self, task_id: str, node: str, rows_in: int, rows_out: int, seconds: float) -> None:
        totals = self._of(task_id).nodes.setdefault(node, [0, 0, 0.0])
        for at, value in enumerate((rows_in, rows_out, seconds)):
            totals[at] += value

    @staticmethod
    def _add(counts: dict[tuple[str, str], list[int]], at: tuple[str, str], records: int, size: int) -> None:
        both = counts.setdefault(at, [0, 0])
        both[0] += records
        both[1] += size + records * (_BYTES_OF_A_RECORD + len(at[1].encode()))


def _bytes_of(column: pa.Array) -> int:
    return int(pc.sum(pc.binary_length(column)).as_py() or 0)


def _bytes_of_headers(rows: list[list[dict[str, str | bytes | None]] | None]) -> int:
    return sum(len(str(header["key"]).encode()) + len(header["value"] or b"") for row in rows if row for header in row)
