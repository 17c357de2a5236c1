"""The server's side: slots, publications, the catalog, and the stream of changes, by SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connect.connectors.postgres.envelope import TableFacts
from penstock.connect.connectors.postgres.pgoutput import Column, Relation
from penstock.connect.data import RetriableError
from penstock.errors import ConnectError

if TYPE_CHECKING:
    import psycopg

__all__ = ["Server", "Snapshot", "lsn_number", "lsn_text"]

BOOLEAN = 16
FETCHED = 1000
TABLES = """SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 2, 3"""
COLUMNS = """SELECT attname, atttypid::int8, atttypmod, attnotnull FROM pg_attribute
  WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"""
KEY = """SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
  WHERE i.indrelid = %s AND i.indisprimary ORDER BY array_position(i.indkey::int2[], a.attnum)"""


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
    """

    def __init__(self, conninfo: dict[str, Any], slot: str, publication: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise ConnectError("psycopg is not installed", hint='Run: pip install "psycopg[binary]"') from error
        self._psycopg = psycopg
        self._conninfo, self._slot, self._publication = conninfo, slot, publication
        self._connection: psycopg.Connection[Any] | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def prepare(self, tables: Sequence[str], *, creates_publication: str) -> bool:
        """Check the server, and make the publication and the slot if they are not there.

        Args:
            tables: The tables to publish, as ``schema.table``; none: all.
            creates_publication: ``all_tables``, ``filtered`` or ``disabled``.

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
                self._publish(tables, creates_publication)
            plugin = self._one("SELECT plugin FROM pg_replication_slots WHERE slot_name = %s", self._slot)
            if plugin is None:
                connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self._slot])
                return True
            if plugin != "pgoutput":
                raise ConnectError(f"the slot {self._slot} is of the plugin {plugin}", hint="Choose another slot.name.")
            return False

    def _publish(self, tables: Sequence[str], mode: str) -> None:
        from psycopg import sql

        if mode == "disabled":
            raise ConnectError(
                f"there is no publication {self._publication}",
                hint=f"Run: CREATE PUBLICATION {self._publication} FOR ALL TABLES",
            )
        name = sql.Identifier(self._publication)
        if mode == "all_tables" or not tables:
            self._execute(sql.SQL("CREATE PUBLICATION {} FOR ALL TABLES").format(name))
        else:
            parts = sql.SQL(", ").join(sql.Identifier(*table.split(".", 1)) for table in tables)
            self._execute(sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(name, parts))

    def drop_slot(self) -> None:
        """Delete the slot."""
        with self.guarded() as connection:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [self._slot])

    def tables(self) -> dict[str, int]:
        """The numbers of all tables, by ``schema.table``."""
        with self.guarded() as connection:
            return {f"{schema}.{name}": oid for oid, schema, name in connection.execute(TABLES).fetchall()}

    def relation(self, number: int, schema: str, name: str) -> tuple[Relation, TableFacts]:
        """A table as the catalog has it now."""
        with self.guarded() as connection:
            rows = connection.execute(COLUMNS, [number]).fetchall()
            key = tuple(row[0] for row in connection.execute(KEY, [number]).fetchall())
        columns = tuple(Column(column, kind, modifier, column in key) for column, kind, modifier, _ in rows)
        return Relation(number, schema, name, columns), TableFacts(key, frozenset(row[0] for row in rows if row[3]))

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

    def rows(self, relation: Relation) -> Iterator[tuple[str | None, ...]]:
        """The rows of a table as texts, inside of a `snapshot`."""
        from psycopg import sql

        columns = sql.SQL(", ").join(
            sql.SQL(
                "{0}::text" if column.kind != BOOLEAN else "CASE WHEN {0} THEN 't' WHEN NOT {0} THEN 'f' END"
            ).format(sql.Identifier(column.name))
            for column in relation.columns
        )
        query = sql.SQL("SELECT {} FROM {}").format(columns, sql.Identifier(relation.namespace, relation.name))
        with self.guarded() as connection, connection.cursor(name="penstock_snapshot") as cursor:
            cursor.itersize = FETCHED
            cursor.execute(query)
            yield from cursor

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
            found = cursor.fetchall()
        for lsn, data in found:
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
                self._connection.execute(
                    "SET datestyle TO 'ISO'; SET timezone TO 'UTC'; SET intervalstyle TO 'iso_8601'"
                )
                self._connection.execute("SET bytea_output TO 'hex'; SET extra_float_digits TO 3")
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
