"""The source of changes: a snapshot of the tables, then each committed change once, in the order of commits."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

from penstock.connect.api import ExactlyOnce, SourceConnector, SourceTask
from penstock.connect.config import ConfigDef, Model
from penstock.connect.connectors.postgres.columns import Handling
from penstock.connect.connectors.postgres.envelope import CaptureSettings, Origin, TableFacts, TableForm
from penstock.connect.connectors.postgres.masks import Patterns, column_rules
from penstock.connect.connectors.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    CommitMessage,
    Delete,
    Insert,
    RelationMessage,
    Truncate,
    Update,
    parse_message,
)
from penstock.connect.connectors.postgres.postgres_settings import CONFIG, POSTGRES_MODEL
from penstock.connect.connectors.postgres.server import Server, Snapshot
from penstock.connect.data import SettingError, SourceRecord
from penstock.errors import ConnectError
from penstock.log.producer_interface import Delivery

__all__ = ["PostgresChangesConnector", "PostgresChangesTask"]

Place = tuple[int, int]
START: Place = (0, 0)
LISTS = (
    "schema.include.list", "schema.exclude.list", "table.include.list", "table.exclude.list",
    "snapshot.include.collection.list",
)  # fmt: skip
OPERATIONS: Mapping[type, str] = {Insert: "c", Update: "u", Delete: "d", Truncate: "t"}


def _conninfo(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """The connection, as psycopg's keywords."""
    keywords = {
        "host": parsed["database.hostname"],
        "port": parsed["database.port"],
        "user": parsed["database.user"],
        "password": parsed["database.password"].secret,
        "dbname": parsed["database.dbname"],
        "connect_timeout": 10,
        "application_name": "penstock-connect",
        "options": f"-c statement_timeout={parsed['database.query.timeout.ms']}",
        "keepalives": int(parsed["database.tcpKeepAlive"]),
        "sslmode": parsed["database.sslmode"],
        "sslcert": parsed["database.sslcert"],
        "sslkey": parsed["database.sslkey"],
        "sslpassword": parsed["database.sslpassword"].secret,
        "sslrootcert": parsed["database.sslrootcert"],
    }
    return {name: value for name, value in keywords.items() if value != ""}


def _key_columns(text: str) -> list[tuple[Patterns, tuple[str, ...]]]:
    """The columns of keys by tables, of ``schema.table:column,column;...``."""
    key_columns = []
    for part in text.split(";"):
        table, _, columns = part.rpartition(":")
        if table.strip():
            names = tuple(each.strip() for each in columns.split(",") if each.strip())
            key_columns.append((Patterns.of([table], "message.key.columns"), names))
    return key_columns


def _without(records: list[SourceRecord], skipped: Collection[str]) -> list[SourceRecord]:
    """The records of a change without the parts of it that are skipped: a new key is a deletion and an insert."""
    kept: list[SourceRecord] = []
    takes = True
    for record in records:
        if record.value is not None:
            takes = record.value["op"] not in skipped
        if takes:
            kept.append(record)
    return kept


