"""A streams group as its coordinator knows it, with the messages of members, and the interface of coordinators.

The fields are those of Kafka's ``StreamsGroupDescribe`` and ``StreamsGroupHeartbeat``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.log.base import GroupMember, GroupState, TopicPartition

if TYPE_CHECKING:
    from penstock.log.base import OffsetAndMetadata, StreamsMembership

__all__ = [
    "JOIN_EPOCH",
    "LEAVE_EPOCH",
    "LEAVE_STATIC_EPOCH",
    "Assignment",
    "CopartitionGroup",
    "DescribedMember",
    "Endpoint",
    "EndpointPartitions",
    "GroupStatus",
    "GroupSubtopology",
    "GroupTask",
    "GroupTopology",
    "HeartbeatAnswer",
    "HeartbeatError",
    "InternalTopicSpec",
    "StatusCode",
    "StreamsCoordinator",
    "StreamsGroupDescription",
    "StreamsHeartbeat",
    "Tags",
    "TaskSums",
    "group_state_of",
    "topology_difference",
]

Tags = tuple[tuple[str, str], ...]


class GroupTask(NamedTuple):
    """A task as the protocol names it: the id of a sub-topology, and a partition.

    >>> str(GroupTask("0", 3))
    '0_3'
    """

    subtopology: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"


TaskSums = Mapping[GroupTask, int]
"""A number for each task: the sum of the offsets of its changelogs."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The tasks of a member."""

    active: frozenset[GroupTask] = frozenset()
    standby: frozenset[GroupTask] = frozenset()
    warmup: frozenset[GroupTask] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def __sub__(self, other: Assignment) -> Assignment:
        return Assignment(self.active - other.active, self.standby - other.standby, self.warmup - other.warmup)

    def __or__(self, other: Assignment) -> Assignment:
        return Assignment(self.active | other.active, self.standby | other.standby, self.warmup | other.warmup)

    def __and__(self, other: Assignment) -> Assignment:
        return Assignment(self.active & other.active, self.standby & other.standby, self.warmup & other.warmup)

    def promoted(self) -> Assignment:
        """Return it without copies of tasks that are active: the copy has become the active task."""
        return Assignment(self.active, self.standby - self.active, self.warmup - self.active)

    @property
    def roles(self) -> Iterator[tuple[str, frozenset[GroupTask]]]:
        """The tasks by role."""
        yield from (("active", self.active), ("standby", self.standby), ("warmup", self.warmup))

    @property
    def tasks(self) -> frozenset[GroupTask]:
        """The tasks of all roles."""
        return self.active | self.standby | self.warmup


@dataclass(frozen=True, slots=True)
class InternalTopicSpec:
    """A repartition or changelog topic; 0 partitions: as many as follow from the topics that are read.

    ``replication_factor`` -1 is the cluster's default. ``config`` is sorted by name.
    """

    name: str
    partitions: int = 0
    replication_factor: int = -1
    config: Tags = ()


@dataclass(frozen=True, slots=True)
class CopartitionGroup:
    """Topics that must have equal numbers of partitions, as positions in the lists of their sub-topology."""

    source_topics: tuple[int, ...] = ()
    source_patterns: tuple[int, ...] = ()
    repartition_sources: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupSubtopology:
    """A sub-topology: the topics that its tasks read, write, and keep their changes in."""

    id: str
    source_topics: tuple[str, ...] = ()
    source_patterns: tuple[str, ...] = ()
    changelogs: tuple[InternalTopicSpec, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    repartition_sources: tuple[InternalTopicSpec, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupTopology:
    """The topology of a group; all members must have the same.

    ``epoch`` is that of the topology: a group accepts no lower one. Kafka's clients always send 0.
    """

    subtopologies: tuple[GroupSubtopology, ...]
    epoch: int = 0

    @property
    def stateful(self) -> frozenset[str]:
        """The ids of sub-topologies with changelogs."""
        return frozenset(each.id for each in self.subtopologies if each.changelogs)


class Endpoint(NamedTuple):
    """The address of an instance for interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member as the group knows it; ``assignment`` is what it has, ``target`` what it shall have."""

    member: str
    epoch: int
    instance: str | None
    rack: str | None
    client: str
    host: str
    topology_epoch: int
    process: str
    endpoint: Endpoint | None
    tags: Tags
    task_offsets: TaskSums
    task_end_offsets: TaskSums
    assignment: Assignment
    target: Assignment
    is_classic: bool = False


@dataclass(frozen=True, slots=True)
class StreamsGroupDescription:
    """A group with its members. ``state`` is one of Kafka's names: Empty, NotReady, Assigning, Reconciling, Stable.

    ``topology`` has patterns resolved and numbers of partitions set; None while source topics are missing.
    """

    group: str
    state: str
    epoch: int
    assignment_epoch: int
    topology: GroupTopology | None
    members: tuple[DescribedMember, ...] = field(default=())


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
    """A trouble of a group whose members go on."""

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


_MOST_NAMED = 3


def topology_difference(group: GroupTopology, member: GroupTopology) -> str:
    """Describe the first differences; empty if there are none.

    >>> old = GroupTopology((GroupSubtopology("0", ("orders",)),))
    >>> topology_difference(old, GroupTopology((GroupSubtopology("0", ("orders", "users")),)))
    'sub-topology 0 reads users too'
    """
    differences = list(_differences(group, member))
    more = f"; and {len(differences) - _MOST_NAMED} more" if len(differences) > _MOST_NAMED else ""
    return "; ".join(differences[:_MOST_NAMED]) + more


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


class StreamsCoordinator(Protocol):
    """A keeper of streams groups; safe to use from several threads."""

    def is_supported(self) -> bool:
        """Return whether there are streams groups here.

        Raises:
            LogError: No broker answers.
        """
        ...

    def heartbeat(self, heartbeat: StreamsHeartbeat) -> HeartbeatAnswer:
        """Send a member's heartbeat. What the coordinator refuses is an answer with an error.

        Raises:
            LogError: The heartbeat may have been lost, or its answer.
        """
        ...

    def describe(self, group: str) -> StreamsGroupDescription | None:
        """Return a group with its members and their tasks; None if there is no streams group of that name.

        Raises:
            LogError: The coordinator does not answer.
        """
        ...

    def commit(
        self, group: str, membership: StreamsMembership, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit offsets, with metadata, as a member, outside of a transaction.

        Raises:
            FencedError: The group goes on without this member, or has given its tasks to others.
            LogError: The coordinator does not answer.
        """
        ...

    def set_group_settings(self, group: str, settings: Mapping[str, str]) -> Mapping[str, str]:
        """Set settings of a group, under Kafka's names such as ``streams.num.standby.replicas``.

        Returns:
            The settings that were refused, each with the reason. Those that older brokers do not know are not among
            them, and have no effect.

        Raises:
            LogUnavailableError: No broker answers.
        """
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


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
