"""Databases of the SQL source and sink: their URLs, engines, files, and errors."""

from __future__ import annotations

import importlib.util
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.connect.data import DataError, RetriableError, SettingError
from penstock.errors import ConnectError

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

__all__ = ["DatabaseFile", "database_error", "database_url", "open_engine"]

MARIADB_WRONG_VALUE = 1292
_JDBC_NAMES = {"ApplicationName": "application_name", "connectTimeout": "connect_timeout", "sslrootcert": "sslrootcert"}
_MARIADB_TUNING = (
    "allowPublicKeyRetrieval", "autoReconnect", "cachePrepStmts", "characterEncoding", "defaultFetchSize",
    "rewriteBatchedStatements", "tcpKeepAlive", "useCursorFetch", "useServerPrepStmts", "useUnicode",
)  # fmt: skip
_JDBC_TUNING = ("prepareThreshold", "reWriteBatchedInserts", "stringtype", "tcpKeepAlive", "defaultRowFetchSize")


def database_url(parsed: Mapping[str, Any]) -> URL:
    """Return the URL of the database, with user and password.

    Raises:
        SettingError: It is none.
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    setting = str(parsed["connection.url"])
    text = setting.removeprefix("jdbc:")
    if text.startswith("sqlite:") and not text.startswith("sqlite:///"):
        text = f"sqlite:///{text.removeprefix('sqlite:')}"
    try:
        url = make_url(text)
    except ArgumentError as error:
        hint = "For example postgresql+psycopg://host/db, or sqlite:///file.db."
        raise SettingError("connection.url is not a URL of a database", hint=hint) from error
    if url.drivername == "postgresql":
        url = _postgres_url(url, is_jdbc=setting.startswith("jdbc:"))
    elif url.drivername in ("mariadb", "mysql"):
        url = _mariadb_url(url, is_jdbc=setting.startswith("jdbc:"))
    if parsed["connection.user"]:
        url = url.set(username=parsed["connection.user"])
    return url.set(password=parsed["connection.password"].secret) if parsed["connection.password"] else url


def _postgres_url(url: URL, *, is_jdbc: bool) -> URL:
    """With the driver that is installed, and the parameters of Java's driver under the names of this one."""
    if importlib.util.find_spec("psycopg") is not None:
        url = url.set(drivername="postgresql+psycopg")
    if not is_jdbc:
        return url
    query = {name: value if isinstance(value, str) else value[-1] for name, value in url.query.items()}
    for name in _JDBC_TUNING:
        query.pop(name, None)
    schema = query.pop("currentSchema", None)
    if schema:
        query["options"] = f"-csearch_path={schema}"
    if query.pop("ssl", "false") == "true":
        query.setdefault("sslmode", "verify-full")
    return url.set(query={_JDBC_NAMES.get(name, name): value for name, value in query.items()})


def _mariadb_url(url: URL, *, is_jdbc: bool) -> URL:
    """With the driver that is installed, without the parameters that tune Java's driver."""
    if importlib.util.find_spec("pymysql") is not None:
        url = url.set(drivername=f"{url.drivername}+pymysql")
    if not is_jdbc:
        return url
    query = {name: value for name, value in url.query.items() if name not in _MARIADB_TUNING}
    user, password = (query.pop(name, None) for name in ("user", "password"))
    url = url.set(query=query)
    if user:
        url = url.set(username=str(user))
    return url.set(password=str(password)) if password else url


def open_engine(parsed: Mapping[str, Any]) -> Engine:
    """Open the database; connections are made when they are needed.

    Raises:
        ConnectError: SQLAlchemy or the database's driver is not installed.
    """
    try:
        from sqlalchemy import create_engine
        from sqlalchemy.exc import NoSuchModuleError
        from sqlalchemy.pool import NullPool
    except ImportError as error:
        raise ConnectError("SQLAlchemy is not installed", hint='Run: pip install "penstock[connect]"') from error
    url = database_url(parsed)
    more = {"poolclass": NullPool} if _file_of(url) else {}  # a file that was replaced is another database
    try:
        return create_engine(url, pool_pre_ping=True, hide_parameters=True, **more)
    except (NoSuchModuleError, ImportError) as error:
        raise ConnectError(
            f"there is no driver for {url.drivername}: {error}",
            hint="Install one, for example pip install psycopg, or pip install pymysql.",
        ) from error


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
    is_missing = type(cause).__name__ in ("UndefinedTable", "InvalidSchemaName")
    is_wrong = isinstance(error, ProgrammingError | NotSupportedError) or _is_mistake(cause)
    if is_wrong and not is_missing:
        return ConnectError(text, hint=hint)
    return RetriableError(text)  # it is away, or locked, or the table comes later


def _is_unfit(cause: BaseException) -> bool:
    """Return whether MariaDB refuses a value in a class of errors that says nothing."""
    return type(cause).__module__.startswith("pymysql") and cause.args[:1] == (MARIADB_WRONG_VALUE,)


def _is_mistake(cause: BaseException) -> bool:
    """Return whether SQLite, which has one class for all, says that the statement is wrong.

    A table that is not there may come later.
    """
    code = getattr(cause, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_ERROR and not str(cause).startswith("no such table")
