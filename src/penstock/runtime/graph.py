"""The part of a topology that one task runs, in an order in which it can be run, and the fields that it asks for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import polars as pl

from penstock.base.log_lines import own_logger
from penstock.base.terminal.human_numbers import counted
from penstock.errors import SerializationError
from penstock.serde.column import Column
from penstock.topology.configured import fields_hint, fields_known_above, fields_read
from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode
from penstock.topology.operations.definitions import Branch, Operation, Process
from penstock.topology.operations.functions import Function

if TYPE_CHECKING:
    from penstock.runtime.rows import Rows
    from penstock.runtime.sensor import Sensor
    from penstock.topology.nodes import Node
    from penstock.topology.topology import Topology

__all__ = ["Graph", "MissingFields", "has_expressions", "stores_of"]

_NOT_OBJECTS = {dict, type(None), str, int, float, bool, bytes, list, tuple}
_LOG = own_logger("penstock.runtime")
_FIRST_REPORT = 10  # values; from then on at ten times as many each time
_NAMES_KEPT = 100


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


@dataclass
class _Pending:
    """A field that has not been found so far."""

    function: Function
    values: int = 0
    next_report: int = _FIRST_REPORT
    seen: set[str] = field(default_factory=set)


class MissingFields:
    """The fields of a task's operators that no value has had so far; each is looked for until it is found once.

    Args:
        graph: The task's part of the topology.
        topology: The whole topology.
        task_id: For messages.
        sensor: Its ``on_field_missing`` is called for each missing field.
    """

    def __init__(self, graph: Graph, topology: Topology, task_id: str, sensor: Sensor) -> None:
        self._task_id = task_id
        self._sensor = sensor
        self.nodes: dict[str, dict[str, _Pending]] = {}
        for node in graph.processors():
            read = fields_read(topology.nodes, node)
            if read and fields_known_above(topology.nodes, node) is None:
                self.nodes[node.name] = {name: _Pending(function) for name, function in read.items()}

    @property
    def never_found(self) -> int:
        """The number of fields that no value has had, though there were values."""
        return sum(one.values > 0 for pending in self.nodes.values() for one in pending.values())

    def look(self, node: str, rows: Rows) -> None:
        """Look for the operator's missing fields in the values that it is about to get."""
        pending = self.nodes[node]
        present, values = _names_in(rows.values)
        for name in present & pending.keys():
            del pending[name]
        for one in pending.values():
            one.values += values
            if len(one.seen) < _NAMES_KEPT:
                one.seen |= present
        if not pending:
            del self.nodes[node]

    def report(self, *, closing: bool = False) -> None:
        """Log the fields that are missing after enough values to be worth a warning; at the end all that are left."""
        for node, pending in self.nodes.items():
            for name, one in pending.items():
                if one.values and (closing or one.values >= one.next_report):
                    self._warn(node, name, one)
                    while one.next_report <= one.values:
                        one.next_report *= 10

    def _warn(self, node: str, name: str, one: _Pending) -> None:
        where = f"{one.function.file}:{one.function.line}"
        hint = fields_hint(name, one.seen) if one.seen else "The values are not dicts or structs."
        _LOG.warning(
            "task %s: %s looks for the field %r (%s), and none of %s has it, so it counts as null. %s",
            self._task_id,
            node,
            name,
            where,
            counted(one.values, "value"),
            hint,
        )
        self._sensor.on_field_missing(self._task_id, node, name, one.values)


def _names_in(column: Column) -> tuple[set[str], int]:
    """Return the fields of the values, and how many values there are; nulls are none."""
    has_bytes = type(column) is not Column  # such a one is better read by column
    if column.is_columnar or has_bytes or not set(map(type, column.items())) <= _NOT_OBJECTS:
        with suppress(SerializationError):
            series = column.series()
            fields = {f.name for f in series.dtype.fields} if isinstance(series.dtype, pl.Struct) else set()
            return fields, len(series) - series.null_count()
    present: set[str] = set()
    values = 0
    for item in column.items():
        if item is not None:
            values += 1
            if isinstance(item, Mapping):
                present.update(item)
    return {name for name in present if isinstance(name, str)}, values
