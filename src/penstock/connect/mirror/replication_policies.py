"""Replication policies: the names of topics in the target cluster, and what names say about where a topic is from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from penstock.connect.config import ConfigDef, Importance, Kind, Setting
from penstock.connect.data import SettingError

__all__ = ["POLICIES", "DefaultReplicationPolicy", "IdentityReplicationPolicy", "ReplicationPolicy", "policy_of"]

SEPARATOR = Setting(
    name="replication.policy.separator",
    kind=Kind.STRING,
    default=".",
    importance=Importance.LOW,
    doc="Separator used in remote topic naming convention.",
)
INTERNAL_SEPARATOR = Setting(
    name="replication.policy.internal.topic.separator.enabled",
    kind=Kind.BOOLEAN,
    default="true",
    importance=Importance.LOW,
    doc="Whether the separator is in the names of the mirror's own topics too; else it is a dot there.",
)
SOURCE_ALIAS = Setting(
    name="source.cluster.alias",
    kind=Kind.STRING,
    default=None,
    importance=Importance.LOW,
    doc="Alias of the source cluster.",
)


class ReplicationPolicy:
    """The names of mirrored topics. Kafka's ``ReplicationPolicy``; derive from `DefaultReplicationPolicy`.

    Attributes:
        java_class: The name by which configs name it.
    """

    java_class: ClassVar[str]
    heartbeats: ClassVar[str] = "heartbeats"

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the settings.

        Raises:
            SettingError: One is wrong.
        """
        raise NotImplementedError

    def remote_topic(self, source: str, topic: str) -> str:
        """Return the name in the target cluster of a topic of the cluster ``source``. Kafka's ``formatRemoteTopic``."""
        raise NotImplementedError

    def topic_source(self, topic: str) -> str | None:
        """Return the alias of the cluster that a topic was mirrored from; None: it is not a mirrored one."""
        raise NotImplementedError

    def upstream_topic(self, topic: str) -> str | None:
        """Return a mirrored topic's name in the cluster that it was mirrored from; None: it is no mirrored one."""
        raise NotImplementedError

    def original_topic(self, topic: str) -> str:
        """Return the name in the cluster that it is from at first, behind all clusters that it went through."""
        while (upstream := self.upstream_topic(topic)) is not None and upstream != topic:
            topic = upstream
        return topic

    def offset_syncs_topic(self, cluster: str) -> str:
        """Return the name of the topic of offset syncs towards a cluster."""
        raise NotImplementedError

    def checkpoints_topic(self, cluster: str) -> str:
        """Return the name of the topic of checkpoints of a source cluster."""
        raise NotImplementedError

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Return whether it has heartbeats, whichever clusters it went through."""
        return self.original_topic(topic) == self.heartbeats

    def is_checkpoints_topic(self, topic: str) -> bool:
        """Return whether it has checkpoints."""
        raise NotImplementedError

    def is_mirror_internal_topic(self, topic: str) -> bool:
        """Return whether it is one of the mirror's own. Kafka's ``isMM2InternalTopic``."""
        raise NotImplementedError

    def is_internal_topic(self, topic: str) -> bool:
        """Return whether it is one of the mirror's or of Kafka's own, which are never mirrored."""
        return topic.startswith(("__", ".")) or self.is_mirror_internal_topic(topic)


class DefaultReplicationPolicy(ReplicationPolicy):
    """Names with the source cluster before them, such as ``west.orders``.

    Example:
        >>> policy = DefaultReplicationPolicy()
        >>> policy.remote_topic("west", "orders"), policy.topic_source("west.orders"), policy.topic_source("orders")
        ('west.orders', 'west', None)
    """

    java_class = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
    config: ClassVar[ConfigDef] = ConfigDef([SEPARATOR, INTERNAL_SEPARATOR])

    def __init__(self) -> None:
        self.separator = self.internal_separator = "."

    def configure(self, settings: Mapping[str, Any]) -> None:
        parsed = self.config.parse(settings)
        self.separator = parsed[SEPARATOR.name]
        if not self.separator:
            raise SettingError.invalid(SEPARATOR.name, "", "a separator of at least one character is needed")
        self.internal_separator = self.separator if parsed[INTERNAL_SEPARATOR.name] else "."

    def remote_topic(self, source: str, topic: str) -> str:
        return f"{source}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        source, _, rest = topic.partition(self.separator)
        return source if _has_more(rest, self.separator) else None

    def upstream_topic(self, topic: str) -> str | None:
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def offset_syncs_topic(self, cluster: str) -> str:
        return f"mm2-offset-syncs{self.internal_separator}{cluster}{self._internal_suffix}"

    def checkpoints_topic(self, cluster: str) -> str:
        return f"{cluster}{self._checkpoints_suffix}"

    def is_checkpoints_topic(self, topic: str) -> bool:
        return topic.endswith(self._checkpoints_suffix)

    def is_mirror_internal_topic(self, topic: str) -> bool:
        own = topic.startswith("mm2") and topic.endswith(self._internal_suffix)
        return own or self.is_checkpoints_topic(topic)

    @property
    def _internal_suffix(self) -> str:
        return f"{self.internal_separator}internal"

    @property
    def _checkpoints_suffix(self) -> str:
        return f"{self.internal_separator}checkpoints{self._internal_suffix}"


class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """The same names in both clusters, except for heartbeats. Cycles cannot be seen by it: mirror one way only.

    Example:
        >>> policy = IdentityReplicationPolicy()
        >>> policy.remote_topic("west", "orders"), policy.remote_topic("west", "heartbeats")
        ('orders', 'west.heartbeats')
    """

    java_class = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    config = ConfigDef([SEPARATOR, INTERNAL_SEPARATOR, SOURCE_ALIAS])

    def __init__(self) -> None:
        super().__init__()
        self.source: str | None = None

    def configure(self, settings: Mapping[str, Any]) -> None:
        super().configure(settings)
        self.source = self.config.parse(settings)[SOURCE_ALIAS.name]

    def remote_topic(self, source: str, topic: str) -> str:
        return super().remote_topic(source, topic) if self._is_like_heartbeats(topic) else topic

    def topic_source(self, topic: str) -> str | None:
        return super().topic_source(topic) if self._is_like_heartbeats(topic) else self.source

    def upstream_topic(self, topic: str) -> str | None:
        return super().upstream_topic(topic) if self._is_like_heartbeats(topic) else topic

    def _is_like_heartbeats(self, topic: str) -> bool:
        return topic.endswith(self.heartbeats)


POLICIES: tuple[type[ReplicationPolicy], ...] = (DefaultReplicationPolicy, IdentityReplicationPolicy)


def policy_of(settings: Mapping[str, Any]) -> ReplicationPolicy:
    """Return the policy that ``replication.policy.class`` names, configured; by default `DefaultReplicationPolicy`.

    Raises:
        SettingError: There is no such policy, or a setting of it is wrong.
    """
    name = settings.get("replication.policy.class") or DefaultReplicationPolicy.java_class
    policy_class = next((each for each in POLICIES if name in (each.java_class, each.__name__)), None)
    if policy_class is None:
        names = ", ".join(each.__name__ for each in POLICIES)
        raise SettingError.invalid("replication.policy.class", name, f"there is no such policy. There are {names}.")
    policy = policy_class()
    policy.configure(settings)
    return policy


def _has_more(rest: str, separator: str) -> bool:
    """Return whether anything but separators follows, as Java's ``split`` leaves out empty parts at the end."""
    return bool(rest.replace(separator, ""))
