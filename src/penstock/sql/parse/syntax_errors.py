"""Syntax errors: place, line with a caret, what was expected, the nearest keyword."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import SqlSyntaxError
from penstock.sql.parse.tokens import TextPosition

__all__ = ["Snag", "excerpt", "listed", "syntax_error"]

WIDTH = 100  # characters of the line that are shown
BEFORE = 60  # of these, at most so many before the caret


@dataclass(frozen=True, slots=True)
class Snag:
    """A place where a text cannot be read on, and why.

    Attributes:
        at: The place.
        reason: What is wrong, as a sentence without its full stop.
        hint: What to do about it, if that can be said.
        found: The text at that place.
        expected: What could have stood there.
    """

    at: TextPosition
    reason: str
    hint: str = ""
    found: str = ""
    expected: tuple[str, ...] = ()


def syntax_error(text: str, snag: Snag) -> SqlSyntaxError:
    """Return the error for a snag in a text."""
    at = snag.at
    line, column = _line(text, at.offset)
    shown, caret = _window(line, min(column, len(line)))
    message = f"line {at.line}:{at.column}: syntax error: {snag.reason}\n  {shown}\n  {caret}"
    facts = {"line": at.line, "column": at.column, "offset": at.offset}
    return SqlSyntaxError(message, hint=snag.hint, **facts, found=snag.found, expected=snag.expected)


def _line(text: str, offset: int) -> tuple[str, int]:
    """Return the line that holds an offset, and the place of the offset in it."""
    begin = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    return text[begin : end if end >= 0 else len(text)].rstrip("\r"), offset - begin


def _window(line: str, column: int) -> tuple[str, str]:
    """The part of a line around a column, and the line below it with a caret; tabs and the like become blanks."""
    line = "".join(c if c.isprintable() else " " for c in line)
    begin = max(0, column - BEFORE) if len(line) > WIDTH else 0
    end = begin + WIDTH
    left, right = "..." if begin else "", "..." if end < len(line) else ""
    return f"{left}{line[begin:end]}{right}".rstrip(), " " * (len(left) + column - begin) + "^"


def listed(names: Iterable[str]) -> str:
    """Names as a list in a sentence.

    >>> listed(["FROM"]), listed(["','", "FROM", "a name"])
    ('FROM', "',', FROM or a name")
    """
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def excerpt(text: str) -> str:
    """Return the text in at most 40 characters, all of which can be printed."""
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= 40 else f"{text[:37]}..."
