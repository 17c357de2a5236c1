"""The coordinator of streams groups: a broker, or the embedded log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.log.base import OffsetAndMetadata, StreamsMembership, TopicPartition
    from penstock.log.streams_groups.description import HeartbeatAnswer, StreamsGroupDescription, StreamsHeartbeat

__all__ = ["StreamsCoordinator"]


class StreamsCoordinator(Protocol):
    """What keeps streams groups; safe to use from several threads."""

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
