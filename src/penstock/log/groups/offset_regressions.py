"""Committed offsets that have gone back behind what an application knows that it has committed, or were set by others.

A coordinator may lose its newest records: older offsets of the application are there again, or none. Records that are
processed once more would then be counted twice, as state and outputs hold them already. Each commit of an application
carries a note of its epoch, so what is known is compared with commits of the same epoch or an earlier one only: a later
epoch has begun there knowingly. Offsets without such a note are of another client, such as Kafka's tool that resets
them: they are meant so, as for an application of Kafka Streams.

Micro-batches mark theirs otherwise. Stream threads take over an application of micro-batches with its marked offsets.
An application in micro-batches has marked all offsets when it was converted, so those of threads are of others to it:
threads have gone on with the application since.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from penstock.errors import CheckpointMismatchError
from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.log.streams_groups.offset_metadata import OffsetMetadata

__all__ = [
    "MARK", "RESET_NOTE", "KnownOffset", "epoch_note", "gone_back", "gone_back_error", "gone_back_text",
    "is_of_batches", "is_of_threads", "is_own", "moved_text", "set_by_others",
]  # fmt: skip

MARK = "penstock"  # the beginning of the metadata of offsets that micro-batches commit
RESET_NOTE = "set by a reset"
_NOTE = re.compile(r"stream-(?:thread .*|driver) epoch (\d+)")
_MOST_NAMED = 5


class KnownOffset(NamedTuple):
    """An offset that was committed, and the epoch in which it was."""

    offset: int
    epoch: int


def epoch_note(who: str, epoch: int) -> str:
    """Return the metadata of offsets that a thread or the driver commits.

    >>> epoch_note("stream-thread thread-0", 7)
    'stream-thread thread-0 epoch 7'
    """
    return f"{who} epoch {epoch}"


def gone_back(
    known_offsets: Mapping[TopicPartition, KnownOffset],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    firsts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the partitions whose committed offset is behind a known one, with both.

    Args:
        known_offsets: The known offsets.
        committed: The group's offsets; where one is missing the first offset counts.
        firsts: The first offsets of the partitions.
        ends: Their ends: an offset behind the end is of a topic that was cut off or made again, another matter.

    >>> place = TopicPartition("in", 0)
    >>> at = lambda offset, epoch: {place: OffsetAndMetadata(offset, epoch_note("stream-thread thread-0", epoch))}
    >>> gone_back({place: KnownOffset(200, 3)}, at(149, 3), {place: 0}, {place: 300})[place]
    (149, 200)
    >>> gone_back({place: KnownOffset(200, 3)}, at(149, 4), {place: 0}, {place: 300})
    {}
    >>> gone_back({place: KnownOffset(200, 3)}, {place: OffsetAndMetadata(149, "")}, {place: 0}, {place: 300})
    {}
    """
    regressions = {}
    for tp, (offset, epoch) in known_offsets.items():
        first = firsts.get(tp, 0)
        at = committed.get(tp, OffsetAndMetadata(first, epoch_note("stream-driver", epoch)))
        note = _NOTE.fullmatch(at.metadata)
        if at.offset < offset <= ends.get(tp, -1) and note is not None and int(note[1]) <= epoch:
            regressions[tp] = (max(at.offset, first), offset)
    return {tp: both for tp, both in regressions.items() if both[0] < both[1]}


def is_of_batches(metadata: str) -> bool:
    """Return whether micro-batches have committed an offset with this metadata.

    >>> is_of_batches("penstock batch 7"), is_of_batches("stream-thread thread-0 epoch 7"), is_of_batches(RESET_NOTE)
    (True, False, False)
    """
    return metadata.startswith(MARK)


def is_of_threads(metadata: str) -> bool:
    """Return whether a stream thread, or the driver for one, has committed an offset with this metadata.

    Those of members of a streams group count too, whether they run Penstock or Kafka Streams.
    """
    return _NOTE.fullmatch(metadata) is not None or OffsetMetadata.parse(metadata) is not None


def is_own(metadata: str) -> bool:
    """Return whether an application of Penstock has committed an offset with this metadata, in either mode."""
    return is_of_threads(metadata) or is_of_batches(metadata)


def set_by_others(
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    is_own: Callable[[str], bool] = is_own,
) -> dict[TopicPartition, int]:
    """Return the committed offsets of partitions that the application has not committed itself.

    Args:
        partitions: The partitions.
        committed: The group's offsets.
        is_own: Whether an offset with this metadata is the application's: in micro-batches `is_of_batches`.

    >>> tp = TopicPartition("in", 0)
    >>> set_by_others([tp], {tp: OffsetAndMetadata(149, RESET_NOTE)})[tp]
    149
    >>> set_by_others([tp], {tp: OffsetAndMetadata(149, OffsetMetadata(7).encode())})
    {}
    """
    there = {tp: committed[tp] for tp in partitions if tp in committed}
    return {tp: at.offset for tp, at in there.items() if not is_own(at.metadata)}


def moved_text(application: str, offsets: Mapping[TopicPartition, int]) -> str:
    """Say where an application continues, as another client has set the offsets of its group.

    >>> moved_text("app", {TopicPartition("in", 0): 149})
    "app continues where its group's offsets were set: in-0 at 149; its state is as it was"
    """
    places = ", ".join(f"{tp.topic}-{tp.partition} at {offset}" for tp, offset in sorted(offsets.items()))
    return f"{application} continues where its group's offsets were set: {places}; its state is as it was"


def gone_back_text(application: str, who: str, regressions: Mapping[TopicPartition, tuple[int, int]]) -> str:
    """Say which offsets have gone back; ``who`` knows the newer ones."""
    named = [
        f"{tp.topic}-{tp.partition} is at {at}, but {who} is at {offset}"
        for tp, (at, offset) in sorted(regressions.items())[:_MOST_NAMED]
    ]
    more = f"; and {len(regressions) - _MOST_NAMED} more" if len(regressions) > _MOST_NAMED else ""
    return f"the committed offsets of group {application!r} have gone back: {'; '.join(named)}{more}"


def gone_back_error(
    application: str, who: str, regressions: Mapping[TopicPartition, tuple[int, int]]
) -> CheckpointMismatchError:
    """Make the error for committed offsets that have gone back."""
    places: Iterable[TopicPartition] = sorted(regressions)
    return CheckpointMismatchError(
        gone_back_text(application, who, regressions),
        hint="The brokers have lost its newest commits, or its offsets were deleted. The records in between are "
        "processed already, and would count twice. To continue from the newer offsets: penstock.data.loss=continue. To "
        f"process them once more, with the state as it is: penstock groups reset {application}; from nothing: penstock "
        f"app reset {application}.",
        application=application,
        partitions=[f"{tp.topic}-{tp.partition}" for tp in places],
    )
