"""Interactive queries of a test driver: its stores as one partition, after every record of the test."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.query.position import Position
from penstock.query.source import GLOBAL, QUERYABLE, StoreInfo, StoreSnapshot, unknown_store

if TYPE_CHECKING:
    from penstock.testing.ports import StatePort

__all__ = ["DriverState"]


class DriverState:
    """A `penstock.query.source.StateSource` over a driver."""

    def __init__(self, driver: StatePort) -> None:
        self._driver = driver

    def stores(self) -> dict[str, StoreInfo]:
        """Return all stores that can be queried; each has one partition."""
        topology = self._driver.topology
        topics = tuple(sorted({topic for source in topology.sources for topic in source.topics}))
        return {
            name: StoreInfo(spec, 1, topics, is_global=name in topology.global_stores)
            for name, spec in topology.stores.items()
            if spec.kind in QUERYABLE
        }

    @contextmanager
    def reading(self, store: str, partitions: Collection[int] | None = None) -> Iterator[StoreSnapshot]:  # noqa: ARG002
        """Return the current state of a store."""
        known = self.stores()
        if store not in known:
            raise unknown_store(store, known)
        number = GLOBAL if known[store].is_global else 0
        view = self._driver.get_state_store(store)
        yield StoreSnapshot({number: view}, 0, 0, Position(self._driver.positions()), {number: "memory"})
