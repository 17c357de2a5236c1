"""What a member and its coordinator tell each other: heartbeats and answers.

The fields are those of Kafka's ``StreamsGroupHeartbeat``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from penstock.log.streams_groups.description import Assignment, Endpoint, GroupTask, GroupTopology, Tags, TaskSums

__all__ = [
    "JOIN_EPOCH",
    "LEAVE_EPOCH",
    "LEAVE_STATIC_EPOCH",
    "EndpointPartitions",
    "GroupStatus",
    "StreamsHeartbeat",
    "HeartbeatAnswer",
    "HeartbeatError",
    "StatusCode",
]

JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2  # in place of a member's epoch


class EndpointPartitions(NamedTuple):
    """The partitions that the tasks behind an endpoint read."""

    endpoint: Endpoint
    active: frozenset[tuple[str, int]]
    standby: frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class StreamsHeartbeat:
    """A member's heartbeat. None (or -1, for the time-out) is what has not changed since the last one.

    Attributes:
        group: The ``group.id``, which is the ``application.id``.
        member: The member's id, made by itself.
        epoch: Its epoch; 0 joins, -1 leaves, -2 leaves as a static member that will come back.
        endpoint_epoch: The version of the endpoints that it knows.
        instance: Its ``group.instance.id``.
        rack: Its ``client.rack``.
        rebalance_timeout_ms: How long it may take to give tasks up.
        topology: Its topology, when it joins.
        owned: The tasks that it owns now.
        process: The id of its process (the instance): members of one process share its memory and its disk.
        endpoint: The endpoint of its process.
        tags: Its ``client.tag.*``.
        task_offsets: How far its copies of state go.
        task_end_offsets: How far the changelogs of these tasks go.
        shutdown: Asks all members to shut the application down.
        place: The identity of its folder of replicas, when it joins a group of an embedded log: members of one folder
            find there what others have left. Brokers know nothing of it.
    """

    group: str
    member: str
    epoch: int
    endpoint_epoch: int = -1
    instance: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = -1
    topology: GroupTopology | None = None
    owned: Assignment | None = None
    process: str | None = None
    endpoint: Endpoint | None = None
    tags: Tags | None = None
    task_offsets: TaskSums | None = None
    task_end_offsets: TaskSums | None = None
    shutdown: bool = False
    place: str = ""


class StatusCode(IntEnum):
    """What may be wrong with a group while its members go on."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class GroupStatus(NamedTuple):
    """A status of the group; ``code`` is one of `StatusCode`, or a number of a later broker."""

    code: int
    detail: str


class HeartbeatError(IntEnum):
    """Kafka's codes of errors that the answer to a heartbeat may have; there may be others."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    GROUP_ID_NOT_FOUND = 69
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    STALE_MEMBER_EPOCH = 113
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The coordinator's answer; None is what has not changed.

    Attributes:
        error: One of `HeartbeatError`, or another code of Kafka's.
        message: The coordinator's words for the error.
        epoch: The member's epoch from now on.
        heartbeat_interval_ms: The time to the next heartbeat.
        acceptable_recovery_lag: The lag at which a warm-up task counts as caught up.
        task_offset_interval_ms: How often to send the offsets of tasks; 0: not at all.
        status: What is wrong with the group.
        active: The tasks to process.
        standby: The tasks to keep a copy of.
        warmup: The tasks to prepare a copy of, as they will be the member's own.
        endpoint_epoch: The version of the endpoints.
        endpoints: The endpoints of all instances, with their partitions.
    """

    error: int = 0
    message: str = ""
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    acceptable_recovery_lag: int = 0
    task_offset_interval_ms: int = 0
    status: tuple[GroupStatus, ...] = ()
    active: frozenset[GroupTask] | None = None
    standby: frozenset[GroupTask] | None = None
    warmup: frozenset[GroupTask] | None = None
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
