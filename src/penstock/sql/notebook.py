"""`%%sql` in notebooks: an extension of IPython.

    %load_ext penstock.sql.notebook
    %sql_session bootstrap.servers=penstock.db
    %%sql clicks
    SELECT * FROM clicks;

The name behind ``%%sql`` is a variable for the last result, which has ``to_polars()`` and ``to_pandas()``.
"""

from __future__ import annotations

import os
from typing import Any

from penstock.base.escapes import visible
from penstock.errors import ConfigError, PenstockError
from penstock.sql.results import Described, Explained, Rows, StatementResult, Status, Stream
from penstock.sql.session import SqlSession

__all__ = ["SqlMagic", "load_ipython_extension", "unload_ipython_extension"]


class SqlMagic:
    """The magics ``%sql``, ``%%sql`` and ``%sql_session`` of one notebook.

    Args:
        shell: IPython's shell.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._session: SqlSession | None = None

    @property
    def session(self) -> SqlSession:
        """The session; by default over ``PENSTOCK_BOOTSTRAP_SERVERS``, else ``penstock.db`` of the current folder."""
        if self._session is None:
            servers = os.environ.get("PENSTOCK_BOOTSTRAP_SERVERS")
            self._session = SqlSession({"bootstrap.servers": servers} if servers else None, scripts=True)
        return self._session

    def connect(self, line: str) -> None:
        """Begin a session with these settings, ``name=value`` with blanks between them, in place of the present one."""
        settings = {}
        for pair in line.split():
            name, equals, value = pair.partition("=")
            if not equals:
                raise ConfigError(f"{pair!r} is not name=value", hint="%sql_session bootstrap.servers=penstock.db")
            settings[name] = value
        self.close()
        self._session = SqlSession(settings, scripts=True)

    def run(self, line: str, cell: str | None = None) -> StatementResult | None:
        """Run statements; all results but the last are printed, the last is the value of the cell."""
        try:
            results = self.session.execute(line if cell is None else cell)
        except PenstockError as error:
            print(visible(f"error: {error}"))
            return None
        shown = [_finished(result) for result in results]
        for result in shown[:-1]:
            print(visible(_text(result)))
        if not shown:
            return None
        if cell is not None and line.strip():
            self._shell.push({line.strip(): shown[-1]})
        if isinstance(shown[-1], Rows):
            return shown[-1]
        print(visible(_text(shown[-1])))
        return None

    def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            self._session.close()
            self._session = None


def _finished(result: StatementResult) -> StatementResult:
    """Return the rows of a stream until it ends, or the user interrupts it."""
    if not isinstance(result, Stream):
        return result
    rows: list[tuple[Any, ...]] = []
    try:
        rows.extend(result)
    except KeyboardInterrupt:
        pass
    finally:
        result.close()
    return Rows(result.columns, result.types, tuple(rows), statement=result.statement)


def _text(result: StatementResult) -> str:
    match result:
        case Status():
            return result.text
        case Rows():
            return str(result.to_polars())
        case Described():
            lines = [" ".join(part for part in column if part) for column in result.columns]
            return "\n".join([f"{result.kind} {result.name}", *(f"  {line}" for line in lines)])
        case Explained():
            return result.topology
    return str(result)


_magics: dict[int, SqlMagic] = {}


def load_ipython_extension(shell: Any) -> None:
    """Register the magics: ``%load_ext penstock.sql.notebook``."""
    magic = _magics[id(shell)] = SqlMagic(shell)
    shell.register_magic_function(magic.run, "line_cell", "sql")
    shell.register_magic_function(magic.connect, "line", "sql_session")


def unload_ipython_extension(shell: Any) -> None:
    """Close the session of a notebook."""
    magic = _magics.pop(id(shell), None)
    if magic is not None:
        magic.close()
