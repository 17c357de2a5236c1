"""The fetcher and the producer of stream threads over Kafka."""

from __future__ import annotations

import re
import socket
import threading
import time
import uuid
from functools import partial

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer

from brokers import running_broker
from eventually import eventually
from penstock import Consumed, Materialized, Produced, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.threads.loop.bounded_log import BoundedLog
from penstock.engines.threads.loop.stream_thread import StreamThread
from penstock.errors import FencedError, OffsetOutOfRangeError, ProductionError, StateError, UnknownTopicError
from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.log.kafka.client_settings import TransactionTimeouts
from penstock.log.kafka.failures import removed_from_group
from penstock.log.kafka.transactions.group_presence import expel
from penstock.log.kafka.wire import fetch
from penstock.log.kafka.wire import transactions as wire_transactions
from penstock.log.kafka.wire.connection import BrokerConnection
from penstock.log.open import open_log
from penstock.log.thread_clients import Writer
from penstock.runtime.exception_handlers import Response
from penstock.testing.replay import PartitionRecords, replays_of
from threads import append, new_thread, records_of, thread_app

PATIENCE_S = 120.0


class App:
    """An application of its own name with a topic of three partitions, and what its threads need."""

    def __init__(self, log):
        self.log = log
        self.id = f"app-{uuid.uuid4().hex[:8]}"
        self.topic = f"{self.id}-out"
        log.create_topic(self.topic, 3)
        self.places = [TopicPartition(self.topic, each) for each in range(3)]
        self.lease = log.acquire_lease(self.id, "test")
        self.producers = []

    def writer(self, thread="thread-0", *, exactly_once=True):
        return Writer(self.id, thread, self.lease.epoch, exactly_once)

    def producer(self, thread="thread-0", *, exactly_once=True):
        self.producers.append(self.log.commit_producer(self.writer(thread, exactly_once=exactly_once)))
        return self.producers[-1]

    def values(self, partition=0):
        self.log.settled_ends(self.places)  # a commit returns before the brokers have marked all its partitions
        return self.log.read(self.topic, partition, 0).records.column("value").to_pylist()

    def offset(self, place):
        return self.log.committed_offsets(self.id).get(place)


@pytest.fixture(scope="module")
def log(kafka):
    with open_log(kafka.settings.bootstrap_servers) as opened:
        yield opened


@pytest.fixture(params=["Kafka 4", "older"])
def transactions(request, monkeypatch):
    """The two kinds of transactions; this broker knows both."""
    if request.param == "older":
        monkeypatch.setattr(wire_transactions, "_OF_KAFKA_4", 99)


@pytest.fixture
def cut(monkeypatch):
    """Cuts the connection at the next request of a kind: before it is sent, or before its answer comes."""
    send, armed = BrokerConnection.send, []

    def cutting(self, request):
        if not armed or type(request).__name__ != armed[0][0]:
            return send(self, request)
        _, when = armed.pop()
        if when == "before":
            self._socket.shutdown(socket.SHUT_RDWR)
            return send(self, request)
        number = send(self, request)
        self._socket.shutdown(socket.SHUT_RD)
        time.sleep(0.2)  # the broker works on it
        return number

    monkeypatch.setattr(BrokerConnection, "send", cutting)
    yield lambda name, when: armed.append((name, when))
    assert not armed, "there was no such request"


@pytest.fixture
def app(log):
    made = App(log)
    yield made
    for each in made.producers:
        each.close()


def batch(values, timestamp=1_000):
    return pa.RecordBatch.from_pydict(
        {"timestamp": [timestamp] * len(values), "key": [b"k"] * len(values), "value": values}
    )


def fetched(fetcher, count):
    """Poll until so many records have come."""
    found = {}
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(len, found.values())) < count and time.monotonic() < deadline:
        for place, each in fetcher.poll(1).items():
            found.setdefault(place, []).extend(each.records.column("value").to_pylist())
    return {place: values for place, values in found.items() if values}


def at(offset, metadata=""):
    return OffsetAndMetadata(offset, metadata)


