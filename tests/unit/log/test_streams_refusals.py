"""What users read when a group refuses a member."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.errors import AuthorizationError, TopologyError
from penstock.log.streams_groups.description import (
    Assignment,
    CopartitionGroup,
    DescribedMember,
    GroupSubtopology,
    GroupTopology,
    HeartbeatError,
    InternalTopicSpec,
    StreamsGroupDescription,
)
from penstock.log.streams_groups.group_refusals import refusal
from penstock.log.streams_groups.member import GroupFailure, MemberFacts

SUB = GroupSubtopology(
    "0", ("a", "b"), changelogs=(InternalTopicSpec("c"),), copartition_groups=(CopartitionGroup((0, 1)),)
)
FACTS = MemberFacts("app", "m", "p", GroupTopology((SUB,)))
# As a broker describes it: with the numbers of partitions, without co-partition groups.
DESCRIBED = replace(SUB, changelogs=(InternalTopicSpec("c", 3),), copartition_groups=())
MEMBER = DescribedMember(
    "other", 3, None, None, "", "", 0, "q", None, (), {}, {}, Assignment(), Assignment()
)  # fmt: skip
BROKERS_WORDS = "Topology updates are not supported yet."


class Described:
    """A coordinator that only describes a group."""

    def __init__(self, found: StreamsGroupDescription | None) -> None:
        self.found = found

    def describe(self, group: str) -> StreamsGroupDescription | None:
        assert group == "app"
        return self.found


def text_of(code: int, message: str, sub: GroupSubtopology = DESCRIBED, *, members: int = 1) -> str:
    found = StreamsGroupDescription("app", "Stable", 1, 1, GroupTopology((sub,)), (MEMBER,) * members)
    return str(refusal(GroupFailure(code, message), FACTS, Described(found)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sub", "difference"),
    [
        (replace(DESCRIBED, source_topics=("a",)), "sub-topology 0 reads b too"),
        (replace(DESCRIBED, id="7"), "sub-topology 0 is new; sub-topology 7 of the group is missing"),
        (replace(DESCRIBED, changelogs=()), "sub-topology 0 has the changelog c too"),
        (DESCRIBED, "topics of a sub-topology stand in another order, or are joined otherwise"),
    ],
)
def test_what_differs_from_running_instances_is_named(sub: GroupSubtopology, difference: str) -> None:
    said = text_of(HeartbeatError.INVALID_REQUEST, BROKERS_WORDS, sub)
    assert f"running instances of 'app': {difference}" in said
    assert "Start this version once they have all stopped" in said


def test_an_empty_group_keeps_its_topology_in_a_broker() -> None:
    said = text_of(HeartbeatError.INVALID_REQUEST, BROKERS_WORDS, replace(DESCRIBED, source_topics=("a",)), members=0)
    assert "Brokers keep the topology of a group until it is deleted" in said


def test_a_group_that_cannot_be_described_is_refused_all_the_same() -> None:
    error = refusal(GroupFailure(HeartbeatError.STREAMS_INVALID_TOPOLOGY, "no"), FACTS, Described(None))  # type: ignore[arg-type]
    assert isinstance(error, TopologyError)


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        (HeartbeatError.UNSUPPORTED_VERSION, "", "Kafka 4.2 or later"),
        (HeartbeatError.GROUP_ID_NOT_FOUND, "Group app is not a streams group.", "Members of another kind"),
        (HeartbeatError.GROUP_MAX_SIZE_REACHED, "", "group.streams.max.size"),
        (HeartbeatError.UNRELEASED_INSTANCE_ID, "", "group.instance.id"),
        (HeartbeatError.INVALID_REQUEST, "Static membership is not yet supported.", "leave it out"),
        (
            HeartbeatError.INVALID_REQUEST,
            "Regular expressions for source topics are not supported yet.",
            "name the topics",
        ),
        (9_999, "", "log may say why"),
    ],
)
def test_every_refusal_says_what_to_do(code: int, message: str, hint: str) -> None:
    said = text_of(code, message)
    assert hint in said
    assert (message or str(int(code))) in said


def test_a_missing_right_is_an_error_of_its_own() -> None:
    failure = GroupFailure(HeartbeatError.GROUP_AUTHORIZATION_FAILED, "Not authorized")
    assert isinstance(refusal(failure, FACTS, Described(None)), AuthorizationError)  # type: ignore[arg-type]
