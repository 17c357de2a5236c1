"""A group that gets other settings, and another topology once it has no members, over both coordinators."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from penstock.errors import LogError
from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.log.kafka.log import KafkaLog
from penstock.log.open import open_log
from penstock.log.streams_groups import group_refusals as refusals
from penstock.log.streams_groups.description import GroupSubtopology, GroupTopology
from penstock.log.streams_groups.group_refusals import fit_group
from penstock.log.streams_groups.member import MemberFacts, MemberState, StreamsMember
from penstock.log.streams_groups.offset_metadata import OffsetMetadata
from streams_stage import Stage, counting

PARTITIONS = 3


class Scene:
    """A group whose only member has left; its topology, and another one."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        source = stage.topic("in", PARTITIONS)
        self.before = counting(stage.app, source)
        self.after = GroupTopology((GroupSubtopology("0", (source,)),))
        self.notes = stage.topic("notes", 1)
        member = stage.member(self.before)
        stage.until(stage.all_tasks(2 * PARTITIONS))
        leave(stage, member)
        self.offsets = {
            TopicPartition(source, each): OffsetAndMetadata(each + 1, OffsetMetadata(each * 1_000).encode())
            for each in range(PARTITIONS)
        }
        stage.log.commit_with_metadata(stage.app, self.offsets)

    def facts(self, topology: GroupTopology) -> MemberFacts:
        return MemberFacts(self.stage.app, "a member", "a process", topology)

    def fit(self) -> bool:
        return fit_group(self.stage.log, self.stage.coordinator, self.facts(self.after), self.notes)

    def joins(self, topology: GroupTopology, tasks: int) -> None:
        """A member of a topology joins, and finds the offsets."""
        member = self.stage.member(topology)
        self.stage.until(self.stage.all_tasks(tasks))
        assert len(member.owned.active) == tasks
        assert self.stage.log.group_offsets(self.stage.app) == self.offsets


def leave(stage: Stage, member: StreamsMember) -> None:
    member.leave(stage.now_ms())
    stage.until(lambda: member.state is MemberState.LEFT)


@pytest.fixture
def scene(stage: Stage) -> Scene:
    return Scene(stage)


def test_standbys_are_a_setting_of_the_group(stage: Stage) -> None:
    settings = {
        "streams.num.standby.replicas": "1",
        "streams.initial.rebalance.delay.ms": "0",
        "streams.assignment.interval.ms": "0",
    }
    assert stage.coordinator.set_group_settings(stage.app, settings) == {}
    assert stage.coordinator.describe(stage.app) is None  # settings alone are no group
    topology = counting(stage.app, stage.topic("in", 2))
    first, second = stage.member(topology), stage.member(topology)

    def both_have_copies() -> bool:
        return all(len(each.owned.active) == 2 and each.owned.standby for each in (first, second))

    stage.until(both_have_copies)
    assert first.owned.standby | second.owned.standby == {task for task in first.owned.active | second.owned.active
                                                          if task.subtopology == "1"}  # fmt: skip
    assert stage.coordinator.set_group_settings(stage.app, {"streams.num.standby.replicas": "0"}) == {}
    stage.until(lambda: not first.owned.standby and not second.owned.standby)


def test_settings_that_are_wrong_are_named_and_the_others_are_set(stage: Stage) -> None:
    refused = stage.coordinator.set_group_settings(
        stage.app, {"streams.num.standby.replicas": "many", "streams.initial.rebalance.delay.ms": "0"}
    )
    assert list(refused) == ["streams.num.standby.replicas"]
    assert "many" in refused["streams.num.standby.replicas"]
    unknown = stage.coordinator.set_group_settings(stage.app, {"streams.of.a.later.broker": "1"})
    assert list(unknown) == ([] if stage.is_broker else ["streams.of.a.later.broker"])


def test_a_group_without_members_takes_another_topology_and_keeps_its_offsets(scene: Scene) -> None:
    assert scene.fit() is scene.stage.is_broker  # the embedded log needs nothing for it
    assert scene.fit() is False
    scene.joins(scene.after, PARTITIONS)


def test_a_group_of_the_same_topology_stays_as_it_is(scene: Scene) -> None:
    same = fit_group(scene.stage.log, scene.stage.coordinator, scene.facts(scene.before), scene.notes)
    assert same is False
    scene.joins(scene.before, 2 * PARTITIONS)


def test_a_group_with_members_is_left_alone(scene: Scene) -> None:
    member = scene.stage.member(scene.before)
    scene.stage.until(scene.stage.all_tasks(2 * PARTITIONS))
    before = scene.stage.described()
    assert scene.fit() is False
    assert scene.stage.described().members == before.members
    assert (member.state, scene.stage.log.group_offsets(scene.stage.app)) == (MemberState.STABLE, scene.offsets)


@pytest.mark.parametrize("at", ["before the group is deleted", "before the commit", "in the middle of the commit"])
def test_a_start_that_ends_in_between_loses_no_offset(scene: Scene, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    log = scene.stage.log
    if not isinstance(log, KafkaLog):
        pytest.skip("an embedded log needs nothing that could be interrupted")
    commit: Callable[..., None] = log.commit_with_metadata

    def die(*_: Any) -> None:
        raise InterruptedError

    def commit_one(group: str, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        commit(group, dict(sorted(offsets.items())[:1]))
        raise InterruptedError

    with monkeypatch.context() as patch:
        if at == "before the group is deleted":
            patch.setattr(log, "delete_group", die)
            patch.setattr(log, "commit_with_metadata", die)
        else:
            patch.setattr(log, "commit_with_metadata", die if at == "before the commit" else commit_one)
        with pytest.raises(InterruptedError):
            scene.fit()
    monkeypatch.setattr(refusals, "may_run", lambda *_: False)  # it was killed
    left = {"before the group is deleted": PARTITIONS, "before the commit": 0, "in the middle of the commit": 1}[at]
    assert len(log.group_offsets(scene.stage.app)) == left
    scene.fit()
    assert log.group_offsets(scene.stage.app) == scene.offsets
    scene.joins(scene.after, PARTITIONS)


def test_a_group_that_cannot_be_deleted_keeps_its_offsets(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    log = scene.stage.log
    if not isinstance(log, KafkaLog):
        pytest.skip("an embedded log needs nothing that could be refused")

    def refuse(group: str) -> None:
        raise LogError(f"deleting group {group!r}: Group authorization failed.")

    monkeypatch.setattr(log, "delete_group", refuse)
    with pytest.raises(LogError, match="authorization"):
        scene.fit()
    assert log.group_offsets(scene.stage.app) == scene.offsets


def test_instances_that_start_at_once_lose_no_offset(scene: Scene) -> None:
    if not scene.stage.is_broker:
        pytest.skip("an embedded log needs nothing that could be done twice")
    facts = scene.facts(scene.after)

    def start(_: int) -> bool:
        with open_log(scene.stage.log.url) as log:
            assert isinstance(log, KafkaLog)
            with closing(log.streams_coordinator()) as coordinator:
                return fit_group(log, coordinator, facts, scene.notes)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(start, range(4))) == 1
    scene.joins(scene.after, PARTITIONS)
