"""The part of a topology that one task runs, in an order in which it can be run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode
from penstock.topology.operations.base import Branch, Operation, Process
from penstock.topology.operations.functions import Function

if TYPE_CHECKING:
    from penstock.topology.nodes import Node
    from penstock.topology.topology import Topology

__all__ = ["Graph", "has_expressions", "stores_of"]


@dataclass(frozen=True, slots=True)
class Graph:
    """``order``: every node after its parents and after the tables that it reads.

    ``children``: (name, number among all children of the node, or None if it is the only one).
    """

    order: tuple[str, ...]
    nodes: dict[str, Node]
    children: dict[str, tuple[tuple[str, int | None], ...]]
    parents: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, topology: Topology, names: Collection[str] | None) -> Graph:
        chosen = set(topology.nodes if names is None else names)
        nodes = {name: node for name, node in topology.nodes.items() if name in chosen}
        parents: dict[str, list[str]] = {name: [] for name in nodes}
        children: dict[str, tuple[tuple[str, int | None], ...]] = {}
        for name in nodes:
            every = topology.children(name)
            children[name] = tuple(
                (child, number if len(every) > 1 else None) for number, child in enumerate(every) if child in chosen
            )
            for child, _ in children[name]:
                parents[child].append(name)
        order = _ordered(nodes, parents)
        return cls(order, nodes, children, {name: tuple(p) for name, p in parents.items()})

    def sources(self) -> list[SourceNode]:
        return [n for n in self.nodes.values() if isinstance(n, SourceNode)]

    def sinks(self) -> list[SinkNode]:
        return [n for n in self.nodes.values() if isinstance(n, SinkNode)]

    def processors(self) -> list[ProcessorNode]:
        return [n for name in self.order if isinstance(n := self.nodes[name], ProcessorNode)]


def _ordered(nodes: dict[str, Node], parents: dict[str, list[str]]) -> tuple[str, ...]:
    before = {name: [*parents[name], *_tables_read(nodes[name], nodes)] for name in nodes}
    order: dict[str, None] = {}
    for start in nodes:
        stack = [(start, iter(before[start]))]
        while stack:
            name, pending = stack[-1]
            if name in order:
                stack.pop()
                continue
            following = next((p for p in pending if p not in order), None)
            if following is None:
                order[name] = None
                stack.pop()
            else:
                stack.append((following, iter(before[following])))
    return tuple(order)


def _tables_read(node: Node, nodes: dict[str, Node]) -> list[str]:
    """Return the nodes that an operation names: tables whose values it looks up, beside its parents."""
    if not isinstance(node, ProcessorNode) or isinstance(node.operation, Branch):
        return []
    return [text for text in _texts(node.operation) if text in nodes and text != node.name]


def _texts(operation: Operation) -> list[str]:
    texts: list[str] = []
    for one in fields(operation):
        if one.name.endswith("store") or one.name == "stores":
            continue
        value = getattr(operation, one.name)
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, tuple):
            texts += [v for v in value if isinstance(v, str)]
    return texts


def stores_of(node: ProcessorNode) -> set[str]:
    """Return the stores that a processor may touch."""
    stores = set(node.stores)
    if isinstance(node.operation, Process):
        stores.update(node.operation.stores)
    for one in fields(node.operation):
        if one.name.endswith("store") and isinstance(value := getattr(node.operation, one.name), str):
            stores.add(value)
    return stores


def has_expressions(graph: Graph) -> bool:
    """Return whether any function in this part of the topology is a Polars expression."""
    return any(
        isinstance(function, Function) and function.is_expression
        for node in graph.processors()
        for one in fields(node.operation)
        for function in _functions(getattr(node.operation, one.name))
    )


def _functions(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)