@pytest.mark.usefixtures("transactions")
def test_records_and_offsets_are_committed_together(app):
    source = TopicPartition(app.topic, 2)
    producer = app.producer()
    with app.log.fetcher() as fetcher:
        fetcher.assign(dict.fromkeys(app.places, 0))
        assert fetcher.poll(1) == {}
        producer.send([(app.topic, 0, batch([b"a"])), (app.topic, 1, batch([b"b"]))])
        producer.send([(app.topic, 0, batch([b"c"]))])
        assert producer.pending_bytes > 0
        assert fetcher.poll(0.2) == {}
        assert producer.commit({source: at(5, "penstock note")}) == {app.places[0]: 2, app.places[1]: 1}
        assert (producer.pending_bytes, producer.collected()) == (0, ())
        assert fetched(fetcher, 3) == {app.places[0]: [b"a", b"c"], app.places[1]: [b"b"]}
        committed = eventually(lambda: app.log.group_offsets(app.id).get(source), PATIENCE_S)
        assert committed == at(5, "penstock note")
        for number in range(6, 12):
            producer.send([(app.topic, 0, batch([b"%d" % number]))])
            producer.commit({source: at(number)})
        eventually(lambda: app.offset(source) == 11, PATIENCE_S)
        assert app.values() == [b"a", b"c", *(b"%d" % each for each in range(6, 12))]


@pytest.mark.usefixtures("transactions")
@pytest.mark.parametrize("by", ["a newer producer", "fence_threads", "a newer instance"])
def test_a_fenced_producer_writes_nothing(app, by):
    source = TopicPartition(app.topic, 2)
    old = app.producer()
    old.send([(app.topic, 0, batch([b"a"]))])
    old.commit({source: at(1)})
    old.send([(app.topic, 0, batch([b"b"]))])
    if by == "a newer producer":
        app.producer()
    elif by == "fence_threads":
        app.log.fence_threads(app.id, ["thread-0", "thread-1"], app.lease.epoch)
    else:
        epoch = app.log.acquire_lease(app.id, "another", force=True).epoch
        app.log.fence_threads(app.id, ["thread-0"], epoch)
        with pytest.raises(FencedError):
            app.producer()
        with pytest.raises(FencedError):
            app.log.fence_threads(app.id, ["thread-0"], app.lease.epoch)
    for _ in range(2):
        with pytest.raises(FencedError):
            old.commit({source: at(2)})
    assert app.values() == [b"a"]
    eventually(lambda: app.offset(source) == 1, PATIENCE_S)


@pytest.mark.usefixtures("transactions")
def test_refused_records_are_named_by_part_and_row(app):
    app.log.alter_config(app.topic, {"max.message.bytes": "20000"})
    producer = app.producer()
    good = (app.topic, 0, batch([b"a"]))
    producer.send([good])
    producer.send([(app.topic, 1, batch([b"b", b"x" * 50_000, b"c"]))])
    with pytest.raises(ProductionError) as raised:
        producer.commit({app.places[2]: at(1)})
    assert raised.value.facts["refused"] == {1: [1]}
    assert app.offset(app.places[2]) is None
    producer.replace([good])
    assert producer.commit({app.places[2]: at(1)}) == {app.places[0]: 3}  # an aborted record and its marker
    assert app.values() == [b"a"]
    assert app.values(1) == []
    eventually(lambda: app.offset(app.places[2]) == 1, PATIENCE_S)


def test_at_least_once_writes_before_the_commit(app):
    producer = app.producer(exactly_once=False)
    producer.send([(app.topic, 0, batch([b"a"]))])
    eventually(lambda: app.values() == [b"a"], PATIENCE_S)
    assert app.offset(app.places[2]) is None
    assert producer.commit({app.places[2]: at(1)}) == {app.places[0]: 1}
    eventually(lambda: app.offset(app.places[2]) == 1, PATIENCE_S)  # brokers mark it as committed a little later
    app.log.fence_threads(app.id, ["thread-0"], app.lease.epoch)
    with pytest.raises(FencedError):
        producer.commit({app.places[2]: at(2)})
    assert app.offset(app.places[2]) == 1