class PostgresChangesTask(SourceTask):
    """The one task of a database: its slot has one reader."""

    java_class: ClassVar[str] = "io.debezium.connector.postgresql.PostgresConnectorTask"

    def start(self, settings: Mapping[str, str]) -> None:
        self._parsed = parsed = CONFIG.parse(settings)
        self._stopped = threading.Event()
        statements = [
            each.replace("\0", ";").strip()
            for each in parsed["database.initial.statements"].replace(";;", "\0").split(";")
        ]
        self._server = Server(
            _conninfo(parsed), parsed["slot.name"], parsed["publication.name"], [each for each in statements if each]
        )
        handling = Handling(
            decimals=parsed["decimal.handling.mode"],
            times=parsed["time.precision.mode"],
            intervals=parsed["interval.handling.mode"],
            hstore=parsed["hstore.handling.mode"],
            binary=parsed["binary.handling.mode"],
            unknown=parsed["include.unknown.datatypes"],
            unavailable=parsed["unavailable.value.placeholder"],
        )
        prefix, database = parsed["topic.prefix"], parsed["database.dbname"]
        self._capture = CaptureSettings(
            prefix,
            database,
            handling,
            tombstones=parsed["tombstones.on.delete"],
            columns=column_rules(settings, parsed["column.include.list"], parsed["column.exclude.list"]),
            delimiter=parsed["topic.delimiter"],
        )
        self._partition = {"server": prefix}
        self._lists = {name: Patterns.of(parsed[name], name) for name in LISTS}
        self._keys = _key_columns(parsed["message.key.columns"])
        self._overrides = {
            name.strip().lower(): settings.get(f"snapshot.select.statement.overrides.{name.strip()}", "")
            for name in parsed["snapshot.select.statement.overrides"]
        }
        self._skipped = {each.strip() for each in parsed["skipped.operations"]}
        self._forms: dict[int, TableForm] = {}
        try:
            self._prepare()
        except BaseException:
            self._server.close()
            raise
        self._done: Place = START  # the commit of which changes were made to records, and how many; 0: all of them
        self._end = 0  # the position behind that commit
        self._polled: Place = START
        self._confirmed = 0
        self._sent: Mapping[str, Any] | None = None  # the offsets of the last record that was polled, and written
        self._written: Mapping[str, Any] | None = None
        self._seen: Snapshot | None = None
        self._seen_as: tuple[str, int] | None = None
        self._last_commit = 0
        self._work = self._begin()

    def _prepare(self) -> None:
        """Check the server, make what is missing there, and read the stored offset."""
        parsed = self._parsed
        stored = self.context.offset_reader.offset(self._partition)
        is_listed = bool(self._lists["table.include.list"] or self._lists["schema.include.list"])
        tables = [name for name in self._server.tables() if self._takes(*name)] if is_listed else []
        if is_listed and not tables:
            name = "table" if self._lists["table.include.list"] else "schema"
            raise ConnectError(
                f"no table is one of {name}.include.list={','.join(parsed[f'{name}.include.list'])}",
                hint="The patterns are regular expressions of schema.table, such as public\\.orders.",
            )
        is_new = self._server.prepare(
            tables,
            creates_publication=parsed["publication.autocreate.mode"],
            by_root=parsed["publish.via.partition.root"],
        )
        if is_new and stored is not None and parsed["snapshot.mode"] == "when_needed":
            stored = None
        if is_new and stored is not None and not stored.get("snapshot"):
            self._server.drop_slot()
            raise ConnectError(
                f"the slot {parsed['slot.name']} was deleted: changes since {stored} may be lost",
                hint="Reset the connector's offsets: it then takes a new snapshot.",
            )
        self._stored = stored

    def _begin(self) -> Iterator[list[SourceRecord]]:
        """The batches of records from the stored offset on; an empty one where there is nothing at present."""
        stored, mode = self._stored, self._parsed["snapshot.mode"]
        if stored is not None and not stored.get("snapshot") and mode != "always":
            self._done = (int(stored["lsn"]), int(stored.get("events", 0)))
            if "seen" in stored:
                self._see(str(stored["seen"]), int(stored["seen_until"]))
        elif mode != "no_data":
            self._stopped.wait(self._parsed["snapshot.delay.ms"] / 1000)
            yield from self._take_snapshot()
            self._stored = {"lsn": 0}  # a failure from here on does not take another one
            self._stopped.wait(self._parsed["streaming.delay.ms"] / 1000)
        while mode == "initial_only":
            yield []
        while True:
            yield from self._stream()

    def _again(self) -> Iterator[list[SourceRecord]]:
        """Go on behind the last batch after a failure."""
        if self._stored is None or self._stored.get("snapshot"):
            yield from self._begin()
        self._done = self._polled
        while self._parsed["snapshot.mode"] == "initial_only":
            yield []
        while True:
            yield from self._stream()

    def poll(self) -> Sequence[SourceRecord] | None:
        try:
            records = next(self._work)
        except Exception:
            self._work = self._again()
            raise
        self._polled = self._done
        if not records:
            self._stopped.wait(self._parsed["poll.interval.ms"] / 1000)
            return None
        self._sent = records[-1].source_offset
        return records

    def commit_record(self, record: SourceRecord, delivery: Delivery | None) -> None:  # noqa: ARG002 - it is written
        self._written = record.source_offset

    def commit(self) -> None:
        """Let the server forget the transactions that are written as a whole."""
        offset = self._written
        if offset is not None and not offset.get("snapshot") and not offset.get("events"):
            self._confirm(int(offset.get("end", 0)))

    def _confirm(self, lsn: int) -> None:
        if lsn > self._confirmed and not self._stopped.is_set():
            self._server.confirm(lsn)
            self._confirmed = lsn

    def stop(self) -> None:
        self._stopped.set()
        if self._parsed["slot.drop.on.stop"]:
            with suppress(ConnectError):
                self._server.drop_slot()
        self._server.close()

    def _takes(self, schema: str, table: str) -> bool:
        name, lists = f"{schema}.{table}", self._lists
        if lists["table.include.list"] and not lists["table.include.list"].match(name):
            return False
        if lists["schema.include.list"] and not lists["schema.include.list"].match(schema):
            return False
        return not (lists["table.exclude.list"].match(name) or lists["schema.exclude.list"].match(schema))

    def _key_of(self, schema: str, table: str, facts: TableFacts) -> TableFacts:
        """The facts with the key that the settings give to a table."""
        for pattern, columns in self._keys:
            key = tuple(each for each in columns if each in facts.types)
            if pattern.match(f"{schema}.{table}") and key:
                return replace(facts, key=key)
        return facts

    def _see(self, text: str, until: int) -> None:
        """Note the snapshot whose rows were read; transactions that it sees are not read again, up to a position."""
        self._seen_as, self._seen = (text, until), Snapshot.parse(text)

    def _was_seen(self, begun: Begin) -> bool:
        if self._seen is None or self._seen_as is None:
            return False
        if begun.lsn > self._seen_as[1]:
            self._seen = self._seen_as = None  # committed behind the snapshot, as all that follow
            return False
        return self._seen.sees(begun.xid)

    def _offset(self, *, snapshot: bool = False) -> dict[str, Any]:
        lsn, events = self._done
        offset: dict[str, Any] = {"lsn": lsn}
        offset |= {"events": events} if events else {"end": self._end}
        if self._seen_as is not None:
            offset |= {"seen": self._seen_as[0], "seen_until": self._seen_as[1]}
        return {**offset, "snapshot": True} if snapshot else offset

    # The snapshot

    def _take_snapshot(self) -> Iterator[list[SourceRecord]]:
        """All rows of the tables, as of one moment behind the slot's begin."""
        first = self._lists["snapshot.include.collection.list"]
        tables = {
            name: oid
            for name, oid in self._server.tables().items()
            if self._takes(*name) and (not first or first.match(".".join(name)))
        }
        waiting: list[SourceRecord] = []
        with self._server.snapshot() as text:
            position = self._server.inserted()
            self._done = START  # which transactions are in the snapshot, only the snapshot knows
            self._see(text, position)
            now_us = time.time_ns() // 1000
            for name, oid in tables.items():
                relation, facts = self._server.relation(oid, *name)
                form = TableForm(self._capture, relation, self._key_of(*name, facts))
                for row in self._server.rows(relation, self._overrides.get(".".join(name).lower(), "")):
                    if len(waiting) > self._parsed["max.batch.size"]:
                        yield self._marked(waiting[:-1], snapshot=True)
                        waiting = waiting[-1:]
                    waiting += form.change("r", (None, form.row(row)), Origin(position, None, now_us, "true"))
        if waiting:  # the offset of the last row says that the snapshot is whole
            yield [*self._marked(waiting[:-1], snapshot=True), *self._marked(waiting[-1:])]

    def _marked(self, records: Sequence[SourceRecord], *, snapshot: bool = False) -> list[SourceRecord]:
        offset = self._offset(snapshot=snapshot)
        return [record.with_(source_partition=self._partition, source_offset=offset) for record in records]

    # The stream

    def _stream(self) -> Iterator[list[SourceRecord]]:
        """One look at the changes behind the confirmed position."""
        end = self._server.flushed()
        begun: Begin | None = None
        counted, is_old, any_came = 0, False, False
        waiting: list[SourceRecord] = []
        for lsn, data in self._server.changes(self._parsed["max.queue.size"]):
            any_came = True
            message = parse_message(data)
            match message:
                case Begin():
                    begun, counted, is_old = message, 0, self._is_old(message)
                case RelationMessage():
                    self._learn(message)
                case CommitMessage():
                    if not is_old:
                        self._done, self._end = (message.lsn, 0), message.end_lsn
                        waiting[-1:] = self._marked(waiting[-1:])
                    begun = None
                case Insert() | Update() | Delete() | Truncate() if begun is not None and not is_old:
                    counted += 1
                    if begun.lsn == self._done[0] and counted <= self._done[1]:
                        continue  # written before a restart in the middle of the transaction
                    if len(waiting) >= self._parsed["max.batch.size"]:
                        yield waiting
                        waiting = []
                    records = self._change(message, Origin(lsn, begun.xid, begun.time_us, sequence=self._sequence(lsn)))
                    if records:
                        self._last_commit = self._done[0] if self._done[1] == 0 else self._last_commit
                        self._done = (begun.lsn, counted)
                        waiting += self._marked(records)
        if waiting:
            yield waiting
            return
        if self._sent is self._written and self._done[1] == 0:  # nothing waits to be written
            self._confirm(self._end if any_came else end)
        yield []

    def _is_old(self, begun: Begin) -> bool:
        lsn, events = self._done
        return begun.lsn < lsn or (begun.lsn == lsn and events == 0) or self._was_seen(begun)

    def _learn(self, relation: RelationMessage) -> None:
        """Take a table's columns as the stream has them, with the key and the nulls of the catalog."""
        self._forms.pop(relation.number, None)
        number, schema, table = relation.number, relation.namespace, relation.name
        if not self._takes(schema, table):  # a partition of a table that is taken comes as that table
            root = self._server.root(number)
            if root is None or not self._takes(root[1], root[2]):
                return
            number, schema, table = root
        _, facts = self._server.relation(number, schema, table)
        facts = self._key_of(schema, table, replace(facts, types=self._server.typed(relation.columns)))
        self._forms[relation.number] = TableForm(self._capture, replace(relation, namespace=schema, name=table), facts)

    def _change(self, message: Insert | Update | Delete | Truncate, origin: Origin) -> list[SourceRecord]:
        if OPERATIONS[type(message)] in self._skipped:
            return []
        if isinstance(message, Truncate):
            forms = [self._forms[number] for number in message.relations if number in self._forms]
            return [record for form in forms for record in form.change("t", (None, None), origin)]
        form = self._forms.get(message.relation)
        if form is None:
            return []
        records = self._changed(form, message, origin)
        return records if not self._skipped else _without(records, self._skipped)

    def _changed(self, form: TableForm, message: Insert | Update | Delete, origin: Origin) -> list[SourceRecord]:
        match message:
            case Insert(_, new):
                return form.change("c", (None, form.row(new)), origin)
            case Delete(_, old, is_whole):
                return form.change("d", (form.row(old, partial=not is_whole), None), origin)
            case Update(_, old_cells, is_whole, new):
                before = None if old_cells is None else form.row(old_cells, partial=not is_whole)
                if old_cells is not None and is_whole:
                    new = tuple(was if now is UNCHANGED else now for was, now in zip(old_cells, new, strict=True))
                return form.change("u", (before, form.row(new)), origin)

    def _sequence(self, lsn: int) -> str:
        last = "null" if self._last_commit == 0 else f'"{self._last_commit}"'
        return f'[{last},"{lsn}"]'


