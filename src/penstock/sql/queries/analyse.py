"""SELECT by itself to a plan: a push query, or a pull query with WHERE as a lookup or a scan."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from typing import Any

from penstock.errors import SqlError
from penstock.sql.analyse.expressions import Library, predicate, typed_expression
from penstock.sql.analyse.fields import ClauseScope, RowField, qualified
from penstock.sql.analyse.plans import Expression, QueryPlan, Read
from penstock.sql.analyse.queries import inlined
from penstock.sql.analyse.reads import read
from penstock.sql.analyse.select import Item, Selecting, select_items
from penstock.sql.analyse.statement_errors import named, refusal
from penstock.sql.analyse.statements import check_enabled, library_of
from penstock.sql.analyse.transient import TransientAnalysed, TransientAnalysis
from penstock.sql.catalog import BOUNDS, Catalog, Source, SourceColumn
from penstock.sql.evaluate import columns_in, compile_rows, substitute
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.formatting import format_expression
from penstock.sql.parse.tokens import TextPosition
from penstock.sql.queries.host import FOREVER
from penstock.sql.queries.plans import (
    KeyLookup,
    Lookup,
    Order,
    PullLimits,
    PullPlan,
    PushPlan,
    RangeLookup,
    Scan,
    TransientPlan,
)
from penstock.sql.types import BIGINT, DOUBLE, INTEGER, STRING, ArrayType, DecimalType, MapType, SqlType, StructType
from penstock.sql.types.sql_type import is_numeric

__all__ = ["Conditions", "plan_query"]

# WHERE as a lookup

MAX_DISJUNCTS = 64  # of AND over OR; more conditions are a scan
MAX_KEYS = 10_000
SCAN = "ksql.query.pull.table.scan.enabled"
RANGE = "ksql.query.pull.range.scan.enabled"
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Conditions:
    """A condition as alternatives, of which each is a list of conditions that must all hold.

    Attributes:
        alternatives: Nothing if there is no condition, or if it has too many.
        present: Whether there is a condition.
    """

    alternatives: tuple[tuple[Any, ...], ...] = ()
    present: bool = False

    @classmethod
    def of(cls, node: Any) -> Conditions:
        """Return the alternatives of a condition with qualified columns."""
        alternatives = _alternatives(node)
        return cls(() if alternatives is None else tuple(alternatives), present=True)


def _alternatives(node: Any) -> list[tuple[Any, ...]] | None:
    if isinstance(node, x.BetweenNode) and not node.negated:
        low = x.ComparisonNode(">=", node.operand, node.low, at=node.at)
        return [(low, x.ComparisonNode("<=", node.operand, node.high, at=node.at))]
    if not isinstance(node, x.LogicalNode):
        return [(node,)]
    parts = [_alternatives(operand) for operand in node.operands]
    if any(part is None for part in parts):
        return None
    disjunctions = [part for part in parts if part is not None]
    if node.operator == "OR":
        alternatives = [each for part in disjunctions for each in part]
    else:
        count = 1
        for part in disjunctions:
            count *= len(part)
        if count > MAX_DISJUNCTS:
            return None
        alternatives = [tuple(node for each in chosen for node in each) for chosen in product(*disjunctions)]
    return alternatives if len(alternatives) <= MAX_DISJUNCTS else None


@dataclass(frozen=True, slots=True)
class _Compared:
    """A condition that compares a column directly with constants."""

    column: x.ColumnNode
    operator: str
    constants: tuple[Any, ...]
    node: Any


def _compared(node: Any) -> _Compared | None:
    if isinstance(node, x.InNode) and not node.negated and isinstance(node.operand, x.ColumnNode):
        if any(columns_in(item) for item in node.items):
            return None
        return _Compared(node.operand, "=", node.items, node)
    if isinstance(node, x.ComparisonNode) and node.operator in FLIPPED:
        for side, other, operator in (
            (node.left, node.right, node.operator),
            (node.right, node.left, FLIPPED[node.operator]),
        ):
            if isinstance(side, x.ColumnNode) and not columns_in(other):
                return _Compared(side, operator, (other,), node)
    return None


class _Reader:
    """The conditions of one alternative that say something about the key."""

    def __init__(self, step: Read, library: Library) -> None:
        self.step = step
        self.library = library
        self.columns = [names[0] for names in step.key_names]

    def index_of(self, column: x.ColumnNode) -> int | None:
        """Return the index of a column in the key; None if it is not of the key."""
        return self.columns.index(column) if column in self.columns else None

    def of_key(self, alternative: Sequence[Any]) -> list[_Compared]:
        """Return the comparisons of key columns with constants."""
        comparisons = [compared for node in alternative if (compared := _compared(node)) is not None]
        return [compared for compared in comparisons if self.index_of(compared.column) is not None]

    def keys(self, alternative: Sequence[Any]) -> Iterator[tuple[Any, ...]] | None:
        """Return the keys that can meet the conditions; None if they leave a column of the key open."""
        values_by_column: list[list[Any] | None] = [None] * len(self.columns)
        for compared in self.of_key(alternative):
            index = self.index_of(compared.column)
            if compared.operator != "=" or index is None:
                continue
            values = self.values(compared, self.step.key[index])
            if values is None:
                return None
            earlier = values_by_column[index]
            values_by_column[index] = values if earlier is None else [value for value in earlier if value in values]
        if any(values is None for values in values_by_column) or not values_by_column:
            return None
        return product(*[values for values in values_by_column if values is not None])

    def values(self, compared: _Compared, kind: SqlType) -> list[Any] | None:
        """Return the constants as values of a type; those that it has not are left out. None: that cannot be said."""
        key_values = []
        for node in compared.constants:
            expression = typed_expression(node, ClauseScope((), "WHERE"), self.library)
            if expression.type == STRING and is_numeric(kind):
                column = f"{compared.column.name} {kind} KEY"
                raise refusal(
                    node.at, f"{format_expression(node)} can not be converted to the type of the key column: {column}"
                )
            value = compile_rows([expression.typed], EvaluationErrors())(())[0]
            if value is None:
                raise refusal(
                    node.at,
                    "Primary key columns can not be NULL: "
                    f"({compared.column.name} {compared.operator} {format_expression(node)})",
                )
            converted = _converted(value, expression.type, kind)
            if converted is _UNKNOWN:
                return None
            if converted is not None:
                key_values.append(converted)
        return key_values


_UNKNOWN = object()


def _converted(value: Any, written: SqlType, kind: SqlType) -> Any:
    """Return a constant as a value of a key's type; None if the type has no equal value."""
    if written == kind:
        return value
    if not (is_numeric(written) and is_numeric(kind)):
        return _UNKNOWN
    if kind in (INTEGER, BIGINT):
        if (isinstance(value, float) and not math.isfinite(value)) or value != int(value):
            return None
        low, high = (-(2**31), 2**31) if kind == INTEGER else (-(2**63), 2**63)
        return int(value) if low <= int(value) < high else None
    if kind == DOUBLE:
        return float(value)
    if isinstance(kind, DecimalType) and not isinstance(value, float):
        exact = Decimal(value)
        scaled = exact.quantize(Decimal(1).scaleb(-kind.scale))
        return scaled if scaled == exact else None
    return _UNKNOWN


