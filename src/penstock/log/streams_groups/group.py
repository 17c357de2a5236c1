"""The coordinator's side of a streams group: a broker's rules for heartbeats, as far as the embedded log needs them.

It keeps no clock and no tables: the embedded log reads a group, hands in a heartbeat, and stores what has changed. Each
member has an epoch. It becomes the group's once the member has given up what it shall not have any more; a task goes to
its new owner only when nobody else has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from penstock.log.streams_groups.assignor import (
    AssignedMember,
    AssignmentRules,
    ConfiguredTopology,
    assign,
    configured,
    reader_of,
)
from penstock.log.streams_groups.description import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    Assignment,
    DescribedMember,
    Endpoint,
    EndpointPartitions,
    GroupStatus,
    GroupTask,
    GroupTopology,
    HeartbeatAnswer,
    HeartbeatError,
    InternalTopicSpec,
    StatusCode,
    StreamsGroupDescription,
    StreamsHeartbeat,
    Tags,
    TaskSums,
    topology_difference,
)

__all__ = ["GroupRecord", "GroupSettings", "MemberRecord", "StreamsGroup", "accepted", "commit_refusal", "with_named"]

MemberPhase = Literal["stable", "unrevoked", "unreleased"]
_NOTHING = Assignment()
_DELAYED = GroupStatus(
    StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a group's coordinator: Kafka's ``group.streams.*``, and the rules of its assignment."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    initial_rebalance_delay_ms: int = 0
    task_offset_interval_ms: int = 60_000
    rules: AssignmentRules = field(default_factory=AssignmentRules)


@dataclass(slots=True)
class MemberRecord:
    """The group's facts of a member.

    Attributes:
        member: Its id.
        process: Its instance.
        phase: stable; or it has tasks to give up (unrevoked); or it waits for tasks of others (unreleased).
        epoch: Its epoch.
        previous_epoch: The epoch before: the answer with the newer one may have been lost.
        assigned: The tasks that it has, or may have.
        pending: The tasks that it has to give up.
        target: The tasks that it shall have.
        since: The epoch in which it got each of the active tasks that it has, or may have.
        heard_ms: The time of its last heartbeat.
        revoking_ms: Since when it has tasks to give up.
        has_left: A static member that will come back within its session.
        place: The identity of its folder of replicas, if it says so.
        endpoint_epoch: The newest version of the endpoints that it may know.
    """

    member: str
    process: str
    client: str = ""
    host: str = ""
    instance: str | None = None
    rack: str | None = None
    tags: Tags = ()
    endpoint: Endpoint | None = None
    topology_epoch: int = 0
    rebalance_timeout_ms: int = 300_000
    phase: MemberPhase = "stable"
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Assignment = _NOTHING
    pending: Assignment = _NOTHING
    target: Assignment = _NOTHING
    since: dict[GroupTask, int] = field(default_factory=dict)
    heard_ms: int = 0
    revoking_ms: int = 0
    has_left: bool = False
    task_offsets: TaskSums = field(default_factory=dict)
    task_end_offsets: TaskSums = field(default_factory=dict)
    place: str = ""


@dataclass(slots=True)
class GroupRecord:
    """The facts of a group beside its members.

    Attributes:
        group: Its name.
        epoch: It grows when members, their facts, the topology or topics change.
        assignment_epoch: The epoch for which the members' targets were planned.
        topology: The topology of all its members.
        facts: What the targets follow from beside the members: planned again when it changes.
        endpoint_epoch: The version of the endpoints.
        first_join_ms: When the first member joined an empty group.
        shutdown_by: The member that has asked all to shut down.
        settings: Settings of its own, by Kafka's names.
    """

    group: str
    epoch: int = 0
    assignment_epoch: int = 0
    topology: GroupTopology | None = None
    facts: str = ""
    endpoint_epoch: int = 0
    first_join_ms: int = 0
    shutdown_by: str = ""
    settings: dict[str, str] = field(default_factory=dict)


class StreamsGroup:
    """A group with its members, for one call.

    Args:
        record: The group; changed in place.
        members: Its members by id; changed in place.
        settings: The settings.
        counts: Returns the numbers of partitions of all topics.
        create: Creates an internal topic.

    Attributes:
        settings: The settings.
        changed: The members that were changed, or are gone, beside the time of their last heartbeats.
    """

    def __init__(
        self,
        record: GroupRecord,
        members: dict[str, MemberRecord],
        settings: GroupSettings,
        counts: Callable[[], Mapping[str, int]],
        create: Callable[[InternalTopicSpec], None],
    ) -> None:
        self.record, self.members, self.settings = record, members, settings
        self._read_counts, self._create = counts, create
        self._counts: Mapping[str, int] = {}
        self.changed: set[str] = set()

    # Heartbeats

    def heartbeat(
        self, heartbeat: StreamsHeartbeat, now_ms: int, *, client: str = "", host: str = ""
    ) -> HeartbeatAnswer:
        """Take a heartbeat, and return its answer."""
        self.expire(now_ms)
        refusal = _invalid(heartbeat)
        if refusal:
            return HeartbeatAnswer(error=HeartbeatError.INVALID_REQUEST, message=refusal)
        if heartbeat.epoch < JOIN_EPOCH:
            return self._leave(heartbeat, now_ms)
        admitted = self._admitted(heartbeat, now_ms)
        if isinstance(admitted, HeartbeatAnswer):
            return admitted
        member = admitted
        before = member.assigned
        self._take_facts(member, heartbeat, client, host)
        member.heard_ms = now_ms
        if heartbeat.shutdown:
            self.record.shutdown_by = member.member
        topology = self._configured()
        self._plan(topology, now_ms)
        self._reconcile(member, heartbeat.owned, now_ms)
        member.epoch = max(member.epoch, 1)  # nothing is planned yet
        self._count_endpoints(member, before)
        is_full = heartbeat.rebalance_timeout_ms > 0  # it joins, or does not know what has arrived
        is_told = is_full or before != member.assigned
        return self._answer(member, heartbeat, topology, now_ms, is_told=is_told)

    def _admitted(self, heartbeat: StreamsHeartbeat, now_ms: int) -> MemberRecord | HeartbeatAnswer:
        """Return the member that sends this, or a refusal."""
        member = self.members.get(heartbeat.member)
        if heartbeat.epoch == JOIN_EPOCH:
            refusal = self._refused_topology(heartbeat)
            return refusal or self._joined(heartbeat, member, now_ms)
        if member is None or member.has_left:
            return HeartbeatAnswer(
                error=HeartbeatError.UNKNOWN_MEMBER_ID,
                message=f"Member {heartbeat.member} is not a member of group {heartbeat.group}.",
            )
        if heartbeat.instance is not None and heartbeat.instance != member.instance:
            return HeartbeatAnswer(
                error=HeartbeatError.FENCED_INSTANCE_ID,
                message=f"Member {heartbeat.member} does not have the instance id {heartbeat.instance}.",
            )
        lost_answer = heartbeat.epoch == member.previous_epoch and not (
            heartbeat.owned is None or heartbeat.owned - member.assigned
        )
        if heartbeat.epoch != member.epoch and not lost_answer:
            return HeartbeatAnswer(
                error=HeartbeatError.FENCED_MEMBER_EPOCH,
                message=f"The member epoch {heartbeat.epoch} of member {heartbeat.member} is not {member.epoch}; "
                "the member must abandon all its tasks and rejoin.",
            )
        return member

    def _refused_topology(self, heartbeat: StreamsHeartbeat) -> HeartbeatAnswer | None:
        ours, theirs = heartbeat.topology, self.record.topology
        assert ours is not None, "checked before"  # noqa: S101
        if theirs is None or not self.members or ours == theirs:
            return None
        if ours.epoch < theirs.epoch:
            return None  # it joins, and hears that it is stale
        difference = topology_difference(theirs, ours) or f"topology epoch {ours.epoch}, not {theirs.epoch}"
        return HeartbeatAnswer(
            error=HeartbeatError.STREAMS_INVALID_TOPOLOGY,
            message=f"The topology differs from that of the other members of group {heartbeat.group}: {difference}",
        )

    def _joined(
        self, heartbeat: StreamsHeartbeat, member: MemberRecord | None, now_ms: int
    ) -> MemberRecord | HeartbeatAnswer:
        if not self.members:  # an empty group takes any topology
            self.record.topology, self.record.shutdown_by = None, ""
            self.record.first_join_ms = now_ms
        if heartbeat.instance is not None:
            former = next((each for each in self.members.values() if each.instance == heartbeat.instance), None)
            if former is not None and former.member != heartbeat.member:
                if not former.has_left:
                    return HeartbeatAnswer(
                        error=HeartbeatError.UNRELEASED_INSTANCE_ID,
                        message=f"Another member, {former.member}, has the instance id {heartbeat.instance}; it must "
                        "leave first, or its session must end.",
                    )
                return self._replaced(former, heartbeat)
        if member is None or member.has_left:
            process = heartbeat.process or ""
            member = self.members[heartbeat.member] = MemberRecord(heartbeat.member, process)
            self.record.epoch += 1
        else:  # it has lost its epoch, or an answer
            member.assigned = member.pending = _NOTHING
            member.since = {}
            member.phase = "stable"
        member.epoch = member.previous_epoch = JOIN_EPOCH
        self.changed.add(member.member)
        return member

    def _replaced(self, former: MemberRecord, heartbeat: StreamsHeartbeat) -> MemberRecord:
        """Give the place of a static member that has left to its next start, with all its tasks."""
        del self.members[former.member]
        self.changed |= {former.member, heartbeat.member}
        member = replace(
            former, member=heartbeat.member, process=heartbeat.process or "", has_left=False, epoch=JOIN_EPOCH,
            previous_epoch=JOIN_EPOCH, assigned=_NOTHING, pending=_NOTHING, since={}, phase="stable",
        )  # fmt: skip
        self.members[member.member] = member
        return member

    def _take_facts(self, member: MemberRecord, heartbeat: StreamsHeartbeat, client: str, host: str) -> None:
        """Note what a member says of itself."""
        if heartbeat.topology is not None:
            if self.record.topology is None:
                self.record.topology = heartbeat.topology
                self.record.epoch += 1
            member.topology_epoch = heartbeat.topology.epoch
        if heartbeat.process is not None:
            facts = (heartbeat.process, heartbeat.instance, heartbeat.rack, heartbeat.tags or ())
            if facts != (member.process, member.instance, member.rack, member.tags):
                member.process, member.instance, member.rack, member.tags = facts
                self.record.epoch += member.epoch != JOIN_EPOCH
            if heartbeat.endpoint != member.endpoint:
                member.endpoint = heartbeat.endpoint
                self.record.endpoint_epoch += 1
            member.client, member.host = client, host
            member.place = heartbeat.place
            self.changed.add(member.member)
        if heartbeat.rebalance_timeout_ms > 0:
            member.rebalance_timeout_ms = heartbeat.rebalance_timeout_ms
        if heartbeat.task_offsets is not None:
            ready = self._caught_up(member)
            member.task_offsets, member.task_end_offsets = heartbeat.task_offsets, heartbeat.task_end_offsets or {}
            self.record.epoch += bool(self._caught_up(member) - ready)
            self.changed.add(member.member)

    def _caught_up(self, member: MemberRecord) -> frozenset[GroupTask]:
        lags = _lags(member)
        most = self.settings.rules.acceptable_recovery_lag
        return frozenset(each for each in member.target.warmup if each in lags and lags[each] <= most)

    # The end of a membership

    def expire(self, now_ms: int) -> None:
        """Remove members whose session has ended, or that do not give up tasks in time."""
        for member in list(self.members.values()):
            silent = now_ms - member.heard_ms > self.settings.session_timeout_ms
            clings = member.phase == "unrevoked" and now_ms - member.revoking_ms > member.rebalance_timeout_ms
            if silent or clings:
                self._remove(member)

    def remove(self, member: str) -> None:
        """Remove a member of which it is known that it is gone."""
        if member in self.members:
            self._remove(self.members[member])

    def leave_for(self, member: str, now_ms: int) -> None:
        """Note that a static member has left, or was killed: its next start within the session has its place."""
        record = self.members[member]
        record.has_left, record.heard_ms = True, now_ms
        self.changed.add(member)

    def _leave(self, heartbeat: StreamsHeartbeat, now_ms: int) -> HeartbeatAnswer:
        member = self.members.get(heartbeat.member)
        if member is None:
            return HeartbeatAnswer(
                error=HeartbeatError.UNKNOWN_MEMBER_ID,
                message=f"Member {heartbeat.member} is not a member of group {heartbeat.group}.",
            )
        if heartbeat.epoch == LEAVE_STATIC_EPOCH and member.instance is not None:
            self.leave_for(member.member, now_ms)
        else:
            self._remove(member)
        return HeartbeatAnswer(epoch=heartbeat.epoch)

    def _remove(self, member: MemberRecord) -> None:
        del self.members[member.member]
        self.changed.add(member.member)
        self.record.epoch += 1
        self.record.endpoint_epoch += member.endpoint is not None

    # The assignment

    def _configured(self) -> ConfiguredTopology:
        assert self.record.topology is not None, "members bring one"  # noqa: S101
        self._counts = self._read_counts()
        topology = configured(self.record.topology, self._counts)
        if topology.missing:
            for each in topology.missing:
                self._create(each)
            self._counts = self._read_counts()
            topology = configured(self.record.topology, self._counts)
        return topology

    def _plan(self, topology: ConfiguredTopology, now_ms: int) -> None:
        """Plan the members' targets again if the group has changed."""
        sizes = Counter(task.subtopology for task in topology.tasks)
        facts = repr((sorted(sizes.items()), sorted(topology.topology.stateful), self.settings.rules))
        if facts != self.record.facts:
            self.record.facts = facts
            self.record.epoch += 1
        if self.record.assignment_epoch == self.record.epoch or self._is_delayed(now_ms):
            return
        stateful = topology.topology.stateful
        members = {
            name: AssignedMember(each.process, dict(each.tags), each.target, _lags(each), each.place)
            for name, each in self.members.items()
        }
        targets = assign(topology.tasks, stateful, members, self.settings.rules)
        for name, target in targets.items():
            if self.members[name].target != target:
                self.members[name].target = target
                self.changed.add(name)
        self.record.assignment_epoch = self.record.epoch

    def _is_delayed(self, now_ms: int) -> bool:
        is_first = not any(each.target for each in self.members.values())
        return is_first and now_ms - self.record.first_join_ms < self.settings.initial_rebalance_delay_ms

    def _reconcile(self, member: MemberRecord, owned: Assignment | None, now_ms: int) -> None:
        """Bring a member as near to its target as the others permit."""
        if member.phase == "unrevoked":
            if owned is None or owned & member.pending:
                return
            member.pending = _NOTHING
        elif member.phase == "stable" and member.epoch == self.record.assignment_epoch:
            return
        revoked = member.assigned - member.target
        active = member.target.active  # a copy stays until it becomes the active task, in place
        revoked = Assignment(revoked.active, revoked.standby - active, revoked.warmup - active)
        if revoked:
            member.assigned, member.pending = member.assigned - revoked, revoked
            member.phase, member.revoking_ms = "unrevoked", now_ms
        else:
            new = member.target - member.assigned
            free = self._free(new, member)
            member.assigned = (member.assigned | free).promoted()
            if member.epoch != self.record.assignment_epoch:
                member.previous_epoch, member.epoch = member.epoch, self.record.assignment_epoch
            member.phase = "unreleased" if new - free else "stable"
            member.since |= dict.fromkeys(free.active, member.epoch)
        held = (member.assigned | member.pending).active
        member.since = {task: epoch for task, epoch in member.since.items() if task in held}
        self.changed.add(member.member)

    def _free(self, target: Assignment, member: MemberRecord) -> Assignment:
        """Return what nobody else has: no other member an active task, nor one of the same instance a copy of it."""
        active: set[GroupTask] = set()
        here: set[GroupTask] = set()
        for each in self.members.values():
            if each.member != member.member:
                held = each.assigned | each.pending
                active |= held.active
                if each.process == member.process:
                    here |= held.tasks
        taken = active | here
        return Assignment(target.active - taken, target.standby - here, target.warmup - here)

    def _count_endpoints(self, member: MemberRecord, before: Assignment) -> None:
        if member.endpoint is not None and member.assigned != before:
            self.record.endpoint_epoch += 1

    # Answers

    def _answer(
        self,
        member: MemberRecord,
        heartbeat: StreamsHeartbeat,
        topology: ConfiguredTopology,
        now_ms: int,
        *,
        is_told: bool,
    ) -> HeartbeatAnswer:
        settings = self.settings
        status = list(topology.status)
        if self.record.assignment_epoch != self.record.epoch and self._is_delayed(now_ms):
            status.append(_DELAYED)
        if self.record.topology is not None and member.topology_epoch < self.record.topology.epoch:
            text = f"The member's topology epoch is {member.topology_epoch}, the group's {self.record.topology.epoch}."
            status.append(GroupStatus(StatusCode.STALE_TOPOLOGY, text))
        if self.record.shutdown_by:
            text = f"Streams group member {self.record.shutdown_by} encountered a fatal error and requested a shutdown."
            status.append(GroupStatus(StatusCode.SHUTDOWN_APPLICATION, text))
        knows = heartbeat.endpoint_epoch == self.record.endpoint_epoch
        return HeartbeatAnswer(
            epoch=member.epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            acceptable_recovery_lag=settings.rules.acceptable_recovery_lag,
            task_offset_interval_ms=settings.task_offset_interval_ms,
            status=tuple(status),
            active=member.assigned.active if is_told else None,
            standby=member.assigned.standby if is_told else None,
            warmup=member.assigned.warmup if is_told else None,
            endpoint_epoch=self.record.endpoint_epoch,
            endpoints=None if knows else self._endpoints(topology),
        )

    def _endpoints(self, topology: ConfiguredTopology) -> tuple[EndpointPartitions, ...]:
        return tuple(
            EndpointPartitions(
                each.endpoint,
                topology.read_by(each.assigned.active, self._counts),
                topology.read_by(each.assigned.standby, self._counts),
            )
            for each in self.members.values()
            if each.endpoint is not None
        )

    def describe(self) -> StreamsGroupDescription:
        """Return the group as tools show it."""
        record = self.record
        topology = None if record.topology is None else configured(record.topology, self._read_counts())
        is_whole = topology is not None and not topology.status
        return StreamsGroupDescription(
            group=record.group,
            state=self._state(is_whole=is_whole),
            epoch=record.epoch,
            assignment_epoch=record.assignment_epoch,
            topology=topology.topology if topology is not None and is_whole else None,
            members=tuple(map(_described, self.members.values())),
        )

    def _state(self, *, is_whole: bool) -> str:
        if not self.members:
            return "Empty"
        if not is_whole:
            return "NotReady"
        if self.record.assignment_epoch != self.record.epoch:
            return "Assigning"
        settled = all(
            each.phase == "stable" and each.epoch == self.record.assignment_epoch for each in self.members.values()
        )
        return "Stable" if settled else "Reconciling"


