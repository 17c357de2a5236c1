"""A Kafka broker as the coordinator of streams groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaException

from penstock.errors import FencedError
from penstock.log.kafka.error_codes import CODES, ErrorCategory
from penstock.log.kafka.failures import error_of, failure
from penstock.log.kafka.wire.groups import commit_as_streams_member
from penstock.log.kafka.wire.streams_groups import describe_streams_group
from penstock.log.kafka.wire.streams_heartbeats import send_heartbeat
from penstock.log.membership import GroupMembership

if TYPE_CHECKING:
    from penstock.log.base import OffsetAndMetadata, TopicPartition
    from penstock.log.kafka.access import ClusterAccess
    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.streams_groups.description import GroupDescription
    from penstock.log.streams_groups.messages import Heartbeat, HeartbeatAnswer

__all__ = ["KafkaStreamsCoordinator"]

_T = TypeVar("_T")


class KafkaStreamsCoordinator:
    """The brokers that keep streams groups (Kafka 4.2 and later).

    Args:
        cluster: Connections; a heartbeat waits behind requests in flight, so its own are best.
        access: Explains refusals.
    """

    def __init__(self, cluster: Cluster, access: ClusterAccess | None = None) -> None:
        self._cluster, self._access = cluster, access

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        """Send a member's heartbeat; there are no retries here, as the next heartbeat says everything again.

        Raises:
            LogError: The heartbeat may have been lost, or its answer.
        """
        group = heartbeat.group
        return self._tried(lambda: send_heartbeat(self._cluster, heartbeat), f"staying in group {group!r}")

    def describe(self, group: str) -> GroupDescription | None:
        """Return a group; None if there is none of that name, or the brokers know no streams groups.

        Raises:
            LogError: The coordinator does not answer, or the user may not see the group.
        """
        return self._tried(lambda: describe_streams_group(self._cluster, group), f"describing group {group!r}")

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
            LogError: The coordinator does not answer.
        """
        me = GroupMembership(member, instance or "", epoch)
        doing = f"committing offsets of group {group!r}"
        self._tried(lambda: commit_as_streams_member(self._cluster, group, offsets, me), doing)

    def _tried(self, action: Callable[[], _T], doing: str) -> _T:
        try:
            return action()
        except KafkaException as error:
            inner = error_of(error)
            if CODES.get(inner.code()) is ErrorCategory.REJOIN:
                raise FencedError(
                    f"{doing}: {inner.str()}", hint="Others have its tasks: close them, and join again."
                ) from error
            raise failure(error, doing, self._access) from error
