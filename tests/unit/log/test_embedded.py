from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from penstock.errors import (
    CheckpointMismatchError,
    ConfigError,
    FencedError,
    InvalidStateError,
    LogError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicError,
)
from penstock.log.base import HEADERS_TYPE, RECORD_SCHEMA, OffsetAndTime, TopicPartition
from penstock.log.embedded.records import MAX_ROW_RECORDS


def values(log, topic="t", partition=0, start=0):
    found = log.read(topic, partition, start).records
    return found.column("value").to_pylist()


def test_topics(log):
    log.create_topic("b", 2, {"retention.ms": "-1"})
    log.create_topic("a")
    assert [(each.name, each.partitions) for each in log.topics()] == [("a", 1), ("b", 2)]
    assert log.topic("b").config == {"retention.ms": "-1"}
    with pytest.raises(TopicExistsError):
        log.create_topic("a")
    log.create_partitions("a", 3)
    assert log.partitions("a") == 3
    with pytest.raises(ConfigError):
        log.create_partitions("a", 3)
    log.alter_config("b", {"retention.ms": None, "cleanup.policy": "compact"})
    assert log.topic("b").config == {"cleanup.policy": "compact"}
    log.delete_topic("a")
    with pytest.raises(UnknownTopicError):
        log.topic("a")


def test_errors_name_the_remedy(log, batch):
    log.create_topic("orders")
    with pytest.raises(UnknownTopicError, match="Did you mean orders"):
        log.read("order", 0, 0)
    with pytest.raises(LogError, match="no partition 4"):
        log.append("orders", 4, batch([b"a"]))
    with pytest.raises(ConfigError, match=r"Did you mean retention\.ms"):
        log.create_topic("x", 1, {"retention.msec": "1"})
    with pytest.raises(ConfigError, match="whole number"):
        log.create_topic("x", 1, {"retention.ms": "soon"})
    for bad in ["", ".", "a b", "x" * 250]:
        with pytest.raises(ConfigError, match="legal topic name"):
            log.create_topic(bad)
    with pytest.raises(LogError, match="without a value"):
        log.append("orders", 0, pa.RecordBatch.from_pydict({"key": [b"a"]}))


def test_append_and_read_all_columns(log, batch):
    log.create_topic("t")
    headers = pa.array([[{"key": "h", "value": b"1"}], None, []], HEADERS_TYPE)
    assert log.append("t", 0, batch([b"a", None, b"c"], [b"k", None, b""], [5, 6, 4], headers)) == 0
    assert log.append("t", 0, batch([b"d"])) == 3
    fetched = log.read("t", 0, 0)
    assert fetched.next_offset == 4
    assert fetched.records.schema == RECORD_SCHEMA
    assert fetched.records.to_pylist()[0] == {
        "offset": 0, "timestamp": 5, "key": b"k", "value": b"a", "headers": [{"key": "h", "value": b"1"}],
    }  # fmt: skip
    assert fetched.records.column("key").to_pylist() == [b"k", None, b"", None]
    assert fetched.records.column("headers").to_pylist()[1:] == [None, [], None]
    empty = log.read("t", 0, 4)
    assert empty.records.num_rows == 0
    assert empty.next_offset == 4


def test_large_appends_are_split_and_small_ones_joined(log, batch):
    log.create_topic("t")
    log.append("t", 0, batch([b"%d" % i for i in range(25_000)]))
    for i in range(100):
        log.append("t", 0, batch([b"s%d" % i]))
    parts = log.read_range("t", 0, 3, 25_050)
    assert [part.num_rows for part in parts] == [MAX_ROW_RECORDS - 3, MAX_ROW_RECORDS, 5_000, 50]
    assert pa.Table.from_batches(parts).column("offset").to_pylist() == list(range(3, 25_050))
    assert log.read("t", 0, 24_999, 2).records.column("value").to_pylist() == [b"24999", b"s0"]
    big = batch([b"x" * 3_000_000] * 4)
    log.append("t", 0, big)
    assert log.read("t", 0, 25_100).records.num_rows == 4


