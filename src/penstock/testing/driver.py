"""Runs a topology in the test's own process, with a clock that only the test moves."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.config import StreamsConfig
from penstock.durations import DurationLike, TimestampLike, duration_ms, timestamp_ms
from penstock.errors import InvalidStateError, StateError, TopologyError
from penstock.runtime.global_stores import GlobalViews
from penstock.runtime.inputs import headers_of
from penstock.runtime.place import Place
from penstock.runtime.task import StreamTask, TaskOutput
from penstock.serde import Serdes
from penstock.serde.binding import bound, configured
from penstock.state.memory import MemoryTaskState
from penstock.testing.queues import PartitionQueues, RawRecord, batches_of
from penstock.testing.topics import TestInputTopic, TestOutputTopic
from penstock.topology.configured_serdes import with_serdes

if TYPE_CHECKING:
    from penstock.query import StateQueryRequest, StateQueryResult
    from penstock.runtime.sensor import Sensor
    from penstock.serde.base import Serde
    from penstock.topology.nodes import SinkNode, SourceNode
    from penstock.topology.topology import Topology

__all__ = ["TopologyTestDriver"]

_APPLICATION = "topology-test-driver"


class _OnePartition(Mapping[str, int]):
    """Every topic has one partition."""

    def __getitem__(self, topic: str) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class TopologyTestDriver:
    """Kafka's ``TopologyTestDriver``: the production task, fed record by record.

    All sub-topologies run as one task with one partition per topic; what is written to internal topics goes back in
    before the next input.

    Args:
        topology: What ``StreamsBuilder.build()`` gave.
        config: Settings; application.id may be left out.
        initial_wall_clock_ms: Where the wall clock stands at first.
        batch_size: How many records to collect before they are processed together. With caching off the results are
            the same for each topic and sub-topology; `flush` processes what has been collected.
        by_column: Process even single records as batches, not depth first. Results are the same; the order in which
            functions of different operators are called is not.
        sensor: Is told what happens.
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
    ) -> None:
        if batch_size < 1:
            raise InvalidStateError(f"batch_size is at least 1, not {batch_size}")
        self.config = _config(config)
        self.topology = topology = with_serdes(topology, self.config)
        self.wall_clock_ms = timestamp_ms(initial_wall_clock_ms)
        self._batch_size = batch_size
        self._prefix = f"{self.config['application.id']}-"
        globally = {name: topology.stores[name] for name in topology.global_stores}
        state = MemoryTaskState(spec for name, spec in topology.stores.items() if name not in globally)
        copies = MemoryTaskState(globally.values())
        everywhere: set[str] = {n for group in topology.node_groups if topology.is_global(group) for n in group}
        self._global_task = self._task(everywhere, "-1_0", copies, sensor) if everywhere else None
        stores = GlobalViews(globally, {name: copies.map(name) for name in globally}, copies.meta)
        self._main = self._task(set(topology.nodes) - everywhere, "0_0", state, sensor, stores)
        self._globals = [n for n in topology.sources if n.global_store]
        self._sources = [n for n in topology.sources if not n.global_store]
        self._depth_first = not by_column and int(self.config["statestore.cache.max.bytes"]) == 0
        self._queues = PartitionQueues()
        self._collected: list[RawRecord] = []
        self._offsets: dict[str, int] = {}
        self._written: dict[str, deque[RawRecord]] = {}
        self._records_out = 0
        self._closed = False

    def _task(
        self,
        nodes: set[str],
        task_id: str,
        state: MemoryTaskState,
        sensor: Sensor | None,
        stores: GlobalViews | None = None,
    ) -> StreamTask:
        return StreamTask(
            self.topology,
            self.config,
            task_id,
            state,
            nodes=nodes,
            partitions=_OnePartition(),
            sensor=sensor,
            wall_clock_ms=self.wall_clock_ms,
            global_stores=stores,
        )

    def input_topic(
        self,
        name: str,
        key_serde: Serde[Any] | str | None = None,
        value_serde: Serde[Any] | str | None = None,
        auto_advance: DurationLike = 0,
    ) -> TestInputTopic[Any, Any]:
        """A source topic to write to; the serdes are the source's unless given."""
        source = self._source(name)
        if source is None:
            known = sorted({t for n in self.topology.sources for t in n.topics})
            raise TopologyError(f"no source reads topic {name!r}", hint=f"Source topics are {known}.", topic=name)
        return TestInputTopic(self, name, *self._serdes(name, source, key_serde, value_serde), auto_advance)

    def output_topic(
        self, name: str, key_serde: Serde[Any] | str | None = None, value_serde: Serde[Any] | str | None = None
    ) -> TestOutputTopic[Any, Any]:
        """A topic to read from; the serdes are those of the sink that writes it unless given."""
        name = self._logical(name)
        sink = next((n for n in self.topology.sinks if n.topic == name), None)
        if sink is None:
            sink = next((n for n in self.topology.sinks if n.topic_fn is not None), None)
        return TestOutputTopic(self, name, *self._serdes(name, sink, key_serde, value_serde))

    def pipe_raw(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Any = ()) -> None:
        """Writes a record given as bytes."""
        self._open()
        record = RawRecord(topic, self._next_offset(topic), timestamp, key, value, headers)
        if self._reads(self._sources, topic):
            self._collected.append(record)
            if len(self._collected) >= self._batch_size:
                self.flush()
        if self._reads(self._globals, topic):
            self.flush()
            self._apply_globally(record)

    def flush(self) -> None:
        """Processes the records collected so far, and everything that they put into internal topics."""
        self._open()
        records, self._collected = self._collected, []
        if len(records) <= 1:
            for record in records:
                self._queues.add(record)
        else:
            self._process(records)
        self._drain(one_by_one=len(records) <= 1)

    def advance_wall_clock_time(self, duration: DurationLike) -> None:
        """Moves the wall clock; punctuations that have become due run."""
        self.flush()
        self.wall_clock_ms += duration_ms(duration)
        self._process([])
        self._drain(one_by_one=True)

    def _drain(self, *, one_by_one: bool) -> None:
        while self._queues:
            records = [self._queues.take()]
            while not one_by_one and self._queues:
                records.append(self._queues.take())
            self._process(records)

    def _process(self, records: list[RawRecord]) -> None:
        # Depth first for single records: then even the user's functions are called in Kafka's order. With caching a
        # record is a batch, whose updates of one key become one.
        depth_first = len(records) <= 1 and self._depth_first
        output = self._main.process(batches_of(records), self.wall_clock_ms, ordered=True, depth_first=depth_first)
        self._capture(output)

    def _apply_globally(self, record: RawRecord) -> None:
        assert self._global_task is not None, "a global source has a task"  # noqa: S101
        self._global_task.process(batches_of([record]), self.wall_clock_ms, ordered=True, depth_first=self._depth_first)

    def _capture(self, output: TaskOutput) -> None:
        """Keeps what was written, and puts what is also a source topic into its queue."""
        for record in _in_order(output):
            topic = record.topic
            self._written.setdefault(topic, deque()).append(record)
            self._records_out += 1
            if self._reads(self._sources, topic):
                offset = self._next_offset(topic)
                self._queues.add(RawRecord(topic, offset, record.timestamp, record.key, record.value, record.headers))
            if self._reads(self._globals, topic):
                self._apply_globally(record)

    def read_raw(self, topic: str) -> RawRecord | None:
        """The next unread record of an output topic, as bytes; None when there is none."""
        queue = self._written.get(self._logical(topic))
        return queue.popleft() if queue else None

    def queue_size(self, topic: str) -> int:
        """How many records of an output topic are unread."""
        return len(self._written.get(self._logical(topic), ()))

    def produced_topic_names(self) -> set[str]:
        """All topics that were written; internal ones with the application's prefix."""
        return {self._prefix + t if t in self.topology.internal_topics else t for t in self._written}

    def get_state_store(self, name: str) -> Any:
        """The typed view of a state store."""
        self.flush()
        if name not in self.topology.stores:
            raise StateError(
                f"the topology has no store {name!r}",
                hint=f"Its stores are {', '.join(sorted(self.topology.stores)) or 'none'}.",
                store=name,
            )
        return self._main.store(name)

    store = get_state_store

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """Answers an interactive query as ``KafkaStreams.query`` does; all stores have one partition.

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
        from penstock.testing.queries import DriverState

        return run_query(DriverState(self), request, is_active=not self._closed)

    def positions(self) -> dict[str, dict[int, int]]:
        """Topic -> partition -> the offset of the last record that has been processed."""
        self.flush()
        return {topic: {0: following - 1} for topic, following in self._offsets.items() if following}

    @property
    def dropped_records(self) -> int:
        """Kafka's ``dropped-records-total``."""
        return sum(t.dropped_records for t in (self._main, self._global_task) if t is not None)

    @property
    def metrics(self) -> dict[str, int | float]:
        """Totals of the task."""
        return {
            "dropped-records-total": self.dropped_records,
            "records-in-total": sum(self._offsets.values()),
            "records-out-total": self._records_out,
            "stream-time-ms": self._main.stream_time_ms,
        }

    def explain(self) -> str:
        """How the task runs: by column, or why not."""
        reason = self._main.sliced_reason
        return "whole batches by column" if reason is None else f"record by record: {reason}"

    def close(self) -> None:
        """Processes what was collected and closes the processors."""
        if self._closed:
            return
        try:
            self._main.close()
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

    def _next_offset(self, topic: str) -> int:
        offset = self._offsets.get(topic, 0)
        self._offsets[topic] = offset + 1
        return offset

    def _logical(self, topic: str) -> str:
        """The name that the topology uses; internal topics may be asked for by their full names too."""
        plain = topic.removeprefix(self._prefix)
        return plain if plain in self.topology.internal_topics else topic

    @staticmethod
    def _reads(sources: list[SourceNode], topic: str) -> bool:
        return any(topic in n.topics or (n.pattern and re.fullmatch(n.pattern, topic)) for n in sources)

    def _source(self, topic: str) -> SourceNode | None:
        topic = self._logical(topic)
        return next((n for n in self.topology.sources if self._reads([n], topic)), None)

    def _serdes(
        self,
        topic: str,
        node: SourceNode | SinkNode | None,
        key_serde: Serde[Any] | str | None,
        value_serde: Serde[Any] | str | None,
    ) -> tuple[Serde[Any], Serde[Any]]:
        key = key_serde or (node.key_serde if node else None) or self.config.get("default.key.serde")
        value = value_serde or (node.value_serde if node else None) or self.config.get("default.value.serde")
        name = self._prefix + topic if topic in self.topology.internal_topics else topic
        serdes = (_serde(key, "key"), _serde(value, "value"))
        key, value = (configured(serde, self.config.given) for serde in serdes)
        return bound(key, name, "key"), bound(value, name, "value")


def _config(config: StreamsConfig | Mapping[str, Any] | None) -> StreamsConfig:
    if isinstance(config, StreamsConfig):
        return config
    return StreamsConfig({"application.id": _APPLICATION, **(config or {})})


def _serde(serde: Any, what: str) -> Serde[Any]:
    if serde is None:
        raise TopologyError(
            f"no {what} serde is known for this topic", hint=f"Pass {what}_serde, or set default.{what}.serde."
        )
    return Serdes.of(serde)


def _in_order(output: TaskOutput) -> list[RawRecord]:
    """What all sinks wrote, in the order in which Kafka Streams would have written it."""
    records: list[RawRecord] = []
    for topic, batch in output.records.items():
        headers = headers_of(batch.column("headers"))
        columns = (batch.column(name).to_pylist() for name in ("timestamp", "key", "value"))
        for row, (timestamp, key, value) in enumerate(zip(*columns, strict=True)):
            records.append(RawRecord(topic, -1, timestamp, key, value, headers[row] if headers else ()))
    if len(output.records) <= 1:
        return records
    return [records[i] for i in Place.concat(list(output.places.values())).order().tolist()]
