"""GROUP BY: grouping expressions, aggregates, windows, and the columns that are left behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.nearest_name import did_you_mean
from penstock.sql.analyse.expressions import Library, constant_value, typed_expression
from penstock.sql.analyse.fields import ClauseScope, RowField, qualified
from penstock.sql.analyse.plans import Aggregate, AggregateCall, Expression, PlanStep, Read, WindowTimes
from penstock.sql.analyse.reads import milliseconds
from penstock.sql.analyse.statement_errors import named, refusal
from penstock.sql.catalog import Catalog, DataFormat, SourceWindow
from penstock.sql.catalog.source import BOUNDS
from penstock.sql.evaluate import calls_in, columns_in, substitute
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import query_nodes as q
from penstock.sql.parse.dialects import OTHER_FUNCTIONS
from penstock.sql.parse.format_expressions import format_expression
from penstock.sql.parse.query_nodes import UNIT_WORDS
from penstock.sql.types import SqlTypeError

__all__ = ["Groups", "check_states", "grouped", "window_times"]

DAY_MS = 86_400_000
NESTED_STATES = frozenset(
    {
        "ATTR",
        "AVG",
        "COLLECT_LIST",
        "COLLECT_SET",
        "CORRELATION",
        "COUNT_DISTINCT",
        "EARLIEST_BY_OFFSET",
        "HISTOGRAM",
        "LATEST_BY_OFFSET",
        "STDDEV_SAMP",
        "STDDEV_SAMPLE",
        "TOPK",
        "TOPKDISTINCT",
    }
)


@dataclass(frozen=True, slots=True)
class Groups:
    """The step of GROUP BY, and what stands for grouping expressions and aggregates behind it.

    Attributes:
        above: The columns before the grouping, in which SELECT and HAVING are written.
        replaced: The column for each grouping expression and each call of an aggregate.
    """

    step: Aggregate
    above: ClauseScope
    replaced: dict[Any, Any]

    def behind(self, node: Any, clause: str) -> Any:
        """Return an expression over the rows of the step.

        Raises:
            SqlError: It has a column that is neither grouped nor in an aggregate.
        """
        expression = substitute(node, self.replaced)
        field_names = {field.name for field in self.step.fields}
        loose = [c for c in columns_in(expression) if c.source is not None or c.name not in field_names | UNIT_WORDS]
        if loose:
            raise refusal(
                loose[0].at,
                f"GROUP BY lacks the non-aggregate {clause} expression {format_expression(node)}",
                f"Group by it as well, aggregate it, or take it out of {clause}.",
            )
        return expression

    def names(self, clause: str) -> ClauseScope:
        """Return the columns of the step's rows."""
        return ClauseScope(self.step.fields, clause)


def grouped(query: q.Query, step: PlanStep, items: Sequence[Any], catalog: Catalog, library: Library) -> Groups:
    """Group rows.

    Args:
        query: The query.
        step: The rows.
        items: The qualified expressions of SELECT.
        catalog: The catalog, for the default format of keys.
        library: The functions.
    """
    assert query.group_by is not None, "only for queries with GROUP BY"  # noqa: S101
    if query.window is not None and step.is_table:
        raise refusal(query.window.at, "WINDOW groups the rows of streams; the rows of a table have no windows.")
    bounds = "{name} is a window bounds column, and is read in SELECT of a windowed aggregation alone"
    names = ClauseScope(step.fields, "GROUP BY", bounds=bounds)
    nodes = [_grouping(node, names, library) for node in query.group_by.expressions]
    for index, node in enumerate(nodes):
        if node in nodes[:index]:
            raise refusal(node.at, f"An expression is twice in GROUP BY: {format_expression(node)}")
    having = [] if query.having is None else [_having(query, step)]
    calls = [call for node in (*items, *having) for call in library.aggregates_of(node)]
    calls = list(dict.fromkeys(calls))
    if not calls:
        _check_names((*items, *having), library)
        raise refusal(
            query.group_by.at, "A query with GROUP BY needs aggregate functions in SELECT or HAVING, and has none."
        )
    grouping = tuple(typed_expression(node, names, library) for node in nodes)
    aggregate_calls = tuple(_aggregate(call, names, library) for call in calls)
    if step.is_table:
        _check_undo(calls, aggregate_calls)
    fields = [RowField(f"KSQL_GROUP_{i}", e.type, None, "COMPUTED") for i, e in enumerate(grouping)]
    replaced: dict[Any, Any] = {node: x.ColumnNode(field.name) for node, field in zip(nodes, fields, strict=True)}
    for number, (call, bound) in enumerate(zip(calls, aggregate_calls, strict=True)):
        fields.append(RowField(f"KSQL_AGG_VARIABLE_{number}", bound.function.type, None, "COMPUTED"))
        replaced[call] = x.ColumnNode(fields[-1].name)
    times = None if query.window is None else window_times(query.window, final=query.emit == "FINAL")
    if times is not None:
        fields += [RowField(name, kind, None, "BOUND") for name, kind in BOUNDS.items()]
    by_key = step.window is None and [(node,) for node in nodes] == list(step.key_names)
    form = step.key_format
    if form.name == "NONE":
        form = DataFormat(catalog.setting("ksql.persistence.default.format.key", "KAFKA").upper())
    result = Aggregate(
        fields=tuple(fields),
        key=tuple(each.type for each in grouping),
        key_format=form,
        is_table=True,
        window=_window(times),
        key_names=tuple((node,) for node in nodes),
        key_word="grouping expression",
        above=step,
        grouping=grouping,
        calls=aggregate_calls,
        by_key=by_key,
        times=times,
        final=query.emit == "FINAL",
        idle_ms=_idle_ms(query),
    )
    return Groups(result, names, replaced)


