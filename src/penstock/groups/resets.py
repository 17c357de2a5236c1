"""Where a group's offsets are to go: Kafka's ways to say it."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.durations import DurationLike, TimestampLike, duration_ms, timestamp_ms
from penstock.errors import ConfigError, UnknownTopicError
from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = ["Bounds", "Target", "choose", "new_offsets", "places_of", "read_offsets_file"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """A partition's first offset, its end, and where the group is."""

    first: int
    end: int
    committed: int | None


@dataclass(frozen=True, slots=True)
class Target:
    """One way to say where offsets are to go, as the options of ``kafka-consumer-groups --reset-offsets``.

    Attributes:
        text: As in a message.
        of: Gives the wanted offset of a partition; the bounds of the partition are applied afterwards.
        named: Partitions that it names itself, with their offsets (from a file).
    """

    text: str
    of: Callable[[TopicLog, TopicPartition, Bounds], int]
    named: Mapping[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def earliest(cls) -> Target:
        """The first records that there are."""
        return cls("the beginning", lambda _log, _place, bounds: bounds.first)

    @classmethod
    def latest(cls) -> Target:
        """Behind the last record."""
        return cls("the end", lambda _log, _place, bounds: bounds.end)

    @classmethod
    def current(cls) -> Target:
        """Where it is; the end where it is nowhere."""
        return cls(
            "where it is", lambda _log, _place, bounds: bounds.end if bounds.committed is None else bounds.committed
        )

    @classmethod
    def offset(cls, offset: int) -> Target:
        """This offset."""
        return cls(f"offset {offset}", lambda _log, _place, _bounds: offset)

    @classmethod
    def shifted(cls, by: int) -> Target:
        """So many further, back if negative."""
        return cls(
            f"{by:+d}",
            lambda _log, _place, bounds: (bounds.first if bounds.committed is None else bounds.committed) + by,
        )

    @classmethod
    def at(cls, when: TimestampLike) -> Target:
        """The first records that are not older; the end where all are."""
        timestamp = timestamp_ms(when)

        def find(log: TopicLog, place: TopicPartition, bounds: Bounds) -> int:
            found = log.offset_for_time(place.topic, place.partition, timestamp)
            return bounds.end if found is None else found.offset

        return cls(f"the first records from {when} on", find)

    @classmethod
    def ago(cls, duration: DurationLike, now_ms: int | None = None) -> Target:
        """The first records that are not older than this."""
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        target = cls.at(now - duration_ms(duration))
        return cls(f"the first records of the last {duration}", target.of)

    @classmethod
    def of_file(cls, path: Path) -> Target:
        """Offsets of a file with lines ``topic,partition,offset``, as Kafka's tool exports and reads them."""
        named = read_offsets_file(path)
        return cls(f"the offsets in {path}", lambda _log, place, _bounds: named[place], named)


def choose(targets: Sequence[Target], default: Target | None = None) -> Target:
    """The one target that was given.

    Raises:
        ConfigError: None was given, or several.
    """
    if len(targets) == 1:
        return targets[0]
    if not targets and default is not None:
        return default
    raise ConfigError(
        "say once where the offsets are to go" + (f", not {len(targets)} times" if targets else ""),
        hint="--to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime, --by-duration or "
        "--from-file",
    )


def read_offsets_file(path: Path) -> dict[TopicPartition, int]:
    """Lines ``topic,partition,offset``.

    Raises:
        ConfigError: The file cannot be read, or has another form.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return {TopicPartition(t.strip(), int(p)): int(offset) for t, p, offset in csv.reader(file)}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="Check the path.") from error
    except ValueError as error:
        raise ConfigError(
            f"{path}: {error}", hint="Its lines are topic,partition,offset, such as orders,0,42"
        ) from error


def places_of(log: TopicLog, selections: Iterable[str]) -> list[TopicPartition]:
    """Partitions of ``orders`` (all) or ``orders:0,2``.

    Raises:
        ConfigError: The selection has another form, or names a partition that does not exist.
        UnknownTopicError: There is no such topic.
    """
    places = []
    for selection in selections:
        topic, colon, numbers = selection.partition(":")
        count = log.partitions(topic)
        if not colon:
            places += [TopicPartition(topic, number) for number in range(count)]
            continue
        if not re.fullmatch(r"\d+(,\d+)*", numbers):
            raise ConfigError(f"--topic {selection!r}", hint="Write orders, or orders:0,2 for some partitions.")
        for number in map(int, numbers.split(",")):
            if number >= count:
                raise ConfigError(
                    f"topic {topic!r} has no partition {number}", hint=f"It has {count}, numbered from 0."
                )
            places.append(TopicPartition(topic, number))
    return sorted(set(places))


def new_offsets(
    log: TopicLog, target: Target, places: Iterable[TopicPartition], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[Bounds, int]]:
    """Where each partition goes: what the target wants, within what there is, as Kafka's tool does."""
    wanted = sorted(set(places))
    topics = sorted({place.topic for place in wanted})
    if not topics:
        return {}
    first, end = log.beginning_offsets(topics), log.end_offsets(topics)
    found = {}
    for place in wanted:
        if place not in end:
            raise UnknownTopicError(f"there is no partition {place.topic}-{place.partition}", topic=place.topic)
        bounds = Bounds(first[place], end[place], committed.get(place))
        found[place] = (bounds, min(max(target.of(log, place, bounds), bounds.first), bounds.end))
    return found
