"""The server's side: slots, publications, the catalog, and the stream of changes, by SQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connect.connectors.postgres.envelope import TableFacts
from penstock.connect.connectors.postgres.pgoutput import RelationColumn, RelationMessage
from penstock.connect.connectors.postgres.types import PgType, Types
from penstock.connect.data import RetriableError
from penstock.errors import ConnectError

if TYPE_CHECKING:
    import psycopg

__all__ = ["Server", "Snapshot", "lsn_number", "lsn_text"]

TABLES = """SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p') AND c.relpersistence IN ('p', 'u')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 2, 3"""
ROOT = """SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.oid = pg_partition_root(%s::regclass) AND c.oid <> %s"""
COLUMNS = """SELECT attname, atttypid::int8, atttypmod, attnotnull OR (t.typtype = 'd' AND t.typnotnull)
  FROM pg_attribute JOIN pg_type t ON t.oid = atttypid
  WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"""
KEY = """SELECT a.attname FROM (SELECT i.indrelid, i.indkey, i.indisprimary, i.indnkeyatts
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = %s AND i.indisunique ORDER BY i.indisprimary DESC, c.relname LIMIT 1) x,
  unnest(x.indkey::int2[]) WITH ORDINALITY k(number, place) JOIN pg_attribute a ON a.attnum = k.number
  WHERE a.attrelid = x.indrelid AND (NOT x.indisprimary OR k.place <= x.indnkeyatts) ORDER BY k.place"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The transactions that a snapshot sees: all before ``upper`` but those that were open.

    >>> snapshot = Snapshot.parse("100:103:101")
    >>> [snapshot.sees(xid) for xid in (99, 101, 102, 103)]
    [True, False, True, False]
    """

    upper: int
    open: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Parse PostgreSQL's text of a snapshot, ``xmin:xmax:open``."""
        _, upper, rest = text.split(":")
        return cls(int(upper), frozenset(int(each) for each in rest.split(",") if each))

    def sees(self, xid: int) -> bool:
        """Whether a transaction's changes are in the snapshot; ``xid`` has 32 bits, as the stream has it."""
        full = (self.upper & ~0xFFFFFFFF) | xid
        if full - self.upper > 1 << 31:
            full -= 1 << 32
        elif self.upper - full > 1 << 31:
            full += 1 << 32
        return full < self.upper and full not in self.open


