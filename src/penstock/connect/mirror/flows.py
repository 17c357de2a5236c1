"""Flows between clusters, as ``mm2.properties`` describes them, what they mirror, and settings of connectors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any, ClassVar

from penstock.base.java_text.regex import compile_java
from penstock.base.java_text.texts import JavaTextError
from penstock.base.nearest_name import mistyped, question
from penstock.config.client_names import CLIENT_NAMES
from penstock.config.prefixes import behind_prefix
from penstock.connect.config import AnyCase, ConfigDef, Importance, Kind, OneOf, Range, Setting, Validator
from penstock.connect.data import SettingError
from penstock.connect.mirror.replication_policies import ReplicationPolicy, policy_of
from penstock.connect.plugins.connector_definition import plain_settings

__all__ = [
    "CHECKPOINT_CONFIG",
    "HEARTBEAT_CONFIG",
    "SOURCE_CONFIG",
    "ConfigPropertyFilter",
    "Flow",
    "GroupFilter",
    "MirrorCluster",
    "MirroredTopics",
    "TopicFilter",
    "connector_flow",
    "is_cycle",
    "read_flows",
]

Tables = dict[str, dict[str, Any]]
RULES: dict[str, Validator] = {
    "offset-syncs.topic.location": OneOf(("source", "target")),
    "security.protocol": AnyCase(("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")),
}


def _definition(tables: Tables, name: str) -> ConfigDef:
    return ConfigDef([*plain_settings(), *_settings(tables, "common"), *_settings(tables, name)])


def _settings(tables: Tables, table: str) -> Iterator[Setting]:
    for name, row in tables[table].items():
        kind, importance, doc, *default = tables[row][name] if isinstance(row, str) else row
        keywords = {"default": default[0]} if default else {}
        rule = RULES.get(name)
        yield Setting(name=name, kind=Kind[kind], importance=Importance[importance], doc=doc, rule=rule, **keywords)


_TABLES: Tables = json.loads(files(__package__).joinpath("connector_settings.json").read_text(encoding="utf-8"))
SOURCE_CONFIG, CHECKPOINT_CONFIG, HEARTBEAT_CONFIG = (
    _definition(_TABLES, name) for name in ("source", "checkpoint", "heartbeat")
)


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

    >>> from penstock.connect.mirror.replication_policies import DefaultReplicationPolicy
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
    """The selection of the source cluster's topics that are mirrored.

    Attributes:
        policy: The replication policy.
        target: The alias of the target cluster.
        filter: The topics that are wanted.
        heartbeats: Heartbeats are mirrored whatever the filter says.

    Example:
        >>> from penstock.connect.mirror.replication_policies import DefaultReplicationPolicy
        >>> topics = MirroredTopics(DefaultReplicationPolicy(), "east")
        >>> [topics.takes(name) for name in ("orders", "east.orders", "__consumer_offsets", "west.heartbeats")]
        [True, False, False, True]
    """

    policy: ReplicationPolicy
    target: str
    filter: TopicFilter = field(default_factory=TopicFilter)
    heartbeats: bool = True

    def takes(self, topic: str) -> bool:
        """Return whether this topic is mirrored: selected, none of Kafka's own, and not from the target."""
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


# The classes that stand behind settings of connectors; others cannot be loaded.
CLASSES: dict[str, type[NameFilter]] = {
    "topic.filter.class": TopicFilter,
    "group.filter.class": GroupFilter,
    "config.property.filter.class": ConfigPropertyFilter,
}
# The settings of `Flow.setting`. ``penstock mirror`` copies in the directions that it is asked to, a connector always.
NAMES = (
    "emit.heartbeats.enabled", "emit.heartbeats.interval.seconds", "heartbeats.replication.enabled",
    "emit.checkpoints.enabled", "emit.checkpoints.interval.seconds", "sync.group.offsets.enabled",
    "sync.group.offsets.interval.seconds", "refresh.groups.enabled", "refresh.groups.interval.seconds",
    "sync.topic.configs.enabled", "sync.topic.acls.enabled", "sync.topic.acls.interval.seconds",
    "refresh.topics.enabled", "refresh.topics.interval.seconds",
    "offset.lag.max", "offset-syncs.topic.location", "emit.offset-syncs.enabled",
)  # fmt: skip


def _setting(name: str) -> Setting:
    configs = (SOURCE_CONFIG, CHECKPOINT_CONFIG, HEARTBEAT_CONFIG)
    setting = next(config.settings[name] for config in configs if name in config.settings)
    return replace(setting, rule=Range(0)) if setting.kind is Kind.LONG else setting


_RENAMED = {  # before Kafka 3
    "topics.blacklist": "topics.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.blacklist": "config.properties.exclude",
}
CONFIG = ConfigDef([replace(SOURCE_CONFIG.settings["enabled"], default=False), *map(_setting, NAMES)])


