"""The embedded log as the coordinator of streams groups: what only it has, and a clock of its own shows."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.log.embedded.log import EmbeddedLog
from penstock.log.embedded.streams_groups import EmbeddedStreamsCoordinator
from penstock.log.open import open_log
from penstock.log.streams_groups.assignor import AssignmentRules
from penstock.log.streams_groups.description import (
    GroupSubtopology,
    GroupTask,
    GroupTopology,
    HeartbeatError,
    InternalTopicSpec,
    StatusCode,
    StreamsHeartbeat,
)
from penstock.log.streams_groups.group import GroupSettings
from penstock.log.streams_groups.member import MemberFacts, MemberState, StreamsMember

STATEFUL = GroupTopology((GroupSubtopology("0", ("in",), changelogs=(InternalTopicSpec("app-c-changelog"),)),))
STATELESS = GroupTopology((GroupSubtopology("0", ("in",)),))


@dataclass
class Group:
    """A group over a log in memory."""

    settings: GroupSettings = field(default_factory=GroupSettings)
    partitions: int = 4
    now_ms: int = 1_000_000
    members: list[StreamsMember] = field(default_factory=list)

    def __post_init__(self) -> None:
        log = open_log(f"memory://{uuid.uuid4()}")
        assert isinstance(log, EmbeddedLog)
        self.log = log
        log.create_topic("in", self.partitions)
        self.coordinator = EmbeddedStreamsCoordinator(log, self.settings, lambda: self.now_ms)

    def member(self, topology: GroupTopology = STATEFUL, name: str = "", **facts: Any) -> StreamsMember:
        name = name or f"m{len(self.members)}"
        facts = {"process": f"process of {name}", **facts}
        member = StreamsMember(MemberFacts("app", name, topology=topology, **facts), self.now_ms)
        self.members.append(member)
        return member

    def step(self, *members: StreamsMember) -> None:
        for member in members or self.members:
            heartbeat = member.next_heartbeat(self.now_ms)
            if heartbeat is not None:
                member.answered(self.coordinator.heartbeat(heartbeat), self.now_ms)
            work = member.work()
            if work.drop:
                member.dropped(self.now_ms)
            elif work.release:
                member.released(work.release, self.now_ms)
            elif work.acquire:
                member.acquired(work, self.now_ms)

    def run(self, *members: StreamsMember, seconds: int = 20) -> None:
        for _ in range(seconds * 10):
            self.step(*members)
            self.now_ms += 100

    def state(self) -> str:
        found = self.coordinator.describe("app")
        assert found is not None
        return found.state


def actives(*members: StreamsMember) -> list[int]:
    return [len(each.owned.active) for each in members]


def test_a_member_that_is_silent_for_its_session_loses_its_tasks() -> None:
    group = Group(GroupSettings(session_timeout_ms=45_000))
    silent, other = group.member(), group.member()
    group.run()
    assert actives(silent, other) == [2, 2]
    group.run(other, seconds=44)
    assert actives(other) == [2]
    group.run(other, seconds=8)
    assert actives(other) == [4]
    group.run(silent, seconds=1)
    assert silent.state in (MemberState.JOINING, MemberState.STABLE, MemberState.RECONCILING)
    group.run()
    assert actives(silent, other) == [2, 2]


def test_heartbeats_that_change_nothing_are_written_only_as_often_as_a_session_needs() -> None:
    group = Group(GroupSettings(session_timeout_ms=45_000, heartbeat_interval_ms=200))
    members = [group.member(), group.member()]
    group.run()
    before, epochs = group.log.version(), [each.epoch for each in members]
    group.run(seconds=90)
    assert 0 < group.log.version() - before <= 2 * 2 * 10
    assert (actives(*members), [each.epoch for each in members]) == ([2, 2], epochs)
    before = group.log.version()
    assert group.state() == "Stable"
    assert group.log.version() == before


def test_topics_that_grow_are_noticed_by_a_heartbeat_that_says_nothing() -> None:
    group = Group(GroupSettings(heartbeat_interval_ms=200), partitions=2)
    member = group.member(STATELESS)
    group.run()
    group.log.create_partitions("in", 4)
    group.run(seconds=1)
    assert actives(member) == [4]


def test_a_member_that_does_not_give_up_its_tasks_in_time_is_removed() -> None:
    group = Group()
    clings, other = group.member(rebalance_timeout_ms=30_000), group.member()
    group.run(clings)

    def heartbeats_only() -> None:
        for member in group.members:
            heartbeat = member.next_heartbeat(group.now_ms)
            if heartbeat is not None:
                member.answered(group.coordinator.heartbeat(heartbeat), group.now_ms)
        group.now_ms += 100

    for _ in range(290):
        heartbeats_only()
    assert clings.work().release
    assert group.state() == "Reconciling"
    for _ in range(200):
        heartbeats_only()
    assert clings.state is MemberState.FENCED
    group.run(other)
    assert actives(other) == [4]


def test_a_process_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    program = f"""
from penstock.log.open import open_log
from penstock.log.embedded.streams_groups import EmbeddedStreamsCoordinator
from penstock.log.streams_groups.description import *
from penstock.log.streams_groups.description import *
log = open_log({url!r})
log.create_topic("in", 2)
topology = GroupTopology((GroupSubtopology("0", ("in",)),))
beat = StreamsHeartbeat("app", "dies", 0, rebalance_timeout_ms=1, topology=topology, owned=Assignment(), process="p")
print(EmbeddedStreamsCoordinator(log).heartbeat(beat).epoch)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert int(done.stdout) > 0
    with open_log(url) as log:
        assert isinstance(log, EmbeddedLog)
        found = EmbeddedStreamsCoordinator(log).describe("app")
        assert found is not None
        assert (found.state, found.members) == ("Empty", ())


