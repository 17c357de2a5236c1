"""What tasks and instances of an application agree on through the log: ledger, fencing, leases."""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from contextlib import AbstractContextManager
from datetime import UTC, datetime

from penstock.errors import FencedError
from penstock.log.base import Lease
from penstock.log.database import Database
from penstock.log.processes import process_start, runs_here

__all__ = ["Coordination", "Lease", "check_lease", "check_producer", "write_ledger"]


class Coordination:
    """The ledger and leases of an embedded log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """One write transaction; for the log's own parts."""
        return self._database.writing()

    def ledger(self, application: str) -> dict[str, int]:
        """Task -> last batch written."""
        with self._database.reading() as connection:
            return dict(
                connection.execute("SELECT task, batch FROM ledger WHERE application = ?", (application,)).fetchall()
            )

    def clear_ledger(self, application: str) -> None:
        """Forgets what an application has written; part of a reset, after its checkpoint is deleted."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM ledger WHERE application = ?", (application,))

    def new_producer_epoch(self, transactional_id: str) -> int:
        """The epoch of a new producer of this id: transactions of earlier ones are fenced from now on."""
        with self._database.writing() as connection:
            row = connection.execute(
                "SELECT epoch FROM producers WHERE transactional_id = ?", (transactional_id,)
            ).fetchone()
            epoch = 0 if row is None else int(row[0]) + 1
            check_producer(connection, transactional_id, epoch)
        return epoch

    def acquire_lease(self, application: str, owner: str, ttl_ms: int = 30_000, *, force: bool = False) -> Lease:
        """Takes the right to run an application, with a new epoch.

        A live owner's lease is refused. A lease is free when its owner released it, when its heartbeat is older than
        its ``ttl_ms``, or when its process on this very host is gone.

        Args:
            application: The ``application.id``.
            owner: A name that people can recognise this instance by.
            ttl_ms: How long the lease lasts without ``renew_lease``.
            force: Takes it from a live owner, whose writes are then fenced.

        Raises:
            FencedError: If another instance runs: says who, where and since when.
        """
        now = _now_ms()
        with self._database.writing() as connection:
            held = _lease(connection, application)
            if held is not None and not force and _alive(connection, held, now):
                since = datetime.fromtimestamp(held.since_ms / 1000, UTC).isoformat(timespec="seconds")
                raise FencedError(
                    f"application {application!r} runs already: {held.owner} "
                    f"(process {held.pid} on {held.host}, since {since})",
                    hint="stop that instance first, or give this one another application.id",
                    application=application, owner=held.owner, host=held.host, pid=held.pid, since_ms=held.since_ms,
                )  # fmt: skip
            epoch = (held.epoch if held else 0) + 1
            lease = Lease(
                application, owner, epoch, socket.gethostname(), os.getpid(), now, now, ttl_ms, released=False
            )
            connection.execute(
                "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
                (application, owner, lease.host, lease.pid, process_start(lease.pid), epoch, now, now, ttl_ms),
            )
        return lease

    def renew_lease(self, lease: Lease) -> None:
        """The heartbeat; raises FencedError if a newer instance has taken over."""
        with self._database.writing() as connection:
            check_lease(connection, lease.application, lease.epoch)
            connection.execute(
                "UPDATE leases SET heartbeat_ms = ? WHERE application = ?", (_now_ms(), lease.application)
            )

    def release_lease(self, lease: Lease) -> None:
        """Gives the lease back; does nothing if somebody else has it."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE leases SET released = 1 WHERE application = ? AND epoch = ?", (lease.application, lease.epoch)
            )

    def lease(self, application: str) -> Lease | None:
        """Who runs, or last ran, an application."""
        with self._database.reading() as connection:
            return _lease(connection, application)


def write_ledger(connection: sqlite3.Connection, application: str, task: str, batch: int, now_ms: int) -> bool:
    """Notes a batch; True if this very batch is noted already, FencedError if a later one is."""
    row = connection.execute(
        "SELECT batch FROM ledger WHERE application = ? AND task = ?", (application, task)
    ).fetchone()
    if row is not None and row[0] > batch:
        raise FencedError(
            f"task {task} of {application!r} wants to write batch {batch}, but batch {row[0]} is written",
            hint="an old attempt needs nothing; if the checkpoint was deleted, reset the application as well",
            application=application, task=task, batch=batch, written=row[0],
        )  # fmt: skip
    if row is not None and row[0] == batch:
        return True
    connection.execute("INSERT OR REPLACE INTO ledger VALUES (?, ?, ?, ?)", (application, task, batch, now_ms))
    return False


def check_producer(connection: sqlite3.Connection, transactional_id: str, epoch: int | None) -> None:
    """Refuses an attempt older than the newest that has written under this id."""
    if not transactional_id or epoch is None:
        return
    row = connection.execute("SELECT epoch FROM producers WHERE transactional_id = ?", (transactional_id,)).fetchone()
    if row is not None and row[0] > epoch:
        raise FencedError(
            f"transaction {transactional_id!r} of epoch {epoch}: epoch {row[0]} has taken over",
            hint="stop this instance; the newer one goes on",
            transactional_id=transactional_id, epoch=epoch, newest=row[0],
        )  # fmt: skip
    if row is None or row[0] < epoch:
        connection.execute("INSERT OR REPLACE INTO producers VALUES (?, ?)", (transactional_id, epoch))


def check_lease(connection: sqlite3.Connection, application: str, epoch: int | None) -> None:
    """Refuses an instance whose lease a newer one has taken."""
    held = None if epoch is None else _lease(connection, application)
    if held is not None and epoch is not None and held.epoch > epoch:
        raise FencedError(
            f"application {application!r}, epoch {epoch}: {held.owner} (process {held.pid} on {held.host}) "
            f"has taken over with epoch {held.epoch}",
            hint="stop this instance; the newer one goes on",
            application=application, epoch=epoch, newest=held.epoch, owner=held.owner,
        )  # fmt: skip


def _lease(connection: sqlite3.Connection, application: str) -> Lease | None:
    row = connection.execute(
        "SELECT application, owner, epoch, host, pid, since_ms, heartbeat_ms, ttl_ms, released FROM leases "
        "WHERE application = ?",
        (application,),
    ).fetchone()
    return None if row is None else Lease(row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], bool(row[8]))


def _alive(connection: sqlite3.Connection, held: Lease, now_ms: int) -> bool:
    if held.released or now_ms - held.heartbeat_ms > held.ttl_ms:
        return False
    if held.host != socket.gethostname():
        return True
    start = connection.execute(
        "SELECT process_start FROM leases WHERE application = ?", (held.application,)
    ).fetchone()[0]
    return runs_here(held.pid, start)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
