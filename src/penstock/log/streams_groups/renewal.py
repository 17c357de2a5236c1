"""Another topology for a group without members.

A broker keeps the topology of a streams group until the group is deleted, with its offsets. So they are stored in the
log first; then the group is deleted, and they are committed again. What a start that is killed in between leaves
undone, the next start does.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.errors import LogError
from penstock.log.base import OffsetAndMetadata, TopicLog, TopicPartition
from penstock.log.fenced_record import (
    OFFSETS_KEY,
    OFFSETS_WRITER,
    FencedRecord,
    RecordName,
    StoredRecord,
    change_record,
)
from penstock.log.streams_groups.member import PASSING, GroupFailure, StreamsMember
from penstock.log.streams_groups.messages import LEAVE_EPOCH, Heartbeat, HeartbeatError
from penstock.log.streams_groups.refusals import is_other_topology

if TYPE_CHECKING:
    from penstock.log.streams_groups.coordinator import StreamsCoordinator
    from penstock.log.streams_groups.member import MemberFacts

__all__ = ["fit_group"]

_log = own_logger(__name__)
_PATIENCE_S, _PAUSE_S = 30.0, 0.2


def fit_group(log: TopicLog, coordinator: StreamsCoordinator, facts: MemberFacts, topic: str) -> bool:
    """Let the application's group take its topology, before its threads join; the group's offsets stay.

    A group with members is left as it is: they have to have the same topology. Of a group without members it is found
    out by a member that joins and leaves at once.

    Args:
        log: The log.
        coordinator: The coordinator of its groups.
        facts: The facts of a member.
        topic: The topic of the tasks' numbers, in which offsets are stored meanwhile.

    Returns:
        Whether the group had another topology.

    Raises:
        LogError: The group cannot be deleted, or no broker answers.
    """
    group = facts.group
    record = log.fenced_record(RecordName(group, OFFSETS_WRITER, topic, OFFSETS_KEY))
    _commit_again(log, group, record)
    if not _is_refused(coordinator, facts):
        _commit_again(log, group, record)  # another instance may be about to do so
        return False
    change_record(record, lambda stored: None if stored.value else _text(log.group_offsets(group)))
    _log.info("group %s had another topology: it is deleted, and its offsets are committed again", group)
    try:
        log.delete_group(group)
    except LogError:
        if not _has_members(coordinator, group):
            raise  # else another instance was faster, and runs by now
    finally:
        _commit_again(log, group, record)
    return True


def _is_refused(coordinator: StreamsCoordinator, facts: MemberFacts) -> bool:
    """Return whether a group without members refuses a member because of its topology."""
    if coordinator.describe(facts.group) is None or _has_members(coordinator, facts.group):
        return False
    facts = replace(facts, member=str(uuid.uuid4()), instance=None, endpoint=None)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        join = StreamsMember(facts, 0).next_heartbeat(0)
        assert join is not None, "it has not joined"  # noqa: S101
        answer = coordinator.heartbeat(join)
        if answer.error not in PASSING or time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_S)
    if answer.error == HeartbeatError.NONE:
        coordinator.heartbeat(Heartbeat(facts.group, facts.member, LEAVE_EPOCH))
        return False
    return is_other_topology(GroupFailure(answer.error, answer.message))


def _has_members(coordinator: StreamsCoordinator, group: str) -> bool:
    described = coordinator.describe(group)
    return described is not None and bool(described.members)


def _commit_again(log: TopicLog, group: str, record: FencedRecord) -> None:
    """Commit the offsets that are stored, unless they are there, and forget them.

    Another instance may be a member for a moment, to find out whether it would be refused; it commits them too.
    """
    stored, deadline = record.read(), time.monotonic() + _PATIENCE_S
    if not stored.value:
        return
    offsets = _offsets_of(stored)
    while missing := {tp: offsets[tp] for tp in offsets.keys() - log.group_offsets(group).keys()}:
        try:
            log.commit_with_metadata(group, missing)
        except LogError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)
    change_record(record, lambda now: b"" if now.attempt == stored.attempt else None)


def _text(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bytes:
    rows = [[tp.topic, tp.partition, each.offset, each.metadata] for tp, each in sorted(offsets.items())]
    return json.dumps(rows).encode()


def _offsets_of(stored: StoredRecord) -> dict[TopicPartition, OffsetAndMetadata]:
    rows = json.loads(stored.value or b"[]")
    return {
        TopicPartition(topic, partition): OffsetAndMetadata(offset, text) for topic, partition, offset, text in rows
    }
