"""Plain Processor API topologies of a case: its ids are the names of the nodes."""

# ruff: noqa: N802 - methods carry the names of the operators in the cases

from __future__ import annotations

from dataclasses import replace
from typing import Any

import functions as fns
from own_stores import supplier_of
from partitioners import partitioner
from penstock.api.topology import Topology
from processors import PutProcessor, processor_type
from stores import store_spec
from things import Spec, Thing, serde

__all__ = ["PlainTopology"]


class PlainTopology:
    """One method for each operator of a case that has a ``source``."""

    def __init__(self, topics: dict[str, Thing], stores: list[str], side: list[Spec], running: dict[str, Any]) -> None:
        self.running = running
        self.topology = Topology()
        self.side = side
        self.own: dict[str, Any] = {}
        self.topics = topics
        self.stores = stores
        self.things: dict[str, Thing] = {}

    def op_source(self, n: Spec) -> None:
        t = self.topics[n["topics"][0]]
        extractor = fns.timestamp_extractor(n["timestamp_extractor"]) if "timestamp_extractor" in n else None
        self.topology.add_source(n["id"], n["topics"], **_serdes(t), timestamp_extractor=extractor)
        self.things[n["id"]] = t

    def op_as(self, n: Spec) -> None:
        x = self.things[_parents(n)[0]]
        self.things[n["id"]] = replace(x, key=n.get("key", x.key), value=n.get("value", x.value))

    def op_processor(self, n: Spec) -> None:
        f, parents = n["processor"], _parents(n)
        self.topology.add_processor(n["id"], supplier_of(n, self.own, self.stores, self.running), *parents)
        above = self.things[parents[0]]
        self.things[n["id"]] = replace(above, value=processor_type(f, above.value))

    def op_sink(self, n: Spec) -> None:
        parents = _parents(n)
        above = self.topics[n["topic"]] = self.things[parents[0]]
        self.topology.add_sink(n["id"], n["topic"], *parents, **_serdes(above), partitioner=partitioner(n, self.side))

    def op_addStateStore(self, n: Spec) -> None:
        self.stores.append(n["store"])
        self.topology.add_state_store(store_spec(n), *n.get("processors", ()))

    def op_connect(self, n: Spec) -> None:
        self.topology.connect_processor_and_state_stores(n["processor_id"], *n["stores"])

    def op_addGlobalStore(self, n: Spec) -> None:
        self._fed_store(n, self.topology.add_global_store)

    def op_addReadOnlyStateStore(self, n: Spec) -> None:
        self._fed_store(n, self.topology.add_read_only_state_store)

    def _fed_store(self, n: Spec, add: Any) -> None:
        self.stores.append(n["store"])
        serdes = _serdes(self.topics[n["topic"]])
        add(store_spec(n), f"{n['id']}-source", n["topic"], n["id"], lambda: PutProcessor(n), **serdes)


def _parents(n: Spec) -> list[str]:
    return n["in"] if isinstance(n["in"], list) else [n["in"]]


def _serdes(t: Thing) -> dict[str, Any]:
    return {"key_serde": serde(t.key, t.size), "value_serde": serde(t.value)}
