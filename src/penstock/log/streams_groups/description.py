"""A streams group as its coordinator knows it: its topology, its members and their tasks.

The fields are those of Kafka's ``StreamsGroupDescribe``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = [
    "Assignment",
    "CopartitionGroup",
    "DescribedMember",
    "Endpoint",
    "StreamsGroupDescription",
    "GroupSubtopology",
    "GroupTask",
    "GroupTopology",
    "InternalTopicSpec",
    "Tags",
    "TaskSums",
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
    """Where interactive queries reach an instance."""

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
