"""Penstock SQL: ksqlDB's language as a front end of the DSL.

`SqlSession` runs statements; `stream` makes a SELECT part of a topology that is written in Python; `columns_of` lists
the columns of a dataclass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.sql.session import SqlSession
    from penstock.sql.streams import columns_of, stream

__all__ = ["SqlSession", "columns_of", "stream"]

# Loaded when first used: the parser alone needs none of it.
__getattr__ = lazy_names(__name__, {"SqlSession": "session", "columns_of": "streams", "stream": "streams"})
