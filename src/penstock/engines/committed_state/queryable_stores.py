"""The stores of an application that can be queried, in either mode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import StateError
from penstock.query.source import GLOBAL, QUERYABLE, StoreInfo, StoreSnapshot, unknown_store
from penstock.state.maps import Overlay
from penstock.state.views import open_view

if TYPE_CHECKING:
    from penstock.query.position import Position
    from penstock.state.maps import ReadableMap
    from penstock.topology.stores import StoreSpec

__all__ = ["CommittedRows", "GlobalReader", "QueryableStores", "typed_view"]


class CommittedRows(Protocol):
    """The committed rows of one task's stores, and its numbers."""

    @property
    def meta(self) -> Mapping[str, int]: ...

    def map(self, store: str) -> ReadableMap: ...


class GlobalReader(Protocol):
    """A reader of global stores, which have no task: their topics are what holds them."""

    def reading(self, store: str, ends: Mapping[str, Mapping[int, int]] | None) -> AbstractContextManager[Any]:
        """Open the typed view of a store whose topics have been read up to ``ends``; None: to their present ends."""
        ...

    def close(self) -> None: ...


class QueryableStores(ABC):
    """The base of state sources: finds their stores, and reads those that are global.

    Args:
        specs: All stores of the application, with serdes.
        global_reader: The reader of global stores; None: they cannot be read.
    """

    def __init__(self, specs: Mapping[str, StoreSpec], global_reader: GlobalReader | None) -> None:
        self._specs = {name: spec for name, spec in specs.items() if spec.kind in QUERYABLE}
        self._globals = global_reader

    @abstractmethod
    def _info(self, name: str) -> StoreInfo | None:
        """Describe a store of ``_specs``; None if the application has not run with it."""

    def stores(self) -> dict[str, StoreInfo]:
        """Return all stores that can be queried; none before the application's first start."""
        return {name: info for name in self._specs if (info := self._info(name)) is not None}

    def store(self, name: str) -> StoreInfo:
        """Return one store; raises StateError, with similar names, if it does not exist."""
        info = self._info(name) if name in self._specs else None
        if info is not None:
            return info
        if name not in self._specs:
            raise unknown_store(name, self.stores())
        raise StateError(
            f"store {name!r} does not exist yet: the application has not run with it",
            hint="Start the application; a changed topology creates its stores at its next start.",
            store=name,
            code="STORE_NOT_READY",
            status=503,
        )

    @contextmanager
    def _global_reading(
        self,
        store: str,
        ends: Mapping[str, Mapping[int, int]] | None,
        committed_ms: int,
        position: Position,
        batch: int = -1,
    ) -> Iterator[StoreSnapshot]:
        """Open a global store whose topics have been read up to ``ends``; None: to their present ends."""
        if self._globals is None:
            raise StateError(
                f"store {store!r} is global: no task has it, it is read from its topics",
                hint="Query it with its topology and log: in the application, or as MODULE:TOPOLOGY.",
                store=store,
            )
        with self._globals.reading(store, ends) as view:
            yield StoreSnapshot(
                {GLOBAL: view},
                batch=batch,
                committed_ms=committed_ms,
                position=position,
                sources={GLOBAL: "own"},
                is_shared=True,
            )


def typed_view(spec: StoreSpec, rows: CommittedRows) -> Any:
    """Make the typed view of a store; its writes (the uses of an LRU store) are discarded."""
    return open_view(spec, Overlay(rows.map(spec.name)), dict(rows.meta))
