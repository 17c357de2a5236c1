"""The topic log over a real broker: records, offsets, groups, transactions with a ledger, fencing, leases."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from penstock.errors import (
    FencedError,
    OffsetOutOfRangeError,
    ProductionError,
    TopicExistsError,
    UnknownTopicError,
)
from penstock.log.base import HEADERS_TYPE, OffsetAndTime, TopicPartition
from penstock.log.open import open_log

NAMES = itertools.count()
FOREVER = {"retention.ms": "-1"}


@pytest.fixture
def log(kafka):
    with open_log(kafka.settings.bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def topic(log):
    name = f"log-{next(NAMES)}"
    log.create_topic(name, 2, FOREVER)
    return name


def batch(values, times=None):
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {"timestamp": times or [1000 + i for i in range(count)], "key": [b"k"] * count, "value": values}
    )


def values(log, topic, partition=0):
    deadline = time.monotonic() + 60  # a commit returns before the brokers have marked all its partitions
    while log.end_offsets([topic]) != log._topics.ends([topic], committed=False) and time.monotonic() < deadline:
        time.sleep(0.01)
    parts = log.read_range(topic, partition, 0, log.end_offset(topic, partition))
    return [value for part in parts for value in part.column("value").to_pylist()]


def test_records_come_back_whole(log, topic):
    headers = pa.array([[{"key": "h", "value": b"x"}, {"key": "h", "value": None}], None], HEADERS_TYPE)
    records = pa.RecordBatch.from_arrays(
        [pa.array([5, 7]), pa.array([None, b"key"]), pa.array([b"", None]), headers],
        ["timestamp", "key", "value", "headers"],
    )
    assert log.append(topic, 1, records) == 0
    assert log.append(topic, 1, records) == 2
    found = log.read(topic, 1, 1, 2)
    assert found.next_offset == 3
    first, second = found.records.to_pylist()
    assert (first["offset"], first["timestamp"], first["key"], first["value"]) == (1, 7, b"key", None)
    assert (second["key"], second["value"], second["headers"]) == (None, b"", headers[0].as_py())
    assert log.read(topic, 0, 0).records.num_rows == 0


def test_offsets(log, topic):
    log.append(topic, 0, batch([b"a", b"b", b"c"], [10, 20, 15]))
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert log.end_offsets([topic]) == {zero: 3, one: 0}
    assert log.wait_for_data({zero: 3, one: 0}, 0.01) == {zero: 3, one: 0}
    assert log.wait_for_data({zero: 2, one: 0}, 5) == {zero: 3, one: 0}
    assert log.offset_for_time(topic, 0, 11).offset == 1
    assert log.offset_for_time(topic, 0, 21) is None
    assert log.delete_records(topic, 0, 2) == 2
    assert log.beginning_offsets([topic]) == {zero: 2, one: 0}
    with pytest.raises(OffsetOutOfRangeError):
        log.read(topic, 0, 0)


def test_the_first_record_of_a_time_is_no_marker(log, topic):
    """The broker's index counts the markers of transactions, whose times are of today."""
    for stamp in (10, 20, 30):
        with log.transaction(f"{topic}-old") as transaction:
            transaction.append(topic, 0, batch([b"x"], [stamp]))
    assert len(values(log, topic)) == 3
    offsets = log.read(topic, 0, 0).records.column("offset").to_pylist()  # 0, 2, 4, unless one had to be tried again
    found = [log.offset_for_time(topic, 0, at) for at in (5, 15, 30, 31)]
    assert found == [*map(OffsetAndTime, offsets, (10, 20, 30)), None]


def test_stretches_bound_the_times_of_their_records(log, topic):
    times = [(i * 7919) % 1000 + 10 * i + 1 for i in range(500)]
    log.append(topic, 0, batch([b"x"] * 500, times))
    found = log.stretches(topic, 0, 100, 500, 200)
    assert found[-1][0] >= 300
    start, latest = 100, max(times[:100])
    for following, low, high in found:
        for offset in range(start, following):
            latest = max(latest, times[offset])
            assert latest <= high
        assert low <= latest
        start = following


def test_unknown_and_existing_topics_are_told(log, topic):
    with pytest.raises(TopicExistsError):
        log.create_topic(topic)
    with pytest.raises(UnknownTopicError, match=topic) as caught:
        log.end_offsets([topic + "s"])
    assert topic in str(caught.value)
    with pytest.raises(UnknownTopicError, match="no partition 2"):
        log.append(topic, 2, batch([b"x"]))
    assert log.topic(topic).config == FOREVER
    log.create_partitions(topic, 3)
    log.alter_config(topic, {"retention.ms": None, "max.message.bytes": "2000"})
    assert (log.partitions(topic), log.topic(topic).config) == (3, {"max.message.bytes": "2000"})
    log.delete_topic(topic)
    assert topic not in {t.name for t in log.topics()}


def test_what_is_too_large_is_told_row_by_row(log):
    topic = f"log-{next(NAMES)}"
    log.create_topic(topic, 1, {**FOREVER, "max.message.bytes": "2000"})
    for large in (5_000, 5_000_000):
        with pytest.raises(ProductionError) as caught, log.transaction(f"{topic}-tx") as transaction:
            transaction.append(topic, 0, batch([b"a", os.urandom(large), b"b"]))
        assert caught.value.refused == {0: [1]}
    with log.transaction(f"{topic}-tx") as transaction:  # each is small enough, all together are not
        transaction.append(topic, 0, batch([os.urandom(100) for _ in range(100)]))
    assert len(values(log, topic)) == 100


