"""What to tell users when a group refuses a member for good, and another topology for a group without members.

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
from penstock.base.terminal.human_numbers import counted
from penstock.errors import AuthorizationError, FencedError, LogError, TopologyError
from penstock.log.base import OffsetAndMetadata, TopicLog, TopicPartition
from penstock.log.fenced_record import OFFSETS_KEY, OFFSETS_WRITER, FencedRecord, RecordName, StoredRecord
from penstock.log.processes import may_run, own_process
from penstock.log.streams_groups.description import (
    LEAVE_EPOCH,
    GroupTopology,
    HeartbeatError,
    StreamsHeartbeat,
    topology_difference,
)
from penstock.log.streams_groups.member import PASSING, GroupFailure, StreamsMember

if TYPE_CHECKING:
    from penstock.log.streams_groups.description import GroupSubtopology, StreamsCoordinator, StreamsGroupDescription
    from penstock.log.streams_groups.member import MemberFacts

__all__ = ["fit_group", "refusal", "refuse_other_topology", "shared_already", "shared_by_threads"]

_TOPOLOGY_CODES = frozenset({
    HeartbeatError.STREAMS_INVALID_TOPOLOGY,
    HeartbeatError.STREAMS_INVALID_TOPOLOGY_EPOCH,
    HeartbeatError.STREAMS_TOPOLOGY_FENCED,
})  # fmt: skip
_OTHER_ORDER = "topics of a sub-topology stand in another order, or are joined otherwise"
_HINTS: Mapping[int, str] = {
    HeartbeatError.UNSUPPORTED_VERSION: "Streams groups need brokers of Kafka 4.2 or later with the feature "
    "streams.version (kafka-features describe).",
    HeartbeatError.GROUP_ID_NOT_FOUND: "Members of another kind are in the group, such as an earlier version of the "
    "application: penstock groups describe shows them. Stop them first.",
    HeartbeatError.GROUP_MAX_SIZE_REACHED: "The limit is group.streams.max.size of the brokers: run fewer threads.",
    HeartbeatError.UNRELEASED_INSTANCE_ID: "Another member has this group.instance.id: stop it, or wait until its "
    "session ends.",
    HeartbeatError.FENCED_INSTANCE_ID: "Another member has taken this group.instance.id: each instance needs its own.",
}
_TEXTS = {
    "tatic membership": "In streams groups brokers know group.instance.id from Kafka 4.4 on: leave it out.",
    "egular expressions": "The brokers do not know patterns in streams groups yet: name the topics.",
}
_OTHERWISE = "The broker's log may say why."


def refusal(failure: GroupFailure, facts: MemberFacts, coordinator: StreamsCoordinator) -> LogError | TopologyError:
    """Make the error of a member that its group has refused.

    Args:
        failure: Why.
        facts: What the member has said of itself.
        coordinator: Describes the group, if the topology is the reason.
    """
    group = facts.group
    if is_other_topology(failure):
        return _other_topology(facts, coordinator.describe(group))
    text = f"group {group!r} refuses member {facts.member}: {failure.message or failure.code}"
    if failure.code in (HeartbeatError.GROUP_AUTHORIZATION_FAILED, HeartbeatError.TOPIC_AUTHORIZATION_FAILED):
        return AuthorizationError(
            text, hint="It needs READ on its group, and DESCRIBE on its topics; brokers also CREATE internal topics "
            "in its name.", group=group,
        )  # fmt: skip
    by_text = next((hint for part, hint in _TEXTS.items() if part in failure.message), "")
    return LogError(text, hint=by_text or _HINTS.get(failure.code, _OTHERWISE), group=group)


def shared_by_threads(group: str) -> FencedError:
    """Make the error of anybody else who would change a group's offsets, or join it."""
    return FencedError(
        f"the members of group {group!r} are the stream threads of an application",
        hint=f"Stop the application first: penstock groups describe {group} --members shows its instances.",
        group=group,
    )


def shared_already(application: str, described: StreamsGroupDescription) -> FencedError:
    """Make the error of a start with a lease while instances share the tasks of the application."""
    instances = len({each.process for each in described.members})
    return FencedError(
        f"application {application!r} runs already with group.protocol=streams: {counted(instances, 'instance')} with "
        f"{counted(len(described.members), 'thread')}",
        hint="One that goes on, without group.protocol=classic, shares their work. Or stop them first: penstock groups "
        f"describe {application} --members shows them.",
        application=application,
        members=len(described.members),
    )


def is_other_topology(failure: GroupFailure) -> bool:
    """Return whether a group refuses a member because it has another topology."""
    return failure.code in _TOPOLOGY_CODES or "opology updates" in failure.message


def refuse_other_topology(facts: MemberFacts, described: StreamsGroupDescription | None) -> None:
    """Compare a topology with that of the members that a group has, before another member joins.

    Raises:
        TopologyError: They differ.
    """
    if described is None or not described.members or described.topology is None:
        return
    if topology_difference(_as_sent(described.topology, facts.topology), facts.topology):
        raise _other_topology(facts, described)


def _other_topology(facts: MemberFacts, described: StreamsGroupDescription | None) -> TopologyError:
    difference = ""
    if described is not None and described.topology is not None:
        difference = topology_difference(_as_sent(described.topology, facts.topology), facts.topology) or _OTHER_ORDER
    named = f": {difference}" if difference else ""
    if described is not None and described.members:
        count = len({each.process for each in described.members})
        return TopologyError(
            f"the topology differs from that of the running instances of {facts.group!r}{named}",
            hint=f"They go on undisturbed. Start this version once they have all stopped ({count} run now), or under "
            "another application.id.",
            group=facts.group,
        )
    return TopologyError(
        f"the topology differs from the one that group {facts.group!r} has{named}",
        hint="Brokers keep the topology of a group until it is deleted, with its offsets: note those first (penstock "
        "groups reset --to-current --csv), or use another application.id.",
        group=facts.group,
    )


def _as_sent(described: GroupTopology, ours: GroupTopology) -> GroupTopology:
    """Return a described topology without what its coordinator has filled in, as far as it can be compared."""
    own_by_id = {each.id: each for each in ours.subtopologies}
    return GroupTopology(tuple(_one(each, own_by_id.get(each.id)) for each in described.subtopologies), described.epoch)


def _one(described: GroupSubtopology, ours: GroupSubtopology | None) -> GroupSubtopology:
    if ours is None:
        return described
    open_counts = {spec.name for spec in (*ours.changelogs, *ours.repartition_sources) if not spec.partitions}
    return replace(
        described,
        source_topics=described.source_topics if not ours.source_patterns else ours.source_topics,
        source_patterns=ours.source_patterns,
        changelogs=tuple(
            replace(spec, partitions=0) if spec.name in open_counts else spec for spec in described.changelogs
        ),
        repartition_sources=tuple(
            replace(spec, partitions=0) if spec.name in open_counts else spec for spec in described.repartition_sources
        ),
        copartition_groups=ours.copartition_groups,
    )


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
