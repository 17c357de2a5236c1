"""The mirror between two real brokers: the source's is killed in the middle, a group goes over, nothing goes round."""

import os
import signal
import threading
from collections import Counter

import pytest

from brokers import running_broker
from connect_group import eventually
from penstock.connect.mirror.maker import Mirror
from penstock.errors import PenstockError
from penstock.log import Consumer, Producer, TopicPartition, open_log

pytestmark = [
    pytest.mark.whole,
    # the processes of the brokers are left to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
BEFORE, AFTER, READ = 3000, 1000, 1234


@pytest.fixture
def brokers(tmp_path):
    with running_broker(tmp_path / "a") as first, running_broker(tmp_path / "b") as second:
        yield {"a": first, "b": second}


def properties(brokers):
    more = {"offset.lag.max": "10", "sync.group.offsets.enabled": "true", "groups": "app"}
    for name in ("refresh.topics", "emit.checkpoints", "emit.heartbeats"):
        more[f"{name}.interval.seconds"] = "1"
    servers = {f"{name}.bootstrap.servers": broker.settings.bootstrap_servers for name, broker in brokers.items()}
    return {"clusters": "a,b", "a->b.enabled": "true", "b->a.enabled": "true", **servers, **more}


def write(log, first, count):
    with Producer(log) as producer:
        for number in range(first, first + count):
            producer.send("orders", str(number).encode(), key=str(number).encode(), headers=[("h", b"x")])


def copies(log, topic="a.orders"):
    if topic not in {info.name for info in log.topics()}:
        return []
    ends, firsts = log.end_offsets([topic]), log.beginning_offsets([topic])
    batches = [
        batch
        for place, end in ends.items()
        for batch in log.read_range(place.topic, place.partition, firsts[place], end)
    ]
    return [int(value) for batch in batches for value in batch.column("value").to_pylist()]


def test_a_killed_source_loses_nothing_and_a_group_goes_over(brokers):
    servers = {name: broker.settings.bootstrap_servers for name, broker in brokers.items()}
    stopped, errors = threading.Event(), []

    def run():
        try:
            with Mirror(properties(brokers)) as mirror:
                mirror.run(stopped)
        except PenstockError as error:
            errors.append(error)

    with open_log(servers["a"]) as source, open_log(servers["b"]) as target:
        source.create_topic("orders", 2, {"retention.ms": "123456789"})
        write(source, 0, BEFORE)
        with Consumer(source, group="app") as consumer:
            consumer.subscribe("orders")
            read = []
            while len(read) < READ:
                read += [int(record.value) for record in consumer.poll(timeout_s=1, max_records=READ - len(read))]
            consumer.commit()
        thread = threading.Thread(target=run)
        thread.start()
        try:
            eventually(lambda: copies(target), 120, "the copy has begun")
            os.kill(brokers["a"].status().pid, signal.SIGKILL)
            eventually(lambda: brokers["a"].status().pid is None, 60, "the source's broker is gone")
            brokers["a"].start()
            write(source, BEFORE, AFTER)
            eventually(lambda: errors or len(copies(target)) >= BEFORE + AFTER, 180, "all is copied")
            unread = set(range(BEFORE + AFTER)) - set(read)
            eventually(lambda: errors or target.committed_offsets("app"), 120, "the group's offsets are there")
        finally:
            stopped.set()
            thread.join(60)
        assert not errors
        assert sorted(Counter(copies(target)).items()) == [(number, 1) for number in range(BEFORE + AFTER)]
        assert target.topic("a.orders").config["retention.ms"] == "123456789"
        assert set(target.committed_offsets("app")) == {TopicPartition("a.orders", 0), TopicPartition("a.orders", 1)}
        with Consumer(target, group="app") as consumer:
            consumer.subscribe("a.orders")
            again = set()
            while not again >= unread:
                again |= {int(record.value) for record in consumer.poll(timeout_s=2)}
        assert len(again) < BEFORE + AFTER  # it goes on near its offsets, not at the beginning
        names = {info.name for log in (source, target) for info in log.topics()}
        assert not {name for name in names if name.startswith(("a.b.", "b.a."))}
        assert "b.heartbeats" in names
