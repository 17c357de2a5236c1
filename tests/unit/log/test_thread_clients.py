"""The fetcher and the producer of stream threads over the embedded log, on disk and in memory."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from eventually import eventually
from penstock.errors import FencedError, OffsetOutOfRangeError, ProductionError, UnknownTopicError
from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.log.thread_clients import Writer

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
APP = "app"


@pytest.fixture
def topic(log):
    log.create_topic("t", 2)
    return log


def writer(log, thread="thread-0", *, exactly_once=True, force=True):
    return Writer(APP, thread, log.acquire_lease(APP, "me", force=force).epoch, exactly_once)


def values(log, partition=0, topic="t"):
    return log.read(topic, partition, 0).records.column("value").to_pylist()


def test_a_fetcher_returns_what_is_there_and_waits_for_more(topic, batch):
    with topic.fetcher() as fetcher:
        fetcher.assign({T0: 0, T1: 0})
        assert fetcher.poll(0) == {}
        assert fetcher.ends() == {T0: 0, T1: 0}
        topic.append("t", 0, batch([b"a", b"b"]))
        topic.append("t", 1, batch([b"c"]))
        found = fetcher.poll(0)
        assert {place: each.records.column("value").to_pylist() for place, each in found.items()} == {
            T0: [b"a", b"b"], T1: [b"c"],
        }  # fmt: skip
        assert [each.next_offset for each in found.values()] == [2, 1]
        assert fetcher.ends() == {T0: 2, T1: 1}
        assert fetcher.poll(0.01) == {}

        began = time.monotonic()
        threading.Timer(0.1, topic.append, ("t", 1, batch([b"d"]))).start()
        assert fetcher.poll(120)[T1].records.column("value").to_pylist() == [b"d"]
        assert 0.05 < time.monotonic() - began < 60


def test_a_write_by_another_process_ends_the_wait(topic, batch):
    if topic.url.startswith("memory"):
        pytest.skip("a log in memory has one process")
    program = (
        "import sys, pyarrow as pa; from penstock.log import open_log; log = open_log(sys.argv[1]); "
        "log.append('t', 0, pa.RecordBatch.from_pydict({'value': [b'x']}))"
    )
    with topic.fetcher() as fetcher:
        fetcher.assign({T0: 0})
        assert fetcher.poll(0) == {}
        other = subprocess.Popen([sys.executable, "-c", program, topic.url])
        found = fetcher.poll(120)
        assert other.wait() == 0
    assert found[T0].records.column("value").to_pylist() == [b"x"]


def test_a_wait_is_ended_by_wake_also_by_an_earlier_one(topic, batch):
    with topic.fetcher() as fetcher:
        fetcher.assign({T0: 0})
        threading.Timer(0.1, fetcher.wake).start()
        assert fetcher.poll(10_000) == {}
        fetcher.wake()
        assert fetcher.poll(10_000) == {}
        fetcher.wake()
        topic.append("t", 0, batch([b"a"]))
        assert fetcher.poll(10_000).keys() == {T0}


def test_waiting_costs_little(topic):
    with topic.fetcher() as fetcher:
        fetcher.assign({T0: 0, T1: 0})

        def cost() -> float:
            began = time.process_time()
            assert fetcher.poll(1) == {}
            return time.process_time() - began

        eventually(lambda: cost() < 0.1)  # what earlier tests have left to this process may work in one of them


def test_paused_partitions_are_left_out(topic, batch):
    for partition in (0, 1):
        topic.append("t", partition, batch([b"a"]))
    with topic.fetcher() as fetcher:
        fetcher.assign({T0: 0, T1: 0})
        fetcher.pause([T0])
        assert list(fetcher.poll(0)) == [T1]
        assert fetcher.poll(0.01) == {}
        assert fetcher.ends()[T0] == 1
        fetcher.resume([T0])
        assert list(fetcher.poll(0)) == [T0]
        fetcher.pause([T0, T1])
        topic.append("t", 0, batch([b"b"]))
        assert fetcher.poll(0) == {}
        fetcher.assign({T0: 1})  # still paused
        assert fetcher.poll(0) == {}
        fetcher.assign({})
        fetcher.assign({T0: 1})
        assert list(fetcher.poll(0)) == [T0]


def test_a_poll_is_bounded_and_no_partition_starves(log, batch):
    log.create_topic("t", 14)
    for partition in range(14):
        for _ in range(2):
            log.append("t", partition, batch([b"x" * 3_000_000]))
    with log.fetcher() as fetcher:
        fetcher.assign({TopicPartition("t", each): 0 for each in range(14)})
        first = fetcher.poll(0)
        assert 11 <= len(first) < 14
        assert all(each.records.num_rows == 1 for each in first.values())
        second = fetcher.poll(0)
        assert len({*first, *second}) == 14
        seen = sum(each.records.num_rows for found in (first, second) for each in found.values())
        while found := fetcher.poll(0):
            seen += sum(each.records.num_rows for each in found.values())
        assert seen == 28


def test_gaps_of_compaction_are_passed(log, batch):
    log.create_topic("c", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    for _ in range(3):
        log.append("c", 0, batch([b"1", b"2"], [b"k", b"l"]))
    log.clean()
    place = TopicPartition("c", 0)
    with log.fetcher() as fetcher:
        fetcher.assign({place: 1})
        found = fetcher.poll(0)[place]
    assert found.next_offset == 6
    assert found.records.num_rows < 5


def test_positions_out_of_range_and_deleted_topics(topic, batch):
    topic.append("t", 0, batch([b"a", b"b", b"c"]))
    topic.delete_records("t", 0, 2)
    with topic.fetcher() as fetcher:
        fetcher.assign({T0: 1})
        with pytest.raises(OffsetOutOfRangeError) as raised:
            fetcher.poll(0)
        assert (raised.value.facts["topic"], raised.value.facts["offset"]) == ("t", 1)
        fetcher.assign({T0: 9})
        with pytest.raises(OffsetOutOfRangeError):
            fetcher.poll(0)
        fetcher.assign({T0: 3})
        assert fetcher.poll(0) == {}
        topic.delete_topic("t")
        with pytest.raises(UnknownTopicError):
            fetcher.poll(1)


def test_records_and_offsets_are_committed_together(topic, batch):
    producer = topic.commit_producer(writer(topic))
    producer.send([("t", 0, batch([b"a"])), ("t", 1, batch([b"b"]))])
    producer.send([("t", 0, batch([b"c", b"d"]))])
    assert producer.pending_bytes > 0
    assert len(producer.collected()) == 3
    assert values(topic) == []
    assert producer.commit({TopicPartition("in", 0): OffsetAndMetadata(7, "note")}) == {T0: 3, T1: 1}
    assert (producer.pending_bytes, producer.collected()) == (0, ())
    assert values(topic) == [b"a", b"c", b"d"]
    assert topic.group_offsets(APP) == {TopicPartition("in", 0): OffsetAndMetadata(7, "note")}
    assert producer.commit({TopicPartition("in", 0): OffsetAndMetadata(8)}) == {}
    assert topic.group_offsets(APP) == {TopicPartition("in", 0): OffsetAndMetadata(8)}
    producer.send([("t", 0, batch([b"e"]))])
    producer.close()
    assert values(topic) == [b"a", b"c", b"d"]


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("by", ["a newer producer", "fence_threads", "a newer instance"])
def test_a_fenced_producer_writes_nothing(topic, batch, by, exactly_once):
    me = writer(topic, exactly_once=exactly_once)
    old = topic.commit_producer(me)
    old.send([("t", 0, batch([b"a"]))])
    old.commit({TopicPartition("in", 0): OffsetAndMetadata(1)})
    if by == "a newer producer":
        topic.commit_producer(me)
    elif by == "fence_threads":
        topic.fence_threads(APP, ["thread-0", "thread-1"], me.epoch)
    else:
        writer(topic)
        with pytest.raises(FencedError):
            topic.commit_producer(me)
        with pytest.raises(FencedError):
            topic.fence_threads(APP, ["thread-0"], me.epoch)

    def write():
        old.send([("t", 0, batch([b"b"]))])
        old.commit({TopicPartition("in", 0): OffsetAndMetadata(2)})

    for _ in range(2):
        with pytest.raises(FencedError):
            write()
    assert values(topic) == [b"a"]
    assert topic.committed_offsets(APP) == {TopicPartition("in", 0): 1}


def test_at_least_once_writes_before_the_commit(topic, batch):
    producer = topic.commit_producer(writer(topic, exactly_once=False))
    producer.send([("t", 0, batch([b"a"]))])
    assert values(topic) == [b"a"]
    assert topic.committed_offsets(APP) == {}
    producer.send([("t", 1, batch([b"b"]))])
    assert producer.collected() == ()
    assert producer.commit({TopicPartition("in", 0): OffsetAndMetadata(1)}) == {T0: 1, T1: 1}
    assert producer.commit({}) == {}
    assert topic.committed_offsets(APP) == {TopicPartition("in", 0): 1}


def test_refused_records_are_named_by_part_and_row(topic, batch):
    topic.create_topic("c", 1, {"cleanup.policy": "compact"})
    producer = topic.commit_producer(writer(topic))
    good, bad = ("t", 0, batch([b"a"])), ("c", 0, batch([b"x", b"y", b"z"], [b"k", None, None]))
    producer.send([good])
    producer.send([bad])
    with pytest.raises(ProductionError, match="without a key") as raised:
        producer.commit({TopicPartition("in", 0): OffsetAndMetadata(1)})
    assert raised.value.facts["refused"] == {1: [1, 2]}
    assert values(topic) == []
    assert topic.committed_offsets(APP) == {}
    assert producer.collected() == (good, bad)
    producer.replace([good, ("c", 0, bad[2].slice(0, 1))])
    assert producer.commit({TopicPartition("in", 0): OffsetAndMetadata(1)}) == {T0: 1, TopicPartition("c", 0): 1}
    assert values(topic, topic="c") == [b"x"]
