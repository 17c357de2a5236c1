"""Texts as Java sees them: blanks of ``String.trim`` and ``isBlank``, and the error for those that it would refuse."""

from __future__ import annotations

__all__ = ["JavaTextError", "is_blank", "trim"]


class JavaTextError(ValueError):
    """A pattern or text that Java refuses, or that has no equal in Python."""


LOW = "".join(map(chr, range(33)))  # what trim takes off: blanks and control characters, no others


def trim(text: str) -> str:
    r"""Return the text without blanks and control characters around it.

    >>> trim(" a\u00a0")
    'a\xa0'
    """
    return text.strip(LOW)


def is_blank(text: str) -> bool:
    """Return whether a text is empty or nothing but blanks."""
    return not trim(text)
