"""SELECT by itself: a query whose rows go to its caller, so that no key is needed and reserved names are no matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.sql.analyse.expressions import typed_expression
from penstock.sql.analyse.fields import ClauseScope, RowField
from penstock.sql.analyse.joins import From
from penstock.sql.analyse.plans import Expression, PlanStep, Project
from penstock.sql.analyse.queries import Analysed, QueryAnalysis
from penstock.sql.analyse.select import Item, Selecting
from penstock.sql.analyse.statement_errors import refusal
from penstock.sql.catalog import BOUNDS, SourceColumn
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.tokens import NOWHERE

__all__ = ["Origin", "TransientAnalysed", "TransientAnalysis"]

Origin = int | str | None
"""The part of a record's key that a column is: the place of a key column, the name of a window bound, or neither."""


@dataclass(frozen=True, slots=True)
class TransientAnalysed(Analysed):
    """A transient query; all its columns are values of its last step.

    Attributes:
        origins: For each column its part of the key, which a tombstone has too.
    """

    origins: tuple[Origin, ...] = ()


@dataclass(slots=True)
class TransientAnalysis(QueryAnalysis):
    """The analysis of a query with EMIT, or of one over a stream that ends where the stream now ends."""

    def result(self) -> TransientAnalysed:
        """Analyse the query.

        Raises:
            SqlError: The query cannot be run.
        """
        if self.query.group_by is None and self._aggregates():
            # All rows are one group.
            at = self.query.at
            self.query = replace(self.query, group_by=s.GroupingClause((x.IntegerLiteral(1, at=at),), at=at))
        analysed = QueryAnalysis.result(self)
        assert isinstance(analysed, TransientAnalysed), "made by _projected below"  # noqa: S101
        return analysed

    def _aggregates(self) -> bool:
        items = [item.expression for item in self.query.items if isinstance(item, s.Selected)]
        return any(self.library.aggregates_of(item) for item in items)

    def _check_clauses(self) -> None:
        query = self.query
        if query.order_by:
            raise refusal(query.order_by[0].at, "ORDER BY is not supported in queries that run on (EMIT CHANGES).")
        if query.offset is not None:
            raise refusal(query.at, "OFFSET is not supported in queries that run on (EMIT CHANGES).")
        self.query = replace(query, limit=None)
        QueryAnalysis._check_clauses(self)  # noqa: SLF001 - of the base: super() is not there with slots
        self.query = query

    def _check_sources(self) -> None:
        pass  # windowed tables can be read too

    def _selecting(self) -> Selecting:
        return Selecting(frozenset(), bounds=True)

    def _projected(self, step: PlanStep, items: list[Item], start: From, nodes: list[Any]) -> TransientAnalysed:
        names = ClauseScope(step.fields, "SELECT")
        values = tuple(self._value(item, node, names) for item, node in zip(items, nodes, strict=True))
        pairs = list(zip(items, values, strict=True))
        fields = tuple(RowField(item.name, value.type) for item, value in pairs)
        project = Project(
            fields=fields,
            key=step.key,
            key_format=step.key_format,
            is_table=step.is_table,
            window=step.window,
            key_names=step.key_names,
            key_word=step.key_word,
            above=step,
            values=values,
        )
        columns = tuple(SourceColumn(item.name, value.type) for item, value in pairs)
        origins = tuple(_origin(item.node, step.key_names, windowed=step.window is not None) for item in items)
        return TransientAnalysed(project, columns, start, origins)

    def _value(self, item: Item, node: Any, names: ClauseScope) -> Expression:
        return typed_expression(replace(node, at=item.at) if node.at == NOWHERE else node, names, self.library)


def _origin(node: Any, key_names: Sequence[Sequence[Any]], *, windowed: bool) -> Origin:
    if windowed and isinstance(node, x.ColumnNode) and node.name in BOUNDS:
        return node.name
    return next((index for index, names in enumerate(key_names) if node in names), None)
