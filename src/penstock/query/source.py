"""The stores of an application at the end of one commit, as queries read them, their descriptions and their lag."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from penstock.base.log_lines import own_logger
from penstock.base.nearest_name import did_you_mean
from penstock.errors import ConfigError, StateError
from penstock.query.placement import LagInfo, TaskPlaces
from penstock.query.position import Position
from penstock.serde import Serdes
from penstock.topology.stores import StoreSpec

__all__ = [
    "GLOBAL",
    "QUERYABLE",
    "Commits",
    "CommittedStores",
    "Ends",
    "IsolatedSource",
    "NewestCommit",
    "ReplicaLagWatch",
    "StateSource",
    "StoreInfo",
    "StoreSnapshot",
    "specs_in_plan",
    "stores_for_plan",
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


_log = own_logger(__name__)
_EVERY_S = 1.0
_IDLE_S = 10.0

Ends = Mapping[str, Mapping[int, int]]


class ReplicaLagWatch:
    """A thread that fetches the end offsets of topics while the lag is in use.

    Args:
        ends: Returns topic -> partition -> end offset for these topics; called in the thread.
    """

    def __init__(self, ends: Callable[[list[str]], Ends]) -> None:
        self._ends = ends
        self._topics: list[str] = []
        self._newest_ends: Ends | None = None
        self._asked_s = 0.0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def behind(self, commit: NewestCommit | None) -> int | None:
        """Return the number of records after the newest commit; None if unknown (yet)."""
        if commit is None:
            return None
        self._topics = list(commit.ends)
        self._asked_s = time.monotonic()
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._watch, name="penstock-lag", daemon=True)
                self._thread.start()
        ends = self._newest_ends
        if ends is None:
            return None
        return sum(
            max(0, end - commit.ends[topic].get(partition, 0))
            for topic, parts in ends.items()
            if topic in commit.ends
            for partition, end in parts.items()
        )

    def _watch(self) -> None:
        while time.monotonic() - self._asked_s < _IDLE_S:
            try:
                self._newest_ends = self._ends(self._topics)
            except Exception as error:  # noqa: BLE001 - a log may fail in many ways, and queries go on
                _log.debug("the ends of the topics are not known: %s", error)
                self._newest_ends = None
            if self._stop.wait(_EVERY_S):
                break
        with self._lock:
            self._thread = None
            self._newest_ends = None

    def close(self) -> None:
        self._stop.set()
        thread = self._thread
        if thread is not None:
            thread.join(5)
        if hasattr(self._ends, "close"):
            self._ends.close()


_FACTS = (
    "kind", "persistent", "timestamped", "window_size_ms", "retention_ms", "retain_duplicates", "history_ms",
    "max_entries", "ttl_ms", "time_ordered",
)  # fmt: skip


def stores_for_plan(specs: Mapping[str, StoreSpec]) -> dict[str, dict[str, Any]]:
    """Describe stores for the checkpoint, for readers without the topology."""
    return {
        name: {fact: getattr(spec, fact) for fact in _FACTS}
        | {side: str(getattr(getattr(spec, side), "name", "")) for side in ("key_serde", "value_serde")}
        for name, spec in sorted(specs.items())
        if spec.kind in QUERYABLE
    }


def specs_in_plan(stores: Mapping[str, Mapping[str, Any]]) -> dict[str, StoreSpec]:
    """Make the stores of a plan; serdes without a name are replaced by bytes."""
    specs = {}
    for name, facts in stores.items():
        spec_facts = {fact: value for fact, value in facts.items() if fact in _FACTS}
        spec_facts |= {side: _serde(facts.get(side)) for side in ("key_serde", "value_serde")}
        specs[name] = StoreSpec(name, **spec_facts)
    return specs


def _serde(name: str | None) -> Any:
    try:
        return Serdes.bytes() if name is None else Serdes.of(name)
    except ConfigError:
        return Serdes.bytes()
