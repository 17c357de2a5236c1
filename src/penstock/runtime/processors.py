"""The operators that run users' processors: their context, punctuation, and ``transform_values`` of tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from penstock.api.processing.processor import FixedKeyProcessor, FixedKeyRecord, Record, RecordMetadata
from penstock.base.durations import duration_ms, timestamp_ms
from penstock.base.java_names import with_java_names_of
from penstock.base.nearest_name import did_you_mean
from penstock.base.terminal.human_numbers import with_article
from penstock.errors import TopologyError
from penstock.runtime.context import RecordFailure
from penstock.runtime.functions import failures_removed
from penstock.runtime.operator import Operator, RowStep
from penstock.runtime.punctuation import PunctuationQueue, Schedule
from penstock.runtime.rows import AFTER, Headers, Place, RecordContext, Row, Rows
from penstock.runtime.tables import StoredTable, assign, is_read, spread
from penstock.runtime.versioned_tables import OverParent
from penstock.serde.bound_serdes import RecordHeaders, plain_headers
from penstock.serde.column import Column
from penstock.state.views import ExpiringView
from penstock.topology.operations.definitions import Operation, Process, TableTransformValues
from penstock.topology.operations.functions import Function

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.api.processing.processor import Cancellable
    from penstock.base.durations import DurationLike, TimestampLike
    from penstock.runtime.context import TaskContext
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.topology import Topology

__all__ = ["FACTORIES", "NodeContext", "ProcessOperator", "single_row"]

# Processors

_NO_RECORD = RecordContext(None, -1, -1, -1, ())
Forward = tuple[str | None, Record[Any, Any]]


def single_row(place: Place, record: Record[Any, Any], origin: RecordContext | None = None) -> Rows:
    """Return one record as rows; ``origin`` as in `Rows.origins`."""
    return Rows(
        place,
        np.array([record.timestamp], np.int64),
        Column.of_items([record.key]),
        Column.of_items([record.value]),
        [record.headers] if record.headers else None,
        origins=None if origin is None else [origin],
    )


@with_java_names_of("ProcessorContext")
class NodeContext:
    """`penstock.api.processing.processor.ProcessorContext` of one processor."""

    def __init__(
        self, operator: ProcessOperator, node: ProcessorNode, task: TaskContext, children: frozenset[str]
    ) -> None:
        self._operator = operator
        self._node = node
        self._task = task
        self._children = children
        self._stores = {*node.stores, *cast("Process", node.operation).stores}
        self._schedules = 0
        self.position = 0
        self.source: RecordContext | int | None = None  # of the present record, or its position: few ask for it

    @property
    def application_id(self) -> str:
        """The setting ``application.id``."""
        return str(self._task.config["application.id"])

    @property
    def task_id(self) -> str:
        """The id of the task, ``<sub-topology>_<partition>``."""
        return self._task.task_id

    def forward(self, record: Record[Any, Any], child: str | None = None) -> None:
        """Send a record to all children, or to the child of that name."""
        if child is not None and child not in self._children:
            raise TopologyError(
                f"{self._node.name} has no child named {child!r}",
                hint=f"Its children are {', '.join(sorted(self._children)) or 'none'}.",
                node=self._node.name,
            )
        if not isinstance(record, self._operator.record_type):
            record_type = with_article(self._operator.record_type.__name__)
            raise TopologyError(
                f"{self._node.name} forwards {record!r}, which is not {record_type}",
                hint="Forward the record of process(), or one made by its with_ methods; Processors may make any.",
                node=self._node.name,
            )
        self._operator.forward(child, record)

    def get_state_store(self, name: str) -> Any:
        """Return a store that is connected to this processor, or a global store."""
        spec = self._task.topology.stores.get(name)
        if spec is None or (name not in self._stores and not self._operator.is_global(name)):
            hint = f"Name it in process(..., stores=[{name!r}]), or use connect_processor_and_state_stores()."
            if spec is None:
                meant = did_you_mean(str(name), self._task.topology.stores)
                hint = f"Add it with builder.add_state_store(), and name it in process(..., stores=[{name!r}])."
                hint = f"{meant} {hint}".lstrip()
            raise TopologyError(
                f"{self._node.name} has no access to a state store {name!r}"
                if spec is not None
                else f"{self._node.name} asks for a state store {name!r}, which the topology does not have",
                hint=hint,
                node=self._node.name,
                store=name,
            )
        view = self._task.store(name)
        return view.at(self.current_stream_time_ms) if isinstance(view, ExpiringView) else view

    def schedule(
        self,
        interval: DurationLike,
        type: str,  # noqa: A002
        callback: Callable[[int], None],
        *,
        start: TimestampLike | None = None,
    ) -> Cancellable:
        interval_ms = duration_ms(interval, "the punctuation interval")
        if interval_ms < 1:
            raise TopologyError(f"{self._node.name}: a punctuation interval is at least 1 ms, not {interval_ms}")
        if type not in ("stream_time", "wall_clock_time"):
            raise TopologyError(
                f"{self._node.name}: {type!r} is not a punctuation type",
                hint='Give "stream_time" or "wall_clock_time".',
            )
        callback_of = f"{self._node.name}: schedule"
        Function.wrap(callback, verb=callback_of, allowed=(1,), passed="(timestamp in ms)", expression=False)
        meta_name = f"punctuate:{self._node.name}:{self._schedules}"
        self._schedules += 1
        first = 0 if type == "stream_time" else self._task.wall_clock_ms + interval_ms
        if start is not None:
            first = timestamp_ms(start)
            if first < 0:
                raise TopologyError(f"{self._node.name}: punctuations start in 1970 or later, not at {first} ms")
        next_ms = self._task.get_meta(meta_name, first)
        if type == "wall_clock_time":  # noted by a machine whose clock was ahead, it would wait until this one is there
            next_ms = min(next_ms, max(first, self._task.wall_clock_ms + interval_ms))
        schedule = Schedule(self._node.name, next_ms, interval_ms, callback, meta_name)
        queue = self._operator.stream_queue if type == "stream_time" else self._operator.wall_clock_queue
        queue.add(schedule)
        return schedule

    def current_stream_time_ms(self) -> int:
        """Return the largest timestamp that the task has processed; -1 before the first record."""
        return int(self._task.input_stream_times[self.position])

    def current_system_time_ms(self) -> int:
        """Return the wall-clock time."""
        return self._task.wall_clock_ms

    def record_metadata(self) -> RecordMetadata | None:
        """Return the origin of the current record; in a punctuation its topic is None, the numbers are -1."""
        source = self._task.input.record(self.source) if isinstance(self.source, int) else self.source
        return None if source is None else RecordMetadata(source.topic, source.partition, source.offset)

    def commit(self) -> None:
        """Do nothing: every batch ends with a commit, which cannot be hastened."""


class ProcessOperator(Operator):
    """The operator of one processor over the rows of a batch, with its punctuations between them.

    ``dispatch`` is set when the task goes depth first: then a forwarded record goes to the children at once.
    """

    runs_without_rows = True
    leaves_out_rows = keeps_users_state = True
    makes_many = takes_turns = True

    def __init__(
        self,
        node: ProcessorNode,
        topology: Topology,
        context: TaskContext,
        stream_queue: PunctuationQueue,
        wall_clock_queue: PunctuationQueue,
    ) -> None:
        self.name = node.name
        self.stream_queue = stream_queue
        self.wall_clock_queue = wall_clock_queue
        self.dispatch: Callable[[str, str | None, Record[Any, Any]], None] | None = None
        self._task = context
        self._globals = topology.global_stores
        self._context = NodeContext(self, node, self._task, frozenset(topology.children(node.name)))
        self._out: list[Forward] = []
        self._at: list[tuple[int, int]] = []  # of each forward: (row or -1, input position)
        self._row = -1
        self.origin: RecordContext | None = None  # of the present record, if it waited in a buffer
        # The present record, its headers as the user sees them, and the object that serdes add to.
        self._present: tuple[Record[Any, Any], Headers, RecordHeaders] | None = None
        operation = cast("Process", node.operation)
        self.processor = operation.supplier()
        fixed_key = operation.fixed_key or isinstance(self.processor, FixedKeyProcessor)
        self.record_type: type[Record[Any, Any]] = FixedKeyRecord if fixed_key else Record
        self.processor.init(self._context)

    def close(self) -> None:
        """Close the user's processor."""
        self.processor.close()

    def is_global(self, store: str) -> bool:
        return store in self._globals

    def forward(self, child: str | None, record: Record[Any, Any]) -> None:
        if self.dispatch is not None:
            self.dispatch(self.name, child, record)
            return
        self._out.append((child, record))
        self._at.append((self._row, self._context.position))

    def process(self, rows: Rows, parent: str) -> Sequence[tuple[str | None, Rows]]:  # noqa: ARG002
        """Process rows in order, each stream-time punctuation after the last row of the record that makes it due."""
        times = self._task.input_stream_times
        positions = rows.place.inputs.tolist()
        keys, values, stamps = rows.keys.items(), rows.values.items(), rows.timestamps.tolist()
        due = self._next_due(times, 0)
        for row, position in enumerate(positions):
            while due is not None and due < position:
                self.punctuate(self.stream_queue, int(times[due]), due, self.name)
                due = self._next_due(times, due + 1)
            self._process_batch_row(rows, row, position, keys[row], values[row], stamps[row])
        while due is not None:
            self.punctuate(self.stream_queue, int(times[due]), due, self.name)
            due = self._next_due(times, due + 1)
        self.punctuate(self.wall_clock_queue, self._task.wall_clock_ms, len(times) - 1, self.name)
        return self._taken(rows)

    def process_directly(self, rows: Rows) -> None:
        """Process rows only: the task itself runs the punctuations, between records."""
        keys, values, stamps = rows.keys.items(), rows.values.items(), rows.timestamps.tolist()
        for row, position in enumerate(rows.place.inputs.tolist()):
            self._process_batch_row(rows, row, position, keys[row], values[row], stamps[row])

    def process_row(self, row: Row) -> None:
        """Process a row by itself: what `process_directly` does with a batch of it."""
        step = self._task.step
        error = self._process_row(0, 0, row.key, row.value, row.timestamp, row.headers, row.origin)
        if error is not None:
            self._task.failed(self.name, None, row.rows(step), 0, error)

    def _process_batch_row(self, rows: Rows, row: int, position: int, key: Any, value: Any, timestamp: int) -> None:
        headers = rows.headers[row] if rows.headers is not None else ()
        error = self._process_row(row, position, key, value, timestamp, headers, rows.origin(row))
        if error is not None:
            self._task.failed(self.name, None, rows, row, error)

    def _process_row(
        self,
        number: int,
        position: int,
        key: Any,
        value: Any,
        timestamp: int,
        headers: Headers,
        origin: RecordContext | None,
    ) -> Exception | None:
        """Call the user's processor with a row of that number in its batch; return what it raises."""
        context = self._context
        record = self.record_type(key, value, timestamp, plain_headers(headers))
        present = self._present
        if isinstance(headers, RecordHeaders):
            self._present = record, record.headers, headers
        before = (context.position, context.source, self._row)
        before_origin, self.origin = self.origin, origin
        current = self._task.current
        noted = None if current is None else current.note
        if current is not None:
            current.note = timestamp, headers
        context.position, context.source, self._row = position, origin or position, number
        try:
            self.processor.process(record)
        except Exception as error:  # noqa: BLE001 - whatever a user's processor raises
            return error
        finally:
            self._present = present
            context.position, context.source, self._row = before
            self.origin = before_origin
            if current is not None:
                current.note = noted
        return None

    def headers_of(self, record: Record[Any, Any]) -> RecordHeaders:
        """Return the headers of a forwarded record: of the present one itself the very object, as in Kafka.

        Records of fixed key processors are copies, without what serdes of stores have added since.
        """
        if self._present is not None and self.record_type is not FixedKeyRecord:
            present, shown, headers = self._present
            if record is present:
                return headers
            if record.headers is shown:
                return RecordHeaders(headers)
        return RecordHeaders(record.headers)

    def _next_due(self, times: NDArray[np.int64], start: int) -> int | None:
        """Return the first input position from ``start`` on after which a stream-time punctuation is due."""
        next_ms = self.stream_queue.next_ms(self.name)
        if next_ms is None or self._task.input.length == 0:
            return None
        at = max(start, int(np.searchsorted(times, next_ms)))
        return at if at < self._task.input.length else None

    def punctuate(self, queue: PunctuationQueue, now_ms: int, position: int, node: str | None) -> None:
        """Run the punctuations that are due; ``position`` is the record after which that is."""
        if now_ms >= 0:
            queue.fire(now_ms, lambda schedule: self.run(schedule, now_ms, position), node)

    def run(self, schedule: Schedule, now_ms: int, position: int) -> None:
        """Call back; the schedule's next time is kept with the state, so that it goes on after a restart."""
        context = self._context
        before = (context.position, context.source, self._row)
        context.position, context.source, self._row = position, _NO_RECORD, -1
        before_origin, self.origin = self.origin, _NO_RECORD
        started = time.perf_counter()
        current = self._task.current
        noted = None if current is None else current.note
        if current is not None:
            current.note = now_ms, ()
        headers = self._task.headers
        try:
            with nullcontext() if headers is None else headers.at(RecordHeaders()):
                schedule.callback(now_ms)
        except Exception as error:  # noqa: BLE001 - whatever a user's punctuator raises
            source = _NO_RECORD._replace(timestamp=now_ms)
            self._task.processing_failed(
                RecordFailure(self.name, source, Place((position, AFTER), 1), error), None, None
            )
        finally:
            context.position, context.source, self._row = before
            self.origin = before_origin
            if current is not None:
                current.note = noted
        self._task.sensor.on_punctuation(self._task.task_id, self.name, now_ms, time.perf_counter() - started)
        following = schedule.next_ms + schedule.interval_ms * ((now_ms - schedule.next_ms) // schedule.interval_ms + 1)
        self._task.put_meta(schedule.meta_name, following)

    def _taken(self, rows: Rows) -> Sequence[tuple[str | None, Rows]]:
        """Return the records forwarded in this batch, by the child that was named."""
        out, at = self._out, self._at
        self._out, self._at = [], []
        by_child: dict[str | None, list[int]] = {}
        for number, (child, _) in enumerate(out):
            by_child.setdefault(child, []).append(number)
        return [(child, self._rows(rows, out, at, numbers)) for child, numbers in by_child.items()]

    def _rows(self, rows: Rows, out: list[Forward], at: list[tuple[int, int]], numbers: list[int]) -> Rows:
        parts: list[Rows] = []
        from_rows = [n for n in numbers if at[n][0] >= 0]
        if from_rows:
            place = rows.place.take(np.array([at[n][0] for n in from_rows], np.int64))
            sent = _as_rows([out[n][1] for n in from_rows], place.extend(np.array(from_rows, np.int64)))
            parts.append(replace(sent, origins=rows.origins and [rows.origins[at[n][0]] for n in from_rows]))
        others = [n for n in numbers if at[n][0] < 0]
        if others:
            positions = np.array([at[n][1] for n in others], np.int64)
            place = Place((positions, AFTER, np.array(others, np.int64)), len(others))
            sent = _as_rows([out[n][1] for n in others], place)
            parts.append(replace(sent, origins=[_NO_RECORD] * len(others)))
        return Rows.merge(parts)


def _as_rows(records: list[Record[Any, Any]], place: Place) -> Rows:
    return Rows(
        place,
        np.array([r.timestamp for r in records], np.int64),
        Column.of_items([r.key for r in records]),
        Column.of_items([r.value for r in records]),
        [r.headers for r in records] if any(r.headers for r in records) else None,
    )


def _factory(node: ProcessorNode, topology: Topology, context: TaskContext) -> Operator:
    return ProcessOperator(node, topology, context, context.stream_queue, context.wall_clock_queue)


# Transformers of tables


class _TransformerContext(NodeContext):
    """The task as a transformer sees it: it can neither forward nor schedule."""

    def __init__(self, node: ProcessorNode, topology: Topology, task: TaskContext) -> None:
        super().__init__(cast("Any", self), node, task, frozenset())
        self._globals = topology.global_stores
        self.row_timestamp = -1
        self.row_headers: Headers = ()

    def timestamp(self) -> int:
        return self.row_timestamp

    def headers(self) -> Headers:
        return self.row_headers

    def is_global(self, store: str) -> bool:
        return store in self._globals

    def forward(self, record: Record[Any, Any], child: str | None = None) -> NoReturn:  # noqa: ARG002
        self._refuse("forwards")

    def schedule(
        self,
        interval: DurationLike,  # noqa: ARG002
        type: str,  # noqa: A002, ARG002
        callback: Callable[[int], None],  # noqa: ARG002
        *,
        start: TimestampLike | None = None,  # noqa: ARG002
    ) -> NoReturn:
        self._refuse("schedules a punctuation")

    def _refuse(self, what: str) -> NoReturn:
        raise TopologyError(
            f"{self._node.name}: a transformer {what}, but it can only return values",
            hint="Use to_stream().process(...), whose processors can.",
            node=self._node.name,
        )

    def record_metadata(self) -> RecordMetadata | None:
        source = self._task.input.record(self.position)
        return None if source.topic is None else RecordMetadata(source.topic, source.partition, source.offset)


class _Transformer:
    """A user's transformer and its context."""

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        self._name = node.name
        self._task = context
        self._context = _TransformerContext(node, topology, self._task)
        self.transformer = cast("TableTransformValues", node.operation).supplier()
        self.transformer.init(self._context)

    def over(
        self, rows: Rows, keys: Column, *columns: Column, read_at: NDArray[np.int64] | None = None
    ) -> tuple[list[Column], NDArray[np.int64] | None]:
        """Call it for each row with the value of each column; return the results and the rows that did not raise.

        Args:
            rows: The rows that come, or that cause the reading.
            keys: The keys of the rows.
            columns: The values.
            read_at: For rows that are read from the table, their times; they have no headers.
        """
        transform: Callable[[Any, Any], Any] = self.transformer.transform
        context = self._context
        results: list[list[Any]] = [[] for _ in columns]
        failed: list[int] = []
        inputs = rows.place.inputs.tolist()
        stamps = (rows.timestamps if read_at is None else read_at).tolist()
        headers = rows.headers if read_at is None else None
        for row, (position, key, *values) in enumerate(
            zip(inputs, keys.items(), *(c.items() for c in columns), strict=True)
        ):
            context.position = position
            context.row_timestamp, context.row_headers = (
                stamps[row],
                () if headers is None else plain_headers(headers[row]),
            )
            try:
                transformed = [transform(key, value) for value in values]
            except Exception as error:  # noqa: BLE001 - whatever a user's transformer raises
                self._task.failed(self._name, None, rows, row, error)
                failed.append(row)
                continue
            for column, result in zip(results, transformed, strict=True):
                column.append(result)
        return [Column.of_items(column) for column in results], failures_removed(failed, len(rows))

    def over_row(self, row: Row, *values: Any) -> list[Any] | None:
        """Call it for a row by itself with each value; return the results, None if it raised."""
        context = self._context
        context.position, context.row_timestamp, context.row_headers = 0, row.timestamp, plain_headers(row.headers)
        try:
            return [self.transformer.transform(row.key, value) for value in values]
        except Exception as error:  # noqa: BLE001 - whatever a user's transformer raises
            self._task.failed(self._name, None, row.rows(self._task.step), 0, error)
            return None


class _TableTransform(Operator):
    """KTableTransformValues."""

    leaves_out_rows = keeps_users_state = True

    def __init__(self, node: ProcessorNode, topology: Topology, context: TaskContext) -> None:
        operation = cast("TableTransformValues", node.operation)
        self._send_old = operation.send_old
        self._transformer = _Transformer(node, topology, context)
        self._view: _TransformedView | None = None
        self._table = None
        self.sliced_reason: str | None = None
        if operation.store is not None:
            self._table = StoredTable(node, topology, context)
            self.caches_rows = self._table.caching
        elif is_read(topology, node.name):
            self._view = _TransformedView(operation.parent, _Transformer(node, topology, context), context)
            context.register_table(node.name, self._view)
            if operation.stores:
                self.sliced_reason = "its transformer has state, and is called again whenever the table is read"

    def process(self, rows: Rows, parent: str) -> Rows:  # noqa: ARG002
        if self._table is None and self._send_old:
            olds = rows.olds if rows.olds is not None else Column.nulls(len(rows))
            (news, befores), good = self._transformer.over(rows, rows.keys, rows.values, olds)
            rows = rows if good is None else rows.take(good)
            return replace(rows, values=news, olds=befores)
        (news,), good = self._transformer.over(rows, rows.keys, rows.values)
        rows = (rows if good is None else rows.take(good)).with_values(news)
        if self._table is None:
            return replace(rows, olds=Column.nulls(len(rows)))
        return assign(self._table, rows)

    def row_step(self) -> RowStep | None:
        table, transformer, with_olds = self._table, self._transformer, self._send_old and self._table is None
        if table is not None and not table.assigns_rows:
            return table.step_of_batches(self)

        def step(row: Row) -> Row | None:
            values = transformer.over_row(row, row.value, *((row.old_value,) if with_olds else ()))
            if values is None:
                return None
            if table is not None:
                return table.assign_row(row, values[0])
            return row.with_change(values[0], values[1] if with_olds else None)

        return step

    def close(self) -> None:
        """Close the user's transformers."""
        self._transformer.transformer.close()
        if self._view is not None:
            self._view.transformer.transformer.close()


class _TransformedView(OverParent):
    """The view of a transformed table that has no store: its parent's view, and a transformer of its own."""

    def __init__(self, parent: str, transformer: _Transformer, context: TaskContext) -> None:
        super().__init__(parent, context)
        self.transformer = transformer

    def _derive(
        self, rows: Rows, keys: Column, values: Column, stamps: NDArray[np.int64]
    ) -> tuple[Column, NDArray[np.int64]]:
        """Transform values, also where there is none."""
        (results,), good = self.transformer.over(rows, keys, values, read_at=stamps)
        return (results if good is None else spread(results, good, len(rows))), stamps


FACTORIES: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {
    Process: _factory,
    TableTransformValues: _TableTransform,
}
