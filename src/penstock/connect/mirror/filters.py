"""What is mirrored: topics, groups and topic settings, by lists of regular expressions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.base.java_text.regex import compile_java
from penstock.base.java_text.text_error import JavaTextError
from penstock.connect.config import ConfigDef, Importance, Kind, Setting
from penstock.connect.data import SettingError
from penstock.connect.mirror.policies import ReplicationPolicy

__all__ = ["ConfigPropertyFilter", "GroupFilter", "MirroredTopics", "NameFilter", "TopicFilter", "is_cycle"]

NOTHING = re.compile(r"(?!)")


def _patterns(name: str, default: str, doc: str) -> Setting:
    return Setting(name=name, kind=Kind.LIST, default=default, importance=Importance.HIGH, doc=doc)


class NameFilter:
    """Names that match one regular expression and not another. Both are comma-separated lists of Java's syntax.

    Attributes:
        java_class: The name by which configs name it.
        included: The setting of what is taken; None: all.
        excluded: The setting of what is left out.
    """

    java_class: ClassVar[str]
    included: ClassVar[Setting | None] = None
    excluded: ClassVar[Setting]

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        own_settings = settings or {}
        self._include = None if self.included is None else _compiled(self.included, own_settings)
        self._exclude = _compiled(self.excluded, own_settings)

    @classmethod
    def definition(cls) -> ConfigDef:
        """Return the definition of its settings."""
        return ConfigDef([setting for setting in (cls.included, cls.excluded) if setting is not None])

    def takes(self, name: str) -> bool:
        """Return whether this name is mirrored."""
        taken = self._include is None or self._include.fullmatch(name) is not None
        return taken and self._exclude.fullmatch(name) is None


class TopicFilter(NameFilter):
    """The topics to mirror. Kafka's ``DefaultTopicFilter``.

    >>> [TopicFilter({"topics": "orders.*"}).takes(name) for name in ("orders.eu", "orders.replica", "clicks")]
    [True, False, False]
    """

    java_class = "org.apache.kafka.connect.mirror.DefaultTopicFilter"
    included = _patterns("topics", ".*", "List of topics and/or regexes to replicate.")
    excluded = _patterns(
        "topics.exclude",
        r"mm2.*\.internal, .*[\-\.]replica, __.*",
        "List of topics and/or regexes that should not be replicated.",
    )


class GroupFilter(NameFilter):
    """The consumer groups whose offsets are mirrored. Kafka's ``DefaultGroupFilter``."""

    java_class = "org.apache.kafka.connect.mirror.DefaultGroupFilter"
    included = _patterns("groups", ".*", "List of consumer group names and/or regexes to replicate.")
    excluded = _patterns(
        "groups.exclude",
        "console-consumer-.*, connect-.*, __.*",
        "List of consumer group names and/or regexes that should not be replicated.",
    )


class ConfigPropertyFilter(NameFilter):
    """The settings of topics that are mirrored. Kafka's ``DefaultConfigPropertyFilter``."""

    java_class = "org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter"
    excluded = _patterns(
        "config.properties.exclude",
        r"follower\.replication\.throttled\.replicas, leader\.replication\.throttled\.replicas, "
        r"message\.timestamp\.difference\.max\.ms, message\.timestamp\.type, unclean\.leader\.election\.enable, "
        r"min\.insync\.replicas",
        "List of topic configuration properties and/or regexes that should not be replicated.",
    )


def is_cycle(policy: ReplicationPolicy, topic: str, target: str) -> bool:
    """Return whether a topic came from the target cluster, through whatever others.

    >>> from penstock.connect.mirror.policies import DefaultReplicationPolicy
    >>> [is_cycle(DefaultReplicationPolicy(), name, "east") for name in ("orders", "west.east.orders")]
    [False, True]
    """
    while (source := policy.topic_source(topic)) is not None:
        upstream = policy.upstream_topic(topic)
        if source == target:
            return True
        if upstream is None or upstream == topic:
            return False
        topic = upstream
    return False


@dataclass(frozen=True, slots=True)
class MirroredTopics:
    """Decides which topics of the source cluster are mirrored.

    Attributes:
        policy: The replication policy.
        target: The alias of the target cluster.
        filter: The topics that are wanted.
        heartbeats: Heartbeats are mirrored whatever the filter says.

    Example:
        >>> from penstock.connect.mirror.policies import DefaultReplicationPolicy
        >>> topics = MirroredTopics(DefaultReplicationPolicy(), "east")
        >>> [topics.takes(name) for name in ("orders", "east.orders", "__consumer_offsets", "west.heartbeats")]
        [True, False, False, True]
    """

    policy: ReplicationPolicy
    target: str
    filter: TopicFilter = field(default_factory=TopicFilter)
    heartbeats: bool = True

    def takes(self, topic: str) -> bool:
        """Whether this topic is mirrored: it is wanted, none of Kafka's own, and did not come from the target."""
        passes = self.filter.takes(topic) or (self.heartbeats and self.policy.is_heartbeats_topic(topic))
        return passes and not self.policy.is_internal_topic(topic) and not is_cycle(self.policy, topic, self.target)


def _compiled(setting: Setting, settings: Mapping[str, Any]) -> re.Pattern[str]:
    listed: Sequence[str] = setting.read(settings[setting.name]) if setting.name in settings else setting.default
    if not listed:
        return NOTHING
    try:
        return compile_java("|".join(listed))
    except JavaTextError as error:
        raise SettingError.invalid(setting.name, ", ".join(listed), str(error)) from error
