"""The lag of a consumer group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.log.base import TopicLog, TopicPartition
from penstock.log.time_range import timestamp_at

__all__ = ["GroupLag", "lag", "seconds_behind"]

_MOST_PARTITIONS = 64  # that are read for their oldest waiting record


@dataclass(frozen=True, slots=True)
class GroupLag:
    """One partition's lag in offsets; gaps in the offsets count too."""

    topic: str
    partition: int
    committed: int | None
    end_offset: int
    lag: int


def lag(log: TopicLog, group: str, topics: Iterable[str] = ()) -> list[GroupLag]:
    """Return a group's lag by partition (Kafka's ``kafka-consumer-groups --describe``).

    Args:
        log: Any topic log.
        group: The group; an application's is its ``application.id``.
        topics: Further topics, without committed offsets: their lag counts from the beginning.

    Example:
        >>> from penstock.log.open import open_log
        >>> log = open_log("memory://doc-lag")
        >>> log.create_topic("orders")
        >>> lag(log, "app", ["orders"])[0].lag
        0
    """
    committed = log.committed_offsets(group)
    existing = {topic.name for topic in log.topics()}
    topic_names = {tp.topic for tp in committed if tp.topic in existing}
    topic_names.update(topics)
    lags = []
    for name in sorted(topic_names):
        firsts = log.beginning_offsets([name])
        for tp, end in sorted(log.end_offsets([name]).items()):
            done = committed.get(tp)
            behind = max(end - max(firsts[tp], done or 0), 0)
            lags.append(GroupLag(name, tp.partition, done, end, behind))
    return lags


def seconds_behind(log: TopicLog, waiting: Mapping[TopicPartition, int], now_ms: int) -> dict[TopicPartition, float]:
    """Return the age of the first record that waits in each partition, in seconds.

    Timestamps are usually those of producers, so the age is that of the event. A partition whose records are all
    gone is left out, and so are all but the first 64 partitions.

    Args:
        log: Any topic log.
        waiting: Partitions with lag, and the offset of the next record of each.
        now_ms: The present time.

    Example:
        >>> from penstock.log.open import open_log
        >>> log = open_log("memory://doc-behind")
        >>> log.create_topic("orders")
        >>> seconds_behind(log, {TopicPartition("orders", 0): 0}, 5_000)
        {}
    """
    seconds = {}
    for tp, offset in sorted(waiting.items())[:_MOST_PARTITIONS]:
        timestamp = timestamp_at(log, tp.topic, tp.partition, offset)
        if timestamp is not None:
            seconds[tp] = max(0.0, (now_ms - timestamp) / 1000)
    return seconds
