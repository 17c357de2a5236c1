"""The local copy of a task's stores: one LMDB environment, one sub-database a store.

A replica is only ever moved forward by whole batches: the rows of a batch, the task's numbers and the batch's own
number and checksum go into one LMDB transaction. LMDB keeps that promise against a killed process, not against a
machine that loses power (nothing is flushed: segments are the truth), so a replica from before the machine's last
start is thrown away, as is one that does not open, belongs to another checkpoint, or is of another format.

Two processes never use a replica at a time: the directory has numbered slots, each with a lock, and who finds one taken
uses the next. Between batches a process lets go of the lock but keeps the environment open (`Replica.release`); when
it takes the lock again it looks whether the files are still those, and reads how far others have moved the replica.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lmdb

from penstock.errors import StateError
from penstock.state.base import Entries
from penstock.state.longkeys import are_plain, fold, fold_entry, read_folded, scan_folded, scan_plain, unfold
from penstock.state.segments import NO_BATCH

__all__ = [
    "ABOUT",
    "NUMBERS",
    "STORE",
    "Position",
    "Replica",
    "ReplicaMap",
    "ReplicaReader",
    "about",
    "replica_place",
]

_FORMAT = 1
_FIRST_MAP_BYTES = 256 << 20
_MAX_STORES = 1024
_MAX_READERS = 512  # the worker and whoever queries; a place in a table of 64 bytes each
_FIRST_SLOT = "slot-0"
ABOUT = b"about"
NUMBERS = b"numbers"
STORE = b"store/"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Position:
    """What a replica holds: all up to ``batch``; ``head`` is the newest segment in it, ``meta`` the task's numbers."""

    batch: int = NO_BATCH
    head: int = NO_BATCH
    checksum: str = ""
    meta: dict[str, int] = field(default_factory=dict)


