"""The test driver: a topology in the process of the test, with a clock that only the test advances."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from penstock.base.argument_checks import check_given, check_mapping, check_whole
from penstock.base.durations import DurationLike, TimestampLike, duration_ms, timestamp_ms
from penstock.base.java_names import with_java_names
from penstock.base.terminal.human_numbers import counted
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, InvalidStateError, PenstockError, StateError, TopologyError
from penstock.log.partitioner import KeyPartitioner
from penstock.metrics import MetricRegistry
from penstock.metrics.task_metrics import TaskMetrics, TaskOf
from penstock.query.position import Position
from penstock.query.source import GLOBAL, QUERYABLE, StoreInfo, StoreSnapshot, unknown_store
from penstock.runtime.global_stores import GLOBAL_TASK
from penstock.runtime.local_task import LocalTask, LocalTasks
from penstock.runtime.rows import RawRecord
from penstock.runtime.sensor import CountingSensor, Sensor, SensorGroup
from penstock.serde import Serdes
from penstock.serde.bound_serdes import bound, configured
from penstock.testing.driver_topics import TestInputTopic, TestOutputTopic
from penstock.topology.operations.functions import Function
from penstock.topology.topology import require_topology

if TYPE_CHECKING:
    from penstock.metrics.task_counts import TaskCounts
    from penstock.query import StateQueryRequest, StateQueryResult
    from penstock.serde.base import Serde
    from penstock.testing.driver_topics import StatePort
    from penstock.topology.nodes import SinkNode, SourceNode
    from penstock.topology.topology import Topology

__all__ = ["DriverMetrics", "DriverState", "TopologyTestDriver", "driver_config"]

_APPLICATION = "topology-test-driver"


@with_java_names
class TopologyTestDriver:
    """A driver of the production task for tests, record by record: Kafka's ``TopologyTestDriver``.

    All sub-topologies run as one task with one partition for each topic, unless `input_topic` gives a topic several:
    then each sub-topology runs as a task for each partition, with its own stores and stream time. Records of internal
    topics are processed before the next input.

    Args:
        topology: The topology that ``StreamsBuilder.build()`` returned.
        config: Settings; ``application.id`` is optional.
        initial_wall_clock_ms: The start of the wall clock, in milliseconds since 1970.
        batch_size: The number of records that are collected and processed together. With caching off the results are
            the same for each topic and sub-topology; `flush` processes the records collected so far.
        by_column: Whether even single records are processed as batches, not depth first. The results are the same; the
            order in which functions of different operators are called is not.
        sensor: A sensor that is called for the events of each batch.
        changelogs: Whether the records of changelog topics are kept, as Kafka's driver keeps them: the last change of
            each row with each commit. They are read like outputs, by the full name of the topic.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | Mapping[str, Any] | None = None,
        initial_wall_clock_ms: TimestampLike = 0,
        batch_size: int = 1,
        *,
        by_column: bool = False,
        sensor: Sensor | None = None,
        changelogs: bool = False,
    ) -> None:
        check_whole(batch_size, "TopologyTestDriver(): batch_size", 1, InvalidStateError)
        require_topology(topology, "TopologyTestDriver")
        self.config = driver_config(config, "TopologyTestDriver(): config")
        self._counting = CountingSensor(lambda: self._task.wall_clock_ms)
        self._options: dict[str, Any] = {
            "sensor": self._counting if sensor is None else SensorGroup((self._counting, sensor)),
            "wall_clock_ms": timestamp_ms(initial_wall_clock_ms),
            "by_column": by_column,
            "logs_changes": changelogs,
        }
        self._task: LocalTask | LocalTasks = LocalTask(
            topology, self.config, self._keep, skips_global_damage=True, **self._options
        )
        self.topology = self._task.topology
        self._metrics = DriverMetrics(self.topology, self.config, lambda: self.wall_clock_ms)
        self._refusal: Callable[[RawRecord], PenstockError | None] | None = None
        self._inputs: set[str] = set()
        self._partitions: dict[str, int] = {}  # of the topics that were given a number; empty: all have one
        self._partitioner = KeyPartitioner()
        self._is_used = self._waits_for_tasks = False
        self._batch_size = batch_size
        self._prefix = f"{self.config['application.id']}-"
        self._logical_names: dict[str, str] = {}  # of the topics that were asked for
        self._collected: list[RawRecord] = []
        self._written: dict[str, deque[RawRecord]] = {}
        self._closed = False

    @property
    def wall_clock_ms(self) -> int:
        """The time of the wall clock."""
        return self._task.wall_clock_ms

    def input_topic(
        self,
        name: str,
        key_serde: Serde[Any] | str | None = None,
        value_serde: Serde[Any] | str | None = None,
        auto_advance: DurationLike = 0,
        partitions: int | None = None,
    ) -> TestInputTopic[Any, Any]:
        """Return a source topic to write to; the serdes are by default those of the source.

        Args:
            name: The name of the topic.
            key_serde: The serde of keys.
            value_serde: The serde of values.
            auto_advance: The time by which the topic's own clock advances after each record without a timestamp.
            partitions: The number of partitions, to be given before the first record. Other inputs have one unless
                they are given more; other outputs have as many as the largest topic that was given a number.

        >>> from penstock import Materialized, StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> counts = builder.stream("words").group_by_key().count(Materialized("counts"))
        >>> serdes = {"default.key.serde": "string", "default.value.serde": "string"}
        >>> with TopologyTestDriver(builder.build(), serdes) as driver:
        ...     words = driver.input_topic("words", partitions=3)
        ...     words.pipe_many([("ann", "x"), ("bob", "x"), ("ann", "x")])
        ...     words.pipe("x", key="ann", partition=0)  # where Kafka's producer would not send this key
        ...     [driver.store("counts", partition).get("ann") for partition in range(3)]
        [ValueAndTimestamp(value=1, timestamp=0), None, ValueAndTimestamp(value=2, timestamp=0)]
        """
        source = self._source(name)
        if source is None:
            source_topics = sorted({t for n in self.topology.sources for t in n.topics})
            raise TopologyError(
                f"no source reads topic {name!r}", hint=f"Source topics are {source_topics}.", topic=name
            )
        if partitions is not None:
            self._give(name, partitions, "input_topic")
        self._inputs.add(name)
        self._require_read(self._logical(name))
        return TestInputTopic(self, name, *self._serdes(name, source, key_serde, value_serde), auto_advance)

    def output_topic(
        self,
        name: str,
        key_serde: Serde[Any] | str | None = None,
        value_serde: Serde[Any] | str | None = None,
        partitions: int | None = None,
    ) -> TestOutputTopic[Any, Any]:
        """Return a topic to read from; the serdes are by default those of the sink that writes it.

        Args:
            name: The name of the topic.
            key_serde: The serde of keys.
            value_serde: The serde of values.
            partitions: The number of partitions, to be given before the first record; see `input_topic`.
        """
        name = self._logical(name)
        if partitions is not None:
            self._give(name, partitions, "output_topic")
        sink = next((n for n in self.topology.sinks if n.topic == name), None)
        if sink is None:
            sink = next((n for n in self.topology.sinks if n.topic_fn is not None), None)
        return TestOutputTopic(self, name, *self._serdes(name, sink, key_serde, value_serde))

    def pipe_raw(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Any = (),
        partition: int | None = None,
    ) -> None:
        """Write a record of bytes to a source topic, to the partition of its key unless one is named."""
        self._open()
        pairs = tuple((name, _bytes(value)) for name, value in headers) if headers else ()
        data = _bytes(key)
        task = self._task
        if isinstance(task, LocalTask):
            if partition:
                self._check_partition(topic, partition)
            position = (task.next_offset(topic), 0)
        else:
            if partition is None:
                partition = self._partitioner.partition(topic, data, task.partition_count(topic))
            self._check_partition(topic, partition)
            position = (task.next_offset(topic, partition), partition)
        self._collect(RawRecord(topic, position[0], timestamp, data, _bytes(value), pairs, position[1]))

    def pipe_record(self, record: RawRecord) -> None:
        """Write a record of bytes with the partition and offset that it has in a log."""
        self._open()
        if record.partition and isinstance(self._task, LocalTasks):
            self._check_partition(record.topic, record.partition)
        self._collect(record)

    def _collect(self, record: RawRecord) -> None:
        self._collected.append(record)
        if len(self._collected) >= self._batch_size or self._task.fills_global_store(record.topic):
            self._process()

    def flush(self) -> None:
        """Process the records collected so far, and the records that they write to internal topics."""
        self._open()
        self._process()

    def _process(self) -> None:
        records, self._collected = self._collected, []
        self._task.process(records)

    def advance_wall_clock_time(self, duration: DurationLike) -> None:
        """Advance the wall clock, and run the punctuations that have become due."""
        self.flush()
        self._metrics.record(self._counting.take())  # at the time at which it was done
        self._task.pass_time(duration_ms(duration))

    def _keep(self, record: RawRecord) -> None:
        unread = self._written.get(record.topic)
        if unread is None:
            unread = self._written[record.topic] = deque()
        unread.append(record)

    def refuse(self, refusal: Callable[[RawRecord], PenstockError | None]) -> None:
        """Refuse records as a log may, for tests of ``production.exception.handler``.

        Args:
            refusal: Called with each record that is written, as bytes; returns the error for one that is refused.

        >>> from penstock import StreamsBuilder
        >>> from penstock.errors import ProductionError
        >>> builder = StreamsBuilder()
        >>> builder.stream("words").to("copies")
        >>> settings = {"default.key.serde": "string", "default.value.serde": "string"}
        >>> settings["production.exception.handler"] = "continue"
        >>> with TopologyTestDriver(builder.build(), settings) as driver:
        ...     driver.refuse(lambda record: ProductionError("too large") if len(record.value) > 3 else None)
        ...     for word in ("a", "long", "b"):
        ...         driver.input_topic("words").pipe(word)
        ...     driver.output_topic("copies").read_values_to_list()
        ['a', 'b']
        """
        Function.wrap(refusal, verb="refuse", allowed=(1,), passed="(record)", expression=False)
        self._refusal = refusal
        self._task.refuse(refusal)

    def sent_before_failure(self) -> list[RawRecord]:
        """Return what the input that failed had written by then, dead letters included: no topic has got it."""
        return self._task.written_before_failure()

    def read_raw(self, topic: str, partition: int | None = None) -> RawRecord | None:
        """Return the next unread record of an output topic, or of one partition, as bytes; None if there is none."""
        queue = self._written.get(self._logical(topic))
        if not queue:
            return None
        if partition is None:
            return queue.popleft()
        record = next((each for each in queue if each.partition == partition), None)
        if record is not None:
            queue.remove(record)
        return record

    def peek_raw(self, topic: str) -> tuple[RawRecord, ...]:
        """Return the unread records of an output topic, which stay unread."""
        return tuple(self._written.get(self._logical(topic), ()))

    def queue_size(self, topic: str) -> int:
        """Return the number of unread records of an output topic."""
        return len(self._written.get(self._logical(topic), ()))

    def produced_topic_names(self) -> set[str]:
        """Return all topics that have been written; internal topics with the application's prefix."""
        return {self._physical_name(topic) for topic in self._written}

    def get_state_store(self, name: str, partition: int | None = None) -> Any:
        """Return the typed view of a state store.

        Args:
            name: The name of the store.
            partition: The partition, if topics have several. None: if the store has several, all of them, to be read
                only, a key first where Kafka's producer would have sent it; values come with their timestamps as in
                the store of a partition.
        """
        self._check_store(name, partition)
        if isinstance(self._task, LocalTask):
            return self._task.store(name)
        if partition is not None or self.partitions_of(name) == 1:
            return self._task.store(name, partition or 0)
        return self._all_partitions(name)

    store = get_state_store

    def _check_store(self, name: str, partition: int | None = None) -> None:
        """Process what has been collected, and raise an error if there is no such store or partition of it."""
        self.flush()
        check_given(name, str, "the name of a store", "a text")
        if name not in self.topology.stores:
            raise StateError(
                f"the topology has no store {name!r}",
                hint=f"Its stores are {', '.join(sorted(self.topology.stores)) or 'none'}.",
                store=name,
            )
        count = self.partitions_of(name)
        if partition is not None:
            check_whole(partition, "get_state_store(): partition", 0, StateError)
            if partition >= count:
                raise StateError(
                    f"store {name!r} has no partition {partition}",
                    hint=f"Its partitions are 0 to {count - 1}.",
                    store=name,
                )

    def _all_partitions(self, store: str) -> Any:
        from penstock.query import QueryableStoreTypes as Types
        from penstock.query import StoreQueryParameters
        from penstock.query.stores import open_store

        spec = self.topology.stores[store]
        if spec.kind not in QUERYABLE:
            raise StateError(
                f"store {store!r} is of kind {spec.kind!r}, which can be read partition by partition only",
                hint=f"Name one: driver.store({store!r}, partition=0).",
                store=store,
            )
        most_shown = (
            Types.timestamped_key_value_store_with_headers(),
            Types.timestamped_window_store_with_headers(),
            Types.timestamped_key_value_store(),
            Types.timestamped_window_store(),
        )
        kind = next((each for each in most_shown if each.fits(spec)), None)
        return open_store(DriverState(self), StoreQueryParameters(store, kind))

    def partitions_of(self, store: str) -> int:
        """Return the number of partitions of a store; 1 for a global one, of which all tasks see the same copy."""
        check_given(store, str, "the name of a store", "a text")
        self._begin()
        return 1 if isinstance(self._task, LocalTask) else self._task.partitions_of(store)

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        check_given(topic, str, "the name of a topic", "a text")
        self._begin()
        return 1 if isinstance(self._task, LocalTask) else self._task.partition_count(self._logical(topic))

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """Answer an interactive query as ``KafkaStreams.query`` does.

        >>> from penstock import Materialized, StreamsBuilder
        >>> from penstock.query import KeyQuery, StateQueryRequest
        >>> builder = StreamsBuilder()
        >>> counts = builder.stream("words").group_by_key().count(Materialized("counts"))
        >>> serdes = {"default.key.serde": "string", "default.value.serde": "string"}
        >>> with TopologyTestDriver(builder.build(), serdes) as driver:
        ...     driver.input_topic("words").pipe("x", key="a")
        ...     driver.query(StateQueryRequest("counts", KeyQuery("a"))).only_partition_result.get()
        1
        """
        from penstock.query.execute import run_query

        level = self.config["default.interactive.query.isolation.level"]
        return run_query(DriverState(self, level), request, is_active=not self._closed)

    def position_of(self, store: str) -> dict[str, dict[int, int]]:
        """Return the offset of the last record that wrote to a store, by topic and partition."""
        self._check_store(store)
        return self._task.position_of(store)

    def committed_store(self, name: str, partition: int | None = None) -> Any:
        """Return the typed view of a store for readers of committed state: `get_state_store`, or the last commit's.

        They differ in the middle of a record, if ``enable.transactional.statestores`` is set.
        """
        self._check_store(name, partition)
        if isinstance(self._task, LocalTask):
            return self._task.committed_store(name)
        return self._task.committed_store(name, partition or 0)

    @property
    def dropped_records(self) -> int:
        """The number of dropped records: Kafka's ``dropped-records-total``."""
        return self._task.dropped_records

    @property
    def metrics(self) -> MetricRegistry:
        """The metrics of the task under Kafka's names: ``TopologyTestDriver.metrics()``.

        >>> from penstock import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.stream("words").to("copies")
        >>> serdes = {"default.key.serde": "string", "default.value.serde": "string"}
        >>> settings = {**serdes, "metrics.recording.level": "DEBUG"}
        >>> with TopologyTestDriver(builder.build(), settings) as driver:
        ...     driver.input_topic("words").pipe("x")
        ...     driver.metrics.value("process-total", group="stream-task-metrics", task_id="0_0")
        1.0
        """
        self.flush()
        self._metrics.record(self._counting.take())
        return self._metrics.registry

    def explain(self) -> str:
        """Describe for each operator whether it runs by column, or the reason if not."""
        self._begin()
        reason = self._task.sliced_reason
        return "whole batches by column" if reason is None else f"record by record: {reason}"

    def close(self) -> None:
        """Process the records collected so far, and close the processors."""
        if self._closed:
            return
        try:
            if not self._waits_for_tasks:
                self._task.close()
        finally:
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()
        self.close()

    def _open(self) -> None:
        if self._closed:
            raise InvalidStateError("the test driver is closed", hint="Make a new one for each test.")
        if self._waits_for_tasks:
            self._begin()
        self._is_used = True

    def _give(self, topic: str, partitions: int, call: str) -> None:
        """Give a topic its number of partitions, as long as no task has a record."""
        check_whole(partitions, f"{call}(): partitions", 1)
        if self._logical(topic) in self.topology.internal_topics:
            raise TopologyError(
                f"{call}(): {topic!r} is an internal topic, whose partitions come from the topics that feed it",
                hint="Give those a number, or the topology: repartition(Repartitioned(partitions=...)).",
                topic=topic,
            )
        if self._partitions.get(topic) == partitions:
            return
        if self._is_used and self.partition_count(topic) != partitions:
            raise InvalidStateError(
                f"{call}(): topic {topic!r} has {counted(self.partition_count(topic), 'partition')} since the driver "
                "was used first",
                hint="Give all topics their partitions before the first record.",
                topic=topic,
            )
        if self._is_used:
            return
        self._partitions[topic] = partitions
        if partitions > 1 or isinstance(self._task, LocalTasks):
            self._begin_anew()

    def _require_read(self, topic: str) -> None:
        """Have the tasks of partitions read a topic that a pattern fits, as long as no task has a record."""
        if self._waits_for_tasks or isinstance(self._task, LocalTask) or self._task.reads(topic):
            return
        if self._is_used:
            raise InvalidStateError(
                f"input_topic(): topic {topic!r} was not there when the driver was used first, so no task reads it",
                hint="Name all topics of a pattern before the first record.",
                topic=topic,
            )
        self._begin_anew()

    def _begin_anew(self) -> None:
        if not self._waits_for_tasks:
            self._task.close()
            self._waits_for_tasks = True

    def _begin(self) -> None:
        """Make the tasks of all partitions, once the topics have been given theirs."""
        if not self._waits_for_tasks or self._closed:
            return
        names = {topic for node in self.topology.sources for topic in node.topics if not node.internal}
        counts = dict.fromkeys(names | self._inputs, 1) | self._partitions
        self._counting.take()
        task = LocalTasks(self.topology, self.config, self._keep, counts, **self._options)
        self._task, self._waits_for_tasks = task, False
        self._metrics = DriverMetrics(self.topology, self.config, lambda: self.wall_clock_ms, task.parts())
        if self._refusal is not None:
            task.refuse(self._refusal)

    def _check_partition(self, topic: str, partition: int) -> None:
        check_whole(partition, "partition", 0)
        count = self.partition_count(topic)
        if partition >= count:
            raise TopologyError(
                f"topic {topic!r} has no partition {partition}",
                hint=f"It has {count}; input_topic({topic!r}, partitions=...) gives it more before the first record.",
                topic=topic,
            )

    def _physical_name(self, topic: str) -> str:
        return self.topology.physical_name(topic, self.config["application.id"])

    def _logical(self, topic: str) -> str:
        """Return the name of a topic in the topology; internal topics may have their full names too."""
        name = self._logical_names.get(topic) if type(topic) is str else None
        if name is None:
            check_given(topic, str, "the name of a topic", "a text")
            plain = topic.removeprefix(self._prefix)
            name = self._logical_names[topic] = plain if plain in self.topology.internal_topics else topic
        return name

    def _source(self, topic: str) -> SourceNode | None:
        topic = self._logical(topic)
        return next((n for n in self.topology.sources if n.reads(topic)), None)

    def _serdes(
        self,
        topic: str,
        node: SourceNode | SinkNode | None,
        key_serde: Serde[Any] | str | None,
        value_serde: Serde[Any] | str | None,
    ) -> tuple[Serde[Any], Serde[Any]]:
        key = key_serde or (node.key_serde if node else None) or self.config.get("default.key.serde")
        value = value_serde or (node.value_serde if node else None) or self.config.get("default.value.serde")
        name = self._physical_name(topic)
        serdes = (_serde(key, "key"), _serde(value, "value"))
        key, value = (configured(serde, self.config.given) for serde in serdes)
        return bound(key, name, "key"), bound(value, name, "value")


