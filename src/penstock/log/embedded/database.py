"""The SQLite database of a log: its tables and their format, its connection, its lock, and short transactions.

A process has one connection per open log. SQLite's connections must not cross a fork: they are closed just before it
and opened again on the next use, in the parent and in the child.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from penstock.errors import EnvironmentProblemError, InvalidStateError, LogError
from penstock.log.url import LogUrl

__all__ = ["APPLICATION_ID", "BUSY_TIMEOUT_S", "FORMAT", "Database", "ensure_schema"]

APPLICATION_ID = 0x50454E53  # "PENS", in the file's header
FORMAT = 1

# The payload comes last: SQLite then reads the columns before it without touching the blob's overflow pages.
_TABLES = """
CREATE TABLE topics (
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, config TEXT NOT NULL, created_ms INTEGER NOT NULL);
CREATE TABLE partitions (
  id INTEGER PRIMARY KEY AUTOINCREMENT, topic_id INTEGER NOT NULL, partition INTEGER NOT NULL,
  start_offset INTEGER NOT NULL DEFAULT 0, next_offset INTEGER NOT NULL DEFAULT 0,
  cleaned_to INTEGER NOT NULL DEFAULT 0, UNIQUE (topic_id, partition));
CREATE TABLE batches (
  id INTEGER PRIMARY KEY, partition_id INTEGER NOT NULL, base_offset INTEGER NOT NULL, last_offset INTEGER NOT NULL,
  count INTEGER NOT NULL, min_ts INTEGER NOT NULL, max_ts INTEGER NOT NULL, appended_ms INTEGER NOT NULL,
  flags INTEGER NOT NULL, bytes INTEGER NOT NULL, raw_bytes INTEGER NOT NULL, payload BLOB NOT NULL);
CREATE UNIQUE INDEX batches_by_offset ON batches (
  partition_id, last_offset, base_offset, count, min_ts, max_ts, appended_ms, bytes);
CREATE TABLE group_offsets (
  name TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,
  committed_ms INTEGER NOT NULL, PRIMARY KEY (name, topic, partition)) WITHOUT ROWID;
CREATE TABLE ledger (
  application TEXT NOT NULL, task TEXT NOT NULL, batch INTEGER NOT NULL, written_ms INTEGER NOT NULL,
  PRIMARY KEY (application, task)) WITHOUT ROWID;
