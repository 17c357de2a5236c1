"""The topic log over a real broker: records, offsets, groups, transactions with a ledger, fencing, leases."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from eventually import eventually
from kafka_proxy import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, kafka_proxy
from penstock.errors import (
    CheckpointMismatchError,
    FencedError,
    LogError,
    OffsetOutOfRangeError,
    ProductionError,
    TopicExistsError,
    UnknownTopicError,
)
from penstock.log.base import HEADERS_TYPE, OffsetAndTime, Span, TopicPartition
from penstock.log.kafka.transactions.ledger import LEDGER_SETTINGS, LedgerRecord, entry_part, ledger_topic, partition_of
from penstock.log.kafka.wire.connection import BrokerConnection
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
    place = TopicPartition(topic, partition)
    end = log.settled_ends([place])[place]  # a commit returns before the brokers have marked all its partitions
    parts = log.read_range(topic, partition, 0, end)
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


def test_records_are_purged_although_some_partitions_fail(log, topic):
    """Of a topic that is gone, and of a partition that does not have so many records."""
    log.create_topic(f"{topic}-more", 3)
    for partition in range(3):
        log.append(f"{topic}-more", partition, batch([b"a", b"b", b"c"]))
    before = {TopicPartition(f"{topic}-more", partition): 2 for partition in range(3)}
    gone, short = TopicPartition("0-gone", 0), TopicPartition(topic, 0)
    with pytest.raises((LogError, UnknownTopicError)):
        log.purge({gone: 1, short: 99, **before})
    assert log.beginning_offsets([f"{topic}-more"]) == before
    assert log.beginning_offsets([topic])[short] == 0


def test_identities(log, topic):
    with open_log(log.url) as other:
        assert log.identity() == other.identity() != ""
    first = log.topic_ids([topic, "missing"])
    assert set(first) == {topic}
    log.delete_topic(topic)
    assert log.topic_ids([topic]) == {}
    log.create_topic(topic)
    again = log.topic_ids([topic])
    assert set(again) == {topic}
    assert again != first
    assert log.topic_ids([]) == {}


def test_the_first_record_of_a_time_is_no_marker(log, topic):
    """The broker's index counts the markers of transactions, whose times are of today."""
    for stamp in (10, 20, 30):
        with log.transaction(f"{topic}-old") as transaction:
            transaction.append(topic, 0, batch([b"x"], [stamp]))
    assert len(values(log, topic)) == 3
    offsets = log.read(topic, 0, 0).records.column("offset").to_pylist()  # 0, 2, 4, unless one had to be tried again
    found = [log.offset_for_time(topic, 0, at) for at in (5, 15, 30, 31)]
    assert found == [*map(OffsetAndTime, offsets, (10, 20, 30)), None]


def test_offsets_of_times_are_asked_for_all_partitions_at_once(log, topic, monkeypatch):
    many = f"{topic}-many"
    log.create_topic(many, 5)
    for number in range(4):
        with log.transaction(f"{many}-writer") as transaction:
            transaction.append(many, number, batch([b"x", b"y"], [10 * number, 10 * number + 5]))
    log.append(many, 0, batch([b"large" * 20_000], [40]))  # more than comes with all others
    places = [TopicPartition(many, number) for number in range(5)]
    log.settled_ends(places)
    first = {place: log.read(many, place.partition, 0).records.column("offset").to_pylist() for place in places[:4]}
    asked = []
    send = BrokerConnection.send
    monkeypatch.setattr(
        BrokerConnection, "send", lambda self, request: asked.append(request.name) or send(self, request)
    )
    found = log.offsets_for_times(dict.fromkeys(places[1:], 15))
    wanted = [OffsetAndTime(first[places[1]][1], 15)] + [OffsetAndTime(first[places[n]][0], 10 * n) for n in (2, 3)]
    assert found == dict(zip(places[1:], [*wanted, None], strict=True))
    assert asked.count("ListOffsetsRequest") == asked.count("FetchRequest") == 1
    large = OffsetAndTime(first[places[0]][2], 40)
    assert log.offsets_for_times({places[0]: 40, places[1]: 16}) == {places[0]: large, places[1]: None}
    assert log.offsets_for_times({}) == {}


def test_stretches_bound_the_times_of_their_records(log, topic):
    times = [(i * 7919) % 1000 + 10 * i + 1 for i in range(500)]
    log.append(topic, 0, batch([b"x"] * 500, times))
    found = log.stretches({TopicPartition(topic, 0): Span(100, 500, 200)})[TopicPartition(topic, 0)]
    assert found[-1][0] >= 300
    start, latest = 100, max(times[:100])
    for following, low, high in found:
        for offset in range(start, following):
            latest = max(latest, times[offset])
            assert latest <= high
        assert low <= latest
        start = following


def test_sizes_of_records_are_found_by_samples(log, topic):
    for _ in range(3):
        log.append(topic, 0, batch([bytes(20_000)] * 10))
    log.append(topic, 1, batch([b"x"] * 30))
    large, small = TopicPartition(topic, 0), TopicPartition(topic, 1)
    found = log.record_sizes({large: (5, 30), small: (0, 20)})
    assert 0.5 < found[large] / (25 * 20_000) < 2
    assert found[small] < 20_000


