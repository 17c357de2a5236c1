"""Entries of stores and records of topics as tables, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from penstock.base.terminal.html import MOST_ROWS, table_html
from penstock.base.terminal.human_numbers import span_of
from penstock.serde.plain import text_of
from penstock.serde.windowed import Windowed

__all__ = ["ShownInNotebooks", "entries_html", "shown"]


class ShownInNotebooks:
    """Stores that have ``all()``: a notebook shows their first entries."""

    def all(self) -> Iterable[Any]:
        """Return all entries."""
        raise NotImplementedError

    def first(self, most: int) -> Iterator[Any]:
        """Yield some entries, without a look at the others."""
        return islice(self.all(), most)

    def _repr_html_(self) -> str:
        return entries_html(str(getattr(self, "name", "") or type(self).__name__), self.first(MOST_ROWS + 1))


def entries_html(name: str, entries: Iterable[tuple[Any, Any]]) -> str:
    """Return a table of entries; the window of a windowed key has a column of its own."""
    remaining = iter(entries)
    first = next(remaining, None)
    if first is None:
        return table_html(f"{name}: empty", ["key", "value"], [])
    rows = ((key, value) for part in ([first], remaining) for key, value in part)
    if isinstance(first[0], Windowed):
        windows = ((shown(k.key), span_of(k.window.start, k.window.end), shown(v)) for k, v in rows)
        return table_html(name, ["key", "window", "value"], windows)
    return table_html(name, ["key", "value"], ((shown(key), shown(value)) for key, value in rows))


def shown(value: Any) -> Any:
    """Return a key or value for a cell: numbers as they are, windows with their times, bytes as text."""
    if isinstance(value, Windowed):
        return f"{shown(value.key)} {span_of(value.window.start, value.window.end)}"
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a value with its timestamp
        return ", ".join(f"{name}={shown(part)}" for name, part in zip(value._fields, value, strict=True))
    return value
