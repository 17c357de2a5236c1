"""Plain consumers and producers over a real broker, and what Kafka's own tools say about their groups."""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
from contextlib import suppress

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from eventually import eventually
from penstock.cli.main import main
from penstock.errors import (
    FencedError,
    InvalidStateError,
    LogError,
    OffsetOutOfRangeError,
    ProductionError,
    UnknownTopicError,
)
from penstock.log import Consumer, Delivery, Producer, RebalanceListener, TopicPartition, open_log
from penstock.log.groups.group_admin import GroupAdmin
from penstock.log.partitioner import partition_for

NAMES = itertools.count()
PATIENCE_S = 120


@pytest.fixture(scope="module")
def log(kafka):
    with open_log(kafka.settings.bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def name():
    return f"clients-{next(NAMES)}"


@pytest.fixture(params=["embedded", "kafka"])
def any_log(request, tmp_path):
    if request.param == "kafka":
        yield request.getfixturevalue("log")
        return
    with open_log(str(tmp_path / "log")) as opened:
        yield opened


@pytest.fixture
def topic(log, name):
    log.create_topic(name, 4, {"retention.ms": "-1"})
    return name


def produce(log, topic, count=20, start=0, times=None):
    with Producer(log) as producer:
        for i in range(start, start + count):
            producer.send(topic, b"%d" % i, key=b"k%d" % i, timestamp=times[i] if times else 1000 + i)


def poll_until(consumers, done):
    """Polls all in turn; gives what came."""
    found = []
    deadline = time.monotonic() + PATIENCE_S
    while not done(found):
        assert time.monotonic() < deadline, found
        for consumer in consumers:
            found += consumer.poll(0.05)
    return found


def test_records_there_and_back_with_their_places(log, topic):
    told = []
    with Producer(log, linger_ms=50) as producer:
        producer.send(
            topic, b"v", key=b"key", timestamp=7, headers=[("h", b"x"), ("h", None)],
            on_delivery=lambda done, error: told.append((done, error)),
        )  # fmt: skip
        producer.send_batch(topic, pa.RecordBatch.from_pydict({"timestamp": [8], "key": [b"key"], "value": [None]}))
        producer.flush()
        place = partition_for(b"key", 4)
        assert told == [(Delivery(topic, place, 0, 7), None)]
        with pytest.raises(UnknownTopicError, match="partition"):
            producer.send(topic, b"x", partition=9)
    with Consumer(log) as consumer:
        consumer.subscribe(topic)
        first, second = poll_until([consumer], lambda found: len(found) == 2)
        assert (first.partition, first.offset, first.timestamp, first.key) == (place, 0, 7, b"key")
        assert first.headers == (("h", b"x"), ("h", None))
        assert (second.offset, second.value) == (1, None)
        with pytest.raises(UnknownTopicError, match="Did you mean"):
            Consumer(log).subscribe(topic + "x")


class Heard(RebalanceListener):
    def __init__(self):
        self.events = []

    def on_assigned(self, partitions):
        self.events.append(("assigned", len(partitions)))

    def on_revoked(self, partitions):
        self.events.append(("revoked", len(partitions)))


def test_zero_and_empty_are_values_of_their_own(any_log, name):
    """The first moment of 1970, the first partition and the first offset, empty keys, values and headers."""
    any_log.create_topic(name, 3)
    reported = []
    with Producer(any_log) as producer:
        producer.send(name, b"before", key=b"k", timestamp=5, partition=0)
        producer.send(
            name, b"", key=b"", timestamp=0, partition=0, headers=[("", b""), ("none", None)],
            on_delivery=lambda done, error: reported.append((done, error)),
        )  # fmt: skip
        producer.send(name, b"after", key=b"k", timestamp=1, partition=0)
        for at in (0, 1, 0):
            producer.send(name, b"%d" % at, key=b"of a key", timestamp=at)
        producer.send(name, None, key=b"", timestamp=0)
        batch = {"timestamp": [0, 3, 0], "key": [b"x"] * 3, "value": [b"", None, b"last"]}
        producer.send_batch(name, pa.RecordBatch.from_pydict(batch))
        producer.flush()
        with pytest.raises(LogError, match=r"-1 of a record for .* is before 1970"):
            producer.send(name, b"x", timestamp=-1)
    assert reported == [(Delivery(name, 0, 1, 0), None)]
    with Consumer(any_log) as consumer:
        consumer.subscribe(name)
        found = poll_until([consumer], lambda found: len(found) == 10)
        first = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in found if r.partition == 0][:3]
        assert first == [
            (0, 5, b"k", b"before", ()),
            (1, 0, b"", b"", (("", b""), ("none", None))),
            (2, 1, b"k", b"after", ()),
        ]
        by_key = {key: [(r.timestamp, r.value) for r in found if r.key == key] for key in (b"of a key", b"", b"x")}
        assert by_key == {
            b"of a key": [(0, b"0"), (1, b"1"), (0, b"0")],
            b"": [(0, b""), (0, None)],
            b"x": [(0, b""), (3, None), (0, b"last")],
        }
        assert {r.partition for r in found if r.key == b"of a key"} == {partition_for(b"of a key", 3)}
        assert next(r.partition for r in found if r.value is None and not r.key) == partition_for(b"", 3)
    assert any_log.offset_for_time(name, 0, 0).offset == 0


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_members_share_and_hand_over(log, topic, name, assignor):
    produce(log, topic)
    heard = Heard()
    first, second = (
        Consumer(log, group=name, assignors=assignor, session_timeout_ms=6000, heartbeat_interval_ms=200)
        for _ in range(2)
    )
    first.subscribe(topic, listener=heard)
    assert len(poll_until([first], lambda found: len(found) >= 20)) == 20
    first.commit()
    second.subscribe(topic)
    poll_until([first, second], lambda _: len(first.assignment()) == len(second.assignment()) == 2)
    assert first.assignment().isdisjoint(second.assignment())
    state = log.group_state(name)
    assert (state.state, state.assignor, len(state.members)) == ("Stable", assignor, 2)
    assert {place for each in state.members for place in each.owned} == first.assignment() | second.assignment()
    produce(log, topic, 20, start=20)
    found = poll_until([first, second], lambda found: len(found) >= 20)
    assert sorted(int(record.value) for record in found) == list(range(20, 40))  # none lost, none twice
    first.commit()
    second.commit()
    second.close()
    poll_until([first], lambda _: len(first.assignment()) == 4)
    assert heard.events[:2] == [("assigned", 4), ("revoked", 4 if assignor == "range" else 2)]
    first.close()
    assert sum(log.committed_offsets(name).values()) == 40
    entries = ask_kafka(log, name)
    assert entries == log.committed_offsets(name)


