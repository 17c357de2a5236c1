"""Errors of statements: the place, the line with a caret, the reason, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import SqlError
from penstock.sql.evaluate.typing import refused
from penstock.sql.parse.tokens import NOWHERE, TextPosition

__all__ = ["located", "named", "refusal"]

WIDTH = 100


def refusal(at: TextPosition, reason: str, hint: str = "") -> SqlError:
    """Return the error for a place of a statement, not yet with the text of its line.

    >>> print(refusal(TextPosition(1, 8, 7), "SELECT names the column 'A', which no source has"))
    line 1:8: SELECT names the column 'A', which no source has
    """
    return refused(reason, at, hint)


def located(text: str, error: SqlError, start: TextPosition = NOWHERE) -> SqlError:
    """Return the error with its line of the text and a caret; as it is if it has no place, or shows it already.

    Args:
        text: The text of the script.
        error: An error of `refusal`.
        start: The place of the statement, for errors without one.
    """
    if "\n" in error.message and error.message.endswith("^"):
        return error
    line, column = getattr(error, "line", 0) or start.line, getattr(error, "column", 0) or start.column
    if not line:
        return error
    lines = text.split("\n")
    shown = lines[line - 1].rstrip("\r") if line <= len(lines) else ""
    begin = max(0, column - 1 - 60) if len(shown) > WIDTH else 0
    piece = "".join(c if c.isprintable() else " " for c in shown[begin : begin + WIDTH])
    prefix = f"line {line}:{column}: "
    message = f"{prefix}{error.message.removeprefix(prefix)}\n  {piece}\n  {' ' * (column - 1 - begin)}^"
    facts = {**error.facts, "line": line, "column": column, "offset": getattr(error, "offset", 0)}
    return SqlError(message, hint=error.hint, **facts)


def named(words: Sequence[str], last: str = "and") -> str:
    """Return words as a list in a sentence.

    >>> named(["A", "B", "C"]), named(["A"])
    ('A, B and C', 'A')
    """
    *first, end = words
    return f"{', '.join(first)} {last} {end}" if first else end
