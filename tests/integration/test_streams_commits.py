"""Commits by members of streams groups, over both logs: who has lost a task, or its membership, commits nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa
import pytest

from eventually import eventually
from penstock.errors import FencedError
from penstock.log.base import OffsetAndMetadata, StreamsMembership, TopicPartition
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.transactions.commit_producer import KafkaCommitProducer
from penstock.log.streams_groups.description import GroupTopology
from penstock.log.streams_groups.member import MemberState, StreamsMember
from penstock.log.thread_clients import CommitProducer, Writer
from streams_stage import Stage, counting

BOTH = pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly once", "at least once"])


class Scene:
    """A stage with a topic of two partitions to read, one to write, and the topology of a group between them."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.source, self.changes = stage.topic("in", 2), stage.topic("changes", 1)
        self.topology: GroupTopology = counting(stage.app, self.source)

    def member(self) -> StreamsMember:
        return self.stage.member(self.topology)

    def settle(self) -> None:
        """Wait until all four tasks are with members, and all members have some."""
        done = self.stage.all_tasks(4)
        self.stage.until(lambda: all(each.owned.active for each in self.stage.members) and done())

    def leave(self, member: StreamsMember) -> None:
        member.leave(self.stage.now_ms())
        self.stage.until(lambda: member.state is MemberState.LEFT)

    @contextmanager
    def producer(
        self, membership: Callable[[], StreamsMembership], *, exactly_once: bool, thread: str = "thread-0"
    ) -> Iterator[CommitProducer]:
        writer = Writer(self.stage.app, thread, None, exactly_once, membership)
        producer = self.stage.log.commit_producer(writer)
        try:
            yield producer
        finally:
            producer.close()

    def place(self, partition: int) -> TopicPartition:
        return TopicPartition(self.source, partition)

    def written(self) -> list[bytes]:
        self.stage.log.settled_ends([TopicPartition(self.changes, 0)])
        values: list[bytes] = self.stage.log.read(self.changes, 0, 0).records.column("value").to_pylist()
        return values

    def changed(self, value: bytes) -> list[tuple[str, int, pa.RecordBatch]]:
        return [(self.changes, 0, pa.RecordBatch.from_pydict({"timestamp": [1], "key": [b"k"], "value": [value]}))]

    def committed(self) -> dict[TopicPartition, int]:
        return dict(self.stage.log.committed_offsets(self.stage.app))


@pytest.fixture
def scene(stage: Stage) -> Scene:
    return Scene(stage)


def as_of_now(member: StreamsMember) -> StreamsMembership:
    return StreamsMembership(member.facts.member, member.epoch)


@BOTH
def test_a_member_commits_its_changes_with_offsets_and_metadata(scene: Scene, *, exactly_once: bool) -> None:
    member = scene.member()
    scene.settle()
    with scene.producer(lambda: as_of_now(member), exactly_once=exactly_once) as producer:
        for number in range(3):
            producer.collect(scene.changed(b"%d" % number))
            producer.commit({scene.place(0): OffsetAndMetadata(number + 1, "AgAAAAAAAAPo")})
    assert scene.written() == [b"0", b"1", b"2"]
    offset = OffsetAndMetadata(3, "AgAAAAAAAAPo")
    eventually(lambda: scene.stage.log.group_offsets(scene.stage.app) == {scene.place(0): offset})


@BOTH
def test_a_thread_whose_member_has_left_commits_nothing(scene: Scene, *, exactly_once: bool) -> None:
    member = scene.member()
    scene.settle()
    membership = as_of_now(member)
    with scene.producer(lambda: membership, exactly_once=exactly_once) as zombie:
        zombie.collect(scene.changed(b"a"))
        zombie.commit({scene.place(0): OffsetAndMetadata(1)})
        scene.leave(member)
        heir = scene.member()
        scene.stage.until(scene.stage.all_tasks(4))
        zombie.collect(scene.changed(b"of a zombie"))
        for _ in range(2):
            with pytest.raises(FencedError) as raised:
                zombie.commit({scene.place(0): OffsetAndMetadata(2)})
            assert raised.value.facts["membership"] == "unknown"
            assert raised.value.facts["member"] == membership.member
        assert scene.written() == [b"a"]
        assert scene.committed() == {scene.place(0): 1}
        membership = as_of_now(heir)  # the thread goes on as another member
        zombie.replace(())
        zombie.collect(scene.changed(b"b"))
        zombie.commit({scene.place(0): OffsetAndMetadata(3)})
    assert scene.written() == [b"a", b"b"]
    eventually(lambda: scene.committed() == {scene.place(0): 3})


