"""Records one by one, each through all operators before the next: the exact order of Kafka Streams.

The same operators as in the pass over columns, called with single rows. A record has three phases: first everything
that it causes, then the stream-time punctuations that it has made due, then the changes that leave the caches of
tables.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from penstock.errors import PenstockError, SerializationError
from penstock.runtime.error_reporting import NamingStores
from penstock.runtime.exception_handlers import is_of_record
from penstock.runtime.processors import ProcessOperator, single_row
from penstock.runtime.rows import Place, Rows
from penstock.serde.bound_serdes import RecordHeaders
from penstock.topology.building.joins import JoinWindow
from penstock.topology.nodes import ProcessorNode
from penstock.topology.operations.definitions import Branch, PassThrough, Process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.api.processing.processor import Record
    from penstock.runtime.context import TaskContext
    from penstock.runtime.graph import Graph, MissingFields
    from penstock.runtime.operator import Operator
    from penstock.runtime.punctuation import Schedule
    from penstock.runtime.rows import Headers
    from penstock.runtime.sources_and_sinks import SinkWriter
    from penstock.topology.nodes import Node
    from penstock.topology.operations.functions import Function

__all__ = ["DepthFirst"]

Failure = tuple["Function | None", Exception]
# These send the very record on that they got, whose headers are the same object then; others make a new one, with a
# copy of the headers. Of a processor it is a matter of what it forwards.
_SAME_RECORD = (PassThrough, Branch, JoinWindow, Process)


def _in_order(sources: list[tuple[str, Rows]]) -> list[tuple[int, str, Rows, int]]:
    """Return the position of each record, its source, that one's rows, and the number of the record among them."""
    if len(sources) == 1 and len(sources[0][1]) == 1:
        source, rows = sources[0]
        return [(rows.place.input(0), source, rows, 0)]
    rows_of = [
        (position, source, rows, row)
        for source, rows in sources
        for row, position in enumerate(rows.place.inputs.tolist())
    ]
    return rows_of if len(sources) == 1 else sorted(rows_of, key=itemgetter(0))


def _sends_same_record(node: Node) -> bool:
    return not isinstance(node, ProcessorNode) or isinstance(node.operation, _SAME_RECORD)