def test_groups(log, topic):
    group, place = f"{topic}-group", TopicPartition(topic, 1)
    assert log.committed_offsets(group) == {}
    log.commit_offsets(group, {place: 3}, "note")
    assert log.group_offsets(group)[place].metadata == "note"
    assert group in log.groups()
    log.delete_group(group)
    log.delete_group(group)
    assert log.committed_offsets(group) == {}


def write(log, application, topic, number, value, epoch=None):
    with log.transaction(f"{application}-0_0", epoch) as transaction:
        transaction.append(topic, 0, batch([value]))
        transaction.append(topic, 1, batch([value]))
        transaction.put_ledger(application, "0_0", number)
    return transaction.already_written


def test_a_batch_is_written_once_whoever_tries(kafka, log, topic):
    application = f"{topic}-app"
    epoch = log.acquire_lease(application, "me").epoch
    with open_log(kafka.settings.bootstrap_servers) as other:
        assert not write(log, application, topic, 0, b"0", epoch)
        assert write(log, application, topic, 0, b"0", epoch)
        assert write(other, application, topic, 0, b"0", epoch)  # a second attempt elsewhere
        assert not write(other, application, topic, 1, b"1", epoch)
        assert write(log, application, topic, 1, b"1", epoch)  # fenced, and finds out why
        assert not write(log, application, topic, 2, b"2", epoch)
        with pytest.raises(FencedError, match=r"batch \d is written"):
            write(other, application, topic, 0, b"0", epoch)
    assert values(log, topic) == values(log, topic, 1) == [b"0", b"1", b"2"]
    assert log.ledger(application) == {"0_0": 2}
    log.clear_ledger(application)
    assert log.ledger(application) == {}


def test_two_attempts_of_one_task_at_once_write_once(kafka, log, topic):
    application = f"{topic}-app"
    epoch = log.acquire_lease(application, "me").epoch
    with open_log(kafka.settings.bootstrap_servers) as other, ThreadPoolExecutor(2) as threads:
        for number in range(6):
            value = str(number).encode()
            tries = [threads.submit(write, each, application, topic, number, value, epoch) for each in (log, other)]
            assert sorted(each.result() for each in tries) == [False, True]
    assert values(log, topic) == values(log, topic, 1) == [str(number).encode() for number in range(6)]


def test_what_raises_inside_writes_nothing(log, topic):
    with pytest.raises(ZeroDivisionError), log.transaction("x") as transaction:
        transaction.append(topic, 1 // 0, batch([b"x"]))
    assert values(log, topic) == []


def test_one_instance_runs_and_a_newer_one_fences_it(kafka, log, topic):
    application = f"{topic}-app"
    first = log.acquire_lease(application, "first")
    log.renew_lease(first)
    write(log, application, topic, 0, b"0", first.epoch)
    with open_log(kafka.settings.bootstrap_servers) as other:
        with pytest.raises(FencedError, match="runs already: first"):
            other.acquire_lease(application, "second")
        log.renew_lease(first)  # being refused has done it no harm
        second = other.acquire_lease(application, "second", force=True)
        assert second.epoch == first.epoch + 1
        write(other, application, topic, 1, b"1", second.epoch)
        with pytest.raises(FencedError, match="second"):
            write(log, application, topic, 2, b"old", first.epoch)
        with pytest.raises(FencedError, match="second"):
            log.renew_lease(first)
        log.release_lease(first)
        assert not other.lease(application).released
        assert not write(other, application, topic, 2, b"2", second.epoch)
        other.release_lease(second)
    assert log.acquire_lease(application, "third").epoch == 3
    assert values(log, topic) == [b"0", b"1", b"2"]


def test_a_lease_of_a_dead_process_is_free(kafka, log, topic):
    code = (
        "import sys; from penstock.log.open import open_log; open_log(sys.argv[1]).acquire_lease(sys.argv[2], 'gone')"
    )
    subprocess.run([sys.executable, "-c", code, kafka.settings.bootstrap_servers, topic], check=True)
    assert not log.lease(topic).released
    assert log.acquire_lease(topic, "next").epoch == 2


def test_a_transaction_that_a_dead_process_left_open_is_ended(kafka, log, topic):
    code = """
import os, sys
from confluent_kafka import Producer
own = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": sys.argv[2] + "-0_0"})
own.init_transactions()
own.begin_transaction()
for partition in (0, 1):
    own.produce(sys.argv[3], b"never", partition=partition)
own.flush()
os._exit(9)
"""
    application = f"{topic}-app"
    epoch = log.acquire_lease(application, "me").epoch
    subprocess.run([sys.executable, "-c", code, kafka.settings.bootstrap_servers, application, topic], check=False)
    log.append(topic, 0, batch([b"outside"]))
    assert log.end_offset(topic, 0) == 0
    assert not write(log, application, topic, 0, b"0", epoch)
    assert values(log, topic) == [b"outside", b"0"]
    assert values(log, topic, 1) == [b"0"]
