"""The embedded log as the coordinator of streams groups, which it keeps as JSON in its tables.

There is no process of its own: the sender of a heartbeat does the group's due work, in one write transaction. Most
heartbeats change nothing, and are only read: each write waits for the disk, and wakes all who wait for records.
"""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.clock import unix_ms
from penstock.base.terminal.human_numbers import counted
from penstock.log.base import StreamsMembership, membership_refused
from penstock.log.embedded import catalog, membership
from penstock.log.embedded.coordination_rows import write_offsets
from penstock.log.processes import may_run, own_process
from penstock.log.streams_groups.description import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    Assignment,
    CopartitionGroup,
    Endpoint,
    GroupSubtopology,
    GroupTask,
    GroupTopology,
    HeartbeatAnswer,
    HeartbeatError,
    InternalTopicSpec,
    TaskSums,
)
from penstock.log.streams_groups.group import (
    GroupRecord,
    GroupSettings,
    MemberRecord,
    StreamsGroup,
    accepted,
    commit_refusal,
    with_named,
)

if TYPE_CHECKING:
    from penstock.log.base import OffsetAndMetadata, TopicPartition
    from penstock.log.streams_groups.description import StreamsGroupDescription, StreamsHeartbeat

__all__ = [
    "EmbeddedStreamsCoordinator",
    "check_streams_member",
    "group_from",
    "group_text",
    "member_from",
    "member_text",
]

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


_HEARD_IN_SESSION = 10  # the times that a member which changes nothing is noted as heard in a session


class _GroupLog(Protocol):
    """The operations of an embedded log that a coordinator needs."""

    def reading(self) -> AbstractContextManager[sqlite3.Connection]: ...

    def writing(self) -> AbstractContextManager[sqlite3.Connection]: ...


