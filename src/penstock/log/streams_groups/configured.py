"""A group's topology over the topics that exist: tasks, internal topics to create, and what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.log.streams_groups.description import GroupSubtopology, GroupTask, GroupTopology, InternalTopicSpec
from penstock.log.streams_groups.messages import GroupStatus, StatusCode

__all__ = ["ConfiguredTopology", "configured", "reader_of"]


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology with the numbers of partitions.

    Attributes:
        topology: The topology with patterns resolved and numbers of partitions set.
        tasks: All tasks; none while anything is wrong.
        missing: The internal topics to create.
        status: What is wrong.
    """

    topology: GroupTopology
    tasks: frozenset[GroupTask] = frozenset()
    missing: tuple[InternalTopicSpec, ...] = ()
    status: tuple[GroupStatus, ...] = field(default=())

    def read_by(self, tasks: Iterable[GroupTask], counts: Mapping[str, int]) -> frozenset[tuple[str, int]]:
        """Return the partitions that tasks read."""
        by_id = {each.id: each for each in self.topology.subtopologies}
        return frozenset(
            (topic, task.partition)
            for task in tasks
            if task.subtopology in by_id
            for topic in _read(by_id[task.subtopology])
            if task.partition < counts.get(topic, 0)
        )


def configured(topology: GroupTopology, counts: Mapping[str, int]) -> ConfiguredTopology:
    """Fit a topology to the topics that exist.

    Args:
        topology: The topology, as members send it.
        counts: The numbers of partitions of all topics.

    >>> counting = GroupTopology((
    ...     GroupSubtopology("0", ("lines",), repartition_sinks=("words",)),
    ...     GroupSubtopology("1", repartition_sources=(InternalTopicSpec("words"),)),
    ... ))
    >>> configured(counting, {}).status[0].detail
    'Source topics lines are missing.'
    >>> [each.partitions for each in configured(counting, {"lines": 3}).missing]
    [3]
    >>> sorted(map(str, configured(counting, {"lines": 1, "words": 1}).tasks))
    ['0_0', '1_0']
    """
    resolved, missing = _resolved(topology, counts)
    if missing:
        return ConfiguredTopology(resolved, status=(GroupStatus(StatusCode.MISSING_SOURCE_TOPICS, missing),))
    repartition_counts = _repartition_counts(resolved, counts)
    if isinstance(repartition_counts, GroupStatus):
        return ConfiguredTopology(resolved, status=(repartition_counts,))
    all_counts = {**counts, **repartition_counts}
    sized = GroupTopology(tuple(_sized(each, all_counts) for each in resolved.subtopologies), resolved.epoch)
    internal = {
        spec.name: spec for each in sized.subtopologies for spec in (*each.repartition_sources, *each.changelogs)
    }
    wrong = [each for each in internal.values() if each.name in counts and counts[each.name] != each.partitions]
    if wrong:
        texts = [
            f"Existing internal topic {each.name} has invalid partitions: expected {each.partitions}, "
            f"actual {counts[each.name]}"
            for each in wrong
        ]
        status = GroupStatus(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, "; ".join(texts))
        return ConfiguredTopology(sized, status=(status,))
    absent = tuple(each for name, each in sorted(internal.items()) if name not in counts)
    if absent:
        names = ", ".join(each.name for each in absent)
        text = f"Internal topics are missing: {names}"
        return ConfiguredTopology(
            sized, missing=absent, status=(GroupStatus(StatusCode.MISSING_INTERNAL_TOPICS, text),)
        )
    tasks = frozenset(
        GroupTask(each.id, number) for each in sized.subtopologies for number in range(_task_count(each, all_counts))
    )
    return ConfiguredTopology(sized, tasks)


def reader_of(topology: GroupTopology, topic: str) -> str | None:
    """Return the id of the sub-topology that reads a topic; None if none does.

    >>> topology = GroupTopology((GroupSubtopology("0", ("lines",), ("logs-.*",)), GroupSubtopology("1", ("words",))))
    >>> [reader_of(topology, each) for each in ("words", "logs-eu", "other")]
    ['1', '0', None]
    """
    for each in topology.subtopologies:
        if topic in _read(each) or any(re.fullmatch(pattern, topic) for pattern in each.source_patterns):
            return each.id
    return None


