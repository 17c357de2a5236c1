"""The grammar of queries, of durations, windows and the time limits of joins."""

from __future__ import annotations

from typing import Literal

from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse.expressions import expression, value_expression
from penstock.sql.parse.statement_nodes import (
    UNITS,
    AllColumns,
    AllFields,
    Duration,
    GroupingClause,
    JoinClause,
    JoinKind,
    NamedSource,
    Ordering,
    Query,
    Relation,
    Selected,
    SelectItem,
    Subquery,
    WindowClause,
    WindowKind,
    With,
    Within,
)
from penstock.sql.parse.tokens import CLAUSES, Cursor, TokenKind, excerpt

__all__ = ["duration", "query", "window", "within"]

_KINDS: tuple[WindowKind, ...] = ("TUMBLING", "HOPPING", "SESSION", "SLIDING")


def duration(cursor: Cursor) -> Duration:
    """Read a number with a unit of time."""
    at = cursor.token.at
    amount = cursor.whole_number()
    for unit in UNITS:
        if cursor.accept(unit) or cursor.accept(f"{unit}S"):
            return Duration(amount, unit, at=at)
    raise cursor.unexpected()


def window(cursor: Cursor) -> WindowClause:
    """Read WINDOW and what follows it."""
    at = cursor.expect("WINDOW").at
    kind = _kind(cursor)
    if kind is None and cursor.token.kind is TokenKind.WORD and cursor.following() in _KINDS:
        cursor.advance()  # a name for the window, which nothing can refer to
        kind = _kind(cursor)
    if kind is None:
        raise cursor.unexpected()
    cursor.expect("(")
    if kind != "SESSION":
        _expect(cursor, "SIZE", kind)
    size = duration(cursor)
    advance = None
    if kind == "HOPPING":
        _expect(cursor, ",", kind)
        cursor.expect("ADVANCE")
        cursor.expect("BY")
        advance = duration(cursor)
    retention = grace = None
    while (retention is None or grace is None) and cursor.accept(","):
        if retention is None and cursor.accept("RETENTION"):
            retention = duration(cursor)
        elif grace is None:
            grace = _grace(cursor)
        else:
            raise cursor.unexpected()
    cursor.expect(")")
    return WindowClause(kind, size, advance, retention, grace, at=at)


def _expect(cursor: Cursor, key: str, kind: WindowKind) -> None:
    if not cursor.accept(key):
        token_text = excerpt(cursor.source(cursor.token)) or cursor.token.kind.value
        advance = ", ADVANCE BY 1 MINUTE" if kind == "HOPPING" else ""
        expected = "','" if key == "," else key
        hint = f"For example WINDOW {kind} (SIZE 5 MINUTES{advance})."
        raise cursor.refused(cursor.token.at, f"expected {expected}, found {token_text}", hint)


def _kind(cursor: Cursor) -> WindowKind | None:
    return next((kind for kind in _KINDS if cursor.accept(kind)), None)


def within(cursor: Cursor) -> Within:
    """Read WITHIN and what follows it."""
    at = cursor.expect("WITHIN").at
    if cursor.accept("("):
        before = duration(cursor)
        cursor.expect(",")
        after = duration(cursor)
        cursor.expect(")")
    else:
        before = after = duration(cursor)
    return Within(before, after, _grace(cursor) if cursor.at("GRACE") else None, at=at)


def _grace(cursor: Cursor) -> Duration:
    cursor.expect("GRACE")
    cursor.expect("PERIOD")
    return duration(cursor)


_BASES = x.ColumnNode | x.FieldAccess | x.Subscript | x.CallNode | x.StructLiteral | x.CastNode
_JOINS: tuple[JoinKind, ...] = ("INNER", "LEFT", "RIGHT", "FULL")


def query(cursor: Cursor) -> Query:
    """Read a query, with the queries of WITH before it."""
    cursor.enter()
    ctes = _ctes(cursor) if cursor.accept("WITH") else ()
    at = cursor.expect("SELECT").at
    items = [_item(cursor)]
    while cursor.accept(","):
        items.append(_item(cursor))
    cursor.expect("FROM")
    source = _relation(cursor)
    joins = []
    while (join := _join(cursor)) is not None:
        joins.append(join)
    node = Query(
        items=tuple(items),
        source=source,
        joins=tuple(joins),
        window=window(cursor) if cursor.at("WINDOW") else None,
        where=expression(cursor) if cursor.accept("WHERE") else None,
        group_by=_grouping(cursor) if cursor.accept("GROUP") else None,
        partition_by=_grouping(cursor) if cursor.accept("PARTITION") else None,
        having=expression(cursor) if cursor.accept("HAVING") else None,
        order_by=_orderings(cursor) if cursor.accept("ORDER") else (),
        emit=(emit := _emit(cursor)),
        idle=_idle(cursor) if emit == "FINAL" else None,
        limit=_limit(cursor) if cursor.accept("LIMIT") else None,
        offset=cursor.whole_number() if cursor.accept("OFFSET") else None,
        ctes=ctes,
        at=at,
    )
    cursor.leave()
    return node


