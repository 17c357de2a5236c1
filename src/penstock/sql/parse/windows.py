"""The grammar of durations, windows and the time limits of joins."""

from __future__ import annotations

from penstock.sql.parse.cursor import Cursor
from penstock.sql.parse.query_nodes import UNITS, Duration, WindowClause, WindowKind, Within
from penstock.sql.parse.syntax_errors import excerpt
from penstock.sql.parse.tokens import TokenKind

__all__ = ["duration", "window", "within"]

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