def _resolved(topology: GroupTopology, counts: Mapping[str, int]) -> tuple[GroupTopology, str]:
    """Return the topology with the topics that its patterns match, and a text if topics are missing."""
    found, missing = [], []
    for each in topology.subtopologies:
        matched = [
            sorted(topic for topic in counts if re.fullmatch(pattern, topic)) for pattern in each.source_patterns
        ]
        missing += [topic for topic in each.source_topics if topic not in counts]
        missing += [p for p, topics in zip(each.source_patterns, matched, strict=True) if not topics]
        groups = tuple(
            replace(
                group,
                source_topics=(
                    *group.source_topics,
                    *(len(each.source_topics) + _at(matched, number) + i for number in group.source_patterns
                      for i in range(len(matched[number]))),
                ),
                source_patterns=(),
            )
            for group in each.copartition_groups
        )  # fmt: skip
        topics = (*each.source_topics, *(topic for part in matched for topic in part))
        found.append(replace(each, source_topics=topics, source_patterns=(), copartition_groups=groups))
    text = f"Source topics {', '.join(sorted(set(missing)))} are missing." if missing else ""
    return GroupTopology(tuple(found), topology.epoch), text


def _at(matched: list[list[str]], number: int) -> int:
    return sum(map(len, matched[:number]))


def _repartition_counts(topology: GroupTopology, counts: Mapping[str, int]) -> dict[str, int] | GroupStatus:
    """Return the numbers of partitions of repartition topics, or why they have none.

    One that names no number has that of the topics that it is joined with, else the largest number among the topics
    that its writers read.
    """
    specs = {spec.name: spec for each in topology.subtopologies for spec in each.repartition_sources}
    found = {name: spec.partitions for name, spec in specs.items() if spec.partitions}
    open_names = specs.keys() - found.keys()
    while open_names:
        ready = {
            name: max(sizes)
            for name in open_names
            if (sizes := _writers_counts(topology, name, {**counts, **found}, specs.keys()))
        }
        if not ready:
            names = ", ".join(sorted(open_names))
            text = f"The numbers of partitions of {names} depend on each other"
            return GroupStatus(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, text)
        found |= ready
        open_names = open_names - ready.keys()
    free = {name for name, spec in specs.items() if not spec.partitions}
    for each in topology.subtopologies:
        for group in each.copartition_groups:
            topics = _members_of(each, *(group.source_topics, group.repartition_sources))
            counts_of_group = {topic: found.get(topic) or counts[topic] for topic in topics}
            fixed = {topic: size for topic, size in counts_of_group.items() if topic not in free}
            size = max((fixed or counts_of_group).values(), default=0)
            found |= dict.fromkeys(counts_of_group.keys() & free, size)
            if len(set(fixed.values())) > 1:
                text = f"Following topics do not have the same number of partitions: {sorted(fixed.items())}"
                return GroupStatus(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, text)
    return found


def _writers_counts(
    topology: GroupTopology, topic: str, all_counts: Mapping[str, int], internal: Iterable[str]
) -> list[int]:
    """Return the numbers of partitions of what a topic's writers read; nothing while some are not known."""
    read = {each for sub in topology.subtopologies if topic in sub.repartition_sinks for each in _read(sub)} - {topic}
    waiting = {each for each in read if each not in all_counts}
    in_circle = bool(waiting) and waiting <= set(internal) and len(waiting) < len(read)
    return [all_counts[each] for each in read if each in all_counts] if not waiting or in_circle else []


def _read(sub: GroupSubtopology) -> list[str]:
    return [*sub.source_topics, *(spec.name for spec in sub.repartition_sources)]


def _members_of(sub: GroupSubtopology, topics: Iterable[int], repartitions: Iterable[int]) -> list[str]:
    return [*(sub.source_topics[at] for at in topics), *(sub.repartition_sources[at].name for at in repartitions)]


def _task_count(sub: GroupSubtopology, counts: Mapping[str, int]) -> int:
    return max((counts[topic] for topic in _read(sub)), default=0)


def _sized(sub: GroupSubtopology, counts: Mapping[str, int]) -> GroupSubtopology:
    tasks = _task_count(sub, counts)
    return replace(
        sub,
        changelogs=tuple(
            replace(spec, partitions=_changelog_count(spec, sub, tasks, counts)) for spec in sub.changelogs
        ),
        repartition_sources=tuple(replace(spec, partitions=counts[spec.name]) for spec in sub.repartition_sources),
    )


def _changelog_count(spec: InternalTopicSpec, sub: GroupSubtopology, tasks: int, counts: Mapping[str, int]) -> int:
    """Return the number of partitions of a changelog; a source topic that serves as one has its own."""
    return counts[spec.name] if spec.name in sub.source_topics else tasks
