"""The metrics of a running application: its lag, its loop, its tasks, and the partitions that it reads."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.base.version import __version__
from penstock.engines.application_figures import batch_record
from penstock.engines.lifecycle import State
from penstock.errors import LogError, UnknownTopicError
from penstock.log.client_counts import CLOSED_TASKS, counted
from penstock.log.time_range import timestamp_at
from penstock.metrics import BatchHistory, BatchRecord, MetricName, MetricRegistry, PartitionLag, snapshot
from penstock.metrics.client_metrics import ClientMetrics
from penstock.metrics.definitions import THREAD
from penstock.metrics.lag import LagWatch
from penstock.metrics.loop_metrics import LagMetrics, LoopMetrics
from penstock.metrics.task_counts import TaskCounts
from penstock.metrics.task_metrics import TaskMetrics, TaskOf
from penstock.runtime.global_stores import GLOBAL_TASK

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.micro_batches.spark_metrics import SparkMetrics
    from penstock.engines.spark.progress import BatchProgress
    from penstock.log.base import TopicLog, TopicPartition
    from penstock.metrics.metric import MetricValue
    from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology
    from penstock.topology.topology import SubTopology, Topology

__all__ = ["AppMetrics", "beginnings_of", "committed_by_name", "ends_of", "lag_behind", "time_at", "with_known_ends"]

_log = own_logger(__name__)


def lag_behind(log: TopicLog, plan: PhysicalPlan, positions: Mapping[str, int], batch: int) -> dict[str, int]:
    """Return the lag of each partition whose position is known; nothing if the log does not answer.

    Args:
        log: The log.
        plan: The plan.
        positions: ``<topic>-<partition>`` -> the offset of the next record.
        batch: The batch after which it is asked for, for messages.
    """
    try:
        ends = _by_name(log.end_offsets(list(plan.external_topics)))
    except (LogError, UnknownTopicError) as error:  # the lag is for people: no batch fails without it
        _log.warning("the lag after batch %d is not known: %s", batch, error)
        return {}
    return {name: end - positions[name] for name, end in ends.items() if name in positions}


def with_known_ends(
    lag: Mapping[str, int], positions: Mapping[str, int], seen: Iterable[PartitionLag]
) -> dict[str, int]:
    """Return a reported lag with what was seen since: a busy thread knows the ends of its last fetch, a new one none.

    Args:
        lag: ``<topic>-<partition>`` -> records that wait, as threads have reported it.
        positions: ``<topic>-<partition>`` -> the offset of the next record.
        seen: The lag of source partitions as of the last look at the log.
    """
    newest = dict(lag)
    for each in seen:
        name = f"{each.topic}-{each.partition}"
        newest[name] = max(lag.get(name, 0), each.end - positions.get(name, each.position))
    return newest


def ends_of(log: TopicLog, topics: Collection[str]) -> dict[str, int]:
    """Return the end of each partition by ``<topic>-<partition>``; nothing if the log does not answer."""
    return _offsets(log.end_offsets, topics)


def beginnings_of(log: TopicLog, topics: Collection[str]) -> dict[str, int]:
    """Return the first offset of each partition by ``<topic>-<partition>``; nothing if the log does not answer."""
    return _offsets(log.beginning_offsets, topics)


def positions_at_start(log: TopicLog, application_id: str, from_the_first: Collection[str]) -> dict[str, int]:
    """Return where an application begins to read, by ``<topic>-<partition>``, as far as that is known.

    Args:
        log: The log.
        application_id: Its group, whose committed offsets come first.
        from_the_first: The topics that it reads from their first records if the group has no offsets.
    """
    beginnings = beginnings_of(log, from_the_first)
    try:
        return beginnings | _by_name(log.committed_offsets(application_id))
    except LogError as error:
        _log.debug("the lag is not known: %s", error)
        return {}


def committed_by_name(log: TopicLog, application_id: str) -> dict[str, int]:
    """Return the committed offsets of an application by ``<topic>-<partition>``; nothing if the log does not answer."""
    try:
        return _by_name(log.committed_offsets(application_id))
    except LogError as error:
        _log.debug("the lag is not known: %s", error)
        return {}


def _offsets(ask: Callable[[Sequence[str]], dict[TopicPartition, int]], topics: Collection[str]) -> dict[str, int]:
    try:
        return _by_name(ask(list(topics)))
    except (LogError, UnknownTopicError) as error:
        _log.debug("the lag is not known: %s", error)
        return {}


def _by_name(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {f"{tp.topic}-{tp.partition}": offset for tp, offset in offsets.items()}


def time_at(log: TopicLog, topic: str, partition: int, offset: int) -> int | None:
    """Return the timestamp of the first record from an offset on; None if there is none, or the log does not answer."""
    try:
        return timestamp_at(log, topic, partition, offset)
    except (LogError, UnknownTopicError) as error:
        _log.debug("the age of %s-%d is not known: %s", topic, partition, error)
        return None


STREAMS = "stream-metrics"
_BEGINNINGS_EVERY = 10  # looks
_LEVELS = "The recording level: 0 INFO, 1 DEBUG, 2 TRACE."
_ALIVE = "Cores that run tasks, or stream threads; 0 when the application does not run."
_FAILED = "Restarts of the query, or of stream threads, after the loss of a process, since the start."
_THREAD_NUMBER = "The state of the application as Kafka numbers those of threads, from 0 CREATED to 6 DEAD."
_THREAD_STATE = "The state of the application in the words of Kafka's threads."
_ALIVE_IN = (State.RUNNING, State.REBALANCING, State.PENDING_SHUTDOWN)
_OF_THREADS = {
    State.CREATED: "CREATED",
    State.REBALANCING: "PARTITIONS_ASSIGNED",
    State.RUNNING: "RUNNING",
    State.PENDING_SHUTDOWN: "PENDING_SHUTDOWN",
    State.PENDING_ERROR: "PENDING_SHUTDOWN",
}
_THREAD_STATES = {
    "CREATED": 0,
    "PARTITIONS_ASSIGNED": 3,
    "RUNNING": 4,
    "PENDING_SHUTDOWN": 5,
    "DEAD": 6,
}  # as Kafka numbers them


class AppMetrics:
    """A progress listener that moves the metrics of an application, when somebody reads them or about every second.

    A batch only puts its progress into a queue.

    Args:
        topology: The topology.
        config: The settings.
        state: Returns the application's state.

    Attributes:
        batches: The last batches.
        parallelism: How many tasks run at a time, or how many stream threads there are.
        plan: Returns the plan, where a sub-topology keeps the id that it had when the topology was another one; None:
            ids are those of the topology.
        also: Called with each batch and its record, by whatever thread counts it.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, state: Callable[[], State]) -> None:
        self.registry = MetricRegistry.of(config, unix_ms)
        self._lock = threading.Lock()
        self._topology, self._state = topology, state
        self._physical_name = partial(topology.physical_name, application_id=config["application.id"])
        self._client = config["client.id"] or config["application.id"]
        # One thread stands for the loop: Spark gives a task to whatever worker is free, and its series stay the same.
        self._thread = f"{self._client}-StreamThread-1"
        self.plan: Callable[[], PhysicalPlan | None] = lambda: None
        self._tasks: dict[str, TaskMetrics] = {}
        self._waiting: deque[tuple[int, BatchProgress]] = deque()
        self._watch = LagWatch(unix_ms)
        self._beginnings: dict[str, int] = {}
        self._looks = 0
        policy = str(config["auto.offset.reset"])
        self._from_the_first = {
            topic for node in topology.sources if (node.offset_reset or policy) == "earliest" for topic in node.topics
        }
        self._at_start: Mapping[str, int] | None = None
        self.also: Callable[[BatchProgress, BatchRecord], None] | None = None
        self.batches = BatchHistory()
        self.parallelism = 1
        self._application = str(config["application.id"])
        self._clients = ClientMetrics(self.registry, self._thread, unix_ms, lambda: len(self._watch.lags()))
        self._spark = _spark_metrics() if config["penstock.metrics.spark"] else None
        self._loop = LoopMetrics(self.registry, self._thread)
        self._lags = LagMetrics(self.registry, f"{self._thread}-consumer", self._watch)
        self._global = self._global_task()
        self._constants(config, state)

    def exported(self, matching: str = "") -> dict[str, Any]:
        """Return the metrics, the newest batch and the lags for JSON, see `KafkaStreams.exported_metrics`."""
        self.catch_up()
        newest = self.batches.newest
        return {
            "state": self._state().value,
            "metrics": snapshot(self.registry, matching),
            "batch": None if newest is None else newest.document(),
            "partitions": [lag.document() for lag in self.lags()],
        }

    def __call__(self, progress: BatchProgress) -> None:
        """Take a batch, or what stream threads have done since the last look."""
        self._waiting.append((unix_ms(), progress))

    def catch_up(self) -> None:
        """Count the batches that have come since the last call."""
        with self._lock:
            while self._waiting:
                at_ms, progress = self._waiting.popleft()
                try:
                    self._count(at_ms, progress)
                except Exception:  # noqa: BLE001 - logged; no application ends for its metrics
                    _log.exception("batch %d could not be counted in the metrics", progress.batch)
            self._clients.record(counted(self._application).take())

    def look(self, log: TopicLog, topics: Collection[str], positions: Mapping[str, int]) -> Mapping[str, int]:
        """Look how far the application is behind; nothing is noted if the log does not answer.

        Args:
            log: The log.
            topics: The source topics.
            positions: ``<topic>-<partition>`` -> the offset of the next record; the start of those not yet read is
                looked up at the first call.

        Returns:
            ``<topic>-<partition>`` -> records that wait.
        """
        ends = ends_of(log, topics)
        if self._at_start is None and ends:
            self._at_start = positions_at_start(log, self._application, self._from_the_first & set(topics))
        positions = {**(self._at_start or {}), **positions}
        with self._lock:
            self._watch.look(positions, ends, partial(time_at, log))
            if self._looks % _BEGINNINGS_EVERY == 0:
                self._beginnings = beginnings_of(log, topics)
            self._looks += bool(ends)
            self._lags.look(self._beginnings)
            lags = self._watch.lags()
        self.catch_up()
        if self._spark is not None:
            self._spark.show(self.registry)
        return {f"{lag.topic}-{lag.partition}": lag.records for lag in lags}

    @property
    def restarts(self) -> int:
        """How often the application has begun again after the loss of a process."""
        return self._clients.restarts

    def lags(self) -> tuple[PartitionLag, ...]:
        """Return the lag of each partition as of the last look."""
        return self._watch.lags()

    def beginnings(self) -> Mapping[str, int]:
        """Return the first offset of each ``<topic>-<partition>``, as of one of the last looks."""
        return self._beginnings

    def _count(self, at_ms: int, progress: BatchProgress) -> None:
        batch = batch_record(progress, at_ms, self._watch.lags())
        self.batches.add(batch)
        if self.also is not None:
            self.also(progress, batch)
        self._loop.record(batch)
        processing = sum(filter(None, map(_processing_s, progress.tasks)))
        for report in progress.tasks:
            task, counts = self._task(report["task"]), _counts_of(report)
            task.record(counts)
            task.record_sizes(report.get("entries", {}), report.get("store_bytes", {}))
            if processing and (own := _processing_s(report)) is not None:
                task.record_share(own / processing)
            if "restored" in report:
                task.record_restore(report["seconds"].get("state", 0.0))
            restored_stores = report.get("restored_stores", {})
            for store, seconds in restored_stores.items():
                task.record_restored_store(store, seconds)
            self._loop.record_punctuations(counts.punctuations)
            self._loop.record_moves(report.get("opened", 0), len(restored_stores) or "restored" in report)
            task.record_restored_rows(report.get("restored_rows", 0))
            if self._global is not None and "global" in report:
                self._global.record(TaskCounts.of_document(report["global"].get("counts", {})))
                self._global.record_sizes(report["global"]["entries"], report["global"]["store_bytes"])
        restoring = sum(report.get("restoring", int("restored" in report)) for report in progress.tasks)
        self._loop.record_restores(restoring, sum(report.get("restored_rows", 0) for report in progress.tasks))
        counted_there = [each for report in progress.tasks for each in report.get("clients", ())]
        self._loop.record_closed(sum(each[3] for each in counted_there if each[1] == CLOSED_TASKS))
        self._clients.record(counted_there)
        self._clients.record_tasks(map(_counts_of, progress.tasks))
        self._clients.record_batch(batch)

    def _task(self, task_id: str) -> TaskMetrics:
        task_metrics = self._tasks.get(task_id)
        if task_metrics is None:
            part = self._part(int(task_id.partition("_")[0]))
            task = TaskOf(self._thread, task_id, part.nodes, self._physical_name, part.stores)
            task_metrics = self._tasks[task_id] = TaskMetrics(self.registry, self._topology, task)
        return task_metrics

    def _part(self, subtopology: int) -> SubTopology | PlannedSubTopology:
        plan = self.plan()
        parts = self._topology.subtopologies() if plan is None else plan.subtopologies
        return next(part for part in parts if part.id == subtopology)

    def _global_task(self) -> TaskMetrics | None:
        """Return the metrics of the task that fills the global stores; one stands for those of all machines."""
        topology = self._topology
        if not topology.global_nodes:
            return None
        thread, stores = f"{self._client}-GlobalStreamThread", sorted(topology.global_stores)
        task = TaskOf(thread, GLOBAL_TASK, sorted(topology.global_nodes), self._physical_name, stores, is_global=True)
        return TaskMetrics(self.registry, topology, task)

    def _constants(self, config: StreamsConfig, state: Callable[[], State]) -> None:
        """Add the metrics of the client, and of its thread, that are read and not counted."""
        client, thread = {"client-id": self._client}, {"thread-id": self._thread}
        process = {"process-id": str(uuid.uuid4())}
        of_client = {**client, **process, "application-id": str(config["application.id"])}
        started = unix_ms()
        gauges: list[tuple[str, str, Mapping[str, str], str, Callable[[], MetricValue]]] = [
            ("application-id", STREAMS, client, "The application's id.", lambda: str(config["application.id"])),
            (
                "client-state",
                STREAMS,
                of_client,
                "The state of the application as Kafka numbers it, from 0 CREATED to 6 ERROR.",
                lambda: list(State).index(state()),
            ),
            ("recording-level", STREAMS, {**client, **process}, _LEVELS, lambda: int(self.registry.level)),
            ("state", STREAMS, client, "The state of the application.", lambda: state().value),
            ("topology-description", STREAMS, client, "The topology as text.", lambda: str(self._topology.describe())),
            ("version", STREAMS, client, "The version of Penstock.", lambda: __version__),
            ("commit-id", STREAMS, client, "The commit that this was built from, if the build notes it.", _unknown),
            ("alive-stream-threads", STREAMS, client, _ALIVE, lambda: self.parallelism if state() in _ALIVE_IN else 0),
            ("failed-stream-threads", STREAMS, client, _FAILED, lambda: self._clients.restarts),
            (
                "thread-start-time",
                THREAD,
                thread,
                "When the application object was made, in milliseconds since 1970.",
                lambda: started,
            ),
            ("state", THREAD, thread, _THREAD_STATE, lambda: _thread_state(state())),
            ("thread-state", THREAD, {**thread, **process}, _THREAD_NUMBER, lambda: _number_of_thread_state(state())),
            ("count", "kafka-metrics-count", {}, "How many metrics there are.", lambda: len(self.registry)),
        ]
        for name, group, tags, description, read in gauges:
            self.registry.gauge(MetricName.of(name, group, tags, description), read)


def _spark_metrics() -> SparkMetrics:
    from penstock.engines.micro_batches.spark_metrics import SparkMetrics

    return SparkMetrics()


def _thread_state(state: State) -> str:
    return _OF_THREADS.get(state, "DEAD")


def _number_of_thread_state(state: State) -> int:
    return _THREAD_STATES[_thread_state(state)]


def _unknown() -> str:
    return "unknown"


def _processing_s(task: Mapping[str, Any]) -> float | None:
    """Return how long a task has processed; of a stream thread, whose tasks take turns, each reports its own time."""
    busy_s: float | None = task.get("busy_s", task.get("seconds", {}).get("process"))
    return busy_s


def _counts_of(task: Mapping[str, Any]) -> TaskCounts:
    """Return the counts of a task's report; a stream thread reports the most important ones alone."""
    if "counts" in task:
        return TaskCounts.of_document(task["counts"])
    return TaskCounts(task.get("records_read", 0), dropped=task.get("dropped", 0))
