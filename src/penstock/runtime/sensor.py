"""The events of a running task: one class with a method per event, all of which do nothing.

Subclasses turn events into metrics, traces or pictures. Every method is called once per batch, never per record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.metrics.task_counts import Cause, Example
    from penstock.runtime.record import BytesColumn, Headers
    from penstock.runtime.rows import DecodedRecords

__all__ = ["HeldEvents", "Sensor", "SensorGroup"]


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

    def on_consumed(self, task_id: str, topic: str, records: DecodedRecords) -> None:
        """Called when a source node has decoded records of a partition; the topic has its name in the log."""

    def on_input(
        self, task_id: str, timestamps: NDArray[np.int64], stream_times: NDArray[np.int64], unread: int
    ) -> None:
        """Called with the times of the records of a batch, in processing order, and stream time at each and after all.

        ``unread`` records could not be decoded or had no valid time.
        """

    def on_produced(
        self, task_id: str, node: str, topic: str, keys: BytesColumn, values: BytesColumn, headers: list[Headers] | None
    ) -> None:
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

    def on_flushed(self, task_id: str, changes: Mapping[str, pa.RecordBatch], seconds: float) -> None:
        """Called when the changes of stores have been published or committed, which took so long."""

    def on_store_calls(self, task_id: str, calls: Mapping[tuple[str, str], list[float]]) -> None:
        """Called after a batch with (store, call) -> keys and seconds, if the calls of stores are counted."""

    def on_punctuation(self, task_id: str, node: str, timestamp_ms: int, seconds: float) -> None:
        """Called when a punctuation ran for so long."""


class HeldEvents(Sensor):
    """Holds events back until it is known whether they count; only the start of a node is passed on at once.

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
