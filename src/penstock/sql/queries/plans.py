"""Frozen plans of transient queries, and their results: a header and rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from penstock.sql.analyse.plans import Expression, PlanStep, QueryPlan
from penstock.sql.analyse.transient import Origin
from penstock.sql.catalog import Source, SourceColumn

__all__ = [
    "KeyLookup",
    "PullLimits",
    "Lookup",
    "Order",
    "PullPlan",
    "PushPlan",
    "RangeLookup",
    "ResultRow",
    "Results",
    "Scan",
    "TransientPlan",
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