def check_states(step: Aggregate, reads: Sequence[Read], query: q.Query) -> None:
    """Refuse aggregates whose state ksqlDB could not write in the format of the source.

    Raises:
        SqlError: The source is DELIMITED, and the state of an aggregate is an array, a map or a struct.
    """
    wrong = [call.function.name for call in step.calls if call.function.name in NESTED_STATES]
    delimited = [read.alias for read in reads if read.source.value_format.name == "DELIMITED"]
    if wrong and delimited:
        raise refusal(
            query.at,
            f"The state of {named(wrong)} is not a single value, so the value format DELIMITED of {named(delimited)} "
            "cannot hold it.",
            "CREATE STREAM ... WITH (VALUE_FORMAT='JSON') AS SELECT * writes a copy in a format that can.",
        )


def _idle_ms(query: q.Query) -> int | None:
    if query.idle is None:
        return None
    idle_ms = milliseconds(query.idle)
    if idle_ms <= 0:
        raise refusal(query.idle.at, "EMIT FINAL AFTER ... IDLE takes a time longer than nothing")
    return idle_ms


def _having(query: q.Query, step: PlanStep) -> Any:
    bounds = "{name} is a window bounds column, and is read in SELECT of a windowed aggregation alone"
    return qualified(query.having, ClauseScope(step.fields, "HAVING", bounds=bounds))


def _grouping(node: Any, names: ClauseScope, library: Library) -> Any:
    called = library.aggregates_of(node)
    if called:
        raise refusal(
            called[0].at,
            f"GROUP BY holds the aggregate function {called[0].name}; group by columns or plain functions.",
        )
    if library.tables_of(node):
        raise refusal(node.at, "GROUP BY holds a table function.")
    return qualified(node, names)


def _aggregate(call: x.CallNode, names: ClauseScope, library: Library) -> AggregateCall:
    arguments: list[Expression] = []
    for argument in call.arguments:
        if isinstance(argument, x.Star):
            continue
        if library.aggregates_of(argument):
            raise refusal(call.at, f"Aggregate functions can not be nested: {format_expression(call)}")
        arguments.append(typed_expression(argument, names, library))
    argument_nodes = [argument for argument in call.arguments if not isinstance(argument, x.Star)]
    constants = [constant_value(argument) for argument in argument_nodes]
    try:
        function = library.aggregates.resolve(call.name, [argument.type for argument in arguments], constants)
    except SqlTypeError as error:
        raise refusal(call.at, str(error)) from error
    fixed = tuple(format_expression(argument) for argument in argument_nodes[function.columns :])
    return AggregateCall(function, tuple(arguments[: function.columns]), fixed)


def _check_names(nodes: Sequence[Any], library: Library) -> None:
    """Refuse a function that there is not: a misspelled aggregate is none."""
    function_names = (*library.aggregates.names, *library.scalars.names, *library.tables.names)
    for node in nodes:
        for call in calls_in(node, lambda name: name.upper() not in function_names):
            hint = OTHER_FUNCTIONS.get(call.name.upper()) or did_you_mean(call.name, function_names)
            raise refusal(call.at, f"No function has the name '{call.name}'", hint)


def _check_undo(calls: Sequence[x.CallNode], aggregate_calls: Sequence[AggregateCall]) -> None:
    wrong = [call for call, bound in zip(calls, aggregate_calls, strict=True) if bound.function.steps.undo is None]
    if wrong:
        many = "s" if len(wrong) > 1 else ""
        raise refusal(
            wrong[0].at,
            f"The aggregation function{many} {named([call.name for call in wrong])} cannot undo a row, as a table "
            "source needs; use it over a stream.",
        )


def window_times(window: q.WindowClause, *, final: bool) -> WindowTimes:
    """Return the windows of WINDOW in milliseconds, with the grace that holds if none is given."""
    size = milliseconds(window.size)
    if size <= 0:
        raise refusal(window.size.at, "A window must be longer than nothing")
    advance = None if window.advance is None else milliseconds(window.advance)
    if advance is not None and not 0 < advance <= size:
        raise refusal(window.at, f"ADVANCE BY must be above zero and at most the size of the window ({size} ms)")
    grace = max(DAY_MS - size, 0) if not final else 0
    if window.grace is not None:
        grace = milliseconds(window.grace)
    retention = None if window.retention is None else milliseconds(window.retention)
    if retention is not None and retention < size + grace:
        raise refusal(
            window.at,
            f"The retention period {retention} ms is less than the sum of the window size {size} ms and the grace "
            f"period {grace} ms",
        )
    return WindowTimes(window.kind, size, advance, grace, retention)


def _window(times: WindowTimes | None) -> SourceWindow | None:
    if times is None:
        return None
    if times.kind == "SESSION":
        return SourceWindow("SESSION")
    return SourceWindow("HOPPING" if times.kind in ("HOPPING", "SLIDING") else "TUMBLING", times.size_ms)
