"""Errors of a statement that name the place."""

from __future__ import annotations

from penstock.errors import SqlError
from penstock.sql.parse.tokens import NOWHERE, TextPosition

__all__ = ["refused"]


def refused(message: str, at: TextPosition, hint: str = "") -> SqlError:
    """Return the error for a part of a statement, with the facts ``line``, ``column`` and ``offset``.

    >>> print(refused("Unknown column X.", TextPosition(2, 7, 30)))
    line 2:7: Unknown column X.
    """
    if at == NOWHERE:
        return SqlError(message, hint=hint)
    return SqlError(
        f"line {at.line}:{at.column}: {message}", hint=hint, line=at.line, column=at.column, offset=at.offset
    )
