"""One task: a sub-topology (or several) for one partition, run over batches.

A batch goes through as columns, in one attempt; where a record fails, what the attempt did is taken back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from penstock.errors import SerializationError, TopologyError
from penstock.runtime import async_calls, error_reporting, functions, processors
from penstock.runtime import tables as table_operators
from penstock.runtime.aggregate import operators as aggregate_operators
from penstock.runtime.context import Running, TaskContext, TaskEnvironment
from penstock.runtime.depth_first import DepthFirst
from penstock.runtime.exception_handlers import is_of_record
from penstock.runtime.graph import Graph, MissingFields, has_expressions, stores_of
from penstock.runtime.joins import foreign_key, stream_stream
from penstock.runtime.joins import tables as join_tables
from penstock.runtime.record_path import RecordPath, RecordPaths
from penstock.runtime.rows import (
    Place,
    RawRecord,
    RecordInput,
    Rows,
    TaskInput,
    TopicBatch,
    bytes_of_record,
)
from penstock.runtime.sensor import HeldEvents, RecordWork, Volume
from penstock.runtime.sources_and_sinks import (
    OUTPUT_SCHEMA,
    Collector,
    Encoded,
    SinkWriter,
    SourceReader,
    columns_of,
    reader_for,
)
from penstock.runtime.suppress import operator as suppress_operator
from penstock.serde.bound_serdes import CurrentHeaders, TopicSerdes, users_serde
from penstock.state.maps import Journal, MemoryTaskState
from penstock.topology.configured import headers_user as headers_user_of
from penstock.topology.configured import with_current_headers, with_settings
from penstock.topology.operations.definitions import Process, TableTransformValues

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.config import StreamsConfig
    from penstock.errors import PenstockError
    from penstock.runtime.exception_handlers import Response, TopicRecord
    from penstock.runtime.operator import Operator
    from penstock.runtime.rows import RecordContext
    from penstock.serde.base import Serde
    from penstock.state.maps import TaskState
    from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode
    from penstock.topology.operations.definitions import Operation
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = [
    "OUTPUT_SCHEMA",
    "Factory",
    "StreamTask",
    "TaskOutput",
    "TaskPart",
    "TopicBatch",
    "factories",
    "operator_for",
    "shared_stores",
    "sliced_reasons",
    "slicing_reason",
]

# The task

Sources = list[tuple[str, "Rows"]]


Factory = "Callable[[ProcessorNode, Topology, TaskContext], Operator]"

# One module an operator family; each has its own FACTORIES.
_FAMILIES: tuple[ModuleType, ...] = (
    functions,
    async_calls,
    processors,
    table_operators,
    aggregate_operators,
    stream_stream,
    join_tables,
    suppress_operator,
    foreign_key,
)


class TaskOutput:
    """The output of a batch.

    Args:
        written: The encoded rows of the sinks, by topic.
        metrics: Its figures.
        task_input: The input of the batch.
    """

    def __init__(
        self, written: dict[str, list[Encoded]], metrics: dict[str, int | float], task_input: TaskInput
    ) -> None:
        self._written = written
        self.metrics = metrics
        self._input = task_input

    @cached_property
    def records(self) -> dict[str, pa.RecordBatch]:
        """Topic -> OUTPUT_SCHEMA rows in order."""
        return {topic: columns_of(parts) for topic, parts in self._written.items()}

    def one_by_one(self) -> list[RawRecord]:
        """Return the rows of all topics in the order in which Kafka Streams would have written them."""
        if not self._written:
            return []
        if len(self._written) == 1:
            ((topic, only),) = self._written.items()
            if len(only) == 1:
                return only[0].raw_records(topic)
        parts = [part for parts in self._written.values() for part in parts]
        rows = [row for topic, parts in self._written.items() for part in parts for row in part.raw_records(topic)]
        if len(rows) <= 1:
            return rows
        return [rows[at] for at in Place.concat([part.place for part in parts]).order().tolist()]

    def sources(self) -> list[RecordContext]:
        """Return the input record that caused each of these rows."""
        places = [part.place for parts in self._written.values() for part in parts]
        if not places:
            return []
        place = Place.concat(places)
        return [self._input.record(position) for position in place.inputs[place.order()].tolist()]


@dataclass(frozen=True)
class TaskPart:
    """The part of a topology that a task runs.

    Attributes:
        task_id: ``<sub-topology>_<partition>``.
        partitions: Topic -> number of partitions, for the topics that the sinks write.
        nodes: The names of the nodes; None for all.
    """

    task_id: str
    partitions: Mapping[str, int]
    nodes: Collection[str] | None = None


class StreamTask:
    """Kafka's ``StreamTask`` over batches. With caching off, how the input is cut into batches changes nothing.

    Args:
        topology: The whole topology.
        config: The application's settings.
        part: The part of the topology that the task runs.
        state: The task's stores.
        environment: The parts of the process that the task uses.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        part: TaskPart,
        state: TaskState,
        environment: TaskEnvironment | None = None,
    ) -> None:
        topology = with_settings(topology, config)
        environment = environment or TaskEnvironment()
        headers_user = headers_user_of(topology)
        current_headers = None if headers_user is None else CurrentHeaders()
        if current_headers is not None:
            topology = with_current_headers(topology, current_headers)
        self.task_id = task_id = part.task_id
        self._sensor = environment.sensor
        self._config = config
        self._graph = Graph.of(topology, part.nodes)
        self._context = TaskContext(
            topology, config, task_id, state, environment, max(part.partitions.values(), default=1)
        )
        self._context.headers = current_headers
        if any(source.global_store for source in self._graph.sources()):
            self._context.serve_global_stores()
        self._collector = Collector(part.partitions)
        self._operators: dict[str, Operator] = {
            node.name: operator_for(node, topology, self._context) for node in self._graph.processors()
        }
        self._sinks = {node.name: self._sink(node) for node in self._graph.sinks()}
        by_column = has_expressions(self._graph)
        self._readers = [
            SourceReader(node, self._serdes(node), self._context, by_column=by_column) for node in self._graph.sources()
        ]
        self._physical_names = {name: self._context.physical_name(name) for name in topology.internal_topics}
        self._readers_by_topic: dict[str, SourceReader] = {}
        self.sliced_reason = slicing_reason(self._graph, self._operators, self._context)
        if headers_user is not None and self.sliced_reason is None:
            self.sliced_reason = f"a serde of {headers_user} reads or writes headers, which are those of one record"
        self._missing = MissingFields(self._graph, topology, task_id, self._sensor)
        self._depth_first = DepthFirst(self._graph, self._operators, self._sinks, self._context, self._missing)
        self._attempts: Attempts | None = None
        if self._context.goes_on and self.sliced_reason is None and not _keeps_users_state(self._operators):
            self._attempts = Attempts(self._context, self._collector)
        self._runs_without_rows = [name for name, operator in self._operators.items() if operator.runs_without_rows]
        naming = self._depth_first.naming
        self._paths = RecordPaths(self._graph, self._operators, self._sinks, self._context, naming)
        self._path_of: dict[str, RecordPath | None] = {}  # by topic

    def process(
        self,
        batch: Sequence[TopicBatch],
        wall_clock_ms: int,
        *,
        ordered: bool = False,
        depth_first: bool = False,
        hold_punctuation: bool = False,
    ) -> TaskOutput:
        """Process a batch; an empty one runs only the punctuations that wall-clock time has made due.

        Args:
            batch: The input, one entry a partition.
            wall_clock_ms: The present time.
            ordered: The order is that of the entries, or of the places of their records, as in the test driver: do not
                merge by time.
            depth_first: Process record by record, each through all operators before the next, as Kafka Streams does.
                That changes nothing but the order in which the user's functions are called. Topologies that have a
                ``sliced_reason`` always run so, and so does a single record that the processing handler may leave out:
                what its operators did before the error stays, as in Kafka.
            hold_punctuation: Leave punctuations that are due to a later batch.
        """
        started = time.perf_counter()
        context = self._context
        context.wall_clock_ms = wall_clock_ms
        context.stream_queue.is_held = context.wall_clock_queue.is_held = hold_punctuation
        records_in = sum(map(len, batch))
        self._sensor.on_batch_start(self.task_id, records_in)
        dropped = context.dropped
        if records_in == 1 and len(batch) == 1:
            path = self._path(batch[0].topic)
            if path is not None and not path.is_late():
                by_record = depth_first or context.goes_on or self.sliced_reason is not None or path.is_depth_first
                self._process_record(path, batch[0].only(), by_record=by_record)
                return self._end(records_in, dropped, started)
        pieces = [self._reader(one.topic).read(one) for one in batch if len(one)]
        for piece in pieces:
            size = Volume(len(piece.batch), piece.batch.size_bytes)
            name = context.physical_name(piece.batch.topic)
            self._sensor.on_consumed(self.task_id, piece.source, name, size, piece.timestamps)
        context.begin(TaskInput(pieces, ordered=ordered, names=self._physical_names))
        unread = records_in - context.input.length
        self._sensor.on_input(self.task_id, context.input.timestamps, context.input_stream_times, unread)
        rows = context.input.rows()
        alone = context.input.length == 1 and context.goes_on
        context.in_parts, context.is_last_part = False, True
        if depth_first or alone or self.sliced_reason is not None:
            context.in_parts = context.input.length > 1
            self._depth_first.run(rows)
        elif self._attempts is not None:
            self._run_in_parts(self._attempts, rows)
        else:
            self._run(rows)
        return self._end(records_in, dropped, started)

    def _process_record(self, path: RecordPath, record: RawRecord, *, by_record: bool) -> None:
        """Process a record by itself."""
        context, sensor = self._context, self._sensor
        reader = self._reader(record.topic)
        row = reader.read_row(record)
        time = None if row is None else row.timestamp
        name = context.physical_name(record.topic)
        stream_time = context.begin_record(RecordInput(record, name, is_read=row is not None), time)
        work = RecordWork(reader.node.name, name, bytes_of_record(record), time, stream_time)
        context.in_parts, context.is_last_part, context.running = False, True, None
        context.by_record = by_record
        try:
            if row is not None:
                path.run(row, work)
        finally:
            context.by_record = False
            sensor.on_record(self.task_id, work)

    def _path(self, topic: str) -> RecordPath | None:
        """Return the path of a topic's records; None if they are processed as batches."""
        if self._missing.nodes:  # each batch is looked through for their fields
            return None
        if topic not in self._path_of:
            reader = self._reader(topic)
            self._path_of[topic] = self._paths.path_of(reader.node.name) if reader.reads_rows else None
        return self._path_of[topic]

    def _end(self, records_in: int, dropped: int, started: float) -> TaskOutput:
        """End a batch, and return its output."""
        context = self._context
        context.end()
        if self._missing.nodes:
            self._missing.report()
        for where, count in error_reporting.take().items():
            self._sensor.on_reported(self.task_id, where, count)
        output = self._output(records_in, context.dropped - dropped, started)
        context.let_go()
        return output

    def written_before_failure(self) -> TaskOutput:
        """Return what the batch that failed had written by then, dead letters of the failure included."""
        return TaskOutput(self._drained(), {}, self._context.input)

    def refused(self, topic: str, source: RecordContext, record: TopicRecord, error: PenstockError) -> Response:
        """Ask the production handler about a record that the log refuses to take into a topic."""
        sinks = [node for node in self._graph.sinks() if node.topic == topic]
        sinks = sinks or [node for node in self._graph.sinks() if node.topic_fn is not None]
        return self._context.refused(sinks[0].name if sinks else topic, source, record, error)

    def times(self, batch: TopicBatch, partition_time: int | None = None) -> tuple[NDArray[np.int64], int]:
        """Return the times by which `process` will order records; see `SourceReader.times`."""
        return self._reader(batch.topic).times(batch, partition_time)

    def store(self, name: str) -> Any:
        """Return the typed view of a store."""
        return self._context.store(name)

    @property
    def headers(self) -> CurrentHeaders | None:
        """Where the headers of the present record are, if a serde of the task looks at them."""
        return self._context.headers

    @property
    def dropped_records(self) -> int:
        """Kafka's ``dropped-records-total`` since the task was made."""
        return self._context.dropped

    @property
    def stream_time_ms(self) -> int:
        """The largest timestamp that the task has seen; -1 before the first record."""
        return self._context.stream_time

    @property
    def next_punctuation_ms(self) -> int | None:
        """The wall-clock time of the next punctuation; None if none is scheduled."""
        return self._context.wall_clock_queue.first_ms

    def close(self) -> None:
        """Close the user's processors and transformers, and other resources that operators keep open."""
        self._missing.report(closing=True)
        self._context.close()
        for operator in self._operators.values():
            operator.close()

    def _run_in_parts(self, attempts: Attempts, sources: list[tuple[str, Rows]]) -> None:
        """Make a pass over the columns; where records fail, process those by themselves, and the parts between them."""
        context, length = self._context, self._context.input.length
        waiting = [(0, length)]
        while waiting:
            first, last = waiting.pop()
            is_whole, is_empty = (first, last) == (0, length), first == last
            context.in_parts, context.is_last_part = not is_whole, is_whole or is_empty
            part = rows_between(sources, first, last)
            if last - first == 1:
                self._depth_first.run(part)
                continue
            failed = attempts.failures(partial(self._run, part))
            if failed is None:
                continue
            if is_empty:  # of what time alone has released no record is the cause: the rest of it goes on
                self._run(part)
                continue
            if is_whole and self._runs_without_rows:
                waiting.append((length, length))
            waiting += reversed(parts_between(first, last, failed))

    def _run(self, sources: list[tuple[str, Rows]]) -> None:
        """Make one pass over the columns: every node once, after its parents and the tables that it reads."""
        context = self._context
        inbox: dict[str, list[tuple[str, Rows]]] = {}
        looks: list[tuple[str, Rows]] = []
        for source, rows in sources:
            self._deliver(inbox, source, [(None, rows)])
        sensor, task_id, naming, children = context.sensor, self.task_id, self._depth_first.naming, self._graph.children
        for name in self._graph.order:
            arrived = inbox.pop(name, None)
            operator = self._operators.get(name)
            if arrived is None:
                if operator is None or name not in self._runs_without_rows or not context.is_last_part:
                    continue
                arrived = [("", _NO_ROWS)]
            if operator is None:
                context.running = None
                self._write(name, arrived)
                if context.is_failed_attempt:
                    return
                continue
            rows = arrived[0][1] if len(arrived) == 1 else Rows.merge([r for _, r in arrived])
            if name in self._missing.nodes:
                looks.append((name, rows))
            context.running = Running(name, rows, operator.leaves_out_rows)
            sensor.on_node_start(task_id, name)
            started = time.perf_counter()
            try:
                try:
                    if context.current is None:
                        out = outputs_of(operator, rows, arrived[0][0])
                    else:
                        with context.processing(rows.timestamps, rows.headers):
                            out = outputs_of(operator, rows, arrived[0][0])
                except SerializationError as error:
                    naming[name].raise_named(error)
            except Exception as error:
                if len(rows) and is_of_record(error) and context.fails_apart(rows, None):
                    return
                context.raise_of_user(name, rows, error)
                raise
            if context.is_failed_attempt:
                return
            seconds = time.perf_counter() - started
            sensor.on_node(task_id, name, len(rows), sum([len(r) for _, r in out]), seconds)
            if not children[name]:
                sensor.on_completed(task_id, name, rows.timestamps)
            self._deliver(inbox, name, out)
        context.running = None
        for name, rows in looks:
            self._missing.look(name, rows)

    def _write(self, name: str, arrived: list[tuple[str, Rows]]) -> None:
        """Write rows to a sink: those of each operator by themselves if errors of the sink are its errors."""
        if len(arrived) > 1 and len({parent for parent, _ in arrived}) == 1:
            arrived = [(arrived[0][0], Rows.merge([rows for _, rows in arrived]))]
        for parent, rows in arrived:
            takes = parent in self._operators and rows.place.flush is None
            self._sinks[name].write(rows, parent if takes else None)

    def _deliver(
        self, inbox: dict[str, list[tuple[str, Rows]]], name: str, out: Sequence[tuple[str | None, Rows]]
    ) -> None:
        for receiver, rows in out:
            if not len(rows):
                continue
            for child, number in self._graph.children[name]:
                if receiver is None or receiver == child:
                    # Counted even when only one child is named: its rows are compared with those of other forks.
                    sent = rows if number is None else rows.with_place(rows.place.child(number))
                    inbox.setdefault(child, []).append((name, sent))

    def _output(self, records_in: int, dropped: int, started: float) -> TaskOutput:
        written = self._drained()
        seconds = time.perf_counter() - started
        metrics: dict[str, int | float] = {
            "records_in": records_in,
            "records_out": sum([len(part) for parts in written.values() for part in parts]),
            "dropped": dropped,
            "unread": records_in - self._context.input.length,
            "fields_never_found": self._missing.never_found,
            "stream_time_ms": self._context.stream_time,
            "process_seconds": seconds,
        }
        self._sensor.on_batch_end(self.task_id, seconds, metrics)
        return TaskOutput(written, metrics, self._context.input)

    def _drained(self) -> dict[str, list[Encoded]]:
        """Return all that has been written since the last call."""
        if self._context.letters:
            self._collector.add_letters(self._context.letters, self._context.wall_clock_ms)
            self._context.letters = []
        return self._collector.drain()

    def _reader(self, topic: str) -> SourceReader:
        reader = self._readers_by_topic.get(topic)
        if reader is None:
            reader = self._readers_by_topic[topic] = reader_for(self._readers, topic)
        return reader

    def _sink(self, node: SinkNode) -> SinkWriter:
        return SinkWriter(node, self._serdes(node), self._collector, self._context)

    def _serdes(self, node: SourceNode | SinkNode) -> TopicSerdes:
        key = self._serde(node.key_serde, "default.key.serde", node.name)
        value = self._serde(node.value_serde, "default.value.serde", node.name)
        return TopicSerdes(key, value, self._context.physical_name)

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


