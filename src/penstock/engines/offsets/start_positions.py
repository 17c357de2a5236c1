"""Where reading starts: by settings, by the group's offsets, also those that others have set, after lost records.

An application continues at the offsets in Spark's checkpoint. The offsets that it commits for its group carry a mark,
so offsets without the mark were set by others while it was stopped. If its changelogs were written to as well, another
program has gone on with the application, which `takeovers` handles. Otherwise the offsets are noted in the checkpoint
as a numbered reset and then marked; the first batch that is planned afterwards starts there, and notes the number in
Spark's own offset log. So a reset is applied exactly once, whatever crashes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.config.setting_types import back_ms, offset_reset
from penstock.engines.offsets.offsets import SourceOffset
from penstock.errors import OffsetOutOfRangeError
from penstock.log.base import TopicPartition
from penstock.log.groups.offset_regressions import MARK, is_of_batches, moved_text, set_by_others
from penstock.state.checkpoint import read_document, write_document
from penstock.topology.plan.partitions import source_topics

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.offsets.offsets import Offsets
    from penstock.log.base import Lease, OffsetAndTime, TopicLog
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = [
    "GroupReset",
    "ReadSettings",
    "added_positions",
    "first_positions",
    "lost_offsets",
    "lost_records_error",
    "noted_resets",
    "read_settings_of",
    "resets_since",
    "take_up_group_resets",
]


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings of an application's source.

    Attributes:
        offset_reset: The policy by topic, where there is no committed offset: "earliest", "latest", "none" or
            "by_duration:MS".
        patterned: Topics that are read because they match a pattern; they may be deleted.
        start_ms: A time to start from in place of the policy; None: the policy.
        loss_fails: Whether records that retention removed before they were read end the application.
        max_records_per_batch: The most records of all topics together.
        max_bytes_per_batch: The most bytes of all topics together, as estimated; None: any.
        max_records_per_partition: The most records of one topic partition in a batch.
        min_records_per_batch: Batches wait for so many records, but not longer than ``max_wait_ms``.
        max_wait_ms: The longest such wait.
        max_batch_ms: The time that a batch should take at most; smaller ones follow while they take longer. 0: any.
        pause_ms: The pause between the end of a batch and the start of the next.
    """

    offset_reset: Mapping[str, str] = field(default_factory=dict)
    patterned: frozenset[str] = frozenset()
    start_ms: int | None = None
    loss_fails: bool = True
    max_records_per_batch: int = 500_000
    max_bytes_per_batch: int | None = None
    max_records_per_partition: int = 500_000
    min_records_per_batch: int = 0
    max_wait_ms: int = 0
    max_batch_ms: int = 0
    pause_ms: int = 0


def read_settings_of(topology: Topology, plan: PhysicalPlan, config: StreamsConfig) -> ReadSettings:
    """Make the settings of reading from those of the application.

    Args:
        topology: The topology, whose sources may have their own policies.
        plan: The plan with all topics, also those that match a pattern.
        config: The application's settings.
    """
    most = int(config["penstock.max.records.per.batch"])
    topics = source_topics(topology, plan.partitions)
    named = {topic for node in topology.sources for topic in node.topics}
    return ReadSettings(
        offset_reset=_resets(topology, plan, config, topics),
        patterned=frozenset(set(plan.external_topics) - named),
        start_ms=config["penstock.start.timestamp"],
        loss_fails=config["penstock.data.loss"] == "fail",
        max_records_per_batch=most,
        max_bytes_per_batch=int(config["penstock.max.bytes.per.batch"]) or None,
        max_records_per_partition=int(config["penstock.max.records.per.partition"] or most),
        min_records_per_batch=int(config["penstock.min.records.per.batch"]),
        max_wait_ms=int(config["penstock.max.wait.ms"]),
        max_batch_ms=int(config["penstock.max.batch.ms"]),
        pause_ms=int(config["penstock.batch.pause.ms"]),
    )


def _resets(
    topology: Topology, plan: PhysicalPlan, config: StreamsConfig, topics: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    resets = dict.fromkeys(plan.external_topics, str(config["auto.offset.reset"]))
    for node in topology.sources:
        if node.offset_reset is not None:
            resets |= dict.fromkeys(topics[node.name], offset_reset(node.offset_reset))
    return resets


class _Times(Protocol):
    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime | None]: ...


def first_positions(
    reading: ReadSettings,
    new: Iterable[TopicPartition],
    bounds: Mapping[TopicPartition, tuple[int, int]],
    committed: Offsets,
    log: _Times,
) -> dict[TopicPartition, int]:
    """Find the start positions of topics that have not been read yet.

    A committed offset of the group comes first, if its records are still there. Otherwise the start timestamp or the
    topic's policy decides.

    Args:
        reading: The settings of reading.
        new: The partitions.
        bounds: The first offset and the end of each partition.
        committed: The committed offsets of the group.
        log: The log, which finds offsets by time.

    Raises:
        OffsetOutOfRangeError: The policy is "none" and there is no committed offset.
    """
    now_ms = unix_ms()
    starts: dict[TopicPartition, int] = {}
    times: dict[TopicPartition, int] = {}
    for tp in new:
        first, end = bounds[tp]
        at = committed.get(tp)
        if at is not None and first <= at <= end:
            starts[tp] = at
        elif (since := _since(reading, tp, now_ms)) is not None:
            times[tp] = since
        else:
            starts[tp] = _by_policy(reading, tp, first, end, at)
    by_time = log.offsets_for_times(times) if times else {}
    return starts | {tp: bounds[tp][1] if each is None else each.offset for tp, each in by_time.items()}