def lookup_of(conditions: Conditions, step: Read, catalog: Catalog, library: Library, at: TextPosition) -> Lookup:
    """Return the rows of a table that must be read for a condition.

    Raises:
        SqlError: All rows would have to be read, and the settings do not allow it; or a constant is not a key.
    """
    reader = _Reader(step, library)
    if not catalog.flag(SCAN, otherwise=True):
        _check_each_once(conditions, reader)
    keys = _keys(conditions, reader, at)
    if keys is not None:
        return KeyLookup(tuple(keys))
    may_range = catalog.flag(RANGE, otherwise=True)
    ranged = _range(conditions, reader) if may_range else None
    if not catalog.flag(SCAN, otherwise=True):
        _check_no_scan(conditions, reader, ranged, at)
    return ranged or Scan()


def _keys(conditions: Conditions, reader: _Reader, at: TextPosition) -> Collection[tuple[Any, ...]] | None:
    """Return the keys that can meet one of the alternatives, each once; None if one of them leaves the key open."""
    keys: dict[str, tuple[Any, ...]] = {}
    for alternative in conditions.alternatives:
        more = reader.keys(alternative)
        if more is None:
            return None
        for key in more:
            keys[repr(key)] = key
            if len(keys) > MAX_KEYS:
                raise refusal(at, f"A pull query looks up at most {MAX_KEYS:,} keys at once.")
    return keys.values() if conditions.alternatives else None


