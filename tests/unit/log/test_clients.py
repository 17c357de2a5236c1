from __future__ import annotations

import pickle
import re
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pytest

from eventually import eventually
from penstock.base.durations import timestamp_ms
from penstock.errors import ConfigError, FencedError, InvalidStateError, LogError, OffsetOutOfRangeError
from penstock.log import Consumer, Delivery, Producer, RebalanceListener, TopicPartition
from penstock.log.open import open_log
from penstock.log.partitioner import partition_for

T = [TopicPartition("t", n) for n in range(4)]


class Heard(RebalanceListener):
    def __init__(self):
        self.events = []

    def on_assigned(self, partitions):
        self.events.append(("assigned", list(partitions)))

    def on_revoked(self, partitions):
        self.events.append(("revoked", list(partitions)))

    def on_lost(self, partitions):
        self.events.append(("lost", list(partitions)))


def produce(log, count=20, topic="t", start=0):
    with Producer(log) as producer:
        for i in range(start, start + count):
            producer.send(topic, b"%d" % i, key=b"k%d" % i, timestamp=i)


def test_produce_and_consume(log):
    log.create_topic("t", 3)
    keys = [b"k%d" % i for i in range(50)]
    with Producer(log, linger_ms=10_000) as producer:
        for i, key in enumerate(keys):
            producer.send("t", b"v%d" % i, key=key, timestamp=i, headers=[("h", b"x")])
        assert sum(log.end_offsets(["t"]).values()) == 0
    consumer = Consumer(log, group="g")
    consumer.subscribe("t")
    found = consumer.poll()
    assert sorted(record.timestamp for record in found) == list(range(50))
    assert all(record.partition == partition_for(record.key, 3) for record in found)
    assert found[0].headers == (("h", b"x"),)
    assert consumer.poll() == []
    consumer.commit()
    positions = consumer.positions
    consumer.close()
    consumer.close()
    again = Consumer(log, group="g")
    again.subscribe(["t"])
    again.poll()
    assert again.positions == positions == again.committed()
    again.close()
    with pytest.raises(InvalidStateError):
        producer.send("t", b"late")
    with pytest.raises(InvalidStateError):
        again.poll()


def test_linger_and_size(log):
    log.create_topic("t")
    producer = Producer(log, linger_ms=0)
    producer.send("t", b"a")
    assert log.end_offset("t", 0) == 1
    producer = Producer(log, linger_ms=60_000, batch_bytes=1_000)
    producer.send("t", b"b" * 500)
    assert log.end_offset("t", 0) == 1
    producer.send("t", b"c" * 500)
    assert log.end_offset("t", 0) == 3


def test_batches_go_where_single_records_go_and_in_order(log, batch):
    log.create_topic("t", 4)
    keys = [b"k%d" % i for i in range(40)] + [None]
    told = []
    producer = Producer(log, linger_ms=60_000)
    producer.send("t", b"first", key=b"k0", timestamp=7, on_delivery=lambda done, error: told.append((done, error)))
    producer.send_batch("t", batch([b"v"] * 41, keys))
    place = partition_for(b"k0", 4)
    assert told == [(Delivery("t", place, 0, 7), None)]
    with Consumer(log) as consumer:
        consumer.subscribe(["t"])
        found = consumer.poll()
    assert len(found) == 42
    assert all(record.key is None or record.partition == partition_for(record.key, 4) for record in found)
    with pytest.raises(LogError, match="no partition 9"):
        producer.send("t", b"x", partition=9)


def test_transactions_are_all_or_nothing_and_fence(log):
    log.create_topic("t")
    old = Producer(log, transactional_id="tx")
    with pytest.raises(InvalidStateError, match="only writes transactions"):
        old.send("t", b"x")
    with pytest.raises(KeyError), old.transaction():  # noqa: PT012 - what was sent before the error must not stay
        old.send("t", b"x")
        raise KeyError
    with old.transaction():
        old.send("t", b"y")
        assert log.end_offset("t", 0) == 0
        with pytest.raises(InvalidStateError), old.transaction():
            pass
    assert log.end_offset("t", 0) == 1
    new = Producer(log, transactional_id="tx")
    with pytest.raises(FencedError), old.transaction():
        old.send("t", b"z")
    with new.transaction():
        new.send("t", b"z")
    assert log.end_offset("t", 0) == 2
    old.close()
    with pytest.raises(InvalidStateError), Producer(log).transaction():
        pass


