"""The nodes of the logical graph: sources, processors and sinks, with Kafka's names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.topology.operations.functions import Function

if TYPE_CHECKING:
    from penstock.topology.operations.definitions import Operation

__all__ = ["Node", "ProcessorNode", "SinkNode", "SourceNode", "parents_of"]


@dataclass(frozen=True, slots=True)
class SourceNode:
    """A node that reads topics. Exactly one of ``topics`` and ``pattern`` is set.

    ``timestamp_extractor`` is called as ``fn(record, partition_time_ms)``; None takes the record's timestamp.
    ``offset_reset`` is "earliest", "latest" or None (the application's setting). ``internal``: a repartition topic.
    ``global_store``: the source of a global table or global store.
    """

    name: str
    topics: tuple[str, ...]
    key_serde: Any
    value_serde: Any
    pattern: str | None = None
    timestamp_extractor: Function | None = None
    offset_reset: str | None = None
    internal: bool = False
    global_store: bool = False

    def reads(self, topic: str) -> bool:
        """Return whether it reads a topic, by its name or by the pattern."""
        return topic in self.topics or (self.pattern is not None and re.fullmatch(self.pattern, topic) is not None)


@dataclass(frozen=True, slots=True)
class ProcessorNode:
    """A node that applies an operation. Children are called in the order of ``Topology.children(name)``."""

    name: str
    operation: Operation
    parents: tuple[str, ...]
    stores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkNode:
    """A node that writes to a topic.

    Either ``topic`` or ``topic_fn`` (called with key, value and record context) is set. ``partitioner`` is called as
    ``fn(topic, key, value, partitions)`` and returns a partition number; None is Kafka's default (murmur2 of the key
    bytes; of the plain key for windowed keys). ``internal``: a repartition topic. ``connector``: the settings of the
    sink connector that carries the topic on while the application runs; empty for none.
    """

    name: str
    topic: str | None
    key_serde: Any
    value_serde: Any
    parents: tuple[str, ...]
    topic_fn: Function | None = None
    partitioner: Function | None = None
    internal: bool = False
    connector: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # they may have passwords


Node = SourceNode | ProcessorNode | SinkNode


def parents_of(node: Node) -> tuple[str, ...]:
    """Return the names of the nodes whose records this one gets."""
    return () if isinstance(node, SourceNode) else node.parents