@dataclass(frozen=True, slots=True)
class MirrorCluster:
    """A cluster.

    Attributes:
        alias: Its name.
        servers: Its servers, or the URL of an embedded log.
        settings: The settings of its clients.
    """

    alias: str
    servers: str
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction between two clusters.

    Attributes:
        source: The cluster that is copied.
        target: The cluster that it is copied to.
        given: The settings as they were given.
    """

    source: MirrorCluster
    target: MirrorCluster
    given: Mapping[str, str] = field(default_factory=dict)

    def setting(self, name: str) -> Any:
        """Return the parsed value of a setting.

        Raises:
            SettingError: It is wrong.
        """
        definition = CONFIG.settings[name]
        value = definition.read(self.given[name]) if name in self.given else definition.default
        if definition.rule is not None:
            definition.rule(name, value)
        return value

    def check(self) -> None:
        """Read all settings.

        Raises:
            SettingError: One is wrong.
        """
        for name in CONFIG.settings:
            self.setting(name)
        _ = self.topics, self.groups, self.properties

    @property
    def policy(self) -> ReplicationPolicy:
        """The replication policy."""
        return policy_of({**self.given, "source.cluster.alias": self.source.alias})

    def copies(self, name: str) -> dict[str, str]:
        """Return a new topic's setting by one of ``replication.factor``; without it the brokers' default counts."""
        factor = str(self.given.get(name) or "").strip()
        return {"replication.factor": factor} if factor else {}

    @property
    def topics(self) -> MirroredTopics:
        """The topics that are mirrored."""
        heartbeats = self.setting("heartbeats.replication.enabled")
        return MirroredTopics(self.policy, self.target.alias, TopicFilter(self.given), heartbeats=heartbeats)

    @property
    def groups(self) -> GroupFilter:
        """The groups whose offsets are translated."""
        return GroupFilter(self.given)

    @property
    def properties(self) -> ConfigPropertyFilter:
        """The settings of topics that are copied."""
        return ConfigPropertyFilter(self.given)


def read_flows(properties: Mapping[str, str]) -> list[Flow]:
    """Return all flows of a ``mm2.properties``: each pair of clusters, also those that only have heartbeats.

    Raises:
        SettingError: Clusters are missing, or a setting is wrong.

    Example:
        >>> flows = read_flows({"clusters": "a, b", "a.bootstrap.servers": "x:1", "b.bootstrap.servers": "y:2",
        ...     "a->b.enabled": "true", "a->b.topics": "orders"})
        >>> [(f.source.alias, f.target.alias, f.setting("enabled")) for f in flows]
        [('a', 'b', True), ('b', 'a', False)]
    """
    aliases = [name.strip() for name in properties.get("clusters", "").split(",") if name.strip()]
    if len(aliases) < 2:
        raise SettingError("clusters names fewer than two clusters", hint="For example: clusters = west, east")
    for name in properties:
        _check_name(name, aliases)
    clusters = {alias: _cluster(alias, properties, f"{alias}.") for alias in aliases}
    arrows = [name.partition("->") for name in properties if "->" in name]
    for source, _, rest in arrows:
        target = rest.partition(".")[0]
        for alias in (source, target):
            if alias not in clusters:
                raise SettingError(f"a setting is for {source}->{target}, but clusters has no {alias!r}")
    shared = {name: value for name, value in properties.items() if "->" not in name and name != "clusters"}
    shared = {name: value for name, value in shared.items() if name.partition(".")[0] not in clusters}
    flows = []
    for source in aliases:
        for target in (alias for alias in aliases if alias != source):
            own = behind_prefix(properties, f"{source}->{target}.")
            flow = Flow(clusters[source], clusters[target], {**shared, **own})
            flow.check()
            flows.append(flow)
    return flows


def _check_name(name: str, aliases: list[str]) -> None:
    """Refuse a name that is one or two letters off a known one: Kafka's MirrorMaker passes it over."""
    arrow, _, rest = name.partition(".")
    bare = rest if "->" in arrow or arrow in aliases else name
    for side in ("source.", "target."):
        bare = bare.removeprefix(side)
    configs = (SOURCE_CONFIG, CHECKPOINT_CONFIG, HEARTBEAT_CONFIG)
    own = {setting for config in configs for setting in config.settings}
    clients = CLIENT_NAMES.keys() | {f"{kind}.{each.name}" for each in CLIENT_NAMES.values() for kind in each.clients}
    if meant := _RENAMED.get(bare) or mistyped(bare, own | clients | {"clusters", "bootstrap.servers"}):
        raise SettingError(
            f"there is no setting {name!r}", hint=question(name.removesuffix(bare) + meant), setting=name
        )


def connector_flow(settings: Mapping[str, str]) -> Flow:
    """Return the flow of a connector's config, which has its clusters in ``source.cluster.*`` and ``target.cluster.*``.

    Raises:
        SettingError: A setting is wrong, or names a class that is not there.

    Example:
        >>> flow = connector_flow({"source.cluster.alias": "west", "source.cluster.bootstrap.servers": "w:1",
        ...     "target.cluster.alias": "east", "target.cluster.bootstrap.servers": "e:1"})
        >>> flow.source.alias, flow.target.servers, flow.setting("enabled")
        ('west', 'e:1', True)
    """
    for name, only in CLASSES.items():
        if settings.get(name, only.java_class) not in (only.java_class, only.__name__):
            raise SettingError.invalid(name, settings[name], f"there is only {only.java_class}")
    source, target = (
        _cluster(settings.get(f"{side}.cluster.alias") or side, settings, f"{side}.cluster.")
        for side in ("source", "target")
    )
    flow = Flow(source, target, {"enabled": "true", **settings})
    flow.check()
    return flow


def _cluster(alias: str, properties: Mapping[str, str], prefix: str) -> MirrorCluster:
    own = behind_prefix(properties, prefix)
    servers = own.pop("bootstrap.servers", "")
    if not servers:
        raise SettingError(f"{prefix}bootstrap.servers is missing", hint="host:port of Kafka, or a file of a log.")
    clients = ("security.", "sasl.", "ssl.")
    return MirrorCluster(alias, servers, {name: value for name, value in own.items() if name.startswith(clients)})
