"""An application that changes between a lease and a streams group, and its group as tools see it, over both logs."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from eventually import eventually
from penstock.config import StreamsConfig
from penstock.engines.reset import ApplicationReset
from penstock.errors import FencedError, LogError
from penstock.log.base import OffsetAndMetadata, StreamsMembership, TopicPartition
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.embedded.membership import JoinRequest
from penstock.log.groups.group_admin import GroupAdmin
from penstock.log.groups.reset_targets import Target
from penstock.log.streams_groups.description import GroupSubtopology, GroupTopology, HeartbeatError
from penstock.log.streams_groups.group_refusals import refusal
from penstock.log.streams_groups.member import MemberState, StreamsMember
from penstock.log.thread_clients import Writer
from streams_stage import Stage

PATIENCE_S = 60.0


class Scene:
    """An application that reads one topic of two partitions."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.log, self.app = stage, stage.log, stage.app
        self.source = stage.topic("in", 2)
        self.topology = GroupTopology((GroupSubtopology("0", (self.source,)),))
        self.places = [TopicPartition(self.source, each) for each in range(2)]
        self.offsets = {self.places[0]: OffsetAndMetadata(7, "one"), self.places[1]: OffsetAndMetadata(9, "two")}

    def member(self) -> StreamsMember:
        member = self.stage.member(self.topology)
        self.stage.until(self.stage.all_tasks(2))
        return member

    def leave(self, member: StreamsMember) -> None:
        member.leave(self.stage.now_ms())
        self.stage.until(lambda: member.state is MemberState.LEFT)

    def commit(self, member: StreamsMember) -> None:
        me = StreamsMembership(member.facts.member, member.epoch)
        self.stage.coordinator.commit(self.app, me, self.offsets)

    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return dict(self.log.group_offsets(self.app))


@pytest.fixture
def scene(stage: Stage) -> Scene:
    return Scene(stage)


def test_threads_do_not_join_while_an_instance_has_the_lease_and_go_on_from_its_offsets(scene: Scene) -> None:
    lease = scene.log.acquire_lease(scene.app, "the instance of before")
    scene.log.show_as_member(lease, [scene.source])
    if scene.stage.is_broker:
        assert scene.log.membership(PATIENCE_S) is not None
    early = scene.stage.member(scene.topology)
    scene.stage.until(lambda: early.failure)
    assert early.failure is not None
    assert early.failure.code == HeartbeatError.GROUP_ID_NOT_FOUND
    text = str(refusal(early.failure, early.facts, scene.stage.coordinator))
    assert f"Group {scene.app} is not a streams group" in text
    assert "Stop them first" in text
    scene.log.commit_offsets(scene.app, {tp: each.offset for tp, each in scene.offsets.items()}, "note", lease)
    scene.log.release_lease(lease)
    scene.stage.members.remove(early)
    scene.member()
    assert {tp: each.offset for tp, each in scene.committed().items()} == {scene.places[0]: 7, scene.places[1]: 9}


def test_an_instance_does_not_take_the_lease_while_threads_share_the_tasks_and_goes_on_from_their_offsets(
    scene: Scene,
) -> None:
    member = scene.member()
    me = StreamsMembership(member.facts.member, member.epoch)
    out = scene.stage.topic("out", 1)
    producer = scene.log.commit_producer(Writer(scene.app, f"{uuid.uuid4()}-0", None, membership=lambda: me))
    try:
        for force in (False, True):
            with pytest.raises(
                FencedError, match=r"runs already with group\.protocol=streams: 1 instance with 1 thread"
            ):
                scene.log.acquire_lease(scene.app, "an instance", force=force)
            held = scene.log.lease(scene.app)
            assert held is None or held.released
        producer.commit(scene.offsets)  # nothing has fenced it
    finally:
        producer.close()
    assert scene.log.end_offset(out, 0) == 0
    scene.leave(member)
    lease = scene.log.acquire_lease(scene.app, "an instance")
    scene.log.show_as_member(lease, [scene.source])
    eventually(lambda: scene.committed() == scene.offsets)
    scene.log.release_lease(lease)


def test_start_positions_are_not_committed_once_a_thread_has_joined(scene: Scene) -> None:
    starts = dict.fromkeys(scene.places, 1)
    assert scene.log.commit_if_empty(scene.app, starts, "a start") is True
    member = scene.member()
    scene.commit(member)
    assert scene.log.commit_if_empty(scene.app, starts, "a start at the same time") is False
    assert scene.committed() == scene.offsets
    scene.leave(member)
    assert scene.log.commit_if_empty(scene.app, starts, "a later start") is True
    assert scene.committed() == {tp: OffsetAndMetadata(1, "a later start") for tp in scene.places}


def test_tools_show_threads_and_change_nothing_while_they_run(scene: Scene, tmp_path: Path) -> None:
    member = scene.member()
    scene.commit(member)
    admin = GroupAdmin(scene.log)
    listed = {each.group: each for each in admin.groups()}[scene.app]
    assert (listed.state, listed.members) == ("Stable", 1)
    described = admin.describe(scene.app)
    [shown] = described.members
    assert (shown.member, shown.owned) == (member.facts.member, tuple(scene.places))
    assert shown.tasks == (("active", ("0_0", "0_1")), ("standby", ()), ("warmup", ()))
    assert [(row.partition, row.committed) for row in described.partitions] == [(0, 7), (1, 9)]
    moves = admin.plan_reset(scene.app, Target.offset(0))
    for change in (
        lambda: admin.reset(scene.app, moves),
        lambda: admin.delete_offsets(scene.app, [scene.source]),
        lambda: admin.delete(scene.app),
    ):
        with pytest.raises(FencedError, match="has 1 member"):
            change()
    with pytest.raises(LogError):
        scene.log.delete_group(scene.app)
    config = StreamsConfig({
        "application.id": scene.app, "bootstrap.servers": scene.log.url, "state.dir": str(tmp_path),
    })  # fmt: skip
    reset = ApplicationReset(scene.log, config, without_checkpoint=True)
    with pytest.raises(FencedError, match="has 1 member"):
        reset.run(reset.plan(Target.offset(0)), force=True)
    assert scene.committed() == scene.offsets
    scene.leave(member)
    admin.reset(scene.app, moves)
    assert {tp: each.offset for tp, each in scene.committed().items()} == dict.fromkeys(scene.places, 0)
    admin.delete(scene.app)
    assert scene.committed() == {}
    assert scene.app not in scene.log.groups()
    scene.member()  # the group begins anew


def test_consumers_and_threads_are_not_in_one_group_of_an_embedded_log(scene: Scene) -> None:
    if not isinstance(scene.log, EmbeddedLog):
        pytest.skip("brokers see to that")
    member = scene.member()
    request = JoinRequest((scene.source,))
    with pytest.raises(LogError, match="the stream threads of an application"):
        scene.log.join_group(scene.app, request)
    scene.leave(member)
    me = scene.log.join_group(scene.app, request)
    late = scene.stage.member(scene.topology)
    scene.stage.until(lambda: late.failure)
    assert late.failure is not None
    assert "it has 1 consumer" in late.failure.message
    scene.log.leave_group(me)
    scene.stage.members.remove(late)
    scene.member()
