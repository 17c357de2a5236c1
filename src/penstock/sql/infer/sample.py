"""A sample of a topic: its newest records, the same number from each partition."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import SqlError
from penstock.log.base import TopicLog

__all__ = ["Sample", "read_sample"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Keys and values of records.

    Attributes:
        partitions: The number of the topic's partitions.
    """

    topic: str
    partitions: int
    keys: tuple[bytes | None, ...]
    values: tuple[bytes | None, ...]


def read_sample(log: TopicLog, topic: str, records: int = 1000) -> Sample:
    """Read the newest records of a topic.

    Args:
        log: The log.
        topic: The topic.
        records: How many records at most, over all partitions.

    Raises:
        UnknownTopicError: There is no such topic.
        SqlError: It has no records.
    """
    partitions = log.topic(topic).partitions
    each = max(1, records // partitions)
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    for partition in range(partitions):
        end = log.end_offset(topic, partition)
        begin = max(log.beginning_offset(topic, partition), end - each)
        for batch in log.iterate(topic, partition, begin, end):
            keys += batch.column("key").to_pylist()
            values += batch.column("value").to_pylist()
    if not values:
        raise SqlError(f"Topic '{topic}' has no records to look at.", hint="Write some, or name another topic.")
    return Sample(topic, partitions, tuple(keys), tuple(values))
