"""The events of a running task: one class with a method per event, all of which do nothing, and one that counts.

Subclasses turn events into metrics, traces or pictures. Every method is called once per batch, never per record, with
figures of what has happened, never with the records themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from penstock.base.clock import unix_ms
from penstock.metrics.task_counts import FLUSH, OTHER_ERRORS, OTHER_REASONS, Cause, Spread, TaskCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.metrics.task_counts import Example

__all__ = ["CountingSensor", "HeldEvents", "RecordWork", "Sensor", "SensorGroup", "Volume"]


class Volume(NamedTuple):
    """The size of records or changes.

    Attributes:
        records: Their number.
        bytes: The bytes of their keys, values and headers.
    """

    records: int
    bytes: int


@dataclass(slots=True)
class RecordWork:
    """What a task has done with a record that it has processed by itself.

    Attributes:
        node: The source.
        topic: Its topic, by its name in the log.
        size_bytes: The bytes of key, value and headers.
        timestamp: Its time; None: it could not be decoded.
        stream_time: The task's stream time with it.
        nodes: Operator -> rows in, rows out, seconds.
        completed: The nodes without children, sinks among them, that got a row, and its time.
        sent: Sink, topic in the log, and bytes of each record that was encoded.
    """

    node: str
    topic: str
    size_bytes: int
    timestamp: int | None
    stream_time: int
    nodes: dict[str, list[float]] = field(default_factory=dict)
    completed: list[tuple[str, int]] = field(default_factory=list)
    sent: list[tuple[str, str, int]] = field(default_factory=list)


class Sensor:
    """Base of sensors: override the events of interest. Times are in seconds unless the name says otherwise.

    Attributes:
        detailed: Whether it takes what only metrics above the recording level INFO show, such as the calls of stores.
    """

    detailed = False

    def on_batch_start(self, task_id: str, records: int) -> None:
        """Called when a batch of so many input records starts."""

    def on_batch_end(self, task_id: str, seconds: float, metrics: Mapping[str, int | float]) -> None:
        """Called when a batch has been processed; ``metrics`` are those of TaskOutput."""

    def on_consumed(self, task_id: str, node: str, topic: str, size: Volume, timestamps: NDArray[np.int64]) -> None:
        """Called when a source node has decoded records of a partition; the topic has its name in the log.

        ``size`` is that of all records, ``timestamps`` are the times of those that could be decoded.
        """

    def on_input(
        self, task_id: str, timestamps: NDArray[np.int64], stream_times: NDArray[np.int64], unread: int
    ) -> None:
        """Called with the times of the records of a batch, in processing order, and stream time at each and after all.

        ``unread`` records could not be decoded or had no valid time.
        """

    def on_record(self, task_id: str, work: RecordWork) -> None:
        """Called when a record has been processed by itself, in place of the events that a batch of it has."""
        is_read = work.timestamp is not None
        times = np.array([work.timestamp] if is_read else [], np.int64)
        self.on_consumed(task_id, work.node, work.topic, Volume(1, work.size_bytes), times)
        stream_times = np.full(len(times) + 1, work.stream_time, np.int64)
        self.on_input(task_id, times, stream_times, int(not is_read))
        for node, (rows_in, rows_out, seconds) in work.nodes.items():
            self.on_node(task_id, node, int(rows_in), int(rows_out), seconds)
        for node, topic, size in work.sent:
            self.on_produced(task_id, node, topic, Volume(1, size))
        for node, timestamp in work.completed:
            self.on_completed(task_id, node, np.array([timestamp], np.int64))

    def on_produced(self, task_id: str, node: str, topic: str, size: Volume) -> None:
        """Called when a sink node has encoded records; the topic has its name in the log."""

    def on_completed(self, task_id: str, node: str, timestamps: NDArray[np.int64]) -> None:
        """Called when a node without children is done with rows of these times."""

    def on_emitted(self, task_id: str, node: str, records: int, seconds: float = 0.0) -> None:
        """Called when a suppression or an aggregation that waits for windows to close has sent records.

        ``seconds`` is how long such an aggregation has looked for closed windows; 0 of a suppression.
        """

    def on_node_start(self, task_id: str, node: str) -> None:
        """Called when an operator begins with its rows of the batch."""

    def on_node(self, task_id: str, node: str, rows_in: int, rows_out: int, seconds: float) -> None:
        """Called when an operator has processed its rows of the batch."""

    def on_dropped(self, task_id: str, node: str, count: int, why: str) -> None:
        """Called when records were dropped."""

    def on_cause(self, task_id: str, cause: Cause, count: int, examples: Sequence[Example]) -> None:
        """Called after `on_dropped` with the cause and the newest records of it, as far as they are known.

        Examples have the texts of errors where texts of records may be shown.
        """

    def on_reported(self, task_id: str, where: str, count: int) -> None:
        """Called when functions have reported so many errors, each of which made a null."""

    def on_field_missing(self, task_id: str, node: str, field: str, values: int) -> None:
        """Called when an operator looks up a field that none of so many values has had."""

    def on_error(self, task_id: str, node: str, error: Exception, action: str) -> None:
        """Called when a record failed; ``action`` is "fail" or "continue"."""

    def on_flushed(self, task_id: str, changes: Mapping[str, Volume], seconds: float) -> None:
        """Called when the changes of stores, so many of each, have been published or committed, which took so long."""

    def on_store_calls(self, task_id: str, calls: Mapping[tuple[str, str], list[float]]) -> None:
        """Called after a batch with (store, call) -> keys and seconds, if the calls of stores are counted."""

    def on_punctuation(self, task_id: str, node: str, timestamp_ms: int, seconds: float) -> None:
        """Called when a punctuation ran for so long."""


class HeldEvents(Sensor):
    """Events held back until it is known whether they count; only the start of a node is passed on at once.

    Args:
        sensor: Gets the events that count.
    """

    def __init__(self, sensor: Sensor) -> None:
        self.sensor = sensor
        self.detailed = sensor.detailed
        self._held: list[Callable[[], None]] = []
        for event in [name for name in dir(Sensor) if name.startswith("on_")]:
            setattr(self, event, self._holding(getattr(sensor, event)))
        self.on_node_start = sensor.on_node_start  # type: ignore[method-assign]

    def _holding(self, method: Callable[..., None]) -> Callable[..., None]:
        return lambda *event, **more: self._held.append(partial(method, *event, **more))

    def release(self) -> None:
        """Pass on what has been held back."""
        held, self._held = self._held, []
        for event in held:
            event()

    def forget(self) -> None:
        """Forget what has been held back."""
        self._held.clear()


class SensorGroup(Sensor):
    """Several sensors as one.

    Args:
        sensors: The sensors; each event goes to all, in this order.
    """

    def __init__(self, sensors: Sequence[Sensor]) -> None:
        for event in [name for name in dir(Sensor) if name.startswith("on_")]:
            setattr(self, event, _each([getattr(sensor, event) for sensor in sensors]))


def _each(methods: list[Callable[..., None]]) -> Callable[..., None]:
    def call(*event: object) -> None:
        for method in methods:
            method(*event)

    return call


# Kafka counts for each record its time and offset (8 bytes each) and its partition (4), and the name of its topic.
_BYTES_OF_A_RECORD = 20
_MOST_OF_A_TEXT = 300  # characters of an error, of which each report of a thread has several
_MOST_NAMES = 20  # reasons, causes and classes of errors of an operator of a task


class _ByTask(dict[str, TaskCounts]):
    """The counts of each task, which begin with the first event."""

    def __missing__(self, task_id: str) -> TaskCounts:
        counts = self[task_id] = TaskCounts()
        return counts


def _spread(spreads: dict[str, Spread], node: str) -> Spread:
    spread = spreads.get(node)
    if spread is None:
        spread = spreads[node] = Spread()
    return spread


class CountingSensor(Sensor):
    """A sensor that counts for each task what its batches do.

    Args:
        clock: The wall clock, in milliseconds.
        detailed: Whether to count what only metrics above the recording level INFO show.
    """

    def __init__(self, clock: Callable[[], int], *, detailed: bool = True) -> None:
        self._clock = clock
        self.detailed = detailed
        self._counts = _ByTask()
        self._of_topics: dict[str, int] = {}  # the bytes that each record of a topic has beside key, value and headers
        self._names: dict[tuple[str, str, str], set[Hashable]] = {}

    @classmethod
    def at_level(cls, level: str) -> Self:
        """Return a sensor for ``metrics.recording.level``, with the machine's clock."""
        return cls(unix_ms, detailed=level.upper() != "INFO")

    def take(self) -> dict[str, TaskCounts]:
        """Return the counts of each task since the last call."""
        taken, self._counts = self._counts, _ByTask()
        return taken

    def on_batch_end(self, task_id: str, seconds: float, metrics: Mapping[str, int | float]) -> None:
        counts = self._counts[task_id]
        counts.dropped += int(metrics["dropped"])
        records = int(metrics["records_in"])
        if records:
            counts.processed += records - int(metrics["unread"])
            each = seconds / records
            counts.seconds.add(seconds, records, each, each)

    def on_input(
        self, task_id: str, timestamps: NDArray[np.int64], stream_times: NDArray[np.int64], unread: int
    ) -> None:
        if not self.detailed:
            return
        lateness = self._counts[task_id].lateness_ms
        if len(timestamps) == 1:
            lateness.add_one(float(stream_times.item(0) - timestamps.item()))
        else:
            lateness.add_all(stream_times[:-1] - timestamps)
        if unread:  # to Kafka, a record that cannot be used has the time -1
            late = float(stream_times[-1]) + 1
            lateness.add(late * unread, unread, late, late)

    def on_consumed(self, task_id: str, node: str, topic: str, size: Volume, timestamps: NDArray[np.int64]) -> None:
        counts = self._counts[task_id]
        self._add(counts.consumed, (node, topic), *size)
        counts.read[node] = counts.read.get(node, 0) + len(timestamps)
        self.on_completed(task_id, node, timestamps)

    def on_record(self, task_id: str, work: RecordWork) -> None:
        counts, timestamp = self._counts[task_id], work.timestamp
        self._add(counts.consumed, (work.node, work.topic), 1, work.size_bytes)
        is_read = timestamp is not None
        counts.read[work.node] = counts.read.get(work.node, 0) + is_read
        now, latencies = self._clock(), counts.e2e_latency_ms
        latency = _spread(latencies, work.node)
        if timestamp is not None:
            latency.add_one(float(now - timestamp))
        if self.detailed:
            late = work.stream_time - (-1 if timestamp is None else timestamp)  # -1: as for a batch
            counts.lateness_ms.add_one(float(late))
        nodes = counts.nodes
        for node, (rows_in, rows_out, seconds) in work.nodes.items():
            totals = nodes.get(node)
            if totals is None:
                nodes[node] = [rows_in, rows_out, seconds]
            else:
                totals[0] += rows_in
                totals[1] += rows_out
                totals[2] += seconds
        for sink, topic, size in work.sent:
            self._add(counts.produced, (sink, topic), 1, size)
        for node, time in work.completed:
            _spread(latencies, node).add_one(float(now - time))

    def on_produced(self, task_id: str, node: str, topic: str, size: Volume) -> None:
        self._add(self._counts[task_id].produced, (node, topic), *size)

    def on_completed(self, task_id: str, node: str, timestamps: NDArray[np.int64]) -> None:
        spread = _spread(self._counts[task_id].e2e_latency_ms, node)
        if len(timestamps) == 1:
            spread.add_one(float(self._clock() - timestamps.item()))
        else:
            spread.add_all(self._clock() - timestamps)

    def on_emitted(self, task_id: str, node: str, records: int, seconds: float = 0.0) -> None:
        counts = self._counts[task_id]
        counts.emitted.setdefault(node, Spread()).add(records, 1, records, records)
        if seconds:
            counts.emit_seconds.setdefault(node, Spread()).add(seconds, 1, seconds, seconds)

    def on_dropped(self, task_id: str, node: str, count: int, why: str) -> None:
        reasons = self._counts[task_id].reasons
        at = (node, why if self._is_few((task_id, node, "reason"), why) else OTHER_REASONS)
        reasons[at] = reasons.get(at, 0) + count

    def on_cause(self, task_id: str, cause: Cause, count: int, examples: Sequence[Example]) -> None:
        at = cause if self._is_few((task_id, cause.node, "cause"), cause) else Cause(cause.node, OTHER_REASONS)
        self._counts[task_id].add_cause(
            at, count, [each._replace(said=each.said[:_MOST_OF_A_TEXT]) for each in examples]
        )

    def on_error(self, task_id: str, node: str, error: Exception, action: str) -> None:
        kind = type(error).__name__
        if not self._is_few((task_id, node, "error"), kind):
            kind = OTHER_ERRORS
        errors, at = self._counts[task_id].errors, (node, kind, action)
        errors[at] = errors.get(at, 0) + 1

    def on_reported(self, task_id: str, where: str, count: int) -> None:
        reported = self._counts[task_id].reported
        reported[where] = reported.get(where, 0) + count

    def on_flushed(self, task_id: str, changes: Mapping[str, Volume], seconds: float) -> None:
        stores = self._counts[task_id].stores
        for store, size in changes.items():
            flushed = stores.setdefault((store, FLUSH), [0, 0, 0, 0.0])
            for at, value in enumerate((1, size.records, size.bytes, seconds)):
                flushed[at] += value

    def on_store_calls(self, task_id: str, calls: Mapping[tuple[str, str], list[float]]) -> None:
        stores = self._counts[task_id].stores
        for at, numbers in calls.items():
            stores[at] = [a + b for a, b in zip(stores.get(at) or (0, 0), numbers, strict=True)]

    def on_punctuation(self, task_id: str, node: str, timestamp_ms: int, seconds: float) -> None:  # noqa: ARG002
        self._counts[task_id].punctuations.add(seconds, 1, seconds, seconds)

    def on_node(self, task_id: str, node: str, rows_in: int, rows_out: int, seconds: float) -> None:
        nodes = self._counts[task_id].nodes
        totals = nodes.get(node)
        if totals is None:
            totals = nodes[node] = [0, 0, 0.0]
        totals[0] += rows_in
        totals[1] += rows_out
        totals[2] += seconds

    def _is_few(self, of: tuple[str, str, str], name: Hashable) -> bool:
        """Return whether a name is among the first of its kind: each is a series for good, and records make names."""
        names = self._names.setdefault(of, set())
        if name not in names and len(names) < _MOST_NAMES:
            names.add(name)
        return name in names

    def _add(self, counts: dict[tuple[str, str], list[int]], at: tuple[str, str], records: int, size: int) -> None:
        both = counts.get(at)
        if both is None:
            both = counts[at] = [0, 0]
        more = self._of_topics.get(at[1])
        if more is None:
            more = self._of_topics[at[1]] = _BYTES_OF_A_RECORD + len(at[1].encode())
        both[0] += records
        both[1] += size + records * more
