"""Errors of values that a store's serde does not take: they name the operator, the store, and the serde's origin."""

from __future__ import annotations

from types import TracebackType

from penstock.errors import SerializationError
from penstock.topology.nodes import ProcessorNode
from penstock.topology.topology import Topology

__all__ = ["NamingStores"]


class NamingStores:
    """Makes errors of serdes that leave an operator name it and its stores, as Kafka's ``StreamsException`` does.

    Args:
        topology: The topology.
        node: The operator's node.
        task_id: The task.
    """

    __slots__ = ("_node", "_task_id", "_topology")

    def __init__(self, topology: Topology, node: str, task_id: str) -> None:
        self._topology = topology
        self._node = node
        self._task_id = task_id

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, SerializationError) and "node" not in error.facts:
            raise _named(error, self._topology, self._node, self._task_id) from error


def _named(error: SerializationError, topology: Topology, node: str, task_id: str) -> SerializationError:
    failed = topology.nodes[node]
    names = failed.stores if isinstance(failed, ProcessorNode) else ()
    specs = [topology.stores[name] for name in names]
    wrong = error.facts.get("serde")
    specs = [spec for spec in specs if wrong in (spec.key_serde.name, spec.value_serde.name)] or specs
    where = f" (store {', '.join(repr(spec.name) for spec in specs)})" if specs else ""
    hint = error.hint
    if any(spec.untyped for spec in specs):
        hint = (
            "The topology names no types for this store, so default.value.serde writes it, as in Kafka "
            'Streams. Name one: Materialized(value_serde="json"), or value_serde= of StreamJoined, Joined or Grouped; '
            "penstock.untyped.stores=auto takes all of Python's types."
        )
    facts = {**error.facts, "node": node, "task": task_id, "stores": [spec.name for spec in specs]}
    return SerializationError(f"{node}{where}: {error.message}", hint=hint, **facts)
