"""Flows between clusters, as ``mm2.properties`` describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.connect.config import ConfigDef, Importance, Kind, Range, Setting
from penstock.connect.data import SettingError
from penstock.connect.mirror.filters import ConfigPropertyFilter, GroupFilter, MirroredTopics, TopicFilter
from penstock.connect.mirror.policies import ReplicationPolicy, policy_of

__all__ = ["Cluster", "Flow", "read_flows"]


def _flag(name: str, default: bool, doc: str) -> Setting:  # noqa: FBT001 - the default of a setting
    return Setting(name=name, kind=Kind.BOOLEAN, default=default, importance=Importance.LOW, doc=doc)


def _seconds(name: str, default: int, doc: str) -> Setting:
    return Setting(name=name, kind=Kind.LONG, default=default, rule=Range(0), importance=Importance.LOW, doc=doc)


CONFIG = ConfigDef(
    [
        _flag("enabled", False, "Whether records are copied in this direction."),  # noqa: FBT003
        _flag("emit.heartbeats.enabled", True, "Write heartbeats to the target cluster."),  # noqa: FBT003
        _seconds("emit.heartbeats.interval.seconds", 1, "Time between two heartbeats."),
        _flag("heartbeats.replication.enabled", True, "Mirror heartbeats whatever the topic filter says."),  # noqa: FBT003
        _flag("emit.checkpoints.enabled", True, "Write the translated offsets of groups to the target cluster."),  # noqa: FBT003
        _seconds("emit.checkpoints.interval.seconds", 60, "Time between two looks at the groups."),
        _flag("sync.group.offsets.enabled", False, "Commit translated offsets for groups without members."),  # noqa: FBT003
        _flag("sync.topic.configs.enabled", True, "Copy the settings of topics."),  # noqa: FBT003
        _seconds("refresh.topics.interval.seconds", 600, "Time between two looks at the topics."),
        Setting(
            name="offset.lag.max", kind=Kind.LONG, default=100, rule=Range(0), doc="Records between two offset syncs."
        ),
        Setting(name="offset-syncs.topic.location", kind=Kind.STRING, default="source", doc="source or target."),
    ]
)


@dataclass(frozen=True, slots=True)
class Cluster:
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

    source: Cluster
    target: Cluster
    given: Mapping[str, str] = field(default_factory=dict)

    def setting(self, name: str) -> Any:
        """The parsed value of a setting.

        Raises:
            SettingError: It is wrong.
        """
        found = CONFIG.settings[name]
        value = found.read(self.given[name]) if name in self.given else found.default
        if found.rule is not None:
            found.rule(name, value)
        return value

    @property
    def policy(self) -> ReplicationPolicy:
        """The replication policy."""
        return policy_of({**self.given, "source.cluster.alias": self.source.alias})

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
    """All flows of a ``mm2.properties``: each pair of clusters, also those that only have heartbeats.

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
    clusters = {alias: _cluster(alias, properties) for alias in aliases}
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
            prefix = f"{source}->{target}."
            own = {name.removeprefix(prefix): each for name, each in properties.items() if name.startswith(prefix)}
            flow = Flow(clusters[source], clusters[target], {**shared, **own})
            for name in CONFIG.settings:
                flow.setting(name)
            _ = flow.topics, flow.groups, flow.properties
            flows.append(flow)
    return flows


def _cluster(alias: str, properties: Mapping[str, str]) -> Cluster:
    prefix = f"{alias}."
    own = {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)}
    servers = own.pop("bootstrap.servers", "")
    if not servers:
        raise SettingError(f"{alias}.bootstrap.servers is missing", hint="host:port of Kafka, or a file of a log.")
    clients = ("security.", "sasl.", "ssl.")
    return Cluster(alias, servers, {name: value for name, value in own.items() if name.startswith(clients)})
