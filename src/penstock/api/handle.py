"""What streams, tables and grouped things share: a place in the growing graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.api.options import Named
from penstock.errors import TopologyError

if TYPE_CHECKING:
    from penstock.topology.builder import GraphBuilder
    from penstock.topology.graph import GraphNode

__all__ = ["Handle", "check_kind", "name_of", "same_builder"]


@dataclass(frozen=True, slots=True)
class Handle:
    """Kafka's ``AbstractStream``.

    ``node`` is the name of the processor that gives the records, ``sources`` the source nodes of its sub-topology.
    """

    builder: GraphBuilder
    graph: GraphNode
    node: str
    key_serde: Any
    value_serde: Any
    sources: frozenset[str]


def name_of(name: str | Named | None) -> str | None:
    """The text of ``name=``."""
    return name.name if isinstance(name, Named) else name


def check_kind(value: object, kind: type, verb: str, hint: str) -> None:
    """Raises TopologyError when a verb got the wrong kind of thing."""
    if not isinstance(value, kind):
        raise TopologyError(f"{verb}() takes a {kind.__name__}, not {type(value).__name__} {value!r}", hint=hint)


def same_builder(left: Handle, right: Handle, verb: str) -> None:
    """Raises TopologyError when two streams or tables belong to different topologies."""
    if left.builder is not right.builder:
        raise TopologyError(
            f"{verb}(): the two sides belong to different builders", hint="Make both with the same StreamsBuilder."
        )
