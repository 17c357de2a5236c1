"""Offsets of the group that somebody else has set: `penstock groups reset`, or any tool of Kafka.

Where an application continues stands in Spark's checkpoint. What it commits for its group carries a mark, so offsets
without the mark were set by others while it was stopped. They are noted in the checkpoint as a numbered move, then
marked; the first batch that is planned afterwards starts there, and says so in Spark's own offset log. So a move is
taken up exactly once, whatever crashes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.log.base import TopicPartition
from penstock.spark.offsets import SourceOffset
from penstock.state.documents import read_document, write_document

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = ["MARK", "Move", "moved_since", "take_up_moves"]

MARK = "penstock"  # how the metadata begins of what an application commits
_NAME = "moves.json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Move:
    """Where some partitions are read on."""

    number: int
    offsets: dict[TopicPartition, int]


def take_up_moves(checkpoint: str, log: TopicLog, application: str, topics: Iterable[str]) -> tuple[Move, ...]:
    """All moves of this checkpoint, with those that are found in the group now; call it with the lease held."""
    stored = json.loads(read_document(checkpoint, _NAME) or "[]")
    moves = [Move(number, dict(SourceOffset.of(each).ends)) for number, each in enumerate(stored, start=1)]
    wanted = set(topics)
    found = {
        place: each.offset
        for place, each in log.group_offsets(application).items()
        if place.topic in wanted and not each.metadata.startswith(MARK)
    }
    if not found:
        return tuple(moves)
    moves.append(Move(len(moves) + 1, found))
    write_document(checkpoint, _NAME, json.dumps([SourceOffset(move.offsets).to_json() for move in moves]))
    log.commit_offsets(application, found, f"{MARK} move {len(moves)}")
    places = ", ".join(f"{place.topic}-{place.partition} at {offset}" for place, offset in sorted(found.items()))
    _log.warning("%s continues where its group's offsets were set: %s; its state is as it was", application, places)
    return tuple(moves)


def moved_since(moves: Sequence[Move], taken: int) -> tuple[int, dict[TopicPartition, int]]:
    """The number of the last move, and where to read on because of those after number ``taken``.

    >>> place = TopicPartition("orders", 0)
    >>> moved_since([Move(1, {place: 5}), Move(2, {place: 3})], 1) == (2, {place: 3})
    True
    """
    starts: dict[TopicPartition, int] = {}
    for move in moves:
        if move.number > taken:
            starts |= move.offsets
    return max([taken, *(move.number for move in moves)]), starts
