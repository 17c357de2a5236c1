"""The source of changes: the task of a database, and its connector.

Whether a slot has all that follows a stored offset: nobody has moved it, and the server's history is the same.

Notifications of snapshots, as records of a topic or as lines of the log.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from penstock.base.log_lines import own_logger
from penstock.connect.api import ExactlyOnce, SourceConnector, SourceTask
from penstock.connect.config import ConfigDef, Model
from penstock.connect.connectors.postgres.captured_tables import Capture
from penstock.connect.connectors.postgres.column_masks import column_rules
from penstock.connect.connectors.postgres.envelope import (
    HEARTBEAT_KEY,
    HEARTBEAT_VALUE,
    MESSAGE_KEY,
    NOTIFICATION_KEY,
    NOTIFICATION_VALUE,
    Origin,
    TransactionMetadata,
    message_value,
    now_fields,
    snapshot_place,
    source_struct,
)
from penstock.connect.connectors.postgres.incremental import IncrementalSnapshots, Progress, row_offset
from penstock.connect.connectors.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    CommitMessage,
    Delete,
    Insert,
    LogicalMessage,
    OriginMessage,
    RelationMessage,
    Truncate,
    Update,
    parse_message,
)
from penstock.connect.connectors.postgres.position import (
    ChangePosition,
    HistoryBranch,
    Noted,
    Resume,
    is_streaming,
    with_confirmed,
)
from penstock.connect.connectors.postgres.postgres_settings import CONFIG, POSTGRES_MODEL, parse_settings, snapshot_mode
from penstock.connect.connectors.postgres.server import LOST_HINT, Server, SlotSnapshot, lsn_text, with_ends
from penstock.connect.connectors.postgres.tables import Event, TableFacts, TableForm, TableRow
from penstock.connect.data import DataError, RetriableError, SettingError, SourceRecord, Struct
from penstock.connect.data.stored_offsets import NotedOffset
from penstock.errors import ConnectError
from penstock.log.client_interfaces import Delivery

__all__ = ["PostgresChangesConnector", "PostgresChangesTask"]

_LOG = own_logger(__name__)
INITIAL, INCREMENTAL = "Initial Snapshot", "Incremental Snapshot"


@dataclass(frozen=True, slots=True)
class Notifications:
    """Makes notifications for the channels that are enabled.

    Attributes:
        connector: The connector's logical name.
        topic: The topic of the channel ``sink``; None: the channel is not enabled.
        logs: The channel ``log`` is enabled.
    """

    connector: str
    topic: str | None = None
    logs: bool = False

    @classmethod
    def of(cls, parsed: Mapping[str, Any]) -> Notifications:
        """Return the notifications of a connector's settings."""
        channels = [each.strip() for each in parsed["notification.enabled.channels"]]
        topic = parsed["notification.sink.topic.name"] if "sink" in channels else None
        return cls(parsed["topic.prefix"], topic, "log" in channels)

    def started(self) -> list[SourceRecord]:
        """Return the notification that the first snapshot begins."""
        return self.send(INITIAL, "STARTED", {})

    def in_progress(self, tables: Sequence[str], number: int) -> list[SourceRecord]:
        """Return the notification that the rows of a table are read."""
        more = {"data_collections": ",".join(tables), "current_collection_in_progress": tables[number]}
        return self.send(INITIAL, "IN_PROGRESS", more)

    def scanned(self, tables: Sequence[str], number: int, count: int) -> list[SourceRecord]:
        """Return the notification that the rows of a table are read to their end."""
        more = {
            "data_collections": ",".join(tables),
            "scanned_collection": tables[number],
            "total_rows_scanned": str(count),
            "status": "SUCCEEDED" if count else "EMPTY",
        }
        return self.send(INITIAL, "TABLE_SCAN_COMPLETED", more)

    def completed(self) -> list[SourceRecord]:
        """Return the notification that the first snapshot ends."""
        return self.send(INITIAL, "COMPLETED", {})

    def skipped(self) -> list[SourceRecord]:
        """Return the notification that there is no first snapshot."""
        return self.send(INITIAL, "SKIPPED", {})

    def incremental(self, kind: str, facts: Mapping[str, str]) -> list[SourceRecord]:
        """Return a notification of an incremental snapshot."""
        return self.send(INCREMENTAL, kind, facts)

    def send(self, aggregate: str, kind: str, more: Mapping[str, str]) -> list[SourceRecord]:
        """Return the records of a notification."""
        identity, now_ms = str(uuid.uuid4()), time.time_ns() // 1_000_000
        data = {"connector_name": self.connector, **more}
        if self.logs:
            _LOG.info("[Notification Service] %s %s %s", aggregate, kind, data)
        if self.topic is None:
            return []
        return [
            SourceRecord(
                topic=self.topic,
                key=Struct.of_checked(NOTIFICATION_KEY, [identity]),
                key_schema=NOTIFICATION_KEY,
                value=Struct.of_checked(NOTIFICATION_VALUE, [identity, kind, aggregate, data, now_ms]),
                value_schema=NOTIFICATION_VALUE,
            )
        ]


