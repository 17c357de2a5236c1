"""Queries as they are written: what SELECT takes, relations, joins, windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from penstock.sql.parse.expression_nodes import Expression
from penstock.sql.parse.nodes import Node

__all__ = [
    "AllColumns",
    "AllFields",
    "Duration",
    "GroupingClause",
    "JoinClause",
    "JoinKind",
    "NamedSource",
    "Ordering",
    "Query",
    "Relation",
    "SelectItem",
    "Selected",
    "Subquery",
    "UNITS",
    "UNIT_WORDS",
    "Unit",
    "WindowClause",
    "WindowKind",
    "With",
    "Within",
]

Unit = Literal["DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND"]
UNITS: tuple[Unit, ...] = get_args(Unit)
# The words that stand for units of time, in durations and as the first arguments of some functions.
UNIT_WORDS = frozenset(f"{unit}{plural}" for unit in UNITS for plural in ("", "S"))
JoinKind = Literal["INNER", "LEFT", "RIGHT", "FULL"]
WindowKind = Literal["TUMBLING", "HOPPING", "SESSION", "SLIDING"]


@dataclass(frozen=True, slots=True)
class Duration(Node):
    """``5 MINUTES``."""

    amount: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class Selected(Node):
    """An expression of SELECT, with its name if one is given."""

    expression: Expression
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class AllColumns(Node):
    """``*`` or ``source.*``."""

    source: str | None = None


@dataclass(frozen=True, slots=True)
class AllFields(Node):
    """``base->*``: each field of a struct as a column."""

    base: Expression


SelectItem = Selected | AllColumns | AllFields


@dataclass(frozen=True, slots=True)
class NamedSource(Node):
    """A stream, a table, or a query of WITH, by its name."""

    name: str
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Subquery(Node):
    """``(SELECT ...) AS alias``; an extension of ksqlDB's language."""

    query: Query
    alias: str


Relation = NamedSource | Subquery


@dataclass(frozen=True, slots=True)
class Within(Node):
    """``WITHIN (before, after) GRACE PERIOD grace``; with one duration, both are the same."""

    before: Duration
    after: Duration
    grace: Duration | None = None


@dataclass(frozen=True, slots=True)
class JoinClause(Node):
    """One join, with all that is left of it."""

    kind: JoinKind
    right: Relation
    condition: Expression
    within: Within | None = None


@dataclass(frozen=True, slots=True)
class WindowClause(Node):
    """``WINDOW kind (...)``.

    Attributes:
        kind: SLIDING is an extension of ksqlDB's language.
        size: Of a session, the gap of inactivity; of a sliding window, the time difference.
        advance: Of a hopping window.
        retention: For how long the windows can be queried.
        grace: For how long late records are accepted.
    """

    kind: WindowKind
    size: Duration
    advance: Duration | None = None
    retention: Duration | None = None
    grace: Duration | None = None


@dataclass(frozen=True, slots=True)
class GroupingClause(Node):
    """The expressions of GROUP BY or PARTITION BY."""

    expressions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Ordering(Node):
    """An expression of ORDER BY; an extension of ksqlDB's language.

    Attributes:
        nulls: FIRST or LAST, if that is said.
    """

    expression: Expression
    descending: bool = False
    nulls: Literal["FIRST", "LAST"] | None = None


@dataclass(frozen=True, slots=True)
class With(Node):
    """``name AS (SELECT ...)``; an extension of ksqlDB's language."""

    name: str
    query: Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Node):
    """``SELECT`` with its clauses. By itself it is a statement: a push query if it has EMIT, else a pull query.

    Attributes:
        emit: CHANGES or FINAL, if that is said.
        idle: For how long no record must come until EMIT FINAL closes all windows; an extension of ksqlDB's language.
        offset: Results that are left out before the first; an extension of ksqlDB's language.
    """

    items: tuple[SelectItem, ...]
    source: Relation
    joins: tuple[JoinClause, ...] = ()
    window: WindowClause | None = None
    where: Expression | None = None
    group_by: GroupingClause | None = None
    partition_by: GroupingClause | None = None
    having: Expression | None = None
    order_by: tuple[Ordering, ...] = ()
    emit: Literal["CHANGES", "FINAL"] | None = None
    idle: Duration | None = None
    limit: int | None = None
    offset: int | None = None
    ctes: tuple[With, ...] = ()
