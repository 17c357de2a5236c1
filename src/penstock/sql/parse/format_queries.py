"""Queries as canonical text: a clause on each line."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.sql.parse.expressions import SUM
from penstock.sql.parse.format_expressions import format_expression
from penstock.sql.parse.query_nodes import (
    AllColumns,
    AllFields,
    Duration,
    GroupingClause,
    JoinClause,
    Ordering,
    Query,
    Relation,
    SelectItem,
    Subquery,
    WindowClause,
    Within,
)
from penstock.sql.parse.tokens import quoted

__all__ = ["WIDTH", "format_duration", "format_query", "joined"]

WIDTH = 100  # a list that is longer has an item on each line


def format_query(query: Query, indent: int = 0) -> str:
    """Return a query whose lines behind the first begin with so many blanks."""
    lines = []
    for index, cte in enumerate(query.ctes):
        begin = "WITH " if index == 0 else ""
        comma = "," if index < len(query.ctes) - 1 else ""
        lines.append(f"{begin}{quoted(cte.name)} AS {_bracketed(cte.query, indent)}{comma}")
    lines.append(joined("SELECT ", [_item(item) for item in query.items], indent))
    lines.append(f"FROM {_relation(query.source, indent)}")
    lines += [_join(join, indent) for join in query.joins]
    if query.window is not None:
        lines.append(_window(query.window))
    if query.where is not None:
        lines.append(f"WHERE {format_expression(query.where)}")
    if query.group_by is not None:
        lines.append(f"GROUP BY {_grouping(query.group_by)}")
    if query.partition_by is not None:
        lines.append(f"PARTITION BY {_grouping(query.partition_by)}")
    if query.having is not None:
        lines.append(f"HAVING {format_expression(query.having)}")
    if query.order_by:
        lines.append(f"ORDER BY {', '.join(map(_ordering, query.order_by))}")
    if query.emit is not None:
        idle = "" if query.idle is None else f" AFTER {format_duration(query.idle)} IDLE"
        lines.append(f"EMIT {query.emit}{idle}")
    if query.limit is not None:
        lines.append(f"LIMIT {query.limit}")
    if query.offset is not None:
        lines.append(f"OFFSET {query.offset}")
    return f"\n{' ' * indent}".join(lines)


def joined(start: str, items: Sequence[str], indent: int, end: str = "") -> str:
    """Items with commas between them, in one line if they fit, else each on a line of its own."""
    line = f"{start}{', '.join(items)}{end}"
    if indent + len(line) <= WIDTH or len(items) == 1:
        return line
    deeper = f"\n{' ' * (indent + 2)}"
    last = f"\n{' ' * indent}{end}" if end else ""
    return f"{start.rstrip()}{deeper}{f',{deeper}'.join(items)}{last}"


def format_duration(duration: Duration) -> str:
    """Return a duration."""
    return f"{duration.amount} {duration.unit}{'' if duration.amount == 1 else 'S'}"


def _bracketed(query: Query, indent: int) -> str:
    blanks = " " * indent
    return f"(\n{blanks}  {format_query(query, indent + 2)}\n{blanks})"


def _item(item: SelectItem) -> str:
    if isinstance(item, AllColumns):
        return "*" if item.source is None else f"{quoted(item.source)}.*"
    if isinstance(item, AllFields):
        return f"{format_expression(item.base)}->*"
    return format_expression(item.expression) + _alias(item.alias)


def _alias(alias: str | None) -> str:
    return "" if alias is None else f" AS {quoted(alias)}"


def _relation(relation: Relation, indent: int) -> str:
    if isinstance(relation, Subquery):
        return f"{_bracketed(relation.query, indent)} AS {quoted(relation.alias)}"
    return quoted(relation.name) + _alias(relation.alias)


def _join(join: JoinClause, indent: int) -> str:
    kind = "" if join.kind == "INNER" else f"{join.kind} "
    within = f" {_within(join.within)}" if join.within is not None else ""
    return f"{kind}JOIN {_relation(join.right, indent)}{within} ON {format_expression(join.condition)}"


def _within(within: Within) -> str:
    before, after = format_duration(within.before), format_duration(within.after)
    span = before if before == after else f"({before}, {after})"
    return f"WITHIN {span}{'' if within.grace is None else f' GRACE PERIOD {format_duration(within.grace)}'}"


def _window(window: WindowClause) -> str:
    parts = [("" if window.kind == "SESSION" else "SIZE ") + format_duration(window.size)]
    if window.advance is not None:
        parts.append(f"ADVANCE BY {format_duration(window.advance)}")
    if window.retention is not None:
        parts.append(f"RETENTION {format_duration(window.retention)}")
    if window.grace is not None:
        parts.append(f"GRACE PERIOD {format_duration(window.grace)}")
    return f"WINDOW {window.kind} ({', '.join(parts)})"


def _grouping(grouping: GroupingClause) -> str:
    return ", ".join(format_expression(item, SUM) for item in grouping.expressions)


def _ordering(ordering: Ordering) -> str:
    nulls = f" NULLS {ordering.nulls}" if ordering.nulls else ""
    return f"{format_expression(ordering.expression)}{' DESC' if ordering.descending else ''}{nulls}"
