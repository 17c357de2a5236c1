"""Frozen plans of transient queries, their results, and ORDER BY, LIMIT and OFFSET over the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar

from penstock.sql.analyse.plans import Expression, PlanStep, QueryPlan
from penstock.sql.analyse.transient import Origin
from penstock.sql.catalog import Source, SourceColumn
from penstock.sql.evaluate import compile_rows
from penstock.sql.functions.evaluation_errors import EvaluationErrors

__all__ = [
    "KeyLookup",
    "Lookup",
    "Order",
    "PullLimits",
    "PullPlan",
    "PushPlan",
    "RangeLookup",
    "ResultRow",
    "Results",
    "Scan",
    "TransientPlan",
    "limited",
    "ordered",
]

LIMIT_REACHED = "Limit Reached"
COMPLETED = "Query Completed"


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """The rows of certain keys.

    Attributes:
        keys: For each key its columns, as the key's types have them.
    """

    keys: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class RangeLookup:
    """The rows of the keys from one to another, both included; None is open."""

    lower: tuple[Any, ...] | None
    upper: tuple[Any, ...] | None


@dataclass(frozen=True, slots=True)
class Scan:
    """All rows."""


Lookup = KeyLookup | RangeLookup | Scan


@dataclass(frozen=True, slots=True)
class Order:
    """An expression of ORDER BY; nulls come last unless it says otherwise, in either direction."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class PullLimits:
    """LIMIT and OFFSET."""

    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PullPlan:
    """A query of the rows that a table has now.

    Attributes:
        source: The table.
        writer: The persistent query that keeps it; None for a source table, which is read from its topic.
        columns: The columns of the result.
        lookup: The rows of the table that can pass.
        starts: The first and the last start of the windows that can pass, in milliseconds.
        where: The condition that each row must meet.
        values: The columns' expressions over a row of the table.
        text: The statement.
    """

    source: Source
    writer: QueryPlan | None
    columns: tuple[SourceColumn, ...]
    lookup: Lookup
    starts: tuple[int, int]
    where: Expression | None
    values: tuple[Expression, ...]
    order: tuple[Order, ...] = ()
    limits: PullLimits = PullLimits()
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushPlan:
    """A query whose rows come as its sources change, or, over a stream without EMIT, until the stream's present end.

    Attributes:
        id: Its id, such as ``transient_INPUT_4``.
        root: Its last step, whose values are the columns of the result.
        columns: The columns of the result.
        origins: For each column the part of the key that it is, which tombstones have too.
        reads: The sources that it reads.
        until: When it ends by itself: never, or where its sources end when it starts.
        order: Of a query that ends.
        text: The statement.
    """

    id: str
    root: PlanStep
    columns: tuple[SourceColumn, ...]
    origins: tuple[Origin, ...]
    reads: tuple[Source, ...]
    until: Literal["never", "now"] = "never"
    order: tuple[Order, ...] = ()
    limits: PullLimits = PullLimits()
    settings: tuple[tuple[str, str], ...] = ()
    text: str = ""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it reads."""
        return tuple(dict.fromkeys(source.topic for source in self.reads))


TransientPlan = PullPlan | PushPlan


class ResultRow(NamedTuple):
    """A row of a result; of a deleted row of a table only what its key has, the rest null."""

    values: tuple[Any, ...]
    tombstone: bool = False


@dataclass(slots=True)
class Results:
    """The result of a query: its columns, and its rows as they come.

    Attributes:
        columns: The columns; those of a table's key have the role KEY.
        rows: The rows, read once.
        query_id: The id of the query.
        ended: Why it ended, when it has: ``Limit Reached`` or ``Query Completed``; nothing for pull queries of tables.
    """

    columns: tuple[SourceColumn, ...]
    rows: Iterator[ResultRow]
    query_id: str
    ended: str = ""

    def schema(self) -> str:
        """Return the columns as text, as the header of a result has them."""
        return ", ".join(str(column) for column in self.columns)


Item = TypeVar("Item")


def ordered(
    items: Iterable[Item], order: tuple[Order, ...], row: Callable[[Item], tuple[Any, ...]], errors: EvaluationErrors
) -> Iterable[Item]:
    """Sort items by expressions over their rows; equal ones stay in their order.

    Args:
        items: The items.
        order: The expressions; without any the items stay as they are.
        row: The row of an item.
        errors: Counts the errors of the expressions.
    """
    if not order:
        return items
    keys = compile_rows([each.expression.typed for each in order], errors)
    rows = [(keys(row(item)), item) for item in items]
    for index, each in reversed(list(enumerate(order))):
        present = [pair for pair in rows if pair[0][index] is not None]
        null = [pair for pair in rows if pair[0][index] is None]
        present.sort(key=lambda pair: _sort_key(pair[0][index]), reverse=each.descending)
        rows = [*null, *present] if each.nulls_first else [*present, *null]
    return [item for _, item in rows]


def _sort_key(value: Any) -> Any:
    """Return a value as one that sorts: NaN above all numbers, as in Java."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value


def limited(items: Iterable[Item], limits: PullLimits) -> Iterator[Item]:
    """Return the items behind OFFSET, as many as LIMIT says.

    >>> list(limited("abcde", PullLimits(2, 1)))
    ['b', 'c']
    """
    end = None if limits.limit is None else limits.offset + limits.limit
    return islice(items, limits.offset, end)