def commit_refusal(
    member: MemberRecord, topology: GroupTopology | None, epoch: int, places: Iterable[tuple[str, int]]
) -> str:
    """Return why a member may not commit as of an epoch; empty if it may.

    As with brokers: as of its present epoch it may for any partition, as of an older one (of an answer that the thread
    does not know yet) for those of tasks that it has had since then.

    Args:
        member: The member.
        topology: The topology of its group.
        epoch: The epoch.
        places: The partitions.
    """
    now = LEAVE_STATIC_EPOCH if member.has_left else member.epoch
    if epoch == now:
        return ""
    if epoch > now or topology is None:
        return f"its epoch is {now}"
    for topic, partition in places:
        subtopology = reader_of(topology, topic)
        since = None if subtopology is None else member.since.get(GroupTask(subtopology, partition))
        if since is None:
            return f"its epoch is {now} by now, and the task of {topic}-{partition} is not its own"
        if epoch < since:
            return f"its epoch is {now} by now, and the task of {topic}-{partition} is its own since epoch {since}"
    return ""


def _lags(member: MemberRecord) -> dict[GroupTask, int]:
    ends = member.task_end_offsets
    return {task: max(0, ends.get(task, at) - at) for task, at in member.task_offsets.items()}


def _invalid(heartbeat: StreamsHeartbeat) -> str:
    """Return what is wrong with a heartbeat; empty if nothing is."""
    if not heartbeat.group:
        return "GroupId can't be empty."
    if not heartbeat.member:
        return "MemberId can't be empty."
    if heartbeat.epoch < LEAVE_STATIC_EPOCH:
        return f"MemberEpoch is {heartbeat.epoch}, but must be greater than or equal to -2."
    if heartbeat.epoch == LEAVE_STATIC_EPOCH and heartbeat.instance is None:
        return "InstanceId must be given to leave as a static member."
    if heartbeat.epoch == JOIN_EPOCH:
        if heartbeat.topology is None:
            return "Topology must be non-null when (re-)joining."
        if not heartbeat.topology.subtopologies:
            return "Topology must be non-empty when (re-)joining."
        if heartbeat.rebalance_timeout_ms <= 0:
            return "RebalanceTimeoutMs must be provided in first request."
        if heartbeat.owned is None or heartbeat.owned:
            return "ActiveTasks, StandbyTasks and WarmupTasks must be empty when (re-)joining."
        if heartbeat.process is None:
            return "ProcessId must be provided in first request."
    elif heartbeat.epoch > JOIN_EPOCH and heartbeat.topology is not None:
        return "Topology can only be provided when (re-)joining."
    return ""


