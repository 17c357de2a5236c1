"""Reading MariaDB and MySQL: columns as the server describes a result, of a table as of a query."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.connect.connectors.sql_columns import (
    ColumnRules,
    SqlColumn,
    date_column,
    decimal_column,
    python_micros,
    time_column,
    timestamp_column,
    whole_number,
)
from penstock.connect.connectors.sql_reading import DatabaseReader, FetchedRows, Relation, TableName, check_names
from penstock.connect.data import (
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    DataError,
    Schema,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult, Engine

__all__ = ["MariadbReader", "MariadbRows", "mariadb_column"]

NOT_NULL, UNSIGNED = 1, 32
BINARY_CHARSET = 63
DAY_MS = 86_400_000
DECIMALS = (0, 246)
TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR, NEWDATE, BIT = (
    1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 16,
)  # fmt: skip
GEOMETRY = 255
TYPE_NAMES = {
    0: "DECIMAL", 1: "TINYINT", 2: "SMALLINT", 3: "INT", 4: "FLOAT", 5: "DOUBLE", 7: "TIMESTAMP", 8: "BIGINT",
    9: "MEDIUMINT", 10: "DATE", 11: "TIME", 12: "DATETIME", 13: "YEAR", 14: "DATE", 16: "BIT", 246: "DECIMAL",
    249: "BLOB", 250: "BLOB", 251: "BLOB", 252: "BLOB", 253: "VARCHAR", 254: "CHAR", 255: "GEOMETRY",
}  # fmt: skip


class MariadbRows(FetchedRows):
    """The rows of one query, whose rest is not read when it is closed: PyMySQL reads what a server goes on to send."""

    def __init__(self, engine: Engine, connection: Connection, result: CursorResult[Any]) -> None:
        super().__init__(connection, result)
        self._engine, self._is_read = engine, False

    def fetch(self, most: int) -> Sequence[Sequence[Any]]:
        try:
            rows = super().fetch(most)
        except BaseException:
            self._is_read = True  # the query has ended, or its connection
            self._forget()
            raise
        self._is_read = len(rows) < most
        return rows

    def _forget(self) -> None:
        """Keep PyMySQL from reading the rest of a connection that it has closed, when its objects are deleted."""
        unread = getattr(self._result.cursor, "_result", None)
        if unread is not None:
            unread.unbuffered_active = False

    def close(self) -> None:
        if not self._is_read:
            self._kill()
        super().close()

    def _kill(self) -> None:
        """Let the server end the query; one that is away has."""
        from sqlalchemy.exc import SQLAlchemyError

        driver: Any = self._connection.connection.dbapi_connection
        cursor: Any = self._result.cursor
        with suppress(SQLAlchemyError), self._engine.connect() as other:
            other.exec_driver_sql(f"KILL QUERY {driver.thread_id()}")
        with suppress(self._engine.dialect.loaded_dbapi.Error):
            cursor.close()  # reads that the query was interrupted, which SQLAlchemy would log as an error


class MariadbReader(DatabaseReader):
    """A reader of MariaDB and MySQL through PyMySQL, which passes on how the server describes the columns."""

    def columns(self, connection: Connection, relation: Relation) -> list[SqlColumn]:
        if relation.table is not None and self.found(connection, relation.table) is None:
            raise self.missing(relation)
        result = self.run(connection, f"SELECT * FROM {self.source(relation)} LIMIT 0")  # noqa: S608 - the user's query
        names = list(result.keys())
        cursor: Any = result.cursor
        fields = list(cursor._result.fields)  # noqa: SLF001 - the description of DB-API has neither signs nor charsets
        result.close()
        check_names(names, relation)
        return [mariadb_column(name, field, self.rules) for name, field in zip(names, fields, strict=True)]

    def qualified(self, connection: Connection, table: TableName) -> str:
        if table.schema is not None:
            return str(table)
        return f"{self.run(connection, 'SELECT DATABASE()').scalar()}.{table.name}"

    def rows(self, connection: Connection, result: CursorResult[Any]) -> FetchedRows:
        return MariadbRows(self.engine, connection, result)

    def now(self, connection: Connection) -> int:
        return python_micros(self.run(connection, "SELECT UTC_TIMESTAMP(6)").scalar())


def mariadb_column(name: str, field: Any, rules: ColumnRules) -> SqlColumn:
    """Return a column by what the server says of it: a field of PyMySQL's."""
    code, is_signed = int(field.type_code), not field.flags & UNSIGNED
    column = (name, TYPE_NAMES.get(code, str(code)))
    if code in DECIMALS:
        digits = int(field.length) - (1 if field.scale else 0) - (1 if is_signed else 0)
        described = decimal_column(column, digits, int(field.scale))
    elif code in (TIMESTAMP, DATETIME):
        described = timestamp_column(column, rules, _moment)
    elif code in (DATE, NEWDATE, YEAR):
        described = date_column(column, _days)
    elif code == TIME:
        described = time_column(column, rules, _time_ms)
    else:
        schema, read = _plain(code, field, is_signed=is_signed)
        described = SqlColumn(name, schema, column[1], read)
    return replace(described, schema=described.schema.as_optional(not field.flags & NOT_NULL))


def _plain(code: int, field: Any, *, is_signed: bool) -> tuple[Schema, Callable[[Any], Any]]:
    numbers: dict[int, tuple[Schema, Schema, int]] = {
        SHORT: (INT16, INT32, 16),
        INT24: (INT32, INT64, 32),
        LONG: (INT32, INT64, 32),
        LONGLONG: (INT64, INT64, 64),
    }
    if code == TINY:
        is_bit = is_signed or field.length == 1
        return (INT8, whole_number(8)) if is_bit else (INT16, whole_number(16))
    if code in numbers:
        signed, unsigned, bits = numbers[code]
        return (signed, whole_number(bits)) if is_signed else (unsigned, whole_number(min(bits * 2, 64)))
    if code == FLOAT:
        return FLOAT32, float
    if code == DOUBLE:
        return FLOAT64, float
    if code == BIT:
        return (INT8, lambda value: int.from_bytes(value, "big")) if field.length == 1 else (BYTES, bytes)
    if field.charsetnr == BINARY_CHARSET or code == GEOMETRY:
        return BYTES, lambda value: value if isinstance(value, bytes) else str(value).encode()
    return STRING, lambda value: value.decode() if isinstance(value, bytes) else str(value)


def _moment(value: Any) -> int:
    return python_micros(_real(value))


def _days(value: Any) -> int:
    if isinstance(value, int):
        value = dt.date(value, 1, 1)
    return int((_real(value) - dt.date(1970, 1, 1)).days)


def _time_ms(value: Any) -> int:
    return int(_real(value) // dt.timedelta(milliseconds=1))


def _real(value: Any) -> Any:
    """Return a time that the driver could read; those like 0000-00-00 come as texts."""
    if isinstance(value, str):
        raise DataError(f"{value} is not a time", hint="Correct the row, or leave the column out with a query.")
    return value
