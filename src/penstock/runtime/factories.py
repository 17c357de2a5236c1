"""The table of operations and the operators that run them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from penstock.errors import TopologyError
from penstock.runtime import processors
from penstock.runtime.aggregate import cogroup
from penstock.runtime.aggregate import operators as aggregate_operators
from penstock.runtime.functions import async_calls, stateless
from penstock.runtime.joins import foreign_key_left, self_join, stream_stream, stream_table, table_table
from penstock.runtime.suppress import operator as suppress_operator
from penstock.runtime.tables import operators as table_operators
from penstock.runtime.tables import transforms

if TYPE_CHECKING:
    from penstock.runtime.context import TaskContext
    from penstock.runtime.operator import Operator
    from penstock.topology.nodes import ProcessorNode
    from penstock.topology.operations.base import Operation
    from penstock.topology.topology import Topology

__all__ = ["Factory", "factories", "operator_for"]

Factory = "Callable[[ProcessorNode, Topology, TaskContext], Operator]"

# One module an operator family; each has its own FACTORIES.
_FAMILIES: tuple[ModuleType, ...] = (
    stateless,
    async_calls,
    processors,
    table_operators,
    aggregate_operators,
    stream_table,
    stream_stream,
    self_join,
    table_table,
    transforms,
    suppress_operator,
    cogroup,
    foreign_key_left,
)


@cache
def factories() -> dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]]:
    """Return operation -> factory of its operator, of all families."""
    merged: dict[type[Operation], Callable[[ProcessorNode, Topology, TaskContext], Operator]] = {}
    for family in _FAMILIES:
        merged.update(family.FACTORIES)
    return merged


def operator_for(node: ProcessorNode, topology: Topology, context: TaskContext) -> Operator:
    """Return the operator of a node."""
    operation = type(node.operation)
    factory = factories().get(operation)
    if factory is None:
        raise TopologyError(
            f"{node.name}: no operator runs {operation.__name__}",
            hint="The topology was built by another version of Penstock than the one that runs it.",
        )
    return factory(node, topology, context)