def outputs_of(operator: Operator, rows: Rows, parent: str) -> list[tuple[str | None, Rows]]:
    """Return what an operator makes of rows: the child that gets them, None for all, and the rows."""
    result = operator.process(rows, parent)
    return [(None, result)] if isinstance(result, Rows) else list(result)


# Slices of one record

_NO_ROWS = Rows.empty()


def sliced_reasons(topology: Topology, config: StreamsConfig, plan: PhysicalPlan) -> dict[int, str | None]:
    """Return by sub-topology the reason why its records are processed one by one; None if whole batches are.

    Makes a task of each sub-topology to find out.
    """
    reasons: dict[int, str | None] = {}
    for sub in plan.subtopologies:
        state = MemoryTaskState([topology.stores[name] for name in (*sub.stores, *sorted(topology.global_stores))])
        task = StreamTask(topology, config, TaskPart(f"{sub.id}_0", plan.partitions, sub.nodes), state)
        reasons[sub.id] = task.sliced_reason
        task.close()
    return reasons


@cache
def factories() -> dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]]:
    """Return operation -> factory of its operator, of all families."""
    merged: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {}
    for family in _FAMILIES:
        merged.update(family.FACTORIES)
    return merged


def operator_for(node: ProcessorNode, topology: Topology, context: TaskContext) -> Operator:
    """Return the operator of a node."""
    operation = type(node.operation)
    factory = factories().get(operation)
    if factory is None:
        raise TopologyError(
            f"{node.name}: no operator runs {operation.__name__}",
            hint="The topology was built by another version of Penstock than the one that runs it.",
        )
    return factory(node, topology, context)


