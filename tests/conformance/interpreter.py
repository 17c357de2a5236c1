"""Turns a recorded case into a Penstock topology, through the public API.

A family of operators is a file ``ops_*.py`` with one method for each operator, named as it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from exception_handlers import handlers_of
from java_errors import refusal
from ops_aggregations import AggregationOperators
from ops_joins import JoinOperators
from ops_sources import SourceOperators
from ops_streams import StreamOperators
from ops_suppress import SuppressOperators
from ops_tables import TableOperators
from ops_topology import PlainTopology
from penstock import ProcessorWrapper
from penstock.topology.topology import Topology
from stores import rows_of
from things import NotBuilt, Spec, Thing, reader

__all__ = ["Interpreted", "NotBuilt", "check_describe", "interpret"]


@dataclass
class Interpreted:
    """A case's topology and what a runner needs to feed it and to read it."""

    topology: Topology
    config: dict[str, Any]
    side: list[Spec]
    serdes: dict[str, tuple[Any, Any]]
    stores: list[str]
    refused: list[tuple[bytes | None, bytes | None, str]] | None = None
    wrapped: list[str] = field(default_factory=list)
    running: dict[str, Any] = field(default_factory=dict)  # the driver that a runner has made of it

    def refusal(self, record: Any) -> Exception | None:
        """The answer of the log to a record that it is to refuse."""
        for number, (key, value, how) in enumerate(self.refused or ()):
            if (record.key, record.value) == (key, value):
                del self.refused[number]
                return refusal(how)
        return None

    def dump_store(self, driver: Any, name: str) -> list[Spec]:
        """All rows of a store, as in the case."""
        return rows_of(self.topology.stores[name], driver.store(name))


class CaseWrapper(ProcessorWrapper):
    """Notes the names of the processors that it is asked to wrap, and leaves them as they are."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def wrap_processor_supplier(self, name: str, supplier: Any) -> Any:
        self.names.append(name)
        return supplier

    def wrap_fixed_key_processor_supplier(self, name: str, supplier: Any) -> Any:
        self.names.append(f"{name} (fixed key)")
        return supplier


class Interpreter(
    SourceOperators, StreamOperators, TableOperators, AggregationOperators, SuppressOperators, JoinOperators
):
    """One method for each operator, from the families."""

    def run(self) -> Interpreted:
        for name, t in self.case.get("topics", {}).items():
            self.topics[name] = Thing(None, t["key"], t["value"], t.get("window_size_ms", 0))
        plain_api = any(n["op"] == "source" for n in self.case["topology"])
        family = PlainTopology(self.topics, self.stores, self.side, self.running) if plain_api else self
        for n in self.case["topology"]:
            operator = getattr(family, f"op_{n['op']}", None)
            if operator is None:
                raise NotBuilt(n["op"])
            thing = operator(n)
            if thing is not None:
                self.things[n["id"]] = thing
        config = {**self.case["config"], **handlers_of(self.case, self.side)}
        if self.case.get("wrapper"):
            config["processor.wrapper.class"] = CaseWrapper(self.wrapped)
        topology = family.topology if isinstance(family, PlainTopology) else self.builder.build(config)
        serdes = {name: (reader(t.key, t.size), reader(t.value)) for name, t in self.topics.items()}
        refused = self.refused if any("fail_send" in n for n in self.case["topology"]) else None
        return Interpreted(topology, config, self.side, serdes, self.stores, refused, self.wrapped, self.running)


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