def test_records_are_purged_although_some_partitions_fail(log, batch):
    log.create_topic("t", 3)
    for partition in range(3):
        log.append("t", partition, batch([b"a", b"b", b"c"]))
    before = {TopicPartition("t", partition): 2 for partition in range(3)}
    with pytest.raises(UnknownTopicError):
        log.purge({TopicPartition("gone", 0): 1, **before})
    assert log.beginning_offsets(["t"]) == before


def test_offsets_out_of_range(log, batch):
    log.create_topic("t")
    log.append("t", 0, batch([b"a", b"b", b"c"]))
    assert log.delete_records("t", 0, 2) == 2
    assert log.beginning_offset("t", 0) == 2
    for offset in (1, 4):
        with pytest.raises(OffsetOutOfRangeError, match="from 2 to 3"):
            log.read("t", 0, offset)
    assert values(log, start=2) == [b"c"]
    assert log.end_offsets(["t"]) == {TopicPartition("t", 0): 3}


def test_a_transaction_is_all_or_nothing(log, batch):
    log.create_topic("t", 2)
    with log.transaction("x") as transaction:
        transaction.append("t", 0, batch([b"a"]))
        transaction.append("t", 1, batch([b"b"]))
        transaction.append("t", 0, batch([b"c"]))
        transaction.commit_offsets("g", {TopicPartition("in", 0): 7})
        transaction.put_ledger("app", "0_0", 1)
        assert log.end_offset("t", 0) == 0
    assert values(log) == [b"a", b"c"]
    assert log.committed_offsets("g") == {TopicPartition("in", 0): 7}
    with pytest.raises(ZeroDivisionError), log.transaction("x") as transaction:  # noqa: PT012
        transaction.append("t", 0, batch([b"lost"]))
        transaction.put_ledger("app", "0_0", 2)
        raise ZeroDivisionError
    assert log.end_offset("t", 0) == 2
    assert log.ledger("app") == {"0_0": 1}
    with log.transaction("x") as transaction:
        pass
    with pytest.raises(InvalidStateError):
        transaction.append("t", 0, batch([b"late"]))


def test_the_ledger_writes_a_batch_once(log, batch):
    log.create_topic("t")

    def write(number):
        with log.transaction("app-0_0") as transaction:
            transaction.append("t", 0, batch([b"%d" % number]))
            transaction.put_ledger("app", "0_0", number)
        return transaction.already_written

    assert [write(0), write(1), write(1)] == [False, False, True]
    with pytest.raises(FencedError, match="batch 1 is written"):
        write(0)
    assert values(log) == [b"0", b"1"]


def test_older_epochs_are_fenced(log, batch):
    log.create_topic("t")
    for epoch in (1, 2):
        with log.transaction("id", epoch) as transaction:
            transaction.append("t", 0, batch([b"%d" % epoch]))
    with pytest.raises(FencedError, match="epoch 2 has taken over"), log.transaction("id", 1) as transaction:
        transaction.append("t", 0, batch([b"zombie"]))
    assert values(log) == [b"1", b"2"]


def test_lease(log):
    lease = log.acquire_lease("app", "first")
    with pytest.raises(FencedError, match="first"):
        log.acquire_lease("app", "second")
    taken = log.acquire_lease("app", "second", force=True)
    assert taken.epoch == lease.epoch + 1
    with pytest.raises(FencedError):
        log.renew_lease(lease)
    with pytest.raises(FencedError), log.transaction("app-0_0", lease.epoch) as transaction:
        transaction.put_ledger("app", "0_0", 1)
    log.release_lease(lease)  # no longer its own: nothing happens
    log.renew_lease(taken)
    assert not log.lease("app").released
    log.release_lease(taken)
    assert log.acquire_lease("app", "third").epoch == 3


def test_lease_of_a_silent_owner_runs_out(log):
    log.acquire_lease("app", "first", ttl_ms=-1)
    assert log.acquire_lease("app", "second").epoch == 2


