"""Streams groups over both coordinators, a broker and the embedded log: the same members, the same outcome."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.errors import FencedError, LogUnavailableError, TopologyError
from penstock.log.base import OffsetAndMetadata, TopicLog, TopicPartition
from penstock.log.embedded.streams_groups import EmbeddedStreamsCoordinator
from penstock.log.open import open_log
from penstock.log.streams_groups.coordinator import StreamsCoordinator
from penstock.log.streams_groups.description import (
    Assignment,
    CopartitionGroup,
    Endpoint,
    GroupDescription,
    GroupSubtopology,
    GroupTask,
    GroupTopology,
    InternalTopicSpec,
)
from penstock.log.streams_groups.group import GroupSettings
from penstock.log.streams_groups.member import MemberFacts, MemberState, StreamsMember
from penstock.log.streams_groups.messages import StatusCode
from penstock.log.streams_groups.refusals import refusal
from penstock.tools.broker.process import Broker

_PATIENCE_S = 60
_STEP_MS = 100
_FOR_EVER_MS = 10**9
COMPACTED = (("cleanup.policy", "compact"),)


def counting(app: str, source: str) -> GroupTopology:
    """A topology with a repartition topic and a store."""
    again = f"{app}-by-value-repartition"
    return GroupTopology((
        GroupSubtopology("0", (source,), repartition_sinks=(again,)),
        GroupSubtopology(
            "1",
            changelogs=(InternalTopicSpec(f"{app}-counts-changelog", config=COMPACTED),),
            repartition_sources=(InternalTopicSpec(again),),
        ),
    ))  # fmt: skip


@dataclass
class Stage:
    """A log with its coordinator, and a group with its members."""

    log: TopicLog
    coordinator: StreamsCoordinator
    pause: Callable[[], None]
    now_ms: Callable[[], int]
    is_broker: bool
    app: str = field(default_factory=lambda: f"app-{uuid.uuid4().hex[:8]}")
    members: list[StreamsMember] = field(default_factory=list)

    def topic(self, name: str, partitions: int) -> str:
        """Create a topic of this group's own."""
        full = f"{self.app}-{name}"
        self.log.create_topic(full, partitions)
        return full

    def member(self, topology: GroupTopology, **facts: Any) -> StreamsMember:
        """A member that asks often, and so hears of everything soon."""
        facts = {"process": str(uuid.uuid4()), **facts}
        made = MemberFacts(self.app, f"m-{uuid.uuid4().hex}", topology=topology, **facts)
        member = StreamsMember(made, self.now_ms(), eager_for_ms=_FOR_EVER_MS)
        self.members.append(member)
        return member

    def beat(self, member: StreamsMember) -> None:
        """Send a heartbeat if one is due."""
        heartbeat = member.next_heartbeat(self.now_ms())
        if heartbeat is None:
            return
        try:
            answer = self.coordinator.heartbeat(heartbeat)
        except LogUnavailableError:  # the first group of a broker: the topic of groups is being created
            member.unanswered(self.now_ms())
        else:
            member.answered(answer, self.now_ms())

    def step(self, member: StreamsMember) -> None:
        """Send what is due, and do what is to do."""
        self.beat(member)
        work = member.work()
        if work.drop:
            member.dropped(self.now_ms())
        elif work.release:
            member.released(work.release, self.now_ms())
        elif work.acquire:
            self._check_alone(work.acquire)
            member.acquired(work, self.now_ms())

    def _check_alone(self, tasks: Assignment) -> None:
        for other in self.members:
            assert not other.owned.active & tasks.active, "a task has two owners"

    def until(self, done: Callable[[], object]) -> None:
        """Let the members go on until something is so."""
        for _ in range(_PATIENCE_S * 1000 // _STEP_MS):
            for member in self.members:
                self.step(member)
            if done():
                return
            self.pause()
        told = [(each.state, each.owned, each.status, each.failure) for each in self.members]
        raise AssertionError(f"not within {_PATIENCE_S} s: {told}, {self.described()}")

    def described(self) -> GroupDescription:
        found = self.coordinator.describe(self.app)
        assert found is not None
        return found

    def all_tasks(self, count: int) -> Callable[[], bool]:
        """Whether the members have so many tasks together, and all stand still."""
        return lambda: (
            sum(len(each.owned.active) for each in self.members) == count
            and all(each.state in (MemberState.STABLE, MemberState.LEFT) for each in self.members)
            and self.described().state == "Stable"
        )


@pytest.fixture(params=["embedded", "broker"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A stage of its own for each test."""
    if request.param == "broker":
        from penstock.log.kafka.log import KafkaLog
        from penstock.log.kafka.streams_groups import KafkaStreamsCoordinator

        broker: Broker = request.getfixturevalue("kafka")
        log = KafkaLog(broker.settings.bootstrap_servers)
        cluster = log.clients.own_cluster()
        made = Stage(
            log,
            KafkaStreamsCoordinator(cluster, log.clients.access),
            lambda: time.sleep(_STEP_MS / 1000),
            lambda: round(1000 * time.monotonic()),
            is_broker=True,
        )
        yield made
        for member in made.members:  # no session is left open
            member.leave(made.now_ms())
        if made.members:
            made.until(lambda: all(m.state in (MemberState.LEFT, MemberState.FAILED) for m in made.members))
        cluster.close()
        log.close()
        return
    name = f"memory://{uuid.uuid4()}"
    log_of_its_own = open_log(name)
    clock = [1_000_000]
    coordinator = EmbeddedStreamsCoordinator(
        log_of_its_own,  # type: ignore[arg-type] # the URL says which log it is
        GroupSettings(),
        lambda: clock[0],
    )

    def pass_time() -> None:
        clock[0] += _STEP_MS

    yield Stage(log_of_its_own, coordinator, pass_time, lambda: clock[0], is_broker=False)
    log_of_its_own.close()


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
    stage.coordinator.commit(stage.app, name, member.epoch, {place: OffsetAndMetadata(7, "AgAA")})
    assert stage.log.group_offsets(stage.app)[place] == OffsetAndMetadata(7, "AgAA")
    with pytest.raises(FencedError):
        stage.coordinator.commit(stage.app, name, member.epoch + 1, {place: OffsetAndMetadata(9)})
    with pytest.raises(FencedError):
        stage.coordinator.commit(stage.app, "stranger", member.epoch, {place: OffsetAndMetadata(9)})
    member.leave(stage.now_ms())
    stage.until(lambda: member.state is MemberState.LEFT)
    with pytest.raises(FencedError):
        stage.coordinator.commit(stage.app, name, 1, {place: OffsetAndMetadata(9)})
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

    for _ in range(_PATIENCE_S * 1000 // _STEP_MS):
        beat()
        if slow.work().release:
            break
    for _ in range(10):
        beat()
        assert not second.work().acquire
    assert stage.described().state == "Reconciling"
    stage.until(stage.all_tasks(2))
    assert len(second.owned.active) == 1


def _must(heartbeat: Any) -> Any:
    assert heartbeat is not None
    return heartbeat
