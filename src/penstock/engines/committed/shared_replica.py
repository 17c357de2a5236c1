"""An open replica that many queries read at once, and that is closed after the last of them."""

from __future__ import annotations

import errno
import threading
from typing import Any

from penstock.errors import StateError
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica
from penstock.state.lmdb_replicas.replica import ReplicaPosition
from penstock.state.lmdb_replicas.watched import WatchedReplica

__all__ = ["SharedReplica"]

_PATIENCE_S = 10.0
_MOST_READERS = 100  # of a partition and process; LMDB has 512 slots for all, and the worker needs one


class SharedReplica:
    """An open replica and its number of readers: once retired, it is closed after the last one."""

    def __init__(self, replica: WatchedReplica | LmdbReplica) -> None:
        self.replica = replica
        self.source = "worker" if isinstance(replica, WatchedReplica) else "own"
        self._readers = 0
        self._retired = False
        self._changed = threading.Condition()
        self._opening = threading.Lock()  # LMDB lets one thread open its databases at a time
        if isinstance(replica, LmdbReplica):
            replica.quiesce = self._wait

    def reader(self) -> tuple[Any, ReplicaPosition]:
        """Return a consistent view, to be passed to `release`, and its position.

        Raises:
            OSError: It is retired.
            StateError: Too many queries read it.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._readers < _MOST_READERS, _PATIENCE_S):
                raise StateError(
                    f"{_MOST_READERS} queries are reading one partition, and none has ended for {_PATIENCE_S:.0f} s",
                    hint="Read iterators to their end, or close() them.",
                )
            if self._retired:
                raise OSError(errno.EBADF, "the replica is closed")
            self._readers += 1
        try:
            with self._opening:
                reader = self.replica.reader()
        except BaseException:
            self.release(None)
            raise
        return reader, reader.position

    def release(self, reader: Any) -> None:
        if reader is not None:
            reader.close()
        with self._changed:
            self._readers -= 1
            self._changed.notify_all()
            last = self._retired and not self._readers
        if last:
            self.replica.close()

    def retire(self) -> None:
        """Close it after its last reader."""
        with self._changed:
            self._retired = True
            idle = not self._readers
        if idle:
            self.replica.close()

    def _wait(self) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: not self._readers, _PATIENCE_S):
                raise StateError(
                    "the query replica must be rebuilt, but a query has been reading it for too long",
                    hint="Read iterators to their end, or close() them.",
                )
