"""The server's side: slots, publications, the catalog, and the stream of changes, by SQL."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.connect.connectors.postgres.pgoutput import RelationColumn, RelationMessage
from penstock.connect.connectors.postgres.position import HistoryBranch
from penstock.connect.connectors.postgres.tables import ColumnFacts, TableFacts
from penstock.connect.connectors.postgres.types import PgType, Types
from penstock.connect.data import RetriableError
from penstock.errors import ConnectError

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

__all__ = ["LOST_HINT", "Server", "SlotSnapshot", "lsn_number", "lsn_text", "with_ends"]

_LOG = own_logger(__name__)
UNKNOWN = ColumnFacts(PgType(0, ""))  # of a column that the catalog does not have any more
STATUS_SINCE = 130_000  # the version of the server that may remove the log of a slot
MESSAGES_SINCE = 140_000  # the version of the server whose plugin sends messages of applications
LOST_HINT = (
    "If the slot was deleted, or the server has removed its log (wal_status is lost in pg_replication_slots), set "
    "snapshot.mode=when_needed, or drop the slot and reset the connector's offsets: it takes a new snapshot."
)
CHANGES = """SELECT lsn::text, data FROM pg_logical_slot_peek_binary_changes(
  %s, NULL, %s, 'proto_version', '1', 'publication_names', %s, 'messages', 'true')"""
LOG_END = """SELECT lsn::text, left(pg_walfile_name(lsn), 8), (SELECT system_identifier FROM pg_control_system())
  FROM pg_current_wal_flush_lsn() lsn"""
TABLES = """SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p') AND c.relpersistence IN ('p', 'u')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 2, 3"""
COLUMN_FACTS = """SELECT a.attname, a.atttypid::int8, a.atttypmod, a.attnotnull OR (t.typtype = 'd' AND t.typnotnull),
  CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid) END, a.attgenerated <> '',
  col_description(a.attrelid, a.attnum), a.attidentity <> ''
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
  WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
IDENTITIES = {"d": "DEFAULT", "f": "FULL", "n": "NOTHING", "i": "INDEX"}
IDENTITY = """SELECT c.relreplident::text, (SELECT x.relname FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
    WHERE i.indrelid = c.oid AND i.indisreplident) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = %s AND c.relname = %s"""
ROOT = """SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.oid = pg_partition_root(%s::regclass) AND c.oid <> %s"""
KEY = """SELECT a.attname FROM (SELECT i.indrelid, i.indkey, i.indisprimary, i.indnkeyatts
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = %s AND i.indisunique ORDER BY i.indisprimary DESC, c.relname LIMIT 1) x,
  unnest(x.indkey::int2[]) WITH ORDINALITY k(number, place) JOIN pg_attribute a ON a.attnum = k.number
  WHERE a.attrelid = x.indrelid AND (NOT x.indisprimary OR k.place <= x.indnkeyatts) ORDER BY k.place"""


TableName = tuple[str, str]
Identity = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class SlotSnapshot:
    """What a slot that was just made begins with: a position, and the name of the snapshot of what is before it."""

    lsn: int
    name: str


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
        refused = "Check database.user and database.password."
        self._lasting = {  # failures of the kind "operational" that do not pass by themselves
            psycopg.errors.InvalidPassword: refused,
            psycopg.errors.InvalidAuthorizationSpecification: refused,
            psycopg.errors.QueryCanceled: "Raise database.query.timeout.ms, if no administrator has cancelled it.",
            psycopg.errors.ConfigurationLimitExceeded: "Drop a slot that nobody needs, or raise max_replication_slots.",
            psycopg.errors.ObjectNotInPrerequisiteState: LOST_HINT,
        }
        self._conninfo, self._slot, self._publication = conninfo, slot, publication
        self._statements = statements
        self._connection: psycopg.Connection[Any] | None = None
        self._reader: psycopg.Connection[Any] | None = None  # of the snapshot that is read
        self._version = 0
        self._types = Types(self._type_row)  # read once: a new value of an enum is noticed after a restart

    def close(self) -> None:
        """Close the connections."""
        for connection in (self._connection, self._reader):
            if connection is not None:
                connection.close()
        self._connection = None

    def prepare(
        self,
        tables: Sequence[tuple[str, str]],
        *,
        creates_publication: str,
        by_root: bool = False,
        published: Sequence[str] | None = None,
        needed: Sequence[str] = (),
    ) -> bool:
        """Check the server, and make the publication if it is not there.

        Args:
            tables: The tables that are captured, each a schema and a name.
            creates_publication: ``all_tables``, ``filtered``, ``no_tables`` or ``disabled``.
            by_root: Changes of partitions are published as those of the table that they are partitions of.
            published: The operations that a publication which is made has; None: all.
            needed: The operations without which one that is there gets a warning.

        Returns:
            Whether the slot is there.

        Raises:
            ConnectError: The server does not write what logical decoding needs, or the user may not read it.
        """
        level = self._one("SHOW wal_level")
        if level != "logical":
            raise ConnectError(
                f"the server writes its log with wal_level={level}",
                hint="Set wal_level=logical in postgresql.conf, and start the server again.",
            )
        if self._one("SELECT count(*) FROM pg_publication WHERE pubname = %s", self._publication) == 0:
            options = ["publish_via_partition_root = true"] if by_root else []
            options += [f"publish = '{','.join(published)}'"] if published is not None else []
            self._publish(tables, creates_publication, f" WITH ({', '.join(options)})" if options else "")
        else:
            self._warn_of_publication(needed)
            if creates_publication == "filtered" and tables:
                self._publish_also(tables)
        row = self.fetched("SELECT plugin, database FROM pg_replication_slots WHERE slot_name = %s", [self._slot])
        if not row:
            return False
        plugin, database = row[0]
        if plugin != "pgoutput":
            raise ConnectError(f"the slot {self._slot} is of the plugin {plugin}", hint="Choose another slot.name.")
        if database != self._conninfo.get("dbname"):
            raise ConnectError(
                f"the slot {self._slot} is one of the database {database}", hint="Choose another slot.name."
            )
        return True

    def has_lost_log(self) -> bool:
        """Return whether the server has removed the log that the slot needs: nobody can read it any more."""
        query = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s"
        return self._version >= STATUS_SINCE and self._one(query, self._slot) == "lost"

    def make_slot(self) -> int:
        """Make the slot, at the end of the server's log; its position."""
        ((lsn,),) = self.fetched(
            "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')", [self._slot]
        )
        return lsn_number(lsn)

    def _publish(self, tables: Sequence[tuple[str, str]], mode: str, options: str) -> None:
        from psycopg import sql

        if mode == "disabled":
            raise ConnectError(
                "Publication autocreation is disabled, please create one and restart the connector. "
                f"There is no publication {self._publication}",
                hint=f"Run: CREATE PUBLICATION {self._publication} FOR ALL TABLES",
            )
        name = sql.Identifier(self._publication)
        rest = sql.SQL(options)
        if mode == "no_tables":
            self.execute(sql.SQL("CREATE PUBLICATION {}{}").format(name, rest))
        elif mode == "all_tables":
            self.execute(sql.SQL("CREATE PUBLICATION {} FOR ALL TABLES{}").format(name, rest))
        else:
            if not tables:
                raise ConnectError(
                    f"No table filters found for filtered publication {self._publication}",
                    hint="Name tables that there are in table.include.list.",
                )
            parts = sql.SQL(", ").join(sql.Identifier(*table) for table in tables)
            self.execute(sql.SQL("CREATE PUBLICATION {} FOR TABLE {}{}").format(name, parts, rest))

    def _warn_of_publication(self, needed: Sequence[str]) -> None:
        """Say which operations a publication lacks, as one does that was made when settings left them out."""
        ((options,),) = self.fetched("SELECT to_jsonb(p) FROM pg_publication p WHERE pubname = %s", [self._publication])
        if missing := [each for each in needed if not options.get(f"pub{each}", True)]:
            _LOG.warning(
                "the publication %s has no operations of the kind %s: they do not come out. "
                "Run: ALTER PUBLICATION %s SET (publish = '%s')",
                self._publication, ", ".join(missing), self._publication, ",".join(needed),
            )  # fmt: skip

    def _publish_also(self, tables: Sequence[tuple[str, str]]) -> None:
        """Add the tables that a publication lacks, as when table.include.list has more of them than before."""
        from psycopg import sql

        rows = self.fetched(
            "SELECT n.nspname, c.relname FROM pg_publication p LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid "
            "LEFT JOIN pg_class c ON c.oid = r.prrelid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE p.pubname = %s AND NOT p.puballtables",
            [self._publication],
        )
        published = {(row[0], row[1]) for row in rows}
        missing = [table for table in tables if table not in published]
        if rows and missing:
            parts = sql.SQL(", ").join(sql.Identifier(*table) for table in missing)
            name = sql.Identifier(self._publication)
            self.execute(sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(name, parts))

    def identify(
        self, tables: Iterable[TableName], choose: Callable[[TableName], tuple[str, str | None] | None]
    ) -> None:
        """Give tables replica identities: a kind, and the name of its index. Tables of other owners keep theirs."""
        from psycopg import sql

        for table in tables:
            try:
                chosen = choose(table)
                row = self.fetched(IDENTITY, [*table]) if chosen else []
                if chosen is None or not row or chosen == (IDENTITIES.get(row[0][0]), row[0][1]):
                    continue
                kind, index = chosen
                using = sql.SQL(kind) if index is None else sql.SQL("USING INDEX {}").format(sql.Identifier(index))
                self.execute(sql.SQL("ALTER TABLE {} REPLICA IDENTITY {}").format(sql.Identifier(*table), using))
            except RetriableError:
                raise
            except ConnectError as error:
                _LOG.error("the table %s keeps its replica identity: %s", ".".join(table), error)

    def drop_slot(self) -> None:
        """Delete the slot."""
        self.execute("SELECT pg_drop_replication_slot(%s)", [self._slot])

    def tables(self) -> dict[tuple[str, str], int]:
        """The numbers of all tables, by schema and name; partitioned tables and their partitions are tables both."""
        return {(schema, name): oid for oid, schema, name in self.fetched(TABLES)}

    def relation(self, schema: str, name: str) -> tuple[RelationMessage, TableFacts] | None:
        """Return a table as the catalog has it now; None: there is no such table."""
        with self.guarded() as connection:
            number = self._one(
                "SELECT c.oid::int8 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE n.nspname = %s AND c.relname = %s",
                schema,
                name,
            )
            if number is None:
                return None
            rows = connection.execute(COLUMN_FACTS, [number]).fetchall()
            key = tuple(row[0] for row in connection.execute(KEY, [number]).fetchall())
        columns = {
            column: ColumnFacts(self._types.find(kind, modifier), required, default, is_generated, comment, is_identity)
            for column, kind, modifier, required, default, is_generated, comment, is_identity in rows
        }
        relation_columns = tuple(RelationColumn(row[0], row[1], row[2], row[0] in key) for row in rows)
        return RelationMessage(number, schema, name, relation_columns), TableFacts(key, columns)

    def typed(self, columns: Iterable[RelationColumn], facts: TableFacts) -> TableFacts:
        """The facts with the types of columns as the stream has them, which may be others than those of the catalog."""
        typed = {
            column.name: replace(
                facts.columns.get(column.name, UNKNOWN), type=self._types.find(column.kind, column.modifier)
            )
            for column in columns
        }
        return TableFacts(facts.key, typed)

    def _type_row(self, query: str) -> Sequence[Any] | None:
        with self.guarded() as connection:
            row: Sequence[Any] | None = connection.execute(query).fetchone()
            return row

    def root(self, number: int) -> tuple[str, str] | None:
        """Return the partitioned table that a table is a partition of; None: it is none."""
        with self.guarded() as connection:
            row = connection.execute(ROOT, [number, number]).fetchone()
            return None if row is None else (row[1], row[2])

    @contextmanager
    def exported(self, *, is_new: bool) -> Iterator[SlotSnapshot]:
        """Yield a snapshot of all that is before a position of the stream: that of the slot, or of a temporary one.

        Args:
            is_new: Make the slot; False: it is there, and a temporary one shows where the stream and the rows meet.
        """
        slot = self._slot if is_new else f"{self._slot[:40]}_snapshot_{secrets.token_hex(4)}"
        temporary = "" if is_new else "TEMPORARY "
        with self._replicating() as replication:
            with self._failures():
                row = replication.execute(
                    f'CREATE_REPLICATION_SLOT "{slot}" {temporary}LOGICAL pgoutput EXPORT_SNAPSHOT'
                ).fetchone()
                if row is None:
                    raise ConnectError(f"the slot {slot} was not made", hint="Look at the server's log.")
            yield SlotSnapshot(lsn_number(row[1]), row[2])

    @contextmanager
    def _replicating(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield a connection for commands of replication."""
        with self._failures():
            replication = self._psycopg.connect(**self._conninfo, replication="database", autocommit=True)
        try:
            yield replication
        finally:
            replication.close()

    @contextmanager
    def snapshot(self, name: str) -> Iterator[int]:
        """Yield a transaction in which `rows` reads what a snapshot sees; the transaction's number.

        It has a connection of its own, so that the server can be asked while rows are read, and no timeout: the time of
        a table includes that of writing its rows.
        """
        with self._failures():
            self._reader = connection = self._opened()
            try:
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                try:
                    connection.execute(f"SET TRANSACTION SNAPSHOT '{name}'")
                except (
                    self._psycopg.errors.ObjectNotInPrerequisiteState,
                    self._psycopg.errors.InvalidParameterValue,
                    self._psycopg.errors.UndefinedObject,
                ) as error:
                    raise RetriableError(f"the snapshot has ended with its connection: {_line(error)}") from error
                connection.execute("SET LOCAL statement_timeout = 0")
                row = connection.execute("SELECT txid_current()").fetchone()
                yield 0 if row is None else int(row[0]) & 0xFFFFFFFF
            finally:
                self._reader = None
                connection.close()

    def rows(self, relation: RelationMessage, statement: str = "") -> Iterator[tuple[str | None, ...]]:
        """Yield the rows of a table, or of a statement in its place, as texts, inside of a `snapshot`.

        Raises:
            ConnectError: The statement lacks a column.
        """
        from psycopg import sql

        column_names = [column.name for column in relation.columns]
        selected: sql.Composable
        if statement:
            source = sql.SQL(statement.rstrip("; \n"))
            with self._reading() as connection:
                shape = connection.execute(sql.SQL("SELECT * FROM ({}\n) penstock_rows LIMIT 0").format(source))
                there = [column.name for column in shape.description or ()]
            if missing := [name for name in column_names if name not in there]:
                raise ConnectError(
                    "Data row is smaller than a column index, internal schema representation is probably out of sync "
                    f"with real database schema: the statement for {relation.namespace}.{relation.name} lacks "
                    f"{', '.join(missing)}",
                    hint="Select all columns of the table in snapshot.select.statement.overrides.",
                )
            columns = sql.SQL(", ").join(sql.Identifier(name) for name in column_names)
            selected = sql.SQL("SELECT {} FROM ({}\n) penstock_rows").format(columns, source)
        else:
            columns = sql.SQL(", ").join(sql.Identifier(name) for name in column_names)
            selected = sql.SQL("SELECT {} FROM {}").format(columns, sql.Identifier(relation.namespace, relation.name))
        yield from self.copied(selected)

    def copied(self, query: sql.Composable) -> Iterator[tuple[str | None, ...]]:
        """Yield the rows of a query, as the texts that the stream has."""
        from psycopg import sql

        copied = sql.SQL("COPY ({}) TO STDOUT").format(query)
        with self._reading() as connection, connection.cursor() as cursor, cursor.copy(copied) as copy:
            for row in copy.rows():
                yield tuple(None if each is None else str(each) for each in row)

    def fetched(self, query: Any, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query, as Python has them."""
        with self.guarded() as connection:
            return connection.execute(query, values or None).fetchall()

    def execute(self, query: Any, values: Sequence[Any] = ()) -> None:
        """Run a statement in a transaction of its own."""
        with self.guarded() as connection:
            connection.execute(query, values or None)

    def slot_xmin(self) -> int | None:
        """Return the oldest transaction whose catalog the slot still needs."""
        value = self._one("SELECT catalog_xmin::text FROM pg_replication_slots WHERE slot_name = %s", self._slot)
        return None if value is None else int(value)

    def log_end(self) -> tuple[int, HistoryBranch]:
        """Return the end of what is safe on the server's disk, and its history.

        `changes` that are asked for later have all that is before the end.
        """
        ((lsn, timeline, system),) = self.fetched(LOG_END)
        return lsn_number(lsn), HistoryBranch(int(system), int(timeline, 16))

    def left_at(self, timeline: int, branch: HistoryBranch) -> int | None:
        """Return where the server's history has left an earlier timeline; None: it has never been on that one."""
        with self._replicating() as replication, self._failures():
            row = replication.execute(f"TIMELINE_HISTORY {branch.timeline}").fetchone()
        content = b"" if row is None else row[1]
        text = content if isinstance(content, str) else bytes(content).decode("utf-8", "replace")
        for number, lsn, *_ in (line.split() for line in text.splitlines() if line[:1].isdecimal()):
            if int(number) == timeline:
                return lsn_number(lsn)
        return None

    def changes(self, most: int) -> Iterator[tuple[int, bytes]]:
        """Return the messages behind the slot's confirmed position, about so many of them; transactions come whole."""
        with self._unlimited() as connection:
            query = CHANGES if self._version >= MESSAGES_SINCE else CHANGES.replace(", 'messages', 'true'", "")
            cursor = connection.execute(query, [self._slot, most, self._publication], binary=True)
            rows = cursor.fetchall()
        return ((lsn_number(lsn), bytes(data)) for lsn, data in rows)

    def confirmed(self) -> int | None:
        """Return the position up to which the slot lets the server forget; None: there is no slot."""
        lsn = self._one("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", self._slot)
        return None if lsn is None else lsn_number(str(lsn))

    def confirm(self, lsn: int) -> None:
        """Let the server forget what is before a position."""
        confirmed = self.confirmed()
        if confirmed is None or confirmed < lsn:
            with self._unlimited() as connection:
                connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self._slot, lsn_text(lsn)])

    @contextmanager
    def guarded(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield the connection; its failures are Connect's errors, and it is opened again after one."""
        with self._failures():
            if self._connection is None or self._connection.closed:
                self._connection = self._opened()
                self._version = self._connection.info.server_version
            yield self._connection

    @contextmanager
    def _unlimited(self) -> Iterator[psycopg.Connection[Any]]:
        """The connection, in a transaction whose statements have no timeout: their time is that of the server's log."""
        with self.guarded() as connection:
            connection.execute("BEGIN; SET LOCAL statement_timeout = 0")
            try:
                yield connection
            finally:
                if not connection.closed:
                    connection.execute("ROLLBACK")

    @contextmanager
    def _reading(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield the connection of the snapshot that is read; where there is none, the one for all else."""
        if self._reader is None:
            with self.guarded() as connection:
                yield connection
        else:
            with self._failures():
                yield self._reader

    def _opened(self) -> psycopg.Connection[Any]:
        connection = self._psycopg.connect(**self._conninfo, autocommit=True)
        try:
            _check_primary(connection)
            for each in self._statements:
                connection.execute(each)
            connection.execute(
                "SET datestyle TO 'ISO'; SET timezone TO 'UTC'; SET intervalstyle TO 'iso_8601'; "
                "SET bytea_output TO 'hex'; SET client_encoding TO 'UTF8'"
            )
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _failures(self) -> Iterator[None]:
        errors = self._psycopg
        try:
            yield
        except errors.OperationalError as error:
            self.close()
            for kind, hint in self._lasting.items():
                if isinstance(error, kind):
                    raise ConnectError(f"the database refuses: {_line(error)}", hint=hint) from error
            raise RetriableError(f"the database is away, or the slot is in use: {_line(error)}") from error
        except errors.Error as error:
            is_deleted = isinstance(error, errors.errors.UndefinedObject) and "replication slot" in str(error)
            rights = "The user needs REPLICATION, SELECT on the tables, and for a publication to own them."
            hint = LOST_HINT if is_deleted else rights
            raise ConnectError(f"the database refuses: {_line(error)}", hint=hint) from error

    def _one(self, query: str, *values: Any) -> Any:
        with self.guarded() as connection:
            row = connection.execute(query, values or None).fetchone()
            return None if row is None else row[0]


def _check_primary(connection: psycopg.Connection[Any]) -> None:
    row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    if row is not None and row[0]:
        raise RetriableError("the server is a standby: changes come when it is the primary")


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def lsn_number(text: str) -> int:
    """Return a position of PostgreSQL's log as a number.

    >>> lsn_number("1/A0"), lsn_text(4294967456)
    (4294967456, '1/A0')
    """
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(number: int) -> str:
    """Return a number as a position of PostgreSQL's log."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def with_ends(rows: Iterable[Any]) -> Iterator[tuple[Any, bool]]:
    """Yield rows, each with whether it is the last one."""
    iterator = iter(rows)
    for first in iterator:
        row = first
        for following in iterator:
            yield row, False
            row = following
        yield row, True
