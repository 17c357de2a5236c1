"""What is different between the topology of a group and that of a member that wants to join."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.log.streams_groups.description import GroupSubtopology, GroupTopology, InternalTopicSpec

__all__ = ["topology_difference"]

_MOST_NAMED = 3


def topology_difference(group: GroupTopology, member: GroupTopology) -> str:
    """Describe the first differences; empty if there are none.

    >>> old = GroupTopology((GroupSubtopology("0", ("orders",)),))
    >>> topology_difference(old, GroupTopology((GroupSubtopology("0", ("orders", "users")),)))
    'sub-topology 0 reads users too'
    """
    found = list(_differences(group, member))
    more = f"; and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return "; ".join(found[:_MOST_NAMED]) + more


def _differences(group: GroupTopology, member: GroupTopology) -> Iterator[str]:
    theirs = {each.id: each for each in group.subtopologies}
    ours = {each.id: each for each in member.subtopologies}
    for number in sorted(theirs.keys() | ours.keys()):
        if number not in ours:
            yield f"sub-topology {number} of the group is missing"
        elif number not in theirs:
            yield f"sub-topology {number} is new"
        else:
            yield from _of_one(theirs[number], ours[number])


def _of_one(theirs: GroupSubtopology, ours: GroupSubtopology) -> Iterator[str]:
    where = f"sub-topology {ours.id}"
    yield from _names(f"{where} reads", theirs.source_topics, ours.source_topics)
    yield from _names(f"{where} reads the pattern", theirs.source_patterns, ours.source_patterns)
    yield from _names(f"{where} writes", theirs.repartition_sinks, ours.repartition_sinks)
    yield from _specs(f"{where} has the changelog", theirs.changelogs, ours.changelogs)
    yield from _specs(f"{where} reads", theirs.repartition_sources, ours.repartition_sources)
    if theirs.copartition_groups != ours.copartition_groups:
        yield f"{where} joins other topics"


def _names(what: str, theirs: tuple[str, ...], ours: tuple[str, ...]) -> Iterator[str]:
    if new := [each for each in ours if each not in theirs]:
        yield f"{what} {', '.join(new)} too"
    if gone := [each for each in theirs if each not in ours]:
        yield f"{what} {', '.join(gone)} no more"


def _count(spec: InternalTopicSpec) -> str:
    return f"{spec.partitions} partitions" if spec.partitions else "no fixed number of partitions"


def _specs(what: str, theirs: tuple[InternalTopicSpec, ...], ours: tuple[InternalTopicSpec, ...]) -> Iterator[str]:
    yield from _names(what, tuple(each.name for each in theirs), tuple(each.name for each in ours))
    before = {each.name: each for each in theirs}
    for each in ours:
        old = before.get(each.name, each)
        if old.partitions != each.partitions:
            yield f"{each.name} has {_count(each)}, not {_count(old)}"
        if old.replication_factor != each.replication_factor:
            yield f"{each.name} has the replication factor {each.replication_factor}, not {old.replication_factor}"
        if old.config != each.config:
            settings = sorted({name for name, _ in {*old.config} ^ {*each.config}})
            yield f"{each.name} has other settings ({', '.join(settings)})"
