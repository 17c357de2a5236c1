"""A plan to verbs of a `StreamsBuilder`, step by step from the sources down."""

from __future__ import annotations

from typing import Any

from penstock.api.builder import StreamsBuilder
from penstock.api.options import Consumed, Materialized, Produced
from penstock.sql.analyse import plans as p
from penstock.sql.catalog.source import Source
from penstock.sql.compile.aggregates import aggregate
from penstock.sql.compile.functions import FlattenRows, SourceTime, enrich, plain_rows, sink_time
from penstock.sql.compile.joins import join
from penstock.sql.compile.origins import names_origins
from penstock.sql.compile.row_functions import Keep, KeyOf, Select
from penstock.sql.compile.serdes import RowsSerde, source_serdes, step_key_serde
from penstock.sql.compile.steps import Compiling, types_of
from penstock.sql.functions.evaluation_errors import EvaluationErrors

__all__ = ["compile_query", "compile_results", "table_stores"]


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
