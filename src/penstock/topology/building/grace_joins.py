"""The graph node of a stream-table join with a grace period: its buffer, and its demands on the table's store."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.errors import TopologyError
from penstock.topology.building.assembly import Assembly
from penstock.topology.building.graph import ProcessorGraph
from penstock.topology.stores import StoreSpec

__all__ = ["GraceJoinGraph", "not_versioned"]


@dataclass(eq=False, kw_only=True)
class GraceJoinGraph(ProcessorGraph):
    """A join with a grace period. Once the stores that it reads are known, they are checked."""

    buffer: StoreSpec
    grace_ms: int

    def write(self, to: Assembly) -> None:
        super().write(to)
        to.add_store(self.buffer, [self.name])
        for store in self.uses:
            spec = to.stores[store]
            if spec.kind != "versioned":
                raise not_versioned(self.name, [store])
            if spec.history_ms < self.grace_ms:
                raise TopologyError(
                    f"{self.name} waits {self.grace_ms} ms for changes of {store!r}, which keeps {spec.history_ms} ms",
                    hint="Give the table a history of at least the join's grace.",
                    node=self.name,
                    store=store,
                )


def not_versioned(node: str, stores: Collection[str]) -> TopologyError:
    """Return the error for a grace period over a table that keeps no history."""
    return TopologyError(
        f"{node} has a grace period, but the table's store {', '.join(stores)} is not versioned",
        hint='Give the table a history: Materialized("name", history="1 minute").',
        node=node,
    )
