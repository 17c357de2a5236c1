"""Members of Kafka's consumer groups, and the deletion of single offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from penstock.errors import LogError
from penstock.log.base import GroupMember, GroupState, TopicPartition
from penstock.log.kafka.topics import error_code

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from penstock.log.kafka.topics import Topics

__all__ = ["delete_offsets", "group_state"]

_REQUEST_S = 10.0
_STATES = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "STABLE": "Stable",
    "DEAD": "Empty",
    "EMPTY": "Empty",
}
_NOBODY = GroupState("Empty", "", ())


def group_state(topics: Topics, admin: AdminClient, group: str) -> GroupState:
    """Return the state and members of a group; it is Empty also if there is no such group."""

    def act() -> Any:
        return admin.describe_consumer_groups([group], request_timeout=_REQUEST_S)[group].result(_REQUEST_S)

    try:
        found = topics.ask(act, f"describing group {group!r}")
    except LogError as error:
        if error_code(error) == KafkaError.GROUP_ID_NOT_FOUND:
            return _NOBODY
        raise
    members = tuple(_member(each, found.partition_assignor or "") for each in found.members)
    return GroupState(_STATES.get(found.state.name, found.state.name), found.partition_assignor or "", members)


def _member(found: Any, assignor: str) -> GroupMember:
    entries = found.assignment.topic_partitions if found.assignment is not None else ()
    owned = tuple(sorted(TopicPartition(each.topic, each.partition) for each in entries))
    topics = tuple(sorted({place.topic for place in owned}))
    host = (found.host or "").removeprefix("/")
    return GroupMember(
        found.member_id, found.group_instance_id or "", found.client_id or "", host, 0, topics, (assignor,), owned
    )


def delete_offsets(topics: Topics, group: str, places: Iterable[TopicPartition]) -> None:
    """Delete some offsets of a group without members.

    The client library cannot delete single offsets: the group is deleted and the others are committed again.
    """
    unwanted = set(places)
    kept = {place: each for place, each in topics.committed(group).items() if place not in unwanted}
    topics.delete_group(group)
    for metadata in {each.metadata for each in kept.values()}:
        chosen = {place: each.offset for place, each in kept.items() if each.metadata == metadata}
        topics.commit(group, chosen, metadata)
