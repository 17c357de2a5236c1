"""The embedded log as the coordinator of streams groups.

There is no process of its own: whoever sends a heartbeat does the group's due work, in one write transaction.
"""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.clock import unix_ms
from penstock.errors import FencedError
from penstock.log.embedded import catalog
from penstock.log.embedded.groups import write_offsets
from penstock.log.processes import may_run, process_start
from penstock.log.streams_groups.group import GroupRecord, GroupSettings, MemberRecord, StreamsGroup
from penstock.log.streams_groups.stored import group_from, group_text, member_from, member_text

if TYPE_CHECKING:
    from penstock.log.base import OffsetAndMetadata, TopicPartition
    from penstock.log.embedded.log import EmbeddedLog
    from penstock.log.streams_groups.description import GroupDescription, InternalTopicSpec
    from penstock.log.streams_groups.messages import Heartbeat, HeartbeatAnswer

__all__ = ["EmbeddedStreamsCoordinator", "check_streams_member"]


class EmbeddedStreamsCoordinator:
    """The coordinator of streams groups in an embedded log.

    Args:
        log: The log.
        settings: The settings of its groups.
        clock: Returns the present time in milliseconds.
    """

    def __init__(
        self, log: EmbeddedLog, settings: GroupSettings | None = None, clock: Callable[[], int] = unix_ms
    ) -> None:
        self._log, self._settings, self._clock = log, settings or GroupSettings(), clock

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        """Take a member's heartbeat, and return its answer."""
        now_ms = self._clock()
        with self._log.writing() as connection:
            stored = _StoredGroup.read(connection, heartbeat.group)
            group = stored.group(self._settings, now_ms)
            for member in stored.dead():
                group.remove(member)
            answer = group.heartbeat(heartbeat, now_ms, client=heartbeat.process or "", host=socket.gethostname())
            stored.write(group, heartbeat.member)
        return answer

    def describe(self, group: str) -> GroupDescription | None:
        """Return a group; None if there is none of that name."""
        now_ms = self._clock()
        with self._log.writing() as connection:
            stored = _StoredGroup.read(connection, group)
            if not stored.is_known:
                return None
            found = stored.group(self._settings, now_ms)
            for member in stored.dead():
                found.remove(member)
            found.expire(now_ms)
            stored.write(found, "")
            return found.describe()

    def commit(
        self,
        group: str,
        member: str,
        epoch: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        instance: str | None = None,
    ) -> None:
        """Commit offsets as a member.

        Raises:
            FencedError: The group goes on without this member, or it has another epoch by now.
        """
        del instance  # its member id says enough
        with self._log.writing() as connection:
            check_streams_member(connection, group, member, epoch)
            write_offsets(connection, group, offsets, self._clock())


def check_streams_member(connection: sqlite3.Connection, group: str, member: str, epoch: int) -> None:
    """Raise FencedError unless a group has this member at this epoch; within the transaction of its commit."""
    row = connection.execute(
        "SELECT epoch FROM streams_members WHERE name = ? AND member = ?", (group, member)
    ).fetchone()
    if row is None or row[0] != epoch:
        known = "is not a member any more" if row is None else f"has the epoch {row[0]} by now, not {epoch}"
        raise FencedError(
            f"member {member} of group {group!r} {known}",
            hint="Others have its tasks: close them, and join again.",
            group=group, member=member,
        )  # fmt: skip


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
        found = cls(connection, group_from(group, text) if text else GroupRecord(group), before=text)
        for member, host, pid, start, heard_ms, document in connection.execute(
            "SELECT member, host, pid, process_start, heard_ms, document FROM streams_members WHERE name = ? "
            "ORDER BY member",
            (group,),
        ).fetchall():
            found.members[member] = member_from(member, heard_ms, document)
            found.places[member] = (host, pid, start)
        return found

    @property
    def is_known(self) -> bool:
        return bool(self.before)

    def dead(self) -> list[str]:
        """Return the members whose processes on this machine are gone; a static one may come back."""
        return [
            name for name, place in self.places.items() if self.members[name].instance is None and not may_run(*place)
        ]

    def group(self, settings: GroupSettings, now_ms: int) -> StreamsGroup:
        def counts() -> Mapping[str, int]:
            rows = self.connection.execute(
                "SELECT t.name, count(*) FROM topics t JOIN partitions p ON p.topic_id = t.id GROUP BY t.id"
            )
            return dict(rows.fetchall())

        def create(topic: InternalTopicSpec) -> None:
            catalog.create(self.connection, topic.name, topic.partitions, dict(topic.config), now_ms)

        return StreamsGroup(self.record, self.members, settings, counts, create)

    def write(self, group: StreamsGroup, sender: str) -> None:
        """Store what has changed; ``sender`` is the member whose heartbeat it was."""
        name, text = self.record.group, group_text(self.record)
        if text != self.before and (self.members or self.before):
            self.connection.execute("INSERT OR REPLACE INTO streams_groups VALUES (?, ?)", (name, text))
        for member in sorted(group.changed):
            record = self.members.get(member)
            if record is None:
                self.connection.execute("DELETE FROM streams_members WHERE name = ? AND member = ?", (name, member))
                continue
            here = (socket.gethostname(), os.getpid(), process_start(os.getpid()))
            place = here if member == sender or member not in self.places else self.places[member]
            self.connection.execute(
                "INSERT OR REPLACE INTO streams_members VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (name, member, record.epoch, *place, record.heard_ms, member_text(record)),
            )
        if sender in self.members and sender not in group.changed:
            self.connection.execute(
                "UPDATE streams_members SET heard_ms = ? WHERE name = ? AND member = ?",
                (self.members[sender].heard_ms, name, sender),
            )