def test_read_process_write_once(log):
    log.create_topic("t", 2)
    log.create_topic("out")
    produce(log)
    consumer = Consumer(log, group="g")
    consumer.subscribe("t")
    producer = Producer(log, transactional_id="copy")
    with pytest.raises(InvalidStateError):
        producer.send_offsets(consumer)
    while records := consumer.poll(max_records=7):
        with producer.transaction():
            for record in records:
                producer.send("out", record.value)
            producer.send_offsets(consumer)
    assert log.end_offset("out", 0) == 20
    assert log.committed_offsets("g") == log.end_offsets(["t"])
    other = Consumer(log, group="g")
    other.subscribe("t")
    other.poll()
    with log.writing() as connection:  # as if the first had been silent for too long
        connection.execute("DELETE FROM group_members WHERE member = ?", (consumer.group_metadata().member,))
        connection.execute("DELETE FROM group_owners")
    with pytest.raises(FencedError), producer.transaction():
        producer.send_offsets(consumer)
    other.close()


def test_assignments_ends_and_resets(log, batch):
    log.create_topic("t")
    log.append("t", 0, batch([b"%d" % i for i in range(10)], timestamps=list(range(0, 100, 10))))
    consumer = Consumer(log)
    with pytest.raises(InvalidStateError, match="no partitions"):
        consumer.poll()
    consumer.assign({T[0]: 2}, {T[0]: 5})
    assert [record.offset for record in consumer] == [2, 3, 4]
    assert consumer.finished
    assert consumer.position(T[0]) == 5
    assert consumer.poll(timeout_s=60) == []
    consumer.assign([T[0]])
    consumer.seek_to_time(15)
    assert [record.offset for record in consumer.poll(max_records=2)] == [2, 3]
    consumer.seek_to_beginning()
    assert consumer.position(T[0]) == 0
    consumer.seek_to_end()
    assert consumer.poll() == []
    assert consumer.offsets_for_times({T[0]: 95}) == {T[0]: None}
    with pytest.raises(InvalidStateError, match="t-1 is not assigned"):
        consumer.seek(T[1], 0)
    log.delete_records("t", 0, 7)
    consumer.assign({T[0]: 0})
    assert [record.offset for record in consumer.poll()] == [7, 8, 9]
    latest = Consumer(log, auto_offset_reset="latest")
    latest.subscribe(["t"])
    assert latest.poll(timeout_s=0.01) == []
    nowhere = Consumer(log, group="new", auto_offset_reset="none")
    nowhere.subscribe("t")
    with pytest.raises(OffsetOutOfRangeError, match="no offset to start from"):
        nowhere.poll()
    with pytest.raises(ConfigError):
        Consumer(log, auto_offset_reset="somewhere")
    with pytest.raises(ConfigError):
        Consumer(log, group_instance_id="one")


def test_pause_and_resume(log):
    log.create_topic("t", 2)
    produce(log)
    consumer = Consumer(log, group="g")
    consumer.subscribe("t")
    consumer.poll(max_records=1)
    consumer.pause([T[0]])
    assert consumer.paused() == {T[0]}
    assert {record.partition for record in consumer.poll()} == {1}
    consumer.resume([T[0]])
    assert {record.partition for record in consumer.poll()} == {0}
    consumer.close()