def slicing_reason(graph: Graph, operators: Mapping[str, Operator], context: TaskContext) -> str | None:
    """Return why records must go through one by one; None when whole batches have the same result.

    An operator that cannot work on batches says so in its ``sliced_reason``.
    """
    shared = shared_stores(graph)
    if shared:
        store, users = next(iter(shared.items()))
        return (
            f"store {store!r} is shared by {' and '.join(users)}, which must see each other's writes record by record"
        )
    for name, operator in operators.items():
        if operator.sliced_reason is not None:
            return f"{name}: {operator.sliced_reason}"
    for queue, kind in ((context.stream_queue, "stream-time"), (context.wall_clock_queue, "wall-clock")):
        scheduled = sorted(queue.nodes())
        if len(scheduled) > 1:
            return f"{' and '.join(scheduled)} both have {kind} punctuations, which take turns"
    keeper = _keeps_users_state(operators)
    if context.goes_on and keeper:
        if left := _part_way(graph, operators):
            return (
                f"{left} may fail when a part of its work for a record is done, which processing.exception.handler is "
                f"asked about; and {keeper} may remember the batch, so that no record of it can be processed once more"
            )
        for name, node in ((node.name, node) for node in graph.processors()):
            for spec in (context.topology.stores[store] for store in node.stores):
                if serde := users_serde(spec.key_serde) or users_serde(spec.value_serde):
                    return (
                        f"{name}: processing.exception.handler is asked about each record that {serde.name}, "
                        f"the serde of store {spec.name!r}, does not take"
                    )
    return None


