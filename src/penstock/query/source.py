"""The source of queries: the stores of an application at the end of one commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from penstock.base.nearest_name import did_you_mean
from penstock.errors import StateError
from penstock.query.placement import LagInfo, TaskPlaces
from penstock.query.position import Position
from penstock.topology.stores import StoreSpec

__all__ = [
    "GLOBAL",
    "QUERYABLE",
    "CommittedStores",
    "Commits",
    "IsolatedSource",
    "NewestCommit",
    "StateSource",
    "StoreInfo",
    "StoreSnapshot",
    "unknown_store",
]

GLOBAL = -1  # the partition number of a global store's only copy
QUERYABLE = ("key_value", "timestamped", "versioned", "lru", "window", "session")


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A store that can be queried.

    Attributes:
        spec: Kind and serdes.
        partitions: The number of partitions; 1 for a global store.
        topics: The source topics of its sub-topology, whose partitions are the store's.
        is_direct: Whether only source topics feed it, no repartition topic.
        is_global: Whether it belongs to a global table.
    """

    spec: StoreSpec
    partitions: int
    topics: tuple[str, ...] = ()
    is_direct: bool = True
    is_global: bool = False


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """Open views of some partitions of a store, each at the end of one commit; with micro-batches, of the same batch.

    Attributes:
        views: The typed view of each partition; `GLOBAL` for a global store.
        batch: The batch; -1 before the first, and in continuous mode.
        committed_ms: The time of its commit; 0 before the first. In continuous mode: the time at which the views held
            all that was committed.
        position: The position of the state.
        sources: The copy that each partition is read from: "worker" (that of the task), "standby", "own" (a copy of
            this process) or "memory".
        is_shared: Whether it blocks other readers of the store, so that it should end soon.
    """

    views: Mapping[int, Any]
    batch: int = -1
    committed_ms: int = 0
    position: Position = field(default_factory=Position)
    sources: Mapping[int, str] = field(default_factory=dict)
    is_shared: bool = False


class StateSource(Protocol):
    """An application's committed state."""

    def stores(self) -> Mapping[str, StoreInfo]:
        """Return all stores that can be queried."""
        ...

    def reading(self, store: str, partitions: Collection[int] | None = None) -> AbstractContextManager[StoreSnapshot]:
        """Open a store at the end of the newest commit; None: all partitions. Raises StateError."""
        ...


@runtime_checkable
class IsolatedSource(StateSource, Protocol):
    """A state of which more than what is committed can be read."""

    def isolated(self, level: str) -> StateSource:
        """Return the state at an isolation level: READ_COMMITTED or READ_UNCOMMITTED."""
        ...


class NewestCommit(Protocol):
    """The newest commit of an application."""

    @property
    def batch(self) -> int:
        """Spark's number of the batch; -1 in continuous mode."""
        ...

    @property
    def committed_ms(self) -> int:
        """The time of the commit; in continuous mode the time at which nothing newer was committed."""
        ...

    @property
    def ends(self) -> Mapping[str, Mapping[int, int]]:
        """The offset after the last record that it includes, by topic and partition."""
        ...

    @property
    def position(self) -> Position:
        """The last record of each topic partition that all stores include."""
        ...


class Commits(Protocol):
    """The commits of an application."""

    def newest(self) -> NewestCommit | None:
        """Return the newest one; None before the first."""
        ...


class CommittedStores(StateSource, Protocol):
    """An application's committed state, with the facts that a query server shows.

    Attributes:
        checkpoint: The checkpoint location, where instances are noted.
        application_id: The ``application.id``.
    """

    checkpoint: str
    application_id: str

    @property
    def commits(self) -> Commits:
        """The application's commits."""
        ...

    def store(self, name: str) -> StoreInfo:
        """Return one store; raises StateError, with similar names, if it does not exist."""
        ...

    def stale(self) -> CommittedStores:
        """Return the same state, read from the nearest copy however far it is behind; micro-batches have no such."""
        ...

    def places(self, store: str, partition: int) -> TaskPlaces | None:
        """Return the places with the state of a partition; None if they are not known."""
        ...

    def place(self) -> str:
        """Return the identity of the folder of replicas on this machine; empty if there is none."""
        ...

    def lags(self) -> Mapping[str, Mapping[int, LagInfo]]:
        """Return by store and partition how far this machine's copy is behind; those without one are left out."""
        ...

    def close(self) -> None:
        """Close all files."""
        ...


def unknown_store(store: str, store_names: Collection[str]) -> StateError:
    """Make the error for an unknown store, with similar names."""
    hint = did_you_mean(store, store_names, 3) or f"The stores are {sorted(store_names) or 'none'}."
    return StateError(
        f"there is no store {store!r} to query", hint=hint, store=store, code="STORE_NOT_FOUND", status=404
    )
