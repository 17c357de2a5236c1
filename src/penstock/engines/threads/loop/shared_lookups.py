"""A log that is asked once for what many tasks need to know of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.log.base import TopicInfo, TopicLog, TopicPartition

__all__ = ["AskedOnce"]


class AskedOnce:
    """A log whose topics are asked for their ids, settings, first offsets and ends once; in all else it is that log.

    For restores of many tasks, one after the other, while nobody writes to their changelogs: an answer names all
    partitions of a topic, so asking for each task takes time with the square of the partitions.

    Args:
        log: The log.
    """

    def __init__(self, log: TopicLog) -> None:
        self._log = log
        self._ids: dict[str, str] = {}
        self._asked: set[str] = set()
        self._topics: dict[str, TopicInfo] = {}
        self._firsts: dict[str, Mapping[TopicPartition, int]] = {}
        self._ends: dict[tuple[str, ...], Mapping[TopicPartition, int]] = {}
        self._committed: dict[str, Mapping[TopicPartition, int]] = {}

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of topics; see `TopicLog.topic_ids`."""
        new = [topic for topic in topics if topic not in self._asked]
        if new:
            self._ids |= self._log.topic_ids(new)
            self._asked.update(new)
        return {topic: self._ids[topic] for topic in topics if topic in self._ids}

    def topic(self, name: str) -> TopicInfo:
        """Return a topic with its settings."""
        if name not in self._topics:
            self._topics[name] = self._log.topic(name)
        return self._topics[name]

    def end_offsets(self, topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        """Return the ends of topics; see `TopicLog.end_offsets`."""
        key = tuple(topics)
        if key not in self._ends:
            self._ends[key] = self._log.end_offsets(topics)
        return self._ends[key]

    def beginning_offset(self, topic: str, partition: int) -> int:
        """Return the first offset of a partition."""
        if topic not in self._firsts:
            self._firsts[topic] = self._log.beginning_offsets([topic])
        offset = self._firsts[topic].get(TopicPartition(topic, partition))
        return self._log.beginning_offset(topic, partition) if offset is None else offset

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, int]:
        """Return the committed offsets of a group."""
        if group not in self._committed:
            self._committed[group] = self._log.committed_offsets(group)
        return self._committed[group]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)
