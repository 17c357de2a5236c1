"""What to tell users when a group refuses a member for good."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.base.terminal.human_numbers import counted
from penstock.errors import AuthorizationError, FencedError, LogError, TopologyError
from penstock.log.streams_groups.description import GroupTopology
from penstock.log.streams_groups.messages import HeartbeatError
from penstock.log.streams_groups.topology_difference import topology_difference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.log.streams_groups.coordinator import StreamsCoordinator
    from penstock.log.streams_groups.description import GroupSubtopology, StreamsGroupDescription
    from penstock.log.streams_groups.member import GroupFailure, MemberFacts

__all__ = ["is_other_topology", "refusal", "refuse_other_topology", "shared_already", "shared_by_threads"]

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
