"""The task that fills the global stores from their topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.runtime.context import Surroundings
from penstock.runtime.global_stores import GLOBAL_TASK
from penstock.runtime.record import TopicBatch
from penstock.runtime.task import StreamTask, TaskPart

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engines.threads.app import ThreadApp
    from penstock.log.base import TopicPartition
    from penstock.runtime.sensor import Sensor
    from penstock.state.base import TaskState
    from penstock.topology.stores import StoreSpec

__all__ = ["GlobalFiller", "global_specs"]


class GlobalFiller:
    """The task that fills the global stores.

    Args:
        app: The application.
        state: The stores.
        sensor: Its sensor.
        clock: The wall clock, in milliseconds.
    """

    def __init__(self, app: ThreadApp, state: TaskState, sensor: Sensor, clock: Callable[[], int]) -> None:
        topology = app.topology
        self._clock = clock
        surroundings = Surroundings(sensor, clock())
        self._task = StreamTask(
            topology, app.config, TaskPart(GLOBAL_TASK, {}, topology.global_nodes), state, surroundings
        )

    def apply(self, place: TopicPartition, records: pa.RecordBatch) -> None:
        """Process records of a global topic."""
        batch = TopicBatch(place.topic, place.partition, records)
        self._task.process([batch], self._clock(), depth_first=records.num_rows == 1)

    def close(self) -> None:
        """Close the user's processors."""
        self._task.close()


def global_specs(app: ThreadApp) -> dict[str, StoreSpec]:
    """Return the global stores of an application by name."""
    return {name: app.topology.stores[name] for name in sorted(app.topology.global_stores)}
