"""Turns a recorded case into a Penstock topology, through the public API.

A family of operators is a file ``ops_*.py`` with one method for each operator, named as it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ops_aggregations import AggregationOperators
from ops_joins import JoinOperators
from ops_sources import SourceOperators
from ops_streams import StreamOperators
from ops_suppress import SuppressOperators
from ops_tables import TableOperators
from ops_topology import PlainTopology
from penstock.topology.topology import Topology
from stores import rows_of
from things import NotBuilt, Spec, Thing, serde

__all__ = ["Interpreted", "NotBuilt", "check_describe", "interpret"]


@dataclass
class Interpreted:
    """A case's topology and what a runner needs to feed it and to read it."""

    topology: Topology
    config: dict[str, Any]
    side: list[Spec]
    serdes: dict[str, tuple[Any, Any]]
    stores: list[str]

    def dump_store(self, driver: Any, name: str) -> list[Spec]:
        """All rows of a store, as in the case."""
        return rows_of(self.topology.stores[name], driver.store(name))


class Interpreter(
    SourceOperators, StreamOperators, TableOperators, AggregationOperators, SuppressOperators, JoinOperators
):
    """One method for each operator, from the families."""

    def run(self) -> Interpreted:
        for name, t in self.case.get("topics", {}).items():
            self.topics[name] = Thing(None, t["key"], t["value"], t.get("window_size_ms", 0))
        plain_api = any(n["op"] == "source" for n in self.case["topology"])
        family = PlainTopology(self.topics, self.stores) if plain_api else self
        for n in self.case["topology"]:
            operator = getattr(family, f"op_{n['op']}", None)
            if operator is None:
                raise NotBuilt(n["op"])
            thing = operator(n)
            if thing is not None:
                self.things[n["id"]] = thing
        config = dict(self.case["config"])
        config.pop("dsl.store.format", None)  # refused, as it also changes changelogs; the outputs are the same
        topology = family.topology if isinstance(family, PlainTopology) else self.builder.build(config)
        serdes = {name: (serde(t.key, t.size), serde(t.value)) for name, t in self.topics.items()}
        return Interpreted(topology, config, self.side, serdes, self.stores)


def interpret(case: Spec) -> Interpreted:
    """The case's topology; raises NotBuilt where Penstock lacks an operator."""
    return Interpreter(case).run()


def check_describe(case: Spec) -> str | None:
    """The first difference between our description and Java's; None when they are equal."""
    ours, theirs = str(interpret(case).topology.describe()), case["describe"]
    if ours == theirs:
        return None
    pairs = zip([*ours.splitlines(), "(end)"], [*theirs.splitlines(), "(end)"], strict=False)
    for number, (mine, java) in enumerate(pairs, 1):
        if mine != java:
            return f"describe line {number}: {mine!r}, Java {java!r}"
    return "describe: one text is longer"
