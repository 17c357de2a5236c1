"""Consumer groups of an embedded log: their offsets and members."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

from penstock.base.clock import unix_ms
from penstock.base.terminal.human_numbers import counted
from penstock.errors import LogError
from penstock.log.base import GroupState, Lease, OffsetAndMetadata, TopicPartition
from penstock.log.client_counts import timed
from penstock.log.embedded import catalog, membership
from penstock.log.embedded.coordination import check_lease
from penstock.log.embedded.coordination_rows import write_offsets
from penstock.log.embedded.database import Database
from penstock.log.embedded.membership import ConsumerIdentity, JoinRequest, Share
from penstock.log.embedded.streams_groups import EmbeddedStreamsCoordinator
from penstock.log.streams_groups.description import group_state_of

__all__ = ["ConsumerGroups"]


class ConsumerGroups:
    """Consumer groups of an embedded log."""

    _database: Database

    @timed("consumer", "commit-ms")
    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "", lease: Lease | None = None
    ) -> None:
        """Set the group's next offsets, with ``metadata``; it must have no members but the application of ``lease``.

        Raises:
            FencedError: The group has members, or its application runs; or a newer instance has taken over ``lease``.
        """
        with self._database.writing() as connection:
            self._require_empty(connection, group, lease)
            noted = {tp: OffsetAndMetadata(each, metadata) for tp, each in offsets.items()}
            write_offsets(connection, group, noted, unix_ms())

    def commit_with_metadata(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Set the group's next offsets, each with a text of its own; errors are those of `commit_offsets`."""
        with self._database.writing() as connection:
            self._require_empty(connection, group, None)
            write_offsets(connection, group, offsets, unix_ms())

    def commit_if_empty(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> bool:
        """Set the group's next offsets, unless stream threads are its members; return whether they are set."""
        self._streams_state(group)  # dead members are removed
        with self._database.writing() as connection:
            if membership.has_streams_members(connection, group):
                return False
            self._require_empty(connection, group, None)
            noted = {tp: OffsetAndMetadata(each, metadata) for tp, each in offsets.items()}
            write_offsets(connection, group, noted, unix_ms())
            return True

    def commit_as(self, me: ConsumerIdentity, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the group's next offsets as a member.

        Raises:
            FencedError: One of these partitions does not belong to this member (any more).
        """
        with self._database.writing() as connection:
            membership.check_owner(connection, me, offsets)
            plain = {tp: OffsetAndMetadata(each) for tp, each in offsets.items()}
            write_offsets(connection, me.group, plain, unix_ms())

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the group's next offsets by partition."""
        return {tp: each.offset for tp, each in self.group_offsets(group).items()}

    @timed("consumer", "committed-ms")
    def group_offsets(
        self, group: str, places: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's next offsets with their metadata; of these partitions, if some are named."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT topic, partition, next_offset, coalesce(metadata, '') FROM group_offsets "
                "LEFT JOIN group_notes USING (name, topic, partition) WHERE name = ?",
                (group,),
            ).fetchall()
        offsets = {TopicPartition(row[0], row[1]): OffsetAndMetadata(row[2], row[3]) for row in rows}
        return offsets if places is None else {tp: offsets[tp] for tp in places if tp in offsets}

    def delete_offsets(self, group: str, places: Iterable[TopicPartition], lease: Lease | None = None) -> None:
        """Delete the group's offsets of these partitions; errors are those of `commit_offsets`."""
        with self._database.writing() as connection:
            self._require_empty(connection, group, lease)
            for tp in places:
                for table in ("group_offsets", "group_notes"):
                    connection.execute(
                        f"DELETE FROM {table} WHERE name = ? AND topic = ? AND partition = ?",  # noqa: S608
                        (group, tp.topic, tp.partition),
                    )

    def groups(self) -> list[str]:
        """List the names of all groups that have committed offsets or members."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT name FROM group_offsets UNION SELECT name FROM group_members UNION "
                "SELECT name FROM streams_members ORDER BY name"
            ).fetchall()
        return [row[0] for row in rows]

    def group_state(self, group: str) -> GroupState:
        """Return the state and members; dead and silent members are removed first."""
        threads = self._streams_state(group)
        if threads is not None:
            return threads
        with self._database.reading() as connection:
            members = membership.members_of(connection, group)
        if members:
            with self._database.writing() as connection:
                membership.expire(connection, group, unix_ms())
        with self._database.reading() as connection:
            state, assignor = membership.state_of(connection, group)
            return GroupState(state, assignor, tuple(membership.members_of(connection, group)))

    def _streams_state(self, group: str) -> GroupState | None:
        """Return the state of a group whose members are stream threads; None if there are none."""
        with self._database.reading() as connection:
            if not membership.has_streams_members(connection, group):
                return None
        description = EmbeddedStreamsCoordinator(self._database).describe(group)
        if description is None or not description.members:
            return None
        return group_state_of(description, self._partition_counts)

    def _partition_counts(self) -> dict[str, int]:
        with self._database.reading() as connection:
            return {each.name: each.partitions for each in catalog.listing(connection)}

    def delete_group(self, group: str, lease: Lease | None = None) -> None:
        """Delete a group and its offsets.

        Raises:
            LogError: The group has members, or its application runs.
        """
        self._streams_state(group)  # dead members are removed
        with self._database.writing() as connection:
            membership.expire(connection, group, unix_ms())
            members = membership.members_of(connection, group)
            if members:
                raise LogError(
                    f"group {group!r} has {counted(len(members), 'member')}, such as process {members[0].pid} "
                    f"on {members[0].host}",
                    hint="stop its consumers first",
                    group=group,
                )
            self._require_empty(connection, group, lease)
            for table in ("group_offsets", "group_notes", "group_targets", "group_owners", "groups", "streams_groups"):
                connection.execute(f"DELETE FROM {table} WHERE name = ?", (group,))  # noqa: S608

    def join_group(self, group: str, request: JoinRequest) -> ConsumerIdentity:
        """Join the group as a new member.

        Raises:
            FencedError: It is the group of a running application.
        """
        self._streams_state(group)  # dead members are removed
        with self._database.writing() as connection:
            return membership.join(connection, group, request, unix_ms())

    def sync_group(self, me: ConsumerIdentity, held: Iterable[TopicPartition], topics: Iterable[str]) -> Share:
        """Report the partitions that this member holds, and return its share."""
        with self._database.writing() as connection:
            return membership.sync(connection, me, held, topics, unix_ms())

    def heartbeat(self, me: ConsumerIdentity, topics: Iterable[str]) -> None:
        """Send a member's heartbeat."""
        with self._database.writing() as connection:
            membership.heartbeat(connection, me, topics, unix_ms())

    def leave_group(self, me: ConsumerIdentity) -> None:
        """Leave the group; the member's partitions are free at once."""
        with self._database.writing() as connection:
            membership.leave(connection, me, unix_ms())

    def group_generation(self, group: str) -> int:
        """Return a number that grows whenever members have to check their share again."""
        with self._database.reading() as connection:
            return membership.generation_of(connection, group)

    def _require_empty(self, connection: sqlite3.Connection, group: str, lease: Lease | None) -> None:
        if lease is not None:
            check_lease(connection, lease.application, lease.epoch)
        membership.expire(connection, group, unix_ms())
        epoch = lease.epoch if lease is not None and lease.application == group else None
        membership.check_outsider(connection, group, epoch)
