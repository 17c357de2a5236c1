"""Reading SQL databases: their tables and columns, and the rows of a query through one cursor.

Each kind of database has a `DatabaseReader`: PostgreSQL and SQLite their own, so that each value is read exactly;
others by what SQLAlchemy knows of them.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connect.connectors.postgres.type_texts import timestamp_text
from penstock.connect.connectors.postgres.types import Types
from penstock.connect.connectors.sql_columns import (
    MINUS_INFINITY_MS,
    ColumnRules,
    SqlColumn,
    column_of_affinities,
    local_of,
    postgres_column,
    sqlalchemy_column,
    sqlite_column,
    sqlite_micros,
)
from penstock.connect.data import RetriableError
from penstock.errors import ConnectError

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult, Engine

__all__ = ["DatabaseReader", "FetchedRows", "PostgresReader", "Relation", "SqliteReader", "TableName", "check_names"]

_PART = re.compile(r'"((?:[^"]|"")*)"|`((?:[^`]|``)*)`|\[([^\]]*)\]|([^".`\[]+)')
SQLITE_QUERY = "penstock_query"
# Words of queries in whose rows a column may be null that never is in its table. `left` is a function, too.
_MAKES_NULLS = re.compile(r"\b(?:left|right|full|rollup|cube|grouping)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TableName:
    """A table or view.

    Attributes:
        schema: Its schema; None: the default one.
        name: Its name.
        kind: ``TABLE`` or ``VIEW``.
        catalog: The database that it is in, if the database's tables are listed with it.
    """

    schema: str | None
    name: str
    kind: str = "TABLE"
    catalog: str | None = None

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Return a name as settings have it: ``users``, ``shop.users``, ``db.shop.users``, parts with dots in quotes.

        Raises:
            ConnectError: It is not a name.

        >>> TableName.parse('shop."my.users"')
        TableName(schema='shop', name='my.users', kind='TABLE', catalog=None)
        """
        parts: list[str] = []
        at = 0
        while at < len(text):
            part = _PART.match(text, at)
            if part is None:
                raise ConnectError(
                    f"{text} is not a name of a table", hint='Write it as schema.table, or "a schema".table.'
                )
            double, back, square, plain = part.groups()
            parts.append(
                double.replace('""', '"') if double is not None
                else back.replace("``", "`") if back is not None
                else square if square is not None
                else plain.strip()
            )  # fmt: skip
            at = part.end()
            if at < len(text) and text[at] != ".":
                raise ConnectError(
                    f"{text} is not a name of a table", hint='Write it as schema.table, or "a schema".table.'
                )
            at += 1
        parts = parts[-3:]
        catalog = parts[0] if len(parts) == 3 else None
        return cls(parts[-2] if len(parts) > 1 else None, parts[-1], catalog=catalog)


@dataclass(frozen=True, slots=True)
class Relation:
    """What is read: a table, or a query.

    Attributes:
        label: How messages call it; a masked query is not shown.
        table: The table; None: it is a query.
        query: The query's text.
    """

    label: str
    table: TableName | None = None
    query: str = ""


class FetchedRows:
    """The rows of one query, in batches through one cursor."""

    def __init__(self, connection: Connection, result: CursorResult[Any]) -> None:
        self._connection, self._result = connection, result

    def fetch(self, most: int) -> Sequence[Sequence[Any]]:
        """Return the next rows; fewer than asked for at the end."""
        return self._result.fetchmany(most)

    def close(self) -> None:
        """Let the database forget the query; one that is away has."""
        from sqlalchemy.exc import SQLAlchemyError

        with suppress(SQLAlchemyError):
            self._result.close()
        with suppress(SQLAlchemyError):
            self._connection.close()


