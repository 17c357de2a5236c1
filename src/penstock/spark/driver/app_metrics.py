"""The metrics of a running application: those of its loop, its tasks, and the partitions that it reads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.clock import unix_ms
from penstock.metrics import BatchHistory, MetricName, MetricRegistry, PartitionLag
from penstock.metrics.definitions import COMMIT, POLLED, THREAD_PROCESS_LATENCY, THREAD_PROCESSED
from penstock.metrics.lag import LagWatch
from penstock.metrics.task_metrics import TaskMetrics, TaskOf
from penstock.runtime.counting import TaskCounts
from penstock.spark.driver.batch_records import batch_record
from penstock.spark.driver.figures import Meter, RunFigures
from penstock.spark.driver.lags import ends_of, time_at
from penstock.states import State
from penstock.version import __version__

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog
    from penstock.metrics.name import MetricValue
    from penstock.metrics.registry import Meter as MetricMeter
    from penstock.spark.batch.progress import BatchProgress
    from penstock.topology.topology import Topology

__all__ = ["AppMetrics", "MeasuredApplication"]

_COMMIT_STEPS = ("publish", "changelog", "write", "send", "commit", "replicas")
_MS = 1000


class AppMetrics:
    """A progress listener that moves the metrics of an application, when somebody reads them or about every second.

    A batch only puts its progress into a queue.

    Args:
        topology: The topology.
        config: The settings.
        state: Returns the application's state.

    Attributes:
        batches: The last batches.
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
        self._waiting: deque[tuple[int, BatchProgress]] = deque()
        self._watch = LagWatch(unix_ms)
        self._with_lag: set[str] = set()
        self.batches = BatchHistory()
        tags = {"thread-id": self._thread}
        meters = (THREAD_PROCESSED, THREAD_PROCESS_LATENCY, COMMIT, POLLED)
        self._processed, self._latency, self._commits, self._polled = (
            self.registry.meter(definition, tags) for definition in meters
        )
        self._constants(config, state)

    def __call__(self, progress: BatchProgress) -> None:
        """Take a batch, or what stream threads have done since the last look."""
        self._waiting.append((unix_ms(), progress))

    def catch_up(self) -> None:
        """Count the batches that have come since the last call."""
        with self._lock:
            while self._waiting:
                self._count(*self._waiting.popleft())

    def look(self, log: TopicLog, topics: Collection[str], positions: Mapping[str, int]) -> Mapping[str, int]:
        """Look how far the application is behind; nothing is noted if the log does not answer.

        Args:
            log: The log.
            topics: The source topics.
            positions: ``<topic>-<partition>`` -> the offset of the next record.

        Returns:
            ``<topic>-<partition>`` -> records that wait.
        """
        ends = ends_of(log, topics)
        with self._lock:
            self._watch.look(positions, ends, partial(time_at, log))
            lags = self._watch.lags()
            for lag in lags:
                self._behind(lag)
        self.catch_up()
        return {f"{lag.topic}-{lag.partition}": lag.records for lag in lags}

    def lags(self) -> tuple[PartitionLag, ...]:
        """Return the lag of each partition as of the last look."""
        return self._watch.lags()

    def _count(self, at_ms: int, progress: BatchProgress) -> None:
        _record(self._processed, progress.records_in)
        _record(self._polled, progress.records_in)
        seconds = [task.get("seconds", {}) for task in progress.tasks]
        processing = sum(steps.get("process", 0.0) for steps in seconds)
        if self._latency is not None and progress.records_in:
            mean = processing * _MS / progress.records_in
            self._latency.record_many(mean * progress.records_in, progress.records_in, mean, mean)
        _record(self._commits, _MS * max((_of_commit(steps) for steps in seconds), default=0.0))
        for task in progress.tasks:
            self._task(task["task"]).record(_counts_of(task))
        self.batches.add(batch_record(progress, at_ms, self._watch.lags()))

    def _task(self, task_id: str) -> TaskMetrics:
        found = self._tasks.get(task_id)
        if found is None:
            nodes = self._nodes[int(task_id.partition("_")[0])]
            task = TaskOf(self._thread, task_id, nodes, self._physical_name)
            found = self._tasks[task_id] = TaskMetrics(self.registry, self._topology, task)
        return found

    def _behind(self, lag: PartitionLag) -> None:
        """Add the metrics of a partition's lag, once."""
        at = f"{lag.topic}-{lag.partition}"
        if at in self._with_lag:
            return
        self._with_lag.add(at)
        tags = {"client-id": f"{self._thread}-consumer", "topic": lag.topic, "partition": str(lag.partition)}
        gauges: list[tuple[str, str, Callable[[], MetricValue]]] = [
            ("records-lag", "Records of the partition that wait to be read.", lambda: self._watch.of(at).records),
        ]
        for name, description, read in gauges:
            self.registry.gauge(MetricName.of(name, "consumer-fetch-manager-metrics", tags, description), read)

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
        self.registry.gauge(lag, lambda: max((lag.records for lag in self._watch.lags()), default=0))


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
        self._app_metrics.catch_up()
        return self._app_metrics.registry

    @property
    def batches(self) -> BatchHistory:
        """The last 600 batches with their steps, skew, lags and tasks; of stream threads, one about every second."""
        self._app_metrics.catch_up()
        return self._app_metrics.batches

    def partition_lags(self) -> tuple[PartitionLag, ...]:
        """Return how far each source partition is behind, in records and seconds, as of about the last second."""
        return self._app_metrics.lags()

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
    reported = {where: count for where, count in task.get("reported", {}).items() if count}
    return TaskCounts(task.get("records_read", 0), dropped=task.get("dropped", 0), reported=reported)