GAP_HINT = "Set snapshot.mode=when_needed, or reset the connector's offsets: it takes a new snapshot."


def moved_by_others(slot: str, at: int, most: int) -> str:
    """Return the sentence for a slot that is farther than its connector has moved it."""
    return (
        f"the slot {slot} is at {lsn_text(at)}, and the connector has moved it to {lsn_text(most)} only: it was "
        "deleted and made again, or another one has read it, and changes between are missing"
    )


def left_history(server: Server, branch: HistoryBranch, position: ChangePosition) -> str | None:
    """Return why a position is not one of a server's history; None: it is one.

    A replica that becomes the primary has all records of the log up to a place, and new ones behind it. If what was
    written is behind that place, positions of new changes may be those of changes that are lost.

    Args:
        server: The server.
        branch: Its history at present.
        position: What is written; it knows its own history.
    """
    own = position.branch
    if own is None or own == branch:
        return None
    if own.system != branch.system:
        return f"the server belongs to another cluster ({branch.system}) than the connector's offset ({own.system})"
    if branch.timeline < own.timeline:
        return (
            f"the server is on the timeline {branch.timeline}, and the connector's offset is on {own.timeline}: the "
            "server was the primary before another one"
        )
    end, written = server.left_at(own.timeline, branch), position.written
    is_an_end = position.kind is None or position.xid is None  # else it is where a change begins
    if end is not None and (written <= end if is_an_end else written < end):
        return None
    had = "nothing of this history" if end is None else f"what there was up to {lsn_text(end)}"
    return (
        f"the server has {had}, and changes up to {lsn_text(written)} are in topics: the replica that is the primary "
        "now has not received all of them"
    )


Change = Insert | Update | Delete | Truncate
KINDS: Mapping[type, str] = {Insert: "INSERT", Update: "UPDATE", Delete: "DELETE", Truncate: "TRUNCATE"}
OPERATIONS: Mapping[type, str] = {Insert: "c", Update: "u", Delete: "d", Truncate: "t"}
Offset = Mapping[str, Any]
MESSAGES = "LOGICAL_DECODING_MESSAGE"  # the collection that messages are counted in
IN_SNAPSHOT: Offset = {"snapshot": "INITIAL", "snapshot_completed": False, "last_snapshot_record": False}


