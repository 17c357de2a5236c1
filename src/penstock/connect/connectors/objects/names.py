"""The names of objects: they hold the offsets of their records, so that what is written can be seen in the store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from penstock.log.base import TopicPartition

__all__ = ["ObjectName", "fixed_part", "folder_of"]

NAME = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)\+(?P<partition>\d+)\+(?P<first>\d{20})-(?P<last>\d{20})\.[a-z.]+")
TIME = re.compile(r"%[YmdHMSj]")


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The name of an object, without folders: its partition, and the offsets of its first and last record.

    >>> print(ObjectName(TopicPartition("hits", 0), 5, 9).text(".parquet"))
    hits+0+00000000000000000005-00000000000000000009.parquet
    """

    place: TopicPartition
    first: int
    last: int

    def text(self, suffix: str) -> str:
        """The name as text."""
        return f"{self.place.topic}+{self.place.partition}+{self.first:020}-{self.last:020}{suffix}"

    @classmethod
    def parse(cls, path: str) -> Self | None:
        """The name that a path ends with; None if the object is not one of a sink.

        >>> ObjectName.parse("a/hits+0+00000000000000000005-00000000000000000009.json.gz").last
        9
        """
        found = NAME.fullmatch(path.rpartition("/")[2])
        if found is None:
            return None
        place = TopicPartition(found["topic"], int(found["partition"]))
        return cls(place, int(found["first"]), int(found["last"]))


def folder_of(pattern: str, place: TopicPartition, timestamp_ms: int | None) -> str:
    """The folder of a record: ``${topic}`` and ``${partition}`` of its place, and its time in UTC by ``%Y`` and so on.

    >>> folder_of("${topic}/day=%Y-%m-%d", TopicPartition("hits", 0), 0)
    'hits/day=1970-01-01'
    """
    text = pattern.replace("${topic}", place.topic).replace("${partition}", str(place.partition)).strip("/")
    if TIME.search(text) is None:
        return text
    when = datetime.fromtimestamp((timestamp_ms or 0) / 1000, UTC)
    return TIME.sub(lambda found: when.strftime(found[0]), text)


def fixed_part(pattern: str, place: TopicPartition) -> tuple[str, bool]:
    """The folder below which all objects of a partition are, and whether they are all in that one folder."""
    whole = pattern.replace("${topic}", place.topic).replace("${partition}", str(place.partition)).strip("/")
    steps = whole.split("/")
    fixed = next((at for at, step in enumerate(steps) if TIME.search(step)), len(steps))
    return "/".join(steps[:fixed]), fixed == len(steps)