def _described(member: MemberRecord) -> DescribedMember:
    return DescribedMember(
        member=member.member,
        epoch=LEAVE_STATIC_EPOCH if member.has_left else member.epoch,
        instance=member.instance,
        rack=member.rack,
        client=member.client,
        host=member.host,
        topology_epoch=member.topology_epoch,
        process=member.process,
        endpoint=member.endpoint,
        tags=member.tags,
        task_offsets=member.task_offsets,
        task_end_offsets=member.task_end_offsets,
        assignment=member.assigned | member.pending,
        target=member.target,
    )


# By Kafka's names, as `kafka-configs --entity-type groups` sets them.
_OF_GROUP = {
    "streams.session.timeout.ms": "session_timeout_ms",
    "streams.heartbeat.interval.ms": "heartbeat_interval_ms",
    "streams.initial.rebalance.delay.ms": "initial_rebalance_delay_ms",
    "streams.task.offset.interval.ms": "task_offset_interval_ms",
}
_OF_RULES = {
    "streams.num.standby.replicas": "num_standby_replicas",
    "streams.num.warmup.replicas": "max_warmup_replicas",
    "streams.acceptable.recovery.lag": "acceptable_recovery_lag",
}
_AT_ONCE = "streams.assignment.interval.ms"  # an embedded log plans an assignment with the heartbeat that asks for it