def test_ranges_of_time_are_exact_though_times_are_in_disorder(log, batch):
    hour = timestamp_ms("2026-11-21T10:00")
    log.create_topic("t", 2)
    minutes = [-20, 5, -1, 61, 30, 59, 60, 90, 10, 200]
    for partition in range(2):
        for part in (minutes[:4], minutes[4:7], minutes[7:], [300, 301]):
            stamps = [hour + minute * 60_000 for minute in part]
            log.append("t", partition, batch([b"%d" % minute for minute in part], timestamps=stamps))
    with Consumer(log) as consumer:
        found = list(consumer.between("2026-11-21T10:00", "2026-11-21T11:00Z", "t"))
        assert sorted(int(record.value) for record in found) == [5, 5, 10, 10, 30, 30, 59, 59]
        assert consumer.finished
        assert max(consumer.positions.values()) == 10  # the index told that the last batch is too new
        near = consumer.between("2026-11-21T10:00", "2026-11-21T11:00", ["t"], disorder="15 min")
        assert sorted(int(record.value) for record in near) == [5, 5, 30, 30, 59, 59]
        assert list(consumer.between(0, 1, "t")) == []
        with pytest.raises(ConfigError, match="before it starts"):
            next(consumer.between(2, 1, "t"))
        consumer.unsubscribe()
        with pytest.raises(InvalidStateError):
            next(consumer.between(1, 2))


def test_members_share_partitions_and_hear_of_it(log):
    log.create_topic("t", 4)
    produce(log)
    first, second = Consumer(log, group="g"), Consumer(log, group="g")
    heard = Heard()
    first.subscribe("t", listener=heard)
    assert len(first.poll()) == 20
    second.subscribe("t")
    assert second.poll() == []
    assert second.assignment() == set()  # the first still has them all
    first.commit()
    first.poll()
    second.poll()
    assert first.assignment() | second.assignment() == set(T)
    assert len(first.assignment()) == len(second.assignment()) == 2
    assert [kind for kind, _ in heard.events] == ["assigned", "revoked"]
    produce(log, 20, start=20)
    mine, yours = first.poll(), second.poll()
    assert len(mine) + len(yours) == 20
    assert {record.partition for record in mine}.isdisjoint({record.partition for record in yours})
    second.commit()
    second.close()
    first.poll()
    assert first.assignment() == set(T)
    assert first.poll() == []
    first.unsubscribe()
    assert heard.events[-1] == ("revoked", T)
    assert log.group_state("g").members == ()


def test_a_member_that_was_put_out_hears_of_it_and_joins_again(log):
    log.create_topic("t", 4)
    heard = Heard()
    consumer = Consumer(log, group="g")
    consumer.subscribe("t", listener=heard)
    consumer.poll()
    with log.writing() as connection:
        connection.execute("DELETE FROM group_members")
        connection.execute("DELETE FROM group_owners")
        connection.execute("UPDATE groups SET generation = generation + 1")
    with pytest.raises(FencedError):
        consumer.commit()
    consumer.poll()
    assert [kind for kind, _ in heard.events] == ["assigned", "lost", "assigned"]
    consumer.commit()
    consumer.close()


def test_auto_commit_commits_what_earlier_polls_gave(log):
    log.create_topic("t", 1)
    produce(log, 3)
    with Consumer(log, group="g", auto_commit_interval_ms=0) as consumer:
        consumer.subscribe("t")
        consumer.poll(max_records=1)
        assert log.committed_offsets("g") == {}
        consumer.poll(max_records=1)
        assert log.committed_offsets("g") == {T[0]: 1}
    assert log.committed_offsets("g") == {T[0]: 2}


def test_patterns_find_topics_that_come_later(log):
    log.create_topic("orders-eu")
    log.create_topic("other")
    consumer = Consumer(log, group="g", heartbeat_interval_ms=0)
    consumer.subscribe(re.compile("orders-.*"))
    consumer.poll()
    log.create_topic("orders-us")
    consumer.poll()
    assert {place.topic for place in consumer.assignment()} == {"orders-eu", "orders-us"}
    consumer.close()


def test_a_heartbeat_thread_keeps_a_member_that_polls_seldom(tmp_path):
    with open_log(str(tmp_path / "log.db")) as log:
        log.create_topic("t", 2)
        quick = {"session_timeout_ms": 4_000, "heartbeat_interval_ms": 20}
        busy = Consumer(log, group="g", **quick)
        busy.subscribe("t")
        busy.poll()
        lazy = Consumer(log, group="g", max_poll_interval_ms=1, **quick)
        lazy.subscribe("t")
        lazy.poll()
        assert len(log.group_state("g").members) == 2
        eventually(lambda: len(log.group_state("g").members) < 2)
        assert [each.member for each in log.group_state("g").members] == [busy.group_metadata().member]
        busy.close()
        lazy.close()
    for thread in threading.enumerate():
        if thread.name == "penstock-heartbeat":
            thread.join(10)