class EmbeddedStreamsCoordinator:
    """The coordinator of streams groups in an embedded log.

    Args:
        log: The log.
        settings: The settings of its groups.
        clock: Returns the present time in milliseconds.
    """

    def __init__(
        self, log: _GroupLog, settings: GroupSettings | None = None, clock: Callable[[], int] = unix_ms
    ) -> None:
        self._log, self._settings, self._clock = log, settings or GroupSettings(), clock

    def is_supported(self) -> bool:
        """Return True."""
        return True

    def heartbeat(self, heartbeat: StreamsHeartbeat) -> HeartbeatAnswer:
        """Take a member's heartbeat, and return its answer."""
        now_ms = self._clock()
        unchanged = self._unchanged(heartbeat, now_ms)
        if unchanged is not None:
            return unchanged
        with self._log.writing() as connection:
            if heartbeat.epoch == JOIN_EPOCH and (others := _other_members(connection, heartbeat.group)):
                return HeartbeatAnswer(error=HeartbeatError.GROUP_ID_NOT_FOUND, message=others)
            stored = _StoredGroup.read(connection, heartbeat.group)
            group = stored.group(self._settings, now_ms)
            for member in stored.dead():
                group.remove(member)
            if heartbeat.epoch == JOIN_EPOCH and (former := stored.killed(heartbeat.instance)):
                group.leave_for(former, now_ms)
            answer = group.heartbeat(heartbeat, now_ms, client=heartbeat.process or "", host=socket.gethostname())
            stored.write(group, heartbeat.member)
        return answer

    def _unchanged(self, heartbeat: StreamsHeartbeat, now_ms: int) -> HeartbeatAnswer | None:
        """Return the answer to a heartbeat that changes nothing; None: there is something to write."""
        with self._log.reading() as connection:
            stored = _StoredGroup.read(connection, heartbeat.group)
            member = stored.members.get(heartbeat.member)
            if heartbeat.epoch <= JOIN_EPOCH or member is None or stored.dead():
                return None
            missing: list[InternalTopicSpec] = []
            group = stored.group(self._settings, now_ms, missing.append)
            if (now_ms - member.heard_ms) * _HEARD_IN_SESSION >= group.settings.session_timeout_ms:
                return None
            answer = group.heartbeat(heartbeat, now_ms)
            return None if missing or group.changed or stored.has_changed() else answer

    def describe(self, group: str) -> StreamsGroupDescription | None:
        """Return a group; None if there is none of that name."""
        now_ms = self._clock()
        with self._log.reading() as connection:
            stored = _StoredGroup.read(connection, group)
            if not stored.record.epoch:  # it has had no member yet
                return None
            streams_group = stored.group(self._settings, now_ms)
            streams_group.expire(now_ms)
            if not streams_group.changed and not stored.dead():
                return streams_group.describe()
        with self._log.writing() as connection:
            stored = _StoredGroup.read(connection, group)
            if not stored.record.epoch:  # it has had no member yet
                return None
            streams_group = stored.group(self._settings, now_ms)
            for member in stored.dead():
                streams_group.remove(member)
            streams_group.expire(now_ms)
            stored.write(streams_group, "")
            return streams_group.describe()

    def commit(
        self, group: str, membership: StreamsMembership, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit offsets as a member.

        Raises:
            FencedError: The group goes on without this member, or has given its tasks to others.
        """
        with self._log.writing() as connection:
            check_streams_member(connection, group, membership, offsets)
            write_offsets(connection, group, offsets, self._clock())

    def set_group_settings(self, group: str, settings: Mapping[str, str]) -> dict[str, str]:
        """Set settings of a group, which need not exist; return those that were refused, each with the reason."""
        taken, refused = accepted(settings)
        with self._log.writing() as connection:
            stored = _StoredGroup.read(connection, group)
            stored.record.settings |= taken
            stored.write_group()
        return refused

    def close(self) -> None:
        """Do nothing: the log is closed by its owner."""


def _other_members(connection: sqlite3.Connection, group: str) -> str:
    """Return who else uses a group: consumers, or the holder of the application's lease; empty if nobody does."""
    lease = membership.running_holder(connection, group)
    if lease is not None:
        return (
            f"Group {group} is not a streams group: {lease.owner} (process {lease.pid} on {lease.host}) has its lease."
        )
    consumers = membership.members_of(connection, group)
    if consumers:
        membership.expire(connection, group, unix_ms())
        consumers = membership.members_of(connection, group)
    return f"Group {group} is not a streams group: it has {counted(len(consumers), 'consumer')}." if consumers else ""


def check_streams_member(
    connection: sqlite3.Connection, group: str, membership: StreamsMembership, places: Iterable[TopicPartition]
) -> None:
    """Raise FencedError unless a member may commit offsets of these partitions; within the transaction of its commit.

    A member may be in another process than the stream thread that commits: its epoch may be newer than the thread's.
    """
    row = connection.execute(
        "SELECT epoch, document FROM streams_members WHERE name = ? AND member = ?", (group, membership.member)
    ).fetchone()
    if row is None:
        raise membership_refused(group, membership, "unknown", "the group does not know it, or has removed it")
    if row[0] == membership.epoch:
        return
    (text,) = connection.execute("SELECT document FROM streams_groups WHERE name = ?", (group,)).fetchone()
    member = member_from(membership.member, 0, row[1])
    asked = [(tp.topic, tp.partition) for tp in places]
    refusal = commit_refusal(member, group_from(group, text).topology, membership.epoch, asked)
    if refusal:
        raise membership_refused(group, membership, "stale", refusal)


@dataclass(slots=True)
class _StoredGroup:
    """The rows of a group, within a transaction."""

    connection: sqlite3.Connection
    record: GroupRecord
    members: dict[str, MemberRecord] = field(default_factory=dict)
    places: dict[str, tuple[str, int, str]] = field(default_factory=dict)  # host, pid and start of each member
    before: str = ""

    @classmethod
    def read(cls, connection: sqlite3.Connection, group: str) -> _StoredGroup:
        row = connection.execute("SELECT document FROM streams_groups WHERE name = ?", (group,)).fetchone()
        text = "" if row is None else str(row[0])
        stored = cls(connection, group_from(group, text) if text else GroupRecord(group), before=text)
        for member, host, pid, start, heard_ms, document in connection.execute(
            "SELECT member, host, pid, process_start, heard_ms, document FROM streams_members WHERE name = ? "
            "ORDER BY member",
            (group,),
        ).fetchall():
            stored.members[member] = member_from(member, heard_ms, document)
            stored.places[member] = (host, pid, start)
        return stored

    def dead(self) -> list[str]:
        """Return the members whose processes on this machine are gone; a static one may come back."""
        return [
            name
            for name, process in self.places.items()
            if self.members[name].instance is None and not may_run(*process)
        ]

    def killed(self, instance: str | None) -> str:
        """Return the static member of this id whose process on this machine is gone; empty if there is none."""
        members = (name for name, each in self.members.items() if instance and each.instance == instance)
        return next((name for name in members if not may_run(*self.places[name])), "")

    def group(
        self, settings: GroupSettings, now_ms: int, create: Callable[[InternalTopicSpec], None] | None = None
    ) -> StreamsGroup:
        """Return the group, which creates internal topics by ``create``; None: in the log."""

        def counts() -> Mapping[str, int]:
            rows = self.connection.execute(
                "SELECT t.name, count(*) FROM topics t JOIN partitions p ON p.topic_id = t.id GROUP BY t.id"
            )
            return dict(rows.fetchall())

        def create_here(topic: InternalTopicSpec) -> None:
            catalog.create(self.connection, topic.name, topic.partitions, dict(topic.config), now_ms)

        named = with_named(settings, self.record.settings)
        return StreamsGroup(self.record, self.members, named, counts, create or create_here)

    def has_changed(self) -> bool:
        """Return whether the group, apart from its members, is not as it is stored."""
        return group_text(self.record) != self.before

    def write_group(self) -> None:
        """Store the group alone, if it has changed."""
        text = group_text(self.record)
        if text != self.before:
            self.connection.execute("INSERT OR REPLACE INTO streams_groups VALUES (?, ?)", (self.record.group, text))

    def write(self, group: StreamsGroup, sender: str) -> None:
        """Store what has changed; ``sender`` is the member whose heartbeat it was."""
        name = self.record.group
        if self.members or self.before:
            self.write_group()
        for member in sorted(group.changed):
            record = self.members.get(member)
            if record is None:
                self.connection.execute("DELETE FROM streams_members WHERE name = ? AND member = ?", (name, member))
                continue
            process = own_process() if member == sender or member not in self.places else self.places[member]
            self.connection.execute(
                "INSERT OR REPLACE INTO streams_members VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (name, member, _epoch_of(record), *process, record.heard_ms, member_text(record)),
            )
        if sender in self.members and sender not in group.changed:
            self.connection.execute(
                "UPDATE streams_members SET heard_ms = ? WHERE name = ? AND member = ?",
                (self.members[sender].heard_ms, name, sender),
            )


def _epoch_of(member: MemberRecord) -> int:
    """Return the epoch as of which a member may commit anything."""
    return LEAVE_STATIC_EPOCH if member.has_left else member.epoch