def ask_kafka(log, group):
    admin = AdminClient({"bootstrap.servers": log.url})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    return {TopicPartition(each.topic, each.partition): each.offset for each in found.topic_partitions}


def test_a_static_member_finds_its_partitions_again_and_fences(log, topic, name):
    def member():
        consumer = Consumer(log, group=name, group_instance_id="one", heartbeat_interval_ms=200)
        consumer.subscribe(topic)
        poll_until([consumer], lambda _: len(consumer.assignment()) == 4)
        return consumer

    first = member()
    first.close()
    assert [each.instance for each in log.group_state(name).members] == ["one"]  # it did not leave
    second = member()
    third = member()
    with pytest.raises(FencedError):
        poll_until([second], lambda _: False)
    third.close()


def test_positions_seeking_pausing(log, topic):
    produce(log, topic, 40)
    places = [TopicPartition(topic, n) for n in range(4)]
    consumer = Consumer(log)
    consumer.assign(places)
    assert set(consumer.positions.values()) == {0}
    found = poll_until([consumer], lambda found: len(found) >= 40)
    assert consumer.positions == consumer.end_offsets()
    consumer.seek_to_time(1030)
    later = poll_until([consumer], lambda found: len(found) >= 10)
    assert sorted(record.timestamp for record in later) == list(range(1030, 1040))
    consumer.pause(places[1:])
    consumer.seek_to_beginning()
    mine = [record for record in found if record.partition == 0]
    assert len(poll_until([consumer], lambda found: len(found) >= len(mine))) == len(mine)
    assert consumer.poll(0.2) == []
    consumer.resume(consumer.paused())
    assert len(poll_until([consumer], lambda found: len(found) >= 40 - len(mine))) == 40 - len(mine)
    consumer.assign({places[0]: 1}, {places[0]: 3})
    assert [record.offset for record in consumer] == [1, 2]
    with pytest.raises(InvalidStateError, match="not assigned"):
        consumer.seek(places[1], 0)
    consumer.close()
    nowhere = Consumer(log, auto_offset_reset="none")
    with pytest.raises(OffsetOutOfRangeError):
        nowhere.assign(places)