def _ctes(cursor: Cursor) -> tuple[With, ...]:
    ctes = [_cte(cursor)]
    while cursor.accept(","):
        ctes.append(_cte(cursor))
    return tuple(ctes)


def _cte(cursor: Cursor) -> With:
    at = cursor.token.at
    name = cursor.name()
    cursor.expect("AS")
    cursor.expect("(")
    cte_query = query(cursor)
    cursor.expect(")")
    return With(name, cte_query, at=at)


def _emit(cursor: Cursor) -> Literal["CHANGES", "FINAL"] | None:
    if not cursor.accept("EMIT"):
        return None
    if cursor.accept("CHANGES"):
        return "CHANGES"
    cursor.expect("FINAL")
    return "FINAL"


def _idle(cursor: Cursor) -> Duration | None:
    if not cursor.accept("AFTER"):
        return None
    idle = duration(cursor)
    cursor.expect("IDLE")
    return idle


def _item(cursor: Cursor) -> SelectItem:
    at = cursor.token.at
    if cursor.token.key == "*":
        cursor.advance()
        return AllColumns(at=at)
    if cursor.following() == "." and cursor.following(2) == "*":
        name = cursor.name()
        cursor.expect(".")
        cursor.expect("*")
        return AllColumns(name, at=at)
    node = expression(cursor)
    if cursor.token.key == "->" and isinstance(node, _BASES):
        cursor.expect("->")
        cursor.expect("*")
        return AllFields(node, at=at)
    return Selected(node, _alias(cursor), at=at)


def _alias(cursor: Cursor) -> str | None:
    if cursor.accept("AS"):
        return cursor.name()
    return cursor.advance().value if cursor.at_name() and cursor.token.key not in CLAUSES else None


def _relation(cursor: Cursor) -> Relation:
    at = cursor.token.at
    if cursor.accept("("):
        subquery = query(cursor)
        cursor.expect(")")
        if (alias := _alias(cursor)) is None:
            raise cursor.refused(at, "a subquery needs a name", "Write (SELECT ...) AS name.")
        return Subquery(subquery, alias, at=at)
    return NamedSource(cursor.name(), _alias(cursor), at=at)


def _join(cursor: Cursor) -> JoinClause | None:
    at = cursor.token.at
    kind: JoinKind = "INNER"
    if not cursor.accept("JOIN"):
        named = next((word for word in _JOINS if cursor.accept(word)), None)
        if named is None:
            return None
        kind = named
        if kind != "INNER":
            cursor.accept("OUTER")
        cursor.expect("JOIN")
    right = _relation(cursor)
    limits = within(cursor) if cursor.at("WITHIN") else None
    cursor.expect("ON")
    return JoinClause(kind, right, expression(cursor), limits, at=at)


def _limit(cursor: Cursor) -> int:
    limit = cursor.whole_number()
    if cursor.at("EMIT"):
        at = cursor.token.at
        raise cursor.refused(at, "EMIT must come before LIMIT", f"Write EMIT CHANGES LIMIT {limit}.")
    return limit


def _grouping(cursor: Cursor) -> GroupingClause:
    cursor.expect("BY")
    at = cursor.token.at
    bracketed = cursor.token.key == "(" and _is_list(cursor) and cursor.accept("(")
    nodes = [value_expression(cursor)]
    while cursor.accept(","):
        nodes.append(value_expression(cursor))
    if bracketed:
        cursor.expect(")")
    return GroupingClause(tuple(nodes), at=at)


def _is_list(cursor: Cursor) -> bool:
    """Return whether the bracket that opens here holds a list, and not an expression.

    Whether it has a comma of its own.
    """
    depth = ahead = 0
    while True:
        key = cursor.following(ahead) if ahead else cursor.token.key
        if key in ("(", "["):
            depth += 1
        elif key in (")", "]"):
            depth -= 1
            if depth == 0:
                return False
        elif (key == "," and depth == 1) or cursor.index + ahead >= len(cursor.tokens):
            return key == ","
        ahead += 1


def _orderings(cursor: Cursor) -> tuple[Ordering, ...]:
    cursor.expect("BY")
    orderings = [_ordering(cursor)]
    while cursor.accept(","):
        orderings.append(_ordering(cursor))
    return tuple(orderings)


def _ordering(cursor: Cursor) -> Ordering:
    at = cursor.token.at
    value = expression(cursor)
    descending = cursor.accept("DESC")
    if not descending:
        cursor.accept("ASC")
    nulls: Literal["FIRST", "LAST"] | None = None
    if cursor.accept("NULLS"):
        nulls = "FIRST" if cursor.one_of("FIRST", "LAST") == "FIRST" else "LAST"
    return Ordering(value, descending, nulls, at=at)
