"""The topologies that a pass over the columns cannot run exactly, and the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.runtime.graph import Graph, stores_of
from penstock.topology.operations.base import Process
from penstock.topology.operations.tables import TableTransformValues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.runtime.context import TaskContext
    from penstock.runtime.operator import Operator

__all__ = ["shared_stores", "slicing_reason"]


def slicing_reason(graph: Graph, operators: Mapping[str, Operator], context: TaskContext) -> str | None:
    """Return why records must go through one by one; None when whole batches have the same result.

    An operator that cannot work on batches says so in its ``sliced_reason``.
    """
    shared = shared_stores(graph)
    if shared:
        store, users = next(iter(shared.items()))
        return (
            f"store {store!r} is shared by {' and '.join(users)}, which must see each other's writes record by record"
        )
    for name, operator in operators.items():
        if operator.sliced_reason is not None:
            return f"{name}: {operator.sliced_reason}"
    for queue, kind in ((context.stream_queue, "stream-time"), (context.wall_clock_queue, "wall-clock")):
        scheduled = sorted(queue.nodes())
        if len(scheduled) > 1:
            return f"{' and '.join(scheduled)} both have {kind} punctuations, which take turns"
    return None


def shared_stores(graph: Graph) -> dict[str, list[str]]:
    """Return the stores that a processor of the user's shares with another node."""
    users: dict[str, list[str]] = {}
    by_processors: set[str] = set()
    for node in graph.processors():
        for store in sorted(stores_of(node)):
            users.setdefault(store, []).append(node.name)
            if isinstance(node.operation, Process) or (
                isinstance(node.operation, TableTransformValues) and store in node.operation.stores
            ):
                by_processors.add(store)
    return {store: names for store, names in users.items() if len(names) > 1 and store in by_processors}
