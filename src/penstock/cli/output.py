"""What commands print: tables for people, JSON for programs, errors in one clear paragraph."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "print_error", "print_json", "print_table"]


_ANY_WIDTH = 10_000


def console(*, stderr: bool = False) -> Console:
    """A console without colours when it is not a terminal; as wide as needed then, so that nothing is cut."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, highlight=False, soft_wrap=True, width=None if stream.isatty() else _ANY_WIDTH)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "none") -> None:
    """A table; columns whose name ends with ``#`` are right-aligned numbers."""
    found = [list(row) for row in rows]
    out = console()
    if not found:
        out.print(empty)
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        name, last = column.removesuffix("#"), column is columns[-1]  # what is long stands in the last, which wraps
        table.add_column(name, justify="left" if name == column else "right", no_wrap=not last, overflow="fold")
    for row in found:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    out.print(table)


def print_json(value: Any) -> None:
    """One JSON document."""
    print(json.dumps(value, indent=2, default=str))


def print_error(message: str, hint: str = "") -> None:
    """``error: ...`` on the error stream, and what to do next."""
    from rich.markup import escape

    out = console(stderr=True)
    out.print(f"[bold red]error:[/] {escape(message)}")
    if hint:
        out.print(f"[bold]Hint:[/] {escape(hint)}")
