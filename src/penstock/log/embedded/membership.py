"""Consumer groups of an embedded log: members, the partitions assigned to each, and those that each reads now.

There is no coordinator process: each caller does the due work in one write transaction. Target assignment (targets)
and current assignment (owners) are separate, as in Kafka's newer group protocol: a partition goes to its new member
only after the old one has released it or was removed. So no partition ever has two owners, and members keep reading
the partitions that stay with them.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.base.terminal.human_numbers import counted
from penstock.errors import FencedError, InvalidStateError
from penstock.log.assignors import Subscriber, agreed_assignor, assign
from penstock.log.base import GroupMember, Lease, TopicPartition
from penstock.log.embedded.coordination_rows import read_row
from penstock.log.leases import LEASE_WRITER, holder_runs, lease_of
from penstock.log.processes import may_run, own_process
from penstock.log.streams_groups.group_refusals import shared_by_threads

__all__ = [
    "ConsumerIdentity",
    "JoinRequest",
    "Share",
    "check_outsider",
    "check_owner",
    "expire",
    "generation_of",
    "has_streams_members",
    "heartbeat",
    "join",
    "leave",
    "members_of",
    "state_of",
    "sync",
]


@dataclass(frozen=True, slots=True)
class ConsumerIdentity:
    """The identity of a consumer in a group.

    Attributes:
        group: The ``group.id``.
        member: The member id, assigned by the group; a new one after each join.
        instance: The ``group.instance.id`` of a static member, or empty.
    """

    group: str
    member: str
    instance: str = ""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The subscription and settings of a consumer that joins a group.

    Attributes:
        topics: The topics that it subscribes to.
        assignors: The assignors that it knows, in order of preference.
        instance: The ``group.instance.id`` of a static member, or empty.
        client: Its ``client.id``.
        session_ms: The group removes it without a heartbeat for this long.
    """

    topics: Sequence[str]
    assignors: Sequence[str] = ("range",)
    instance: str = ""
    client: str = ""
    session_ms: int = 45_000


@dataclass(frozen=True, slots=True)
class Share:
    """The partitions assigned to a member (``target``), and those of them that no other member reads (``owned``)."""

    generation: int
    target: frozenset[TopicPartition]
    owned: frozenset[TopicPartition]


def join(connection: sqlite3.Connection, group: str, request: JoinRequest, now_ms: int) -> ConsumerIdentity:
    """Add a member. One with the ``instance`` of another replaces it: its partitions do not move.

    Raises:
        FencedError: It is the group of a running application.
    """
    _refuse_of_application(connection, group, None, "no consumer may join it")
    expire(connection, group, now_ms)
    instance = request.instance
    members = members_of(connection, group)
    agreed_assignor(
        group, [request.assignors, *(each.assignors for each in members if not instance or each.instance != instance)]
    )
    member = f"{instance or request.client or 'consumer'}-{uuid.uuid4()}"
    if instance:
        for old in [each.member for each in members if each.instance == instance]:
            for table in ("group_targets", "group_owners"):
                connection.execute(
                    f"UPDATE {table} SET member = ? WHERE name = ? AND member = ?",  # noqa: S608
                    (member, group, old),
                )
            connection.execute("DELETE FROM group_members WHERE name = ? AND member = ?", (group, old))
    connection.execute(
        "INSERT INTO group_members VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (group, member, instance, request.client, *own_process(),
         json.dumps(sorted(request.topics)), json.dumps(list(request.assignors)), request.session_ms, now_ms),
    )  # fmt: skip
    _plan(connection, group, now_ms)
    return ConsumerIdentity(group, member, instance)


def heartbeat(connection: sqlite3.Connection, me: ConsumerIdentity, topics: Iterable[str], now_ms: int) -> None:
    """Record a member's heartbeat, and remove dead members.

    Raises:
        FencedError: Another consumer has taken this one's ``group.instance.id``.
        InvalidStateError: The group has removed this member; it may join again.
    """
    _check_member(connection, me)
    topics_json = json.dumps(sorted(topics))
    connection.execute(
        "UPDATE group_members SET heartbeat_ms = ?, topics = ? WHERE name = ? AND member = ?",
        (now_ms, topics_json, me.group, me.member),
    )
    expire(connection, me.group, now_ms)
    _plan(connection, me.group, now_ms)


def sync(
    connection: sqlite3.Connection,
    me: ConsumerIdentity,
    held: Iterable[TopicPartition],
    topics: Iterable[str],
    now_ms: int,
) -> Share:
    """Record a heartbeat, release partitions that are no longer ``held``, and take those that are free."""
    heartbeat(connection, me, topics, now_ms)
    holds = set(held)
    let_go = _places(connection, "group_owners", me) - holds
    _delete_owners(connection, me.group, let_go)
    target = _places(connection, "group_targets", me)
    taken = {
        TopicPartition(*row)
        for row in connection.execute("SELECT topic, partition FROM group_owners WHERE name = ?", (me.group,))
    }
    connection.executemany(
        "INSERT INTO group_owners VALUES (?, ?, ?, ?)",
        [(me.group, tp.topic, tp.partition, me.member) for tp in sorted(target - taken)],
    )
    if let_go - target:  # somebody waits for these
        _advance(connection, me.group, now_ms)
    owned = _places(connection, "group_owners", me)
    return Share(generation_of(connection, me.group), frozenset(target), frozenset(owned & target))