@BOTH
def test_an_old_epoch_is_enough_for_a_task_that_stays_and_not_for_one_that_went(
    scene: Scene, *, exactly_once: bool
) -> None:
    member = scene.member()
    scene.settle()
    before = as_of_now(member)
    scene.member()
    scene.settle()
    assert member.epoch > before.epoch
    stays, *_ = sorted(task.partition for task in member.owned.active if task.subtopology == "0")
    went = 1 - stays
    assert {task.partition for task in member.owned.active if task.subtopology == "0"} == {stays}
    with scene.producer(lambda: before, exactly_once=exactly_once) as producer:
        producer.collect(scene.changed(b"a"))
        producer.commit({scene.place(stays): OffsetAndMetadata(1)})
        producer.collect(scene.changed(b"of a zombie"))
        with pytest.raises(FencedError) as raised:
            producer.commit({scene.place(stays): OffsetAndMetadata(2), scene.place(went): OffsetAndMetadata(2)})
        assert raised.value.facts["membership"] == "stale"
    assert scene.written() == [b"a"]
    eventually(lambda: scene.committed() == {scene.place(stays): 1})


@BOTH
def test_an_epoch_that_the_group_has_not_reached_is_refused(scene: Scene, *, exactly_once: bool) -> None:
    member = scene.member()
    scene.settle()
    early = StreamsMembership(member.facts.member, member.epoch + 1)
    with scene.producer(lambda: early, exactly_once=exactly_once) as producer:
        producer.collect(scene.changed(b"a"))
        with pytest.raises(FencedError) as raised:
            producer.commit({scene.place(0): OffsetAndMetadata(1)})
        assert raised.value.facts["membership"] == "stale"
    assert scene.written() == []
    assert scene.committed() == {}


@BOTH
def test_the_open_transaction_of_a_dead_thread_is_ended_without_a_lease(scene: Scene, *, exactly_once: bool) -> None:
    member = scene.member()
    scene.settle()
    log = scene.stage.log
    thread = f"{uuid.uuid4()}-0"
    with scene.producer(lambda: as_of_now(member), exactly_once=exactly_once, thread=thread) as dead:
        dead.collect(scene.changed(b"a"))
        dead.commit({scene.place(0): OffsetAndMetadata(1)})
        dead.collect(scene.changed(b"never committed"))
        if isinstance(dead, KafkaCommitProducer):  # it dies after it has written, before it ends its transaction
            parts = [(TopicPartition(topic, partition), records) for topic, partition, records in dead.collected()]
            dead._transactions.write(parts, {scene.place(0): OffsetAndMetadata(2)})
        for _ in range(2):
            log.fence_threads(scene.stage.app, [thread, f"{uuid.uuid4()}-1"])
        assert scene.written() == [b"a"]  # nothing is open that these would wait for
        assert scene.committed() == {scene.place(0): 1}
        with pytest.raises(FencedError) as raised:
            dead.commit({scene.place(0): OffsetAndMetadata(2)})
        assert "membership" not in raised.value.facts
    with scene.producer(lambda: as_of_now(member), exactly_once=exactly_once) as heir:
        heir.collect(scene.changed(b"b"))
        heir.commit({scene.place(0): OffsetAndMetadata(2)})
    assert scene.written() == [b"a", b"b"]


def test_a_first_offset_whose_transaction_has_not_ended_is_waited_for_by_who_names_the_partition(scene: Scene) -> None:
    """A broker that is asked for all offsets leaves it out: the next owner of a task would begin at the beginning."""
    member = scene.member()
    scene.settle()
    log, app, place = scene.stage.log, scene.stage.app, scene.place(0)
    with scene.producer(lambda: as_of_now(member), exactly_once=True) as producer, ThreadPoolExecutor(1) as asking:
        producer.collect(scene.changed(b"a"))
        if not isinstance(producer, KafkaCommitProducer):
            producer.commit({place: OffsetAndMetadata(1)})
            assert log.group_offsets(app, [place, scene.place(1)]) == {place: OffsetAndMetadata(1)}
            return
        parts = [(TopicPartition(topic, partition), records) for topic, partition, records in producer.collected()]
        producer._transactions.write(parts, {place: OffsetAndMetadata(1)})
        assert log.group_offsets(app) == {}
        asked = asking.submit(log.group_offsets, app, [place, scene.place(1)])
        with pytest.raises(TimeoutError):
            asked.result(1)
        assert log.group_offsets(app, [scene.place(1)]) == {}
        producer._transactions.end()
        assert asked.result(60) == {place: OffsetAndMetadata(1)}


def test_the_transactions_of_threads_end_by_themselves_as_in_kafka_streams() -> None:
    for settings, threads_ms, batches_ms in (({}, 10_000, 30_000), ({"transaction.timeout.ms": 7_000}, 7_000, 7_000)):
        with KafkaLog("nowhere:1", settings) as log:
            assert (log.clients.thread_timeouts.least_ms, log.clients.timeouts.least_ms) == (threads_ms, batches_ms)
