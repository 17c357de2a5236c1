"""Coordination of an application's tasks and instances through the log: ledger, fencing, leases."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.errors import FencedError, LogError, other_inputs
from penstock.log.base import Lease, TopicPartition
from penstock.log.client_counts import timed
from penstock.log.embedded.coordination_rows import RecordChange, read_row
from penstock.log.embedded.database import Database
from penstock.log.embedded.streams_groups import EmbeddedStreamsCoordinator
from penstock.log.fenced_record import FencedRecord, RecordName, StoredRecord, newest_record
from penstock.log.leases import LEASE_WRITER, Leases, check_not_fenced, lease_name, lease_of
from penstock.log.streams_groups.group_refusals import shared_already

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = [
    "Coordination",
    "EmbeddedFencedRecord",
    "Lease",
    "LedgerEntry",
    "check_lease",
    "check_producer",
    "write_ledger",
]


class Coordination:
    """The ledger and leases of an embedded log."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._leases = Leases(lambda application: self.fenced_record(lease_name(application)))
        self._records: dict[tuple[RecordName, bool], tuple[tuple[str, int] | None, EmbeddedFencedRecord]] = {}

    def fenced_record(self, name: RecordName, lease: tuple[str, int] | None = None) -> FencedRecord:
        """Return a record that only one writer at a time may change.

        Args:
            name: Its name.
            lease: The application and the epoch of the lease that guards it: after it is lost, the record may not be
                changed.
        """
        entry = self._records.get((name, lease is None))
        if entry is None or entry[0] != lease:
            entry = self._records[name, lease is None] = (lease, EmbeddedFencedRecord(self, name, lease))  # type: ignore[arg-type] # a part of the log
        return entry[1]

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Begin a consistent snapshot; for the log's own parts."""
        return self._database.reading()

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """Begin a write transaction; for the log's own parts."""
        return self._database.writing()

    def ledger(self, application: str) -> dict[str, int]:
        """Return the last batch that each task has written."""
        with self._database.reading() as connection:
            return dict(
                connection.execute("SELECT task, batch FROM ledger WHERE application = ?", (application,)).fetchall()
            )

    def ledger_inputs(self, application: str) -> dict[str, str]:
        """Return the checksum of the inputs of each task's last batch; tasks without one are left out."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT task, inputs FROM ledger JOIN ledger_inputs USING (application, task, batch) "
                "WHERE application = ?",
                (application,),
            )
            return dict(rows.fetchall())

    def clear_ledger(self, application: str) -> None:
        """Delete an application's ledger; part of a reset, after its checkpoint is deleted."""
        with self._database.writing() as connection:
            for table in ("ledger", "ledger_inputs", "planned"):
                connection.execute(f"DELETE FROM {table} WHERE application = ?", (application,))  # noqa: S608

    def note_planned(self, application: str, epoch: int, batch: str) -> None:
        """Store the newest planned batch in place of the one before; it is on disk when this returns.

        Raises:
            FencedError: A newer instance has taken over.
        """
        with self._database.writing() as connection:
            check_lease(connection, application, epoch)
            connection.execute("INSERT OR REPLACE INTO planned VALUES (?, ?)", (application, batch))

    def planned(self, application: str) -> str | None:
        """Return the newest planned batch, as it was stored; None if there is none."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT batch FROM planned WHERE application = ?", (application,)).fetchone()
        return None if row is None else str(row[0])

    def new_producer_epoch(self, transactional_id: str, lease: tuple[str, int] | None = None) -> int:
        """Return the epoch of a new producer of this id, which fences the transactions of earlier ones.

        Raises:
            FencedError: ``lease``, an application and its epoch, has a newer epoch.
        """
        with self._database.writing() as connection:
            if lease is not None:
                check_lease(connection, *lease)
            row = connection.execute(
                "SELECT epoch FROM producers WHERE transactional_id = ?", (transactional_id,)
            ).fetchone()
            epoch = 0 if row is None else int(row[0]) + 1
            check_producer(connection, transactional_id, epoch)
        return epoch

    def prepare_lease(self, application: str) -> None:
        """Do nothing: the database has a table of leases."""

    def acquire_lease(
        self,
        application: str,
        owner: str,
        ttl_ms: int = 30_000,
        *,
        force: bool = False,
        replacing: Lease | None = None,
    ) -> Lease:
        """Take the right to run an application, with a new epoch.

        The lease of a live owner is not available. A lease is free when its owner has released it, when its heartbeat
        is older than its ``ttl_ms``, or when its process, if on this host, is gone.

        Args:
            application: The ``application.id``.
            owner: A name by which people recognise this instance.
            ttl_ms: The time that the lease lasts without ``renew_lease``.
            force: Take it from a live owner, whose writes are then fenced.
            replacing: A lease of this instance that the new one replaces.

        Raises:
            FencedError: Another instance runs, or has run since ``replacing``; the message names it. Or instances share
                the work of the application.
        """
        lease = self._leases.acquire(application, owner, ttl_ms, force=force, replacing=replacing)
        described = EmbeddedStreamsCoordinator(self._database).describe(application)
        if described is not None and described.members:  # from now on none joins
            self._leases.release(lease)
            raise shared_already(application, described)
        return lease

    def show_as_member(
        self, lease: Lease, topics: Iterable[str], committed: Callable[[], Mapping[TopicPartition, int]] = dict
    ) -> None:
        """Do nothing: readers of a group's members also read the lease."""

    def membership(self, timeout_s: float = 0.0) -> None:
        """Do nothing: the lease guards each commit of an application."""

    @timed("consumer", "heartbeat-ms")
    def renew_lease(self, lease: Lease) -> None:
        """Send a heartbeat; raises FencedError if a newer instance has taken over."""
        self._leases.renew(lease)

    def release_lease(self, lease: Lease) -> None:
        """Release the lease; does nothing if another instance has it."""
        self._leases.release(lease)

    def lease(self, application: str) -> Lease | None:
        """Return the lease of the instance that runs, or last ran, an application."""
        return self._leases.read(application)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A batch that a task has written, with a checksum of its inputs (empty: unknown)."""

    application: str
    task: str
    batch: int
    inputs: str = ""


def write_ledger(connection: sqlite3.Connection, entry: LedgerEntry, now_ms: int) -> bool:
    """Record a batch in the ledger; return True if this very batch is there already.

    Raises:
        FencedError: The ledger has a later batch.
        CheckpointMismatchError: The ledger has a batch of this number with other inputs.
    """
    application, task, batch, inputs = entry.application, entry.task, entry.batch, entry.inputs
    row = connection.execute(
        "SELECT batch FROM ledger WHERE application = ? AND task = ?", (application, task)
    ).fetchone()
    if row is not None and row[0] > batch:
        raise FencedError(
            f"task {task} of {application!r} wants to write batch {batch}, but batch {row[0]} is written",
            hint="an old attempt can be ignored; if the checkpoint was deleted, reset the application as well",
            application=application, task=task, batch=batch, written=row[0],
        )  # fmt: skip
    if row is not None and row[0] == batch:
        noted = connection.execute(
            "SELECT inputs FROM ledger_inputs WHERE application = ? AND task = ? AND batch = ?",
            (application, task, batch),
        ).fetchone()
        if inputs and noted is not None and noted[0] != inputs:
            raise other_inputs(task, batch, f"the ledger of {application!r}", application=application)
        return True
    connection.execute("INSERT OR REPLACE INTO ledger VALUES (?, ?, ?, ?)", (application, task, batch, now_ms))
    if inputs:
        connection.execute(
            "INSERT OR REPLACE INTO ledger_inputs VALUES (?, ?, ?, ?)", (application, task, batch, inputs)
        )
    return False


def check_producer(connection: sqlite3.Connection, transactional_id: str, epoch: int | None) -> None:
    """Raise FencedError if a newer producer has written under this id."""
    if not transactional_id or epoch is None:
        return
    row = connection.execute("SELECT epoch FROM producers WHERE transactional_id = ?", (transactional_id,)).fetchone()
    if row is not None and row[0] > epoch:
        raise FencedError(
            f"transaction {transactional_id!r} of epoch {epoch}: epoch {row[0]} has taken over",
            hint="stop this instance; the newer one continues",
            transactional_id=transactional_id, epoch=epoch, newest=row[0],
        )  # fmt: skip
    if row is None or row[0] < epoch:
        connection.execute("INSERT OR REPLACE INTO producers VALUES (?, ?)", (transactional_id, epoch))


def check_lease(connection: sqlite3.Connection, application: str, epoch: int | None) -> None:
    """Raise FencedError if a newer instance has taken this lease."""
    if epoch is not None:
        check_not_fenced(lease_of(read_row(connection, application, LEASE_WRITER)), application, epoch)


class _Transaction(Protocol):
    def require_lease(self, application: str, epoch: int) -> None: ...
    def change_record(self, change: RecordChange) -> None: ...
    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> None: ...


class _RecordLog(Protocol):
    def reading(self) -> AbstractContextManager[sqlite3.Connection]: ...
    def transaction(self, transactional_id: str, epoch: int | None = None) -> AbstractContextManager[_Transaction]: ...


class EmbeddedFencedRecord:
    """The `FencedRecord` of the embedded log.

    Args:
        log: The log.
        name: The name of the record.
        lease: The application and the epoch of the lease that guards the record; None: none does.
    """

    def __init__(self, log: _RecordLog, name: RecordName, lease: tuple[str, int] | None = None) -> None:
        self._log = log
        self._name = name
        self._lease = lease
        self._held: StoredRecord | None = None

    def read(self) -> StoredRecord:
        """Read the newest value; no writer is disturbed."""
        with self._log.reading() as connection:
            stored = read_row(connection, self._name.application, self._name.writer)
            if not self._name.is_in_topic:
                return stored
            return stored._replace(value=_in_topic(self._log, self._name))  # type: ignore[arg-type] # the log

    def take(self) -> StoredRecord:
        """Fence all earlier writers, by a new version of the same value.

        Raises:
            FencedError: A newer instance has the lease.
        """
        while True:
            stored = self.read()
            try:
                stored = self._replace(stored.value, stored.version, is_change=False)
            except FencedError as error:
                if "epoch" in error.facts:
                    raise
                continue  # changed between; each round, one writer succeeds
            self._held = stored
            return stored

    def held(self) -> StoredRecord:
        """Return the value as this writer has read or written it last; the first time it takes the record."""
        return self._held if self._held is not None else self.take()

    def replace(self, value: bytes, version: int) -> StoredRecord:
        """Replace the value of this version; it is durable when this returns.

        Raises:
            FencedError: Another writer has changed it since, or a newer instance has the lease. Nothing is written.
        """
        self._held = self._replace(value, version, is_change=True)
        return self._held

    def _replace(self, value: bytes | None, version: int, *, is_change: bool) -> StoredRecord:
        change = RecordChange(self._name, version, value)
        try:
            with self._log.transaction("") as transaction:
                if self._lease is not None:
                    transaction.require_lease(*self._lease)
                transaction.change_record(change)
                if is_change and self._name.is_in_topic:
                    transaction.append(self._name.topic, 0, _record(self._name.key, value))
        except FencedError:
            raise
        except LogError:
            if self.read().attempt != change.attempt:
                raise
        return change.done()


def _in_topic(log: TopicLog, name: RecordName) -> bytes | None:
    if name.topic not in {each.name for each in log.topics()}:
        return None
    return newest_record(log, name.topic, name.key).value


def _record(key: bytes, value: bytes | None) -> pa.RecordBatch:
    columns = {
        "timestamp": pa.array([unix_ms()], pa.int64()),
        "key": pa.array([key], pa.large_binary()),
        "value": pa.array([value], pa.large_binary()),
    }
    return pa.RecordBatch.from_pydict(columns)
