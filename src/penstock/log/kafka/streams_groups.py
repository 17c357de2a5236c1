"""A Kafka broker as the coordinator of streams groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaException

from penstock.base.log_lines import own_logger
from penstock.errors import LogError, LogUnavailableError
from penstock.log.kafka.error_codes import ErrorCategory
from penstock.log.kafka.failures import category_of, failure, membership_failure, persist
from penstock.log.kafka.wire.cluster import feature_level
from penstock.log.kafka.wire.groups import commit_as_streams_member
from penstock.log.kafka.wire.streams_groups import describe_streams_group, send_heartbeat, set_group_setting

if TYPE_CHECKING:
    from penstock.log.base import OffsetAndMetadata, StreamsMembership, TopicPartition
    from penstock.log.kafka.refused_access import ClusterAccess
    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.streams_groups.description import HeartbeatAnswer, StreamsGroupDescription, StreamsHeartbeat

__all__ = ["KafkaStreamsCoordinator"]

_T = TypeVar("_T")
_log = own_logger(__name__)
_FEATURE = "streams.version"
_PATIENCE_S = 10.0
_UNKNOWN_SETTING = "Unknown group config name"  # of an older broker


class KafkaStreamsCoordinator:
    """The brokers that keep streams groups (Kafka 4.2 and later).

    Args:
        cluster: Connections of its own, as a heartbeat waits behind requests in flight.
        access: Explains refusals.
    """

    def __init__(self, cluster: Cluster, access: ClusterAccess | None = None) -> None:
        self._cluster, self._access = cluster, access

    def is_supported(self) -> bool:
        """Return whether the cluster has finalised the feature.

        Raises:
            LogError: No broker answers.
        """

        def ask() -> bool:
            return feature_level(self._cluster.any_broker(), _FEATURE) > 0

        doing = "asking for the features of the cluster"
        return persist(ask, doing, _PATIENCE_S, self._access, self._cluster.forget)

    def heartbeat(self, heartbeat: StreamsHeartbeat) -> HeartbeatAnswer:
        """Send a member's heartbeat; there are no retries here, as the next heartbeat says everything again.

        Raises:
            LogError: The heartbeat may have been lost, or its answer.
        """
        group = heartbeat.group
        return self._tried(lambda: send_heartbeat(self._cluster, heartbeat), f"staying in group {group!r}")

    def describe(self, group: str) -> StreamsGroupDescription | None:
        """Return a group; None if there is none of that name, or the brokers know no streams groups.

        A new cluster has no coordinators for some seconds: that is waited for.

        Raises:
            LogError: The coordinator does not answer, or the user may not see the group.
        """
        act = partial(describe_streams_group, self._cluster, group)
        return persist(act, f"describing group {group!r}", _PATIENCE_S, self._access, self._cluster.forget)

    def commit(
        self,
        group: str,
        membership: StreamsMembership,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Commit offsets as a member.

        Raises:
            FencedError: The group goes on without this member, or has given its tasks to others.
            LogError: The coordinator does not answer.
        """

        def commit() -> None:
            try:
                commit_as_streams_member(self._cluster, group, offsets, membership)
            except KafkaException as error:
                if category_of(error) is ErrorCategory.REJOIN:
                    raise membership_failure(group, membership, error) from error
                raise

        self._tried(commit, f"committing offsets of group {group!r}")

    def set_group_settings(self, group: str, settings: Mapping[str, str]) -> dict[str, str]:
        """Set settings of a group one by one; return those that were refused, each with the reason.

        Raises:
            LogUnavailableError: No broker answers.
        """
        refused: dict[str, str] = {}
        for name, value in settings.items():
            doing = f"setting {name} of group {group!r}"
            act = partial(set_group_setting, self._cluster, group, name, value)
            try:
                persist(act, doing, _PATIENCE_S, self._access, self._cluster.forget, operation="ALTER_CONFIGS")
            except LogUnavailableError:
                raise
            except LogError as error:
                if _UNKNOWN_SETTING in error.message:
                    _log.debug("%s: %s", doing, error.message)
                else:
                    refused[name] = error.message
        return refused

    def close(self) -> None:
        """Close its connections."""
        self._cluster.close()

    def _tried(self, action: Callable[[], _T], doing: str) -> _T:
        try:
            return action()
        except KafkaException as error:
            raise failure(error, doing, self._access) from error
