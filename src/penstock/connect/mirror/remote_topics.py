"""Topics in the target cluster: created, widened and set as those of the source."""

from __future__ import annotations

from penstock.connect.mirror.flows import Flow
from penstock.log.base import TopicInfo, TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic

__all__ = ["RemoteTopics"]


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
