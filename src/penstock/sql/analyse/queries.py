"""SELECT to a plan: sources, WHERE, table functions, PARTITION BY or GROUP BY, HAVING, and the projection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.sql.analyse.expressions import Library, predicate, typed_expression
from penstock.sql.analyse.fields import ClauseScope, RowField, qualified
from penstock.sql.analyse.formats import check_key_types
from penstock.sql.analyse.groups import Groups, check_states, grouped
from penstock.sql.analyse.inlining import inlined
from penstock.sql.analyse.joins import From, from_clause
from penstock.sql.analyse.plans import Expression, FilterStep, FlattenStep, PlanStep, Project, Read, Rekey, TableCall
from penstock.sql.analyse.reads import derived, read
from penstock.sql.analyse.select import Item, Selecting, keys_of, select_items
from penstock.sql.analyse.statement_errors import refusal
from penstock.sql.catalog import Catalog, DataFormat, SourceColumn
from penstock.sql.catalog.source import BOUNDS
from penstock.sql.evaluate import columns_in, substitute
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import query_nodes as q
from penstock.sql.types import SqlTypeError
from penstock.sql.types.sql_type import is_open

__all__ = ["Analysed", "QueryAnalysis", "analyse_query"]


@dataclass(frozen=True, slots=True)
class Analysed:
    """A query as steps, with the columns of its result in the order of SELECT."""

    step: Project
    columns: tuple[SourceColumn, ...]
    start: From


def analyse_query(query: q.Query, sink: str, catalog: Catalog, library: Library) -> Analysed:
    """Plan a query whose results are written to a sink.

    Raises:
        SqlError: The query cannot be run.
    """
    return QueryAnalysis(query, sink, catalog, library).result()


@dataclass(slots=True)
class QueryAnalysis:
    """The analysis of a query that writes to a topic; transient queries have their own rules for some of its steps."""

    query: q.Query
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

    def _read(self, relation: q.Relation) -> Read:
        if isinstance(relation, q.NamedSource):
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
                self.library.aggregates_of(i.expression) for i in query.items if isinstance(i, q.Selected)
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
            source = self.catalog.sources.get(relation.name) if isinstance(relation, q.NamedSource) else None
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

    def _with_plain_bounds(self, step: PlanStep) -> q.Query:
        """Return the query with `t.WINDOWSTART` written as WINDOWSTART.

        The bounds are those of the query's own windows.
        """
        sources = {field.source for field in step.fields if field.source}
        plain = {x.ColumnNode(name, source): x.ColumnNode(name) for name in BOUNDS for source in sources}
        items = tuple(
            replace(item, expression=substitute(item.expression, plain)) if isinstance(item, q.Selected) else item
            for item in self.query.items
        )
        return replace(self.query, items=items)

    def _check_bounds(self) -> None:
        """Refuse the bounds of windows over a join, unless a source is named."""
        for item in self.query.items:
            called = columns_in(item.expression) if isinstance(item, q.Selected) else ()
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