def test_several_processes_see_one_group(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    with open_log(url) as first, open_log(f"{url}?compression=none") as second:
        assert isinstance(first, EmbeddedLog)
        assert isinstance(second, EmbeddedLog)
        first.create_topic("in", 2)
        one, other = EmbeddedStreamsCoordinator(first), EmbeddedStreamsCoordinator(second)
        member = StreamsMember(MemberFacts("app", "m", "p", STATELESS), 0)
        heartbeat = member.next_heartbeat(0)
        assert heartbeat is not None
        member.answered(one.heartbeat(heartbeat), 0)
        found = other.describe("app")
        assert found is not None
        assert [each.member for each in found.members] == ["m"]
        assert found.members[0].assignment.active == {GroupTask("0", 0), GroupTask("0", 1)}


def test_a_static_member_that_comes_back_within_its_session_finds_its_tasks() -> None:
    group = Group(GroupSettings(session_timeout_ms=45_000))
    static, other = group.member(instance="one"), group.member()
    group.run()
    mine, epoch = static.owned, other.epoch
    static.leave(group.now_ms, comes_back=True)
    group.run(seconds=20)
    assert (static.state, actives(other)) == (MemberState.LEFT, [2])
    again = group.member(instance="one", process="process of m0")
    group.run(other, again, seconds=5)
    assert (again.owned, other.epoch, group.state()) == (mine, epoch, "Stable")


def test_a_static_member_whose_process_was_killed_has_its_place_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    program = f"""
from penstock.log.open import open_log
from penstock.log.embedded.streams_groups import EmbeddedStreamsCoordinator
from penstock.log.streams_groups.description import *
from penstock.log.streams_groups.member import *
log = open_log({url!r})
log.create_topic("in", 2)
topology = GroupTopology((GroupSubtopology("0", ("in",)),))
coordinator = EmbeddedStreamsCoordinator(log)
print(coordinator.heartbeat(StreamsMember(MemberFacts("app", "m", "p", topology, "one"), 0).next_heartbeat(0)).epoch)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert int(done.stdout) > 0
    with open_log(url) as log:
        assert isinstance(log, EmbeddedLog)
        coordinator = EmbeddedStreamsCoordinator(log)
        for name, instance in (("other", "two"), ("again", "one")):
            member = StreamsMember(MemberFacts("app", name, name, STATELESS, instance), 0)
            heartbeat = member.next_heartbeat(0)
            assert heartbeat is not None
            member.answered(coordinator.heartbeat(heartbeat), 0)
            assert member.failure is None
        found = coordinator.describe("app")
        assert found is not None
        assert sorted(each.member for each in found.members) == ["again", "other"]


def test_a_static_member_that_does_not_come_back_is_removed() -> None:
    group = Group(GroupSettings(session_timeout_ms=45_000))
    static, other = group.member(instance="one"), group.member()
    group.run()
    static.leave(group.now_ms, comes_back=True)
    group.run(static, other, seconds=44)
    assert actives(other) == [2]
    group.run(other, seconds=8)
    assert actives(other) == [4]


def test_two_members_of_one_instance_id_are_one_too_many() -> None:
    group = Group()
    first = group.member(instance="one")
    group.run()
    second = group.member(instance="one")
    group.step(second)
    assert second.failure is not None
    assert second.failure.code == HeartbeatError.UNRELEASED_INSTANCE_ID
    assert "one" in second.failure.message
    assert actives(first) == [4]


def test_standby_copies_are_of_other_instances() -> None:
    group = Group(GroupSettings(rules=AssignmentRules(num_standby_replicas=1)))
    one, same, other = group.member(process="a"), group.member(process="a"), group.member(process="b")
    group.run()
    here = one.owned.active | same.owned.active
    assert one.owned.standby | same.owned.standby == other.owned.active
    assert other.owned.standby == here
    assert not one.owned.standby & same.owned.standby


def test_a_member_that_goes_leaves_its_tasks_to_their_copies() -> None:
    group = Group(GroupSettings(rules=AssignmentRules(num_standby_replicas=1)), partitions=6)
    first, second, third = (group.member() for _ in range(3))
    group.run()
    copies = {task: each for each in (second, third) for task in each.owned.standby & first.owned.active}
    assert len(copies) == 2
    first.leave(group.now_ms)
    group.run()
    assert all(task in each.owned.active for task, each in copies.items())
    assert actives(second, third) == [3, 3]


def test_stateful_tasks_move_once_their_copies_have_caught_up() -> None:
    rules = AssignmentRules(acceptable_recovery_lag=100, max_warmup_replicas=1)
    group = Group(GroupSettings(task_offset_interval_ms=1_000, rules=rules))
    first = group.member()
    group.run()
    all_tasks = {GroupTask("0", number) for number in range(4)}
    first.report_offsets(dict.fromkeys(all_tasks, 5_000), dict.fromkeys(all_tasks, 5_000), group.now_ms)
    group.run()
    second = group.member()
    group.run()
    assert actives(first, second) == [4, 0]
    assert len(second.owned.warmup) == 1  # max.warmup.replicas
    for number in (1, 2):
        [warm] = second.owned.warmup
        second.report_offsets({warm: 4_800}, {warm: 5_000}, group.now_ms)
        group.run()
        assert second.owned.warmup == {warm}
        known = dict.fromkeys([*second.owned.active, warm], 4_900)
        second.report_offsets(known, dict.fromkeys(known, 5_000), group.now_ms)
        group.run()
        assert warm in second.owned.active
        assert actives(first, second) == [4 - number, number]
    assert not second.owned.warmup


def test_stateless_tasks_move_at_once() -> None:
    group = Group(GroupSettings(task_offset_interval_ms=1_000))
    first = group.member(STATELESS)
    group.run()
    first.report_offsets({GroupTask("0", 0): 1}, {GroupTask("0", 0): 1}, group.now_ms)
    group.run()
    second = group.member(STATELESS)
    group.run()
    assert actives(first, second) == [2, 2]


def test_the_first_assignment_waits_for_others_if_it_shall() -> None:
    group = Group(GroupSettings(initial_rebalance_delay_ms=3_000))
    first = group.member()
    group.run(seconds=2)
    second = group.member()
    group.step()
    assert [each.code for each in first.status] == [StatusCode.ASSIGNMENT_DELAYED]
    assert actives(first, second) == [0, 0]
    group.run(seconds=2)
    assert (actives(first, second), first.status) == ([2, 2], ())


def test_the_difference_of_another_topology_is_named() -> None:
    group = Group()
    group.member()
    group.run()
    spec = InternalTopicSpec("app-c-changelog", config=(("retention.ms", "5"),))
    other = group.member(GroupTopology((GroupSubtopology("0", ("in", "users"), changelogs=(spec,)),)))
    group.step(other)
    assert other.failure is not None
    assert other.failure.code == HeartbeatError.STREAMS_INVALID_TOPOLOGY
    assert other.failure.message.endswith(
        "sub-topology 0 reads users too; app-c-changelog has other settings (retention.ms)"
    )


def test_an_older_topology_joins_and_hears_that_it_is_stale() -> None:
    group = Group()
    group.member(GroupTopology(STATELESS.subtopologies, epoch=1))
    group.run()
    old = group.member(STATELESS)
    group.run()
    assert [each.code for each in old.status] == [StatusCode.STALE_TOPOLOGY]


def test_an_empty_group_takes_another_topology() -> None:
    group = Group()
    first = group.member(STATEFUL)
    group.run()
    first.leave(group.now_ms)
    group.run()
    second = group.member(STATELESS)
    group.run()
    assert actives(second) == [4]


def test_topics_that_match_a_pattern_are_read() -> None:
    group = Group()
    for name, partitions in (("logs-a", 1), ("logs-b", 2), ("clicks", 5)):
        group.log.create_topic(name, partitions)
    member = group.member(GroupTopology((GroupSubtopology("0", source_patterns=("logs-.*",)),)))
    group.run()
    assert actives(member) == [2]
    group.log.create_topic("logs-c", 3)
    group.run()
    assert actives(member) == [3]
    found = group.coordinator.describe("app")
    assert found is not None
    assert found.topology is not None
    assert found.topology.subtopologies[0].source_topics == ("logs-a", "logs-b", "logs-c")


def test_copies_are_spread_by_tags() -> None:
    rules = AssignmentRules(num_standby_replicas=1, rack_aware_tags=("zone",))
    group = Group(GroupSettings(rules=rules), partitions=6)
    zones = {"a": "eu", "b": "eu", "c": "us"}
    members = {name: group.member(name=name, tags=(("zone", zone),)) for name, zone in zones.items()}
    group.run()
    assert members["c"].owned.standby == members["a"].owned.active | members["b"].owned.active


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"group": ""}, "GroupId"),
        ({"member": ""}, "MemberId"),
        ({"epoch": -3}, "MemberEpoch"),
        ({"epoch": -2}, "InstanceId"),
        ({"topology": None}, "Topology"),
        ({"topology": GroupTopology(())}, "Topology"),
        ({"rebalance_timeout_ms": 0}, "RebalanceTimeoutMs"),
        ({"owned": None}, "must be empty"),
        ({"process": None}, "ProcessId"),
        ({"epoch": 3}, "only be provided when"),
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_refused(change: dict[str, Any], text: str) -> None:
    group = Group()
    sent = group.member().next_heartbeat(group.now_ms)
    assert sent is not None
    fields = {name: getattr(sent, name) for name in sent.__slots__}
    answer = group.coordinator.heartbeat(StreamsHeartbeat(**{**fields, **change}))
    assert (answer.error, text in answer.message) == (HeartbeatError.INVALID_REQUEST, True)
    assert group.coordinator.describe("app") is None


def test_a_quiet_heartbeat_changes_one_column() -> None:
    group = Group()
    member = group.member()
    group.run(seconds=30)
    before = _documents(group.log)
    heard_ms = group.now_ms
    group.run(seconds=6)
    assert _documents(group.log) == before
    found = group.coordinator.describe("app")
    assert found is not None
    with group.log.reading() as connection:
        [row] = connection.execute("SELECT heard_ms, pid FROM streams_members").fetchall()
    assert row[0] >= heard_ms - 5_000
    assert row[1] == os.getpid()
    assert member.state is MemberState.STABLE


def _documents(log: EmbeddedLog) -> list[tuple[Any, ...]]:
    with log.reading() as connection:
        return connection.execute(
            "SELECT document FROM streams_groups UNION ALL SELECT document FROM streams_members"
        ).fetchall()
