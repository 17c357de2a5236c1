"""A streams group as tools show groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.log.base import GroupMember, GroupState, TopicPartition
from penstock.log.streams_groups.description import StreamsGroupDescription

__all__ = ["group_state_of"]


def group_state_of(
    description: StreamsGroupDescription, partition_counts: Callable[[], Mapping[str, int]]
) -> GroupState:
    """Return the state and members of a streams group; a member reads what the sources of its active tasks have.

    Args:
        description: The group.
        partition_counts: Returns the numbers of partitions of all topics.
    """
    read: dict[str, list[str]] = {}
    if description.topology is not None:
        for sub in description.topology.subtopologies:
            read[sub.id] = [*sub.source_topics, *(spec.name for spec in sub.repartition_sources)]
    counts = partition_counts() if read else {}
    members = []
    for member in description.members:
        owned = {
            TopicPartition(topic, task.partition)
            for task in member.assignment.active
            for topic in read.get(task.subtopology, ())
            if task.partition < counts.get(topic, 0)
        }
        names = tuple(sorted({tp.topic for tp in owned}))
        host = member.host.removeprefix("/")
        tasks = tuple((role, tuple(map(str, sorted(each)))) for role, each in member.assignment.roles)
        members.append(
            GroupMember(
                member.member, member.instance or "", member.client, host, 0, names, (), tuple(sorted(owned)), tasks
            )
        )
    return GroupState(description.state, "", tuple(members))
