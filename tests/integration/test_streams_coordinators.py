"""Streams groups over both coordinators, a broker and the embedded log: the same members, the same outcome."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import FencedError, TopologyError
from penstock.log.base import OffsetAndMetadata, StreamsMembership, TopicPartition
from penstock.log.open import open_log
from penstock.log.streams_groups.description import (
    CopartitionGroup,
    Endpoint,
    GroupSubtopology,
    GroupTask,
    GroupTopology,
    HeartbeatError,
    InternalTopicSpec,
    StatusCode,
)
from penstock.log.streams_groups.group_refusals import refusal
from penstock.log.streams_groups.member import MemberState, StreamsMember
from streams_stage import PATIENCE_S, STEP_MS, Stage, counting


def test_a_member_alone_has_all_tasks_and_its_internal_topics_are_made(stage: Stage) -> None:
    source = stage.topic("in", 3)
    member = stage.member(counting(stage.app, source))
    stage.until(stage.all_tasks(6))
    assert member.owned.active == {GroupTask(sub, number) for sub in "01" for number in range(3)}
    again = stage.log.topic(f"{stage.app}-by-value-repartition")
    changes = stage.log.topic(f"{stage.app}-counts-changelog")
    assert (again.partitions, changes.partitions, changes.config["cleanup.policy"]) == (3, 3, "compact")


def test_members_share_the_tasks_and_no_task_has_two_owners(stage: Stage) -> None:
    topology = counting(stage.app, stage.topic("in", 4))
    first = stage.member(topology)
    stage.until(stage.all_tasks(8))
    second = stage.member(topology)
    stage.until(lambda: second.owned.active and stage.all_tasks(8)())
    assert (len(first.owned.active), len(second.owned.active)) == (4, 4)
    third = stage.member(topology)
    stage.until(lambda: third.owned.active and stage.all_tasks(8)())
    assert sorted(len(each.owned.active) for each in stage.members) == [2, 3, 3]
    assert len({each.epoch for each in stage.members}) == 1


def test_the_tasks_of_a_member_that_leaves_go_to_the_others(stage: Stage) -> None:
    topology = counting(stage.app, stage.topic("in", 2))
    first, second = stage.member(topology), stage.member(topology)
    stage.until(lambda: first.owned.active and second.owned.active and stage.all_tasks(4)())
    first.leave(stage.now_ms())
    stage.until(stage.all_tasks(4))
    assert (first.state, len(second.owned.active)) == (MemberState.LEFT, 4)
    assert [each.member for each in stage.described().members] == [second.facts.member]
    second.leave(stage.now_ms())
    stage.until(lambda: second.state is MemberState.LEFT)
    assert (stage.described().state, stage.described().members) == ("Empty", ())


def test_a_group_is_described_with_its_members_and_its_topology(stage: Stage) -> None:
    source = stage.topic("in", 2)
    facts = {"process": "process-1", "rack": "rack-a", "tags": (("zone", "eu"),), "endpoint": Endpoint("host", 7070)}
    member = stage.member(counting(stage.app, source), **facts)
    # A broker that does not know the source topic yet fails at endpoints: then it is sent later.
    stage.until(lambda: stage.all_tasks(4)() and stage.described().members[0].endpoint is not None)
    found = stage.described()
    assert found.topology is not None
    assert [each.id for each in found.topology.subtopologies] == ["0", "1"]
    assert found.topology.subtopologies[0].source_topics == (source,)
    assert found.topology.subtopologies[1].repartition_sources[0].partitions == 2
    [known] = found.members
    assert (known.member, known.epoch, known.process) == (member.facts.member, member.epoch, "process-1")
    assert (known.rack, known.tags, known.endpoint) == ("rack-a", (("zone", "eu"),), Endpoint("host", 7070))
    assert known.assignment == known.target == member.owned
    assert stage.coordinator.describe(f"{stage.app}-other") is None


def test_endpoints_are_known_to_all_members(stage: Stage) -> None:
    source = stage.topic("in", 2)
    topology = GroupTopology((GroupSubtopology("0", (source,)),))
    first = stage.member(topology, endpoint=Endpoint("one", 1))
    second = stage.member(topology, endpoint=Endpoint("two", 2))

    def whole() -> bool:
        known = [{each.endpoint.host: each.active for each in member.endpoints} for member in (first, second)]
        parts = {(source, 0), (source, 1)}
        return all(set().union(*each.values()) == parts and len(each) == 2 for each in known)

    stage.until(whole)
    own = {each.endpoint.host: each.active for each in second.endpoints}["one"]
    assert own == {(source, task.partition) for task in first.owned.active}


def test_another_topology_is_refused_and_the_group_goes_on(stage: Stage) -> None:
    source, other = stage.topic("in", 2), stage.topic("other", 2)
    first = stage.member(counting(stage.app, source))
    stage.until(stage.all_tasks(4))
    stranger = stage.member(counting(stage.app, other))
    stage.until(lambda: stranger.failure)
    assert stranger.failure is not None
    error = refusal(stranger.failure, stranger.facts, stage.coordinator)
    assert isinstance(error, TopologyError)
    assert f"the running instances of '{stage.app}': sub-topology 0 reads {other} too" in str(error)
    assert f"sub-topology 0 reads {source} no more" in str(error)
    assert "(1 run now)" in str(error)
    assert (first.state, len(first.owned.active)) == (MemberState.STABLE, 4)


def test_an_epoch_that_is_not_the_members_is_fenced(stage: Stage) -> None:
    member = stage.member(counting(stage.app, stage.topic("in", 1)))
    stage.until(stage.all_tasks(2))
    member.epoch += 1
    stage.until(lambda: member.state is MemberState.JOINING)
    assert not member.owned
    stage.until(stage.all_tasks(2))


def test_a_member_that_the_group_has_forgotten_joins_again(stage: Stage) -> None:
    topology = counting(stage.app, stage.topic("in", 1))
    member = stage.member(topology)
    stage.until(stage.all_tasks(2))
    gone = StreamsMember(member.facts, stage.now_ms())
    gone.answered(stage.coordinator.heartbeat(_must(gone.next_heartbeat(stage.now_ms()))), stage.now_ms())
    gone.leave(stage.now_ms())  # another one of the same id, which says that it leaves
    gone.answered(stage.coordinator.heartbeat(_must(gone.next_heartbeat(stage.now_ms()))), stage.now_ms())
    assert stage.described().members == ()
    stage.until(stage.all_tasks(2))
    assert [each.member for each in stage.described().members] == [member.facts.member]


def test_only_a_member_at_its_epoch_commits(stage: Stage) -> None:
    source = stage.topic("in", 1)
    member = stage.member(counting(stage.app, source))
    stage.until(stage.all_tasks(2))
    place, name = TopicPartition(source, 0), member.facts.member

    def commit(who: str, epoch: int, offset: OffsetAndMetadata) -> None:
        stage.coordinator.commit(stage.app, StreamsMembership(who, epoch), {place: offset})

    commit(name, member.epoch, OffsetAndMetadata(7, "AgAA"))
    assert stage.log.group_offsets(stage.app)[place] == OffsetAndMetadata(7, "AgAA")
    with pytest.raises(FencedError):
        commit(name, member.epoch + 1, OffsetAndMetadata(9))
    with pytest.raises(FencedError):
        commit("stranger", member.epoch, OffsetAndMetadata(9))
    member.leave(stage.now_ms())
    stage.until(lambda: member.state is MemberState.LEFT)
    with pytest.raises(FencedError):
        commit(name, 1, OffsetAndMetadata(9))
    assert stage.log.group_offsets(stage.app)[place].offset == 7


def test_a_source_topic_that_is_missing_is_waited_for(stage: Stage) -> None:
    member = stage.member(GroupTopology((GroupSubtopology("0", (f"{stage.app}-later",)),)))
    stage.until(lambda: [each.code for each in member.status] == [StatusCode.MISSING_SOURCE_TOPICS])
    assert f"{stage.app}-later" in member.status[0].detail
    assert stage.described().state == "NotReady"
    stage.topic("later", 2)
    stage.until(stage.all_tasks(2))
    assert member.status == ()


def test_joined_topics_with_different_partitions_are_named(stage: Stage) -> None:
    left, right = stage.topic("left", 2), stage.topic("right", 3)
    sub = GroupSubtopology("0", (left, right), copartition_groups=(CopartitionGroup((0, 1)),))
    member = stage.member(GroupTopology((sub,)))
    stage.until(lambda: [each.code for each in member.status] == [StatusCode.INCORRECTLY_PARTITIONED_TOPICS])
    assert left in member.status[0].detail
    assert not member.owned


def test_a_changelog_with_other_partitions_is_named(stage: Stage) -> None:
    source, changes = stage.topic("in", 2), stage.topic("counts-changelog", 3)
    sub = GroupSubtopology("0", (source,), changelogs=(InternalTopicSpec(changes),))
    member = stage.member(GroupTopology((sub,)))
    stage.until(lambda: [each.code for each in member.status] == [StatusCode.INCORRECTLY_PARTITIONED_TOPICS])
    assert changes in member.status[0].detail


def test_a_repartition_topic_has_the_partitions_that_are_named_or_follow(stage: Stage) -> None:
    source, table = stage.topic("in", 2), stage.topic("table", 5)
    named, follows, joined = (f"{stage.app}-{each}-repartition" for each in ("named", "follows", "joined"))
    topology = GroupTopology((
        GroupSubtopology("0", (source,), repartition_sinks=(follows, joined, named)),
        GroupSubtopology("1", repartition_sources=(InternalTopicSpec(named, 4),)),
        GroupSubtopology("2", repartition_sources=(InternalTopicSpec(follows),)),
        GroupSubtopology(
            "3", (table,), repartition_sources=(InternalTopicSpec(joined),),
            copartition_groups=(CopartitionGroup((0,), (), (0,)),),
        ),
    ))  # fmt: skip
    stage.member(topology)
    stage.until(stage.all_tasks(2 + 4 + 2 + 5))
    assert [stage.log.partitions(each) for each in (named, follows, joined)] == [4, 2, 5]


def test_partitions_that_are_added_bring_tasks(stage: Stage) -> None:
    source = stage.topic("in", 1)
    stage.member(GroupTopology((GroupSubtopology("0", (source,)),)))
    stage.until(stage.all_tasks(1))
    stage.log.create_partitions(source, 3)
    stage.until(stage.all_tasks(3))


def test_one_member_may_ask_all_to_shut_down(stage: Stage) -> None:
    topology = counting(stage.app, stage.topic("in", 2))
    first, second = stage.member(topology), stage.member(topology)
    stage.until(lambda: first.owned.active and second.owned.active)
    first.ask_for_shutdown(stage.now_ms())
    stage.until(lambda: first.shutdown_wanted and second.shutdown_wanted)


def test_a_lost_answer_costs_nothing(stage: Stage) -> None:
    topology = counting(stage.app, stage.topic("in", 2))
    member = stage.member(topology)
    lost = _must(member.next_heartbeat(stage.now_ms()))
    assert stage.coordinator.heartbeat(lost).error == 0
    member.unanswered(stage.now_ms())
    stage.until(stage.all_tasks(4))
    second = stage.member(topology)
    stage.until(lambda: second.owned.active and stage.all_tasks(4)())
    for each in (member, second):
        due_ms = each.due_ms()
        assert due_ms is not None
        while (heartbeat := each.next_heartbeat(stage.now_ms())) is None:
            stage.pause()
        assert stage.coordinator.heartbeat(heartbeat).error == 0
        each.unanswered(stage.now_ms())
    stage.until(stage.all_tasks(4))
    assert (len(member.owned.active), len(second.owned.active)) == (2, 2)


def test_a_member_that_takes_its_time_keeps_its_tasks_from_others(stage: Stage) -> None:
    topology = GroupTopology((GroupSubtopology("0", (stage.topic("in", 2),)),))
    slow = stage.member(topology)
    stage.until(stage.all_tasks(2))
    second = stage.member(topology)

    def beat() -> None:
        for member in stage.members:
            stage.beat(member)
        stage.pause()

    for _ in range(PATIENCE_S * 1000 // STEP_MS):
        beat()
        if slow.work().release:
            break
    for _ in range(10):
        beat()
        assert not second.work().acquire
    assert stage.described().state == "Reconciling"
    stage.until(stage.all_tasks(2))
    assert len(second.owned.active) == 1


def test_a_static_member_that_comes_back_within_its_session_finds_its_tasks(stage: Stage) -> None:
    topology = counting(stage.app, stage.topic("in", 2))
    static, other = stage.member(topology, instance="one"), stage.member(topology)
    stage.until(lambda: static.owned.active and other.owned.active and stage.all_tasks(4)())
    before, epoch = (static.owned, other.owned), other.epoch
    static.leave(stage.now_ms(), comes_back=True)
    stage.until(lambda: static.state is MemberState.LEFT)
    stage.members.remove(static)
    again = stage.member(topology, instance="one", process=static.facts.process)
    stage.until(stage.all_tasks(4))
    assert ((again.owned, other.owned), other.epoch) == (before, epoch)
    assert sorted(each.instance or "" for each in stage.described().members) == ["", "one"]


def test_a_second_member_of_an_instance_id_is_refused_and_the_first_goes_on(stage: Stage) -> None:
    topology = counting(stage.app, stage.topic("in", 2))
    first = stage.member(topology, instance="one")
    stage.until(stage.all_tasks(4))
    second = stage.member(topology, instance="one")
    stage.until(lambda: second.failure)
    assert second.failure is not None
    assert second.failure.code == HeartbeatError.UNRELEASED_INSTANCE_ID
    stage.members.remove(second)
    stage.until(stage.all_tasks(4))
    assert first.state is MemberState.STABLE


def test_how_far_the_copies_of_a_member_go_is_known_to_the_group(stage: Stage) -> None:
    assert not stage.coordinator.set_group_settings(stage.app, {"streams.task.offset.interval.ms": "100"})
    member = stage.member(counting(stage.app, stage.topic("in", 1)))
    stage.until(stage.all_tasks(2))
    task = GroupTask("1", 0)
    member.report_offsets({task: 70}, {task: 90}, stage.now_ms())
    stage.until(lambda: stage.described().members[0].task_offsets)
    [described] = stage.described().members
    assert (described.task_offsets, described.task_end_offsets) == ({task: 70}, {task: 90})


def _must(heartbeat: Any) -> Any:
    assert heartbeat is not None
    return heartbeat


def test_of_first_starts_with_different_guarantees_at_the_same_time_one_goes_on(stage: Stage, tmp_path: Path) -> None:
    url = stage.log.url if stage.is_broker else f"sqlite:///{tmp_path / 'log.db'}"  # that of the stage is in memory
    program = Path(__file__).with_name("first_start.py")
    guarantees = ("exactly_once_v2", "at_least_once")
    with ExitStack() as stack:
        log = stack.enter_context(open_log(url))
        starts = []
        for each in guarantees:
            command = [sys.executable, str(program), url, each, str(tmp_path / each)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(process.communicate)
            starts.append(process)
        pipes = [(each.stdin, each.stdout) for each in starts]
        assert all(out and out.readline() == "ready\n" for _, out in pipes)
        for number in range(4):
            application = f"{stage.app}-{number}"
            log.create_topic(f"{application}-in", 1)
            for into, _ in pipes:
                assert into is not None
                into.write(f"{application}\n")
                into.flush()
            said = [out.readline() for _, out in pipes if out is not None]
            assert said.count("goes on\n") == 1, said
            winner = said.index("goes on\n")
            refusal_text = said[1 - winner]
            assert f"ConfigError: another instance of '{application}', process {starts[winner].pid} on" in refusal_text
            texts = f"starts just now with processing.guarantee={guarantees[winner]}, and this one has"
            assert texts in refusal_text
            assert "It goes on undisturbed" in refusal_text
