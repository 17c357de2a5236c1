"""A replica: committed rows of a task's stores with the position that they stand for, in LMDB or in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.state.memory import MemoryMap
from penstock.state.replicas.position import ReplicaPosition

if TYPE_CHECKING:
    from penstock.state.overlay import ReadableMap

__all__ = ["MemoryReplica", "Pieces", "Replica", "ReplicaRows"]

Pieces = Callable[[str], Iterable[tuple[list[bytes], list[bytes | None]]]]


class ReplicaRows(Protocol):
    """The rows of a replica at one moment, the same for all stores; to be closed."""

    def map(self, store: str) -> ReadableMap: ...
    def close(self) -> None: ...


class Replica(Protocol):
    """Committed rows with the position that they stand for, see `penstock.state.replicas.lmdb_replica.LmdbReplica`."""

    position: ReplicaPosition

    def apply(
        self, stores: Sequence[str], changes: Pieces, position: ReplicaPosition, *, fresh: bool = False
    ) -> None: ...
    def clear(self, stores: Iterable[str], position: ReplicaPosition) -> None: ...
    def reset(self) -> None: ...
    def give_back(self) -> bool: ...
    def reader(self) -> ReplicaRows: ...
    def close(self) -> None: ...


class MemoryReplica:
    """A replica without a file, which is gone with its process."""

    def __init__(self, stores: Iterable[str]) -> None:
        self._maps = {store: MemoryMap() for store in stores}
        self.position = ReplicaPosition()

    def apply(
        self,
        stores: Sequence[str],
        changes: Pieces,
        position: ReplicaPosition,
        *,
        fresh: bool = False,  # noqa: ARG002 - of no use here
    ) -> None:
        for store in stores:
            for keys, values in changes(store):
                self._maps[store].put_many(keys, values)
        self.position = position

    def clear(self, stores: Iterable[str], position: ReplicaPosition) -> None:
        for store in stores:
            self._maps[store] = MemoryMap()
        self.position = position

    def reset(self) -> None:
        self.clear(list(self._maps), ReplicaPosition())

    def give_back(self) -> bool:
        """Return False: there is nothing to give back."""
        return False

    def reader(self) -> MemoryReplica:
        return self

    def map(self, store: str) -> MemoryMap:
        return self._maps[store]

    def close(self) -> None:
        """Do nothing: as a reader it holds nothing."""
