"""Threads of several instances as members of one group, whose coordinator is an embedded log."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from epoch_support import plan_of_tasks
from group_support import EPOCH, Instance

from penstock.engines.threads.hosting.control_channel import Member
from penstock.errors import LogUnavailableError, TopologyError
from penstock.log.base import OffsetAndMetadata, StreamsMembership, TopicPartition
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.embedded.streams_groups import EmbeddedStreamsCoordinator
from penstock.log.open import open_log
from penstock.log.streams_groups.description import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    GroupSubtopology,
    GroupTopology,
    HeartbeatAnswer,
    StreamsGroupDescription,
    StreamsHeartbeat,
)
from penstock.log.streams_groups.group import GroupSettings

TASKS = 4


class Away:
    """A coordinator that answers only sometimes."""

    def __init__(self, coordinator: EmbeddedStreamsCoordinator) -> None:
        self.coordinator, self.is_away = coordinator, False
        self.asked: Counter[str] = Counter()  # heartbeats by member
        self.describing: Callable[[str], StreamsGroupDescription | None] = coordinator.describe

    def heartbeat(self, heartbeat: StreamsHeartbeat) -> HeartbeatAnswer:
        if self.is_away:
            raise LogUnavailableError("nobody answers")
        self.asked[heartbeat.member] += 1
        return self.coordinator.heartbeat(heartbeat)

    def describe(self, group: str) -> StreamsGroupDescription | None:
        return self.describing(group)

    def commit(
        self, group: str, membership: StreamsMembership, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        self.coordinator.commit(group, membership, offsets)

    def set_group_settings(self, group: str, settings: Mapping[str, str]) -> Mapping[str, str]:
        return self.coordinator.set_group_settings(group, settings)

    def close(self) -> None:
        self.coordinator.close()


class Stage:
    def __init__(self, log: EmbeddedLog, heartbeat_interval_ms: int = 200) -> None:
        self.now = 1_000_000
        settings = GroupSettings(heartbeat_interval_ms=heartbeat_interval_ms)
        self.coordinator = Away(EmbeddedStreamsCoordinator(log, settings, lambda: self.now))
        self.instances: list[Instance] = []

    def instance(self, *threads: str, tasks: int = TASKS, **settings: Any) -> Instance:
        made = Instance(self.coordinator, lambda: self.now, tasks, count=len(threads), **settings)
        self.instances.append(made)
        made.begin(*threads)
        return made

    def beat(self, times: int = 1, instances: Sequence[Instance] | None = None) -> None:
        """Let so much time pass that each member sends a heartbeat."""
        for _ in range(times):
            self.now += 200
            for each in self.instances if instances is None else instances:
                each.beat()

    def settle(self) -> None:
        """Let all threads do as they are asked, until nothing changes any more."""
        for _ in range(20):
            self.beat()
            for each in self.instances:
                each.work()
                self.check_alone()

    def check_alone(self) -> None:
        held = [task for each in self.instances for owned in each.owned().values() for task in owned]
        assert len(held) == len(set(held)), "a task has two owners"

    def sizes(self) -> list[list[int]]:
        return [[len(owned) for owned in each.owned().values()] for each in self.instances]


@pytest.fixture
def log() -> Iterator[EmbeddedLog]:
    with open_log(f"memory://{uuid.uuid4().hex}") as opened:
        assert isinstance(opened, EmbeddedLog)
        opened.create_topic("in", TASKS)
        yield opened


@pytest.fixture
def stage(log: EmbeddedLog) -> Stage:
    return Stage(log)


def test_the_threads_of_an_instance_share_the_tasks_without_opening_any_that_they_close_again(stage: Stage) -> None:
    one = stage.instance("thread-0", "thread-1")
    stage.settle()
    assert stage.sizes() == [[2, 2]]
    assert one.epoch.is_running
    for thread in one.threads.values():
        lists = {each["assign"]["revision"]: each["assign"]["active"] for each in thread.messages if "assign" in each}
        assert [len(active) for active in lists.values()] == [0, 2]


def test_no_thread_joins_before_all_that_have_come_are_ready(stage: Stage) -> None:
    two = Instance(stage.coordinator, lambda: stage.now, TASKS, count=2)
    two.hello("thread-0", pid=1)
    two.hello("thread-1", pid=2)
    two.work("thread-0")
    two.beat()
    assert stage.coordinator.describe("app") is None
    two.work("thread-1")
    two.beat()
    described = stage.coordinator.describe("app")
    assert described is not None
    assert len(described.members) == 2


def test_the_name_in_which_a_thread_commits_comes_before_its_tasks(stage: Stage) -> None:
    one = stage.instance("thread-0")
    stage.settle()
    messages = one.threads["thread-0"].messages
    first_tasks = next(at for at, each in enumerate(messages) if each.get("assign", {}).get("active"))
    named = [each["member"] for each in messages[:first_tasks] if "member" in each]
    assert named
    assert named[-1][0] == messages[first_tasks]["assign"]["member"]


def test_a_second_instance_gets_its_share_once_the_first_has_let_go_of_it(stage: Stage) -> None:
    one = stage.instance("thread-0")
    stage.settle()
    two = stage.instance("thread-0")
    for _ in range(5):
        stage.beat()
        two.work()
    assert stage.sizes() == [[TASKS], [0]]
    wanted = one.threads["thread-0"].newest("assign")
    assert len(wanted["active"]) == TASKS // 2
    assert wanted["member"]  # it commits what it gives up
    one.work()
    stage.settle()
    assert stage.sizes() == [[2], [2]]
    assert all(each.epoch.is_running for each in stage.instances)


def test_an_instance_that_ends_leaves_its_tasks_to_the_other_at_once(stage: Stage) -> None:
    one, two = stage.instance("thread-0"), stage.instance("thread-0")
    stage.settle()
    two.epoch.stop()
    two.threads["thread-0"].owned.clear()
    two.report("thread-0", "ended")
    two.beat()
    assert two.members.owners.keys() == {*two.members.owners}
    stage.beat(3, [one])
    one.work()
    assert len(one.threads["thread-0"].owned) == TASKS


def test_a_thread_that_dies_leaves_at_once_and_its_next_attempt_is_another_member(stage: Stage) -> None:
    one, two = stage.instance("thread-0", "thread-1"), stage.instance("thread-0", "thread-1")
    stage.settle()
    dead = one.threads["thread-0"].newest("member")[0]
    one.threads["thread-0"].owned.clear()
    one.epoch.fenced("thread-0")
    stage.settle()
    described = stage.coordinator.describe("app")
    assert described is not None
    assert dead not in {each.member for each in described.members}
    assert sum(map(sum, stage.sizes())) == TASKS
    one.hello("thread-0", pid=9)
    one.work()
    stage.settle()
    assert stage.sizes() == [[1, 1], [1, 1]]
    assert one.threads["thread-0"].newest("member")[0] != dead
    assert two.epoch.is_running


def test_the_tasks_of_a_thread_that_dies_go_to_the_others_of_its_instance_without_a_pause(log: EmbeddedLog) -> None:
    stage = Stage(log, heartbeat_interval_ms=5_000)
    one = stage.instance("thread-0", "thread-1")
    stage.settle()
    stage.beat(60)  # nobody waits for tasks any more, and asks often
    one.threads["thread-0"].owned.clear()
    one.epoch.fenced("thread-0")
    for _ in range(3):
        one.beat()  # no time passes
    one.work("thread-1")
    assert len(one.threads["thread-1"].owned) == TASKS


def test_one_member_of_an_instance_looks_often_whether_the_group_has_changed_and_the_others_follow_it(
    log: EmbeddedLog,
) -> None:
    stage = Stage(log, heartbeat_interval_ms=5_000)
    one = stage.instance("thread-0", "thread-1", "thread-2")
    stage.settle()
    stage.beat(60)
    stage.coordinator.asked.clear()
    stage.beat(40)
    assert sorted(stage.coordinator.asked.values()) == [4, 4, 40]

    members = {*stage.coordinator.asked}
    stage.coordinator.asked.clear()
    stage.instance("thread-0")
    stage.beat(2)
    one.beat()  # no time passes
    assert members < {*stage.coordinator.asked}
    assert sorted(len(thread.newest("assign")["active"]) for thread in one.threads.values()) == [1, 1, 1]


def test_who_looks_is_another_member_once_the_first_has_gone(log: EmbeddedLog) -> None:
    stage = Stage(log, heartbeat_interval_ms=5_000)
    one = stage.instance("thread-0", "thread-1")
    stage.settle()
    one.threads["thread-0"].owned.clear()
    one.epoch.fenced("thread-0")
    stage.settle()
    stage.beat(60)
    stage.coordinator.asked.clear()
    stage.beat(10)
    assert [*stage.coordinator.asked.values()] == [10]


def test_an_instance_that_was_silent_closes_its_tasks_without_a_commit_and_joins_again(stage: Stage) -> None:
    one, two = stage.instance("thread-0"), stage.instance("thread-0")
    stage.settle()
    stage.beat(300, [two])
    stage.beat(1, [one])
    wanted = one.threads["thread-0"].newest("assign")
    assert (wanted["active"], wanted.get("member")) == ([], None)  # of no member: they are closed without a commit
    two.work()
    assert len(two.threads["thread-0"].owned) == TASKS
    one.work()
    stage.settle()
    assert stage.sizes() == [[2], [2]]


def test_a_thread_whose_commit_was_refused_becomes_another_member(stage: Stage) -> None:
    one = stage.instance("thread-0", "thread-1")
    stage.settle()
    thread = one.threads["thread-0"]
    thread.fenced = thread.newest("member")[0]
    thread.owned = set()
    one.report("thread-0")
    stage.settle()
    assert thread.newest("member")[0] != thread.fenced
    assert stage.sizes() == [[2, 2]]
    assert one.epoch.is_running


def test_a_coordinator_that_does_not_answer_for_a_while_changes_nothing(stage: Stage) -> None:
    one = stage.instance("thread-0", "thread-1")
    stage.settle()
    before = one.owned()
    stage.coordinator.is_away = True
    stage.beat(10)
    stage.coordinator.is_away = False
    stage.settle()
    assert one.owned() == before
    assert one.epoch.is_running


def test_a_group_with_another_topology_refuses_an_instance_with_words(stage: Stage) -> None:
    stage.instance("thread-0")
    stage.settle()
    two = Instance(stage.coordinator, lambda: stage.now, TASKS, count=1)
    other = GroupTopology((GroupSubtopology("0", ("other",)),))
    two.members._identities = replace(
        two.members._identities, facts=replace(two.members._identities.facts, topology=other)
    )
    two.begin("thread-0")
    two.beat()
    assert isinstance(two.epoch.error, TopologyError)
    assert "the topology differs from that of the running instances of 'app'" in two.epoch.error.message
    stage.settle()
    assert stage.sizes() == [[TASKS]]


def test_tasks_that_the_plan_does_not_know_yet_wait_for_a_new_plan(stage: Stage) -> None:
    one = stage.instance("thread-0", tasks=2)
    stage.settle()
    assert one.owned() == {"thread-0": {"0_0", "0_1"}}
    assert one.epoch.wants_plan()
    one.epoch.extend(replace(one.job, plan=plan_of_tasks(TASKS)))
    one.work()
    assert one.owned() == {"thread-0": {"0_0", "0_1", "0_2", "0_3"}}
    assert not one.epoch.wants_plan()


def test_at_the_end_all_members_leave(stage: Stage) -> None:
    one = stage.instance("thread-0", "thread-1")
    stage.settle()
    one.epoch.end()
    assert one.members.beat() is None
    described = stage.coordinator.describe("app")
    assert described is not None
    assert described.members == ()


def test_topics_that_are_gone_are_named_once(stage: Stage, log: EmbeddedLog, caplog: pytest.LogCaptureFixture) -> None:
    stage.instance("thread-0", "thread-1")
    stage.settle()
    for _ in range(2):
        log.delete_topic("in")
        stage.settle()
        assert stage.sizes() == [[0, 0]]
        log.create_topic("in", TASKS)
        stage.settle()
        assert stage.sizes() == [[2, 2]]
    assert [each.getMessage() for each in caplog.records] == 2 * [
        "group app gives no tasks away until its topics are there: Source topics in are missing."
    ]


def test_a_thread_that_is_busy_does_not_keep_others_from_the_tasks_that_it_has_lost(stage: Stage) -> None:
    one = stage.instance("thread-0", "thread-1")
    stage.settle()
    busy, other = one.threads["thread-0"], one.threads["thread-1"]
    lost = set(busy.owned)
    stage.coordinator.heartbeat(StreamsHeartbeat("app", busy.newest("member")[0], LEAVE_EPOCH))
    for _ in range(20):
        stage.beat()
        one.work("thread-1")
    assert (busy.newest("assign")["active"], len(other.owned), lost <= other.owned) == ([], TASKS, True)
    stage.settle()
    assert stage.sizes() == [[2, 2]]


def test_the_only_thread_of_an_instance_that_dies_leaves_at_once_and_comes_back(stage: Stage) -> None:
    one = stage.instance("thread-0")
    stage.instance("thread-0")
    stage.settle()
    one.epoch.on_message(Member("thread-0", EPOCH), {"gone": True})
    assert one.epoch.lost(lambda _: True) == ["thread-0"]
    one.epoch.fenced("thread-0")
    one.threads["thread-0"].owned.clear()
    assert not one.epoch.is_running
    stage.settle()
    assert stage.sizes() == [[0], [TASKS]]
    one.hello("thread-0", pid=9)
    one.work()
    stage.settle()
    assert stage.sizes() == [[2], [2]]
    assert one.epoch.is_running


def test_why_a_group_refuses_a_member_is_asked_once_and_nobody_waits_for_the_answer(stage: Stage) -> None:
    """It is a request: threads report meanwhile, and the epoch ends with the answer."""
    one = stage.instance("thread-0")
    stage.settle()
    asked: list[int] = []

    def reported_meanwhile(group: str) -> StreamsGroupDescription | None:
        asked.append(1)
        reporting = threading.Thread(target=lambda: two.members.lists, daemon=True)
        reporting.start()
        reporting.join(60)
        assert not reporting.is_alive(), "the lock is held while the group is described"
        return stage.coordinator.coordinator.describe(group)

    other = GroupTopology((GroupSubtopology("0", ("elsewhere",)),))
    two = Instance(stage.coordinator, lambda: stage.now, TASKS, count=1, topology=other)
    stage.coordinator.describing = reported_meanwhile
    two.begin("thread-0")
    for _ in range(5):
        stage.now += 200
        two.beat()
    assert isinstance(two.epoch.error, TopologyError)
    assert asked == [1]
    assert one.epoch.error is None


# Warm-ups


def test_tasks_go_to_another_place_once_their_state_is_there(stage: Stage) -> None:
    one = stage.instance("a", place="here")
    stage.settle()
    two = stage.instance("b", place="there")
    stage.settle()
    assert stage.sizes() == [[TASKS], [0]]
    assert len(two.threads["b"].followed) == 2  # max.warmup.replicas
    two.lag = 10_001
    two.report("b")
    stage.settle()
    assert stage.sizes() == [[TASKS], [0]]
    warm = two.threads["b"].followed
    two.lag = 10_000
    two.report("b")
    stage.settle()
    assert two.threads["b"].owned == warm
    assert not one.threads["a"].owned & warm


def test_more_warm_ups_follow_when_some_have_caught_up(stage: Stage) -> None:
    stage.coordinator.set_group_settings("app", {"streams.num.warmup.replicas": "1"})
    stage.instance("a", place="here")
    stage.settle()
    two = stage.instance("b", place="there")
    two.lag = 0
    stage.settle()
    assert stage.sizes() == [[2], [2]]
    lists = [each["assign"] for each in two.threads["b"].messages if "assign" in each]
    assert [len(each["standby"]) for each in lists][:2] == [0, 1]
    warm = [task for each in lists for task in each["standby"]]
    assert set(warm) == two.threads["b"].owned


def test_instances_of_one_place_share_at_once(stage: Stage) -> None:
    stage.instance("a", place="here")
    stage.settle()
    two = stage.instance("b", place="here")
    stage.settle()
    assert stage.sizes() == [[2], [2]]
    assert not two.threads["b"].followed


def test_a_task_whose_owner_has_gone_does_not_wait_for_a_warm_up(stage: Stage) -> None:
    one = stage.instance("a", place="here")
    stage.settle()
    two = stage.instance("b", place="there")
    stage.settle()
    one.epoch.end()
    stage.instances.remove(one)
    one.beat()
    stage.settle()
    assert len(two.threads["b"].owned) == TASKS


def test_a_group_without_warm_ups_moves_tasks_at_once(stage: Stage) -> None:
    stage.coordinator.set_group_settings("app", {"streams.num.warmup.replicas": "0"})
    stage.instance("a", place="here")
    stage.settle()
    stage.instance("b", place="there")
    stage.settle()
    assert stage.sizes() == [[2], [2]]


@pytest.mark.parametrize("interval_ms", [0, 60_000], ids=["older", "newer"])
def test_a_coordinator_that_asks_for_no_offsets_hears_of_no_copies(stage: Stage, interval_ms: int) -> None:
    stage.coordinator.set_group_settings("app", {"streams.num.standby.replicas": "1"})
    heard: list[StreamsHeartbeat] = []
    real = stage.coordinator.heartbeat

    def heartbeat(sent: StreamsHeartbeat) -> HeartbeatAnswer:
        heard.append(sent)
        return replace(real(sent), task_offset_interval_ms=interval_ms)

    stage.coordinator.heartbeat = heartbeat  # type: ignore[method-assign]
    stage.instance("a")
    two = stage.instance("b")
    two.lag = 0
    stage.settle()
    two.report("b")
    stage.now += 60_000
    stage.settle()
    assert two.threads["b"].followed
    assert any(each.task_offsets for each in heard) == (interval_ms > 0)
    assert all(each.place == "" for each in heard)


# Static members


def test_a_static_instance_that_comes_back_within_its_session_finds_its_tasks_and_nothing_moves(stage: Stage) -> None:
    one = stage.instance("a", static="one")
    two = stage.instance("b", static="two")
    stage.settle()
    mine, others = one.threads["a"].owned, two.threads["b"].owned
    assert (len(mine), len(others)) == (2, 2)
    one.epoch.end()
    one.beat()
    stage.instances.remove(one)
    stage.settle()
    assert two.threads["b"].owned == others
    back = stage.instance("a", static="one")
    revision = two.threads["b"].revision
    stage.settle()
    assert (back.threads["a"].owned, two.threads["b"].owned) == (mine, others)
    assert two.threads["b"].revision == revision


def test_the_tasks_of_a_static_instance_that_stays_away_go_to_others(stage: Stage) -> None:
    one = stage.instance("a", static="one")
    two = stage.instance("b", static="two")
    stage.settle()
    one.epoch.end()
    one.beat()
    stage.instances.remove(one)
    stage.beat(times=300)
    stage.settle()
    assert len(two.threads["b"].owned) == TASKS


def test_a_thread_that_comes_back_has_its_place_again(stage: Stage) -> None:
    one = stage.instance("a", "b", static="one")
    stage.settle()
    before = one.owned()
    one.hello("a", pid=99)
    stage.settle()
    assert one.owned() == before


def test_a_thread_that_comes_back_waits_until_the_group_has_heard_of_its_end(stage: Stage) -> None:
    one = stage.instance("a", "b", static="one")
    stage.settle()
    before = one.owned()
    real = stage.coordinator.heartbeat

    def heartbeat(sent: StreamsHeartbeat) -> HeartbeatAnswer:
        if sent.epoch == LEAVE_STATIC_EPOCH:
            raise LogUnavailableError("its coordinator moves")
        return real(sent)

    stage.coordinator.heartbeat = heartbeat  # type: ignore[method-assign]
    one.hello("a", pid=99)
    stage.beat(times=200)  # the session of 45 s goes on with the heartbeats of the other thread alone
    assert one.epoch.error is None
    stage.coordinator.heartbeat = real  # type: ignore[method-assign]
    stage.settle()
    assert one.epoch.error is None
    assert one.owned() == before


@pytest.mark.parametrize("looks", [1, 200], ids=["at once", "after its end has been given up"])
def test_the_next_epoch_of_a_static_instance_says_that_the_one_before_has_ended(stage: Stage, looks: int) -> None:
    one = stage.instance("a", static="one")
    stage.settle()
    before = one.owned()
    stage.coordinator.is_away = True
    one.epoch.end()
    stage.beat(times=looks)
    stage.instances.remove(one)
    stage.coordinator.is_away = False
    again = stage.instance("a", static="one", leaving=one.members.take_leaving())
    stage.settle()
    assert again.epoch.error is None
    assert again.owned() == before


def test_a_second_instance_with_the_same_id_is_refused_and_the_first_goes_on(stage: Stage) -> None:
    one = stage.instance("a", static="one")
    stage.settle()
    two = stage.instance("a", static="one")
    stage.settle()
    assert two.epoch.error is not None
    assert "has the instance id one-a" in two.epoch.error.message
    assert two.epoch.error.hint.startswith("Another member has this group.instance.id: stop it")
    assert (len(one.threads["a"].owned), one.epoch.error) == (TASKS, None)


@pytest.mark.parametrize(("threads", "most"), [(1, 55), (4, 55 * 4), (40, 20 * 40)])
def test_each_of_many_threads_that_join_asks_less_often(stage: Stage, threads: int, most: int) -> None:
    instance = stage.instance(*(f"thread-{number}" for number in range(threads)), tasks=threads)
    for _ in range(100):
        instance.beat()
        instance.work()
        stage.now += 5
    stage.coordinator.asked.clear()
    for _ in range(1_000 // 5):  # within the first 1.5 seconds
        instance.beat()
        stage.now += 5
    assert threads * 9 <= sum(stage.coordinator.asked.values()) <= most
