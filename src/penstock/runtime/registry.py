"""Which operator runs which operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from penstock.errors import TopologyError

if TYPE_CHECKING:
    from penstock.runtime.operator import Operator, TaskContext
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.operations import Operation
    from penstock.topology.topology import Topology

__all__ = ["Factory", "factories", "operator_for"]

Factory = "Callable[[ProcessorNode, Topology, TaskContext], Operator]"

# One module per operator family; each has its own FACTORIES.
_FAMILIES = (
    "stateless",
    "async_calls",
    "processors",
    "tables",
    "aggregate",
    "joins",
    "stream_joins",
    "self_joins",
    "table_joins",
    "table_transforms",
    "suppress",
    "cogroup",
    "foreign_keys",
)


@cache
def factories() -> dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]]:
    """Operation -> factory of its operator, of all families."""
    merged: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {}
    for family in _FAMILIES:
        merged.update(import_module(f"penstock.runtime.{family}").FACTORIES)
    return merged


def operator_for(node: ProcessorNode, topology: Topology, context: TaskContext) -> Operator:
    """The operator of a node."""
    operation = type(node.operation)
    factory = factories().get(operation)
    if factory is None:
        raise TopologyError(
            f"{node.name}: no operator runs {operation.__name__}",
            hint="The topology was built by another version of Penstock than the one that runs it.",
        )
    return factory(node, topology, context)
