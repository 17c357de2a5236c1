"""The metrics of a running application: those of its loop, its tasks, and the partitions that it reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.clock import unix_ms
from penstock.metrics import MetricName, MetricRegistry
from penstock.metrics.definitions import COMMIT, POLLED, THREAD_PROCESS_LATENCY, THREAD_PROCESSED
from penstock.metrics.task_metrics import TaskMetrics, TaskOf
from penstock.runtime.counting import TaskCounts
from penstock.spark.driver.figures import Meter, RunFigures
from penstock.states import State
from penstock.version import __version__

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.metrics.name import MetricValue
    from penstock.metrics.registry import Meter as MetricMeter
    from penstock.spark.batch.progress import BatchProgress
    from penstock.topology.topology import Topology

__all__ = ["AppMetrics", "MeasuredApplication"]

_COMMIT_STEPS = ("publish", "changelog", "write", "send", "commit", "replicas")
_MS = 1000


class AppMetrics:
    """A progress listener that moves the metrics of an application.

    Args:
        topology: The topology.
        config: The settings.
        state: Returns the application's state.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, state: Callable[[], State]) -> None:
        self.registry = MetricRegistry.of(config, unix_ms)
        self._lock = threading.Lock()
        self._topology = topology
        self._physical_name = partial(topology.physical_name, application_id=config["application.id"])
        self._client = config["client.id"] or config["application.id"]
        # One thread stands for the loop: Spark gives a task to whatever worker is free, and its series stay the same.
        self._thread = f"{self._client}-StreamThread-1"
        self._nodes = {sub.id: sub.nodes for sub in topology.subtopologies()}
        self._tasks: dict[str, TaskMetrics] = {}
        self._lag: dict[str, int] = {}
        tags = {"thread-id": self._thread}
        meters = (THREAD_PROCESSED, THREAD_PROCESS_LATENCY, COMMIT, POLLED)
        self._processed, self._latency, self._commits, self._polled = (
            self.registry.meter(definition, tags) for definition in meters
        )
        self._constants(config, state)

    def __call__(self, progress: BatchProgress) -> None:
        """Add a batch, or what stream threads have done since the last look."""
        with self._lock:
            _record(self._processed, progress.records_in)
            _record(self._polled, progress.records_in)
            seconds = [task.get("seconds", {}) for task in progress.tasks]
            processing = sum(steps.get("process", 0.0) for steps in seconds)
            if self._latency is not None and progress.records_in:
                mean = processing * _MS / progress.records_in
                self._latency.record_many(mean * progress.records_in, progress.records_in, mean, mean)
            _record(self._commits, _MS * max((_of_commit(steps) for steps in seconds), default=0.0))
            for partition, lag in progress.lag.items():
                self._behind(partition, lag)
            for task in progress.tasks:
                self._task(task["task"]).record(_counts_of(task))

    def _task(self, task_id: str) -> TaskMetrics:
        found = self._tasks.get(task_id)
        if found is None:
            nodes = self._nodes[int(task_id.partition("_")[0])]
            task = TaskOf(self._thread, task_id, nodes, self._physical_name)
            found = self._tasks[task_id] = TaskMetrics(self.registry, self._topology, task)
        return found

    def _behind(self, partition: str, lag: int) -> None:
        """Note how many records wait in a partition."""
        if partition not in self._lag:
            topic, _, number = partition.rpartition("-")
            tags = {"client-id": f"{self._thread}-consumer", "topic": topic, "partition": number}
            name = MetricName.of(
                "records-lag", "consumer-fetch-manager-metrics", tags, "Records of the partition that wait to be read."
            )
            self.registry.gauge(name, lambda: self._lag[partition])
        self._lag[partition] = lag

    def _constants(self, config: StreamsConfig, state: Callable[[], State]) -> None:
        """Add the metrics of the client, and of its thread, that are read and not counted."""
        client = {"client-id": self._client}
        gauges: list[tuple[str, str, Callable[[], MetricValue]]] = [
            ("application-id", "The application's id.", lambda: str(config["application.id"])),
            ("client-state", "The number of the state.", lambda: list(State).index(state())),
            ("recording-level", "The recording level: 0 INFO, 1 DEBUG, 2 TRACE.", lambda: int(self.registry.level)),
            ("state", "The state of the application.", lambda: state().value),
            ("topology-description", "What the application runs.", lambda: str(self._topology.describe())),
            ("version", "The version of Penstock.", lambda: __version__),
        ]
        for name, description, read in gauges:
            self.registry.gauge(MetricName.of(name, "stream-metrics", client, description), read)
        lag = MetricName.of(
            "records-lag-max",
            "consumer-fetch-manager-metrics",
            {"client-id": f"{self._thread}-consumer"},
            "The most records that wait in a partition.",
        )
        self.registry.gauge(lag, lambda: max(self._lag.values(), default=0))


class MeasuredApplication:
    """The figures and metrics of an application."""

    _meter: Meter
    _app_metrics: AppMetrics
    _state: State

    @property
    def metrics(self) -> MetricRegistry:
        """The metrics under Kafka's groups, names, tags and units: ``KafkaStreams.metrics()``.

        Totals count since the start of this object. Times of commits and polls are those of micro-batches or of looks
        at stream threads; the largest latency is that of a batch's mean.
        """
        return self._app_metrics.registry

    def figures(self) -> RunFigures:
        """Return figures since the start: state, records, rate, lag, and seconds for each batch."""
        return self._meter.figures(self._state.value)

    def _repr_html_(self) -> str:
        """Return the figures as HTML for notebooks."""
        return self.figures()._repr_html_()


def _record(meter: MetricMeter | None, value: float) -> None:
    if meter is not None:
        meter.record(value)


def _of_commit(steps: Mapping[str, float]) -> float:
    return sum(steps.get(step, 0.0) for step in _COMMIT_STEPS)


def _counts_of(task: Mapping[str, Any]) -> TaskCounts:
    """Return the counts of a task's report; a stream thread reports the most important ones alone."""
    if "counts" in task:
        return TaskCounts.of_document(task["counts"])
    return TaskCounts(task.get("records_read", 0), dropped=task.get("dropped", 0))
