"""What queries run over: the stores of an application, as one committed batch left them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.errors import StateError
from penstock.query.position import Position
from penstock.topology.stores import StoreSpec

__all__ = ["GLOBAL", "QUERYABLE", "Reading", "StateSource", "StoreInfo", "unknown_store"]

GLOBAL = -1  # the partition number of a global store's only copy
QUERYABLE = ("key_value", "timestamped", "versioned", "lru", "window", "session")


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A store that can be queried.

    Attributes:
        spec: Kind and serdes.
        partitions: How many there are; 1 for a global one.
        topics: The source topics of its sub-topology whose partitions are its own.
        is_direct: Whether nothing else feeds it, no repartition topic.
        is_global: Whether it is a global table's.
    """

    spec: StoreSpec
    partitions: int
    topics: tuple[str, ...] = ()
    is_direct: bool = True
    is_global: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """Some partitions of a store, all at the end of the same batch.

    Attributes:
        views: Partition -> typed view; `GLOBAL` for a global store.
        batch: The batch; -1 before the first.
        committed_ms: When it was committed; 0 before the first.
        position: What is in the state.
        sources: Partition -> where it is read: "worker", "own" or "memory".
        is_shared: Whether no other reading can go on beside it, so that it should end soon.
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
        """All stores that can be queried."""
        ...

    def reading(self, store: str, partitions: Collection[int] | None = None) -> AbstractContextManager[Reading]:
        """The store as the newest committed batch left it; None: all partitions. Raises StateError."""
        ...


def unknown_store(store: str, known: Collection[str]) -> StateError:
    """The error for a store that is not there, with the nearest names."""
    near = difflib.get_close_matches(store, known)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"The stores are {sorted(known) or 'none'}."
    return StateError(
        f"there is no store {store!r} to query", hint=hint, store=store, code="STORE_NOT_FOUND", status=404
    )
