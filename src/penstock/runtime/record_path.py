"""Records one by one, without batches: plain values go from a record's source through its operators to its sinks.

A topology whose operators all have a `row_step` needs no columns for a batch of one record, as in the test driver and
in a stream thread with little to do. Results, order and figures are those of a batch of that record, whether by column
or depth first (`penstock.runtime.depth_first`); the errors of operators go the way of the one or the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from penstock.errors import PenstockError, SerializationError
from penstock.runtime.exception_handlers import is_of_record
from penstock.runtime.processors import ProcessOperator
from penstock.runtime.rows import Row
from penstock.runtime.sensor import RecordWork, Sensor

if TYPE_CHECKING:
    from penstock.runtime.context import TaskContext
    from penstock.runtime.error_reporting import NamingStores
    from penstock.runtime.graph import Graph
    from penstock.runtime.operator import Operator, RowStep
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
        # These do something in a batch whose records are none of theirs.
        self._waits = any(each.runs_without_rows or isinstance(each, ProcessOperator) for each in operators.values())

    def path_of(self, source: str) -> RecordPath | None:
        """Return the path of a source's records; None if they need batches."""
        steps: dict[str, RowStep] = {}
        is_chain, makes_many, caches = True, False, False
        waiting = [source]
        while waiting:
            name = waiting.pop()
            operator = self.operators.get(name)
            if name in self.sinks and not self.sinks[name].takes_rows:
                return None
            if operator is not None:
                step = operator.row_step()
                if step is None or (operator.caches_rows and makes_many):  # these would become one update
                    return None
                steps[name] = step
                makes_many, caches = makes_many or operator.makes_many, caches or operator.caches_rows
            children = [child for child, _ in self.graph.children[name]]
            is_chain = is_chain and len(children) <= 1
            waiting += children
        if self._waits or (caches and not is_chain):
            return None
        return RecordPath(self, source, steps, is_chain=is_chain)


class RecordPath:
    """The path of a source's records.

    Args:
        paths: What all paths of the task have in common.
        source: The source.
        steps: The work of each operator.
        is_chain: Whether no node sends to several.

    Attributes:
        is_chain: As above. Else the order of calls is that of depth first, not that by column.
    """

    def __init__(self, paths: RecordPaths, source: str, steps: Mapping[str, RowStep], *, is_chain: bool) -> None:
        self.is_chain = is_chain
        self._source = source
        self._steps = steps
        self._paths = paths
        self._context = context = paths.context
        starts = context.sensor.on_node_start
        self._starts = None if getattr(starts, "__func__", None) is Sensor.on_node_start else starts
        self._work: RecordWork
        self._later: list[tuple[Send, Row]] = []  # what leaves caches, when all else is done
        self._send = self._to_children(source, is_flushed=False)

    def run(self, row: Row, work: RecordWork) -> None:
        """Process a record; the work is noted as it is done."""
        self._work = work
        context = self._context
        try:
            try:
                self._send(row)
            except PenstockError:
                raise
            except Exception as error:
                if not context.by_record:
                    raise
                raise context.fatal(self._source, None, row.rows(0), 0, error) from error
            later = self._later
            while later:
                send, waiting = later.pop(0)
                send(waiting)
        except BaseException:
            self._later.clear()
            if context.by_record:
                work.nodes.clear()  # those of a batch depth first are counted at its end
            raise

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
        send = self._to_operator(name, is_flushed=is_flushed)
        return send if self._context.current is None else self._noting(send)

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

    def _to_operator(self, name: str, *, is_flushed: bool) -> Send:
        context, step, naming = self._context, self._steps[name], self._paths.naming[name]
        caches = self._paths.operators[name].caches_rows
        is_last = not self._paths.graph.children[name]
        pass_on = self._to_children(name, is_flushed=is_flushed or caches)
        starts, later, clock = self._starts, self._later, time.perf_counter

        def send(row: Row) -> None:
            at = context.step = context.step + 1
            by_record, work = context.by_record, self._work
            if starts is not None and not by_record:
                starts(context.task_id, name)
            if is_last and by_record:
                work.completed.append((name, row.timestamp))
            began = clock()
            try:
                try:
                    out = step(row)
                    if not (by_record or out is None or type(out) is Row):
                        out = list(out)  # type: ignore[arg-type]
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
