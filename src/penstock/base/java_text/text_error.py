"""The error of texts that Java would refuse."""

from __future__ import annotations

__all__ = ["JavaTextError"]


class JavaTextError(ValueError):
    """A pattern or text that Java refuses, or that has no equal in Python."""
