"""Consumer groups of an embedded log, as its users see them: offsets and members."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence

from penstock.errors import LogError
from penstock.log import membership
from penstock.log.base import GroupState, OffsetAndMetadata, TopicPartition
from penstock.log.database import Database
from penstock.log.membership import Membership, Share

__all__ = ["Groups", "write_offsets"]


class Groups:
    """Consumer groups of an embedded log."""

    _database: Database

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Sets the group's next offsets, whoever its members are; ``metadata`` is noted beside them."""
        with self._database.writing() as connection:
            write_offsets(connection, group, offsets, _now_ms(), metadata)

    def commit_as(self, me: Membership, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets the group's next offsets for a member.

        Raises:
            FencedError: One of these partitions is not this member's (any more).
        """
        with self._database.writing() as connection:
            membership.check_owner(connection, me, offsets)
            write_offsets(connection, me.group, offsets, _now_ms())

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """The group's next offset per partition."""
        return {place: each.offset for place, each in self.group_offsets(group).items()}

    def group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's next offsets with what was noted beside them."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT topic, partition, next_offset, coalesce(metadata, '') FROM group_offsets "
                "LEFT JOIN group_notes USING (name, topic, partition) WHERE name = ?",
                (group,),
            ).fetchall()
        return {TopicPartition(row[0], row[1]): OffsetAndMetadata(row[2], row[3]) for row in rows}

    def delete_offsets(self, group: str, places: Iterable[TopicPartition]) -> None:
        """Forgets where the group is in these partitions."""
        with self._database.writing() as connection:
            for place in places:
                for table in ("group_offsets", "group_notes"):
                    connection.execute(
                        f"DELETE FROM {table} WHERE name = ? AND topic = ? AND partition = ?",  # noqa: S608
                        (group, place.topic, place.partition),
                    )

    def groups(self) -> list[str]:
        """The names of all groups that have committed offsets or members."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT name FROM group_offsets UNION SELECT name FROM group_members ORDER BY name"
            ).fetchall()
        return [row[0] for row in rows]

    def group_state(self, group: str) -> GroupState:
        """State and members; those that died or fell silent are put out first."""
        with self._database.reading() as connection:
            known = membership.members_of(connection, group)
        if known:
            with self._database.writing() as connection:
                membership.expire(connection, group, _now_ms())
        with self._database.reading() as connection:
            state, assignor = membership.state_of(connection, group)
            return GroupState(state, assignor, tuple(membership.members_of(connection, group)))

    def delete_group(self, group: str) -> None:
        """Forgets a group and its offsets.

        Raises:
            LogError: It has members.
        """
        with self._database.writing() as connection:
            membership.expire(connection, group, _now_ms())
            members = membership.members_of(connection, group)
            if members:
                raise LogError(
                    f"group {group!r} has {len(members)} member(s), such as process {members[0].pid} "
                    f"on {members[0].host}",
                    hint="stop its consumers first",
                    group=group,
                )
            for table in ("group_offsets", "group_notes", "group_targets", "group_owners", "groups"):
                connection.execute(f"DELETE FROM {table} WHERE name = ?", (group,))  # noqa: S608

    def join_group(
        self,
        group: str,
        topics: Iterable[str],
        *,
        assignors: Sequence[str] = ("range",),
        instance: str = "",
        client: str = "",
        session_ms: int = 45_000,
    ) -> Membership:
        """A new member of the group."""
        with self._database.writing() as connection:
            return membership.join(
                connection, group, topics, assignors=assignors, instance=instance, client=client,
                session_ms=session_ms, now_ms=_now_ms(),
            )  # fmt: skip

    def sync_group(self, me: Membership, held: Iterable[TopicPartition], topics: Iterable[str]) -> Share:
        """Tells the group what this member holds; gives what it is to hold."""
        with self._database.writing() as connection:
            return membership.sync(connection, me, held, topics, _now_ms())

    def heartbeat(self, me: Membership, topics: Iterable[str]) -> None:
        """Says that this member lives."""
        with self._database.writing() as connection:
            membership.heartbeat(connection, me, topics, _now_ms())

    def leave_group(self, me: Membership) -> None:
        """Leaves; what it owned is free at once."""
        with self._database.writing() as connection:
            membership.leave(connection, me, _now_ms())

    def group_generation(self, group: str) -> int:
        """Grows whenever members have to look at their share again."""
        with self._database.reading() as connection:
            return membership.generation_of(connection, group)


def write_offsets(
    connection: sqlite3.Connection, group: str, offsets: Mapping[TopicPartition, int], now_ms: int, metadata: str = ""
) -> None:
    """Stores a group's offsets; what was noted beside them before is replaced too."""
    connection.executemany(
        "INSERT OR REPLACE INTO group_offsets VALUES (?, ?, ?, ?, ?)",
        [(group, each.topic, each.partition, offset, now_ms) for each, offset in offsets.items()],
    )
    connection.executemany(
        "INSERT OR REPLACE INTO group_notes VALUES (?, ?, ?, ?)",
        [(group, each.topic, each.partition, metadata) for each in offsets],
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