def test_offset_for_time(log, batch):
    log.create_topic("t", 2)
    log.append("t", 0, batch([b"a", b"b", b"c"], timestamps=[10, 30, 20]))
    log.append("t", 0, batch([b"d"], timestamps=[40]))
    found = [log.offset_for_time("t", 0, at) for at in (0, 20, 31, 41)]
    assert [each and (each.offset, each.timestamp) for each in found] == [(0, 10), (1, 30), (3, 40), None]
    places = [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert log.offsets_for_times({places[0]: 20, places[1]: 20}) == {places[0]: OffsetAndTime(1, 30), places[1]: None}
    log.delete_records("t", 0, 2)
    assert log.offset_for_time("t", 0, 30).offset == 3


def test_log_append_time(log, batch):
    log.create_topic("t", 1, {"message.timestamp.type": "LogAppendTime"})
    log.append("t", 0, batch([b"a"], timestamps=[1]))
    assert log.read("t", 0, 0).records.column("timestamp")[0].as_py() > 1_600_000_000_000


def test_version_and_waiting(log, batch):
    log.create_topic("t")
    log.create_topic("other")
    before, version = log.end_offsets(["t"]), log.version()
    assert log.wait_for_data(before, 0.01) == before
    log.append("other", 0, batch([b"a"]))
    assert log.version() > version
    assert log.wait_for_data(before, 0.01) == before
    log.append("t", 0, batch([b"a"]))
    assert log.wait_for_data(before, 5) == {TopicPartition("t", 0): 1}


def test_groups(log):
    log.commit_offsets("g", {TopicPartition("t", 0): 3, TopicPartition("t", 1): 4})
    log.commit_offsets("g", {TopicPartition("t", 0): 5})
    assert log.groups() == ["g"]
    assert log.committed_offsets("g") == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 4}
    log.delete_group("g")
    assert log.committed_offsets("g") == {}


def test_pickled_logs_open_again(log, batch):
    log.create_topic("t")
    again = pickle.loads(pickle.dumps(log))
    again.append("t", 0, batch([b"a"]))
    assert values(log) == [b"a"]
    again.close()


def test_a_topic_that_is_made_again_has_another_id(log):
    log.create_topic("a")
    log.create_topic("b")
    first = log.topic_ids(["a", "b", "missing"])
    assert set(first) == {"a", "b"}
    assert first["a"] != first["b"]
    log.create_partitions("a", 2)
    assert log.topic_ids(["a", "b"]) == first
    log.delete_topic("a")
    assert log.topic_ids(["a", "b"]) == {"b": first["b"]}
    log.create_topic("a")
    assert log.topic_ids(["a"])["a"] not in first.values()
    assert log.topic_ids([]) == {}


def test_a_batch_is_known_by_its_number_and_what_it_has_read(log, batch):
    log.create_topic("t")

    def write(number, inputs):
        with log.transaction("app-0_0") as transaction:
            transaction.append("t", 0, batch([b"v"]))
            transaction.put_ledger("app", "0_0", number, inputs)
        return transaction.already_written

    assert not write(0, "a")
    assert write(0, "a")
    assert write(0, "")  # an attempt that does not know
    with pytest.raises(CheckpointMismatchError, match="task 0_0: the ledger of 'app' says that batch 0 is done"):
        write(0, "b")
    assert not write(1, "")  # as earlier versions have noted it
    assert write(1, "c")
    assert not write(2, "d")
    assert log.end_offset("t", 0) == 3
    log.clear_ledger("app")
    assert not write(2, "e")


def test_a_lease_is_replaced_only_by_its_own_instance(log):
    first = log.acquire_lease("app", "first")
    second = log.acquire_lease("app", "first", replacing=first)
    assert second.epoch == first.epoch + 1
    with pytest.raises(FencedError, match=f"has taken over with epoch {second.epoch}"):
        log.acquire_lease("app", "first", replacing=first)
    log.release_lease(second)
    newer = log.acquire_lease("app", "other")
    log.release_lease(newer)
    with pytest.raises(FencedError, match=r"other .* has taken over"):
        log.acquire_lease("app", "first", replacing=second)
