"""Values and types between SQL databases and Connect."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.connect.config import DatabaseUrl, Importance, Kind, Password, Setting
from penstock.connect.data import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    Moment,
    RetriableError,
    Schema,
    SettingError,
    Type,
    decimal_schema,
)
from penstock.connect.data.logical import DATE_NAME, DECIMAL_NAME, TIME_NAME, TIMESTAMP_NAME, scale_of
from penstock.errors import ConnectError

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.types import TypeEngine

__all__ = [
    "CONNECTION",
    "DatabaseFile",
    "connect_schema",
    "connect_value",
    "database_url",
    "open_engine",
    "sql_type",
    "sql_value",
]

CONNECTION: tuple[Setting, ...] = (
    Setting(
        name="connection.url",
        kind=Kind.STRING,
        rule=DatabaseUrl(),
        importance=Importance.HIGH,
        doc="The database: an URL of SQLAlchemy such as postgresql+psycopg://host/db or sqlite:///file.db, or of JDBC.",
    ),
    Setting(name="connection.user", kind=Kind.STRING, default="", doc="The user, if the URL names none."),
    Setting(name="connection.password", kind=Kind.PASSWORD, default=Password(""), doc="The user's password."),
)
DEFAULT_SCALE = 6


def database_url(parsed: Mapping[str, Any]) -> Any:
    """The URL of the database, with user and password.

    Raises:
        SettingError: It is none.
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    text = str(parsed["connection.url"]).removeprefix("jdbc:")
    if text.startswith("sqlite:") and not text.startswith("sqlite:///"):
        text = f"sqlite:///{text.removeprefix('sqlite:')}"
    try:
        url = make_url(text)
    except ArgumentError as error:
        hint = "For example postgresql+psycopg://host/db, or sqlite:///file.db."
        raise SettingError("connection.url is no URL of a database", hint=hint) from error
    if parsed["connection.user"]:
        url = url.set(username=parsed["connection.user"])
    return url.set(password=parsed["connection.password"].secret) if parsed["connection.password"] else url


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
        return create_engine(url, pool_pre_ping=True, **more)
    except (NoSuchModuleError, ImportError) as error:
        raise ConnectError(
            f"there is no driver for {url.drivername}: {error}", hint="Install one, for example pip install psycopg."
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


def connect_schema(kind: TypeEngine[Any], *, nullable: bool) -> Schema:
    """Connect's schema of a column's type; of types that it does not have, text."""
    import sqlalchemy.types as sql

    found = STRING
    pairs: tuple[tuple[type, Schema], ...] = (
        (sql.Boolean, BOOLEAN),
        (sql.SmallInteger, INT16),
        (sql.BigInteger, INT64),
        (sql.Integer, INT32),
        (sql.Float, FLOAT64),
        (sql.Date, DATE),
        (sql.DateTime, TIMESTAMP),
        (sql.Time, TIME),
        (sql.LargeBinary, BYTES),
    )
    if isinstance(kind, sql.Numeric) and not isinstance(kind, sql.Float):
        found = decimal_schema(DEFAULT_SCALE if kind.scale is None else kind.scale)
    else:
        found = next((schema for each, schema in pairs if isinstance(kind, each)), STRING)
    return found.as_optional(nullable)


def connect_value(schema: Schema, value: Any) -> Any:
    """A value of the database in Connect's form."""
    if value is None:
        return None
    if schema.name == DECIMAL_NAME:
        return Decimal(value).quantize(Decimal(1).scaleb(-scale_of(schema)))
    if schema.name in (DATE_NAME, TIME_NAME, TIMESTAMP_NAME):
        return Moment.of(value)
    if schema.type is Type.BOOLEAN:
        return bool(value)
    if schema.type is Type.FLOAT64:
        return float(value)
    return str(value) if schema.type is Type.STRING else value


def sql_type(schema: Schema | None, value: Any = None) -> TypeEngine[Any]:
    """The column type for a schema; without one, for a value."""
    import sqlalchemy.types as sql

    if schema is None:
        kinds: tuple[tuple[type, TypeEngine[Any]], ...] = (
            (bool, sql.Boolean()),
            (int, sql.BigInteger()),
            (float, sql.Float()),
            (bytes, sql.LargeBinary()),
            (Decimal, sql.Numeric()),
            (Moment, sql.DateTime()),
        )
        return next((found for kind, found in kinds if isinstance(value, kind)), sql.Text())
    logical: dict[str | None, TypeEngine[Any]] = {DATE_NAME: sql.Date(), TIME_NAME: sql.Time()}
    logical[TIMESTAMP_NAME] = sql.DateTime()
    if schema.name == DECIMAL_NAME:
        return sql.Numeric(38, scale_of(schema))
    plain: dict[Type, TypeEngine[Any]] = {
        Type.INT8: sql.SmallInteger(),
        Type.INT16: sql.SmallInteger(),
        Type.INT32: sql.Integer(),
        Type.INT64: sql.BigInteger(),
        Type.FLOAT32: sql.Float(),
        Type.FLOAT64: sql.Float(),
        Type.BOOLEAN: sql.Boolean(),
        Type.BYTES: sql.LargeBinary(),
    }
    return logical.get(schema.name) or plain.get(schema.type) or sql.Text()


def sql_value(schema: Schema | None, value: Any) -> Any:
    """A value of Connect in the form that a driver takes; lists and maps as JSON."""
    if isinstance(value, Moment):
        name = schema.name if schema is not None else None
        if name == DATE_NAME:
            return value.date()
        return value.time() if name == TIME_NAME else value.datetime().replace(tzinfo=None)
    if isinstance(value, list | dict):
        import json

        return json.dumps(value, default=str)
    return value