def driver_config(config: StreamsConfig | Mapping[str, Any] | None, argument: str) -> StreamsConfig:
    """Return the settings of a test, of which none is required."""
    if isinstance(config, StreamsConfig):
        return config
    settings = {} if config is None else check_mapping(config, argument, ConfigError)
    return StreamsConfig({"application.id": _APPLICATION, **settings})


def _serde(serde: Any, what: str) -> Serde[Any]:
    if serde is None:
        raise TopologyError(
            f"no {what} serde is known for this topic", hint=f"Pass {what}_serde, or set default.{what}.serde."
        )
    return Serdes.of(serde)


def _bytes(data: Any) -> bytes | None:
    """Return bytes of any type that a serializer may return as a log keeps them."""
    return data if data is None or type(data) is bytes else pa.scalar(data, pa.large_binary()).as_py()


class DriverMetrics:
    """The registry of a test driver, and its tasks' metrics.

    Args:
        topology: The topology.
        config: The settings.
        clock: The driver's clock.
        parts: The id of each task and the nodes that it runs; None: one runs all.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        clock: Callable[[], int],
        parts: Sequence[tuple[str, Sequence[str]]] | None = None,
    ) -> None:
        self.registry = MetricRegistry.of(config, clock)
        physical_name = partial(topology.physical_name, application_id=config["application.id"])
        thread = threading.current_thread()
        thread_id = "main" if thread is threading.main_thread() else thread.name  # as Java names it
        global_nodes = topology.global_nodes
        if parts is None:
            parts = [("0_0", [name for name in topology.nodes if name not in global_nodes])]
        tasks = [TaskOf(thread_id, task_id, nodes, physical_name) for task_id, nodes in parts]
        if global_nodes:
            tasks.append(TaskOf(thread_id, GLOBAL_TASK, global_nodes, physical_name, is_global=True))
        self._tasks = {task.task_id: TaskMetrics(self.registry, topology, task) for task in tasks}

    def record(self, counts: Mapping[str, TaskCounts]) -> None:
        """Add what the tasks have done."""
        for task_id, one in counts.items():
            self._tasks[task_id].record(one)


class DriverState:
    """A `penstock.query.source.IsolatedSource` over a driver.

    Args:
        driver: The driver.
        level: The isolation level; what is not committed yet can be read with any but READ_COMMITTED.
    """

    def __init__(self, driver: StatePort, level: str = "READ_UNCOMMITTED") -> None:
        self._driver = driver
        self._level = level

    def isolated(self, level: str) -> DriverState:
        """Return the same state at another isolation level."""
        return DriverState(self._driver, level)

    def stores(self) -> dict[str, StoreInfo]:
        """Return all stores that can be queried."""
        driver = self._driver
        return {
            name: StoreInfo(
                spec,
                driver.partitions_of(name),
                tuple(driver.position_of(name)),
                is_global=name in driver.topology.global_stores,
            )
            for name, spec in driver.topology.stores.items()
            if spec.kind in QUERYABLE
        }

    @contextmanager
    def reading(self, store: str, partitions: Collection[int] | None = None) -> Iterator[StoreSnapshot]:
        """Return the current state of a store."""
        stores = self.stores()
        if store not in stores:
            raise unknown_store(store, stores)
        reads = self._driver.committed_store if self._level == "READ_COMMITTED" else self._driver.get_state_store
        count = stores[store].partitions
        if stores[store].is_global:
            views = {GLOBAL: reads(store)}
        else:
            numbers = range(count) if partitions is None or count == 1 else partitions
            views = {number: reads(store, number) for number in numbers if 0 <= number < count}
        position = Position(self._driver.position_of(store))
        yield StoreSnapshot(views, 0, 0, position, dict.fromkeys(views, "memory"))
