"""SELECT by itself to a plan: a pull query of a table or a stream, or a push query."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.errors import SqlError
from penstock.sql.analyse.enabled import check_enabled
from penstock.sql.analyse.expressions import Library, predicate, typed_expression
from penstock.sql.analyse.fields import ClauseScope, RowField, qualified
from penstock.sql.analyse.inlining import inlined
from penstock.sql.analyse.plans import Expression, QueryPlan, Read
from penstock.sql.analyse.reads import read
from penstock.sql.analyse.select import Item, Selecting, select_items
from penstock.sql.analyse.statement_errors import named, refusal
from penstock.sql.analyse.statements import library_of
from penstock.sql.analyse.transient import TransientAnalysed, TransientAnalysis
from penstock.sql.catalog import Catalog, Source, SourceColumn
from penstock.sql.catalog.source import BOUNDS
from penstock.sql.evaluate import columns_in, substitute
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import query_nodes as q
from penstock.sql.parse.format_expressions import format_expression
from penstock.sql.queries.lookups import Conditions, lookup_of, window_starts
from penstock.sql.queries.plans import Order, PullLimits, PullPlan, PushPlan, TransientPlan
from penstock.sql.types import ArrayType, MapType, StructType

__all__ = ["order_of", "plan_query", "sorted_result"]

PULL = "ksql.pull.queries.enable"
PULL_LIMIT = "ksql.query.pull.limit.clause.enabled"
SOURCE_TABLES = "ksql.source.table.materialization.enabled"
PULL_STREAM = "ksql.query.pull.stream.enabled"
NOT_PULLED = ("ROWPARTITION", "ROWOFFSET")
MATERIALIZED = "CREATE TABLE QUERYABLE_{name} AS SELECT * FROM {name} makes a table that is queryable."
HIDDEN = "KSQL_ORDER_{}"


def plan_query(query: q.Query, catalog: Catalog, text: str = "") -> TransientPlan:
    """Plan a query that stands by itself: with EMIT a push query, else a pull query.

    Args:
        query: The query.
        catalog: Sources, persistent queries and settings.
        text: Its text, which the plan keeps.

    Raises:
        SqlError: It cannot be run.

    >>> from penstock.sql.analyse import apply_script
    >>> from penstock.sql.parse import parse_statement
    >>> script = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON');"
    >>> catalog, _ = apply_script(script + "CREATE TABLE n AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;", Catalog())
    >>> plan = plan_query(parse_statement("SELECT n FROM n WHERE k = 3;"), catalog)
    >>> plan.lookup
    KeyLookup(keys=((3,),))
    """
    check_enabled(query, catalog)
    if query.emit is not None:
        return _pushed(query, catalog, text)
    _check_pull(query)
    _check_enabled(query, catalog)
    query = inlined(query)
    if isinstance(query.source, q.Subquery):
        plan = _pulled_stream(query, catalog, text)
        if plan.root.is_table:
            raise refusal(
                query.source.at,
                "Pull queries don't support subqueries that make tables.",
                "CREATE TABLE ... AS keeps the table; with EMIT CHANGES the query runs on.",
            )
        return plan
    source = catalog.sources.get(query.source.name)
    if source is not None and not source.is_table:
        return _pulled_stream(query, catalog, text)
    return _pulled_table(query, catalog, text)


def _pushed(query: q.Query, catalog: Catalog, text: str) -> PushPlan:
    if query.limit is not None and query.limit < 0:
        raise refusal(query.at, "Push queries don't support negative integers in the LIMIT clause.")
    analysed = TransientAnalysis(query, "the result", catalog, library_of(catalog)).result()
    reads = tuple(step.source for step in analysed.start.reads)
    return PushPlan(
        id=catalog.next_query_id(_prefix(query, reads, catalog), reads[0].name),
        root=analysed.step,
        columns=analysed.columns,
        origins=analysed.origins,
        reads=reads,
        limits=PullLimits(query.limit),
        settings=tuple(sorted(catalog.settings.items())),
        text=text,
    )


def _prefix(query: q.Query, reads: tuple[Source, ...], catalog: Catalog) -> str:
    """Return the beginning of a query's id.

    KsqlDB has one of its own for queries that only watch what another one writes.
    """
    latest = catalog.setting("auto.offset.reset").lower() == "latest"
    watches = latest and len(reads) == 1 and reads[0].query is not None and query.group_by is None
    return "SCALABLE_PUSH_QUERY" if watches else "transient"


def _check_pull(query: q.Query) -> None:
    for clause, word in (
        (query.window, "WINDOW"),
        (query.group_by, "GROUP BY"),
        (query.partition_by, "PARTITION BY"),
        (query.having, "HAVING"),
    ):
        if clause is not None:
            raise refusal(
                clause.at,
                f"Pull queries don't support {word} clauses.",
                "With EMIT CHANGES at its end it is a push query, which runs on.",
            )
    if query.joins:
        raise refusal(
            query.joins[0].at,
            "Pull queries don't support JOIN clauses.",
            "With EMIT CHANGES at its end it is a push query; CREATE TABLE ... AS keeps the join as a table.",
        )


def _check_enabled(query: q.Query, catalog: Catalog) -> None:
    """Refuse what a setting has switched off."""
    if not catalog.flag(PULL, otherwise=True):
        raise refusal(
            query.at,
            f"Pull queries are disabled, as {PULL} is false.",
            "With EMIT CHANGES at its end it is a push query.",
        )
    if query.limit is not None and not catalog.flag(PULL_LIMIT, otherwise=True):
        raise refusal(
            query.at, "LIMIT clause in pull queries is currently disabled.", f"SET '{PULL_LIMIT}'='true'; enables it."
        )


def _pulled_stream(query: q.Query, catalog: Catalog, text: str) -> PushPlan:
    if not catalog.flag(PULL_STREAM, otherwise=True):
        raise refusal(
            query.at,
            f"Pull queries on streams are disabled, as {PULL_STREAM} is false.",
            "With EMIT CHANGES at its end it is a push query.",
        )
    library = library_of(catalog)
    for item in query.items:
        if not isinstance(item, q.Selected):
            continue
        _check_columns(item.expression, "SELECT")
        called = library.aggregates_of(item.expression)
        if called:
            raise refusal(called[0].at, f"Pull queries don't support aggregate functions: {called[0].name}")
    if query.where is not None:
        _check_columns(query.where, "WHERE")
    analysed, order, width = sorted_result(query, catalog, library)
    return PushPlan(
        id=catalog.next_query_id("transient", analysed.start.reads[0].source.name),
        root=analysed.step,
        columns=analysed.columns[:width],
        origins=analysed.origins,
        reads=tuple(step.source for step in analysed.start.reads),
        until="now",
        order=order,
        limits=_limits(query),
        settings=tuple(sorted(catalog.settings.items())),
        text=text,
    )


def _limits(query: q.Query) -> PullLimits:
    if query.limit is not None and query.limit < 0:
        raise refusal(query.at, "Pull queries don't support negative integers in the LIMIT clause.")
    return PullLimits(query.limit, query.offset or 0)


def _pulled_table(query: q.Query, catalog: Catalog, text: str) -> PullPlan:
    library = library_of(catalog)
    step = read(query.source, catalog)
    names = ClauseScope(step.fields, "SELECT")
    items = select_items(query, step, names, None, library, Selecting(frozenset(), bounds=True))
    writer = _writer(step.source, query, catalog)
    _check_items(items, library)
    values = tuple(typed_expression(item.node, names, library) for item in items)
    columns = tuple(_column(item, value, step) for item, value in zip(items, values, strict=True))
    where, conditions = None, Conditions()
    if query.where is not None:
        scope = ClauseScope(step.fields, "WHERE")
        node = qualified(query.where, scope)
        _check_columns(node, "WHERE")
        where = predicate(node, scope, library)
        conditions = Conditions.of(node)
    by_name = ClauseScope(step.fields, "ORDER BY")
    return PullPlan(
        source=step.source,
        writer=writer,
        columns=columns,
        lookup=lookup_of(conditions, step, catalog, library, query.at),
        starts=window_starts(conditions, step, library),
        where=where,
        values=values,
        order=tuple(_order_of(each, items, by_name, library) for each in query.order_by),
        limits=_limits(query),
        text=text,
    )


def _writer(source: Source, query: q.Query, catalog: Catalog) -> QueryPlan | None:
    if source.read_only:
        if not catalog.flag(SOURCE_TABLES, otherwise=True):
            raise refusal(
                query.source.at,
                f"The `{source.name}` table isn't queryable, as {SOURCE_TABLES} is false.",
                MATERIALIZED.format(name=source.name),
            )
        return None
    writer: QueryPlan | None = catalog.queries.get(source.query) if source.query is not None else None
    if writer is None:
        raise refusal(
            query.source.at,
            f"The `{source.name}` table isn't queryable: no query keeps it.",
            MATERIALIZED.format(name=source.name),
        )
    return writer


def _check_items(items: list[Item], library: Library) -> None:
    for item in items:
        _check_columns(item.node, "SELECT")
        called = (*library.aggregates_of(item.node), *library.tables_of(item.node))
        if called:
            raise refusal(
                called[0].at,
                f"Pull queries don't support aggregate and table functions: {called[0].name}",
                "CREATE TABLE ... AS SELECT aggregates, and keeps the result as a table.",
            )


def _check_columns(node: Any, clause: str) -> None:
    wrong = [column for column in columns_in(node) if column.name in NOT_PULLED]
    if wrong:
        raise refusal(
            wrong[0].at,
            f"Pull queries don't support the following columns in {clause} clauses: "
            f"{named([f'`{column.name}`' for column in wrong])}",
            "With EMIT CHANGES at its end it is a push query, which has the place of each row.",
        )


def _column(item: Item, value: Expression, step: Read) -> SourceColumn:
    node = item.node
    is_key = any(node in names for names in step.key_names)
    is_bound = step.window is not None and isinstance(node, x.ColumnNode) and node.name in BOUNDS
    return SourceColumn(item.name, value.type, "KEY" if is_key or is_bound else "VALUE")


def _order_of(ordering: q.Ordering, items: list[Item], names: ClauseScope, library: Library) -> Order:
    """A sort key over the rows of the table: names of SELECT stand for their expressions, numbers for columns."""
    node = ordering.expression
    if isinstance(node, x.IntegerLiteral):
        if not 1 <= node.value <= len(items):
            raise refusal(node.at, f"ORDER BY {node.value}: SELECT has {len(items)} columns")
        node = items[node.value - 1].node
    field_names = {field.name for field in names.fields}
    node = substitute(node, {x.ColumnNode(item.name): item.node for item in items if item.name not in field_names})
    return order_of(replace(ordering, expression=node), names, library)


def sorted_result(
    query: q.Query, catalog: Catalog, library: Library
) -> tuple[TransientAnalysed, tuple[Order, ...], int]:
    """Analyse a query over a stream.

    Args:
        query: The query.
        catalog: Sources and settings.
        library: The functions.

    Returns:
        The query, the expressions that its rows are sorted by, and the number of its columns: rows have further values
        behind them where they are sorted by what SELECT does not have.

    Raises:
        SqlError: It cannot be run.
    """
    bare = replace(query, order_by=(), limit=None, offset=None)
    analysed = TransientAnalysis(bare, "the result", catalog, library).result()
    width = len(analysed.columns)
    own = ClauseScope(analysed.step.fields, "ORDER BY")
    nodes: list[Any] = []
    hidden: list[q.Selected] = []
    for each in query.order_by:
        node = _by_number(each.expression, analysed.step.fields)
        problem = _problem(node, own, library)
        if problem is not None:
            hidden.append(q.Selected(node, HIDDEN.format(len(hidden)), at=node.at))
            node = x.ColumnNode(str(hidden[-1].alias), at=node.at)
            wider = replace(bare, items=(*bare.items, *hidden))
            try:
                analysed = TransientAnalysis(wider, "the result", catalog, library).result()
            except SqlError:
                raise problem from None
        nodes.append(node)
    names = ClauseScope(analysed.step.fields, "ORDER BY")
    order = [
        order_of(replace(each, expression=node), names, library)
        for each, node in zip(query.order_by, nodes, strict=True)
    ]
    return analysed, tuple(order), width


def order_of(ordering: q.Ordering, names: ClauseScope, library: Library) -> Order:
    """Return the sort key of an expression.

    Raises:
        SqlError: It names no column, or its values have no order.
    """
    node = ordering.expression
    key = typed_expression(qualified(node, names), names, library)
    if isinstance(key.type, ArrayType | MapType | StructType):
        raise refusal(node.at, f"ORDER BY {format_expression(node)}: values of {key.type} have no order")
    return Order(key, ordering.descending, ordering.nulls == "FIRST")


def _by_number(node: Any, fields: tuple[RowField, ...]) -> Any:
    """Return the column of SELECT for which a number stands; other expressions stay."""
    if not isinstance(node, x.IntegerLiteral):
        return node
    if not 1 <= node.value <= len(fields):
        raise refusal(node.at, f"ORDER BY {node.value}: SELECT has {len(fields)} columns")
    return x.ColumnNode(fields[node.value - 1].name, at=node.at)


def _problem(node: Any, names: ClauseScope, library: Library) -> SqlError | None:
    """Return what is wrong with an expression over the columns of the result."""
    try:
        typed_expression(qualified(node, names), names, library)
    except SqlError as error:
        return error
    return None
