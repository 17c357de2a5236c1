"""The partition counts of internal topics, and the co-partitioning of inputs that are joined."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.errors import CoPartitionError, TopologyError, UnknownTopicError
from penstock.topology.nodes import SinkNode, SourceNode
from penstock.topology.topology import Topology

__all__ = ["partition_counts", "source_topics"]


def source_topics(topology: Topology, existing: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the topics that each source node reads; patterns are matched against the topics that exist.

    Raises:
        UnknownTopicError: No topic matches a pattern.
        TopologyError: A topic matches the patterns of two sources.
    """
    topics_by_source: dict[str, tuple[str, ...]] = {}
    matched: dict[str, str] = {}
    for node in topology.sources:
        topics = node.topics
        if node.pattern is not None:
            topics = tuple(sorted(t for t in existing if re.fullmatch(node.pattern, t)))
            if not topics:
                raise UnknownTopicError(
                    f"{node.name}: no topic matches the pattern {node.pattern!r}",
                    hint="Create one before the start: penstock topics create NAME.",
                    node=node.name,
                )
            for topic in topics:
                first = matched.setdefault(topic, node.name)
                if first != node.name:
                    raise TopologyError(
                        f"topic {topic!r} matches the patterns of two sources, {first!r} and {node.name!r}",
                        hint="Give them patterns that no topic matches both of.",
                        topic=topic,
                    )
        topics_by_source[node.name] = topics
    return topics_by_source


def partition_counts(topology: Topology, existing_counts: Mapping[str, int]) -> dict[str, int]:
    """Return the partition counts of all topics that are read or written: those known, and those of internal topics.

    An internal topic takes the number set by `Repartitioned`; else that of the topics it is joined with; else the
    largest number among the inputs of the sub-topologies that write it, as in Kafka Streams.

    Args:
        topology: The topology.
        existing_counts: Partition counts of the topics that exist.

    Raises:
        CoPartitionError: Topics that are joined have different counts.
    """
    topics = source_topics(topology, existing_counts)
    counts = dict(existing_counts)
    counts |= {t.name: t.partitions for t in topology.internal_topics.values() if t.partitions is not None}
    groups = [sorted({t for name in group for t in topics[name]}) for group in topology.copartition_groups]
    inputs = _Inputs(topology, topics, groups)
    waiting = [name for name in topology.internal_topics if name not in counts]
    while waiting:
        inherited = {name: count for name in waiting if (count := inputs.inherited(counts, name))}
        if not inherited:
            raise TopologyError(
                f"the partition counts of {', '.join(waiting)} depend on each other",
                hint="Give one of them a number: repartition(Repartitioned(partitions=...)).",
            )
        counts |= inherited
        _level(groups, topology, counts, existing_counts)
        waiting = [name for name in waiting if name not in counts]
    for group in groups:
        _check(group, counts, topology)
    return counts


@dataclass(frozen=True)
class _Inputs:
    """The topics that decide about the partition counts of internal topics.

    Attributes:
        topology: The topology.
        topics: The topics that each source node reads.
        groups: Topics that are joined.
    """

    topology: Topology
    topics: Mapping[str, tuple[str, ...]]
    groups: list[list[str]]

    def inherited(self, counts: Mapping[str, int], name: str) -> int | None:
        """Return the partition count that an internal topic takes from others; None if those are not known yet."""
        internal = self.topology.internal_topics
        fixed = {counts[t] for g in self.groups if name in g for t in g if t in counts and t not in internal}
        if fixed:
            return max(fixed)
        inputs: set[str] = set()
        for sub in self.topology.subtopologies():
            nodes = [self.topology.nodes[n] for n in sub.nodes]
            if any(isinstance(n, SinkNode) and n.topic == name for n in nodes):
                inputs |= {t for n in nodes if isinstance(n, SourceNode) for t in self.topics[n.name]}
        inputs.discard(name)
        ready = [counts[t] for t in inputs if t in counts]
        complete = len(ready) == len(inputs) or _in_cycle(self.topology, inputs - counts.keys(), name)
        return max(ready) if ready and complete else None


def _in_cycle(topology: Topology, missing: set[str], name: str) -> bool:
    """Return whether only internal topics of a cycle are missing, which can then take the known counts."""
    return bool(missing) and all(t in topology.internal_topics for t in missing) and name not in missing


def _level(
    groups: list[list[str]], topology: Topology, counts: dict[str, int], existing_counts: Mapping[str, int]
) -> None:
    """Set internal topics without a number of their own to the largest of their group."""
    for group in groups:
        ready = [counts[t] for t in group if t in counts]
        for topic in group:
            internal = topology.internal_topics.get(topic)
            if (
                internal is not None
                and internal.partitions is None
                and topic in counts
                and topic not in existing_counts
            ):
                counts[topic] = max(ready)


def _check(group: list[str], counts: Mapping[str, int], topology: Topology) -> None:
    sizes = {t: counts[t] for t in group if t in counts}
    if len(set(sizes.values())) <= 1:
        return
    large = max(sizes, key=lambda t: sizes[t])
    small = min(sizes, key=lambda t: sizes[t])
    internal = [t for t in (small, large) if t in topology.internal_topics]
    remedy = (
        f"Give the repartition of {internal[0]!r} the same number of partitions as the other."
        if internal
        else f"Put a repartition() before the join on the side of {small!r}, or create {small!r} with {sizes[large]} "
        "partitions."
    )
    raise CoPartitionError(
        f"{large!r} has {sizes[large]} partitions and {small!r} has {sizes[small]}, but they are joined",
        hint=remedy,
        topics=tuple(group),
        counts=sizes,
    )
