"""Statements without a prompt, and results on a terminal: sentences, tables, rows as they come; or JSON."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.base.escapes import json_text, one_line
from penstock.cli.output import console, print_json_line
from penstock.serde.plain_json import plain
from penstock.sql.parse import parse_script
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.statement_nodes import Query
from penstock.sql.results import Described, Explained, QueryStarted, Rows, StatementResult, Status, Stream
from penstock.sql.types.texts import timestamp_text

if TYPE_CHECKING:
    from penstock.sql.session import SqlSession

__all__ = ["ResultRenderer", "cell_text", "run_statements"]

LEAST_WIDTH = 6  # of a column: if there is less room for each, rows are shown one column a line
TIMES = ("ROWTIME", "WINDOWSTART", "WINDOWEND")
LEAST_MS, MOST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999


class ResultRenderer:
    """A writer of results to a console.

    Args:
        console: Where to.
        as_json: Whether to write a line of JSON for each result or row.
    """

    def __init__(self, console: Console, *, as_json: bool = False) -> None:
        self._console = console
        self._as_json = as_json

    def show(self, result: StatementResult) -> None:
        """Write a result; of a stream all rows, as they come."""
        match result:
            case Stream():
                self._stream(result)
            case _ if self._as_json:
                self._json(result)
            case Status():
                self._console.print(Text(result.text))
            case Rows():
                self._rows(result.columns, result.rows, result.types, result.note)
            case Described():
                self._described(result)
            case Explained():
                self._explained(result)

    def _json(self, result: StatementResult) -> None:
        match result:
            case Rows():
                for row in result.to_dicts():
                    print_json_line(plain(row, _base64))
            case Status():
                print_json_line({"status": result.text})
            case Explained():
                more = {"expressions": result.expressions, "topology": result.topology, **dict(result.facts)}
                print_json_line({**result.plan, **more})
            case Described():
                columns = [dict(zip(("name", "type", "role"), column, strict=True)) for column in result.columns]
                facts = [list(fact) for fact in result.facts]
                print_json_line({"name": result.name, "kind": result.kind, "columns": columns, "facts": facts})

    def _rows(
        self, columns: Sequence[str], rows: Sequence[Sequence[Any]], types: Sequence[str] = (), note: str = ""
    ) -> None:
        if not rows:
            why = f": {note}" if note else ""
            self._console.print(Text(f"no rows ({', '.join(columns)}){why}", style="dim"))
            return
        types = types or [""] * len(columns)
        cells = [list(map(cell_text, columns, row, types)) for row in rows]
        if self._console.is_terminal and len(columns) * (LEAST_WIDTH + 3) > self._console.width:
            self._records(columns, cells)
            return
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
        for at, name in enumerate(columns):
            is_time = name in TIMES or types[at] == "TIMESTAMP"
            right = not is_time and all(isinstance(row[at], int | float | Decimal) for row in rows)
            table.add_column(Text(name), justify="right" if right else "left", overflow="fold")
        for row in cells:
            table.add_row(*map(Text, row))
        self._console.print(table)

    def _records(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print one column a line, for tables that are wider than the terminal."""
        width = max(map(len, columns))
        for number, row in enumerate(rows, 1):
            self._console.print(Text(f"row {number}", style="dim"))
            for name, text in zip(columns, row, strict=True):
                self._console.print(Text.assemble((f"  {name:<{width}}  ", "bold"), text))

    def _stream(self, result: Stream) -> None:
        """Print rows as they come; columns share the terminal's width, as later rows are not known."""
        if self._as_json:
            for row in result:
                record = dict(zip(result.columns, row, strict=True))
                print_json_line(plain(record, _base64), flush=True)
            return
        width = max(self._console.width // max(len(result.columns), 1) - 2, LEAST_WIDTH)
        fits = self._console.is_terminal
        self._console.print(Text(_line(result.columns, width, fits=fits), style="bold"))
        for row in result:
            texts = list(map(cell_text, result.columns, row, result.types or [""] * len(row)))
            self._console.print(Text(_line(texts, width, fits=fits)))

    def _described(self, result: Described) -> None:
        self._console.print(Text(f"{result.kind} {result.name}", style="bold"))
        if result.kind == "FUNCTION":
            for signature, _, _ in result.columns:
                self._console.print(Text(f"  {signature}"))
        else:
            self._rows(("Column", "Type", "Role"), result.columns)
        for name, value in result.facts:
            self._console.print(Text.assemble((f"{name}: ", "bold"), value))

    def _explained(self, result: Explained) -> None:
        if result.topology:
            self._console.print(Text(result.topology.rstrip()))
        self._rows(("Expression", "Type", "Back end"), result.expressions)
        for name, value in result.facts:
            self._console.print(Text(f"{name}: {value}"))


def cell_text(name: str, value: Any, kind: str = "") -> str:
    """Return a value as a cell: times as in UTC, structures as JSON, null as null.

    >>> cell_text("ROWTIME", 0), cell_text("A", None), cell_text("B", [1, "x"]), cell_text("C", True)
    ('1970-01-01 00:00:00.000', 'null', '[1, "x"]', 'true')
    >>> cell_text("AT", 1_500, "TIMESTAMP")
    '1970-01-01T00:00:01.500'

    Args:
        name: The name of the column.
        value: The value.
        kind: The SQL type of the column, if it has one.
    """
    if value is None:
        return "null"
    if kind == "TIMESTAMP" and LEAST_MS <= value <= MOST_MS:
        return timestamp_text(value)
    if name in TIMES and isinstance(value, int) and 0 <= value <= MOST_MS:
        return f"{dt.datetime.fromtimestamp(value / 1000, dt.UTC):%Y-%m-%d %H:%M:%S}.{value % 1000:03d}"
    if isinstance(value, bool):
        return str(value).lower()
    shown = plain(value, _base64)
    return json_text(shown) if isinstance(shown, dict | list) else one_line(str(shown))


def _line(texts: Sequence[str], width: int, *, fits: bool) -> str:
    if not fits:
        return "\t".join(texts)
    short = [text if len(text) <= width else f"{text[: width - 1]}…" for text in texts]
    return "  ".join(f"{text:<{width}}" for text in short).rstrip()


def _base64(data: bytes) -> str:
    """Return bytes as the JSON formats of SQL have them."""
    return base64.b64encode(data).decode()


def run_statements(session: SqlSession, text: str, *, as_json: bool) -> None:
    """Run statements and print their results.

    Before a SELECT or PRINT, and at the end, the queries that the statements have made process all records that exist.

    Args:
        session: A session that does not run queries by itself.
        text: The statements.
        as_json: Whether to print a line of JSON for each result or row.
    """
    renderer = ResultRenderer(console(), as_json=as_json)
    behind = False
    for number, parsed in enumerate(parse_script(text, session.catalog.variables, tests=True)):
        del number
        if behind and isinstance(parsed.statement, Query | s.Print):
            session.catch_up()
            behind = False
        for result in session.execute(f"{' ' * (parsed.at.column - 1)}{parsed.text};"):
            behind = behind or isinstance(result, QueryStarted)
            _show(renderer, result)
    if behind:
        session.catch_up()


def _show(renderer: ResultRenderer, result: StatementResult) -> None:
    if not isinstance(result, Stream):
        renderer.show(result)
        return
    try:
        renderer.show(result)
    finally:
        result.close()
