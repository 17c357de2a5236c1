"""Offsets of the group that others have set: `penstock groups reset`, or any tool of Kafka.

An application continues at the offsets in Spark's checkpoint. The offsets that it commits for its group carry a mark,
so offsets without the mark were set by others while it was stopped. If its changelogs were written to as well, another
program has gone on with the application, which `takeovers` handles. Otherwise the offsets are noted in the checkpoint
as a numbered reset and then marked; the first batch that is planned afterwards starts there, and notes the number in
Spark's own offset log. So a reset is applied exactly once, whatever crashes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.engines.offsets.offsets import SourceOffset
from penstock.log.base import TopicPartition
from penstock.log.groups.gone_back import MARK, is_of_batches, moved_text, set_by_others
from penstock.state.documents import read_document, write_document

if TYPE_CHECKING:
    from penstock.log.base import Lease, TopicLog

__all__ = ["GroupReset", "noted_resets", "resets_since", "take_up_group_resets"]

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