MEMBER = """
import sys
from penstock.log import Consumer
consumer = Consumer(sys.argv[1], group="g")
consumer.subscribe("t")
while len(consumer.assignment()) != 2:
    consumer.poll(0.1)
print("ready", flush=True)
consumer.poll(600)
"""


def test_a_killed_process_gives_its_partitions_back(tmp_path):
    path = str(tmp_path / "log.db")
    with open_log(path) as log:
        log.create_topic("t", 4)
        with Consumer(log, group="g", heartbeat_interval_ms=100) as consumer:
            consumer.subscribe("t")
            consumer.poll()
            other = subprocess.Popen([sys.executable, "-c", MEMBER, path], stdout=subprocess.PIPE)
            deadline = time.monotonic() + 180
            while len(consumer.assignment()) > 2 and time.monotonic() < deadline:
                consumer.poll(0.1)
            assert other.stdout.readline() == b"ready\n"
            other.kill()
            other.wait()
            other.stdout.close()
            while len(consumer.assignment()) < 4 and time.monotonic() < deadline:
                consumer.poll(0.1)
            assert consumer.assignment() == set(T)


def test_urls_open_and_close_their_log(tmp_path):
    path = str(tmp_path / "log.db")
    open_log(path).create_topic("t")
    with Producer(path) as producer:
        producer.send_batch("t", pa.RecordBatch.from_pydict({"value": [b"x"]}))
    with Consumer(path) as consumer:
        consumer.subscribe("t")
        [record] = consumer.poll()
    assert pickle.loads(pickle.dumps(record)) == record


def test_a_loop_over_a_consumer_that_ends_early_loses_nothing(log):
    """The loop polls 500 records at a time; its position is behind the last one that it has yielded."""
    log.create_topic("t", 2)
    for partition in range(2):
        log.append("t", partition, pa.RecordBatch.from_pydict({"value": [b"%d" % i for i in range(700)]}))
    seen = {0: [], 1: []}
    for ends_after in (1, 499, 500, 3, 397):  # in three polls of the loop, and between two
        with Consumer(log, group="g") as consumer:
            consumer.assign(T[:2])
            for number, record in enumerate(consumer, 1):
                seen[record.partition].append(int(record.value))
                if number == ends_after:
                    consumer.commit()
                    break
            at = consumer.positions
            assert at == {place: len(seen[place.partition]) for place in T[:2]} == consumer.committed()
            left = consumer.poll(max_records=1)
            assert [each.offset for each in left] == [at[TopicPartition("t", each.partition)] for each in left]
    assert seen == {0: list(range(700)), 1: list(range(700))}


def test_a_position_that_is_sought_in_a_loop_counts(log):
    log.create_topic("t")
    produce(log, 10)
    with Consumer(log, group="g") as consumer:
        consumer.assign(T[:1])
        for record in consumer:
            if record.offset == 3:
                consumer.seek(T[0], 8)
                break
        assert [record.offset for record in consumer.poll()] == [8, 9]


def test_records_of_other_partitions_outlive_an_error_of_one(log):
    log.create_topic("t", 3)
    for place in T[:3]:
        log.append("t", place.partition, pa.RecordBatch.from_pydict({"value": [b"%d" % i for i in range(5)]}))
    log.delete_records("t", 1, 4)
    for turn in range(3):  # the broken one comes first, second and third
        with Consumer(log, group=f"g{turn}", auto_offset_reset="none") as consumer:
            consumer.assign({T[0]: 0, T[1]: 2, T[2]: 0})
            for _ in range(turn + 1):
                with pytest.raises(OffsetOutOfRangeError):
                    consumer.poll()
            consumer.seek(T[1], 4)
            found = [(record.partition, record.offset) for record in consumer.poll()]
            assert sorted(found) == [(0, n) for n in range(5)] + [(1, 4)] + [(2, n) for n in range(5)]