class DepthFirst:
    """The run of a task's operators depth first."""

    def __init__(
        self,
        graph: Graph,
        operators: Mapping[str, Operator],
        sinks: Mapping[str, SinkWriter],
        context: TaskContext,
        missing: MissingFields,
    ) -> None:
        self._children = graph.children
        self._operators = operators
        self._sinks = sinks
        self._context = context
        self._missing = missing
        self._position = 0
        self._step = 0
        self._flushes: dict[int, list[tuple[str, Rows]]] = {}  # by the number of the store
        self._processors: dict[str, ProcessOperator] = {}
        self._timed: dict[str, Operator] = {}
        self._work: dict[str, list[float]] = {}  # node -> rows in, rows out, its own seconds; of this batch
        self._below_s = 0.0  # of the running processor's time, what the nodes took that it forwarded to
        self.naming = {name: NamingStores(context.topology, name, context.task_id) for name in operators}
        self._same_record = {name for name, node in graph.nodes.items() if _sends_same_record(node)}
        for name in graph.order:
            operator = operators.get(name)
            if isinstance(operator, ProcessOperator):
                self._processors[name] = operator
            elif operator is not None and operator.runs_without_rows:
                self._timed[name] = operator

    def run(self, sources: list[tuple[str, Rows]]) -> None:
        """Process all records in order of their positions, then the punctuations that wall-clock time has made due."""
        for processor in self._processors.values():
            processor.dispatch = self._forward
        self._context.by_record = True
        try:
            self._run(sources)
        finally:
            self._context.by_record = False
            for processor in self._processors.values():
                processor.dispatch = None
        for name, (rows_in, rows_out, seconds) in self._work.items():
            self._context.sensor.on_node(self._context.task_id, name, int(rows_in), int(rows_out), seconds)

    def _run(self, sources: list[tuple[str, Rows]]) -> None:
        context = self._context
        self._step, self._work = 0, {}
        for position, source, rows, row in _in_order(sources):
            self._position = position
            self._send_source(source, rows.row(row))
            if self._processors:
                now = int(context.input_stream_times[position])
                if now >= 0:
                    context.stream_queue.fire(now, self._punctuate_at(now))
            if self._flushes:
                self._flush()
            if context.headers is not None:  # who asks for a store between records reads it by those of the last one
                headers = rows.headers[row] if rows.headers and context.is_global else None
                context.headers.headers = RecordHeaders(headers or context.input.record(position).headers)
        self._position = context.input.length
        if self._processors:
            wall_clock = context.wall_clock_ms
            context.wall_clock_queue.fire(wall_clock, self._punctuate_at(wall_clock))
        self._context.by_record = False  # these operators are called without a record
        if context.is_last_part:
            for name, operator in self._timed.items():
                self._call(name, operator, Rows.empty(), "")
        self._flush()

    def _send_source(self, source: str, row: Rows) -> None:
        """Send the row of a source to its children; nobody is asked about errors of sinks among them."""
        try:
            self._send(source, None, row)
        except PenstockError:
            raise
        except Exception as error:
            raise self._context.fatal(source, None, row, 0, error) from error

    def _flush(self) -> None:
        """Send on the changes that tables have in their caches; a table may thereby fill the cache of a later one."""
        while self._flushes:
            for name, rows in self._flushes.pop(min(self._flushes)):
                self._send_each(name, None, rows)

    def _punctuate_at(self, now_ms: int) -> Callable[[Schedule], None]:
        return lambda schedule: self._of_processor(
            schedule.node, lambda processor: processor.run(schedule, now_ms, self._position)
        )

    def _forward(self, node: str, child: str | None, record: Record[Any, Any]) -> None:
        began, before = time.perf_counter(), self._below_s
        processor = self._processors[node]
        row = single_row(Place((self._position,), 1), record, processor.origin)
        if self._context.headers is not None:
            row.headers = cast("list[Headers]", [processor.headers_of(record)])
        self._send(node, child, row)
        self._below_s = before + time.perf_counter() - began
        self._worked(node, 0, 1, 0.0)

    def _of_processor(self, node: str, call: Callable[[ProcessOperator], None], rows: int = 0) -> None:
        """Call a processor, and count its own time, without that of the nodes that it forwards to."""
        began, outside = time.perf_counter(), self._below_s
        self._below_s = 0.0
        call(self._processors[node])
        self._worked(node, rows, 0, time.perf_counter() - began - self._below_s)
        self._below_s = outside

    def _worked(self, node: str, rows_in: int, rows_out: int, seconds: float) -> None:
        work = self._work.get(node)
        if work is None:
            work = self._work[node] = [0, 0, 0.0]
        work[0] += rows_in
        work[1] += rows_out
        work[2] += seconds

    def _send(self, node: str, only_child: str | None, rows: Rows) -> None:
        """Send one row to the children, each of which is done with it before the next one gets it."""
        context = self._context
        is_plain = context.headers is None and context.current is None
        if context.headers is not None and node not in self._same_record:
            own = RecordHeaders(rows.headers[0] if rows.headers else ())
            rows = replace(rows, headers=cast("list[Headers]", [own]))
        for child, _ in self._children[node]:
            if only_child is not None and only_child != child:
                continue
            self._step += 1
            row = rows.with_place(Place((self._position, self._step), 1))
            operator = self._operators.get(child)
            if operator is not None:
                if is_plain:
                    self._process(child, operator, row, node)
                else:
                    self._call(child, operator, row, node)
            else:
                # Time alone has called the operator: nobody above asks about an error of the sink, so the sink does.
                asks = not context.by_record and rows.place.flush is None and node in self._operators
                self._sinks[child].write(row, node if asks else None)

    def _call(self, name: str, operator: Operator, rows: Rows, parent: str) -> None:
        context = self._context
        with ExitStack() as stack:
            if context.headers is not None:
                stack.enter_context(context.headers.at(rows.headers[0] if rows.headers else RecordHeaders()))  # type: ignore[arg-type]
            stack.enter_context(context.processing(rows.timestamps, rows.headers))
            self._process(name, operator, rows, parent)

    def _process(self, name: str, operator: Operator, rows: Rows, parent: str) -> None:
        context = self._context
        context.batch += 1  # the stores are up to date at every step: nothing kept for earlier ones is needed
        if not self._children[name]:
            context.sensor.on_completed(context.task_id, name, rows.timestamps)
        if name in self._processors:
            self._of_processor(name, lambda processor: processor.process_directly(rows), len(rows))
            failure = context.take_failure()
        else:
            if self._missing.nodes and name in self._missing.nodes:
                self._missing.look(name, rows)
            try:
                failure = self._run_operator(name, operator, rows, parent)
            except Exception as error:
                context.take_failure()
                if not (len(rows) and is_of_record(error)):
                    raise
                failure = None, error
        if failure is not None:
            context.ask(name, failure[0], rows, 0, failure[1])

    def _run_operator(self, name: str, operator: Operator, rows: Rows, parent: str) -> Failure | None:
        """Run an operator with one row, and pass on what comes of it; return the failure that ended that, if any."""
        began = time.perf_counter()
        try:
            result = operator.process(rows, parent)
        except SerializationError as error:
            self.naming[name].raise_named(error)
        failure = self._context.take_failure()
        if isinstance(result, Rows):
            count = len(result.timestamps)
            self._worked(name, len(rows.timestamps), count, time.perf_counter() - began)
            if not count:
                return failure
            self._pass_on(name, None, result)
            return failure or self._context.take_failure()
        self._worked(name, len(rows), 0, time.perf_counter() - began)
        outputs = iter(self._counted(name, result))
        while (output := next(outputs, None)) is not None:
            failure = failure or self._context.take_failure()  # of an operator that works while its rows are passed on
            self._pass_on(name, *output)
        return failure or self._context.take_failure()

    def _pass_on(self, name: str, only_child: str | None, rows: Rows) -> None:
        """Send rows on; what leaves a cache waits until all else that the record causes is done."""
        flush = rows.place.flush
        if flush is None and len(rows.timestamps) == 1:
            self._send(name, only_child, rows)
        elif flush is None:
            self._send_each(name, only_child, rows)
        else:
            self._flushes.setdefault(flush, []).append((name, rows))

    def _counted(self, name: str, outputs: Iterable[tuple[str | None, Rows]]) -> Iterator[tuple[str | None, Rows]]:
        """Yield outputs, each of which the operator may compute after the one before has been sent on."""
        began = time.perf_counter()
        for child, out in outputs:
            self._worked(name, 0, len(out), time.perf_counter() - began)
            yield child, out
            began = time.perf_counter()

    def _send_each(self, name: str, only_child: str | None, rows: Rows) -> None:
        if len(rows) == 1:
            self._send(name, only_child, rows)
            return
        for row in range(len(rows)):
            self._send(name, only_child, rows.row(row))
