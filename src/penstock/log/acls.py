"""Access control lists of topics, which a Kafka cluster has and an embedded log has not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["SecuredLog", "TopicAcl"]


@dataclass(frozen=True, slots=True)
class TopicAcl:
    """A right to a topic, or its denial, by Kafka's names.

    Attributes:
        topic: The topic, by its whole name.
        principal: Such as ``User:alice``.
        host: The host from which it holds; ``*``: any.
        operation: Such as ``READ``.
        permission: ``ALLOW`` or ``DENY``.
    """

    topic: str
    principal: str
    host: str
    operation: str
    permission: str


@runtime_checkable
class SecuredLog(Protocol):
    """A log with access control lists."""

    def topic_acls(self) -> list[TopicAcl] | None:
        """List the rights to single topics; None: the cluster asks for none.

        Raises:
            AuthorizationError: The user may not see them.
        """
        ...

    def add_topic_acls(self, rules: Sequence[TopicAcl]) -> None:
        """Add rights to topics; those that are there already stay.

        Raises:
            AuthorizationError: The user may not change them.
            LogError: The cluster has no authorizer.
        """
        ...
