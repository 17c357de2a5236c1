"""The condition of a join in parts: the equalities that join rows, and conditions that joined rows must meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.sql.analyse.fields import ClauseScope, qualified
from penstock.sql.analyse.statement_errors import refusal
from penstock.sql.evaluate import columns_in
from penstock.sql.parse import expression_nodes as x

__all__ = ["JoinCondition", "join_condition"]

MOST_EQUALITIES = 10


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """ON in parts.

    Attributes:
        equalities: Comparisons by ``=`` of one source each.
        rest: Further conditions, as one; None without any.
    """

    equalities: tuple[x.Comparison, ...]
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
    left_over = None if not rest else rest[0] if len(rest) == 1 else x.Logical("AND", tuple(rest), at=rest[0].at)
    return JoinCondition(tuple(equal), left_over)


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, x.Logical) and condition.operator == "AND":
        return [part for operand in condition.operands for part in _conjuncts(operand)]
    return [condition]


def _joins(part: Any, names: ClauseScope, right: str) -> bool:
    """Whether a condition compares the joined source with one other by ``=``."""
    if not isinstance(part, x.Comparison) or part.operator != "=":
        return False
    owners = [{column.source for column in columns_in(qualified(side, names))} for side in (part.left, part.right)]
    return all(len(owner) == 1 for owner in owners) and owners[0] != owners[1] and {right} in owners