def test_ranges_of_time_end_behind_the_marks_of_transactions(log, topic):
    minutes = [-20, 5, -1, 61, 30, 59, 60, 90, 10, 200]
    hour = 1_790_000_000_000
    with Producer(log, transactional_id=f"tx-{topic}") as producer:
        for minute in minutes:
            with producer.transaction():
                producer.send(topic, b"%d" % minute, timestamp=hour + minute * 60_000, partition=0)
        with pytest.raises(KeyError), producer.transaction():  # noqa: PT012 - what was sent before must not stay
            producer.send(topic, b"7", timestamp=hour, partition=0)
            raise KeyError
    log.settled_ends([TopicPartition(topic, 0)])
    with Consumer(log) as consumer:
        found = list(consumer.between(hour, hour + 3_600_000, topic))
        assert [int(record.value) for record in found] == [5, 30, 59, 10]
        near = consumer.between(hour, hour + 3_600_000, topic, disorder="15 min")
        assert [int(record.value) for record in near] == [5, 30, 59]


def test_read_process_write_once_and_fencing(log, topic, name):
    produce(log, topic)
    log.create_topic(f"{name}-out")
    consumer = Consumer(log, group=name)
    consumer.subscribe(topic)
    old = Producer(log, transactional_id=name)
    new = Producer(log, transactional_id=name)
    with pytest.raises(FencedError), old.transaction():
        old.send(f"{name}-out", b"x")
    old.close()
    done = 0
    while done < 20:
        records = consumer.poll(1)
        with new.transaction():
            for record in records:
                new.send(f"{name}-out", record.value)
            new.send_offsets(consumer)
        done += len(records)
    consumer.close()
    eventually(lambda: sum(log.committed_offsets(name).values()) == 20)
    log.settled_ends([TopicPartition(f"{name}-out", 0)])
    with Consumer(log) as check:
        found = list(check.between(0, 1 << 45, f"{name}-out"))
    assert sorted(int(record.value) for record in found) == list(range(20))


def test_patterns_and_auto_commit(log, name):
    for number in range(2):
        log.create_topic(f"{name}-p{number}")
        produce(log, f"{name}-p{number}", 3)
    with Consumer(log, group=name, auto_commit_interval_ms=0) as consumer:
        consumer.subscribe(re.compile(f"{name}-p.*"))
        poll_until([consumer], lambda found: len(found) == 6)
    assert sum(log.committed_offsets(name).values()) == 6


