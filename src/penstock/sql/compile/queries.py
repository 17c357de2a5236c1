"""Plans of queries to verbs of the DSL: joins and all other steps, with the record's origin where it is named.

Only a processor sees them, and it takes record by record; rows of queries that name none of them are made without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.api.builder import StreamsBuilder
from penstock.api.joins.stream_stream import JoinWindows
from penstock.api.options import Consumed, Joined, Materialized, Produced, StreamJoined, TableJoined
from penstock.sql.analyse import plans as p
from penstock.sql.analyse.plans import PlanStep, expressions_in, steps_below
from penstock.sql.catalog import Source
from penstock.sql.compile.aggregates import aggregate
from penstock.sql.compile.row_functions import (
    FlattenRows,
    Joiner,
    Keep,
    KeyOf,
    Select,
    SourceTime,
    enrich,
    plain_rows,
    sink_time,
)
from penstock.sql.compile.serdes import RowsSerde, source_serdes, step_key_serde
from penstock.sql.compile.steps import Compiling, types_of
from penstock.sql.evaluate import typed as n
from penstock.sql.evaluate.compiled import parts
from penstock.sql.functions.evaluation_errors import EvaluationErrors

__all__ = ["compile_query", "compile_results", "joiner_of", "names_origins", "table_stores"]

OF_ORIGIN = ("HEADER", "PSEUDO")


def names_origins(root: PlanStep) -> bool:
    """Return whether an expression of a query has the time, partition, offset or headers of a record."""
    return any(_named(step) for step in steps_below(root))


def _named(step: PlanStep) -> bool:
    above = getattr(step, "above", None) or getattr(step, "left", None)
    if not isinstance(above, PlanStep):
        return False
    places = {index for each in expressions_in(step) for index in _places(each.typed)}
    return any(above.fields[index].role in OF_ORIGIN for index in places if index < len(above.fields))


def _places(node: n.Typed) -> Iterator[int]:
    if isinstance(node, n.TypedColumn):
        yield node.index
    for part in parts(node):
        yield from _places(part)


DAY_MS = 86_400_000


def join(
    step: p.JoinStreams | p.JoinStreamTable | p.JoinTables | p.JoinForeign, left: Any, right: Any, compiling: Compiling
) -> Any:
    """Return the stream or table of a join."""
    match step:
        case p.JoinStreams():
            return _streams(step, left, right, compiling)
        case p.JoinStreamTable():
            return _stream_table(step, left, right, compiling)
        case p.JoinTables():
            return _tables(step, left, right, compiling)
    return _foreign(step, left, right, compiling)


def joiner_of(step: p.JoinTables) -> Callable[[Any, Any, Any], Any]:
    """Return the function that makes the row of a join of a key and the rows of both tables."""
    return _joiner(step)


def _joiner(step: Any, *, swapped: bool = False) -> Joiner:
    left, right = len(step.left.fields), len(step.right.fields)
    return Joiner(left, right, keys=len(step.fields) - left - right, swapped=swapped)


def _streams(step: p.JoinStreams, left: Any, right: Any, compiling: Compiling) -> Any:
    times, swapped = step.times, step.kind == "RIGHT"
    sides = (RowsSerde(types_of(step.left.fields)), RowsSerde(types_of(step.right.fields)))
    if swapped:
        left, right, sides = right, left, (sides[1], sides[0])
    if times.grace_ms is None:
        windows = JoinWindows(times.before_ms, times.after_ms, max(DAY_MS - 2 * times.before_ms, 0), waits=False)
    else:
        windows = JoinWindows(times.before_ms, times.after_ms, times.grace_ms)
    joined = StreamJoined(
        compiling.name(step.name),
        key_serde=step_key_serde(step.left),
        value_serde=sides[0],
        other_value_serde=sides[1],
    )
    verb = {"INNER": left.join, "FULL": left.outer_join}.get(step.kind, left.left_join)
    return verb(right, _joiner(step, swapped=swapped), windows, joined)


def _stream_table(step: p.JoinStreamTable, left: Any, right: Any, compiling: Compiling) -> Any:
    joined = Joined(
        compiling.name(step.name),
        key_serde=step_key_serde(step.left),
        value_serde=RowsSerde(types_of(step.left.fields)),
        other_value_serde=RowsSerde(types_of(step.right.fields)),
    )
    verb = left.join if step.kind == "INNER" else left.left_join
    return verb(right, _joiner(step), joined)


def _tables(step: p.JoinTables, left: Any, right: Any, compiling: Compiling) -> Any:
    del compiling
    swapped = step.kind == "RIGHT"
    if swapped:
        left, right = right, left
    verb = {"INNER": left.join, "FULL": left.outer_join}.get(step.kind, left.left_join)
    return verb(right, _joiner(step, swapped=swapped))


def _foreign(step: p.JoinForeign, left: Any, right: Any, compiling: Compiling) -> Any:
    kept = Materialized(
        compiling.store(step, "FKJoin-Materialize"),
        key_serde=step_key_serde(step),
        value_serde=RowsSerde(types_of(step.fields)),
    )
    verb = left.join if step.kind == "INNER" else left.left_join
    return verb(
        right,
        _joiner(step),
        kept,
        foreign_key=KeyOf((step.foreign_key,), compiling.errors),
        joined=TableJoined(compiling.name("FKJoin")),
    )


def compile_query(
    plan: p.QueryPlan, builder: StreamsBuilder, errors: EvaluationErrors | None = None, prefix: str = ""
) -> None:
    """Add a query to a topology.

    Args:
        plan: The query.
        builder: The builder of the topology.
        errors: Counts the errors of the query's expressions.
        prefix: Before the names of its stores, where one topology has several queries.
    """
    counted = errors if errors is not None else EvaluationErrors(plan.id)
    settings = dict(plan.settings)
    throws = settings.get("ksql.timestamp.throw.on.invalid", "").lower() == "true"
    compiler = _Compiler(Compiling(builder, counted, throws=throws, prefix=prefix), plan.root)
    _write(compiler, plan, compiler.step(plan.root))


def compile_results(root: p.PlanStep, builder: StreamsBuilder, errors: EvaluationErrors) -> Any:
    """Add a query to a topology without a sink: the stream or table of its results, whose values are rows."""
    return _Compiler(Compiling(builder, errors), root).step(root)


def table_stores(plan: p.QueryPlan, prefix: str = "") -> dict[int, str]:
    """Return the stores that the tables of a query are kept in, by the identity of their steps."""
    compiling = Compiling(StreamsBuilder(), EvaluationErrors(plan.id), prefix=prefix)
    _Compiler(compiling, plan.root).step(plan.root)
    return compiling.stores


class _Compiler:
    """The compiler of steps to streams and tables.

    Args:
        compiling: The builder and what goes with it.
        root: The last step of the query.
    """

    def __init__(self, compiling: Compiling, root: p.PlanStep) -> None:
        self.origins = names_origins(root)
        self.compiling = compiling
        self.builder = compiling.builder
        self.errors = compiling.errors

    def step(self, step: p.PlanStep) -> Any:
        """Return the stream or table of a step."""
        match step:
            case p.Read():
                return self._read(step)
            case p.FilterStep():
                above = self.step(step.above)
                return above.filter(Keep((step.predicate,), self.errors))
            case p.FlattenStep():
                return self.step(step.above).flat_map_values(FlattenRows(step.calls, self.errors))
            case p.Rekey():
                return self._rekey(step)
            case p.Aggregate():
                return aggregate(step, self.step(step.above), self.compiling)
            case p.Project():
                return self.step(step.above).map_values(Select(step.values, self.errors))
            case p.JoinStreams() | p.JoinStreamTable() | p.JoinTables() | p.JoinForeign():
                return join(step, self.step(step.left), self.step(step.right), self.compiling)
        raise TypeError(f"no step: {type(step).__name__}")

    def _read(self, step: p.Read) -> Any:
        source = step.source
        if isinstance(step, p.Derived):
            return self._derived(step)
        key, value = source_serdes(source)
        extractor = self._extractor(source)
        consumed = Consumed(key_serde=key, value_serde=value, timestamp_extractor=extractor)
        records = self.builder.stream(source.topic, consumed)
        rows: Any = records.process_values(enrich(source)) if self.origins else records.map_values(plain_rows(source))
        if not step.is_table:
            return rows
        name = self.compiling.store(step, f"{step.alias}-Reduce")
        kept = Materialized(name, key_serde=key, value_serde=RowsSerde(types_of(step.fields)))
        return rows.to_table(kept)

    def _derived(self, step: p.Derived) -> Any:
        """Return the results of a subquery, made rows as the records of a topic are."""
        above = self.step(step.above)
        stream = above.to_stream() if step.is_table else above
        rows = stream.process_values(enrich(step.source))
        if not step.is_table:
            return rows
        name = self.compiling.store(step, f"{step.alias}-Reduce")
        value_serde = RowsSerde(types_of(step.fields))
        return rows.to_table(Materialized(name, key_serde=step_key_serde(step.above), value_serde=value_serde))

    def _extractor(self, source: Source) -> SourceTime | None:
        if source.timestamp is None:
            return None
        return SourceTime(source.timestamp, _place(source), self.errors, raises=self.compiling.throws)

    def _rekey(self, step: p.Rekey) -> Any:
        above = self.step(step.above)
        keys = [index for index, field in enumerate(step.above.fields) if field.role == "KEY"]
        moved = above.select_key(KeyOf(step.expressions, self.errors, keys, len(step.above.fields), whole=step.whole))
        if not step.is_table:
            return moved
        kept = Materialized(
            self.compiling.store(step, f"{step.name}-Materialize"),
            key_serde=step_key_serde(step),
            value_serde=RowsSerde(types_of(step.fields)),
        )
        return moved.to_table(kept)


def _place(target: Source) -> tuple[bool, int]:
    """Return whether the column of TIMESTAMP is one of the key, and its place there or in the value."""
    assert target.timestamp is not None, "only with TIMESTAMP"  # noqa: S101
    for of_key, columns in ((True, target.keys), (False, target.values)):
        for index, column in enumerate(columns):
            if column.name == target.timestamp.name:
                return of_key, index
    raise ValueError(f"{target.name} has no column {target.timestamp.name}")


def _write(compiler: _Compiler, plan: p.QueryPlan, result: Any) -> None:
    target = plan.target
    stream = result.to_stream() if plan.root.is_table else result
    if target.timestamp is not None:
        stream = stream.process_values(
            sink_time(target.timestamp, _place(target), compiler.errors, raises=compiler.compiling.throws)
        )
    key, value = source_serdes(target)
    stream.to(target.topic, Produced(key_serde=key, value_serde=value))