def _part_way(graph: Graph, operators: Mapping[str, Operator]) -> str | None:
    """Return a node whose failure leaves a part of a record's work done, and not only the record out; None: none is."""
    for name, operator in operators.items():
        if not operator.leaves_out_rows:
            return name
    return next((sink.name for sink in graph.sinks() if sink.topic_fn or sink.partitioner), None)


def _keeps_users_state(operators: Mapping[str, Operator]) -> str | None:
    """Return the first operator in which the user's code may remember records."""
    return next((name for name, operator in operators.items() if operator.keeps_users_state), None)


def shared_stores(graph: Graph) -> dict[str, list[str]]:
    """Return the stores that a processor of the user's shares with another node."""
    users: dict[str, list[str]] = {}
    by_processors: set[str] = set()
    for node in graph.processors():
        for store in sorted(stores_of(node)):
            users.setdefault(store, []).append(node.name)
            if isinstance(node.operation, Process) or (
                isinstance(node.operation, TableTransformValues) and store in node.operation.stores
            ):
                by_processors.add(store)
    return {store: names for store, names in users.items() if len(names) > 1 and store in by_processors}


# Attempts


class Attempts:
    """The attempts of a task by column, which are taken back if a record has failed.

    Args:
        context: The task.
        collector: Its outputs.
    """

    def __init__(self, context: TaskContext, collector: Collector) -> None:
        self._context = context
        self._collector = collector
        self._journal = Journal()
        self._events = HeldEvents(context.sensor)

    def failures(self, process: Callable[[], None]) -> set[int] | None:
        """Process; return None, or the positions of input records that failed, when all has been taken back.

        Where nobody knows which record it was, there are none.
        """
        context, events = self._context, self._events
        for where, count in error_reporting.take().items():
            events.sensor.on_reported(context.task_id, where, count)
        written = self._collector.written()
        before = context.begin_attempt(self._journal)
        context.sensor = events
        try:
            process()
        except BaseException:
            self._journal.end()
            events.release()
            raise
        finally:
            context.sensor = events.sensor
            failed = context.end_attempt()
        if failed is None:
            self._journal.end()
            events.release()
            self._ask(written)
            return None
        self._journal.take_back()
        context.go_back(before)
        self._collector.go_back(written)
        events.forget()
        error_reporting.take()
        return failed

    def _ask(self, written: Mapping[str, int]) -> None:
        """Ask the handlers about what was left out; an error lets no outputs stay that come behind its record."""
        try:
            self._context.ask_all()
        except BaseException:
            self._collector.go_back(written)
            raise


def rows_between(sources: Sources, first: int, last: int) -> Sources:
    """Return the rows of the records at the positions from ``first`` to before ``last``."""
    parts: Sources = []
    for source, rows in sources:
        inputs = rows.place.inputs
        start, stop = np.searchsorted(inputs, (first, last)).tolist()
        if stop > start:
            parts.append((source, rows if stop - start == len(rows) else rows.take(np.arange(start, stop))))
    return parts


def parts_between(first: int, last: int, failed: set[int]) -> list[tuple[int, int]]:
    """Cut the positions from ``first`` to before ``last`` into those that failed, and the parts between them.

    >>> parts_between(0, 10, {3, 9})
    [(0, 3), (3, 4), (4, 9), (9, 10)]
    >>> parts_between(0, 10, set())
    [(0, 5), (5, 10)]
    """
    cuts = sorted({first, last, *failed, *(position + 1 for position in failed)})
    if len(cuts) == 2:
        cuts.insert(1, first + (last - first) // 2)
    return list(pairwise(cuts))
