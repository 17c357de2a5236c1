"""Streams groups and their members as JSON, for the tables of the embedded log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.log.streams_groups.description import (
    Assignment,
    CopartitionGroup,
    Endpoint,
    GroupSubtopology,
    GroupTask,
    GroupTopology,
    InternalTopicSpec,
    TaskSums,
)
from penstock.log.streams_groups.group import GroupRecord, MemberRecord

__all__ = ["group_from", "group_text", "member_from", "member_text"]

_BY_TASK = ("since", "task_offsets", "task_end_offsets")


def group_text(record: GroupRecord) -> str:
    """Return a group as JSON."""
    fields = {name: getattr(record, name) for name in record.__slots__ if name not in ("group", "topology")}
    return json.dumps({**fields, "topology": None if record.topology is None else _topology(record.topology)})


def group_from(group: str, text: str) -> GroupRecord:
    """Return the group of a JSON."""
    fields = json.loads(text)
    topology = fields.pop("topology")
    return GroupRecord(group, topology=None if topology is None else _topology_from(topology), **fields)


def member_text(record: MemberRecord) -> str:
    """Return a member as JSON, without its id and the time of its last heartbeat, which have columns of their own."""
    plain = {name: getattr(record, name) for name in record.__slots__ if name not in ("member", "heard_ms")}
    for name in ("assigned", "pending", "target"):
        plain[name] = [sorted(tasks) for _, tasks in plain[name].roles]
    for name in _BY_TASK:
        plain[name] = [[*task, offset] for task, offset in sorted(plain[name].items())]
    return json.dumps(plain)


def member_from(member: str, heard_ms: int, text: str) -> MemberRecord:
    """Return the member of a JSON."""
    plain: dict[str, Any] = json.loads(text)
    for name in ("assigned", "pending", "target"):
        plain[name] = Assignment(*(frozenset(GroupTask(*task) for task in tasks) for tasks in plain[name]))
    for name in _BY_TASK:
        plain[name] = _sums(plain[name])
    plain["tags"] = tuple((key, value) for key, value in plain["tags"])
    plain["endpoint"] = None if plain["endpoint"] is None else Endpoint(*plain["endpoint"])
    return MemberRecord(member, heard_ms=heard_ms, **plain)


def _sums(rows: list[list[Any]]) -> TaskSums:
    return {GroupTask(subtopology, partition): number for subtopology, partition, number in rows}


def _topology(topology: GroupTopology) -> dict[str, Any]:
    return {
        "epoch": topology.epoch,
        "subtopologies": [
            {
                "id": each.id,
                "source_topics": each.source_topics,
                "source_patterns": each.source_patterns,
                "changelogs": [_spec(spec) for spec in each.changelogs],
                "repartition_sinks": each.repartition_sinks,
                "repartition_sources": [_spec(spec) for spec in each.repartition_sources],
                "copartition_groups": [
                    [group.source_topics, group.source_patterns, group.repartition_sources]
                    for group in each.copartition_groups
                ],
            }
            for each in topology.subtopologies
        ],
    }


def _topology_from(plain: Mapping[str, Any]) -> GroupTopology:
    return GroupTopology(
        tuple(
            GroupSubtopology(
                id=each["id"],
                source_topics=tuple(each["source_topics"]),
                source_patterns=tuple(each["source_patterns"]),
                changelogs=tuple(map(_spec_from, each["changelogs"])),
                repartition_sinks=tuple(each["repartition_sinks"]),
                repartition_sources=tuple(map(_spec_from, each["repartition_sources"])),
                copartition_groups=tuple(CopartitionGroup(*map(tuple, group)) for group in each["copartition_groups"]),
            )
            for each in plain["subtopologies"]
        ),
        plain["epoch"],
    )


def _spec(spec: InternalTopicSpec) -> list[Any]:
    return [spec.name, spec.partitions, spec.replication_factor, spec.config]


def _spec_from(plain: list[Any]) -> InternalTopicSpec:
    name, partitions, replication_factor, config = plain
    return InternalTopicSpec(name, partitions, replication_factor, tuple((key, value) for key, value in config))
