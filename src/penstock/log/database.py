"""One SQLite database of a log: its connection, its lock, and short transactions.

A process has one connection per open log. SQLite's connections must not cross a fork: they are closed just before one
and opened again on the next use, in the parent as in the child.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import EnvironmentProblemError, InvalidStateError, LogError
from penstock.log.schema import ensure_schema
from penstock.log.url import LogUrl

__all__ = ["BUSY_TIMEOUT_S", "Database"]

BUSY_TIMEOUT_S = 60.0
_PAGE_BYTES = 16_384
_CHECKPOINT_PAGES = 4_096  # 64 MiB of write-ahead log between checkpoints
_KEEP_WAL_BYTES = 128 * 1024 * 1024


class Database:
    """The SQLite side of an embedded log.

    ``synchronous`` says what a commit waits for. ``full`` (the default) waits for the disk: a power cut loses nothing
    that was committed, as exactly-once needs. ``normal`` loses nothing when a process or all of Spark is killed, but
    a power cut or a crash of the operating system may take back the last commits (never part of one). ``off`` leaves
    even the order of writes to the system.
    """

    def __init__(self, url: LogUrl) -> None:
        self.url = url
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self._pid = os.getpid()
        _OPEN.add(self)
        with self.reading():
            pass

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A consistent snapshot for a few queries."""
        with self._lock, self._explained():
            connection = self._opened()
            if connection.in_transaction:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: all of the block, or nothing. Keep it short, other writers wait."""
        with self._lock, self._explained():
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("UPDATE counters SET value = value + 1 WHERE name = 'version'")
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Closes the connection; a log in memory lives on under its name while somebody has it open."""
        with self._lock:
            self._closed = True
            self._disconnect()

    def _opened(self) -> sqlite3.Connection:
        if self._closed:
            raise InvalidStateError(f"the log {self.url.url} is closed", hint="open it again with open_log")
        if self._connection is None:
            self._connection = self._connect()
        elif self.url.path is None and self._pid != os.getpid():
            raise LogError(
                f"the log {self.url.url} lives in the memory of process {self._pid}, this is process {os.getpid()}",
                hint="use a file (sqlite:///name.db) when several processes share a log",
            )
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        path = self.url.path
        if path is not None and not path.parent.is_dir():
            raise LogError(f"the directory of the log does not exist: {path.parent}", hint=f"mkdir -p {path.parent}")
        connection = sqlite3.connect(
            str(path) if path is not None else ":memory:",
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            if path is not None:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA synchronous = {self.url.settings.get('synchronous', 'full').upper()}")
                connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
                connection.execute(f"PRAGMA journal_size_limit = {_KEEP_WAL_BYTES}")
            ensure_schema(connection, str(path) if path is not None else self.url.url)
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._explain(error) from error

    def _explain(self, error: sqlite3.Error) -> Exception:
        where = str(self.url.path or self.url.url)
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return LogError(
                f"{where}: another process has held the write lock for over {BUSY_TIMEOUT_S:.0f} s",
                hint="see which processes have the file open, and stop the one that hangs",
            )
        if code == sqlite3.SQLITE_FULL:
            return LogError(
                f"{where}: the disk is full; nothing of this write was kept", hint="free disk space, then run again"
            )
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return EnvironmentOrLogError(
                f"{where}: cannot be opened for writing ({error})",
                hint="check the permissions of the file and of its directory, or name another place",
            )
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            kind = "is not a Penstock log" if code == sqlite3.SQLITE_NOTADB else "is damaged"
            return LogError(f"{where}: {kind} ({error})", hint="name another file, or restore this one from a copy")
        return LogError(f"{where}: {error}", hint="see the cause above; nothing of this write was kept")


class EnvironmentOrLogError(LogError, EnvironmentProblemError):
    """The machine does not let us write the log."""


_OPEN: weakref.WeakSet[Database] = weakref.WeakSet()
_HELD: list[Database] = []
_PARENTS: list[sqlite3.Connection] = []


def _before_fork() -> None:
    for database in list(_OPEN):
        database._lock.acquire()  # noqa: SLF001 - the hook is part of the class, fork has no self
        _HELD.append(database)
        connection = database._connection  # noqa: SLF001
        if database.url.path is not None and connection is not None and not connection.in_transaction:
            database._disconnect()  # noqa: SLF001


def _after_fork() -> None:
    while _HELD:
        _HELD.pop()._lock.release()  # noqa: SLF001


def _after_fork_in_child() -> None:
    for database in _HELD:
        if database.url.path is not None and database._connection is not None:  # noqa: SLF001 - forked inside a transaction
            _PARENTS.append(database._connection)  # noqa: SLF001 - closing it here would end the parent's transaction
            database._connection = None  # noqa: SLF001
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