def test_the_brokers_end_a_wait_for_data(log):
    topic, count = f"log-{next(NAMES)}", 100
    log.create_topic(topic, count, FOREVER)
    known = log.end_offsets([topic])
    with ThreadPoolExecutor(1) as pool:
        for partition in (count - 1, 3, 3):
            assert log.wait_for_data(known, 0.05) == known
            waiting = pool.submit(log.wait_for_data, dict(known), 60)
            log.append(topic, partition, batch([b"x"]))
            known[TopicPartition(topic, partition)] += 1
            assert waiting.result(60) == known
    (session,) = log.clients.waiter()._sessions.values()
    assert session._epoch > 3  # one session all the time
    session.offsets = {**session.offsets, TopicPartition(topic, 3): 9}
    assert [(each.topic, len(each.partitions)) for each in session.request(0).topics] == [(topic, 1)]


def test_a_wait_for_data_of_a_deleted_topic_ends(log, topic):
    known = log.end_offsets([topic])
    assert log.wait_for_data(known, 0.05) == known
    log.delete_topic(topic)
    with pytest.raises(UnknownTopicError, match=topic):
        log.wait_for_data(known, 30)


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
    # The controller has accepted both; brokers show them a moment later.
    wanted = (3, {"max.message.bytes": "2000"})
    eventually(lambda: (log.partitions(topic), log.topic(topic).config) == wanted)
    log.delete_topic(topic)
    assert topic not in {t.name for t in log.topics()}


def test_a_change_of_a_topic_is_done_although_the_answer_is_lost(kafka):
    name = f"lost-{next(NAMES)}"
    with kafka_proxy(kafka) as proxy, open_log(proxy.servers) as log:
        proxy.lose_answers(CREATE_TOPICS)
        log.create_topic(name, 2)
        proxy.lose_answers(CREATE_PARTITIONS)
        log.create_partitions(name, 3)
        assert log.partitions(name) == 3
        proxy.lose_answers(DELETE_TOPICS)
        log.delete_topic(name)
        assert name not in [each.name for each in log.topics()]
    assert proxy.lost == 3


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


def write(log, application, topic, number, value, epoch=None, inputs=""):
    with log.transaction(f"{application}-0_0", epoch) as transaction:
        transaction.append(topic, 0, batch([value]))
        transaction.append(topic, 1, batch([value]))
        transaction.put_ledger(application, "0_0", number, inputs)
    return transaction.already_written


def test_a_batch_is_known_by_its_number_and_what_it_has_read(kafka, log, topic):
    application = f"{topic}-app"
    epoch = log.acquire_lease(application, "me").epoch
    with open_log(kafka.settings.bootstrap_servers) as other:
        assert not write(log, application, topic, 0, b"0", epoch, "a")
        assert write(log, application, topic, 0, b"0", epoch, "a")
        for one in (log, other):
            with pytest.raises(
                CheckpointMismatchError, match="says that batch 0 is done, but it has read other records"
            ):
                write(one, application, topic, 0, b"x", epoch, "b")
        assert write(other, application, topic, 0, b"0", epoch, "a")
        assert not write(other, application, topic, 1, b"1", epoch)  # as earlier versions have noted it
        assert write(log, application, topic, 1, b"1", epoch, "c")
    assert values(log, topic) == [b"0", b"1"]


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
    for number in range(3):
        log.note_planned(application, epoch, f"batch {number}")
    with open_log(kafka.settings.bootstrap_servers) as other:
        assert (log.planned(application), other.planned(application)) == ("batch 2", "batch 2")
    log.clear_ledger(application)
    assert (log.ledger(application), log.planned(application)) == ({}, None)


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
        with pytest.raises(FencedError, match="second"):
            log.acquire_lease(application, "first", replacing=first)
        other.renew_lease(second)  # nor has that done it any harm
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


def test_a_log_that_goes_on_after_a_lease_waits_for_brokers_as_long_as_before(log, topic):
    """As that of an instance that begins to share its tasks."""
    log.release_lease(log.acquire_lease(topic, "me"))
    assert not log.clients.hurry


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


def test_a_new_process_reads_the_ledger_from_the_notes(log, topic):
    """What stands before them is not read again, nor does it come back after a reset."""
    application = f"{topic}-noted"
    log.create_topic(ledger_topic(application), 9, {"cleanup.policy": "compact", "segment.ms": "3600000"})
    lease = log.acquire_lease(application, "me")
    assert log.topic(ledger_topic(application)).config.items() >= LEDGER_SETTINGS.items()
    entries = [entry_part(application, f"0_{n % 2}", b'{"batch": %d, "epoch": 1}' % n) for n in range(2_000)]
    with log.transaction("") as transaction:
        for part in entries:
            transaction.append(*part)
    log.release_lease(lease)
    lease = log.acquire_lease(application, "me")  # notes what it has found
    with log.transaction("") as transaction:
        transaction.append(*entry_part(application, "0_1", b'{"batch": 2001, "epoch": 1}'))
    with open_log(log.url) as other, other.ledger_of(application) as ledger:
        ledger.read([partition_of("0_1")])
        assert ledger.entry("0_1") == LedgerRecord(2001, 1)
        assert ledger.unnoted == 1
        ledger.read_all()
        assert {task: entry.batch for task, entry in ledger.entries().items()} == {"0_0": 1998, "0_1": 2001}
    log.clear_ledger(application)
    with open_log(log.url) as other:
        assert other.ledger(application) == {}
    log.release_lease(lease)