def test_the_commands_over_a_broker(log, topic, name, capsys, monkeypatch):
    produce(log, topic)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments, "-b", log.url])
        with suppress(SystemExit):
            main()
        return capsys.readouterr().out

    with Consumer(log, group=name, client_id="reader") as consumer:
        consumer.subscribe(topic)
        poll_until([consumer], lambda found: len(found) == 20)
        consumer.commit()
        described = json.loads(run("groups", "describe", name, "--json"))
        assert (described["state"], described["members"][0]["client"]) == ("Stable", "reader")
        assert [row["lag"] for row in described["partitions"]] == [0, 0, 0, 0]
        with pytest.raises(FencedError, match="1 member"):
            GroupAdmin(log).delete(name)
    assert name in run("groups", "list")
    run("groups", "reset", name, "--to-earliest", "--topic", f"{topic}:0,1", "--execute")
    left = ask_kafka(log, name)
    assert (left[TopicPartition(topic, 0)], left[TopicPartition(topic, 1)]) == (0, 0)
    run("groups", "delete", name, "--topic", f"{topic}:0", "--yes")
    assert set(ask_kafka(log, name)) == {TopicPartition(topic, n) for n in (1, 2, 3)}
    run("groups", "delete", name, "--yes")
    assert name not in log.groups()


def test_commands_end_with_a_sentence_about_what_a_broker_or_client_refuses(
    log, topic, name, capsys, monkeypatch, tmp_path
):
    big, huge, small = tmp_path / "big", tmp_path / "huge", f"{name}-small"
    big.write_bytes(b"x" * 2_000_000 + b"\n")
    huge.write_bytes(b"x" * 6_000_000 + b"\n")
    (settings := tmp_path / "client.properties").write_text("max.request.size=5000000\n")
    log.create_topic(small, 1, {"max.message.bytes": "3000000"})
    log.create_topic(f"{name}-compact", 1, {"cleanup.policy": "compact"})

    def refused(*arguments):
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments, "-b", log.url])
        with pytest.raises(SystemExit) as ended:
            main()
        error = " ".join(capsys.readouterr().err.split())
        assert ended.value.code == 1, error
        assert "error: " in error
        assert "Hint: " in error
        return error

    produce = "topics", "produce"
    error = refused(*produce, small, "--file", str(big))
    assert "larger than this client sends: 1,048,588 bytes (max.request.size)" in error
    assert "Broker:" not in error
    main_of = [*produce, small, "--file", str(big), "--command-config", str(settings), "-b", log.url]
    monkeypatch.setattr(sys, "argv", ["penstock", *main_of])
    with suppress(SystemExit):
        main()
    assert log.end_offset(small, 0) == 1
    error = refused(*produce, topic, "--file", str(big), "--command-config", str(settings))
    assert "max.message.bytes of the topic" in error
    assert "max.request.size" not in error
    assert "larger than this client sends: 5,000,000" in refused(
        *produce, small, "--file", str(huge), "--command-config", str(settings)
    )
    far = refused(*produce, topic, "--value", "x", "--timestamp", "99999999999999999")
    assert "message.timestamp.after.max.ms" in far
    assert "max.message.bytes" not in far
    assert "before 1970" in refused(*produce, topic, "--value", "x", "--timestamp=-5")
    assert "without a key" in refused(*produce, f"{name}-compact", "--value", "x")
    lists = "[" * 5_000
    assert "deep" in refused(*produce, topic, "--value", lists, "--value-format", "json")
    assert "does not fit" in refused(*produce, topic, "--value", "[1]", "--value-format", "uuid")
    create = "topics", "create", f"{name}-none"
    assert "replication.factor" not in refused(*create, "-c", "retention.ms=abc")
    assert "Unknown topic config name" in refused(*create, "-c", "no.such=1")
    assert "letters, digits" in refused("topics", "create", "bad name")
    with Producer(log) as producer:
        with pytest.raises(ProductionError, match=r"larger than this client sends: 1,048,588 bytes"):
            producer.send(topic, b"x" * 2_000_000)
        with pytest.raises(ProductionError, match=r"larger than this client sends: 1,048,588 bytes"):
            producer.send_batch(topic, pa.RecordBatch.from_pydict({"timestamp": [1], "value": [b"x" * 2_000_000]}))