class PostgresChangesTask(SourceTask):
    """The one task of a database: its slot has one reader."""

    java_class: ClassVar[str] = "io.debezium.connector.postgresql.PostgresConnectorTask"

    def start(self, settings: Mapping[str, str]) -> None:
        self._parsed = parsed = parse_settings(settings)
        self._stopped = threading.Event()
        self._capture = Capture.of(parsed, settings)
        if parsed["extended.headers.enabled"]:
            self._capture = replace(self._capture, tables=self._capture.tables.with_run(str(uuid.uuid4())))
        self._tables = self._capture.tables
        self._server = Server(
            dict(self._capture.conninfo), parsed["slot.name"], parsed["publication.name"], self._capture.statements
        )
        prefix = parsed["topic.prefix"]
        self._partition = {"server": prefix}
        self._position = ChangePosition()
        self._resume = Resume()
        self._left_out = 0  # records of the position that was written in part
        self._forms: dict[int, TableForm | None] = {}
        self._shapes: dict[int, tuple[Any, ...]] = {}
        transaction_topic = self._capture.service_topic(prefix, parsed["topic.transaction"])
        self._metadata = TransactionMetadata(transaction_topic) if parsed["provide.transaction.metadata"] else None
        self._notifications = Notifications.of(parsed)
        self._incremental = IncrementalSnapshots(self._capture, self._server, self._unreadable)
        self._last_heartbeat = time.monotonic()
        self._xmin: int | None = None
        self._xmin_read = 0.0
        self._reach = int(parsed["max.queue.size"])  # the number of changes that are asked for at once
        self._ends: deque[tuple[Offset, int]] = deque()  # offsets with the position that is safe once they are written
        self._last_end: tuple[Offset, int] | None = None  # of the records that were polled
        self._polled: Offset | None = None  # the offset of the last record that was polled, and that was written
        self._written: Offset | None = None
        self._safe = self._confirmed = 0
        self._reached = 0  # how far the slot may be
        self._idle = 0  # nothing is to be written before this position
        self._moved = 0  # the position of an offset that is written without a record
        self._noted = 0  # how far stored offsets say that the slot may be
        self._more: Offset = {}  # what the offsets of changes have while the snapshot is not complete
        self._taken: tuple[ChangePosition, Offset] = (self._position, {})
        self._snapshot = ExitStack()  # of the connection that holds the snapshot which is not read yet
        self._exported: SlotSnapshot | None = None
        self._stored: Offset | None = self.context.offset_reader.offset(self._partition)
        self._is_prepared = False
        try:
            self._prepare()
        except RetriableError as error:
            self._snapshot.close()
            if self._stored is None:  # the settings may be wrong
                self._server.close()
                raise
            _LOG.warning("the connector waits for its server: %s", error)
        except BaseException:
            self._snapshot.close()
            self._server.close()
            raise
        self._work = self._begin()

    def _prepare(self) -> None:
        """Check the server, make what is missing there, and look whether the stored offset can be gone on from."""
        parsed, capture = self._parsed, self._capture
        stored = self._stored
        tables = [name for name in self._server.tables() if capture.takes(*name)]
        if not tables:
            _LOG.warning(
                "no table is captured: the patterns of table.include.list and others are regular expressions of "
                "schema.table, such as public\\.orders"
            )
        limit = parsed["guardrail.collections.max"]
        if 0 < limit < len(tables):
            sentence = (
                f"Guardrail limit exceeded: {len(tables)} tables/collections configured for capture, "
                f"but maximum allowed is {limit}."
            )
            if parsed["guardrail.collections.limit.action"] == "fail":
                raise ConnectError(sentence, hint="Name fewer tables in table.include.list, or raise the limit.")
            _LOG.warning("%s", sentence)
        self._has_slot = self._server.prepare(
            tables,
            creates_publication=parsed["publication.autocreate.mode"],
            by_root=parsed["publish.via.partition.root"],
            published=capture.published,
            needed=capture.needed,
        )
        self._server.identify(tables, capture.identity)
        if stored is not None and ("events" in stored or int(stored.get("seen_until", 0)) > int(stored.get("lsn", 0))):
            raise ConnectError(
                "the stored offset is one of an own version, in the middle of a transaction or behind a snapshot",
                hint="Reset the connector's offsets: it then takes a new snapshot.",
            )
        self._streams = parsed["snapshot.mode"] not in ("initial_only", "always_only")
        if self._streams and self._has_slot and self._server.has_lost_log():
            if parsed["snapshot.mode"] != "when_needed":
                raise ConnectError(
                    f"the server has removed the log that the slot {parsed['slot.name']} needs: changes are lost",
                    hint=LOST_HINT,
                )
            self._server.drop_slot()
            self._has_slot = False
        self._stored = self._kept(stored) if self._streams and stored and stored.get("lsn") else stored
        self._resumes_slot = self._has_slot
        branch = self._server.log_end()[1]
        noted = Noted() if self._stored is None else Noted.of(self._stored)
        self._position = ChangePosition(branch=branch, confirmed=noted.confirmed)
        self._noted = noted.confirmed
        if self._has_slot:
            self._reached = max(self._server.confirmed() or 0, noted.confirmed)
        self._is_prepared = True
        if self._needs_snapshot():
            self._export()
        elif self._streams and not self._has_slot:
            self._reached = self._server.make_slot()
            self._position = ChangePosition(self._reached, time.time_ns() // 1000, branch=branch)
            self._has_slot = True

    def _kept(self, stored: Offset) -> Offset | None:
        """Return the stored offset; None: changes behind it may be missing, so that a new snapshot is needed.

        Raises:
            ConnectError: They are missing, and the settings ask for no new snapshot.
        """
        streams_on = is_streaming(stored)
        if self._has_slot:
            reason = self._gap(stored)
            if reason is None:
                return stored
        elif streams_on:
            reason = (
                f"The connector is trying to read change stream starting at {stored}, but this is no longer "
                f"available on the server: the slot {self._parsed['slot.name']} was deleted. Reconfigure the connector "
                "to use a snapshot mode when needed."
            )
        else:
            reason = "the slot was deleted in the middle of a snapshot"
        if streams_on and self._parsed["snapshot.mode"] != "when_needed":
            raise ConnectError(reason, hint=GAP_HINT)
        _LOG.warning("a new snapshot is taken, and rows that were deleted meanwhile stay in topics: %s", reason)
        return None

    def _gap(self, stored: Offset) -> str | None:
        """Return why changes behind a stored offset may be missing; None: the slot has all of them."""
        noted, position = Noted.of(stored), ChangePosition.of(stored)
        if noted.branch is None:  # an own version, or somebody else, has stored it
            return None
        reason = left_history(self._server, self._server.log_end()[1], position)
        at, most = self._server.confirmed() or 0, max(noted.confirmed, position.written)
        if reason is None and at > most and self._capture.confirms:
            reason = moved_by_others(self._parsed["slot.name"], at, most)
        return reason

    def _needs_snapshot(self) -> bool:
        mode = self._parsed["snapshot.mode"]
        is_stored = self._stored is not None and is_streaming(self._stored)
        return mode in ("always", "always_only") or (not is_stored and mode != "no_data")

    def _export(self) -> SlotSnapshot:
        """Make the slot, or one for the time, and hold its snapshot until the rows are read.

        Without a stream no slot stays: nobody would advance it, and the server would keep its log for ever.
        """
        self._snapshot.close()
        is_new = self._streams and not self._has_slot
        exported = self._snapshot.enter_context(self._server.exported(is_new=is_new))
        if is_new:
            self._has_slot, self._reached = True, exported.lsn
        self._exported = exported
        return exported

    # The order of work

    def _begin(self) -> Iterator[list[SourceRecord]]:
        """Yield the batches of records from the stored offset on; an empty one where there is nothing at present."""
        if not self._is_prepared:
            self._prepare()
        stored = self._stored
        if stored is not None and (is_streaming(stored) or self._is_interrupted()):
            self._continue(stored)
        if self._needs_snapshot():
            self._stopped.wait(self._parsed["snapshot.delay.ms"] / 1000)
            yield from self._take_snapshot()
            if self._streams:
                self._stopped.wait(self._parsed["streaming.delay.ms"] / 1000)
        else:
            yield from self._placed_alone(self._notifications.skipped(), stored or {})
        if not self._streams:
            while True:
                yield []
        yield from self._go_on()

    def _is_interrupted(self) -> bool:
        """Return whether topics have rows of a snapshot that was not completed, and the slot the changes since then."""
        stored = self._stored
        is_begun = stored is not None and bool(stored.get("lsn")) and not is_streaming(stored)
        return is_begun and self._streams and self._resumes_slot

    def _continue(self, stored: Offset) -> None:
        branch, confirmed = self._position.branch, max(self._position.confirmed, Noted.of(stored).confirmed)
        self._resume = Resume.of(stored)
        since = self._resume.commit
        self._position = replace(ChangePosition.of(stored), branch=branch, confirmed=confirmed, since=since)
        if self._metadata is not None and stored.get("messageType") != "COMMIT":
            self._metadata.restore(stored)
        self._incremental.restore(stored)
        self._has_snapshot = bool(stored.get("snapshot_completed") or stored.get("last_snapshot_record"))
        self._taken = self._position, self._incremental.stored()

    def _go_on(self) -> Iterator[list[SourceRecord]]:
        while True:
            yield from self._stream()

    def _caught_up(self, until: int) -> Iterator[list[SourceRecord]]:
        """Yield what a snapshot that was interrupted has missed: its rows may be deleted by now."""
        self._more = IN_SNAPSHOT
        while not (yield from self._stream(until)):
            pass
        self._more = {}

    def _again(self) -> Iterator[list[SourceRecord]]:
        """Go on behind the last batch after a failure."""
        while self._ends and self._ends[-1] is not self._last_end:  # those of records that were not polled
            self._ends.pop()
        self._forms.clear()
        self._shapes.clear()
        self._more = {}
        if self._in_snapshot:
            self._is_prepared = self._in_snapshot = False
            self._stored, self._left_out = self._polled or self._stored, 0
        if not self._is_prepared:
            return self._begin()
        self._position, incremental = self._taken
        self._resume, self._left_out = Resume.of(self._position.noted({})), 0
        if self._metadata is not None:
            self._metadata.restore(self._position.transaction)
        self._incremental = IncrementalSnapshots(self._capture, self._server, self._unreadable)
        self._incremental.restore(incremental)
        return self._go_on()

    _in_snapshot = _has_snapshot = False

    def poll(self) -> Sequence[SourceRecord] | None:
        try:
            records = next(self._work)
        except Exception:
            self._work = self._again()
            raise
        self._taken = self._position, self._incremental.stored()
        if not records:
            self._stopped.wait(self._parsed["poll.interval.ms"] / 1000)
            return None
        self._polled = records[-1].source_offset
        self._last_end = self._ends[-1] if self._ends else None
        return records

    def commit_record(self, record: SourceRecord, delivery: Delivery | None) -> None:
        self._written = record.source_offset
        while self._ends and self._ends[0][0] is self._written:
            lsn = self._ends.popleft()[1]
            if delivery is None:  # its offset is not stored
                self._idle = lsn
            else:
                self._safe = self._noted = lsn

    def moved_offsets(self) -> Sequence[tuple[Offset, Offset]]:
        """Return the offset up to which there is nothing to write, before the server may forget what is before it."""
        lsn = self._idle
        if lsn <= self._noted or self._in_snapshot or self._polled is not self._written or not self._capture.confirms:
            return ()
        self._position = replace(self._position, confirmed=lsn)
        self._moved = lsn
        return [(self._partition, self._offset())]

    def commit(self) -> None:
        """Let the server forget the transactions that are written as a whole."""
        self._noted = max(self._noted, self._moved)
        self._safe = max(self._safe, self._moved)
        self._confirm(self._safe)

    def _confirm(self, lsn: int) -> None:
        if lsn > self._confirmed and not self._stopped.is_set() and self._capture.confirms and self._has_slot:
            self._reached = max(lsn, self._reached)  # before: the answer may be lost, and the slot moved
            self._server.confirm(lsn)
            self._reach = int(self._parsed["max.queue.size"])
        self._confirmed = max(lsn, self._confirmed)

    def stop(self) -> None:
        self._stopped.set()
        self._snapshot.close()
        if self._parsed["slot.drop.on.stop"]:
            with suppress(ConnectError):
                self._server.drop_slot()
        self._server.close()

    # Records

    def _placed(self, records: Iterable[SourceRecord], offset: Offset) -> list[SourceRecord]:
        return [record.with_(source_partition=self._partition, source_offset=offset) for record in records]

    def _offset(self, more: Mapping[str, Any] | None = None, *, records: int = 0) -> Offset:
        """Return the offset of the position, with more fields, and behind more records of the same position."""
        transaction = {} if self._metadata is None else self._metadata.stored()
        self._position = replace(self._position, transaction=transaction, records=self._position.records + records)
        return self._position.noted({**self._incremental.stored(), **self._more, **(more or {})})

    def _source(self, *, snapshot: str = "false", replicated: tuple[str | None, int | None] = (None, None)) -> Origin:
        at = self._position
        return Origin(at.lsn, at.xid, at.time_us, snapshot, at.commit, self._current_xmin(), replicated)

    def _current_xmin(self) -> int | None:
        interval = self._parsed["xmin.fetch.interval.ms"]
        if interval and time.monotonic() - self._xmin_read >= interval / 1000:
            self._xmin_read = time.monotonic()
            self._xmin = self._server.slot_xmin()
        return self._xmin

    def _heartbeat(self) -> list[SourceRecord]:
        """Return a heartbeat, if its time has come."""
        interval = self._parsed["heartbeat.interval.ms"]
        if not interval or time.monotonic() - self._last_heartbeat < interval / 1000:
            return []
        self._last_heartbeat = time.monotonic()
        if query := self._parsed["heartbeat.action.query"]:
            try:
                self._server.execute(query)
            except ConnectError as error:
                _LOG.error("heartbeat.action.query has failed: %s", error)
        prefix = self._parsed["topic.prefix"]
        record = SourceRecord(
            topic=self._capture.service_topic(self._parsed["topic.heartbeat.prefix"], prefix),
            partition=0,
            key=Struct.of_checked(HEARTBEAT_KEY, [prefix]),
            key_schema=HEARTBEAT_KEY,
            value=Struct.of_checked(HEARTBEAT_VALUE, [time.time_ns() // 1_000_000]),
            value_schema=HEARTBEAT_VALUE,
        )
        return self._placed([record], self._offset())

    # The snapshot

    def _take_snapshot(self) -> Iterator[list[SourceRecord]]:
        """All rows of the tables, as of one moment: the slot's begin, or a position that the stream goes on from."""
        self._in_snapshot = True
        yield from self._placed_alone(self._notifications.started(), {})
        exported = self._exported or self._export()
        if self._is_interrupted():
            yield from self._caught_up(exported.lsn)
        yield from self._rows(exported)
        self._exported = None
        self._snapshot.close()
        self._resume, self._left_out = Resume.before(exported.lsn), 0
        at = self._at(exported.lsn, self._position.time_us, self._position.xid)
        self._position = replace(at, since=self._resume.commit)
        yield from self._placed_alone(self._notifications.completed(), self._offset())
        self._in_snapshot, self._has_snapshot = False, True
        if self._resumes_slot:
            while self._polled is not self._written:  # the slot has changes that the rows have: first they are written
                yield []
            self._idle = exported.lsn
            yield []

    def _at(self, lsn: int, time_us: int, xid: int | None) -> ChangePosition:
        """Return a position in the same history."""
        at = self._position
        return ChangePosition(lsn, time_us, xid, branch=at.branch, confirmed=at.confirmed)

    def _placed_alone(self, records: list[SourceRecord], offset: Offset) -> Iterator[list[SourceRecord]]:
        if records:
            yield self._placed(records, offset)

    def _rows(self, exported: SlotSnapshot) -> Iterator[list[SourceRecord]]:
        tables = self._capture.snapshot_order(self._server.tables())
        waiting: list[SourceRecord] = []
        last: tuple[TableForm, TableRow, str] | None = None
        most = self._parsed["max.batch.size"]
        with self._server.snapshot(exported.name) as xid:
            now_us = time.time_ns() // 1000
            self._position, more = self._at(exported.lsn, now_us, xid), self._incremental.stored()
            offset = self._position.snapshot_offset(more, is_last=False)
            forms = [form for name in tables if (form := self._snapshot_form(name)) is not None]
            names = [".".join(form.name) for form in forms]
            for number, form in enumerate(forms):
                waiting += self._placed(self._notifications.in_progress(names, number), offset)
                count = 0
                for row, is_end in with_ends(self._server.rows(form.relation, self._capture.override(form.name))):
                    place = snapshot_place(is_first_table=number == 0, is_first=count == 0, is_end=is_end)
                    count += 1
                    try:
                        read = form.row(row)
                    except DataError as error:
                        self._unreadable(error)
                        continue
                    if last is not None:
                        waiting += self._placed(self._read(*last), offset)
                    if len(waiting) >= most:
                        yield waiting
                        waiting = []
                    last = form, read, place
                done = self._notifications.scanned(names, number, count)
                waiting += self._placed(done, offset)
        if last is not None:
            final = self._placed(
                self._read(last[0], last[1], "last"), self._position.snapshot_offset(more, is_last=True)
            )
            self._mark(final, exported.lsn)
            waiting += final
        if waiting:
            yield waiting

    def _snapshot_form(self, name: tuple[str, str]) -> TableForm | None:
        table = self._server.relation(*name)
        if table is None:
            return None
        relation, facts = table
        return TableForm(self._tables, relation, self._capture.keyed(*name, facts), is_snapshot=True)

    def _read(self, form: TableForm, row: TableRow, place: str) -> list[SourceRecord]:
        (event,) = form.changed("r", None, row)
        return form.records(event, self._source(snapshot=place))

    def _mark(self, records: Sequence[SourceRecord], lsn: int) -> None:
        """Note what is safe once these records are written."""
        offset = records[-1].source_offset
        if offset is not None:
            self._ends.append((offset, lsn))

    # The stream

    def _log_end(self) -> int:
        """Return the end of the server's log, after a look at whether that has all that is written."""
        flushed, branch = self._server.log_end()
        if branch != self._position.branch:
            reason = left_history(self._server, branch, self._position)
            if reason is not None:
                raise ConnectError(reason, hint=GAP_HINT)
            self._position = replace(self._position, branch=branch)
        return flushed

    def _check_slot(self) -> None:
        """Check that nobody else has moved the slot, when changes were read from it."""
        at = self._server.confirmed()
        if at is not None and at > self._reached and self._capture.confirms:
            raise ConnectError(moved_by_others(self._parsed["slot.name"], at, self._reached), hint=GAP_HINT)

    def _stream(self, until: int | None = None) -> Generator[list[SourceRecord], None, bool]:
        """Take one look at the changes behind the confirmed position, or at those before another one.

        Returns:
            Whether all that is before the other one has come.
        """
        flushed = self._log_end()
        waiting: list[SourceRecord] = self._heartbeat()
        waiting += self._brought_out(self._incremental.go_on())
        begun: Begin | None = None
        replicated: tuple[str | None, int | None] = (None, None)
        is_old, count, any_new, end = False, 0, False, 0
        most, previous = self._parsed["max.batch.size"], 0
        changes, is_behind = self._server.changes(self._reach), False
        self._check_slot()
        for lsn, data in changes:
            message = parse_message(data)
            if until is not None and _begins_at(message) >= until:
                is_behind = True
                break
            count += 1
            if len(waiting) >= most and lsn != previous:  # a stored position stands for all messages that have it
                yield waiting
                waiting = []
            previous = lsn
            match message:
                case Begin():
                    begun, replicated = message, (None, None)
                    is_old = self._resume.has_all_of(message)
                    if not is_old:
                        any_new = True
                        waiting += self._began(message)
                case OriginMessage(origin_lsn, name):
                    replicated = name, origin_lsn
                case RelationMessage():
                    self._learn(message)
                case CommitMessage():
                    if not is_old:
                        waiting += self._committed(message, begun)
                    end = message.end_lsn
                    begun = None
                case LogicalMessage(is_transactional, message_lsn) if not is_transactional:
                    if message_lsn - 1 > self._resume.commit:  # the position is that of its end
                        any_new = True
                        waiting += self._alone(message)
                    end = message_lsn
                case LogicalMessage() if begun is not None and not is_old and not self._resume.has(begun.xid, lsn):
                    waiting += self._message(message, lsn, replicated)
                case Insert() | Update() | Delete() | Truncate() if begun is not None and not is_old:
                    if not self._resume.has(begun.xid, lsn):
                        waiting += self._change(message, lsn, replicated)
            if begun is None and end and waiting and waiting[-1].source_offset is not None:
                self._settle(waiting, end)
        if until is not None:
            is_behind |= count < self._reach and flushed >= until
        if count >= self._reach and not any_new:
            self._reach *= 2  # all of it is written, and may not be forgotten: look farther
        if waiting:
            yield waiting
            return is_behind
        if until is None and self._polled is self._written:  # nothing waits to be written
            self._idle = end if count else flushed
            if self._idle <= self._noted:
                self._confirm(self._idle)
        if not is_behind:
            yield []
        return is_behind

    def _settle(self, waiting: Sequence[SourceRecord], end: int) -> None:
        """The last record ends what is before a position."""
        offset = waiting[-1].source_offset
        if self._ends and self._ends[-1][0] is offset:
            self._ends.pop()
        if offset is not None:
            self._ends.append((offset, end))
        if isinstance(offset, NotedOffset):
            offset.note = with_confirmed(offset.note, end)
            self._position = replace(self._position, confirmed=end)

    def _began(self, begun: Begin) -> list[SourceRecord]:
        lsn = begun.lsn
        if self._resume.inside is not None and self._resume.inside[0] == begun.xid:
            return []
        at = replace(self._position, lsn=lsn, processed=lsn, begun=lsn, kind="BEGIN", records=0)
        self._position = replace(at, time_us=begun.time_us, xid=begun.xid)
        if self._metadata is None:
            return []
        return self._placed([self._metadata.begin(begun.xid, lsn, begun.time_us)], self._offset())

    def _committed(self, message: CommitMessage, begun: Begin | None) -> list[SourceRecord]:
        self._position = replace(self._position.at(message.lsn, "COMMIT"), commit=message.lsn)
        self._resume = Resume(message.lsn)
        records: list[SourceRecord] = []
        if self._metadata is not None and begun is not None:
            end = self._metadata.end(begun.time_us)
            records = self._placed([end], self._offset())
            self._metadata.close()
        return records

    def _learn(self, relation: RelationMessage) -> None:
        """Take a table's columns as the stream has them, with the key, the nulls and the defaults of the catalog."""
        schema, table = relation.namespace, relation.name
        if not self._capture.takes(schema, table):  # a partition of a table that is taken comes as that table
            root = self._server.root(relation.number)
            if root is None or not self._capture.takes(*root):
                self._forms[relation.number] = None
                return
            schema, table = root
        root_relation = self._server.relation(schema, table)
        facts = TableFacts() if root_relation is None else root_relation[1]
        shape = relation, facts.shape
        if self._shapes.get(relation.number) == shape:
            return
        self._shapes[relation.number] = shape
        facts = self._capture.keyed(schema, table, self._server.typed(relation.columns, facts))
        self._forms[relation.number] = TableForm(self._tables, replace(relation, namespace=schema, name=table), facts)

    def _change(self, message: Change, lsn: int, replicated: tuple[str | None, int | None]) -> list[SourceRecord]:
        self._position = self._position.at(lsn, KINDS[type(message)])
        written = self._resume.records_of(self._position.xid, lsn)
        records: list[SourceRecord] = []
        if isinstance(message, Truncate):
            forms = [form for number in message.relations if (form := self._forms.get(number)) is not None]
            events = [(form, Event("t")) for form in forms]
        else:
            form = self._forms.get(message.relation)
            if form is None:
                return []
            is_begun = self._left_out < written
            try:
                if isinstance(message, Insert) and not is_begun and self._incremental.is_signal_table(form.name):
                    signal = form.row(message.new)
                    records += self._brought_out(self._incremental.signalled(form, signal))
                if OPERATIONS[type(message)] in self._capture.skipped:
                    return records
                events = [(form, event) for event in self._events(form, message)]
            except DataError as error:
                self._unreadable(error)
                return records
        for form, event in events:
            if event.op in self._capture.skipped:
                continue
            self._incremental.seen(form.name, event)
            is_begun = self._left_out < written  # its first record is written, and it is counted in its transaction
            block = None if self._metadata is None or is_begun else self._metadata.count(".".join(form.name))
            event_records = form.records(event, self._source(replicated=replicated), block)
            written_before = min(len(event_records), max(0, written - self._left_out))
            self._left_out += written_before
            for record in event_records[written_before:]:
                records += self._placed([record], self._offset(records=1))
        return records

    def _unreadable(self, error: DataError) -> None:
        """Do with a row or change that cannot be read what ``event.processing.failure.handling.mode`` says."""
        mode = self._parsed["event.processing.failure.handling.mode"]
        if mode == "fail":
            raise error
        if mode == "warn":
            _LOG.warning("a change is left out: %s", error)

    def _events(self, form: TableForm, message: Insert | Update | Delete) -> list[Event]:
        match message:
            case Insert(_, new):
                return form.changed("c", None, form.row(new))
            case Delete(_, old, is_whole):
                return form.changed("d", form.row(old, partial=not is_whole), None)
            case Update(_, old_cells, is_whole, new):
                before = None if old_cells is None else form.row(old_cells, partial=not is_whole)
                if old_cells is not None and is_whole:
                    new = tuple(was if now is UNCHANGED else now for was, now in zip(old_cells, new, strict=True))
                after = form.row(new)
                if self._parsed["skip.messages.without.change"] and before is not None and before == after:
                    return []
                return form.changed("u", before, after)

    # Messages of applications

    def _alone(self, message: LogicalMessage) -> list[SourceRecord]:
        """Return the records of a message that is part of no transaction: it is its own commit."""
        now_us = time.time_ns() // 1000
        at = replace(self._position, lsn=message.lsn, time_us=now_us, xid=None, kind="MESSAGE", processed=message.lsn)
        self._position = replace(at, commit=at.commit if at.commit is not None else message.lsn - 1, records=0)
        records = self._logical(message, (None, None))
        self._position = replace(self._position, commit=message.lsn - 1)
        self._resume = Resume.before(message.lsn)
        return records

    def _message(
        self, message: LogicalMessage, lsn: int, replicated: tuple[str | None, int | None]
    ) -> list[SourceRecord]:
        self._position = self._position.at(lsn, "MESSAGE")
        return self._logical(message, replicated)

    def _logical(self, message: LogicalMessage, replicated: tuple[str | None, int | None]) -> list[SourceRecord]:
        capture = self._capture
        if not capture.takes_message(message.prefix):
            return []
        content = capture.message_content
        schema = message_value(content.schema)
        source = source_struct(
            self._parsed["topic.prefix"], self._parsed["database.dbname"], self._source(replicated=replicated)
        )
        inner = Struct.of_checked(
            schema.fields[4].schema, [message.prefix, content.read("\\x" + message.content.hex())]
        )
        metadata = self._metadata if message.is_transactional else None
        block = None if metadata is None else metadata.count(MESSAGES)
        value = Struct.of_checked(schema, ["m", now_fields()["ts_ms"], source, block, inner])
        topic, key = f"{self._parsed['topic.prefix']}.message", Struct.of_checked(MESSAGE_KEY, [message.prefix])
        record = SourceRecord(topic=topic, key=key, key_schema=MESSAGE_KEY, value=value, value_schema=schema)
        return self._placed([record], self._offset())

    # Snapshots while the stream goes on

    def _brought_out(self, events: Iterable[tuple[TableForm, Event] | Progress]) -> list[SourceRecord]:
        """Return the records of rows of an incremental snapshot, and of its progress."""
        records: list[SourceRecord] = []
        for each in events:
            if isinstance(each, Progress):
                records += self._placed(self._notifications.incremental(each.kind, each.facts), self._offset())
                continue
            table, event = each
            event_records = table.records(event, replace(self._source(snapshot="incremental"), xid=None))
            records += self._placed(event_records, self._offset(row_offset(has_snapshot=self._has_snapshot)))
        return records


def _begins_at(message: object) -> int:
    """Return where a transaction, or a message that is part of none, is committed; 0: it is neither."""
    if isinstance(message, Begin):
        return message.lsn
    return message.lsn if isinstance(message, LogicalMessage) and not message.is_transactional else 0


class PostgresChangesConnector(SourceConnector):
    """The changes of PostgreSQL's tables, under the name, the settings and in the envelopes of Debezium's connector.

    First the rows (``op`` is ``r``), then each committed insert, update and delete (``c``, ``u``, ``d``), in the order
    of commits, to a topic for each table: ``prefix.schema.table``. Each change is written once, whatever crashes; a
    snapshot that is interrupted begins again, after the changes since then. The changes come by a replication slot with
    the plugin pgoutput, which is read by SQL; a replication connection is needed for the snapshot. The server keeps its
    log until changes are written: drop the slot (``SELECT pg_drop_replication_slot('debezium')``) when the connector is
    not needed any more.

    Before it goes on, the connector checks that nothing is missing behind the stored offset. Where a slot was dropped,
    was made again or moved by others, lost its log, or belongs to a cluster with another history, it fails, or takes a
    new snapshot with ``snapshot.mode=when_needed``; rows that were deleted in between stay in topics then.
    When a replica becomes the primary, the slot has to be there (``slot.name``, not ahead of the old one), which
    PostgreSQL before version 17 does not see to by itself; and what was written has to be in its log.

    A transaction is read as a whole, whatever ``max.queue.size`` says: the task needs memory for the largest one.
    Conditions of incremental snapshots are SQL: who may insert into the table of signals may read all that the
    connector's user may.
    """

    java_class: ClassVar[str] = "io.debezium.connector.postgresql.PostgresConnector"
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
                yield f"{what}.exclude.list", f'"{what}.include.list" is already specified'
        mode = snapshot_mode(parsed)
        if mode is None or mode == "custom":
            yield "snapshot.mode", "this connector reads neither rows nor changes so; set one of the other modes"
        if "sink" in parsed["notification.enabled.channels"] and not parsed["notification.sink.topic.name"]:
            yield (
                "notification.sink.topic.name",
                "Notification topic name must be provided when kafka notification channel is enabled",
            )

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:  # noqa: ARG002 - a slot has one reader
        return [self._settings]

    def exactly_once_support(self, settings: Mapping[str, str]) -> ExactlyOnce | None:  # noqa: ARG002 - always
        return ExactlyOnce.SUPPORTED
