"""The two ways in which an expression fails: before it runs, by its types; while it runs, by a value."""

from __future__ import annotations

__all__ = ["SqlTypeError", "SqlValueError"]


class SqlTypeError(TypeError):
    """Types that do not fit together. The statement is refused; its position is added by the caller."""


class SqlValueError(ValueError):
    """A value that cannot be computed. The expression becomes null, and the error is counted."""
