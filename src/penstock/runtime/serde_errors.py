"""Errors of values that a store's serde does not take: they name the operator, the store, and the serde's origin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import SerializationError
from penstock.topology.nodes import ProcessorNode
from penstock.topology.topology import Topology

__all__ = ["naming_stores"]


@contextmanager
def naming_stores(topology: Topology, node: str, task_id: str) -> Iterator[None]:
    """Make errors of serdes that leave an operator name it and its stores, as Kafka's ``StreamsException`` does."""
    try:
        yield
    except SerializationError as error:
        if "node" in error.facts:
            raise
        raise _named(error, topology, node, task_id) from error


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
