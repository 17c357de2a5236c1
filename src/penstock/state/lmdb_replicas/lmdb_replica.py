"""The local copy of a task's stores: one LMDB environment, one sub-database a store.

A key that LMDB does not take (empty, or over 511 bytes) has another form: a long one is stored under its first 478
bytes and a digest, 510 bytes in all, and its value begins with the whole key; the empty key is stored under 511 zeros.
No other stored key has these lengths. Long keys with the same beginning lie side by side in the order of their digests,
so a scan puts each such group into the order of the keys.

A replica is only ever moved forward by whole batches: the rows of a batch, the task's numbers and the batch's own
number and checksum go into one LMDB transaction. LMDB keeps that promise against a killed process, not against a
machine that loses power (nothing is flushed: the segments are authoritative), so a replica from before the machine's
last start is thrown away, as is one that does not open, belongs to another checkpoint, or is of another format.

Two processes never use a replica at a time: the directory has numbered slots, each with a lock, and a process that
finds one taken uses the next. Between batches a process lets go of the lock but keeps the environment open
(`LmdbReplica.release`); when it takes the lock again it checks that the files are still the same, and reads how far
others have moved the replica.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb

from penstock.base.clock import boot_id
from penstock.errors import StateError
from penstock.state.free_memory import map_large_blocks
from penstock.state.maps import Entries, MemoryMap, Pieces, ReplicaPosition
from penstock.state.private_folders import folder_mode, open_lock, own_folder

if TYPE_CHECKING:
    from penstock.state.maps import ReadableMap

__all__ = [
    "ABOUT",
    "MAP_BYTES",
    "NUMBERS",
    "OWNER_LOCK",
    "STORE",
    "LmdbMap",
    "LmdbReplica",
    "LmdbRows",
    "note_use",
    "open_environment",
    "remove_files",
    "replica_description",
    "replica_place",
    "require_whole",
]

MAP_BYTES = 16 << 30  # addresses, neither memory nor disk: the file is as long as the data written
_LEAST_MAP_BYTES = 64 << 20
_OTHER_STORES = 64  # of earlier topologies, in segments; LMDB takes a kilobyte for each that might be opened
_MAX_READERS = 512  # the worker and the readers of queries; 64 bytes each in a table


def open_environment(directory: Path, map_bytes: int, stores: int, *, flushes: bool) -> Any:
    """Open or create an environment.

    Args:
        directory: Where its files are.
        map_bytes: How large it may become before it is mapped anew. Less is taken where so many addresses are not to be
            had (``ulimit -v``).
        stores: How many sub-databases of its own it will have.
        flushes: Whether each transaction is brought to the disk.
    """
    while True:
        try:
            with map_large_blocks():
                return lmdb.open(
                    str(directory),
                    map_size=map_bytes,
                    mode=folder_mode(directory),
                    max_dbs=stores + _OTHER_STORES,
                    max_readers=_MAX_READERS,
                    sync=flushes,
                    metasync=False,
                    readahead=False,
                    lock=True,
                )
        except (lmdb.MemoryError, OSError) as error:
            is_too_large = isinstance(error, lmdb.MemoryError) or error.errno == errno.ENOMEM
            if not is_too_large or map_bytes <= _LEAST_MAP_BYTES:
                raise
            map_bytes //= 4


_PREFIX_BYTES = 478
_FOLDED_BYTES = 510
_EMPTY = b"\x00" * 511
_PIECE = 4096  # entries read at a time


def are_plain(keys: Sequence[bytes]) -> bool:
    """Return whether all these keys are stored as they are."""
    lengths = set(map(len, keys))
    return not lengths or (min(lengths) > 0 and max(lengths) <= _PREFIX_BYTES)


def fold(key: bytes) -> bytes:
    """Return the bytes under which the key is stored."""
    if len(key) > _PREFIX_BYTES:
        return key[:_PREFIX_BYTES] + hashlib.blake2b(key, digest_size=_FOLDED_BYTES - _PREFIX_BYTES).digest()
    return key or _EMPTY


def fold_entry(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the entry as it is stored."""
    if len(key) > _PREFIX_BYTES:
        return fold(key), len(key).to_bytes(4, "big") + key + value
    return key or _EMPTY, value


