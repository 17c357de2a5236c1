"""Which topologies a pass over the columns cannot do exactly, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.runtime.graph import Graph, stores_of
from penstock.topology.operations import Process
from penstock.topology.table_operations import TableTransformValues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.runtime.context import RunningContext
    from penstock.runtime.operator import Operator

__all__ = ["shared_stores", "slicing_reason"]


def slicing_reason(graph: Graph, operators: Mapping[str, Operator], context: RunningContext) -> str | None:
    """Why records must go through one by one; None when whole batches give the same.

    An operator that cannot work on batches says so in an attribute ``sliced_reason``.
    """
    shared = shared_stores(graph)
    if shared:
        store, users = next(iter(shared.items()))
        return (
            f"store {store!r} is shared by {' and '.join(users)}, which must see each other's writes record by record"
        )
    for name, operator in operators.items():
        reason = getattr(operator, "sliced_reason", None)
        if reason is not None:
            return f"{name}: {reason}"
    for queue, kind in ((context.stream_queue, "stream-time"), (context.wall_clock_queue, "wall-clock")):
        scheduled = sorted(queue.nodes())
        if len(scheduled) > 1:
            return f"{' and '.join(scheduled)} both have {kind} punctuations, which take turns"
    return None


def shared_stores(graph: Graph) -> dict[str, list[str]]:
    """Stores that a processor of the user's shares with another node."""
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
