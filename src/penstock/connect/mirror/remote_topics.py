"""Topics in the target cluster: created, widened, set and granted as those of the source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.base.log_lines import own_logger
from penstock.connect.mirror.flows import Flow
from penstock.errors import LogError, LogUnavailableError
from penstock.log.acls import SecuredLog, TopicAcl
from penstock.log.base import TopicInfo, TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic

__all__ = ["AclSync", "RemoteTopics"]


class RemoteTopics:
    """The topics of one flow in its target.

    Args:
        flow: The flow.
        source: The source's log.
        target: The target's log.
    """

    def __init__(self, flow: Flow, source: TopicLog, target: TopicLog) -> None:
        self._flow, self._source, self._target = flow, source, target
        self._policy, self._taken, self._properties = flow.policy, flow.topics, flow.properties

    def refresh(self) -> list[TopicPartition]:
        """Create what is missing in the target, copy settings, and return the partitions of the source to copy."""
        target_topics = {info.name: info for info in self._target.topics()}
        places = []
        for info in self._source.topics():
            if self._taken.takes(info.name):
                self._prepare(info, target_topics)
                places += [TopicPartition(info.name, number) for number in range(info.partitions)]
        return places

    def remote(self, tp: TopicPartition) -> TopicPartition:
        """Return the partition in the target that a partition of the source is copied to."""
        return TopicPartition(self._policy.remote_topic(self._flow.source.alias, tp.topic), tp.partition)

    def _prepare(self, info: TopicInfo, target_topics: dict[str, TopicInfo]) -> None:
        remote = self._policy.remote_topic(self._flow.source.alias, info.name)
        there = target_topics.get(remote)
        synced = self._flow.setting("sync.topic.configs.enabled")
        if there is not None and there.partitions >= info.partitions and not synced:
            return
        settings = self._source.topic(info.name).config  # a listing of topics has none over Kafka
        config = {name: value for name, value in settings.items() if self._properties.takes(name)}
        if there is None:
            ensure_topic(self._target, remote, info.partitions, config | self._flow.copies("replication.factor"))
            return
        if there.partitions < info.partitions:
            self._target.create_partitions(remote, info.partitions)
        if synced:
            present = self._target.topic(remote).config
            changed: dict[str, str | None] = {
                name: value for name, value in config.items() if present.get(name) != value
            }
            gone = (name for name in present if self._properties.takes(name) and name not in config)
            changed |= dict.fromkeys(gone)  # those of the source are at their defaults again
            if changed:
                self._target.alter_config(remote, changed)


_log = own_logger(__name__)


def remote_acls(flow: Flow, rules: Iterable[TopicAcl]) -> list[TopicAcl]:
    """Return the rights to topics of the target that rights to topics of the source stand for.

    Nobody but the mirror may write there: the right to write is not copied, and the right to do everything becomes
    that to read.

    >>> from penstock.connect.mirror.flows import MirrorCluster
    >>> flow = Flow(MirrorCluster("west", "west:9092"), MirrorCluster("east", "east:9092"), {"topics": "orders"})
    >>> rules = [TopicAcl("orders", "User:ann", "*", each, "ALLOW") for each in ("WRITE", "ALL")]
    >>> [(each.topic, each.operation) for each in remote_acls(flow, rules)]
    [('west.orders', 'READ')]
    """
    topics, policy, acls = flow.topics, flow.policy, []
    for rule in rules:
        allows = rule.permission == "ALLOW"
        if (allows and rule.operation == "WRITE") or rule.topic == "*" or not topics.takes(rule.topic):
            continue
        operation = "READ" if allows and rule.operation == "ALL" else rule.operation
        acls.append(replace(rule, topic=policy.remote_topic(flow.source.alias, rule.topic), operation=operation))
    return acls


class AclSync:
    """The copying of one flow's access control lists. Rights that are taken away in the source stay in the target.

    Args:
        flow: The flow.
        source: The source's log.
        target: The target's log.
    """

    def __init__(self, flow: Flow, source: TopicLog, target: TopicLog) -> None:
        self._flow, self._source, self._target = flow, source, target
        self._there: set[TopicAcl] = set()
        self._refused = ""

    def sync(self) -> int:
        """Add what is missing in the target, and return how many rights that is.

        A cluster without access control, or one that does not let the mirror see or change it, is noted in the log
        once, and ends nothing.

        Raises:
            LogUnavailableError: A cluster does not answer.
        """
        if not (isinstance(self._source, SecuredLog) and isinstance(self._target, SecuredLog)):
            return 0
        try:
            rules = self._source.topic_acls()
            missing = [rule for rule in remote_acls(self._flow, rules or ()) if rule not in self._there]
            self._target.add_topic_acls(missing)
        except LogUnavailableError:
            raise
        except LogError as error:
            if error.message != self._refused:
                flow = f"{self._flow.source.alias}->{self._flow.target.alias}"
                _log.warning("%s does not copy access control lists (sync.topic.acls.enabled): %s", flow, error)
            self._refused = error.message
            return 0
        self._there.update(missing)
        return len(missing)