def _range(conditions: Conditions, reader: _Reader) -> RangeLookup | None:
    """Return the range of keys of a text column, whose bytes are in the order of the texts."""
    step = reader.step
    if len(conditions.alternatives) != 1 or step.key != (STRING,) or step.key_format.name != "KAFKA" or step.window:
        return None
    lower: str | None = None
    upper: str | None = None
    for compared in reader.of_key(conditions.alternatives[0]):
        values = reader.values(compared, STRING)
        if compared.operator == "=" or not values:
            return None
        value = values[0]
        if compared.operator in (">", ">="):
            lower = value if lower is None else max(lower, value)
        else:
            upper = value if upper is None else min(upper, value)
    if lower is None and upper is None:
        return None
    return RangeLookup(None if lower is None else (lower,), None if upper is None else (upper,))


def _check_each_once(conditions: Conditions, reader: _Reader) -> None:
    """Refuse two comparisons of a key column, of which one would have to be checked on all rows."""
    for alternative in conditions.alternatives:
        compared = [each.column for each in reader.of_key(alternative)]
        if len(set(compared)) < len(compared):
            raise refusal(
                alternative[0].at,
                "A comparison condition on the key column cannot be combined with other comparisons such as an IN "
                f"predicate: {_text(alternative)}",
                f"SET '{SCAN}'='true'; allows it.",
            )


def _check_no_scan(conditions: Conditions, reader: _Reader, ranged: RangeLookup | None, at: TextPosition) -> None:
    hint = f"SET '{SCAN}'='true'; allows queries that read all rows of a table."
    needed = "Query requires table scan to be enabled"
    if not conditions.alternatives:
        raise refusal(at, f"{needed}: it has no WHERE clause that names keys.", hint)
    for alternative in conditions.alternatives:
        where = alternative[0].at
        of_key = reader.of_key(alternative)
        if not of_key:
            raise _without_key(alternative, reader, hint)
        if len({compared.column for compared in of_key}) < len(reader.columns):
            raise refusal(where, "Multi-column sources must specify every key in the WHERE clause.", hint)
        if any(compared.operator != "=" for compared in of_key) and ranged is None:
            raise refusal(where, f"{needed}: {_text(alternative)} is a range of keys.", hint)


def _without_key(alternative: Sequence[Any], reader: _Reader, hint: str) -> SqlError:
    for node in alternative:
        if not any(reader.index_of(column) is not None for column in columns_in(node)):
            continue
        sides = (node.left, node.right) if isinstance(node, x.ComparisonNode) else ()
        operand = node.operand if isinstance(node, x.InNode) else None
        if any(isinstance(side, x.ColumnNode) and reader.index_of(side) is not None for side in (*sides, operand)):
            reason = "A comparison must be between a key column and a resolvable expression."
        else:
            reason = "A comparison must directly reference a key column."
        return refusal(node.at, f"{reason} This is {format_expression(node)}.", hint)
    return refusal(alternative[0].at, f"WHERE clause missing key column for disjunct: ({_text(alternative)})", hint)


def _text(alternative: Sequence[Any]) -> str:
    return " AND ".join(format_expression(node) for node in alternative)


