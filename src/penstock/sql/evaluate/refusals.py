"""Errors of a statement that name the place."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from penstock.errors import SqlError
from penstock.sql.parse.tokens import NOWHERE, Position

__all__ = ["meant", "refused"]


def refused(message: str, at: Position, hint: str = "") -> SqlError:
    """The error for a part of a statement, with the facts ``line``, ``column`` and ``offset``.

    >>> print(refused("Unknown column X.", Position(2, 7, 30)))
    line 2:7: Unknown column X.
    """
    if at == NOWHERE:
        return SqlError(message, hint=hint)
    return SqlError(
        f"line {at.line}:{at.column}: {message}", hint=hint, line=at.line, column=at.column, offset=at.offset
    )


def meant(name: str, among: Iterable[str]) -> str:
    """The hint with the name that was probably meant, or nothing.

    >>> meant("UCSE", ["UCASE", "LCASE"])
    'Did you mean UCASE?'
    """
    by_upper = {known.upper(): known for known in among}
    found = get_close_matches(name.upper(), list(by_upper), 1, 0.7) if len(name) <= 100 else []
    return f"Did you mean {by_upper[found[0]]}?" if found else ""
