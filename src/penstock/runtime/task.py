"""One task: a sub-topology (or several) for one partition, fed with batches."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from penstock.errors import TopologyError
from penstock.runtime.context import RunningContext
from penstock.runtime.depth_first import DepthFirst
from penstock.runtime.graph import Graph, has_expressions
from penstock.runtime.inputs import SourceReader, TaskInput, TopicBatch, reader_for
from penstock.runtime.place import Place
from penstock.runtime.registry import operator_for
from penstock.runtime.rows import Rows
from penstock.runtime.sensor import Sensor
from penstock.runtime.sinks import OUTPUT_SCHEMA, Collector, Sink
from penstock.runtime.slicing import slicing_reason
from penstock.topology.configured_serdes import with_serdes

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.runtime.global_stores import GlobalViews
    from penstock.runtime.operator import Operator
    from penstock.serde.base import Serde
    from penstock.state.base import TaskState
    from penstock.topology.topology import Topology

__all__ = ["OUTPUT_SCHEMA", "StreamTask", "TaskOutput", "TopicBatch"]


@dataclass(frozen=True)
class TaskOutput:
    """What a batch gave.

    ``records``: topic -> OUTPUT_SCHEMA rows in order. ``places``: the same rows' places, by which rows of several
    topics can be put into the order in which Kafka Streams would have written them.
    """

    records: dict[str, pa.RecordBatch]
    metrics: dict[str, int | float]
    places: dict[str, Place] = field(default_factory=dict)


class StreamTask:
    """Kafka's ``StreamTask`` over batches. With caching off, how the input is cut into batches changes nothing.

    Args:
        topology: The whole topology.
        config: The application's settings.
        task_id: ``<sub-topology>_<partition>``.
        state: The task's stores.
        nodes: The nodes that this task runs; None for all.
        partitions: Topic -> number of partitions, for the topics that the sinks write.
        sensor: Is told what happens.
        wall_clock_ms: The time at which the task starts; None takes the system's.
        global_stores: The stores that another task keeps up to date; None for that task itself.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        task_id: str,
        state: TaskState,
        *,
        nodes: Collection[str] | None = None,
        partitions: Mapping[str, int],
        sensor: Sensor | None = None,
        wall_clock_ms: int | None = None,
        global_stores: GlobalViews | None = None,
    ) -> None:
        topology = with_serdes(topology, config)
        self.task_id = task_id
        self._sensor = sensor or Sensor()
        self._partitions = partitions
        self._config = config
        self._graph = Graph.of(topology, nodes)
        now = int(time.time() * 1000) if wall_clock_ms is None else wall_clock_ms
        self._context = RunningContext(topology, config, task_id, state, self._sensor, now, global_stores)
        self._collector = Collector()
        self._operators: dict[str, Operator] = {
            node.name: operator_for(node, topology, self._context) for node in self._graph.processors()
        }
        self._sinks = {node.name: self._sink(node) for node in self._graph.sinks()}
        by_column = has_expressions(self._graph)
        self._readers = [
            SourceReader(
                node,
                self._serde(node.key_serde, "default.key.serde", node.name),
                self._serde(node.value_serde, "default.value.serde", node.name),
                self._context,
                by_column=by_column,
            )
            for node in self._graph.sources()
        ]
        self._physical_names = {name: f"{config['application.id']}-{name}" for name in topology.internal_topics}
        self._readers_by_topic: dict[str, SourceReader] = {}
        self.sliced_reason = slicing_reason(self._graph, self._operators, self._context)
        self._depth_first = DepthFirst(self._graph, self._operators, self._sinks, self._context)
        self._runs_without_rows = [
            name for name, operator in self._operators.items() if getattr(operator, "runs_without_rows", False)
        ]

    def process(
        self,
        batch: Sequence[TopicBatch],
        wall_clock_ms: int,
        *,
        ordered: bool = False,
        depth_first: bool = False,
        hold_punctuation: bool = False,
    ) -> TaskOutput:
        """Processes a batch; an empty one runs only what wall-clock time has made due.

        Args:
            batch: The input, one entry a partition.
            wall_clock_ms: The present time.
            ordered: The entries are in processing order already, as the test driver's are: do not merge by time.
            depth_first: Process record by record, each through all operators before the next, as Kafka Streams does.
                That changes nothing but the order in which the user's functions are called. Topologies that have a
                ``sliced_reason`` always run so.
            hold_punctuation: Leave punctuations that are due to a later batch.
        """
        started = time.perf_counter()
        context = self._context
        context.wall_clock_ms = wall_clock_ms
        context.stream_queue.is_held = context.wall_clock_queue.is_held = hold_punctuation
        self._sensor.on_batch_start(self.task_id, sum(b.records.num_rows for b in batch))
        dropped = context.dropped
        pieces = [self._reader(one.topic).read(one) for one in batch if one.records.num_rows]
        context.begin(TaskInput(pieces, ordered=ordered, names=self._physical_names))
        rows = context.input.rows()
        if depth_first or self.sliced_reason is not None:
            self._depth_first.run(rows)
        else:
            self._run(rows)
        context.end()
        return self._output(sum(b.records.num_rows for b in batch), context.dropped - dropped, started)

    def store(self, name: str) -> Any:
        """The typed view of a store."""
        return self._context.store(name)

    @property
    def dropped_records(self) -> int:
        """Kafka's ``dropped-records-total`` since the task was made."""
        return self._context.dropped

    @property
    def stream_time_ms(self) -> int:
        """The largest timestamp that the task has seen; -1 before the first record."""
        return self._context.stream_time

    def close(self) -> None:
        """Closes the user's processors and transformers, and what else operators keep open."""
        for operator in self._operators.values():
            close = getattr(operator, "close", None)
            if close is not None:
                close()

    def _run(self, sources: list[tuple[str, Rows]]) -> None:
        """One pass over the columns: every node once, after its parents and the tables that it reads."""
        inbox: dict[str, list[tuple[str, Rows]]] = {}
        for source, rows in sources:
            self._deliver(inbox, source, [(None, rows)])
        for name in self._graph.order:
            arrived = inbox.pop(name, None)
            operator = self._operators.get(name)
            if arrived is None:
                if operator is None or name not in self._runs_without_rows:
                    continue
                arrived = [("", _NO_ROWS)]
            rows = Rows.merge([r for _, r in arrived])
            if operator is None:
                self._sinks[name].write(rows)
                continue
            started = time.perf_counter()
            result = operator.process(rows, arrived[0][0])
            out = [(None, result)] if isinstance(result, Rows) else list(result)
            seconds = time.perf_counter() - started
            self._sensor.on_node(self.task_id, name, len(rows), sum(len(r) for _, r in out), seconds)
            self._deliver(inbox, name, out)

    def _deliver(
        self, inbox: dict[str, list[tuple[str, Rows]]], name: str, out: Sequence[tuple[str | None, Rows]]
    ) -> None:
        for wanted, rows in out:
            if not len(rows):
                continue
            for child, number in self._graph.children[name]:
                if wanted is None or wanted == child:
                    # Counted even when only one child is named: its rows are compared with those of other forks.
                    sent = rows if number is None else rows.with_place(rows.place.child(number))
                    inbox.setdefault(child, []).append((name, sent))

    def _output(self, records_in: int, dropped: int, started: float) -> TaskOutput:
        if self._context.letters:
            self._collector.add_letters(self._context.letters, self._partitions)
            self._context.letters = []
        records, places = self._collector.take()
        seconds = time.perf_counter() - started
        metrics: dict[str, int | float] = {
            "records_in": records_in,
            "records_out": sum(r.num_rows for r in records.values()),
            "dropped": dropped,
            "stream_time_ms": self._context.stream_time,
            "process_seconds": seconds,
        }
        self._sensor.on_batch_end(self.task_id, seconds, metrics)
        return TaskOutput(records, metrics, places)

    def _reader(self, topic: str) -> SourceReader:
        reader = self._readers_by_topic.get(topic)
        if reader is None:
            reader = self._readers_by_topic[topic] = reader_for(self._readers, topic)
        return reader

    def _sink(self, node: Any) -> Sink:
        key_serde = self._serde(node.key_serde, "default.key.serde", node.name)
        value_serde = self._serde(node.value_serde, "default.value.serde", node.name)
        return Sink(node, key_serde, value_serde, self._partitions, self._collector, self._context)

    def _serde(self, serde: Any, setting: str, node: str) -> Serde[Any]:
        if serde is None:
            serde = self._config.get(setting)
        if serde is None:
            raise TopologyError(
                f"{node} has no serde", hint=f"Give one in Consumed or Produced, or set {setting}.", node=node
            )
        if isinstance(serde, str):
            from penstock.serde import Serdes

            serde = Serdes.of(serde)
        return cast("Serde[Any]", serde)


_NO_ROWS = Rows.empty()
