"""Another topology for a group without members.

A broker keeps the topology of a streams group until the group is deleted, with its offsets. So they are stored in the
log first; then the group is deleted, and they are committed again. What is stored keeps other instances that start at
the same time from doing the same, and from joining in between; what one that is killed leaves undone, they do.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.errors import FencedError, LogError
from penstock.log.base import OffsetAndMetadata, TopicLog, TopicPartition
from penstock.log.fenced_record import OFFSETS_KEY, OFFSETS_WRITER, FencedRecord, RecordName, StoredRecord
from penstock.log.processes import may_run, own_process
from penstock.log.streams_groups.member import PASSING, GroupFailure, StreamsMember
from penstock.log.streams_groups.messages import LEAVE_EPOCH, HeartbeatError, StreamsHeartbeat
from penstock.log.streams_groups.refusals import is_other_topology

if TYPE_CHECKING:
    from penstock.log.streams_groups.coordinator import StreamsCoordinator
    from penstock.log.streams_groups.member import MemberFacts

__all__ = ["fit_group"]

_log = own_logger(__name__)
_PATIENCE_S, _PAUSE_S = 30.0, 0.1
_HELD_S = 30.0  # an instance elsewhere that takes longer counts as killed


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
        Whether the group had another topology, and this call has changed that.

    Raises:
        LogError: The group cannot be deleted, or no broker answers.
    """
    renewal = _Renewal(log, facts.group, log.fenced_record(RecordName(facts.group, OFFSETS_WRITER, topic, OFFSETS_KEY)))
    renewal.finish_others()
    while _is_refused(coordinator, facts):
        held = renewal.hold()
        if held is not None:
            return _renew(renewal, held, coordinator, facts)
        renewal.finish_others()
    renewal.finish_others()  # one that has just deleted the group has not committed its offsets again yet
    return False


def _renew(renewal: _Renewal, held: StoredRecord, coordinator: StreamsCoordinator, facts: MemberFacts) -> bool:
    group = facts.group
    is_refused = False
    try:
        is_refused = _is_refused(coordinator, facts)  # or another instance was faster
        if is_refused:
            _log.info("group %s had another topology: it is deleted, and its offsets are committed again", group)
            renewal.log.delete_group(group)
    except LogError:
        if not _has_members(coordinator, group):
            raise
    finally:
        renewal.commit_again(held)
    return is_refused


class _Renewal:
    """The offsets of a group, stored while it is made anew.

    Args:
        log: The log.
        group: The group.
        record: Where they are stored; empty while nobody makes the group anew.
    """

    def __init__(self, log: TopicLog, group: str, record: FencedRecord) -> None:
        self.log, self._group, self._record = log, group, record

    def hold(self) -> StoredRecord | None:
        """Store the offsets; return None if another instance has stored them already."""
        stored = self._record.read()
        if stored.value:
            return None
        return self._store(self.log.group_offsets(self._group), stored.version)

    def finish_others(self) -> None:
        """Wait for another instance that makes the group anew; if it was killed, commit the offsets in its place."""
        seen, since = "", time.monotonic()
        while True:
            stored = self._record.read()
            if not stored.value:
                return
            if stored.attempt != seen:
                seen, since = stored.attempt, time.monotonic()
            holder = json.loads(stored.value)
            if not may_run(*holder["process"]) or time.monotonic() - since > _HELD_S:
                held = self._store(_offsets_of(holder), stored.version)
                if held is not None:
                    self.commit_again(held)
                continue
            time.sleep(_PAUSE_S)

    def commit_again(self, held: StoredRecord) -> None:
        """Commit the stored offsets, as far as they are not there, and forget them.

        Another instance may be a member for a moment, to find out whether it would be refused.
        """
        offsets, deadline = _offsets_of(json.loads(held.value or b"{}")), time.monotonic() + _PATIENCE_S
        while missing := {tp: offsets[tp] for tp in offsets.keys() - self.log.group_offsets(self._group).keys()}:
            try:
                self.log.commit_with_metadata(self._group, missing)
            except LogError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)
        try:
            self._record.replace(b"", held.version)
        except FencedError as error:  # this instance was taken for a killed one
            _log.debug("group %s: %s", self._group, error.message)

    def _store(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], version: int) -> StoredRecord | None:
        rows = [[tp.topic, tp.partition, each.offset, each.metadata] for tp, each in sorted(offsets.items())]
        try:
            return self._record.replace(json.dumps({"process": own_process(), "offsets": rows}).encode(), version)
        except FencedError:
            return None  # another instance was faster


def _is_refused(coordinator: StreamsCoordinator, facts: MemberFacts) -> bool:
    """Return whether a group without members refuses a member because of its topology."""
    described = coordinator.describe(facts.group)
    if described is None or described.members:
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
        coordinator.heartbeat(StreamsHeartbeat(facts.group, facts.member, LEAVE_EPOCH))
        return False
    return is_other_topology(GroupFailure(answer.error, answer.message))


def _has_members(coordinator: StreamsCoordinator, group: str) -> bool:
    described = coordinator.describe(group)
    return described is not None and bool(described.members)


def _offsets_of(stored: Mapping[str, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(row[0], row[1]): OffsetAndMetadata(row[2], row[3]) for row in stored.get("offsets", ())}