def leave(connection: sqlite3.Connection, me: ConsumerIdentity, now_ms: int) -> None:
    """Remove a member at its own wish; its partitions are free at once."""
    _remove(connection, me.group, [me.member], now_ms)
    _plan(connection, me.group, now_ms)


def expire(connection: sqlite3.Connection, group: str, now_ms: int) -> None:
    """Remove members whose session has expired, and those whose process on this host is gone."""
    gone = []
    for member, instance, where, pid, start, session_ms, heard_ms in connection.execute(
        "SELECT member, instance, host, pid, process_start, session_ms, heartbeat_ms FROM group_members WHERE name = ?",
        (group,),
    ).fetchall():
        # A static member may come back within its session, and then finds its partitions.
        died = not instance and not may_run(where, pid, start)
        if died or now_ms - heard_ms > session_ms:
            gone.append(member)
    if gone:
        _remove(connection, group, gone, now_ms)
        _plan(connection, group, now_ms)


def check_owner(connection: sqlite3.Connection, me: ConsumerIdentity, offsets: Iterable[TopicPartition]) -> None:
    """Raise FencedError unless the member owns all these partitions.

    A membership without a member id is a reader outside the group: it may commit while the group is empty.
    """
    if not me.member:
        check_outsider(connection, me.group)
        return
    owned = _places(connection, "group_owners", me)
    lost = sorted(set(offsets) - owned)
    if lost:
        raise FencedError(
            f"group {me.group!r} has given {lost[0].topic}-{lost[0].partition} to another member",
            hint="poll again: the records since the last commit are read by the new owner",
            group=me.group, member=me.member, topic=lost[0].topic, partition=lost[0].partition,
        )  # fmt: skip


def check_outsider(connection: sqlite3.Connection, group: str, epoch: int | None = None) -> None:
    """Raise FencedError if a group has members or its application runs, as brokers refuse an unknown member.

    Args:
        connection: The transaction that changes the group's offsets.
        group: The group.
        epoch: The epoch of the application's lease that the caller holds, if it does.
    """
    others = members_of(connection, group)
    if others:
        raise FencedError(
            f"group {group!r} has {counted(len(others), 'member')}: only they may commit its offsets",
            hint="subscribe instead of assigning partitions, or use another group",
            group=group,
        )
    _refuse_of_application(connection, group, epoch, "only it may change their offsets")


def _refuse_of_application(connection: sqlite3.Connection, group: str, epoch: int | None, rule: str) -> None:
    if has_streams_members(connection, group):
        raise shared_by_threads(group)
    lease = running_holder(connection, group)
    if lease is None or lease.epoch == epoch:
        return
    raise FencedError(
        f"{group!r} is the group of an application that runs: {lease.owner} (process {lease.pid} on {lease.host}); "
        f"{rule}",
        hint="Stop it first: penstock groups reset moves the offsets of a stopped application. Or use another group.",
        group=group,
        owner=lease.owner,
    )


def running_holder(connection: sqlite3.Connection, application: str) -> Lease | None:
    """Return an application's lease if its holder runs."""
    held = lease_of(read_row(connection, application, LEASE_WRITER))
    return held if held is not None and holder_runs(held) else None


def has_streams_members(connection: sqlite3.Connection, group: str) -> bool:
    """Return whether a group has members that are stream threads, alive or not."""
    row = connection.execute("SELECT 1 FROM streams_members WHERE name = ? LIMIT 1", (group,)).fetchone()
    return row is not None


def members_of(connection: sqlite3.Connection, group: str) -> list[GroupMember]:
    """List all members, with the partitions that they own."""
    owned: dict[str, list[TopicPartition]] = {}
    for member, topic, partition in connection.execute(
        "SELECT member, topic, partition FROM group_owners WHERE name = ? ORDER BY topic, partition", (group,)
    ):
        owned.setdefault(member, []).append(TopicPartition(topic, partition))
    rows = connection.execute(
        "SELECT member, instance, client, host, pid, topics, assignors FROM group_members WHERE name = ? "
        "ORDER BY instance, member",
        (group,),
    ).fetchall()
    return [
        GroupMember(member, instance, client, host, pid, tuple(json.loads(topics)), tuple(json.loads(assignors)),
                    tuple(owned.get(member, ())))
        for member, instance, client, host, pid, topics, assignors in rows
    ]  # fmt: skip