CREATE TABLE producers (transactional_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE leases (
  application TEXT PRIMARY KEY, owner TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,
  process_start TEXT NOT NULL,
  epoch INTEGER NOT NULL, since_ms INTEGER NOT NULL, heartbeat_ms INTEGER NOT NULL, ttl_ms INTEGER NOT NULL,
  released INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('version', 0), ('cleaned_ms', 0);
"""

# Later tables; they are added to files of earlier versions too, and older versions of Penstock ignore them.
_GROUPS = """
CREATE TABLE group_notes (
  name TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, metadata TEXT NOT NULL,
  PRIMARY KEY (name, topic, partition)) WITHOUT ROWID;
CREATE TABLE groups (
  name TEXT PRIMARY KEY, generation INTEGER NOT NULL, assignor TEXT NOT NULL, changed_ms INTEGER NOT NULL
  ) WITHOUT ROWID;
CREATE TABLE group_members (
  name TEXT NOT NULL, member TEXT NOT NULL, instance TEXT NOT NULL, client TEXT NOT NULL, host TEXT NOT NULL,
  pid INTEGER NOT NULL, process_start TEXT NOT NULL, topics TEXT NOT NULL, assignors TEXT NOT NULL,
  session_ms INTEGER NOT NULL, heartbeat_ms INTEGER NOT NULL, PRIMARY KEY (name, member)) WITHOUT ROWID;
CREATE TABLE group_targets (
  name TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, member TEXT NOT NULL,
  PRIMARY KEY (name, topic, partition)) WITHOUT ROWID;
CREATE TABLE group_owners (
  name TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, member TEXT NOT NULL,
  PRIMARY KEY (name, topic, partition)) WITHOUT ROWID;
"""

# Ids of the log and of its topics. Triggers make them, so topics that an older version creates have ids too.
_IDENTITIES = """
CREATE TABLE topic_ids (topic_id INTEGER PRIMARY KEY, id TEXT NOT NULL);
CREATE TRIGGER topic_created AFTER INSERT ON topics BEGIN
  INSERT INTO topic_ids VALUES (new.id, lower(hex(randomblob(16)))); END;
CREATE TRIGGER topic_deleted AFTER DELETE ON topics BEGIN DELETE FROM topic_ids WHERE topic_id = old.id; END;
INSERT INTO topic_ids SELECT id, lower(hex(randomblob(16))) FROM topics;
CREATE TABLE identity (id TEXT NOT NULL);
INSERT INTO identity VALUES (lower(hex(randomblob(16))));
"""
# The checksums of the inputs of the ledger's batches.
_LEDGER_INPUTS = """
CREATE TABLE ledger_inputs (
  application TEXT NOT NULL, task TEXT NOT NULL, batch INTEGER NOT NULL, inputs TEXT NOT NULL,
  PRIMARY KEY (application, task)) WITHOUT ROWID;
"""
# The newest planned batch of each application.
_PLANNED = """
CREATE TABLE planned (application TEXT PRIMARY KEY, batch TEXT NOT NULL) WITHOUT ROWID;
"""
# Records that change by compare-and-set. Earlier versions of Penstock see the leases among them as a table of theirs.
_LEASE_COLUMNS = ("application", "owner", "host", "pid", "process_start", "epoch", "since_ms", "heartbeat_ms", "ttl_ms")
_VALUE = ", ".join(f"'{name}', {{0}}{name}" for name in _LEASE_COLUMNS)
_LEASE_JSON = f"json_object({_VALUE}, 'released', json(CASE {{0}}released WHEN 0 THEN 'false' ELSE 'true' END))"
_OLD_COLUMNS = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in (*_LEASE_COLUMNS, "released"))
_FENCED_RECORDS = f"""
CREATE TABLE fenced_records (
  name TEXT PRIMARY KEY, version INTEGER NOT NULL, attempt TEXT NOT NULL, value TEXT) WITHOUT ROWID;
INSERT INTO fenced_records SELECT application || '-driver', 0, '', {_LEASE_JSON.format("")} FROM leases;
DROP TABLE leases;
CREATE VIEW leases AS SELECT {_OLD_COLUMNS} FROM fenced_records
  WHERE name = json_extract(value, '$.application') || '-driver';
CREATE TRIGGER lease_taken INSTEAD OF INSERT ON leases BEGIN
  INSERT INTO fenced_records VALUES (new.application || '-driver', coalesce((SELECT version + 1 FROM fenced_records
  WHERE name = new.application || '-driver'), 0), '', {_LEASE_JSON.format("new.")}); END;
CREATE TRIGGER lease_renewed INSTEAD OF UPDATE ON leases BEGIN
  UPDATE fenced_records SET version = version + 1, attempt = '', value = {_LEASE_JSON.format("new.")}
  WHERE name = old.application || '-driver'; END;
"""  # noqa: S608 - of constants
# After the payload, as both are read together; null in rows of earlier versions.
_CHECKSUMS = "ALTER TABLE batches ADD COLUMN checksum INTEGER"

# Streams groups: each group and member is a document; the columns are what commits and heartbeats look at.
_STREAMS_GROUPS = """
CREATE TABLE streams_groups (name TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE streams_members (
  name TEXT NOT NULL, member TEXT NOT NULL, epoch INTEGER NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,
  process_start TEXT NOT NULL, heard_ms INTEGER NOT NULL, document TEXT NOT NULL, PRIMARY KEY (name, member)
  ) WITHOUT ROWID;
"""

# The last table, or column, of each addition -> the addition.
_LATER = {
    "group_owners": _GROUPS,
    "identity": _IDENTITIES,
    "ledger_inputs": _LEDGER_INPUTS,
    "planned": _PLANNED,
    "fenced_records": _FENCED_RECORDS,
    "batches.checksum": _CHECKSUMS,
    "streams_members": _STREAMS_GROUPS,
}


def ensure_schema(connection: sqlite3.Connection, where: str) -> None:
    """Create the tables in an empty file; refuse other files.

    Raises:
        LogError: The file belongs to another program, or has another format of Penstock.
    """
    if _check(connection, where) and all(_has(connection, name) for name in _LATER):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _check(connection, where):  # another process may have been first
            _create(connection, _TABLES)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        for name, addition in _LATER.items():
            if not _has(connection, name):
                _create(connection, addition)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _create(connection: sqlite3.Connection, tables: str) -> None:
    for statement in tables.split(";\n"):
        if statement.strip():
            connection.execute(statement)


def _has(connection: sqlite3.Connection, name: str) -> bool:
    table, _, column = name.partition(".")
    if column:
        cursor = connection.execute("SELECT 1 FROM pragma_table_info(?) WHERE name = ?", (table, column))
    else:
        cursor = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,))
    return cursor.fetchone() is not None


def _check(connection: sqlite3.Connection, where: str) -> bool:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application == APPLICATION_ID:
        if version != FORMAT:
            raise LogError(
                f"{where} is a Penstock log of format {version}; this version of Penstock reads format {FORMAT}",
                hint="open it with the version of Penstock that wrote it, or name another file",
                format=version,
            )
        return True
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application or version or tables:
        raise LogError(
            f"{where} is an SQLite database, but not a Penstock log", hint="name another file; this one was not touched"
        )
    return False


BUSY_TIMEOUT_S = 60.0
_PAGE_BYTES = 16_384
_FIRST_TRY_S, _LONGEST_TRY_S = 0.000_5, 0.004  # the pauses between tries to get the write lock, at first
_TRY_OF_WAIT, _RAREST_TRY_S = 0.02, 0.05  # after a second they are a part of the wait so far
_CHECKPOINT_PAGES = 4_096  # 64 MiB of write-ahead log between checkpoints
_KEEP_WAL_BYTES = 128 * 1024 * 1024
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.005  # between two looks for the writes of other processes
_IDLE_PAUSE_S = 0.02  # the longest of them after a silence of two seconds
_PAUSE_OF_SILENCE = 0.01  # of the silence so far
_ALERT_S = 0.25  # from a write to the file until its commit shows; with a slower disk it is seen as late again
_LEAST_ALERT_S = 0.02  # after a commit, as the next one may have begun
_SPREAD, _DECAY = 4.0, 0.9  # how much longer it may take than the slowest lately
_UNTOLD_S, _MOST_UNTOLD_S = 0.25, 1.0  # between two looks while the system is to tell of a write: at least, at most
_UNTOLD_OF_SILENCE = 0.1  # of the silence so far
_MOST_UNTOLD = 3  # writes of which it has not told
_IN_MODIFY = 2


class Database:
    """The SQLite side of an embedded log.

    ``synchronous`` is the durability of a commit. ``full`` (the default) waits for the disk: a power cut loses no
    committed data, as exactly-once needs. ``normal`` loses nothing when a process or all of Spark is killed, but a
    power cut or a crash of the operating system may lose the last commits (never part of one). ``off`` leaves even
    the order of writes to the operating system.
    """

    def __init__(self, url: LogUrl) -> None:
        self.url = url
        self._lock = threading.RLock()
        self._written = threading.Condition(self._lock)
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self._pid = os.getpid()
        self._own_writes = 0
        self._changed_s = 0.0  # when a wait was last ended by a write
        self._waits = threading.Lock()  # held by the thread that the system is to tell
        self._events: FileEvents | None = None
        self._untold = 0
        self._alert_s = _ALERT_S
        self._told_s = self._commit_s = 0.0
        _OPEN.add(self)
        with self.reading():
            pass

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Begin a consistent snapshot for a few queries."""
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
        """Begin a write transaction: all of the block, or nothing. Keep it short, as other writers wait."""
        with self._begun() as connection:
            try:
                yield connection
                connection.execute("UPDATE counters SET value = value + 1 WHERE name = 'version'")
                connection.execute("COMMIT")
                self._own_writes += 1  # SQLite's data_version has only those of other connections
                self._written.notify_all()
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _begun(self) -> Iterator[sqlite3.Connection]:
        """Begin a write transaction, and hold this log's lock in the block.

        While another process has SQLite's write lock, this log's lock is free between two tries: other threads read.
        SQLite itself waits up to 100 ms between its tries: beside two processes that commit 100 times a second each, a
        third one waited for seconds.
        """
        began, pause = time.monotonic(), _FIRST_TRY_S
        while True:
            with self._lock, self._explained():
                connection = self._opened()
                waited_s = time.monotonic() - began
                if _begin_to_write(connection, is_last_try=waited_s > BUSY_TIMEOUT_S):
                    yield connection
                    return
            time.sleep(pause)
            pause = min(2 * pause, max(_LONGEST_TRY_S, _TRY_OF_WAIT * waited_s), _RAREST_TRY_S)

    def version(self) -> int:
        """Return a number that grows with every write by any process."""
        with self.reading() as connection:
            return int(connection.execute("SELECT value FROM counters WHERE name = 'version'").fetchone()[0])

    def wait_for_write(self, version: int, timeout_s: float, is_over: Callable[[], bool] = lambda: False) -> int:
        """Wait until the log's version is no longer this one or until the time-out, and return its version.

        Writes by other threads of this process end the wait at once, those by other processes within 5 ms; after a
        silence within a hundredth of it, 20 ms at most. Where the operating system tells of writes to a file, it ends
        the silence.

        Args:
            version: The version.
            timeout_s: The longest wait.
            is_over: Returns whether to wait no longer; `wake` has waiting threads ask.
        """
        began = time.monotonic()
        deadline = began + timeout_s
        longest = _longest_pause_s(began - self._changed_s)
        pause = _FIRST_PAUSE_S if longest == _LONGEST_PAUSE_S else longest
        with self._written:
            writes = self._writes()
            while (now := self.version()) == version:
                while (left := deadline - time.monotonic()) > 0 and not is_over():
                    if self.url.path is None:
                        pause = left
                    silence_s = time.monotonic() - self._changed_s
                    longest_s = min(left, max(_UNTOLD_S, _UNTOLD_OF_SILENCE * silence_s), _MOST_UNTOLD_S)
                    is_told = has_begun = self._is_told(longest_s) if silence_s > self._alert_s else None
                    if is_told is None and not is_over():
                        self._written.wait(min(pause, left))
                        pause = min(2 * pause, longest)
                        has_begun = self._is_told(0.0)
                    before, writes = writes, self._writes()
                    if writes != before:
                        self._untold += is_told is False
                        break
                    if has_begun:  # a write whose commit does not show yet
                        self._changed_s = self._told_s = time.monotonic()
                        self._alert_s, self._untold = _ALERT_S, 0
                        pause, longest = _FIRST_PAUSE_S, _LONGEST_PAUSE_S
                else:
                    return now
            self._note_change()
        return now

    def wake(self) -> None:
        """Have waiting threads ask whether their wait is over."""
        with self._written:
            self._written.notify_all()
            if self._events is not None:
                self._events.wake()

    def _note_change(self) -> None:
        """Note that a commit shows; that of the next writer may have begun, and takes as long."""
        self._changed_s = time.monotonic()
        if self._told_s:
            self._commit_s = max(self._changed_s - self._told_s, _DECAY * self._commit_s)
            self._told_s = 0.0
        self._alert_s = min(max(_LEAST_ALERT_S, _SPREAD * self._commit_s), _ALERT_S)

    def _is_told(self, timeout_s: float) -> bool | None:
        """Wait, without the lock, until the system tells of a write to the file, or `wake`; None if it tells of none.

        Another thread may be waiting so already: then this one looks for itself. A system that has not told of writes
        (a folder of another machine) is not asked again.
        """
        if self.url.path is None or self._untold >= _MOST_UNTOLD or not self._waits.acquire(blocking=False):
            return None
        try:
            if self._events is None:
                self._events = FileEvents(f"{self.url.path}-wal")
            events = self._events
            self._lock.release()
            try:
                return events.wait(timeout_s)
            finally:
                self._lock.acquire()
        except OSError:
            self._untold = _MOST_UNTOLD
            return None
        finally:
            self._waits.release()

    def _writes(self) -> tuple[int, int]:
        """Return numbers that change with the writes of this process and of others; less work than `version`."""
        with self._explained():
            return self._own_writes, int(self._opened().execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        """Close the connection; the contents of a log in memory are lost."""
        with self._lock:
            self._closed = True
            self._disconnect()
            self._written.notify_all()

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
            self._events = None

    def before_fork(self) -> None:
        """Lock this log, and close its file unless a transaction is open."""
        self._lock.acquire()
        if self.url.path is not None and self._connection is not None and not self._connection.in_transaction:
            self._disconnect()

    def after_fork(self) -> None:
        """Unlock this log, in the parent as in the child."""
        self._lock.release()

    def abandon_connection(self) -> None:
        """Drop, in the child, the connection of a parent that has forked inside a transaction, and who was waiting."""
        self._waits = threading.Lock()
        if self.url.path is not None and self._connection is not None:
            _PARENTS.append(self._connection)  # closing it here would end the parent's transaction
            self._connection = None
            self._events = None

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
    """The operating system does not allow writing to the log."""


class FileEvents:
    """The notices of Linux (inotify) of writes to a file, by whichever process.

    Raises:
        OSError: There is no such file, or the system tells of none.
    """

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(library, "inotify_init1"):
            raise OSError(errno.ENOSYS, "this system has no inotify")
        self._file = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        weakref.finalize(self, os.close, self._file)  # not before the last thread that waits has ended
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        weakref.finalize(self, os.close, self._waker)
        if library.inotify_add_watch(self._file, os.fsencode(path), _IN_MODIFY) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", path)
        self._ready = select.poll()
        self._ready.register(self._file, select.POLLIN)
        self._ready.register(self._waker, select.POLLIN)

    def wait(self, timeout_s: float) -> bool | None:
        """Wait for a write since the last wait; return whether there was one, None if `wake` has ended the wait."""
        ready = {number for number, _ in self._ready.poll(1000 * timeout_s)}
        if self._waker in ready:
            with suppress(BlockingIOError):
                os.eventfd_read(self._waker)
        if self._file not in ready:
            return None if ready else False
        with suppress(BlockingIOError):
            while os.read(self._file, 4096):
                pass
        return True

    def wake(self) -> None:
        """End the wait of a thread, or the next one; from any thread."""
        with suppress(BlockingIOError):
            os.eventfd_write(self._waker, 1)


def _longest_pause_s(silence_s: float) -> float:
    return min(max(_LONGEST_PAUSE_S, _PAUSE_OF_SILENCE * silence_s), _IDLE_PAUSE_S)


_OPEN: weakref.WeakSet[Database] = weakref.WeakSet()
_HELD: list[Database] = []
_PARENTS: list[sqlite3.Connection] = []


def _before_fork() -> None:
    for database in list(_OPEN):
        database.before_fork()
        _HELD.append(database)


def _after_fork() -> None:
    while _HELD:
        _HELD.pop().after_fork()


def _after_fork_in_child() -> None:
    for database in _HELD:
        database.abandon_connection()
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def _begin_to_write(connection: sqlite3.Connection, *, is_last_try: bool) -> bool:
    """Try to take the write lock; return whether it is taken.

    Raises:
        sqlite3.OperationalError: Another process has it at the last try.
    """
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or is_last_try:
            raise
        return False
    finally:
        connection.execute(f"PRAGMA busy_timeout = {round(1000 * BUSY_TIMEOUT_S)}")
    return True
