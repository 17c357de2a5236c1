"""Databases of tests, and statements in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import create_engine, text

__all__ = ["execute", "own_database"]

_NUMBERS = itertools.count()


@contextmanager
def own_database(server: Any) -> Iterator[str]:
    """Give the URL of a new database of a PostgreSQL server, which is dropped at the end."""
    name = f"own_{next(_NUMBERS)}"
    server.execute(f"CREATE DATABASE {name}")
    yield server.url.removesuffix("/postgres") + f"/{name}"
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Execute statements in one transaction; return the rows of the last one."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            found = [connection.execute(text(each)) for each in statements][-1]
            return [tuple(row) for row in found] if found.returns_rows else []
    finally:
        engine.dispose()
