"""Databases of the SQL source and sink: their engines, files, readers and errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.connect.connectors.sql_columns import ColumnRules
from penstock.connect.connectors.sql_mariadb import MariadbReader
from penstock.connect.connectors.sql_reading import DatabaseReader, PostgresReader, SqliteReader
from penstock.connect.connectors.sql_urls import DatabaseAddress
from penstock.connect.data import DataError, RetriableError
from penstock.errors import ConnectError

if TYPE_CHECKING:
    from sqlalchemy import Engine

__all__ = ["DatabaseFile", "database_error", "is_missing_table", "open_engine", "reader_for"]


MARIADB_WRONG_VALUE = 1292
MARIADB_NO_TABLE = (1146, 1932)


def open_engine(parsed: Mapping[str, Any]) -> Engine:
    """Open the database; connections are made when they are needed.

    Raises:
        ConnectError: SQLAlchemy or the database's driver is not installed.
    """
    try:
        from sqlalchemy import create_engine, event
        from sqlalchemy.exc import NoSuchModuleError
        from sqlalchemy.pool import NullPool
    except ImportError as error:
        raise ConnectError("SQLAlchemy is not installed", hint='Run: pip install "penstock[connect]"') from error
    address = DatabaseAddress.of(parsed)
    url = address.url
    more = {"poolclass": NullPool} if _file_of(url) else {}  # a file that was replaced is another database
    try:
        engine = create_engine(url, pool_pre_ping=True, hide_parameters=True, **more)
    except (NoSuchModuleError, ImportError) as error:
        raise ConnectError(
            f"there is no driver for {url.drivername}: {error}",
            hint="Install one, for example pip install psycopg, or pip install pymysql.",
        ) from error
    if address.pragmas:

        @event.listens_for(engine, "connect")
        def begin(connection: Any, _record: Any) -> None:
            for statement in address.pragmas:
                connection.execute(statement)

    return engine


class DatabaseFile:
    """The file of a database of SQLite, which would come into being anew, and empty, where it is away.

    Args:
        engine: The database, of whichever kind.
        has_been: Whether the file has to be there already.
    """

    def __init__(self, engine: Engine, *, has_been: bool) -> None:
        self._path = _file_of(engine.url)
        self._has_been = has_been

    def check(self) -> None:
        """Refuse to go on without the file.

        Raises:
            RetriableError: It is away.
        """
        if self._path is not None and self._has_been and not self._path.exists():
            raise RetriableError(f"the database {self._path} is away")

    def written(self) -> None:
        """Note that there is something in the database, so that from now on it has to be there."""
        self._has_been = True


def _file_of(url: Any) -> Path | None:
    if not url.drivername.startswith("sqlite") or url.database in (None, "", ":memory:"):
        return None
    return None if str(url.database).startswith("file:") else Path(url.database)


def database_error(error: Exception, where: str, *, trimmed: bool = False) -> ConnectError:
    """Return a failure of the database as one of Connect's: to be tried again, the record's fault, or the settings'.

    Args:
        error: SQLAlchemy's error.
        where: What was being done, such as ``at users``.
        trimmed: Leave out the database's own words, which may have values.
    """
    from sqlalchemy.exc import DataError as Unfit
    from sqlalchemy.exc import IntegrityError, NotSupportedError, ProgrammingError

    cause = getattr(error, "orig", None) or error
    lines = str(cause).strip().splitlines()
    text = f"the database fails {where}".strip() + f": {lines[0] if lines and not trimmed else type(cause).__name__}"
    hint = "Correct the query, the record, the table or the settings."
    if isinstance(error, Unfit | IntegrityError) or _is_unfit(cause):
        return DataError(text, hint=hint)
    is_missing = type(cause).__name__ == "InvalidSchemaName" or is_missing_table(cause)
    is_wrong = isinstance(error, ProgrammingError | NotSupportedError) or _is_mistake(cause)
    if is_wrong and not is_missing:
        return ConnectError(text, hint=hint)
    return RetriableError(text)  # it is away, or locked, or the table comes later


def is_missing_table(cause: BaseException) -> bool:
    """Return whether PostgreSQL or MariaDB says that there is no such table."""
    is_mariadb = type(cause).__module__.startswith("pymysql")
    return type(cause).__name__ == "UndefinedTable" or (
        is_mariadb and cause.args[:1] in {(c,) for c in MARIADB_NO_TABLE}
    )


def _is_unfit(cause: BaseException) -> bool:
    """Return whether MariaDB refuses a value in a class of errors that says nothing."""
    return type(cause).__module__.startswith("pymysql") and cause.args[:1] == (MARIADB_WRONG_VALUE,)


def _is_mistake(cause: BaseException) -> bool:
    """Return whether SQLite, which has one class for all, says that the statement is wrong.

    A table that is not there may come later.
    """
    code = getattr(cause, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_ERROR and not str(cause).startswith("no such table")


def reader_for(
    engine: Engine, rules: ColumnRules, *, quotes: bool = True, isolation: str = "DEFAULT"
) -> DatabaseReader:
    """Return the reader of a database."""
    kinds = {"postgresql": PostgresReader, "sqlite": SqliteReader}
    is_mariadb = engine.dialect.driver == "pymysql"
    kind = MariadbReader if is_mariadb else kinds.get(engine.dialect.name, DatabaseReader)
    return kind(engine, rules, quotes=quotes, isolation=isolation)
