"""The targets of an offset reset, as in Kafka's tool."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.clock import unix_ms
from penstock.base.durations import DurationLike, TimestampLike, duration_ms, timestamp_ms
from penstock.errors import ConfigError, UnknownTopicError
from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = ["OffsetBounds", "Target", "choose", "chosen_places", "new_offsets", "places_of", "read_offsets_file"]


@dataclass(frozen=True, slots=True)
class OffsetBounds:
    """A partition's first and end offsets, and the group's committed offset."""

    first: int
    end: int
    committed: int | None


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a reset, as the options of ``kafka-consumer-groups --reset-offsets``.

    Attributes:
        text: Its description in messages.
        of: Returns the wanted offsets of partitions; they are clipped to the bounds afterwards.
        named: Partitions with their offsets, if a file names them.
    """

    text: str
    of: Callable[[TopicLog, Mapping[TopicPartition, OffsetBounds]], Mapping[TopicPartition, int]]
    named: Mapping[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def earliest(cls) -> Target:
        """Move to the first records."""
        return cls("the beginning", _each(lambda bounds: bounds.first))

    @classmethod
    def latest(cls) -> Target:
        """Move behind the last records."""
        return cls("the end", _each(lambda bounds: bounds.end))

    @classmethod
    def current(cls) -> Target:
        """Keep the committed offsets; the end where there is none."""
        return cls(
            "the committed offset", _each(lambda bounds: bounds.end if bounds.committed is None else bounds.committed)
        )

    @classmethod
    def offset(cls, offset: int) -> Target:
        """Move to this offset."""
        return cls(f"offset {offset}", _each(lambda _: offset))

    @classmethod
    def shifted(cls, by: int) -> Target:
        """Move by so many offsets, back if negative."""
        return cls(
            f"{by:+d}",
            _each(lambda bounds: (bounds.first if bounds.committed is None else bounds.committed) + by),
        )

    @classmethod
    def at(cls, when: TimestampLike) -> Target:
        """Move to the first records that are not older than a time; the end where all are."""
        timestamp = timestamp_ms(when)

        def find(log: TopicLog, bounds: Mapping[TopicPartition, OffsetBounds]) -> Mapping[TopicPartition, int]:
            firsts = log.offsets_for_times(dict.fromkeys(bounds, timestamp))
            return {tp: bounds[tp].end if each is None else each.offset for tp, each in firsts.items()}

        return cls(f"the first records from {when} on", find)

    @classmethod
    def ago(cls, duration: DurationLike, now_ms: int | None = None) -> Target:
        """Move to the first records that are not older than a duration."""
        now = unix_ms() if now_ms is None else now_ms
        target = cls.at(now - duration_ms(duration))
        return cls(f"the first records of the last {duration}", target.of)

    @classmethod
    def of_file(cls, path: Path) -> Target:
        """Move to the offsets in a file with lines ``topic,partition,offset``, the format of Kafka's tool."""
        named = read_offsets_file(path)
        return cls(f"the offsets in {path}", lambda _log, bounds: {tp: named[tp] for tp in bounds}, named)


def _each(
    of: Callable[[OffsetBounds], int],
) -> Callable[[object, Mapping[TopicPartition, OffsetBounds]], dict[TopicPartition, int]]:
    """Make the ``of`` of a target that needs no log."""
    return lambda _, bounds: {tp: of(each) for tp, each in bounds.items()}


def choose(targets: Sequence[Target], default: Target | None = None) -> Target:
    """Return the only given target.

    Raises:
        ConfigError: No target is given, or several.
    """
    if len(targets) == 1:
        return targets[0]
    if not targets and default is not None:
        return default
    raise ConfigError(
        "give one target for the offsets" + (f", not {len(targets)}" if targets else ""),
        hint="--to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime, --by-duration or "
        "--from-file",
    )


def read_offsets_file(path: Path) -> dict[TopicPartition, int]:
    """Read a file with lines ``topic,partition,offset``.

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
    """List the partitions of ``orders`` (all) or ``orders:0,2``.

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


def chosen_places(
    log: TopicLog, target: Target, selections: Sequence[str], committed: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """List the partitions that a reset moves: those of its file, of the selections, or all existing ``committed`` ones.

    Errors are those of `places_of`.
    """
    if target.named:
        return list(target.named)
    if selections:
        return places_of(log, selections)
    existing = {topic.name for topic in log.topics()}
    return [tp for tp in committed if tp.topic in existing]


def new_offsets(
    log: TopicLog, target: Target, places: Iterable[TopicPartition], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[OffsetBounds, int]]:
    """Return the new offset of each partition: the target's, clipped to the partition's bounds as in Kafka's tool."""
    partitions = sorted(set(places))
    topics = sorted({tp.topic for tp in partitions})
    if not topics:
        return {}
    first, end = log.beginning_offsets(topics), log.end_offsets(topics)
    for tp in partitions:
        if tp not in end:
            raise UnknownTopicError(f"there is no partition {tp.topic}-{tp.partition}", topic=tp.topic)
    bounds = {tp: OffsetBounds(first[tp], end[tp], committed.get(tp)) for tp in partitions}
    offsets = target.of(log, bounds)
    return {tp: (each, min(max(offsets[tp], each.first), each.end)) for tp, each in bounds.items()}
