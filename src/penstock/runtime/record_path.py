"""Records one by one, without batches: plain values go from a record's source through its operators to its sinks.

A topology whose operators all have a `row_step` needs no columns for a batch of one record, as in the test driver and
in a stream thread with little to do. Results, order and figures are those of a batch of that record, whether by column
or depth first (`penstock.runtime.depth_first`); the errors of operators go the way of the one or the other. Where nodes
send to several, or operators do something behind what they send on, it is depth first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.errors import PenstockError, SerializationError
from penstock.runtime.exception_handlers import is_of_record
from penstock.runtime.processors import ProcessOperator
from penstock.runtime.rows import NO_OLD, Row
from penstock.runtime.sensor import RecordWork, Sensor

if TYPE_CHECKING:
    from penstock.api.processing.processor import Record
    from penstock.runtime.context import TaskContext
    from penstock.runtime.error_reporting import NamingStores
    from penstock.runtime.graph import Graph
    from penstock.runtime.operator import Operator, RowStep
    from penstock.runtime.punctuation import Schedule
    from penstock.runtime.sources_and_sinks import SinkWriter

__all__ = ["RecordPath", "RecordPaths"]

Send: TypeAlias = Callable[[Row], None]


class RecordPaths:
    """The paths of a task's sources.

    Args:
        graph: The task's part of the topology.
        operators: Its operators.
        sinks: Its sinks.
        context: The task.
        naming: The names of each operator and its stores in errors.
    """

    def __init__(
        self,
        graph: Graph,
        operators: Mapping[str, Operator],
        sinks: Mapping[str, SinkWriter],
        context: TaskContext,
        naming: Mapping[str, NamingStores],
    ) -> None:
        self.graph = graph
        self.operators = operators
        self.sinks = sinks
        self.context = context
        self.naming = naming
        self.processors = {name: each for name, each in operators.items() if isinstance(each, ProcessOperator)}
        # These do something in a batch whose records are none of theirs.
        others = [each for name, each in operators.items() if name not in self.processors]
        self._waits = any(each.runs_without_rows for each in others)

    def path_of(self, source: str) -> RecordPath | None:
        """Return the path of a source's records; None if they need batches."""
        steps: dict[str, RowStep] = {}
        is_chain, makes_many, caches, takes_turns = True, False, False, bool(self.processors)
        seen: set[str] = set()
        waiting = [*self.processors, source]  # any record may be the time of any processor
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            operator = self.operators.get(name)
            if name in self.sinks and not self.sinks[name].takes_rows:
                return None
            if isinstance(operator, ProcessOperator):
                makes_many = True
            elif operator is not None:
                step = operator.row_step()
                if step is None or (operator.caches_rows and makes_many):  # these would become one update
                    return None
                steps[name] = step
                makes_many, caches = makes_many or operator.makes_many, caches or operator.caches_rows
                takes_turns = takes_turns or operator.takes_turns
            children = [child for child, _ in self.graph.children[name]]
            is_chain = is_chain and len(children) <= 1
            waiting += children
        if self._waits or (caches and not is_chain):
            return None
        return RecordPath(self, source, steps, is_depth_first=takes_turns or not is_chain)


