"""Reading the replica of another process, without being in its way.

LMDB lets a reader see one consistent state while the owner goes on writing: a reader costs the owner only that pages
which it still needs are not used again until it is done. The owner may throw its replica away and make another one; so
the files are checked before each use.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import lmdb

from penstock.state.lmdb_replicas.lmdb_replica import (
    ABOUT,
    NUMBERS,
    STORE,
    LmdbRows,
    replica_description,
    require_whole,
)
from penstock.state.maps import ReplicaPosition

__all__ = ["WatchedReplica", "watch_replicas"]

_MAP_BYTES = 1 << 38  # addresses, not memory: the owner's file may grow without being mapped anew
_MAX_STORES = 1024


class WatchedReplica:
    """A replica that another process owns, opened to be read.

    Args:
        directory: One slot of a task's replicas.
        identity: The identity that the replica must have.
        stores: The stores that are to be read.

    Raises:
        lmdb.Error, OSError: It cannot be opened; or this very process has it open.
        ValueError: It is a replica of something else, or from before the machine was started.
    """

    def __init__(self, directory: Path, identity: str, stores: Iterable[str]) -> None:
        self._names = tuple(stores)
        self._file = str(directory / "data.mdb")
        status = os.stat(self._file)  # noqa: PTH116
        self._inode = (status.st_dev, status.st_ino)
        self._stores: dict[str, Any] = {}
        self._env = lmdb.open(
            str(directory), map_size=_MAP_BYTES, max_dbs=_MAX_STORES, readonly=True, create=False, readahead=False
        )
        try:
            require_whole(self._env, directory)
            self._numbers = self._env.open_db(NUMBERS, create=False)
            with self._env.begin(db=self._numbers) as transaction:
                says: Mapping[str, Any] = json.loads(transaction.get(ABOUT) or b"{}")
        except BaseException:
            self._env.close()
            raise
        if says != replica_description(identity) or not self.is_there():
            self._env.close()
            raise ValueError(f"{directory} is not a replica of {identity}")

    def is_there(self) -> bool:
        """Return whether its files are still those that are open."""
        try:
            status = os.stat(self._file)  # noqa: PTH116 - cheaper than a Path, and every query asks
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._inode

    def reader(self) -> LmdbRows:
        """Return a view of its present contents; to be closed."""
        for store in self._names:
            if store not in self._stores:  # later would be too late: this reader would not know it
                with suppress(lmdb.NotFoundError):
                    self._stores[store] = self._env.open_db(STORE + store.encode(), create=False)
        transaction = self._env.begin()
        position = ReplicaPosition.load(transaction.get(NUMBERS, None, self._numbers))
        return LmdbRows(transaction, self._stores.get, position)

    def close(self) -> None:
        self._env.close()


def watch_replicas(directory: Path, identity: str, stores: Iterable[str]) -> list[WatchedReplica]:
    """Return all replicas of a task on this machine that can be read, that of the first slot first."""
    replicas = []
    for slot in sorted(directory.glob("slot-*")):
        with suppress(lmdb.Error, OSError, ValueError):
            replicas.append(WatchedReplica(slot, identity, stores))
    return replicas