class Replica:
    """The replica of one task, owned by this process.

    Args:
        root: Where the replicas of this task and checkpoint are.
        identity: What it must be a replica of; another identity empties it.
        stores: The stores that readers will ask for.
        map_bytes: How large it may be before its file has to be mapped anew.
    """

    def __init__(self, root: Path, identity: str, stores: Iterable[str], *, map_bytes: int = _FIRST_MAP_BYTES) -> None:
        self._directory, self._lock = _take_slot(root)
        self._names = tuple(stores)
        self.quiesce: Callable[[], None] = lambda: None  # waits until no other reader of this process is open
        self._about = about(identity)
        self._map_bytes = map_bytes
        self._stores: dict[str, Any] = {}
        self._env: Any = None
        self._opened: list[tuple[int, int]] = []
        self.position = Position()
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
        """Where it is."""
        return self._directory

    def is_there(self) -> bool:
        """Whether its files are still in place (somebody may have deleted the directory)."""
        return (self._directory / "data.mdb").exists()

    def reset(self) -> None:
        """Empties it."""
        self.quiesce()
        self._close_env()
        for name in ("data.mdb", "lock.mdb"):
            (self._directory / name).unlink(missing_ok=True)
        if not self._directory.exists():
            self._lock.close()
            self._directory, self._lock = _take_slot(self._directory.parent)
        self.position = Position()
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
        changes: Callable[[str], Iterable[tuple[list[bytes], list[bytes | None]]]],
        position: Position,
        *,
        fresh: bool = False,
    ) -> None:
        """Moves to ``position`` by these changes, in one transaction; no reader may be open in this process.

        Args:
            stores: The stores that change.
            changes: Gives for a store pieces of (keys in byte order, values); None deletes.
            position: What it holds afterwards.
            fresh: Whether the changes are the whole contents (a snapshot) and the replica is empty.
        """
        databases = [(store, self.database(store)) for store in stores]
        while True:
            try:
                with self._env.begin(write=True) as transaction:
                    for store, database in databases:
                        _write(transaction, database, changes(store), append=fresh)
                    self._write_position(transaction, position)
            except lmdb.MapFullError:
                self.quiesce()  # LMDB resizes only when no reader of this process is open
                self._env.set_mapsize(self._env.info()["map_size"] * 2)
            except (lmdb.DiskError, OSError) as error:
                raise self.unusable(error) from error
            else:
                self.position = position
                return

    def reader(self) -> ReplicaReader:
        """A consistent view of what it holds now; close it before the next `apply`."""
        return ReplicaReader(self, self._env.begin())

    def database(self, store: str) -> Any:
        """The sub-database of a store; the first call for a store must come before a reader that is to see it."""
        found = self._stores.get(store)
        if found is None:
            found = self._stores[store] = self._env.open_db(STORE + store.encode())
        return found

    def store_names(self) -> list[str]:
        """The stores that it holds rows of."""
        with self._env.begin() as transaction:
            names = [bytes(key) for key in transaction.cursor().iternext(keys=True, values=False)]
        return [name.removeprefix(STORE).decode() for name in names if name.startswith(STORE)]

    def release(self) -> None:
        """Lets other processes have it; `retake` comes before the next use."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def retake(self) -> bool:
        """Takes its slot again; False if another process has it, or it is not the replica that it was."""
        if self._directory.name != _FIRST_SLOT:  # whoever closes one of the others removes it
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
                self._env.set_mapsize(0)  # what the other process has made it
                self.position = self._read_position()
            self._env.reader_check()  # readers of killed processes keep LMDB from using old pages again
        except (lmdb.Error, OSError, ValueError, KeyError):
            return False
        return True

    def _identities(self) -> list[tuple[int, int]]:
        """Which files it has open, if those are still the ones in its directory."""
        lock = os.fstat(self._lock.fileno())
        files = [(self._directory / name).stat() for name in ("data.mdb", "owner.lock")]
        return [(each.st_dev, each.st_ino) for each in (*files, lock)]

    def close(self) -> None:
        """Closes it and lets go of its slot; a slot besides the first is removed."""
        self._close_env()
        if self._directory.name != _FIRST_SLOT:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._lock.close()

    def _open(self) -> None:
        self._env = lmdb.open(
            str(self._directory),
            map_size=self._map_bytes,
            max_dbs=_MAX_STORES,
            max_readers=_MAX_READERS,
            sync=self._about["boot"] == "",
            metasync=False,
            readahead=False,
            lock=True,
        )
        pages = self._env.info()["last_pgno"] + 1
        if (self._directory / "data.mdb").stat().st_size < pages * self._env.stat()["psize"]:
            raise lmdb.CorruptedError("the file has been cut short")  # reading on would end the process
        self._stores = {}
        self._opened = self._identities()
        self._env.reader_check()
        self._numbers = self._env.open_db(b"numbers")
        for store in self._names:
            self.database(store)

    def _close_env(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None

    def _read_about(self) -> Any:
        with self._env.begin(db=self._numbers) as transaction:
            return json.loads(transaction.get(ABOUT) or b"{}")

    def _read_position(self) -> Position:
        with self._env.begin(db=self._numbers) as transaction:
            found = transaction.get(NUMBERS)
        return Position(**json.loads(found)) if found else Position()

    def _write_position(self, transaction: Any, position: Position) -> None:
        facts = {name: getattr(position, name) for name in Position.__dataclass_fields__}
        transaction.put(NUMBERS, json.dumps(facts).encode(), db=self._numbers)

    def unusable(self, error: Exception) -> StateError:
        """The error for a replica that cannot be written."""
        return StateError(
            f"the state replica in {self._directory} could not be written: {error}",
            hint="Free space there, or set state.dir to a larger disk. Nothing is lost: segments rebuild it.",
            directory=str(self._directory),
        )


class ReplicaReader:
    """One consistent view of a replica."""

    def __init__(self, replica: Replica, transaction: Any) -> None:
        self._replica = replica
        self._transaction = transaction

    def map(self, store: str) -> ReplicaMap:
        """The rows of one store."""
        return ReplicaMap(self._transaction, self._replica.database(store))

    def close(self) -> None:
        self._transaction.abort()


class ReplicaMap:
    """The committed rows of one store: the reading half of a byte map."""

    __slots__ = ("_database", "_get", "_transaction")

    def __init__(self, transaction: Any, database: Any) -> None:
        self._transaction = transaction
        self._database = database
        self._get = transaction.get

    def __len__(self) -> int:
        return int(self._transaction.stat(self._database)["entries"])

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
        """Entries with start <= key < end in byte order."""
        return scan_folded(self._transaction, self._database, start, end, reverse=reverse)

    def scan_many(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        """The entries of each range."""
        ranges = list(ranges)
        if not are_plain([bound for one in ranges for bound in one]):
            return [list(self.scan(start, end)) for start, end in ranges]
        cursor = self._transaction.cursor(self._database)
        results = []
        for start, end in ranges:
            found = scan_plain(cursor, start, end)
            results.append(list(self.scan(start, end)) if found is None else found)
        return results

    def read(self, start: bytes, end: bytes, limit: int) -> Entries | None:
        """Keys and values of `scan`; None when there are more than ``limit``."""
        return read_folded(self._transaction, self._database, start, end, limit)


def _write(
    transaction: Any,
    database: Any,
    pieces: Iterable[tuple[list[bytes], list[bytes | None]]],
    *,
    append: bool,
) -> None:
    cursor = transaction.cursor(database)
    for keys, values in pieces:
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


def _take_slot(root: Path) -> tuple[Path, Any]:
    """The first slot that no living process holds, and its lock."""
    number = 0
    while True:
        directory = root / f"slot-{number}"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            lock = (directory / "owner.lock").open("wb")
        except OSError as error:
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
            return directory, lock


def replica_place(root: str | Path, application_id: str, checkpoint: str, task_id: str) -> tuple[str, Path]:
    """What a task's replica must be a replica of, and the directory of its slots on this machine."""
    identity = f"{application_id} {checkpoint} {task_id}"
    place = hashlib.blake2b(identity.encode(), digest_size=6).hexdigest()
    return identity, Path(root) / f"{task_id}-{place}"


def about(identity: str) -> dict[str, Any]:
    """What a replica of this machine says of itself when it may be used."""
    return {"format": _FORMAT, "identity": identity, "boot": _boot()}


def _boot() -> str:
    """Which start of the machine this is; empty where that cannot be told, and LMDB must flush instead."""
    with suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return ""
