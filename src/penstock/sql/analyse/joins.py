"""FROM and JOIN: sources read, and joined pair by pair from the left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.sql.analyse.composite import Composite
from penstock.sql.analyse.expressions import Library, predicate
from penstock.sql.analyse.fields import ClauseScope, qualified
from penstock.sql.analyse.one_join import KINDS, OneJoin
from penstock.sql.analyse.plans import (
    Derived,
    FilterStep,
    PlanStep,
    Read,
)
from penstock.sql.analyse.statement_errors import refusal
from penstock.sql.catalog import Catalog
from penstock.sql.evaluate import columns_in
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import query_nodes as q

__all__ = ["From", "JoinCondition", "from_clause", "join_condition"]

MOST_EQUALITIES = 10


@dataclass(frozen=True, slots=True)
class From:
    """The rows that a query starts with.

    Attributes:
        reads: All sources, in order.
    """

    step: PlanStep
    reads: tuple[Read, ...]


def from_clause(query: q.Query, catalog: Catalog, library: Library, read: Callable[[q.Relation], Read]) -> From:
    """Read the sources of a query, and join them.

    Args:
        query: The query.
        catalog: Sources and settings.
        library: The functions.
        read: Makes the step that reads a source or a subquery.

    Raises:
        SqlError: A source does not exist, or a join cannot be done.
    """
    first = read(query.source)
    reads = [first]
    step: PlanStep = first
    for number, join in enumerate(query.joins):
        right = read(join.right)
        _check_new(right, reads, join)
        joined = _Joined(catalog, library, step, right, join)
        step = joined.step(query.joins, number, "L_" * (len(query.joins) - number - 1))
        reads.append(right)
    return From(
        step, tuple(source for each in reads for source in (each.reads if isinstance(each, Derived) else (each,)))
    )


def _check_new(right: Read, reads: list[Read], join: q.JoinClause) -> None:
    for earlier in reads:
        if earlier.source.name == right.source.name:
            if len(reads) == 1:
                raise refusal(
                    join.right.at,
                    f"'{earlier.source.name}' is joined with itself; self joins cannot be run.",
                )
            raise refusal(
                join.right.at,
                f"The source '{right.source.name}' is more than once in these n-way joins",
            )
        if earlier.alias == right.alias:
            raise refusal(join.right.at, f"Two sources have the alias {right.alias}")


@dataclass(frozen=True, slots=True)
class _Joined:
    """One join: what stands left of it, the source to its right, and the clause with all its conditions."""

    catalog: Catalog
    library: Library
    left: PlanStep
    right: Read
    join: q.JoinClause

    def step(self, joins: tuple[q.JoinClause, ...], number: int, prefix: str) -> PlanStep:
        """Return the step of the join, and of the conditions that go beyond one equality."""
        names = ClauseScope((*self.left.fields, *self.right.fields), "JOIN ON")
        condition = join_condition(self.join.condition, names, self.right.alias)
        if len(condition.equalities) == 1 and condition.rest is None:
            return self._by(self.join).step(joins, number, prefix)
        if condition.rest is not None and self.join.kind != "INNER":
            raise refusal(
                condition.rest.at,
                f"{KINDS[self.join.kind]} takes only comparisons by =; further conditions are for inner joins.",
                "WHERE takes conditions on the joined rows.",
            )
        keyed_by_several = self.right.is_table and len(self.right.key) > 1
        if self.join.kind == "INNER" and not keyed_by_several:
            return self._filtered(condition, joins, number, prefix)
        if len(condition.equalities) == 1:
            return self._by(self.join).step(joins, number, prefix)
        pairs = [one.pair() for one in self._by_each(condition)]
        step = Composite(self.left, self.right, self.join, tuple(pairs)).step(prefix)
        return step if condition.rest is None else self._kept(step, condition.rest)

    def _by(self, join: q.JoinClause) -> OneJoin:
        return OneJoin(self.catalog, self.library, self.left, self.right, join)

    def _by_each(self, condition: JoinCondition) -> list[OneJoin]:
        return [self._by(replace(self.join, condition=each)) for each in condition.equalities]

    def _filtered(
        self, condition: JoinCondition, joins: tuple[q.JoinClause, ...], number: int, prefix: str
    ) -> PlanStep:
        """An inner join by one of the equalities, whose rows must meet all else; it is the one that moves least."""
        best = max(self._by_each(condition), key=lambda one: one.fitness())
        step = best.step(joins, number, prefix)
        rest = [each for each in condition.equalities if each is not best.join.condition]
        for each in (*rest, *(() if condition.rest is None else (condition.rest,))):
            step = self._kept(step, each)
        return step

    def _kept(self, step: PlanStep, condition: Any) -> PlanStep:
        names = ClauseScope(step.fields, "JOIN ON")
        typed_condition = predicate(qualified(condition, names), names, self.library)
        return FilterStep(
            fields=step.fields,
            key=step.key,
            key_format=step.key_format,
            is_table=step.is_table,
            window=step.window,
            key_names=step.key_names,
            key_word=step.key_word,
            above=step,
            predicate=typed_condition,
        )


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """ON in parts.

    Attributes:
        equalities: Comparisons by ``=`` of one source each.
        rest: Further conditions, as one; None without any.
    """

    equalities: tuple[x.ComparisonNode, ...]
    rest: Any = None


def join_condition(condition: Any, names: ClauseScope, right: str) -> JoinCondition:
    """Take the condition of a join apart. A single comparison stays as it is, whatever it compares.

    Args:
        condition: The condition.
        names: The columns of both sides.
        right: The alias of the source to the right.

    Raises:
        SqlError: No part of it compares the two sides by ``=``.
    """
    parts = _conjuncts(condition)
    if len(parts) == 1:
        return JoinCondition((condition,))
    equal = [part for part in parts if _joins(part, names, right)]
    rest = [part for part in parts if part not in equal]
    if not equal:
        raise refusal(
            condition.at,
            "Unsupported join expression: none of its conditions compares a column of each side by =.",
        )
    if len(equal) > MOST_EQUALITIES:
        raise refusal(condition.at, f"A join compares at most {MOST_EQUALITIES} pairs of columns.")
    left_over = None if not rest else rest[0] if len(rest) == 1 else x.LogicalNode("AND", tuple(rest), at=rest[0].at)
    return JoinCondition(tuple(equal), left_over)


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, x.LogicalNode) and condition.operator == "AND":
        return [part for operand in condition.operands for part in _conjuncts(operand)]
    return [condition]


def _joins(part: Any, names: ClauseScope, right: str) -> bool:
    """Return whether a condition compares the joined source with one other by ``=``."""
    if not isinstance(part, x.ComparisonNode) or part.operator != "=":
        return False
    owners = [{column.source for column in columns_in(qualified(side, names))} for side in (part.left, part.right)]
    return all(len(owner) == 1 for owner in owners) and owners[0] != owners[1] and {right} in owners
