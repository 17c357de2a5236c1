"""SELECT to a plan: WITH written out, sources, conditions, groups and windows, the result and its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.base.nearest_name import did_you_mean
from penstock.sql.analyse.definitions import check_key_types
from penstock.sql.analyse.expressions import Library, constant_value, predicate, typed_expression
from penstock.sql.analyse.fields import ClauseScope, RowField, qualified
from penstock.sql.analyse.joins import From, from_clause
from penstock.sql.analyse.plans import (
    Aggregate,
    AggregateCall,
    Expression,
    FilterStep,
    FlattenStep,
    PlanStep,
    Project,
    Read,
    Rekey,
    TableCall,
    WindowTimes,
)
from penstock.sql.analyse.reads import derived, milliseconds, read
from penstock.sql.analyse.select import Item, Selecting, keys_of, select_items
from penstock.sql.analyse.statement_errors import named, refusal
from penstock.sql.catalog import BOUNDS, Catalog, DataFormat, SourceColumn, SourceWindow
from penstock.sql.evaluate import calls_in, columns_in, substitute
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.dialects import OTHER_FUNCTIONS
from penstock.sql.parse.formatting import format_expression
from penstock.sql.parse.statement_nodes import UNIT_WORDS
from penstock.sql.types import SqlTypeError
from penstock.sql.types.sql_type import is_open

__all__ = ["MOST_SUBQUERIES", "Analysed", "QueryAnalysis", "analyse_query", "inlined"]

# WITH

MOST_SUBQUERIES = 50  # of one query, those of WITH counted as often as they are used


def inlined(query: s.Query) -> s.Query:
    """Return the query without WITH.

    A name of it hides a stream or table of that name, and is known to those behind it.

    Raises:
        SqlError: A name is twice in WITH, or the query has too many subqueries.

    >>> from penstock.sql.parse import format_statement, parse_statement
    >>> print(format_statement(inlined(parse_statement("WITH a AS (SELECT x FROM s) SELECT x FROM a EMIT CHANGES;"))))
    SELECT X
    FROM (
      SELECT X
      FROM S
    ) AS A
    EMIT CHANGES
    """
    return _Inlining().query(query, {})


class _Inlining:
    def __init__(self) -> None:
        self._count = 0

    def query(self, query: s.Query, queries: Mapping[str, s.Query]) -> s.Query:
        """Return a query with its relations written out."""
        names = dict(queries)
        own: set[str] = set()
        for each in query.ctes:
            if each.name in own:
                raise refusal(each.at, f"WITH has two queries of the name {each.name}")
            own.add(each.name)
            names[each.name] = self.query(each.query, names)
        return replace(
            query,
            ctes=(),
            source=self._relation(query.source, names),
            joins=tuple(replace(join, right=self._relation(join.right, names)) for join in query.joins),
        )

    def _relation(self, relation: s.Relation, queries: Mapping[str, s.Query]) -> s.Relation:
        if isinstance(relation, s.Subquery):
            self._counted(relation)
            return replace(relation, query=self.query(relation.query, queries))
        named_query = queries.get(relation.name)
        if named_query is None:
            return relation
        self._counted(relation)
        return s.Subquery(named_query, relation.alias or relation.name, at=relation.at)

    def _counted(self, relation: s.Relation) -> None:
        self._count += 1
        if self._count > MOST_SUBQUERIES:
            raise refusal(relation.at, f"The query has more than {MOST_SUBQUERIES} subqueries, those of WITH counted")


# Groups and windows

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


def grouped(query: s.Query, step: PlanStep, items: Sequence[Any], catalog: Catalog, library: Library) -> Groups:
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


def check_states(step: Aggregate, reads: Sequence[Read], query: s.Query) -> None:
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


def _idle_ms(query: s.Query) -> int | None:
    if query.idle is None:
        return None
    idle_ms = milliseconds(query.idle)
    if idle_ms <= 0:
        raise refusal(query.idle.at, "EMIT FINAL AFTER ... IDLE takes a time longer than nothing")
    return idle_ms


def _having(query: s.Query, step: PlanStep) -> Any:
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


def window_times(window: s.WindowClause, *, final: bool) -> WindowTimes:
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


# Queries


@dataclass(frozen=True, slots=True)
class Analysed:
    """A query as steps, with the columns of its result in the order of SELECT."""

    step: Project
    columns: tuple[SourceColumn, ...]
    start: From


def analyse_query(query: s.Query, sink: str, catalog: Catalog, library: Library) -> Analysed:
    """Plan a query whose results are written to a sink.

    Raises:
        SqlError: The query cannot be run.
    """
    return QueryAnalysis(query, sink, catalog, library).result()


@dataclass(slots=True)
class QueryAnalysis:
    """The analysis of a query that writes to a topic; transient queries have their own rules for some of its steps."""

    query: s.Query
    sink: str
    catalog: Catalog
    library: Library

    def result(self) -> Analysed:
        """Analyse the query.

        Raises:
            SqlError: The query cannot be run.
        """
        self._check_clauses()
        self.query = inlined(self.query)
        self._check_sources()
        query = self.query
        start = from_clause(query, self.catalog, self.library, self._read)
        self._check_formats(start)
        step = start.step
        if query.where is not None:
            names = ClauseScope(step.fields, "WHERE")
            self._no_aggregates(query.where, "WHERE")
            step = _below(step, FilterStep, predicate=predicate(qualified(query.where, names), names, self.library))
        moved = None if query.partition_by is None else self._moved(step)
        items = self._items(step, moved)
        if moved is None and self._takes_keys_from_select(step):
            keys = [item.node for item in items if (item.node,) in step.key_names]
            step = self._rekeyed(step, keys) if keys else self._rekeyed(step, [x.NullLiteral()])
        if query.group_by is not None:
            return self._grouped(step, items, start)
        for item in items:
            called = self.library.aggregates_of(item.node)
            if called:
                raise refusal(called[0].at, f"The aggregate function {called[0].name} needs GROUP BY.")
        step, items, replaced = self._flattened(step, items)
        if moved is not None:
            step = self._rekeyed(step, moved)
        nodes = {id(item): replaced.get(item.node, item.node) for item in items}
        return self._projected(step, items, start, [nodes[id(item)] for item in items])

    def _read(self, relation: s.Relation) -> Read:
        if isinstance(relation, s.NamedSource):
            return read(relation, self.catalog)
        analysed = QueryAnalysis(relation.query, relation.alias, self.catalog, self.library).result()
        return derived(relation, analysed.step, analysed.columns, analysed.start.reads)

    def _check_clauses(self) -> None:
        query = self.query
        for clause, what in ((query.order_by, "ORDER BY"), (query.limit, "LIMIT"), (query.offset, "OFFSET")):
            if clause:
                raise refusal(query.at, f"{what} is not supported in queries that run on and write to a topic.")
        if query.window is not None and query.group_by is None:
            if query.emit == "FINAL" or any(
                self.library.aggregates_of(i.expression) for i in query.items if isinstance(i, s.Selected)
            ):
                raise refusal(
                    query.window.at, "SELECT of a WINDOW has a non-aggregate expression, and GROUP BY is missing"
                )
            raise refusal(query.window.at, "WINDOW stands without GROUP BY, which it needs.")
        if query.emit == "FINAL" and query.window is None:
            raise refusal(query.at, "EMIT FINAL needs a windowed aggregation.")
        if query.having is not None and query.group_by is None:
            raise refusal(query.having.at, "HAVING stands without GROUP BY, which it needs.")
        if query.partition_by is not None and query.group_by is not None:
            raise refusal(query.partition_by.at, "Only one of PARTITION BY and GROUP BY is supported.")

    def _check_sources(self) -> None:
        for relation in (self.query.source, *(join.right for join in self.query.joins)):
            source = self.catalog.sources.get(relation.name) if isinstance(relation, s.NamedSource) else None
            if source is not None and source.is_table and source.window is not None:
                raise refusal(relation.at, f"Persistent queries on windowed tables are not supported: {source.name}")

    def _check_formats(self, start: From) -> None:
        """Refuse an aggregation or a join of sources whose format ksqlDB's internal topics cannot have."""
        query = self.query
        kafka = [read.alias for read in start.reads if read.source.value_format.name == "KAFKA"]
        if kafka and (query.joins or query.group_by is not None):
            what = "JOIN" if query.joins else "GROUP BY"
            raise refusal(
                query.joins[0].at if query.joins else query.group_by.at,  # type: ignore[union-attr]
                f"Source(s) {', '.join(kafka)} are using the 'KAFKA' value format, which does not support {what}.",
                "CREATE STREAM ... WITH (VALUE_FORMAT='JSON') AS SELECT * writes a copy in a format that does.",
            )

    def _takes_keys_from_select(self, step: PlanStep) -> bool:
        """Return whether the key is what SELECT has of it, in that order.

        With the new planner, for queries without more.
        """
        query = self.query
        is_plain = not (step.is_table or query.joins or query.group_by is not None or step.window is not None)
        return is_plain and self.catalog.flag("ksql.new.query.planner.enabled", otherwise=False)

    def _selecting(self) -> Selecting:
        return Selecting()

    def _no_aggregates(self, node: Any, clause: str) -> None:
        called = self.library.aggregates_of(node)
        if called:
            columns = [c for call in called for c in columns_in(call) if c.name in BOUNDS]
            what = f" over {columns[0].name}" if columns else ""
            raise refusal(
                called[0].at,
                f"{clause} holds an aggregate function: {called[0].name}{what}",
                "Filter aggregates by HAVING.",
            )

    def _items(self, step: PlanStep, moved: Sequence[Any] | None) -> list[Item]:
        fields: tuple[RowField, ...] = step.fields
        if self.query.window is not None:
            fields = tuple(field for field in fields if field.role != "BOUND")
            fields += tuple(RowField(name, kind, None, "BOUND") for name, kind in BOUNDS.items())
            if self.query.joins:
                self._check_bounds()
        names = ClauseScope(fields, "SELECT")
        query = self._with_plain_bounds(step) if self.query.window is not None else self.query
        return select_items(query, step, names, moved, self.library, self._selecting())

    def _with_plain_bounds(self, step: PlanStep) -> s.Query:
        """Return the query with `t.WINDOWSTART` written as WINDOWSTART.

        The bounds are those of the query's own windows.
        """
        sources = {field.source for field in step.fields if field.source}
        plain = {x.ColumnNode(name, source): x.ColumnNode(name) for name in BOUNDS for source in sources}
        items = tuple(
            replace(item, expression=substitute(item.expression, plain)) if isinstance(item, s.Selected) else item
            for item in self.query.items
        )
        return replace(self.query, items=items)

    def _check_bounds(self) -> None:
        """Refuse the bounds of windows over a join, unless a source is named."""
        for item in self.query.items:
            called = columns_in(item.expression) if isinstance(item, s.Selected) else ()
            wrong = next((column for column in called if column.source is None and column.name in BOUNDS), None)
            if wrong is not None:
                raise refusal(
                    wrong.at,
                    f"SELECT names the column '{wrong.name}', which no source of the join has",
                    f"Write a source before it: {self.query.source.alias}.{wrong.name}.",
                )

    def _grouped(self, step: PlanStep, items: list[Item], start: From) -> Analysed:
        for item in items:
            if self.library.tables_of(item.node):
                raise refusal(item.at, "A query has either table functions or aggregations, not both.")
        groups = grouped(self.query, step, [item.node for item in items], self.catalog, self.library)
        check_states(groups.step, start.reads, self.query)
        below: PlanStep = groups.step
        if self.query.having is not None:
            below = self._having(groups)
        nodes = [groups.behind(item.node, "SELECT") for item in items]
        return self._projected(below, items, start, nodes)

    def _having(self, groups: Groups) -> PlanStep:
        node = qualified(
            self.query.having,
            ClauseScope(
                groups.above.fields,
                "HAVING",
                bounds="{name} is a window bounds column, and is read in SELECT of a windowed aggregation alone",
            ),
        )
        behind = groups.behind(node, "HAVING")
        condition = predicate(behind, groups.names("HAVING"), self.library)
        filtered: PlanStep = _below(groups.step, FilterStep, predicate=condition)
        return filtered

    def _moved(self, step: PlanStep) -> list[Any]:
        assert self.query.partition_by is not None, "only with PARTITION BY"  # noqa: S101
        if step.is_table:
            raise refusal(self.query.partition_by.at, "PARTITION BY takes a stream, and this source is a table.")
        names = ClauseScope(step.fields, "PARTITION BY")
        nodes = []
        for expression in self.query.partition_by.expressions:
            self._no_aggregates(expression, "PARTITION BY")
            if self.library.tables_of(expression):
                raise refusal(expression.at, "PARTITION BY holds a table function.")
            nodes.append(qualified(expression, names))
        if len(nodes) > 1 and any(isinstance(node, x.NullLiteral) for node in nodes):
            raise refusal(self.query.partition_by.at, "PARTITION BY has NULL among multiple columns")
        return nodes

    def _rekeyed(self, step: PlanStep, moved: Sequence[Any]) -> PlanStep:
        if step.window is None and [(node,) for node in moved] == list(step.key_names):
            return replace(step, key_word="partitioning expression")
        names = ClauseScope(step.fields, "PARTITION BY")
        nodes = [node for node in moved if not isinstance(node, x.NullLiteral)]
        key_expressions = tuple(typed_expression(node, names, self.library) for node in nodes)
        check_key_types(
            [(each.text, each.type) for each in key_expressions], (self.query.partition_by or self.query).at
        )
        form = step.key_format
        if form.name == "NONE":
            form = DataFormat(self.catalog.setting("ksql.persistence.default.format.key", "KAFKA").upper())
        return Rekey(
            fields=step.fields,
            key=tuple(each.type for each in key_expressions),
            key_format=form,
            is_table=False,
            key_names=tuple((node,) for node in nodes),
            key_word="partitioning expression",
            above=step,
            expressions=key_expressions,
        )

    def _flattened(self, step: PlanStep, items: list[Item]) -> tuple[PlanStep, list[Item], dict[Any, Any]]:
        calls = list(dict.fromkeys(call for item in items for call in self.library.tables_of(item.node)))
        if not calls:
            return step, items, {}
        if step.is_table:
            raise refusal(calls[0].at, "Table source is not supported with table functions")
        names = ClauseScope(step.fields, "SELECT")
        fields, table_calls, replaced = list(step.fields), [], {}
        for number, call in enumerate(calls):
            if any(self.library.tables_of(argument) for argument in call.arguments):
                raise refusal(call.at, "Table functions can not be nested")
            arguments = tuple(typed_expression(argument, names, self.library) for argument in call.arguments)
            try:
                bound = self.library.tables.resolve(call.name, [argument.type for argument in arguments])
            except SqlTypeError as error:
                raise refusal(call.at, str(error)) from error
            fields.append(RowField(f"KSQL_SYNTH_{number}", bound.type, None, "COMPUTED"))
            table_calls.append(TableCall(bound, arguments))
            replaced[call] = x.ColumnNode(fields[-1].name)
        flat = _below(step, FlattenStep, calls=tuple(table_calls))
        nodes = {item.node: substitute(item.node, replaced) for item in items}
        return replace(flat, fields=tuple(fields)), items, nodes

    def _projected(self, step: PlanStep, items: list[Item], start: From, nodes: list[Any]) -> Analysed:
        keys = keys_of(items, step, self.sink, self.query.at)
        names = ClauseScope(step.fields, "SELECT")
        values: list[Expression] = []
        columns: list[SourceColumn] = []
        role: Any = "PRIMARY KEY" if step.is_table else "KEY"
        for item, node in zip(items, nodes, strict=True):
            if any(item is key for key in keys):
                index = next(i for i, key in enumerate(keys) if key is item)
                columns.append(SourceColumn(item.name, step.key[index], role))
                continue
            expression = self._value(item, node, names)
            values.append(expression)
            columns.append(SourceColumn(item.name, expression.type))
        if not values:
            raise refusal(self.query.at, "No value columns are in the projection.", "Select a column besides the key.")
        named_keys = [SourceColumn(item.name, kind, role) for item, kind in zip(keys, step.key, strict=True)]
        rest = iter(named_keys)
        columns = [next(rest) if column.is_key else column for column in columns]
        fields = tuple(RowField(column.name, column.type) for column in columns if not column.is_key)
        project = _below(step, Project, values=tuple(values))
        return Analysed(replace(project, fields=fields), tuple(columns), start)

    def _value(self, item: Item, node: Any, names: ClauseScope) -> Expression:
        expression = typed_expression(node, names, self.library)
        if is_open(expression.type):
            raise refusal(
                item.at, "The type of a null is open.", "Name the type by CAST, for example CAST(NULL AS VARCHAR)."
            )
        return expression


def _below(step: PlanStep, kind: Any, **more: Any) -> Any:
    """Return a step with the same columns and key as the one above it."""
    return kind(
        fields=step.fields,
        key=step.key,
        key_format=step.key_format,
        is_table=step.is_table,
        window=step.window,
        key_names=step.key_names,
        key_word=step.key_word,
        above=step,
        **more,
    )