def added_positions(
    added: Iterable[TopicPartition], bounds: Mapping[TopicPartition, tuple[int, int]], committed: Offsets
) -> dict[TopicPartition, int]:
    """Find the start positions of partitions that were added to topics which are read already.

    All records in them are new, so they are read from the beginning, or from a committed offset of the group if its
    records are still there.

    Args:
        added: The partitions.
        bounds: The first offset and the end of each partition.
        committed: The committed offsets of the group.

    Example:
        >>> from penstock.log.base import TopicPartition
        >>> one, two = TopicPartition("in", 1), TopicPartition("in", 2)
        >>> added_positions([one, two], {one: (0, 5), two: (0, 5)}, {two: 3}) == {one: 0, two: 3}
        True
    """
    positions = {}
    for tp in added:
        first, end = bounds[tp]
        at = committed.get(tp, first)
        positions[tp] = at if first <= at <= end else first
    return positions


def _since(reading: ReadSettings, tp: TopicPartition, now_ms: int) -> int | None:
    """Return the time from which the records of a topic are read; None if the start does not depend on a time."""
    if reading.start_ms is not None:
        return reading.start_ms
    back = back_ms(reading.offset_reset.get(tp.topic, "earliest"))
    return None if back is None else now_ms - back


def _by_policy(reading: ReadSettings, tp: TopicPartition, first: int, end: int, committed: int | None) -> int:
    policy = reading.offset_reset.get(tp.topic, "earliest")
    if policy == "none":
        why = "has no committed offset" if committed is None else f"has offset {committed}, which no longer exists"
        raise OffsetOutOfRangeError(
            f"the group {why} for {tp.topic}-{tp.partition}, and auto.offset.reset is none",
            hint="Set it to earliest or latest, or set the group's offset: penstock groups reset.",
            topic=tp.topic,
            partition=tp.partition,
        )
    return end if policy == "latest" else first


def lost_offsets(at: Offsets, bounds: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
    """Count the lost offsets of positions whose records are gone: removed by retention, or the topic is a new one.

    Example:
        >>> from penstock.log.base import TopicPartition
        >>> slow, new = TopicPartition("slow", 0), TopicPartition("new", 0)
        >>> lost_offsets({slow: 10, new: 50}, {slow: (90, 100), new: (0, 5)}) == {slow: 80, new: 0}
        True
    """
    return {
        tp: max(0, bounds[tp][0] - offset)
        for tp, offset in at.items()
        if tp in bounds and not bounds[tp][0] <= offset <= bounds[tp][1]
    }


def lost_records_error(tp: TopicPartition, at: int, first: int, end: int) -> OffsetOutOfRangeError:
    """Make the error for records that were removed before they were read."""
    name = f"{tp.topic}-{tp.partition}"
    facts = {"topic": tp.topic, "partition": tp.partition, "offset": at}
    if at > end:
        return OffsetOutOfRangeError(
            f"{name} ends at offset {end}, but was read up to {at}: it was truncated, by an older copy of its log or "
            "by an unclean election of its leader",
            hint="The truncated records have been processed; records written there since may be counted twice or "
            f"not at all. To continue at offset {end}: penstock.data.loss=continue.",
            **facts,
        )
    return OffsetOutOfRangeError(
        f"retention removed offsets {at} to {first - 1} of {name} before they were read",
        hint="This application cannot read them any more. To continue with the oldest that are there, set "
        "penstock.data.loss=continue; to keep them longer, raise the topic's retention.ms or retention.bytes.",
        **facts,
    )


_NAME = "moves.json"
_log = own_logger(__name__)


@dataclass(frozen=True, slots=True)
class GroupReset:
    """New positions of some partitions, numbered from 1."""

    number: int
    offsets: dict[TopicPartition, int]


def take_up_group_resets(checkpoint: str, log: TopicLog, lease: Lease, topics: Iterable[str]) -> tuple[GroupReset, ...]:
    """Note offsets that others have set for the group of the lease, and return all resets of the checkpoint."""
    application = lease.application
    resets = noted_resets(checkpoint)
    names = set(topics)
    group = log.group_offsets(application)
    offsets = set_by_others([tp for tp in group if tp.topic in names], group, is_of_batches)
    if not offsets:
        return tuple(resets)
    resets.append(GroupReset(len(resets) + 1, offsets))
    write_document(checkpoint, _NAME, json.dumps([SourceOffset(each.offsets).to_json() for each in resets]))
    log.commit_offsets(application, offsets, f"{MARK} move {len(resets)}", lease)
    _log.warning("%s", moved_text(application, offsets))
    return tuple(resets)


def noted_resets(checkpoint: str) -> list[GroupReset]:
    """Return the resets that a checkpoint has noted."""
    stored = json.loads(read_document(checkpoint, _NAME) or "[]")
    return [GroupReset(number, dict(SourceOffset.of(each).ends)) for number, each in enumerate(stored, start=1)]


def resets_since(resets: Sequence[GroupReset], applied: int) -> tuple[int, dict[TopicPartition, int]]:
    """Return the number of the last reset, and the positions of those after number ``applied``.

    >>> place = TopicPartition("orders", 0)
    >>> resets_since([GroupReset(1, {place: 5}), GroupReset(2, {place: 3})], 1) == (2, {place: 3})
    True
    """
    starts: dict[TopicPartition, int] = {}
    for reset in resets:
        if reset.number > applied:
            starts |= reset.offsets
    return max([applied, *(reset.number for reset in resets)]), starts