class RecordPath:
    """The path of a source's records.

    Args:
        paths: What all paths of the task have in common.
        source: The source.
        steps: The work of each operator that is no processor.
        is_depth_first: Whether it goes depth first even where a batch would go by column.

    Attributes:
        is_depth_first: As above.
    """

    def __init__(self, paths: RecordPaths, source: str, steps: Mapping[str, RowStep], *, is_depth_first: bool) -> None:
        self.is_depth_first = is_depth_first
        self._source = source
        self._steps = steps
        self._paths = paths
        self._context = context = paths.context
        starts = context.sensor.on_node_start
        self._starts = None if getattr(starts, "__func__", None) is Sensor.on_node_start else starts
        self._work: RecordWork
        self._later: list[tuple[Send, Row]] = []  # what leaves caches, when all else is done
        self._sends: dict[tuple[str, bool], Send] = {}  # to operators, by whether a cache is above them
        self._below_s = 0.0  # of the running processor's time, what the nodes took that it forwarded to
        self._processors = paths.processors
        self._forwards: dict[str, tuple[Send, dict[str, Send]]] = {}  # of processors: to all children, and to each
        for name in self._processors:
            self._forwards[name] = self._to_children(name, is_flushed=False), self._to_each(name)
        self._send = self._to_children(source, is_flushed=False)

    def is_late(self) -> bool:
        """Return whether a punctuation by wall-clock time is due, which comes by itself, not of a record."""
        first_ms = self._context.wall_clock_queue.first_ms if self._processors else None
        return first_ms is not None and first_ms <= self._context.wall_clock_ms

    def run(self, row: Row, work: RecordWork) -> None:
        """Process a record; the work is noted as it is done."""
        self._work = work
        context = self._context
        try:
            if self._processors:
                self._dispatch(self._forward)
            try:
                self._send(row)
            except PenstockError:
                raise
            except Exception as error:
                if not context.by_record:
                    raise
                raise context.fatal(self._source, None, row.rows(0), 0, error) from error
            if self._processors and work.stream_time >= 0:
                context.stream_queue.fire(work.stream_time, partial(self._punctuate, work.stream_time, 0))
            if self._later:
                self._flush()
            if self._processors:
                now = context.wall_clock_ms
                context.wall_clock_queue.fire(now, partial(self._punctuate, now, context.input.length))
                self._flush()
        except BaseException:
            self._later.clear()
            if context.by_record:
                work.nodes.clear()  # those of a batch depth first are counted at its end
            raise
        finally:
            if self._processors:
                self._dispatch(None)

    def _dispatch(self, forward: Callable[[str, str | None, Record[Any, Any]], None] | None) -> None:
        """Let processors forward records by this function; None: not at once."""
        for processor in self._processors.values():
            processor.dispatch = forward

    def _flush(self) -> None:
        """Send on what has left caches."""
        later = self._later
        while later:
            send, waiting = later.pop(0)
            send(waiting)

    def _punctuate(self, now_ms: int, position: int, schedule: Schedule) -> None:
        processor = self._processors[schedule.node]
        self._of_processor(schedule.node, 0, partial(processor.run, schedule, now_ms, position))

    def _forward(self, node: str, child: str | None, record: Record[Any, Any]) -> None:
        began, before = time.perf_counter(), self._below_s
        to_all, to_each = self._forwards[node]
        send = to_all if child is None else to_each[child]
        origin = self._processors[node].origin
        send(Row(record.timestamp, record.key, record.value, record.headers or (), NO_OLD, origin))
        self._below_s = before + time.perf_counter() - began
        self._work.nodes.setdefault(node, [0, 0, 0.0])[1] += 1

    def _of_processor(self, node: str, rows: int, call: Callable[[], None]) -> None:
        """Call a processor, and count its own time, without that of the nodes that it forwards to."""
        began, outside = time.perf_counter(), self._below_s
        self._below_s = 0.0
        call()
        totals = self._work.nodes.setdefault(node, [0, 0, 0.0])
        totals[0] += rows
        totals[2] += time.perf_counter() - began - self._below_s
        self._below_s = outside

    def _to_each(self, name: str) -> dict[str, Send]:
        return {child: self._to(child, name, is_flushed=False) for child, _ in self._paths.graph.children[name]}

    def _to_children(self, name: str, *, is_flushed: bool) -> Send:
        sends = [self._to(child, name, is_flushed=is_flushed) for child, _ in self._paths.graph.children[name]]
        if len(sends) == 1:
            return sends[0]

        def send(row: Row) -> None:
            for each in sends:
                each(row)

        return send

    def _to(self, name: str, parent: str, *, is_flushed: bool) -> Send:
        sink = self._paths.sinks.get(name)
        if sink is not None:
            return self._to_sink(sink, parent if parent in self._steps and not is_flushed else None)
        send = self._sends.get((name, is_flushed))
        if send is None:
            if name in self._processors:
                send = self._to_processor(name)
            else:
                send = self._to_operator(name, is_flushed=is_flushed)
            send = send if self._context.current is None else self._noting(send)
            self._sends[name, is_flushed] = send
        return send

    def _to_sink(self, sink: SinkWriter, parent: str | None) -> Send:
        context, write = self._context, sink.write_row

        def send(row: Row) -> None:
            context.step += 1
            write(row, context.step, self._work, None if context.by_record else parent)

        return send

    def _noting(self, send: Send) -> Send:
        """Keep the stores' current record at the row meanwhile."""
        current = self._context.current
        assert current is not None, "somebody asks for the current record"  # noqa: S101

        def noting(row: Row) -> None:
            before, current.note = current.note, (row.timestamp, row.headers)
            try:
                send(row)
            finally:
                current.note = before

        return noting

    def _to_processor(self, name: str) -> Send:
        context, processor = self._context, self._processors[name]
        is_last = not self._paths.graph.children[name]

        def send(row: Row) -> None:
            at = context.step = context.step + 1
            context.batch += 1
            if self._starts is not None:
                self._starts(context.task_id, name)
            if is_last:
                self._work.completed.append((name, row.timestamp))
            self._of_processor(name, 1, partial(processor.process_row, row))
            failure = context.take_failure()
            if failure is not None:
                context.ask(name, failure[0], row.rows(at), 0, failure[1])

        return send

    def _to_operator(self, name: str, *, is_flushed: bool) -> Send:
        context, step, naming = self._context, self._steps[name], self._paths.naming[name]
        operator = self._paths.operators[name]
        caches = operator.caches_rows
        is_last = not self._paths.graph.children[name]
        pass_on: Callable[[Any], None] = self._to_children(name, is_flushed=is_flushed or caches)
        if operator.names_children:
            sends = {each: self._to(each, name, is_flushed=is_flushed) for each, _ in self._paths.graph.children[name]}

            def pass_on(named: tuple[str, Row]) -> None:
                sends[named[0]](named[1])

        starts, later, clock = self._starts, self._later, time.perf_counter

        def send(row: Row) -> None:
            at = context.step = context.step + 1
            context.batch += 1  # the stores are up to date at every step: nothing kept for earlier ones is needed
            by_record, work = context.by_record, self._work
            if starts is not None and (self.is_depth_first or not by_record):
                starts(context.task_id, name)
            if is_last and by_record:
                work.completed.append((name, row.timestamp))
            began = clock()
            try:
                try:
                    out = step(row)
                    if not (by_record or out is None or type(out) is Row):
                        out = list(out)  # type: ignore[arg-type, assignment]
                except SerializationError as error:
                    naming.raise_named(error)
            except Exception as error:  # noqa: BLE001 - the handler is asked, or it is raised
                self._failed(name, row, at, error)
                return
            failure = context.take_failure() if by_record else None
            totals = work.nodes.setdefault(name, [0, 0, 0.0])
            totals[0] += 1
            totals[2] += clock() - began
            if is_last and not by_record:
                work.completed.append((name, row.timestamp))
            if out is not None:
                try:
                    for each in (out,) if type(out) is Row else _counted(out, totals):  # type: ignore[arg-type]
                        totals[1] += 1
                        if caches:
                            later.append((pass_on, each))
                        else:
                            pass_on(each)
                except Exception as error:
                    if not by_record:
                        raise
                    self._failed(name, row, at, error)
                    return
                if by_record and failure is None:
                    failure = context.take_failure()
            if failure is not None:
                context.ask(name, failure[0], row.rows(at), 0, failure[1])

        return send

    def _failed(self, name: str, row: Row, step: int, error: Exception) -> None:
        """Ask the processing handler about an error of an operator or below it, or raise it."""
        context, rows = self._context, row.rows(step)
        if not context.by_record:
            context.raise_of_user(name, rows, error)
            raise error
        context.take_failure()
        if not is_of_record(error):
            raise error
        context.ask(name, None, rows, 0, error)


def _counted(rows: Iterable[Row], totals: list[float]) -> Iterable[Row]:
    """Yield rows, each of which the operator may make after the one before has been sent on."""
    began = time.perf_counter()
    for row in rows:
        totals[2] += time.perf_counter() - began
        yield row
        began = time.perf_counter()