def generation_of(connection: sqlite3.Connection, group: str) -> int:
    """Return a number that grows whenever the target assignment changes or a partition becomes free."""
    row = connection.execute("SELECT generation FROM groups WHERE name = ?", (group,)).fetchone()
    return row[0] if row else 0


def state_of(connection: sqlite3.Connection, group: str) -> tuple[str, str]:
    """Return Kafka's name of the group's state, and the assignor."""
    row = connection.execute("SELECT assignor FROM groups WHERE name = ?", (group,)).fetchone()
    if not members_of(connection, group):
        return "Empty", ""
    waiting = connection.execute(
        "SELECT count(*) FROM group_targets t LEFT JOIN group_owners o USING (name, topic, partition) "
        "WHERE t.name = ? AND o.member IS NOT t.member",
        (group,),
    ).fetchone()[0]
    return ("PreparingRebalance" if waiting else "Stable"), row[0] if row else ""


def _check_member(connection: sqlite3.Connection, me: ConsumerIdentity) -> None:
    for each in members_of(connection, me.group):
        if each.member == me.member:
            return
        if me.instance and each.instance == me.instance:
            raise FencedError(
                f"another consumer (process {each.pid} on {each.host}) joined group {me.group!r} "
                f"as instance {me.instance!r}",
                hint="give each running consumer its own group.instance.id",
                group=me.group, instance=me.instance,
            )  # fmt: skip
    raise InvalidStateError(
        f"group {me.group!r} has removed this consumer: it sent no heartbeat for longer than session.timeout.ms",
        hint="poll more often, or raise session.timeout.ms or max.poll.interval.ms",
        group=me.group,
    )


def _plan(connection: sqlite3.Connection, group: str, now_ms: int) -> None:
    """Update the targets if members, subscriptions or partitions have changed."""
    members = members_of(connection, group)
    before = {
        TopicPartition(topic, partition): member
        for topic, partition, member in connection.execute(
            "SELECT topic, partition, member FROM group_targets WHERE name = ?", (group,)
        )
    }
    after: dict[TopicPartition, str] = {}
    name = ""
    if members:
        name = agreed_assignor(group, [each.assignors for each in members])
        holds: dict[str, set[TopicPartition]] = {}
        for tp, member in before.items():
            holds.setdefault(member, set()).add(tp)
        subscribers = {
            each.member: Subscriber(
                each.instance or each.member, frozenset(each.topics), frozenset(holds.get(each.member, ()))
            )
            for each in members
        }
        topics = {topic for each in members for topic in each.topics}
        assignment = assign(name, subscribers, _counts(connection, topics))
        after = {tp: member for member, places in assignment.items() for tp in places}
    if after == before:
        return
    connection.execute("DELETE FROM group_targets WHERE name = ?", (group,))
    connection.executemany(
        "INSERT INTO group_targets VALUES (?, ?, ?, ?)",
        [(group, tp.topic, tp.partition, member) for tp, member in sorted(after.items())],
    )
    _advance(connection, group, now_ms, name)


def _advance(connection: sqlite3.Connection, group: str, now_ms: int, assignor: str | None = None) -> None:
    connection.execute(
        "INSERT INTO groups VALUES (?, 1, ?, ?) ON CONFLICT (name) DO UPDATE SET generation = generation + 1, "
        "assignor = CASE WHEN ? IS NULL THEN assignor ELSE excluded.assignor END, changed_ms = excluded.changed_ms",
        (group, assignor or "", now_ms, assignor),
    )


def _counts(connection: sqlite3.Connection, topics: Iterable[str]) -> Mapping[str, int]:
    counted = connection.execute(
        "SELECT t.name, count(*) FROM topics t JOIN partitions p ON p.topic_id = t.id GROUP BY t.id"
    ).fetchall()
    names = set(topics)
    return {name: count for name, count in counted if name in names}


def _places(connection: sqlite3.Connection, table: str, me: ConsumerIdentity) -> set[TopicPartition]:
    rows = connection.execute(
        f"SELECT topic, partition FROM {table} WHERE name = ? AND member = ?",  # noqa: S608
        (me.group, me.member),
    )
    return {TopicPartition(topic, partition) for topic, partition in rows.fetchall()}


def _delete_owners(connection: sqlite3.Connection, group: str, places: Iterable[TopicPartition]) -> None:
    connection.executemany(
        "DELETE FROM group_owners WHERE name = ? AND topic = ? AND partition = ?",
        [(group, tp.topic, tp.partition) for tp in places],
    )


def _remove(connection: sqlite3.Connection, group: str, members: Iterable[str], now_ms: int) -> None:
    for member in members:
        for table in ("group_members", "group_owners"):
            connection.execute(f"DELETE FROM {table} WHERE name = ? AND member = ?", (group, member))  # noqa: S608
    _advance(connection, group, now_ms)
