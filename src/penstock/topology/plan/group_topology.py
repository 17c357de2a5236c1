"""The topology as an application's group knows it (KIP-1071), field by field as Java's client sends it.

A broker compares topologies as they are, so a group with members in Java needs Java's orders too: what is sorted is
sorted as text, and the topics of co-partition groups have the order of a ``HashSet``. Java's client loses sight of the
sources of a suppressed table, and of the repartition topics of a cogrouped stream: joins of these have other
co-partition groups there, so that such an application has no members in Java beside those in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.base.java_text.hashing import hash_order, string_hash
from penstock.log.streams_groups.description import (
    CopartitionGroup,
    GroupSubtopology,
    GroupTopology,
    InternalTopicSpec,
    Tags,
)
from penstock.topology.nodes import SinkNode, SourceNode
from penstock.topology.plan.internal_topics import changelog_settings, changelog_topic, repartition_settings
from penstock.topology.topology import internal_topic

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.topology.topology import SubTopology, Topology

__all__ = ["group_topology"]


def group_topology(topology: Topology, application_id: str, config: StreamsConfig) -> GroupTopology:
    """Return the topology that a member of the application's group sends when it joins.

    Args:
        topology: The topology.
        application_id: The ``application.id``.
        config: The application's settings, which decide about its internal topics.
    """
    subtopologies = [_Subtopology(each, topology, application_id, config).build() for each in topology.subtopologies()]
    return GroupTopology(tuple(sorted(subtopologies, key=lambda each: each.id)))


class _Subtopology:
    """The parts of one sub-topology."""

    def __init__(self, sub: SubTopology, topology: Topology, application_id: str, config: StreamsConfig) -> None:
        self._sub, self._topology, self._application_id, self._config = sub, topology, application_id, config
        self._nodes = [topology.nodes[name] for name in sub.nodes]
        self._sources = [node for node in self._nodes if isinstance(node, SourceNode)]

    def build(self) -> GroupSubtopology:
        internal = self._topology.internal_topics
        read = dict.fromkeys(topic for node in self._sources for topic in node.topics)
        patterns = sorted({node.pattern for node in self._sources if node.pattern is not None})
        topics = sorted(topic for topic in read if topic not in internal)
        repartitions = sorted((self._repartition(topic) for topic in read if topic in internal), key=_name)
        written = {node.topic for node in self._nodes if isinstance(node, SinkNode) and node.topic in internal}
        return GroupSubtopology(
            id=str(self._sub.id),
            source_topics=tuple(topics),
            source_patterns=tuple(patterns),
            changelogs=tuple(sorted(self._changelogs(), key=_name)),
            repartition_sinks=tuple(sorted(self._physical(topic) for topic in written if topic is not None)),
            repartition_sources=tuple(repartitions),
            copartition_groups=self._copartition_groups(topics, patterns, [each.name for each in repartitions]),
        )

    def _changelogs(self) -> Iterable[InternalTopicSpec]:
        for name in self._sub.stores:
            spec = self._topology.stores[name]
            if name not in self._topology.global_stores and spec.is_restorable:
                topic = spec.changelog_topic or changelog_topic(self._application_id, name)
                yield self._topic(topic, 0, changelog_settings(spec, self._config))

    def _repartition(self, topic: str) -> InternalTopicSpec:
        count = self._topology.internal_topics[topic].partitions
        return self._topic(self._physical(topic), count or 0, repartition_settings(self._config))

    def _topic(self, name: str, partitions: int, settings: dict[str, str]) -> InternalTopicSpec:
        config: Tags = tuple(sorted(settings.items()))
        return InternalTopicSpec(name, partitions, int(self._config["replication.factor"]), config)

    def _physical(self, topic: str) -> str:
        return internal_topic(self._application_id, topic) if topic in self._topology.internal_topics else topic

    def _copartition_groups(
        self, topics: Sequence[str], patterns: Sequence[str], repartitions: Sequence[str]
    ) -> tuple[CopartitionGroup, ...]:
        read = {*topics, *repartitions, *(_pattern_key(each) for each in patterns)}
        groups = [each for each in self._merged_groups() if read.issuperset(each)]
        return tuple(
            CopartitionGroup(
                tuple(topics.index(each) for each in group if each in topics),
                tuple(at for at, each in enumerate(patterns) if _pattern_key(each) in group),
                tuple(repartitions.index(each) for each in group if each in repartitions),
            )
            for group in sorted(groups, key=lambda group: _bucket(group, len(groups)))
        )

    def _merged_groups(self) -> list[list[str]]:
        """Return the co-partition groups of the topology; one that shares a topic with an earlier one is part of it."""
        by_topic: dict[str, dict[str, None]] = {}
        merged: list[dict[str, None]] = []
        for names in self._topology.copartition_groups:
            topics = hash_order(
                dict.fromkeys(topic for name in hash_order(sorted(names)) for topic in self._read(name))
            )
            group = next((by_topic[topic] for topic in topics if topic in by_topic), None)
            if group is None:
                group = {}
                merged.append(group)
            group.update(dict.fromkeys(map(self._physical, topics)))
            by_topic.update(dict.fromkeys(topics, group))
        return [hash_order(each) for each in merged]

    def _read(self, name: str) -> tuple[str, ...]:
        node = self._topology.nodes[name]
        assert isinstance(node, SourceNode), "co-partition groups are of sources"  # noqa: S101
        return node.topics if node.pattern is None else (_pattern_key(node.pattern),)


def _name(spec: InternalTopicSpec) -> str:
    return spec.name


def _pattern_key(pattern: str) -> str:
    """Return a text for a pattern that no topic has as its name."""
    return f"~{pattern}"


def _bucket(topics: Sequence[str], count: int) -> int:
    """Return the place of a set of topics in a ``HashSet`` with so many sets."""
    buckets = 16
    while buckets * 3 // 4 < count:
        buckets *= 2
    code = sum(map(string_hash, topics)) & 0xFFFFFFFF
    return (code ^ code >> 16) & (buckets - 1)
