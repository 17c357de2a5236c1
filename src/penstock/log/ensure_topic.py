"""Topics that are created when they are missing, by whichever process comes first."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from penstock.errors import AuthorizationError, TopicExistsError, UnknownTopicError
from penstock.log.base import TopicLog

__all__ = ["ensure_topic"]


def ensure_topic(log: TopicLog, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> int:
    """Create a topic if there is none of that name, and return the number of partitions that it has.

    Args:
        log: The log.
        topic: The topic.
        partitions: The number of its partitions, if it is created; a topic that exists keeps its own.
        config: Its settings, if it is created; a topic that exists keeps its own.

    Raises:
        AuthorizationError: The user may not create the topic; or it exists, and the user may not describe it.

    Example:
        >>> from penstock.log.open import open_log
        >>> log = open_log("memory://")
        >>> ensure_topic(log, "orders", 3), ensure_topic(log, "orders", 8)
        (3, 3)
    """
    with suppress(UnknownTopicError, AuthorizationError):  # a topic that is not there may be hidden like one that is
        return log.partitions(topic)
    with suppress(TopicExistsError):  # another process was faster
        log.create_topic(topic, partitions, config)
        return partitions
    return log.partitions(topic)
