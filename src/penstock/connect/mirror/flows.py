"""Flows between clusters, as ``mm2.properties`` describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.base.nearest_name import mistyped, question
from penstock.config.client_names import CLIENT_NAMES
from penstock.config.prefixes import behind_prefix
from penstock.connect.config import ConfigDef, Kind, Range, Setting
from penstock.connect.data import SettingError
from penstock.connect.mirror.connector_settings import CHECKPOINT_CONFIG, HEARTBEAT_CONFIG, SOURCE_CONFIG
from penstock.connect.mirror.filters import ConfigPropertyFilter, GroupFilter, MirroredTopics, NameFilter, TopicFilter
from penstock.connect.mirror.policies import ReplicationPolicy, policy_of

__all__ = ["MirrorCluster", "Flow", "connector_flow", "read_flows"]


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
        """The setting of a new topic by one of ``replication.factor``; without it the brokers' default counts."""
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
    """The flow of a connector's config, which describes its clusters by ``source.cluster.*`` and ``target.cluster.*``.

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