class DatabaseReader:
    """A reader of databases by what SQLAlchemy knows of them."""

    def __init__(self, engine: Engine, rules: ColumnRules, *, quotes: bool = True, isolation: str = "DEFAULT") -> None:
        self.engine, self.rules, self._quotes = engine, rules, quotes
        self._isolation = isolation

    def connect(self) -> Connection:
        """Open a connection."""
        connection = self.engine.connect()
        if self._isolation != "DEFAULT":
            connection = connection.execution_options(isolation_level=self._isolation.replace("_", " "))
        return connection

    def quoted(self, name: str) -> str:
        """Return a name as statements have it."""
        if not self._quotes:
            return name
        rules = self.engine.dialect.identifier_preparer
        first, last = rules.initial_quote, rules.final_quote
        return f"{first}{name.replace(last, last * 2)}{last}"

    def source(self, relation: Relation) -> str:
        """Return what stands behind FROM."""
        table = relation.table
        if table is None:
            return f"({relation.query}\n) AS {SQLITE_QUERY}"
        parts = [each for each in (table.schema, table.name) if each is not None]
        return ".".join(map(self.quoted, parts))

    def tables(self, connection: Connection) -> list[TableName]:
        """Return all tables and views of users."""
        from sqlalchemy import inspect

        inspector = inspect(connection)
        base_tables = [TableName(None, name) for name in inspector.get_table_names()]
        return base_tables + [TableName(None, name, "VIEW") for name in inspector.get_view_names()]

    def found(self, connection: Connection, name: TableName) -> TableName | None:
        """Return a table as the database has it, with its kind; None: there is none."""
        from sqlalchemy import inspect

        inspector = inspect(connection)
        if name.name in inspector.get_view_names(schema=name.schema):
            return TableName(name.schema, name.name, "VIEW")
        return name if inspector.has_table(name.name, schema=name.schema) else None

    def columns(self, connection: Connection, relation: Relation) -> list[SqlColumn]:
        """Return the columns as they are now."""
        from sqlalchemy import inspect

        table = relation.table
        if table is not None:
            return [
                sqlalchemy_column(each["name"], each["type"], self.rules, nullable=bool(each.get("nullable", True)))
                for each in inspect(connection).get_columns(table.name, schema=table.schema)
            ]
        rows = self.run(connection, f"SELECT * FROM {self.source(relation)} LIMIT 100")  # noqa: S608 - the user's query
        names = list(rows.keys())
        check_names(names, relation)
        first_rows = rows.fetchall()
        kinds = [frozenset(_affinity(row[at]) for row in first_rows) for at in range(len(names))]
        return [column_of_affinities(name, kind) for name, kind in zip(names, kinds, strict=True)]

    def missing(self, relation: Relation) -> RetriableError:
        """Return the error of a table that may come later."""
        return RetriableError(f"there is no table {relation.label}, or it has no columns")

    def qualified(self, connection: Connection, table: TableName) -> str:  # noqa: ARG002 - others ask
        """Return the whole name of a table, as offsets have it."""
        return str(table)

    def counting_column(self, connection: Connection, table: TableName) -> str | None:
        """Return the first column whose numbers the database counts up; None: there is none."""
        from sqlalchemy import inspect

        columns = inspect(connection).get_columns(table.name, schema=table.schema)
        return next((str(each["name"]) for each in columns if each.get("autoincrement") is True), None)

    def attributes(self, connection: Connection, name: TableName) -> Sequence[Sequence[Any]]:
        """Return the columns of a table of PostgreSQL: name, type, modifier, and whether it is never null."""
        raise NotImplementedError

    def declared(self, connection: Connection, name: TableName) -> list[tuple[str, str, bool]]:
        """Return the columns of a table of SQLite: name, declared type, and whether it may be null."""
        raise NotImplementedError

    def selected(self, column: SqlColumn) -> str:
        """Return what stands behind SELECT for a column."""
        return self.quoted(column.name)

    def moment(self, columns: Sequence[SqlColumn]) -> str:
        """Return the first of timestamps that is not null, as statements compare it."""
        names = [self.quoted(column.name) for column in columns]
        return names[0] if len(names) == 1 else f"COALESCE({', '.join(names)})"

    def literal(self, micros: int, columns: Sequence[SqlColumn]) -> str:
        """Return a moment as statements compare it with these columns."""
        zoned = columns[0].zoned
        return f"'{timestamp_text(micros if zoned else local_of(micros, self.rules.zone))}'"

    def now(self, connection: Connection) -> int:  # noqa: ARG002 - PostgreSQL asks
        """Return the time, by the database's clock where it can be asked."""
        return time.time_ns() // 1000

    def start(self, statement: str) -> FetchedRows:
        """Run a query whose rows are read later."""
        connection = self.connect()
        try:
            return self.rows(connection, self.run(connection, statement, stream_results=True))
        except BaseException:
            connection.close()
            raise

    def rows(self, connection: Connection, result: CursorResult[Any]) -> FetchedRows:
        """Return the rows of a query that runs, which are read as they are fetched."""
        return FetchedRows(connection, result)

    def all(self, connection: Connection, statement: str) -> list[tuple[Any, ...]]:
        """Return all rows of a statement."""
        return [tuple(row) for row in self.run(connection, statement)]

    def run(self, connection: Connection, statement: str, **options: Any) -> CursorResult[Any]:
        """Run a statement as it is, without parameters."""
        return connection.exec_driver_sql(statement, execution_options={"no_parameters": True, **options})


