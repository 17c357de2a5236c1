"""WITH written out: each name of it becomes the subquery that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.sql.analyse.statement_errors import refusal
from penstock.sql.parse import query_nodes as q

__all__ = ["MOST_SUBQUERIES", "inlined"]

MOST_SUBQUERIES = 50  # of one query, those of WITH counted as often as they are used


def inlined(query: q.Query) -> q.Query:
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

    def query(self, query: q.Query, queries: Mapping[str, q.Query]) -> q.Query:
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

    def _relation(self, relation: q.Relation, queries: Mapping[str, q.Query]) -> q.Relation:
        if isinstance(relation, q.Subquery):
            self._counted(relation)
            return replace(relation, query=self.query(relation.query, queries))
        named_query = queries.get(relation.name)
        if named_query is None:
            return relation
        self._counted(relation)
        return q.Subquery(named_query, relation.alias or relation.name, at=relation.at)

    def _counted(self, relation: q.Relation) -> None:
        self._count += 1
        if self._count > MOST_SUBQUERIES:
            raise refusal(relation.at, f"The query has more than {MOST_SUBQUERIES} subqueries, those of WITH counted")
