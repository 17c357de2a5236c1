"""Penstock SQL: ksqlDB's language as a front end of the DSL.

`SqlSession` runs statements; `stream` makes a SELECT part of a topology that is written in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.sql.session import SqlSession
    from penstock.sql.streams import stream

__all__ = ["SqlSession", "stream"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: the parser alone needs none of it."""
    if name == "SqlSession":
        from penstock.sql.session import SqlSession

        return SqlSession
    if name == "stream":
        from penstock.sql.streams import stream

        return stream
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