class Server:
    """Connections to a database whose changes are read.

    Args:
        conninfo: The connection, as psycopg's keywords.
        slot: The replication slot.
        publication: The publication.
        statements: Run on each connection when it is opened.
    """

    def __init__(self, conninfo: dict[str, Any], slot: str, publication: str, statements: Sequence[str] = ()) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise ConnectError("psycopg is not installed", hint='Run: pip install "psycopg[binary]"') from error
        self._psycopg = psycopg
        self._conninfo, self._slot, self._publication = conninfo, slot, publication
        self._statements = statements
        self._connection: psycopg.Connection[Any] | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def prepare(self, tables: Sequence[tuple[str, str]], *, creates_publication: str, by_root: bool = False) -> bool:
        """Check the server, and make the publication and the slot if they are not there.

        Args:
            tables: The tables to publish, each a schema and a name; none: all.
            creates_publication: ``all_tables``, ``filtered``, ``no_tables`` or ``disabled``.
            by_root: Changes of partitions are published as those of the table that they are partitions of.

        Returns:
            Whether the slot is new.

        Raises:
            ConnectError: The server does not write what logical decoding needs, or the user may not read it.
        """
        with self.guarded() as connection:
            level = self._one("SHOW wal_level")
            if level != "logical":
                raise ConnectError(
                    f"the server writes its log with wal_level={level}",
                    hint="Set wal_level=logical in postgresql.conf, and start the server again.",
                )
            if self._one("SELECT count(*) FROM pg_publication WHERE pubname = %s", self._publication) == 0:
                self._publish(tables, creates_publication, by_root=by_root)
            elif creates_publication == "filtered" and tables:
                self._publish_also(tables)
            plugin = self._one("SELECT plugin FROM pg_replication_slots WHERE slot_name = %s", self._slot)
            if plugin is None:
                connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self._slot])
                return True
            if plugin != "pgoutput":
                raise ConnectError(f"the slot {self._slot} is of the plugin {plugin}", hint="Choose another slot.name.")
            return False

    def _publish(self, tables: Sequence[tuple[str, str]], mode: str, *, by_root: bool) -> None:
        from psycopg import sql

        if mode == "disabled":
            raise ConnectError(
                f"there is no publication {self._publication}",
                hint=f"Run: CREATE PUBLICATION {self._publication} FOR ALL TABLES",
            )
        name = sql.Identifier(self._publication)
        rest = sql.SQL(" WITH (publish_via_partition_root = true)") if by_root else sql.SQL("")
        if mode == "no_tables":
            self._execute(sql.SQL("CREATE PUBLICATION {}{}").format(name, rest))
        elif mode == "all_tables" or not tables:
            self._execute(sql.SQL("CREATE PUBLICATION {} FOR ALL TABLES{}").format(name, rest))
        else:
            parts = sql.SQL(", ").join(sql.Identifier(*table) for table in tables)
            self._execute(sql.SQL("CREATE PUBLICATION {} FOR TABLE {}{}").format(name, parts, rest))

    def _publish_also(self, tables: Sequence[tuple[str, str]]) -> None:
        """Add the tables that a publication lacks, as when table.include.list has more of them than before."""
        from psycopg import sql

        with self.guarded() as connection:
            rows = connection.execute(
                "SELECT n.nspname, c.relname FROM pg_publication p LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid "
                "LEFT JOIN pg_class c ON c.oid = r.prrelid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE p.pubname = %s AND NOT p.puballtables",
                [self._publication],
            ).fetchall()
        published = {(row[0], row[1]) for row in rows}
        missing = [table for table in tables if table not in published]
        if rows and missing:
            parts = sql.SQL(", ").join(sql.Identifier(*table) for table in missing)
            name = sql.Identifier(self._publication)
            self._execute(sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(name, parts))

    def drop_slot(self) -> None:
        """Delete the slot."""
        with self.guarded() as connection:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [self._slot])

    def tables(self) -> dict[tuple[str, str], int]:
        """The numbers of all tables, by schema and name; partitioned tables and their partitions are tables both."""
        with self.guarded() as connection:
            return {(schema, name): oid for oid, schema, name in connection.execute(TABLES).fetchall()}

    def relation(self, number: int, schema: str, name: str) -> tuple[RelationMessage, TableFacts]:
        """A table as the catalog has it now."""
        with self.guarded() as connection:
            rows = connection.execute(COLUMNS, [number]).fetchall()
            key = tuple(row[0] for row in connection.execute(KEY, [number]).fetchall())
        columns = tuple(RelationColumn(column, kind, modifier, column in key) for column, kind, modifier, _ in rows)
        catalog_types = Types(self._type_row)
        types = {column: catalog_types.find(kind, modifier) for column, kind, modifier, _ in rows}
        required = frozenset(row[0] for row in rows if row[3])
        return RelationMessage(number, schema, name, columns), TableFacts(key, required, types)

    def typed(self, columns: Iterable[RelationColumn]) -> dict[str, PgType]:
        """The types of columns as the stream has them, which may be others than those of the catalog by now."""
        catalog_types = Types(self._type_row)
        return {column.name: catalog_types.find(column.kind, column.modifier) for column in columns}

    def _type_row(self, query: str) -> Sequence[Any] | None:
        with self.guarded() as connection:
            row: Sequence[Any] | None = connection.execute(query).fetchone()
            return row

    def root(self, number: int) -> tuple[int, str, str] | None:
        """The partitioned table that a table is a partition of; None: it is none."""
        with self.guarded() as connection:
            row = connection.execute(ROOT, [number, number]).fetchone()
            return None if row is None else (row[0], row[1], row[2])

    @contextmanager
    def snapshot(self) -> Iterator[str]:
        """A transaction that sees one moment, in which `rows` reads; the text of its snapshot."""
        with self.guarded() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                yield str(self._one("SELECT pg_current_snapshot()::text"))
            finally:
                if not connection.closed:
                    connection.execute("ROLLBACK")

    def rows(self, relation: RelationMessage, statement: str = "") -> Iterator[tuple[str | None, ...]]:
        """The rows of a table, or of a statement in its place, as texts, inside of a `snapshot`."""
        from psycopg import sql

        columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in relation.columns)
        selected = sql.SQL("SELECT {} FROM {}").format(columns, sql.Identifier(relation.namespace, relation.name))
        if statement:
            selected = sql.SQL("SELECT {} FROM ({}\n) penstock_rows").format(columns, sql.SQL(statement.rstrip("; \n")))
        query = sql.SQL("COPY ({}) TO STDOUT").format(selected)  # the texts of the stream, byte for byte
        with self.guarded() as connection, connection.cursor() as cursor, cursor.copy(query) as copy:
            for row in copy.rows():
                yield tuple(None if each is None else str(each) for each in row)

    def inserted(self) -> int:
        """The end of the server's log: what can be seen now was written before."""
        return lsn_number(str(self._one("SELECT pg_current_wal_insert_lsn()::text")))

    def flushed(self) -> int:
        """The end of what is safe on the server's disk: `changes` that are asked for later have all of it."""
        return lsn_number(str(self._one("SELECT pg_current_wal_flush_lsn()::text")))

    def changes(self, most: int) -> Iterator[tuple[int, bytes]]:
        """The messages behind the slot's confirmed position, about so many of them; transactions come whole."""
        query = (
            "SELECT lsn::text, data FROM pg_logical_slot_peek_binary_changes(%s, NULL, %s, 'proto_version', '1', "
            "'publication_names', %s)"
        )
        with self.guarded() as connection:
            cursor = connection.execute(query, [self._slot, most, self._publication], binary=True)
            rows = cursor.fetchall()
        for lsn, data in rows:
            yield lsn_number(lsn), bytes(data)

    def confirm(self, lsn: int) -> None:
        """Let the server forget what is before a position."""
        with self.guarded() as connection:
            confirmed = self._one(
                "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", self._slot
            )
            if confirmed is None or lsn_number(str(confirmed)) < lsn:
                connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self._slot, lsn_text(lsn)])

    @contextmanager
    def guarded(self) -> Iterator[psycopg.Connection[Any]]:
        """The connection; its failures are Connect's errors, and it is opened again after one."""
        errors = self._psycopg
        try:
            if self._connection is None or self._connection.closed:
                self._connection = errors.connect(**self._conninfo, autocommit=True)
                for each in self._statements:
                    self._connection.execute(each)
                self._connection.execute(
                    "SET datestyle TO 'ISO'; SET timezone TO 'UTC'; SET intervalstyle TO 'iso_8601'; "
                    "SET bytea_output TO 'hex'; SET extra_float_digits TO 3; SET client_encoding TO 'UTF8'"
                )
            yield self._connection
        except errors.OperationalError as error:
            self.close()
            text = str(error).strip().splitlines()[0]
            if isinstance(error, errors.errors.InvalidPassword | errors.errors.InvalidAuthorizationSpecification):
                raise ConnectError(f"the database refuses: {text}", hint="Check database.user and password.") from error
            raise RetriableError(f"the database is away, or the slot is in use: {text}") from error
        except errors.Error as error:
            text = str(error).strip().splitlines()[0]
            raise ConnectError(
                f"the database refuses: {text}",
                hint="The user needs REPLICATION, SELECT on the tables, and for a publication to own them.",
            ) from error

    def _one(self, query: str, *values: Any) -> Any:
        with self.guarded() as connection:
            row = connection.execute(query, values or None).fetchone()
            return None if row is None else row[0]

    def _execute(self, query: Any) -> None:
        with self.guarded() as connection:
            connection.execute(query)


def lsn_number(text: str) -> int:
    """A position of PostgreSQL's log as a number.

    >>> lsn_number("1/A0"), lsn_text(4294967456)
    (4294967456, '1/A0')
    """
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(number: int) -> str:
    """A number as a position of PostgreSQL's log."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"
