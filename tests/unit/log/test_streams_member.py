"""A member of a streams group, against a coordinator that follows a script."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from penstock.errors import InvalidStateError
from penstock.log.streams_groups.description import (
    Assignment,
    Endpoint,
    EndpointPartitions,
    GroupStatus,
    GroupSubtopology,
    GroupTask,
    GroupTopology,
    HeartbeatAnswer,
    HeartbeatError,
    StatusCode,
    StreamsHeartbeat,
)
from penstock.log.streams_groups.member import MemberFacts, MemberState, MemberWork, StreamsMember

TOPOLOGY = GroupTopology((GroupSubtopology("0", ("in",)),))
FACTS = MemberFacts(
    "app", "member-1", "process-1", TOPOLOGY, rack="rack-a", tags=(("zone", "eu"),), endpoint=Endpoint("host", 7070)
)
T0, T1, T2, T3 = (GroupTask("0", number) for number in range(4))
NONE: frozenset[GroupTask] = frozenset()
NOTHING = Assignment()


def active(*tasks: GroupTask) -> Assignment:
    return Assignment(active=frozenset(tasks))


def answer(epoch: int, assigned: Assignment | None = None, **more: object) -> HeartbeatAnswer:
    roles = {} if assigned is None else dict(assigned.roles)
    return HeartbeatAnswer(epoch=epoch, heartbeat_interval_ms=5_000, **roles, **more)  # type: ignore[arg-type]


class Script:
    """A member with its time, and what it has sent."""

    def __init__(self, facts: MemberFacts = FACTS) -> None:
        self.now_ms = 1_000
        self.member = StreamsMember(facts, self.now_ms)

    def send(self) -> StreamsHeartbeat:
        """Wait for the next heartbeat."""
        due_ms = self.member.due_ms()
        assert due_ms is not None
        self.now_ms = max(self.now_ms, due_ms)
        heartbeat = self.member.next_heartbeat(self.now_ms)
        assert heartbeat is not None
        return heartbeat

    def exchange(self, reply: HeartbeatAnswer) -> StreamsHeartbeat:
        heartbeat = self.send()
        self.member.answered(reply, self.now_ms)
        return heartbeat

    def state(self) -> MemberState:
        return self.member.state

    def take(self) -> MemberWork:
        """Do the work to acquire tasks."""
        work = self.member.work()
        assert work.acquire
        self.member.acquired(work, self.now_ms)
        return work

    def release(self) -> Assignment:
        tasks = self.member.work().release
        assert tasks
        self.member.released(tasks, self.now_ms)
        return tasks


@pytest.fixture
def joined() -> Script:
    """A member of epoch 3 with two tasks, which the coordinator knows to be with it."""
    script = Script()
    script.exchange(answer(3, active(T0, T1)))
    script.take()
    script.exchange(answer(3))
    return script


def test_a_member_joins_with_all_that_it_has_to_say() -> None:
    sent = Script().send()
    assert sent == StreamsHeartbeat(
        "app", "member-1", 0, -1, rack="rack-a", rebalance_timeout_ms=300_000, topology=TOPOLOGY, owned=NOTHING,
        process="process-1", tags=(("zone", "eu"),), endpoint=Endpoint("host", 7070),
    )  # fmt: skip


def test_after_it_has_opened_its_tasks_it_confirms_them_at_once_and_says_nothing_twice() -> None:
    script = Script()
    script.exchange(answer(3, active(T0, T1)))
    assert script.state() is MemberState.RECONCILING
    assert script.member.work() == MemberWork(acquire=active(T0, T1))
    before_ms = script.now_ms
    script.take()
    confirmation = script.exchange(answer(3))
    assert confirmation == StreamsHeartbeat("app", "member-1", 3, 0, owned=active(T0, T1))
    assert script.now_ms == before_ms
    assert script.state() is MemberState.STABLE
    assert script.exchange(answer(3)) == StreamsHeartbeat("app", "member-1", 3, 0)


def test_an_answer_without_tasks_changes_nothing(joined: Script) -> None:
    joined.exchange(answer(4))
    assert (joined.member.epoch, joined.member.owned, joined.member.work()) == (4, active(T0, T1), MemberWork())


def test_a_role_that_is_missing_in_an_answer_stays_as_it_is(joined: Script) -> None:
    joined.exchange(HeartbeatAnswer(epoch=4, heartbeat_interval_ms=5_000, standby=frozenset({T2})))
    joined.take()
    assert joined.member.owned == Assignment(frozenset({T0, T1}), frozenset({T2}))


def test_a_new_member_asks_every_20_ms_then_every_100_ms_then_at_the_pace_of_the_coordinator() -> None:
    script = Script()
    script.exchange(answer(3, active()))
    times = []
    for _ in range(190):
        script.exchange(answer(3))
        times.append(script.now_ms)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert set(gaps[:70]) == {20}
    assert set(gaps[80:150]) == {100}
    assert set(gaps[170:]) == {5_000}


def test_a_member_revokes_before_it_acquires(joined: Script) -> None:
    joined.exchange(answer(3, active(T1, T2)))
    assert joined.member.work() == MemberWork(release=active(T0))
    with pytest.raises(InvalidStateError):
        joined.member.acquired(MemberWork(acquire=active(T2)), joined.now_ms)
    joined.release()
    assert joined.member.work() == MemberWork(acquire=active(T2))
    joined.take()
    assert joined.member.owned == active(T1, T2)


def test_what_it_has_given_up_is_said_at_once(joined: Script) -> None:
    joined.exchange(answer(3, active(T1)))
    joined.now_ms += 1_700  # the commit takes its time
    assert joined.release() == active(T0)
    assert joined.member.due_ms() == joined.now_ms
    assert joined.exchange(answer(4)).owned == active(T1)
    assert joined.send() == StreamsHeartbeat("app", "member-1", 4, 0)


def test_while_it_reconciles_it_stays_in_the_group(joined: Script) -> None:
    joined.exchange(answer(3, active(T1)))
    for said in (active(T0, T1), None, None):
        heartbeat = joined.exchange(answer(3))
        assert (heartbeat.epoch, heartbeat.owned) == (3, said)
        assert joined.member.work() == MemberWork(release=active(T0))


@pytest.mark.parametrize("copies", [Assignment(standby=frozenset({T0})), Assignment(warmup=frozenset({T0}))])
def test_a_copy_becomes_the_active_task_without_being_given_up_before(copies: Assignment) -> None:
    script = Script()
    script.exchange(answer(3, copies))
    script.take()
    script.exchange(answer(3))
    script.exchange(answer(4, active(T0)))
    assert script.member.work() == MemberWork(acquire=active(T0))
    script.take()
    assert script.member.owned == active(T0)
    assert script.send().owned == active(T0)


def test_a_target_that_changes_while_tasks_are_given_up_counts_at_once(joined: Script) -> None:
    joined.exchange(answer(3, active(T1)))
    joined.exchange(answer(3, active(T0)))
    assert joined.member.work() == MemberWork(release=active(T1))


@pytest.mark.parametrize(
    "code", [HeartbeatError.FENCED_MEMBER_EPOCH, HeartbeatError.UNKNOWN_MEMBER_ID, HeartbeatError.GROUP_ID_NOT_FOUND]
)
def test_a_fenced_member_drops_its_tasks_before_it_joins_again(joined: Script, code: HeartbeatError) -> None:
    joined.exchange(HeartbeatAnswer(error=code))
    assert joined.state() is MemberState.FENCED
    assert joined.member.work() == MemberWork(drop=active(T0, T1), life=1)
    assert joined.member.next_heartbeat(joined.now_ms + 60_000) is None
    joined.member.dropped(joined.now_ms)
    assert joined.state() is MemberState.JOINING
    again = joined.send()
    assert (again.epoch, again.member, again.topology, again.owned) == (0, "member-1", TOPOLOGY, NOTHING)


def test_a_task_that_was_opened_in_an_earlier_life_is_not_taken(joined: Script) -> None:
    joined.exchange(answer(3, active(T0, T1, T2)))
    opening = joined.member.work()
    joined.exchange(HeartbeatAnswer(error=HeartbeatError.FENCED_MEMBER_EPOCH))
    joined.member.dropped(joined.now_ms)
    joined.exchange(answer(7, active(T2)))
    with pytest.raises(InvalidStateError, match="may not have these tasks any more"):
        joined.member.acquired(opening, joined.now_ms)
    joined.take()
    assert joined.member.owned == active(T2)


@pytest.mark.parametrize(
    "code",
    [
        HeartbeatError.NOT_COORDINATOR,
        HeartbeatError.COORDINATOR_NOT_AVAILABLE,
        HeartbeatError.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_a_coordinator_that_moves_is_asked_again_with_everything(joined: Script, code: HeartbeatError) -> None:
    joined.exchange(HeartbeatAnswer(error=code))
    at_ms = joined.now_ms
    again = joined.exchange(answer(3, active(T0, T1)))
    assert joined.now_ms - at_ms == 100
    assert again == StreamsHeartbeat(
        "app", "member-1", 3, 0, rack="rack-a", rebalance_timeout_ms=300_000, owned=active(T0, T1),
        process="process-1", tags=(("zone", "eu"),), endpoint=Endpoint("host", 7070),
    )  # fmt: skip
    assert joined.exchange(answer(3)).process is None
    assert joined.state() is MemberState.STABLE


def test_an_endpoint_that_the_broker_fails_at_is_sent_once_the_group_is_well() -> None:
    script = Script()
    assert (
        script.exchange(HeartbeatAnswer(error=HeartbeatError.UNKNOWN_SERVER_ERROR, message="oh")).endpoint is not None
    )
    assert script.member.trouble is not None
    assert script.member.trouble.message == "oh"
    missing = (GroupStatus(StatusCode.MISSING_SOURCE_TOPICS, "in"),)
    assert script.exchange(answer(1, active(), status=missing)).endpoint is None
    assert (script.member.trouble, script.member.status) == (None, missing)
    for _ in range(3):
        assert script.exchange(answer(1, status=missing)).endpoint is None
    assert script.exchange(answer(2, active(T0))).endpoint is None
    script.take()
    told = script.exchange(answer(2, active(T0)))
    assert (told.endpoint, told.owned) == (Endpoint("host", 7070), active(T0))
    assert script.exchange(answer(2)).endpoint is None
    assert script.state() is MemberState.STABLE


def test_pauses_after_lost_heartbeats_grow_up_to_a_second(joined: Script) -> None:
    pauses = []
    for _ in range(7):
        joined.send()
        joined.member.unanswered(joined.now_ms)
        due_ms = joined.member.due_ms()
        assert due_ms is not None
        pauses.append(due_ms - joined.now_ms)
    assert pauses == [100, 200, 400, 800, 1_000, 1_000, 1_000]
    assert joined.member.owned == active(T0, T1)


def test_one_heartbeat_at_a_time(joined: Script) -> None:
    joined.send()
    assert joined.member.next_heartbeat(joined.now_ms + 60_000) is None
    joined.member.answered(answer(3), joined.now_ms)
    with pytest.raises(InvalidStateError, match="no heartbeat is on its way"):
        joined.member.answered(answer(3), joined.now_ms)


@pytest.mark.parametrize(
    "code",
    [
        HeartbeatError.GROUP_AUTHORIZATION_FAILED,
        HeartbeatError.UNSUPPORTED_VERSION,
        HeartbeatError.INVALID_REQUEST,
        HeartbeatError.GROUP_MAX_SIZE_REACHED,
        HeartbeatError.UNRELEASED_INSTANCE_ID,
        HeartbeatError.FENCED_INSTANCE_ID,
        HeartbeatError.STREAMS_INVALID_TOPOLOGY,
        HeartbeatError.STREAMS_INVALID_TOPOLOGY_EPOCH,
        HeartbeatError.STREAMS_TOPOLOGY_FENCED,
        9_999,
    ],
)
def test_a_refused_member_fails_and_drops_its_tasks(joined: Script, code: int) -> None:
    joined.exchange(HeartbeatAnswer(error=code, message="no"))
    failure = joined.member.failure
    assert failure is not None
    assert (joined.state(), failure.code, failure.message) == (MemberState.FAILED, code, "no")
    assert joined.member.work().drop == active(T0, T1)
    joined.member.dropped(joined.now_ms)
    assert joined.member.due_ms() is None


def test_a_group_of_consumers_is_not_asked_again() -> None:
    script = Script()
    script.exchange(
        HeartbeatAnswer(error=HeartbeatError.GROUP_ID_NOT_FOUND, message="Group app is not a streams group.")
    )
    assert script.state() is MemberState.FAILED
    assert script.member.failure is not None
    assert script.member.failure.message == "Group app is not a streams group."


@pytest.mark.parametrize("code", list(StatusCode))
def test_what_is_wrong_with_the_group_is_kept_until_it_passes(joined: Script, code: StatusCode) -> None:
    joined.exchange(answer(3, status=(GroupStatus(code, "why"),)))
    assert joined.member.status == (GroupStatus(code, "why"),)
    assert joined.member.shutdown_wanted is (code is StatusCode.SHUTDOWN_APPLICATION)
    assert joined.member.owned == active(T0, T1)
    joined.exchange(answer(3))
    assert not joined.member.status


def test_a_status_of_a_later_broker_does_no_harm(joined: Script) -> None:
    joined.exchange(answer(3, status=(GroupStatus(77, "new"),)))
    assert joined.member.status == (GroupStatus(77, "new"),)


def test_topics_that_are_missing_take_the_tasks_away(joined: Script) -> None:
    joined.exchange(answer(4, active(), status=(GroupStatus(StatusCode.MISSING_SOURCE_TOPICS, "in"),)))
    assert joined.release() == active(T0, T1)


def test_a_member_that_leaves_gives_up_its_tasks_first(joined: Script) -> None:
    joined.member.leave(joined.now_ms)
    assert joined.state() is MemberState.LEAVING
    assert joined.member.work() == MemberWork(release=active(T0, T1))
    while_closing = joined.exchange(answer(3, active(T0, T1, T2)))
    assert (while_closing.epoch, joined.member.work()) == (3, MemberWork(release=active(T0, T1)))
    joined.member.released(active(T0), joined.now_ms)
    joined.member.released(active(T1), joined.now_ms)
    assert joined.exchange(answer(-1)) == StreamsHeartbeat("app", "member-1", -1, 0)
    assert joined.state() is MemberState.LEFT
    assert joined.member.due_ms() is None


def test_a_member_that_nobody_knows_has_left_at_once() -> None:
    script = Script()
    script.member.leave(script.now_ms)
    assert script.member.next_heartbeat(script.now_ms) is None
    assert script.state() is MemberState.LEFT


def test_a_member_whose_join_has_no_answer_says_that_it_leaves() -> None:
    script = Script()
    script.send()
    script.member.leave(script.now_ms)
    script.member.unanswered(script.now_ms)
    assert script.exchange(HeartbeatAnswer(error=HeartbeatError.UNKNOWN_MEMBER_ID)).epoch == -1
    assert script.state() is MemberState.LEFT


def test_leaving_is_said_again_until_it_is_heard(joined: Script) -> None:
    joined.member.leave(joined.now_ms)
    joined.release()
    assert joined.send().epoch == -1
    joined.member.unanswered(joined.now_ms)
    assert joined.exchange(answer(-1)).epoch == -1
    assert joined.state() is MemberState.LEFT


def test_a_member_that_is_fenced_while_it_leaves_only_drops_its_tasks(joined: Script) -> None:
    joined.member.leave(joined.now_ms)
    joined.exchange(HeartbeatAnswer(error=HeartbeatError.UNKNOWN_MEMBER_ID))
    assert joined.member.work().drop == active(T0, T1)
    joined.member.dropped(joined.now_ms)
    assert joined.member.next_heartbeat(joined.now_ms) is None
    assert joined.state() is MemberState.LEFT


@pytest.mark.parametrize(("comes_back", "epoch"), [(True, -2), (False, -1)])
def test_a_static_member_may_come_back(*, comes_back: bool, epoch: int) -> None:
    script = Script(replace(FACTS, instance="one"))
    assert script.exchange(answer(3, active(T0))).instance == "one"
    script.take()
    script.member.leave(script.now_ms, comes_back=comes_back)
    script.release()
    left = script.exchange(answer(epoch))
    assert (left.epoch, left.instance) == (epoch, "one")


def test_a_member_without_an_instance_id_does_not_come_back(joined: Script) -> None:
    joined.member.leave(joined.now_ms, comes_back=True)
    joined.release()
    assert joined.send().epoch == -1


def test_the_wish_to_shut_down_is_sent_at_once_and_until_it_is_heard(joined: Script) -> None:
    joined.member.ask_for_shutdown(joined.now_ms)
    assert joined.member.due_ms() == joined.now_ms
    assert joined.send().shutdown
    joined.member.unanswered(joined.now_ms)
    assert joined.exchange(answer(3)).shutdown
    assert not joined.exchange(answer(3)).shutdown


def test_endpoints_are_kept_until_others_come(joined: Script) -> None:
    known = (EndpointPartitions(Endpoint("other", 1), frozenset({("in", 0)}), frozenset()),)
    joined.exchange(answer(3, endpoint_epoch=8, endpoints=known))
    assert joined.exchange(answer(3, endpoint_epoch=8)).endpoint_epoch == 8
    assert joined.member.endpoints == known
    joined.exchange(answer(3, endpoint_epoch=9, endpoints=()))
    assert not joined.member.endpoints


def test_offsets_are_not_sent_to_a_coordinator_that_does_not_want_them(joined: Script) -> None:
    joined.member.report_offsets({T0: 5}, {T0: 9}, joined.now_ms)
    assert joined.exchange(answer(3)).task_offsets is None


def test_offsets_are_sent_at_their_interval_if_they_have_changed(joined: Script) -> None:
    def due(seconds: int) -> bool:
        joined.now_ms += 1_000 * seconds
        return joined.exchange(answer(3, task_offset_interval_ms=60_000)).task_offsets is not None

    assert not due(0)
    joined.member.report_offsets({T0: 5}, {T0: 9}, joined.now_ms)
    assert due(60)
    assert not due(10)
    assert not due(60)
    joined.member.report_offsets({T0: 6}, {T0: 9}, joined.now_ms)
    assert due(0)


def test_a_warm_up_task_that_has_caught_up_is_reported_at_once(joined: Script) -> None:
    settings: dict[str, Any] = {"task_offset_interval_ms": 60_000, "acceptable_recovery_lag": 10}
    joined.exchange(answer(4, Assignment(frozenset({T0, T1}), NONE, frozenset({T2})), **settings))
    joined.take()
    joined.exchange(answer(4, **settings))
    joined.member.report_offsets({T2: 5}, {T2: 100}, joined.now_ms)
    assert joined.member.due_ms() != joined.now_ms
    joined.member.report_offsets({T2: 91}, {T2: 100}, joined.now_ms)
    assert joined.member.due_ms() == joined.now_ms
    sent = joined.exchange(answer(4, **settings))
    assert (sent.task_offsets, sent.task_end_offsets) == ({T2: 91}, {T2: 100})