def unfold(stored: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the entry as it was put in."""
    if len(stored) == _FOLDED_BYTES:
        end = 4 + int.from_bytes(value[:4], "big")
        return value[4:end], value[end:]
    return (b"" if stored == _EMPTY else stored), value


def scan_folded(
    transaction: Any, database: Any, start: bytes | None, end: bytes | None, *, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Yield entries with start <= key < end in byte order of the whole keys."""
    empty = transaction.get(_EMPTY, None, database) if not start and end != b"" else None
    if empty is not None and not reverse:
        yield b"", empty
    stored = _backward(transaction, database, start, end) if reverse else _forward(transaction, database, start, end)
    group: list[tuple[bytes, bytes]] = []
    for key, value in stored:
        if len(key) < _FOLDED_BYTES:
            if group:
                yield from _group(group, start, end, reverse=reverse)
                group = []
            yield key, value
        elif len(key) == _FOLDED_BYTES:
            if group and group[0][0][:_PREFIX_BYTES] != key[:_PREFIX_BYTES]:
                yield from _group(group, start, end, reverse=reverse)
                group = []
            group.append((key, value))
    yield from _group(group, start, end, reverse=reverse)
    if empty is not None and reverse:
        yield b"", empty


def scan_plain(cursor: Any, start: bytes, end: bytes) -> list[tuple[bytes, bytes]] | None:
    """Return the stored entries with start <= key < end, for plain bounds; None when one is not stored as it is."""
    entries: list[tuple[bytes, bytes]] = []
    if not cursor.set_range(start):
        return entries
    for entry in cursor.iternext():
        key = entry[0]
        if key >= end:
            return entries
        if len(key) >= _FOLDED_BYTES:
            return None
        entries.append(entry)
    return entries


def read_folded(transaction: Any, database: Any, start: bytes, end: bytes, limit: int) -> Entries | None:
    """Return keys and values of `scan_folded`; None for more than ``limit``. Plain keys are read in pieces."""
    keys: list[bytes] = []
    values: list[bytes] = []
    cursor = transaction.cursor(database)
    plain = 0 < len(start) <= _PREFIX_BYTES
    if plain and not cursor.set_range(start):
        return keys, values
    stored = cursor.iternext()
    while plain and len(keys) <= limit:
        piece = list(islice(stored, min(_PIECE, limit + 1 - len(keys))))
        if not piece:
            break
        more_keys, more_values = zip(*piece, strict=True)
        plain = max(map(len, more_keys)) < _FOLDED_BYTES
        inside = bisect_left(more_keys, end)
        keys += more_keys[:inside]
        values += more_values[:inside]
        if inside < len(piece):
            break
    if not plain:
        entries = list(islice(scan_folded(transaction, database, start, end, reverse=False), limit + 1))
        keys, values = [key for key, _ in entries], [value for _, value in entries]
    return None if len(keys) > limit else (keys, values)


def _group(
    group: list[tuple[bytes, bytes]], start: bytes | None, end: bytes | None, *, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    for key, value in sorted((unfold(*entry) for entry in group), reverse=reverse):
        if (start is None or key >= start) and (end is None or key < end):
            yield key, value


def _forward(transaction: Any, database: Any, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    """Yield stored entries from the start on; of long keys possibly some outside the range."""
    cursor = transaction.cursor(database)
    first = start[:_PREFIX_BYTES] if start else None
    if not (cursor.set_range(first) if first else cursor.first()):
        return
    for key, value in cursor.iternext():
        if len(key) >= _FOLDED_BYTES:
            if end is not None and len(key) == _FOLDED_BYTES and key[:_PREFIX_BYTES] > end[:_PREFIX_BYTES]:
                return
        elif end is not None and key >= end:
            return
        elif start is not None and key < start:
            continue  # the beginning that a long start was cut to
        yield key, value


def _backward(transaction: Any, database: Any, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    cursor = transaction.cursor(database)
    last = None
    if end is not None:
        last = end if len(end) <= _PREFIX_BYTES else end[:_PREFIX_BYTES].ljust(511, b"\xff")
    if last == b"":
        return
    if not (cursor.set_range(last) if last else cursor.last()) and not cursor.last():
        return
    for key, value in cursor.iterprev():
        if len(key) >= _FOLDED_BYTES:
            if start is not None and len(key) == _FOLDED_BYTES and key[:_PREFIX_BYTES] < start[:_PREFIX_BYTES]:
                return
        elif start is not None and key < start:
            return
        elif end is not None and key >= end:
            continue
        yield key, value


_FORMAT = 1
_FIRST_SLOT = "slot-0"
_MOST_MISSES = 5
OWNER_LOCK = "owner.lock"
_LARGE_ROWS = 100_000  # of a transaction: some tens of megabytes
ABOUT = b"about"
NUMBERS = b"numbers"
STORE = b"store/"


class LmdbReplica:
    """The `Replica` of one task in LMDB, owned by this process.

    Args:
        root: The directory of the replicas of this task and checkpoint.
        identity: The identity that the replica must have; a replica of another one is emptied.
        stores: The stores that readers will ask for.
        map_bytes: The size beyond which its file has to be mapped anew, for which all readers of this process must be
            closed.
    """

    def __init__(self, root: Path, identity: str, stores: Iterable[str], *, map_bytes: int = MAP_BYTES) -> None:
        self._directory, self._lock = _take_slot(root)
        self.readable_stores = tuple(stores)
        self.quiesce: Callable[[], None] = lambda: None  # waits until no other reader of this process is open
        self._about = replica_description(identity)
        self._map_bytes = map_bytes
        self._stores: dict[str, Any] = {}
        self._env: Any = None
        self._opened: list[tuple[int, int]] = []
        self.position = ReplicaPosition()
        self.applied_rows = 0  # since it was opened
        self._most_rows = 0  # of a transaction, since the environment was opened
        try:
            self._open()
            self.position = self._read_position()
        except (lmdb.Error, OSError, ValueError, KeyError):
            self.reset()
        else:
            if self._read_about() != self._about:
                self.reset()

    @property
    def directory(self) -> Path:
        """The directory of its files."""
        return self._directory

    def is_there(self) -> bool:
        """Return whether its files are still in place (another process may have deleted the directory)."""
        return (self._directory / "data.mdb").exists()

    def reset(self) -> None:
        """Empty the replica."""
        self.quiesce()
        self._close_env()
        remove_files(self._directory)
        if not self._directory.exists():
            self._lock.close()
            self._directory, self._lock = _take_slot(self._directory.parent)
        self.position = ReplicaPosition()
        try:
            self._open()
            with self._env.begin(write=True) as transaction:
                transaction.put(ABOUT, json.dumps(self._about).encode(), db=self._numbers)
                self._write_position(transaction, self.position)
        except (lmdb.Error, OSError) as error:
            raise self.unusable(error) from error

    def apply(
        self,
        stores: Sequence[str],
        changes: Pieces,
        position: ReplicaPosition,
        *,
        fresh: bool = False,
    ) -> None:
        """Apply these changes and move to ``position``, in one transaction; no reader may be open in this process.

        Args:
            stores: The stores that change.
            changes: Returns for a store pieces of (keys in byte order, values); None deletes.
            position: The position afterwards.
            fresh: Whether the changes are the whole contents (a snapshot) and the replica is empty.
        """

        def write(transaction: Any, databases: Mapping[str, Any]) -> int:
            return sum(_write(transaction, at, changes(store), append=fresh) for store, at in databases.items())

        self.applied_rows += self._move(stores, write, position)

    def clear(self, stores: Iterable[str], position: ReplicaPosition) -> None:
        """Delete all rows of these stores and move to ``position``, in one transaction."""

        def drop(transaction: Any, databases: Mapping[str, Any]) -> int:
            for database in databases.values():
                transaction.drop(database, delete=False)
            return 0

        self._move(stores, drop, position)

    def _move(
        self, stores: Iterable[str], write: Callable[[Any, Mapping[str, Any]], int], position: ReplicaPosition
    ) -> int:
        """Write to these stores and move to ``position``, in one transaction; in a larger file if this one is full."""
        names = tuple(stores)
        while True:
            try:
                databases = {store: self.database(store) for store in names}
                with self._env.begin(write=True) as transaction:
                    rows = write(transaction, databases)
                    self._write_position(transaction, position)
            except lmdb.MapFullError:
                self.quiesce()  # LMDB resizes only when no reader of this process is open
                self._env.set_mapsize(self._env.info()["map_size"] * 2)
            except (lmdb.DiskError, OSError) as error:
                raise self.unusable(error) from error
            else:
                self.position = position
                self._most_rows = max(self._most_rows, rows)
                return rows

    def give_back(self) -> bool:
        """Let go of the memory that large transactions have left; return whether there were any.

        LMDB keeps a buffer for each page that a transaction has changed, for the next one, until its file is closed: up
        to 512 MB. No reader may be open in this process.
        """
        if self._most_rows < _LARGE_ROWS:
            return False
        self.quiesce()
        self._close_env()
        self._open()
        return True

    def reader(self) -> LmdbRows:
        """Return a consistent view of the present contents; close it before the next `apply`."""
        return LmdbRows(self._env.begin(), self.database, self.position)

    @property
    def transaction_number(self) -> int:
        """The number of the last transaction, also of another process."""
        return int(self._env.info()["last_txnid"])

    def newest_reader(self) -> LmdbRows:
        """Return a view of the contents that another process may have written; ``position`` is theirs from now on."""
        try:
            transaction = self._env.begin()
        except lmdb.MapResizedError:
            self.quiesce()
            self._env.set_mapsize(0)  # the size that the other process has set
            transaction = self._env.begin()
        self.position = ReplicaPosition.load(transaction.get(NUMBERS, None, self._numbers))
        return LmdbRows(transaction, self.database, self.position)

    def database(self, store: str) -> Any:
        """Return the sub-database of a store; to be called once before a reader that is to see the store."""
        database = self._stores.get(store)
        if database is None:
            database = self._stores[store] = self._env.open_db(STORE + store.encode())
        return database

    def store_names(self) -> list[str]:
        """Return the stores that it holds rows of."""
        with self._env.begin() as transaction:
            names = [bytes(key) for key in transaction.cursor().iternext(keys=True, values=False)]
        return [name.removeprefix(STORE).decode() for name in names if name.startswith(STORE)]

    def release(self) -> None:
        """Let other processes use it; `retake` comes before the next use."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def retake(self) -> bool:
        """Take its slot again; return False if another process has it, or the replica has been replaced."""
        if self._directory.name != _FIRST_SLOT:  # a process that closes one of the others empties it
            return False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        try:
            if self._identities() != self._opened:
                return False
            try:
                self.position = self._read_position()
            except lmdb.MapResizedError:
                self.quiesce()
                self._env.set_mapsize(0)  # the size that the other process has set
                self.position = self._read_position()
            self._env.reader_check()  # readers of killed processes keep LMDB from using old pages again
        except (lmdb.Error, OSError, ValueError, KeyError):
            return False
        return True

    def _identities(self) -> list[tuple[int, int]]:
        """Return the identities of its open files, if those are still the ones in its directory."""
        lock = os.fstat(self._lock.fileno())
        files = [(self._directory / name).stat() for name in ("data.mdb", OWNER_LOCK)]
        return [(each.st_dev, each.st_ino) for each in (*files, lock)]

    def close(self) -> None:
        """Close it and let go of its slot; a slot besides the first is emptied."""
        self._close_env()
        if self._directory.name != _FIRST_SLOT:
            remove_files(self._directory)
        else:
            note_use(self._directory)
        self._lock.close()

    def _open(self) -> None:
        flushes = self._about["boot"] == ""
        self._env = open_environment(self._directory, self._map_bytes, len(self.readable_stores), flushes=flushes)
        require_whole(self._env, self._directory)
        self._stores = {}
        self._most_rows = 0
        self._opened = self._identities()
        self._env.reader_check()
        self._numbers = self._env.open_db(b"numbers")
        for store in self.readable_stores:
            self.database(store)

    def _close_env(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None

    def _read_about(self) -> Any:
        with self._env.begin(db=self._numbers) as transaction:
            return json.loads(transaction.get(ABOUT) or b"{}")

    def _read_position(self) -> ReplicaPosition:
        with self._env.begin(db=self._numbers) as transaction:
            numbers = transaction.get(NUMBERS)
        return ReplicaPosition.load(numbers)

    def _write_position(self, transaction: Any, position: ReplicaPosition) -> None:
        transaction.put(NUMBERS, position.dump(), db=self._numbers)

    def unusable(self, error: Exception) -> StateError:
        """Return the error for a replica that cannot be written."""
        return StateError(
            f"the state replica in {self._directory} could not be written: {error}",
            hint="Free space there, or set state.dir to a larger disk. Nothing is lost: it is rebuilt.",
            directory=str(self._directory),
        )


class LmdbRows:
    """The rows of a replica at one moment: a transaction of LMDB, until it is closed.

    Args:
        transaction: The transaction.
        database: Returns the sub-database of a store; None while it has no rows.
        position: The position that the rows stand for.
    """

    def __init__(self, transaction: Any, database: Callable[[str], Any], position: ReplicaPosition) -> None:
        self._transaction = transaction
        self._database = database
        self.position = position

    def map(self, store: str) -> ReadableMap:
        """Return the rows of one store."""
        database = self._database(store)
        return MemoryMap() if database is None else LmdbMap(self._transaction, database)

    def close(self) -> None:
        self._transaction.abort()


class LmdbMap:
    """The committed rows of one store: the reading half of a byte map."""

    __slots__ = ("_database", "_get", "_transaction")

    def __init__(self, transaction: Any, database: Any) -> None:
        self._transaction = transaction
        self._database = database
        self._get = transaction.get

    def __len__(self) -> int:
        return int(self._transaction.stat(self._database)["entries"])

    @property
    def size_bytes(self) -> int:
        """The bytes of the pages that hold its rows."""
        statistics = self._transaction.stat(self._database)
        return int(
            statistics["psize"] * sum(statistics[pages] for pages in ("branch_pages", "leaf_pages", "overflow_pages"))
        )

    def get(self, key: bytes) -> bytes | None:
        stored = fold(key)
        value = self._get(stored, None, self._database)
        return None if value is None else unfold(stored, value)[1]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not are_plain(keys):
            return [self.get(key) for key in keys]
        get, database = self._get, self._database
        return [get(key, None, database) for key in keys]

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return entries with start <= key < end in byte order."""
        return scan_folded(self._transaction, self._database, start, end, reverse=reverse)

    def scan_many(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        """Return the entries of each range."""
        ranges = list(ranges)
        if not are_plain([bound for one in ranges for bound in one]):
            return [list(self.scan(start, end)) for start, end in ranges]
        cursor = self._transaction.cursor(self._database)
        results = []
        for start, end in ranges:
            entries = scan_plain(cursor, start, end)
            results.append(list(self.scan(start, end)) if entries is None else entries)
        return results

    def read(self, start: bytes, end: bytes, limit: int) -> Entries | None:
        """Return keys and values of `scan`; None when there are more than ``limit``."""
        return read_folded(self._transaction, self._database, start, end, limit)


def _write(
    transaction: Any,
    database: Any,
    pieces: Iterable[tuple[list[bytes], list[bytes | None]]],
    *,
    append: bool,
) -> int:
    cursor, rows = transaction.cursor(database), 0
    for keys, values in pieces:
        rows += len(keys)
        plain = are_plain(keys)
        entries: Iterable[tuple[bytes, bytes | None]] = zip(keys, values, strict=True)
        if None in values:
            append = False
            gone = [key for key, value in zip(keys, values, strict=True) if value is None]
            delete = transaction.delete
            for key in gone if plain else map(fold, gone):
                delete(key, b"", database)
            entries = [entry for entry in entries if entry[1] is not None]
        if not plain:
            append = False  # folded keys are not in the order of the keys
            entries = [fold_entry(key, value) for key, value in entries if value is not None]
        cursor.putmulti(entries, append=append)
    return rows


def _take_slot(root: Path) -> tuple[Path, Any]:
    """Take the first slot that no living process holds; return it and its lock."""
    number = misses = 0
    while True:
        directory = root / f"slot-{number}"
        try:
            own_folder(directory)
            lock = open_lock(directory / OWNER_LOCK)
        except OSError as error:
            misses += 1
            if isinstance(error, FileNotFoundError) and misses < _MOST_MISSES:
                continue  # another process has removed the empty folder around it just now
            raise StateError(
                f"the state directory {directory} cannot be used: {error}",
                hint="Set state.dir to a directory that this process may write to.",
                directory=str(directory),
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            number += 1
        else:
            for scratch in directory.glob(".section.*"):  # which earlier versions have left behind when killed
                scratch.unlink(missing_ok=True)
            return directory, lock


def require_whole(environment: Any, directory: Path) -> None:
    """Check that a file has all pages that it says, as after a power cut it may not: to read one would end the process.

    Raises:
        lmdb.CorruptedError: It has been cut short.
    """
    pages = environment.info()["last_pgno"] + 1
    if (directory / "data.mdb").stat().st_size < pages * environment.stat()["psize"]:
        raise lmdb.CorruptedError("the file has been cut short")


def note_use(directory: Path) -> None:
    """Note the present time as that of the last use of a slot."""
    with suppress(OSError):
        os.utime(directory / OWNER_LOCK)


def remove_files(directory: Path) -> None:
    """Remove the rows of a slot; its lock stays, so that those who wait for it and those who come meet at one file."""
    for name in ("data.mdb", "lock.mdb"):
        (directory / name).unlink(missing_ok=True)


def replica_place(root: str | Path, application_id: str, checkpoint: str, task_id: str) -> tuple[str, Path]:
    """Return the identity of a task's replica, and the directory of its slots on this machine."""
    identity = f"{application_id} {checkpoint} {task_id}"
    digest = hashlib.blake2b(identity.encode(), digest_size=6).hexdigest()
    return identity, Path(root) / f"{task_id}-{digest}"


def replica_description(identity: str) -> dict[str, Any]:
    """Return the description of a replica of this machine that may be used."""
    return {"format": _FORMAT, "identity": identity, "boot": boot_id()}  # where there is none, LMDB must flush