def accepted(settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings that a group in an embedded log takes, and why it refuses the others.

    >>> accepted({"streams.num.standby.replicas": "1", "streams.session.timeout.ms": "soon"})[1]
    {'streams.session.timeout.ms': "not a whole number of at least 0: 'soon'"}
    >>> accepted({"share.session.timeout.ms": "1"})
    ({}, {'share.session.timeout.ms': 'no setting of streams groups'})
    """
    refused: dict[str, str] = {}
    for name, value in settings.items():
        if name not in _OF_GROUP and name not in _OF_RULES and name != _AT_ONCE:
            refused[name] = "no setting of streams groups"
        elif not (value.isascii() and value.isdecimal()):
            refused[name] = f"not a whole number of at least 0: {value!r}"
        elif name == _AT_ONCE and int(value):
            refused[name] = f"an embedded log assigns at once: 0, not {value}"
    return {name: value for name, value in settings.items() if name not in refused}, refused


def with_named(settings: GroupSettings, named: Mapping[str, str]) -> GroupSettings:
    """Return settings with those that a group has of its own.

    >>> settings = with_named(GroupSettings(), {"streams.num.standby.replicas": "1"})
    >>> settings.rules.num_standby_replicas, settings.session_timeout_ms
    (1, 45000)
    """
    of_group: dict[str, Any] = {field: int(named[name]) for name, field in _OF_GROUP.items() if name in named}
    of_rules: dict[str, Any] = {field: int(named[name]) for name, field in _OF_RULES.items() if name in named}
    return replace(settings, rules=replace(settings.rules, **of_rules), **of_group)