def window_starts(conditions: Conditions, step: Read, library: Library) -> tuple[int, int]:
    """Return the first and the last start, in milliseconds, of the windows that can meet a condition."""
    low, high = 0, FOREVER
    if step.window is None or len(conditions.alternatives) != 1:
        return low, high
    for node in conditions.alternatives[0]:
        compared = _compared(node)
        if compared is None or compared.column.name not in BOUNDS or len(compared.constants) != 1:
            continue
        size = 0
        if compared.column.name == "WINDOWEND":
            if step.window.size_ms is None:
                continue
            size = step.window.size_ms
        expression = typed_expression(compared.constants[0], ClauseScope((), "WHERE"), library)
        if expression.type not in (INTEGER, BIGINT):
            continue  # a text: the condition itself converts it
        value = compile_rows([expression.typed], EvaluationErrors())(())[0]
        if value is None:
            continue
        start = int(value) - size
        if compared.operator in (">", ">=", "="):
            low = max(low, start + (compared.operator == ">"))
        if compared.operator in ("<", "<=", "="):
            high = min(high, start - (compared.operator == "<"))
    return low, high


# The plan

PULL = "ksql.pull.queries.enable"
PULL_LIMIT = "ksql.query.pull.limit.clause.enabled"
SOURCE_TABLES = "ksql.source.table.materialization.enabled"
PULL_STREAM = "ksql.query.pull.stream.enabled"
NOT_PULLED = ("ROWPARTITION", "ROWOFFSET")
MATERIALIZED = "CREATE TABLE QUERYABLE_{name} AS SELECT * FROM {name} makes a table that is queryable."
HIDDEN = "KSQL_ORDER_{}"


def plan_query(query: s.Query, catalog: Catalog, text: str = "") -> TransientPlan:
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
    if isinstance(query.source, s.Subquery):
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


def _pushed(query: s.Query, catalog: Catalog, text: str) -> PushPlan:
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


def _prefix(query: s.Query, reads: tuple[Source, ...], catalog: Catalog) -> str:
    """Return the beginning of a query's id.

    KsqlDB has one of its own for queries that only watch what another one writes.
    """
    latest = catalog.setting("auto.offset.reset").lower() == "latest"
    watches = latest and len(reads) == 1 and reads[0].query is not None and query.group_by is None
    return "SCALABLE_PUSH_QUERY" if watches else "transient"


def _check_pull(query: s.Query) -> None:
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


def _check_enabled(query: s.Query, catalog: Catalog) -> None:
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


def _pulled_stream(query: s.Query, catalog: Catalog, text: str) -> PushPlan:
    if not catalog.flag(PULL_STREAM, otherwise=True):
        raise refusal(
            query.at,
            f"Pull queries on streams are disabled, as {PULL_STREAM} is false.",
            "With EMIT CHANGES at its end it is a push query.",
        )
    library = library_of(catalog)
    for item in query.items:
        if not isinstance(item, s.Selected):
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


def _limits(query: s.Query) -> PullLimits:
    if query.limit is not None and query.limit < 0:
        raise refusal(query.at, "Pull queries don't support negative integers in the LIMIT clause.")
    return PullLimits(query.limit, query.offset or 0)


def _pulled_table(query: s.Query, catalog: Catalog, text: str) -> PullPlan:
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


def _writer(source: Source, query: s.Query, catalog: Catalog) -> QueryPlan | None:
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


def _order_of(ordering: s.Ordering, items: list[Item], names: ClauseScope, library: Library) -> Order:
    """Return a sort key over the table's rows: names of SELECT stand for their expressions, numbers for columns."""
    node = ordering.expression
    if isinstance(node, x.IntegerLiteral):
        if not 1 <= node.value <= len(items):
            raise refusal(node.at, f"ORDER BY {node.value}: SELECT has {len(items)} columns")
        node = items[node.value - 1].node
    field_names = {field.name for field in names.fields}
    node = substitute(node, {x.ColumnNode(item.name): item.node for item in items if item.name not in field_names})
    return order_of(replace(ordering, expression=node), names, library)


def sorted_result(
    query: s.Query, catalog: Catalog, library: Library
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
    hidden: list[s.Selected] = []
    for each in query.order_by:
        node = _by_number(each.expression, analysed.step.fields)
        problem = _problem(node, own, library)
        if problem is not None:
            hidden.append(s.Selected(node, HIDDEN.format(len(hidden)), at=node.at))
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


def order_of(ordering: s.Ordering, names: ClauseScope, library: Library) -> Order:
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