class PostgresChangesConnector(SourceConnector):
    """The changes of PostgreSQL's tables, under the name, the settings and in the envelopes of Debezium's connector.

    First the rows (``op`` is ``r``), then each committed insert, update and delete (``c``, ``u``, ``d``), in the order
    of commits, to a topic for each table: ``prefix.schema.table``. Each change is written once, whatever crashes; a
    snapshot that is interrupted begins again. The changes come by a replication slot with the plugin pgoutput, which is
    read by SQL, so no replication connection is needed. The server keeps its log until changes are written: drop the
    slot (``SELECT pg_drop_replication_slot('debezium')``) when the connector is not needed any more.
    """

    java_class: ClassVar[str] = "io.debezium.connector.postgresql.PostgresConnector"
    experimental: ClassVar[bool] = True
    config: ClassVar[ConfigDef] = CONFIG
    model: ClassVar[Model] = POSTGRES_MODEL
    task_class: ClassVar[type[SourceTask]] = PostgresChangesTask

    def start(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        parsed = self.parse(settings)
        column_rules(settings, parsed["column.include.list"], parsed["column.exclude.list"])
        for name in parsed["snapshot.select.statement.overrides"]:
            if not settings.get(f"snapshot.select.statement.overrides.{name.strip()}"):
                raise SettingError(
                    f"snapshot.select.statement.overrides names {name}, whose statement is not there",
                    hint=f"Set snapshot.select.statement.overrides.{name.strip()}.",
                )

    def contradictions(self, parsed: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        for what in ("schema", "table", "column"):
            if parsed[f"{what}.include.list"] and parsed[f"{what}.exclude.list"]:
                yield f"{what}.exclude.list", f"it cannot be used together with {what}.include.list"

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:  # noqa: ARG002 - a slot has one reader
        return [self._settings]

    def exactly_once_support(self, settings: Mapping[str, str]) -> ExactlyOnce | None:  # noqa: ARG002 - always
        return ExactlyOnce.SUPPORTED