class PostgresReader(DatabaseReader):
    """A reader of PostgreSQL: each value as the text that the server writes for it."""

    def tables(self, connection: Connection) -> list[TableName]:
        rows = self.all(
            connection,
            "SELECT n.nspname, c.relname, c.relkind::text, current_database() FROM pg_class c JOIN pg_namespace n ON "
            "n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') AND NOT c.relispartition "
            "AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_toast' ORDER BY 1, 2",
        )
        return [TableName(schema, name, _POSTGRES_KINDS[kind], catalog) for schema, name, kind, catalog in rows]

    def found(self, connection: Connection, name: TableName) -> TableName | None:
        row = self.run(
            connection,
            f"SELECT relkind::text FROM pg_class WHERE oid = {self._number(name)}",  # noqa: S608 - quoted
        ).first()
        return None if row is None else TableName(name.schema, name.name, _POSTGRES_KINDS.get(row[0], "TABLE"))

    def qualified(self, connection: Connection, table: TableName) -> str:
        if table.schema is not None:
            return str(table)
        row = self.run(
            connection,
            "SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "  # noqa: S608 - quoted
            f"WHERE c.oid = {self._number(table)}",
        ).first()
        return str(table) if row is None else f"{row[0]}.{table.name}"

    def counting_column(self, connection: Connection, table: TableName) -> str | None:
        row = self.run(
            connection,
            "SELECT attname FROM pg_attribute a LEFT JOIN pg_attrdef d "  # noqa: S608 - quoted
            "ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
            f"WHERE a.attrelid = {self._number(table)} AND a.attnum > 0 AND NOT a.attisdropped "
            "AND (a.attidentity <> '' OR pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%') ORDER BY a.attnum",
        ).first()
        return None if row is None else str(row[0])

    def _number(self, name: TableName) -> str:
        text = ".".join(map(self.quoted, [each for each in (name.schema, name.name) if each is not None]))
        return "to_regclass('{}')".format(text.replace("'", "''"))

    def attributes(self, connection: Connection, name: TableName) -> Sequence[Sequence[Any]]:
        return self.all(
            connection,
            "SELECT attname, atttypid::int8, atttypmod, attnotnull FROM pg_attribute "  # noqa: S608 - quoted
            f"WHERE attrelid = {self._number(name)} AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        )

    def columns(self, connection: Connection, relation: Relation) -> list[SqlColumn]:
        types = Types(lambda text: self.run(connection, text).first())
        if relation.table is not None:
            rows = self.attributes(connection, relation.table)
            if not rows:
                raise self.missing(relation)
            return [
                postgres_column(name, types.find(kind, modifier), self.rules, nullable=not required)
                for name, kind, modifier, required in rows
            ]
        result = self.run(connection, f"SELECT * FROM {self.source(relation)} LIMIT 0")  # noqa: S608 - the user's query
        names = list(result.keys())
        check_names(names, relation)
        described: Any = result.cursor
        raw = getattr(described, "pgresult", None)
        type_numbers = [
            (column[1], raw.fmod(at) if raw is not None else _modifier(column))
            for at, column in enumerate(described.description)
        ]
        origins = [(raw.ftable(at), raw.ftablecol(at)) for at in range(len(names))] if raw is not None else []
        result.close()
        required = set() if _MAKES_NULLS.search(relation.query) else self._required(connection, origins)
        return [
            postgres_column(name, types.find(kind, modifier), self.rules, nullable=at not in required)
            for at, (name, (kind, modifier)) in enumerate(zip(names, type_numbers, strict=True))
        ]

    def _required(self, connection: Connection, origins: Sequence[tuple[int, int]]) -> set[int]:
        """Return the columns of a query that are columns of tables which are never null."""
        tables = {table for table, _ in origins if table}
        if not tables:
            return set()
        rows = self.all(
            connection,
            "SELECT attrelid::int8, attnum FROM pg_attribute WHERE attnotnull AND attrelid IN "  # noqa: S608 - numbers
            f"({', '.join(map(str, sorted(tables)))})",
        )
        never_null = {(table, number) for table, number in rows}
        return {at for at, origin in enumerate(origins) if origin in never_null}

    def selected(self, column: SqlColumn) -> str:
        name = self.quoted(column.name)  # not a cast to text: that strips the blanks of char(n), and adds /32 to inet
        return f"CASE WHEN {name} IS DISTINCT FROM NULL THEN format('%s', {name}) END"

    def literal(self, micros: int, columns: Sequence[SqlColumn]) -> str:
        is_infinite = micros <= MINUS_INFINITY_MS * 1000
        text = "'-infinity'" if is_infinite else super().literal(micros, columns)
        return f"{text}::timestamp AT TIME ZONE 'UTC'" if columns[0].zoned else f"{text}::timestamp"

    def now(self, connection: Connection) -> int:
        micros = self.run(connection, "SELECT trunc(extract(epoch FROM clock_timestamp()) * 1000000)::int8").scalar()
        return int(micros or 0)

    def connect(self) -> Connection:
        connection = super().connect()
        try:
            self.run(connection, "SET datestyle TO 'ISO'; SET timezone TO 'UTC'; SET intervalstyle TO 'postgres'")
            self.run(connection, "SET bytea_output TO 'hex'; SET extra_float_digits TO 3")
        except BaseException:
            connection.close()
            raise
        return connection


class SqliteReader(DatabaseReader):
    """A reader of SQLite: any type in any column, and a copy of a query's rows, so that nothing stays locked."""

    def __init__(self, engine: Engine, rules: ColumnRules, *, quotes: bool = True, isolation: str = "DEFAULT") -> None:
        super().__init__(engine, rules, quotes=quotes, isolation=isolation)
        self._affinities: dict[str, frozenset[str]] = {}

    def connect(self) -> Connection:
        connection = super().connect()
        driver: Any = connection.connection.driver_connection
        zone = self.rules.zone
        driver.create_function("penstock_micros", 1, lambda value: _micros_or_null(value, zone), deterministic=True)
        return connection

    def counting_column(self, connection: Connection, table: TableName) -> str | None:
        rows = self.all(connection, f"PRAGMA {self._schema(table)}table_xinfo({self.quoted(table.name)})")
        keys = [(column, kind) for _, column, kind, _, _, key, _ in rows if key]
        return str(keys[0][0]) if len(keys) == 1 and keys[0][1].upper() == "INTEGER" else None

    def declared(self, connection: Connection, name: TableName) -> list[tuple[str, str, bool]]:
        rows = self.all(connection, f"PRAGMA {self._schema(name)}table_xinfo({self.quoted(name.name)})")
        return [
            (column, kind or "", not required and not (key and kind.upper() == "INTEGER"))
            for _, column, kind, required, _, key, hidden in rows
            if hidden != 1
        ]

    def columns(self, connection: Connection, relation: Relation) -> list[SqlColumn]:
        if relation.table is not None:
            described = self.declared(connection, relation.table)
            if not described:
                raise self.missing(relation)
        else:
            self.run(connection, "DROP VIEW IF EXISTS temp.penstock_columns")
            self.run(connection, f"CREATE TEMP VIEW penstock_columns AS {relation.query}")
            rows = self.all(connection, "PRAGMA temp.table_info(penstock_columns)")
            self.run(connection, "DROP VIEW temp.penstock_columns")
            result = self.run(connection, relation.query)  # no row is read; a subquery would rename columns
            names = list(result.keys())
            result.close()
            check_names(names, relation)
            described = [(name, kind, True) for _, name, kind, *_ in rows]
        return [
            sqlite_column(name, kind or "", self.rules, nullable=nullable)
            or column_of_affinities(name, self._affinity(connection, relation, name))
            for name, kind, nullable in described
        ]

    def _schema(self, name: TableName) -> str:
        return f"{self.quoted(name.schema)}." if name.schema else ""

    def _affinity(self, connection: Connection, relation: Relation, name: str) -> frozenset[str]:
        """Return the types of the values of a column that declares none; what was seen once counts on."""
        affinities = self._affinities.get(name, frozenset())
        text = f"SELECT DISTINCT typeof({self.quoted(name)}) FROM {self.source(relation)}"  # noqa: S608 - quoted
        affinities |= frozenset(str(row[0]) for row in self.run(connection, text))
        self._affinities[name] = affinities
        return affinities

    def moment(self, columns: Sequence[SqlColumn]) -> str:
        names = [f"penstock_micros({self.quoted(column.name)})" for column in columns]
        return names[0] if len(names) == 1 else f"COALESCE({', '.join(names)})"

    def literal(self, micros: int, columns: Sequence[SqlColumn]) -> str:  # noqa: ARG002 - numbers know no zone
        return str(micros)

    def start(self, statement: str) -> FetchedRows:
        connection = self.connect()
        try:
            self.run(connection, "DROP TABLE IF EXISTS temp.penstock_rows")
            self.run(connection, f"CREATE TEMP TABLE penstock_rows AS {statement}")
            connection.commit()  # the database is free for writers; the copy is this connection's own
            return FetchedRows(connection, self.run(connection, "SELECT * FROM temp.penstock_rows ORDER BY rowid"))
        except BaseException:
            connection.close()
            raise


_POSTGRES_KINDS = {"r": "TABLE", "p": "TABLE", "f": "TABLE", "v": "VIEW", "m": "VIEW"}


def check_names(names: Iterable[str], relation: Relation) -> None:
    """Refuse a query that has a column twice.

    Raises:
        ConnectError: It has.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConnectError(f"{relation.label} has the column {name} twice", hint="Name each of them with AS.")
        seen.add(name)


def _modifier(column: Sequence[Any]) -> int:
    """Return the modifier of a type in the description of a cursor that has no better one."""
    precision, scale = column[4], column[5]
    return -1 if precision is None else (int(precision) << 16 | int(scale or 0) & 0x7FF) + 4


def _affinity(value: Any) -> str:
    kinds: tuple[tuple[type, str], ...] = ((bool, "integer"), (int, "integer"), (float, "real"), (bytes, "blob"))
    if value is None:
        return "null"
    return next((name for kind, name in kinds if isinstance(value, kind)), "text")


def _micros_or_null(value: Any, zone: dt.tzinfo) -> int | None:
    """Of a text that is not a time nothing is known: the row is never read, as one without time."""
    try:
        return None if value is None else sqlite_micros(value, zone)
    except (ValueError, OverflowError):
        return None