def test_at_least_once_the_next_call_names_refused_records(app):
    app.log.alter_config(app.topic, {"max.message.bytes": "20000"})
    producer = app.producer(exactly_once=False)
    first, second = (app.topic, 0, batch([b"a"])), (app.topic, 1, batch([b"b", b"x" * 50_000, b"c"]))
    producer.send([first, second])
    assert len(producer.collected()) == 2
    with pytest.raises(ProductionError) as raised:
        producer.send([(app.topic, 2, batch([b"not taken"]))])
    assert raised.value.facts["refused"] == {1: [1]}
    assert [part[:2] for part in producer.collected()] == [first[:2], second[:2]]
    producer.replace([(app.topic, 1, batch([b"b", b"c"]))])
    producer.send(())
    assert producer.collected() == ()
    assert app.values(1) == [b"b", b"c"]
    producer.send([(app.topic, 1, batch([b"d"]))])
    assert producer.commit({app.places[2]: at(1)})[app.places[1]] == 3
    assert (app.values(), app.values(1), app.values(2)) == ([b"a"], [b"b", b"c", b"d"], [])


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_thread_leaves_out_refused_records_if_the_handler_says_so(app, guarantee):
    source, target = f"{app.id}-in", f"{app.id}-sums"
    app.log.create_topic(source)
    app.log.create_topic(target, 1, {"max.message.bytes": "20000"})
    builder = StreamsBuilder()
    builder.stream(source).to(target)
    asked = []

    def handler(context, record, error):
        asked.append(len(record.value))
        return Response("continue")

    config = {"application.id": app.id, "default.key.serde": "string", "default.value.serde": "string"}
    config |= {"production.exception.handler": handler, "processing.guarantee": guarantee}
    planned = thread_app(builder.build(config), config, app.log)
    thread = StreamThread(planned, app.log, app.writer(exactly_once=guarantee == "exactly_once_v2"), [*planned.tasks()])
    thread.start()
    for value in ("a", "x" * 50_000, "b", "c"):  # one batch each, so that one follows on the refused one
        append(app.log, source, [("k", value, 1)])
        processed = thread.figures().tasks[0].records_in + 1

        def is_processed(wanted=processed):
            thread.step(0.1)
            return thread.figures().tasks[0].records_in == wanted

        eventually(is_processed, PATIENCE_S)
    thread.close(commit=True)
    assert asked == [50_000]
    eventually(lambda: app.offset(TopicPartition(source, 0)) == 4, PATIENCE_S)
    assert [value for _, value, _ in records_of(app.log, target)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("refused", [0, 1])
def test_at_least_once_what_was_written_beside_refused_records_is_not_written_again(app, refused):
    """The tasks of a turn share a request: the broker takes one partition of it, and refuses the other one."""
    source, target = f"{app.id}-in", f"{app.id}-copies"
    app.log.create_topic(source, 2)
    app.log.create_topic(target, 2, {"max.message.bytes": "20000"})
    builder = StreamsBuilder()
    builder.stream(source).to(target, Produced(partitioner=lambda topic, key, value, count: int(key)))
    config = {"application.id": app.id, "default.key.serde": "string", "default.value.serde": "string"}
    config |= {"production.exception.handler": "continue", "processing.guarantee": "at_least_once"}
    planned = thread_app(builder.build(config), config, app.log)
    for partition, value in ((refused, "x" * 50_000), (refused, "b"), (1 - refused, "a")):
        append(app.log, source, [(str(partition), value, 1)], partition)
    thread = StreamThread(planned, app.log, app.writer(exactly_once=False), [*planned.tasks()])
    thread.start()

    def are_processed():
        thread.step(0.1)
        return sum(task.records_in for task in thread.figures().tasks) == 3

    eventually(are_processed, PATIENCE_S)
    thread.close(commit=True)
    values = {at: [value for _, value, _ in records_of(app.log, target, at)] for at in (0, 1)}
    assert values == {refused: [b"b"], 1 - refused: [b"a"]}


_STEPS = ("ProduceRequest", "TxnOffsetCommitRequest", "EndTxnRequest")


@pytest.mark.usefixtures("transactions")
@pytest.mark.parametrize("step", _STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_cut_in_the_middle_of_a_commit(app, cut, step, when):
    producer = app.producer()
    for number in range(4):
        producer.send([(app.topic, each, batch([b"%d" % number])) for each in (0, 1)])
        if number in (0, 2):
            cut(step, when)
        assert set(producer.commit({app.places[2]: at(number)})) == set(app.places[:2])
    assert app.values(0) == app.values(1) == [b"0", b"1", b"2", b"3"]
    eventually(lambda: app.offset(app.places[2]) == 3, PATIENCE_S)


@pytest.mark.usefixtures("transactions")
def test_a_transaction_that_takes_too_long_is_written_again_with_more_time(app, monkeypatch, caplog):
    log = app.log
    monkeypatch.setattr(log.clients, "thread_timeouts", TransactionTimeouts(1_000, 60_000))
    producer = app.producer()
    send, slow = BrokerConnection.send, ["EndTxnRequest", "TxnOffsetCommitRequest"]

    def pausing(self, request):
        if slow and type(request).__name__ == slow[-1] and getattr(request, "committed", True):
            slow.pop()
            eventually(lambda: _state(log, producer) == "CompleteAbort", PATIENCE_S)
        return send(self, request)

    monkeypatch.setattr(BrokerConnection, "send", pausing)
    producer.send([(app.topic, 0, batch([b"a"]))])
    producer.commit({app.places[2]: at(1)})
    assert slow == []
    assert caplog.text.count("it is written again, within") >= 2  # a slow machine may need more than the two of above
    producer.send([(app.topic, 0, batch([b"b"]))])
    producer.commit({app.places[2]: at(2)})
    assert app.values() == [b"a", b"b"]


@pytest.mark.usefixtures("transactions")
def test_a_newer_producer_is_not_taken_for_a_timeout(app, monkeypatch):
    log = app.log
    monkeypatch.setattr(log.clients, "thread_timeouts", TransactionTimeouts(1_000, 60_000))
    producer = app.producer()
    send, armed = BrokerConnection.send, ["EndTxnRequest"]

    def pausing(self, request):
        if armed and type(request).__name__ == armed[-1]:
            armed.pop()
            newer = app.producer()
            newer.send([(app.topic, 0, batch([b"newer"]))])
            newer.commit({app.places[2]: at(7)})
            time.sleep(1.1)
        return send(self, request)

    monkeypatch.setattr(BrokerConnection, "send", pausing)
    producer.send([(app.topic, 0, batch([b"older"]))])
    for _ in range(2):
        with pytest.raises(FencedError):
            producer.commit({app.places[2]: at(1)})
    assert app.values() == [b"newer"]
    eventually(lambda: app.offset(app.places[2]) == 7, PATIENCE_S)


def _state(log, producer):
    from kafka.protocol.admin import DescribeTransactionsRequest

    identity = producer._transactions.transactional_id
    with log.clients.cluster().coordinating(identity, "transactional.id") as coordinator:
        answer = coordinator.ask(DescribeTransactionsRequest(transactional_ids=[identity]))
    return answer.transaction_states[0].transaction_state


def test_records_of_aborted_transactions_are_never_seen(app):
    producer = app.producer()
    with app.log.fetcher() as fetcher:
        fetcher.assign(dict.fromkeys(app.places, 0))
        for number in range(5):
            fenced = app.log.clients.own_cluster()
            other = wire_transactions.ProducerTransactions(fenced, f"{app.id}-x", app.id, app.log.clients.limits())
            eventually(lambda: other.init(30_000) or True, PATIENCE_S, passing=(KafkaException,))  # noqa: B023
            other.write([(app.places[0], batch([b"aborted"]))], {})
            producer.send([(app.topic, 0, batch([b"%d" % number]))])
            producer.commit({})
            other.abort()
            fenced.close()
        assert fetched(fetcher, 5) == {app.places[0]: [b"0", b"1", b"2", b"3", b"4"]}
        end = app.log.end_offset(app.topic, 0)
        eventually(lambda: fetcher.poll(0.1).keys() <= {app.places[0]} and fetcher.ends()[app.places[0]] == end)


def test_gaps_of_compaction_are_passed(log):
    name = f"compacted-{uuid.uuid4().hex[:8]}"
    log.create_topic(name, 1, {
        "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100",
        "min.compaction.lag.ms": "0", "max.compaction.lag.ms": "100",
    })  # fmt: skip
    place = TopicPartition(name, 0)
    for number in range(5):
        log.append(name, 0, batch([b"%d" % number], 1_000 * number))  # all of one key, each in a segment of its own
    eventually(lambda: log.read(name, 0, 0).records.num_rows < 5)
    left = log.read(name, 0, 0).records.num_rows
    with log.fetcher() as fetcher:
        fetcher.assign({place: 0})
        assert len(fetched(fetcher, left)[place]) == left
        assert fetcher.ends() == {place: 5}


def test_paused_partitions_wait_and_kept_ones_lose_nothing(app):
    for partition in (0, 1):
        app.log.append(app.topic, partition, batch([b"a", b"b"]))
    with app.log.fetcher() as fetcher:
        fetcher.assign(dict.fromkeys(app.places, 0))
        fetcher.pause([app.places[0]])
        assert fetched(fetcher, 2) == {app.places[1]: [b"a", b"b"]}
        assert fetcher.poll(0.3) == {}
        fetcher.resume([app.places[0]])
        assert fetched(fetcher, 2) == {app.places[0]: [b"a", b"b"]}

        app.log.append(app.topic, 0, batch([b"c"]))  # it is fetched, perhaps, but not returned yet
        app.log.append(app.topic, 1, batch([b"c"]))
        time.sleep(0.2)
        fetcher.assign({app.places[0]: 2, app.places[1]: 1})
        assert fetched(fetcher, 3) == {app.places[0]: [b"c"], app.places[1]: [b"b", b"c"]}
        assert fetcher.poll(0.2) == {}
        fetcher.assign({app.places[1]: 0})
        assert fetched(fetcher, 3) == {app.places[1]: [b"a", b"b", b"c"]}


def test_looking_for_leaders_while_a_fetch_is_in_flight(app, caplog, monkeypatch):
    """Topics join one after the other, each while the answer to the fetch before is on its way, or has come."""
    monkeypatch.setattr(fetch, "_LATE_S", 2 * PATIENCE_S)  # a lost answer is not missed any earlier
    topics = [f"{app.topic}-more-{number}" for number in range(3)]
    for topic in topics:
        app.log.create_topic(topic, 1)
    wanted = {app.places[0]: 0}
    with app.log.fetcher() as fetcher:
        fetcher.assign(wanted)
        assert fetcher.poll(0.01) == {}  # a request is in flight
        fetcher._cluster._connections().pop(-1).close()  # as brokers do with those that are idle
        for number, topic in enumerate(topics):
            app.log.append(app.topic, 0, batch([b"%d" % number]))
            time.sleep(0.2)  # its answer waits in the socket
            wanted = {**wanted, app.places[0]: number, TopicPartition(topic, 0): 0}
            fetcher.assign(wanted)
            found = fetcher.poll(PATIENCE_S)
            assert found[app.places[0]].records.column("value").to_pylist() == [b"%d" % number]
            assert fetcher.poll(0.01) == {}
    assert not caplog.records


def test_one_request_is_in_flight_before_the_records_are_returned(app):
    app.log.append(app.topic, 0, batch([b"a"]))
    with app.log.fetcher() as fetcher:
        fetcher.assign({app.places[0]: 0})
        assert fetched(fetcher, 1) == {app.places[0]: [b"a"]}
        for pause_s in (0.3, 1, 3, 10):  # how long a broker takes to answer; without a request there is no answer ever
            app.log.append(app.topic, 0, batch([b"b"]))
            time.sleep(pause_s)
            if found := fetcher.poll(0):  # it was waiting here
                break
            assert fetched(fetcher, 1) == {app.places[0]: [b"b"]}
        assert found[app.places[0]].records.column("value").to_pylist() == [b"b"]


def test_positions_out_of_range_and_deleted_topics(app):
    app.log.append(app.topic, 0, batch([b"a", b"b", b"c"]))
    app.log.delete_records(app.topic, 0, 2)
    with app.log.fetcher() as fetcher:
        fetcher.assign({app.places[0]: 1, app.places[1]: 0})
        with pytest.raises(OffsetOutOfRangeError) as raised:
            fetched(fetcher, 1)
        facts = raised.value.facts
        assert (facts["topic"], facts["partition"], facts["offset"]) == (app.topic, 0, 1)
        fetcher.assign({app.places[0]: 2})
        assert fetched(fetcher, 1) == {app.places[0]: [b"c"]}
        app.log.delete_topic(app.topic)
        with pytest.raises(UnknownTopicError, match=app.topic):
            fetched(fetcher, 1)


def test_many_partitions(log):
    name = f"many-{uuid.uuid4().hex[:8]}"
    log.create_topic(name, 128)
    places = [TopicPartition(name, each) for each in range(128)]
    with log.fetcher() as fetcher:
        fetcher.assign(dict.fromkeys(places, 0))
        eventually(lambda: fetcher.poll(0.1) == {} and len(fetcher.ends()) == 128, PATIENCE_S)
        for place in places[::2]:
            log.append(name, place.partition, batch([b"%d" % place.partition]))
        assert fetched(fetcher, 64) == {place: [b"%d" % place.partition] for place in places[::2]}
        app_id = f"app-{uuid.uuid4().hex[:8]}"
        producer = log.commit_producer(Writer(app_id, "thread-0", 1))
        producer.send([(name, each, batch([b"x"])) for each in range(128)])
        assert len(producer.commit({place: at(1) for place in places})) == 128
        assert len(fetched(fetcher, 128)) == 128
        producer.close()


def test_a_broker_that_restarts(tmp_path):
    with running_broker(tmp_path) as broker, open_log(broker.settings.bootstrap_servers) as own:
        app = App(own)
        producer = app.producer()
        with own.fetcher() as fetcher:
            fetcher.assign(dict.fromkeys(app.places, 0))
            producer.send([(app.topic, 0, batch([b"a"]))])
            producer.commit({app.places[2]: at(1)})
            assert fetched(fetcher, 1) == {app.places[0]: [b"a"]}
            broker.stop()
            assert not any(each.records.num_rows for each in fetcher.poll(1.5).values())  # it retries within
            broker.start()
            producer.send([(app.topic, 0, batch([b"b"]))])
            producer.commit({app.places[2]: at(2)})
            assert fetched(fetcher, 1) == {app.places[0]: [b"b"]}
        producer.close()
        eventually(lambda: app.offset(app.places[2]) == 2, PATIENCE_S)
        assert app.values() == [b"a", b"b"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_at_least_once_survives_a_cut_connection(app, cut, when):
    producer = app.producer(exactly_once=False)
    cut("ProduceRequest", when)
    producer.send([(app.topic, 0, batch([b"a", b"b"]))])
    cut("TxnOffsetCommitRequest", when)
    assert producer.commit({app.places[2]: at(1)}) == {app.places[0]: 2}  # idempotent: not written twice
    eventually(lambda: app.offset(app.places[2]) == 1, PATIENCE_S)
    assert app.values() == [b"a", b"b"]


def test_settled_ends_wait_for_open_transactions_of_others(kafka, log):
    app = App(log)
    place = app.places[0]
    assert log.settled_ends([place]) == {place: 0}
    writer = Producer({"bootstrap.servers": kafka.settings.bootstrap_servers, "transactional.id": f"{app.id}-other"})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce(app.topic, b"x", partition=0)
    writer.flush()
    found = []
    waiting = threading.Thread(target=lambda: found.append(log.settled_ends(app.places)))
    waiting.start()
    waiting.join(0.5)
    assert found == []
    writer.commit_transaction()
    waiting.join(PATIENCE_S)
    assert found == [{place: 2, app.places[1]: 0, app.places[2]: 0}]  # the record, and the marker


def test_a_task_does_not_wait_for_a_topic_that_has_been_read_to_its_bound(log, app):
    builder = StreamsBuilder()
    for topic in (f"{app.id}-read", f"{app.id}-new"):
        log.create_topic(topic, 1)
    builder.stream([f"{app.id}-read", f"{app.id}-new"]).to(app.topic)
    serdes = {"default.key.serde": "string", "default.value.serde": "string"}
    append(log, f"{app.id}-read", [("a", "1", 1)], 0)
    append(log, f"{app.id}-new", [("b", "2", 2)], 0)
    read, new = TopicPartition(f"{app.id}-read", 0), TopicPartition(f"{app.id}-new", 0)
    log.commit_offsets(app.id, {read: 1})
    streams = thread_app(builder.build(serdes), serdes | {"application.id": app.id}, log)
    thread = StreamThread(streams, BoundedLog(log, {read: 1, new: 1}), app.writer(), streams.tasks())
    thread.start()
    eventually(lambda: thread.step(0.1) and thread.positions[new] == 1, PATIENCE_S)
    thread.close(commit=True)
    eventually(lambda: app.offset(new) == 1, PATIENCE_S)


def test_the_end_of_a_partition_that_comes_back_is_known_again(app):
    """A broker tells it once in a fetch session; a task waits for a partition without records whose end is unknown."""
    idle, busy = app.places[0], app.places[1]
    with app.log.fetcher() as fetcher:
        for turn in range(3):
            fetcher.assign({busy: turn} if turn else {busy: 0, idle: 0})
            if turn:
                fetcher.assign({busy: turn, idle: 0})  # without a request in between, as when a task is taken up anew
            append(app.log, app.topic, [("k", "v", 1)], 1)
            assert fetched(fetcher, 1) == {busy: [b"v"]}

            def known(now=fetcher):
                now.poll(0.1)
                return now.ends().get(idle) == 0

            eventually(known, PATIENCE_S)


def test_a_task_goes_on_when_it_reads_one_more_topic_though_others_are_idle(log):
    name = f"grows-{uuid.uuid4().hex[:8]}"
    topics = [f"{name}-{number}" for number in range(4)]
    for topic in topics[:3]:
        log.create_topic(topic)
    builder = StreamsBuilder()
    builder.stream(re.compile(f"{name}-.*")).to(f"out-{name}")
    log.create_topic(f"out-{name}")
    config = {"application.id": f"app-{name}", "default.key.serde": "string", "default.value.serde": "string"}
    app = thread_app(builder.build(), config, log)
    (task,) = app.tasks()
    thread = new_thread(app, log, epoch=log.acquire_lease(f"app-{name}", "test").epoch)
    thread.start()

    def has_written(count):
        thread.step(0.1)
        thread.commit()
        return len(records_of(log, f"out-{name}")) == count

    try:
        append(log, topics[0], [("k", "first", 1)])
        eventually(lambda: has_written(1), PATIENCE_S)
        log.create_topic(topics[3])
        grown = thread_app(builder.build(), config, log)
        thread.add(grown, dict(thread.remove([task])))
        append(log, topics[3], [("k", "second", 2)])
        eventually(lambda: has_written(2), PATIENCE_S)
    finally:
        thread.close(commit=True)


def test_an_error_for_a_partition_that_was_unassigned_and_assigned_again_is_passed_over(log):
    gone, stays = (App(log) for _ in range(2))
    places = {gone.places[0]: 0, stays.places[0]: 0}
    with log.fetcher() as fetcher:
        fetcher.assign(places)
        while not any(session.number is not None for session in fetcher._sessions.values()):
            fetcher.poll(0.0)
        log.delete_topic(gone.topic)  # the request that is on its way is answered with an error for it
        fetcher._cluster.forget_leaders([gone.places[0]])  # as after any error of its leader
        fetcher.assign({stays.places[0]: 0})
        fetcher.assign(places)
        log.append(stays.topic, 0, batch([b"x"]))
        found = {}
        eventually(lambda: found.update(fetcher.poll(0.1)) or stays.places[0] in found)


def test_commits_in_the_name_of_a_member_fail_once_the_group_has_removed_it(log):
    app = App(log)
    log.show_as_member(app.lease, [app.topic])
    me = log.membership(PATIENCE_S)
    assert me is not None
    known = [me]
    writer = Writer(app.id, "thread-0", app.lease.epoch, membership=lambda: known[-1])
    producer = log.commit_producer(writer)
    place = app.places[0]
    producer.send([(app.topic, 0, batch([b"a"]))])
    producer.commit({place: OffsetAndMetadata(1)})
    log.show_as_member(app.lease, [app.topic, "a-topic-to-come"])  # joins anew: another generation
    known.append(log.membership(PATIENCE_S))
    assert known[-1] != me
    known.append(me)  # the thread does not know yet
    threading.Timer(0.5, lambda: known.append(log.membership(PATIENCE_S))).start()
    producer.send([(app.topic, 0, batch([b"b"]))])
    producer.commit({place: OffsetAndMetadata(2)})  # waits for the new membership, and repeats the transaction
    expel(log.clients, app.id)  # as kafka-streams-application-reset --force does

    def membership():
        if len(known) > before:
            raise removed_from_group(app.id)  # what the driver tells its threads
        return known[-1]

    before = len(known)
    gone = log.commit_producer(Writer(app.id, "thread-1", app.lease.epoch, membership=membership))
    gone.send([(app.topic, 0, batch([b"c"]))])
    threading.Timer(0.5, lambda: known.append(None)).start()
    with pytest.raises(FencedError, match="another program has removed"):
        gone.commit({place: OffsetAndMetadata(3)})
    assert app.values() == [b"a", b"b"]
    eventually(lambda: app.offset(place) == 2, PATIENCE_S)

    def is_removed():
        try:
            log.membership()
        except FencedError as error:
            return "another program has removed" in str(error)
        return False

    eventually(is_removed)
    assert log.group_state(app.id).members == ()  # it does not join again
    log.release_lease(app.lease)
    for each in (producer, gone):
        each.close()


def test_a_replay_over_kafka_has_the_state_and_the_outputs_of_production(log):
    name = f"replay-{uuid.uuid4().hex[:8]}"
    for topic in (f"{name}-in", f"{name}-out"):
        log.create_topic(topic, 2)
    builder = StreamsBuilder()
    lines = builder.stream(f"{name}-in", Consumed(key_serde="string", value_serde="string"))
    counts = lines.group_by_key().count(Materialized("counts")).to_stream()
    counts.to(f"{name}-out", Produced(key_serde="string", value_serde="long"))
    settings = {"application.id": name, "bootstrap.servers": log.url, "statestore.cache.max.bytes": 0}
    app = thread_app(builder.build(), StreamsConfig(settings), log)
    for start in range(0, 30, 10):
        for partition in (0, 1):
            rows = [(f"k{number % 3}", "v", number) for number in range(start, start + 10)]
            append(log, f"{name}-in", rows, partition)
        thread = new_thread(app, log)
        thread.start()
        eventually(partial(stepped_to, thread, 2 * (start + 10)), PATIENCE_S)
        thread.close(commit=True)
    written = sorted(each for partition in (0, 1) for each in records_of(log, f"{name}-out", partition))
    replays = [
        replay
        for partition in (0, 1)
        for offset in range(30)
        for replay in replays_of(app, log, PartitionRecords(f"{name}-in", partition, offset, offset))
    ]
    outputs = [(each.key, each.value, each.timestamp) for replay in replays for each in replay.steps[0].outputs]
    assert sorted(outputs) == written
    assert replays[25].steps[0].changes[0].before.startswith("'k1': ValueAndTimestamp(value=8,")
    assert replays[25].before < 25  # from a commit before, not from the beginning


@pytest.mark.whole
def test_a_replay_over_a_compacted_changelog_is_that_of_production_or_says_what_is_gone(log):
    name = f"replay-{uuid.uuid4().hex[:8]}"
    log.create_topic(f"{name}-in", 1)
    builder = StreamsBuilder()
    lines = builder.stream(f"{name}-in", Consumed(key_serde="string", value_serde="string"))
    lines.group_by_key().count(Materialized("counts"))
    settings = {"application.id": name, "bootstrap.servers": log.url}
    app = thread_app(builder.build(), StreamsConfig(settings), log)
    changelog = app.changelogs["counts"]
    log.alter_config(changelog, {
        "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100", "min.compaction.lag.ms": "0",
        "max.compaction.lag.ms": "100",
    })  # fmt: skip
    keys = ["abc", "b", "d", "e"]  # of each run, which ends with a commit and a note
    for number, run in enumerate(keys, 1):
        append(log, f"{name}-in", [(key, "v", number) for key in run])
        thread = new_thread(app, log)
        thread.start()
        eventually(partial(stepped_to, thread, len("".join(keys[:number]))), PATIENCE_S)
        thread.close(commit=True)

    def replay(offset):
        return next(iter(replays_of(app, log, PartitionRecords(f"{name}-in", 0, offset, offset))))

    def first_count_of_b_is_gone():
        kept = [key for key, _, _ in records_of(log, changelog)]
        return kept.count(b"b") == 1

    eventually(first_count_of_b_is_gone, PATIENCE_S)
    again = replay(3)  # b once more: one record is missing from the changelog of the commit before
    assert again.before == 3  # from the beginning of the input, which is whole
    [change] = again.steps[0].changes
    assert change.before.startswith("'b': ValueAndTimestamp(value=1,")
    assert change.after.startswith("'b': ValueAndTimestamp(value=2,")
    log.delete_records(f"{name}-in", 0, 3)
    with pytest.raises(StateError, match=f"{changelog}-0 has been compacted since: rows of then may be missing"):
        replay(3)


def stepped_to(thread, count):
    thread.step(0.1)
    return sum(thread.positions.values()) >= count
