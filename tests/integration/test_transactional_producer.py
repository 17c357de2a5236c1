"""Transactions of plain producers over both logs, and over Kafka what its brokers do to them; the timestamp 0 in all."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer as ClientConsumer

from brokers import running_broker
from eventually import eventually
from penstock.errors import (
    ConfigError,
    FencedError,
    LogError,
    LogUnavailableError,
    PenstockError,
    ProductionError,
    UnknownTopicError,
)
from penstock.log import Consumer, Delivery, Producer, TopicPartition, open_log
from penstock.log.base import OffsetAndMetadata
from penstock.log.kafka.wire.transactions import list_transactions
from penstock.log.partitioner import partition_for
from penstock.log.thread_clients import Writer

NAMES = itertools.count()


@pytest.fixture(scope="module")
def kafka_log(kafka):
    with open_log(kafka.settings.bootstrap_servers) as opened:
        yield opened


@pytest.fixture(params=["embedded", "kafka"])
def log(request, tmp_path):
    if request.param == "kafka":
        yield request.getfixturevalue("kafka_log")
        return
    with open_log(str(tmp_path / "log")) as opened:
        yield opened


@pytest.fixture
def name():
    return f"transactions-{next(NAMES)}"


def committed(log: Any, topic: str) -> list[dict[str, Any]]:
    """All committed records, with their partitions."""
    places = [TopicPartition(topic, number) for number in range(log.partitions(topic))]
    ends = log.settled_ends(places) if hasattr(log, "settled_ends") else log.end_offsets([topic])
    return [
        {**row, "partition": place.partition}
        for place in places
        for batch in log.read_range(topic, place.partition, 0, ends[place])
        for row in batch.to_pylist()
    ]


def values(log: Any, topic: str) -> list[bytes]:
    return [row["value"] for row in committed(log, topic)]


def test_the_timestamp_0_is_written_in_transactions_as_any_other(log, name):
    log.create_topic(name, 3)
    reported: list[Delivery | Exception | None] = []

    def note(done, error):
        reported.append(done or error)

    with Producer(log, transactional_id=name) as producer:
        with producer.transaction():
            producer.send(name, b"before", key=b"k", timestamp=5, partition=0, on_delivery=note)
            producer.send(
                name, b"", key=b"", timestamp=0, partition=0, headers=[("", b""), ("none", None)], on_delivery=note
            )
            producer.send(name, b"after", key=b"k", timestamp=1, partition=0, on_delivery=note)
            for at in (0, 1, 0):
                producer.send(name, b"%d" % at, key=b"of a key", timestamp=at)
            batch = {"timestamp": [0, 3, 0], "key": [b"x"] * 3, "value": [b"", None, b"last"]}
            producer.send_batch(name, pa.RecordBatch.from_pydict(batch))
        with pytest.raises(KeyError), producer.transaction():  # noqa: PT012 - what was sent before must not stay
            producer.send(name, b"given up", timestamp=0, partition=0)
            producer.flush()
            raise KeyError
        with producer.transaction():
            producer.send(name, b"second", timestamp=0, partition=0, on_delivery=note)
    found = committed(log, name)
    assert [
        (row["timestamp"], row["key"], row["value"], [(each["key"], each["value"]) for each in row["headers"] or ()])
        for row in found
        if row["partition"] == 0 and row["key"] not in (b"of a key", b"x")
    ] == [
        (5, b"k", b"before", []),
        (0, b"", b"", [("", b""), ("none", None)]),
        (1, b"k", b"after", []),
        (0, None, b"second", []),
    ]
    for key, wanted in ((b"of a key", [(0, b"0"), (1, b"1"), (0, b"0")]), (b"x", [(0, b""), (3, None), (0, b"last")])):
        rows = [row for row in found if row["key"] == key]
        assert {row["partition"] for row in rows} == {partition_for(key, 3)}
        assert [(row["timestamp"], row["value"]) for row in rows] == wanted
    assert [(each.partition, each.offset, each.timestamp) for each in reported[:3]] == [(0, 0, 5), (0, 1, 0), (0, 2, 1)]
    by_offset = {row["offset"]: row["value"] for row in found if row["partition"] == 0}
    assert by_offset[reported[3].offset] == b"second"


def test_the_timestamp_0_is_written_by_the_writers_of_applications(log, name):
    log.create_topic(name)
    records = pa.RecordBatch.from_pydict({"timestamp": [0, 7, 0], "value": [b"a", b"b", b"c"]})
    with log.transaction(f"{name}-batches") as transaction:
        transaction.append(name, 0, records)
    producer = log.commit_producer(Writer(name, "thread-0", None))
    try:
        producer.send([(name, 0, records)])
        producer.commit({TopicPartition(name, 0): OffsetAndMetadata(3, "")})
    finally:
        producer.close()
    assert [(row["timestamp"], row["value"]) for row in committed(log, name)] == [(0, b"a"), (7, b"b"), (0, b"c")] * 2


def test_a_transaction_of_many_pieces_is_one(log, name):
    log.create_topic(name, 2)
    heard: dict[int, Delivery] = {}
    with (
        Producer(log, transactional_id=name, batch_bytes=1000) as producer,
        Producer(log) as other,
        producer.transaction(),
    ):
        for number in range(300):
            key = b"k%d" % (number % 7)
            producer.send(
                name, b"%d" % number, key=key, timestamp=number % 3,
                on_delivery=lambda done, _, number=number: heard.update({number: done}),
            )  # fmt: skip
            if number % 100 == 50:
                producer.flush()
                other.send(name, b"other", key=key, timestamp=9)  # between the pieces
                other.flush()
    found = [row for row in committed(log, name) if row["value"] != b"other"]
    for key in {row["key"] for row in found}:
        mine = [int(row["value"]) for row in found if row["key"] == key]
        assert mine == sorted(mine)
    assert sorted(int(row["value"]) for row in found) == list(range(300))
    at = {int(row["value"]): (row["partition"], row["offset"], row["timestamp"]) for row in found}
    assert {number: (done.partition, done.offset, done.timestamp) for number, done in heard.items()} == at


def test_the_time_of_a_delivery_is_the_brokers_where_that_counts(kafka_log, name):
    kafka_log.create_topic(name, 1, {"message.timestamp.type": "LogAppendTime"})
    reported: list[int] = []
    with Producer(kafka_log, transactional_id=name) as producer, producer.transaction():
        for _ in range(3):
            producer.send(name, b"x", timestamp=0, on_delivery=lambda done, _: reported.append(done.timestamp))
    assert reported == [row["timestamp"] for row in committed(kafka_log, name)]
    assert min(reported) > 0


def test_offsets_are_committed_with_the_records_that_were_read(kafka_log, name):
    log = kafka_log
    log.create_topic(f"{name}-in", 2)
    log.create_topic(f"{name}-out")
    with Producer(log) as sender:
        for number in range(20):
            sender.send(f"{name}-in", b"%d" % number, key=b"%d" % number, timestamp=0)
    with Consumer(log, group=name) as consumer, Producer(log, transactional_id=name) as producer:
        consumer.subscribe(f"{name}-in")
        done = 0
        while done < 20:
            records = consumer.poll(1, max_records=6)
            with pytest.raises(KeyError), producer.transaction():  # noqa: PT012 - given up, and read again
                producer.send(f"{name}-out", b"given up", timestamp=0)
                producer.send_offsets(consumer)
                raise KeyError
            with producer.transaction():
                for record in records:
                    producer.send(f"{name}-out", record.value, timestamp=record.timestamp)
                producer.send_offsets(consumer)
            done += len(records)
        assert sum(log.committed_offsets(name).values()) == 20
        rows = committed(log, f"{name}-out")
        assert sorted(int(row["value"]) for row in rows) == list(range(20))
        assert {row["timestamp"] for row in rows} == {0}


def test_offsets_of_one_who_is_no_member_any_more_are_refused(kafka, kafka_log, name):
    kafka_log.create_topic(name)
    config = {"bootstrap.servers": kafka.settings.bootstrap_servers, "group.id": name, "session.timeout.ms": "6000"}
    member = ClientConsumer({**config, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    member.subscribe([name])
    eventually(lambda: [member.poll(0.1), member.assignment()][1])

    kept = member.consumer_group_metadata()
    gone: Any = SimpleNamespace(group_metadata=lambda: kept)  # a consumer that has left
    member.close()
    with Producer(kafka_log, transactional_id=name) as producer:
        with pytest.raises(LogError), producer.transaction():  # noqa: PT012 - both belong to one transaction
            producer.send(name, b"x", timestamp=0)
            producer.send_offsets(gone, {TopicPartition(name, 0): 0})
        with producer.transaction():
            producer.send(name, b"y", timestamp=0)
    assert values(kafka_log, name) == [b"y"]
    assert kafka_log.committed_offsets(name) == {}


def test_an_older_producer_is_fenced_whatever_it_does(kafka_log, name):
    kafka_log.create_topic(name)
    idle, writing = (Producer(kafka_log, transactional_id=f"{name}-{number}") for number in range(2))
    reported = []
    with pytest.raises(FencedError), writing.transaction():  # noqa: PT012 - it is fenced in the middle
        writing.send(name, b"old", timestamp=0)
        writing.flush()
        newer = [Producer(kafka_log, transactional_id=f"{name}-{number}") for number in range(2)]
        writing.send(name, b"old", timestamp=0, on_delivery=lambda done, error: reported.append((done, error)))
    [(done, error)] = reported
    assert done is None
    assert isinstance(error, FencedError)
    for old in (idle, writing):
        with pytest.raises(FencedError), old.transaction():
            old.send(name, b"old", timestamp=0)
    for producer in newer:
        with producer.transaction():
            producer.send(name, b"new", timestamp=0)
    for producer in (idle, writing, *newer):
        producer.close()
    assert values(kafka_log, name) == [b"new", b"new"]


def test_a_record_that_is_refused_ends_its_transaction_alone(kafka_log, name):
    kafka_log.create_topic(name)
    kafka_log.create_topic(f"{name}-compact", 1, {"cleanup.policy": "compact"})
    reported: list[tuple[Delivery | None, Exception | None]] = []
    with Producer(kafka_log, transactional_id=name) as producer:

        def refused(kind: type[PenstockError], text: str, *sent: dict[str, Any]) -> None:
            with pytest.raises(kind, match=text), producer.transaction():  # noqa: PT012 - all of one transaction
                producer.send(name, b"never", timestamp=0)
                for each in sent:
                    producer.send(**{"value": b"x", "timestamp": 0, **each})

        note = lambda done, error: reported.append((done, error))  # noqa: E731
        refused(ProductionError, "larger than this client sends", {"topic": name, "value": b"x" * 2_000_000})
        refused(ProductionError, f"writing to {name}-compact-0", {"topic": f"{name}-compact", "on_delivery": note})
        refused(UnknownTopicError, "partition", {"topic": name, "partition": 7})
        refused(LogError, "not a valid|Invalid|invalid", {"topic": "no name!"})
        with producer.transaction():
            producer.send(name, b"good", key=b"k", timestamp=0)
    [(done, error)] = reported
    assert done is None
    assert isinstance(error, ProductionError)
    assert values(kafka_log, name) == [b"good"]


def test_values_of_a_wrong_type_end_their_transaction(kafka_log, name):
    kafka_log.create_topic(name)
    with Producer(kafka_log, transactional_id=name) as producer:
        with pytest.raises(TypeError), producer.transaction():
            producer.send(name, 5, timestamp=0)  # type: ignore[arg-type]
        with pytest.raises(LogError, match="left out by an error before"), producer.transaction():  # noqa: PT012
            producer.send(name, b"never", timestamp=0)
            producer.send(name, [1], timestamp=0)  # type: ignore[arg-type]
            with pytest.raises(pa.ArrowException):
                producer.flush()
        with producer.transaction():
            producer.send(name, b"good", timestamp=0)
    assert values(kafka_log, name) == [b"good"]


def test_what_was_not_written_when_a_transaction_is_given_up_is_reported(kafka_log, name):
    kafka_log.create_topic(name)
    reported: list[tuple[Delivery | None, Exception | None]] = []
    producer = Producer(kafka_log, transactional_id=name, linger_ms=3_600_000)
    with pytest.raises(KeyError), producer, producer.transaction():  # noqa: PT012 - given up
        producer.send(name, b"x", timestamp=0, on_delivery=lambda done, error: reported.append((done, error)))
        raise KeyError
    [(done, error)] = reported
    assert done is None
    assert isinstance(error, LogUnavailableError)
    assert values(kafka_log, name) == []


def test_a_transaction_that_takes_too_long_is_none_of_another_producer(kafka, kafka_log, name):
    with open_log(kafka.settings.bootstrap_servers, {"producer.transaction.timeout.ms": "1000"}) as log:
        log.create_topic(name)
        cluster = log.clients.cluster()

        def is_open() -> bool:
            return name in {each.transactional_id for each in list_transactions(cluster, "Ongoing")}

        late = pytest.raises(LogUnavailableError, match="was aborted, as it took")
        with late, Producer(log, transactional_id=name) as producer, producer.transaction():
            producer.send(name, b"late", timestamp=0)
            producer.flush()
            eventually(lambda: not is_open())
    with Producer(kafka_log, transactional_id=name) as producer, producer.transaction():
        producer.send(name, b"again", timestamp=0)
    assert values(kafka_log, name) == [b"again"]


def test_settings_that_only_kafkas_c_client_obeys_are_obeyed_and_refuse_the_timestamp_0(kafka, name):
    with open_log(kafka.settings.bootstrap_servers, {"producer.partitioner": "consistent"}) as log:
        log.create_topic(name, 4)
        with Producer(log, transactional_id=name) as producer:
            with producer.transaction():
                for number in range(20):
                    producer.send(name, b"x", key=b"%d" % number, timestamp=1)
            refusal = "the timestamp 0, which transactions cannot write with partitioner"
            with pytest.raises(LogError, match=refusal), producer.transaction():
                producer.send(name, b"x", timestamp=0)
        found = {row["key"]: row["partition"] for row in committed(log, name)}
        assert len(found) == 20
        assert any(place != partition_for(key, 4) for key, place in found.items())  # CRC32 of the key


def test_a_broker_that_restarts_in_the_middle_of_a_transaction_loses_and_doubles_nothing(tmp_path):
    patient = {"producer.transaction.timeout.ms": "600000", "task.timeout.ms": "300000"}
    with running_broker(tmp_path / "kafka") as broker, open_log(broker.settings.bootstrap_servers, patient) as log:
        log.create_topic("t", 2)
        with Producer(log, transactional_id="tx", batch_bytes=500) as producer:
            for round_ in range(3):
                with producer.transaction():
                    for number in range(100):
                        producer.send("t", b"%d-%d" % (round_, number), key=b"%d" % number, timestamp=number % 2)
                        if number == 50 and round_ == 1:
                            producer.flush()
                            broker.stop(kill=True)
                            broker.start()
        expected = [f"{round_}-{number}".encode() for round_ in range(3) for number in range(100)]
        assert sorted(values(log, "t")) == sorted(expected)


@pytest.mark.logs_error("on_delivery has raised an error")
def test_each_callback_is_called_once_and_its_errors_end_no_transaction(log, name, caplog):
    log.create_topic(name)
    heard: list[Any] = []

    def bad(done, error):
        heard.append(("bad", done is not None))
        raise ValueError("of the callback")

    def note(done, error):
        heard.append(("good", done is not None))

    with Producer(log, transactional_id=name, linger_ms=3_600_000) as producer:
        with producer.transaction():
            for number in range(3):
                producer.send(name, b"%d" % number, on_delivery=bad if number == 1 else note)
        assert heard == [("good", True), ("bad", True), ("good", True)]
        assert f"on_delivery has raised an error for {name}-0 offset 1" in caplog.text
        with pytest.raises(KeyError), producer.transaction():  # noqa: PT012 - given up, whatever the callback does
            producer.send(name, b"never", on_delivery=bad)
            raise KeyError
    assert values(log, name) == [b"0", b"1", b"2"]


@pytest.mark.logs_error("on_delivery has raised an error")
def test_a_callback_sends_within_its_transaction_but_not_while_that_ends(kafka_log, name, caplog):
    kafka_log.create_topic(name)
    with Producer(kafka_log, transactional_id=name, linger_ms=3_600_000) as producer:
        more = lambda *_: producer.send(name, b"more")  # noqa: E731
        with producer.transaction():
            producer.send(name, b"first", on_delivery=more)
            producer.flush()
            assert not caplog.records
            producer.send(name, b"last", on_delivery=more)
    assert "this producer is ending its transaction" in caplog.text
    assert values(kafka_log, name) == [b"first", b"more", b"last"]


def test_records_are_those_of_the_time_of_send(log, name):
    log.create_topic(name)
    value, headers = bytearray(b"one"), [("a", b"1")]
    with Producer(log, transactional_id=name, linger_ms=3_600_000) as producer, producer.transaction():
        producer.send(name, value, key=memoryview(value), headers=headers)  # type: ignore[arg-type]
        value[:] = b"two"
        headers.append(("b", b"2"))
        producer.send(name, b"x", headers=iter(headers))  # type: ignore[arg-type]
        with pytest.raises(LogError, match="are a dict, not pairs"):
            producer.send(name, b"y", headers={"ab": b"c"})  # type: ignore[arg-type]
    found = [(row["value"], [(each["key"], each["value"]) for each in row["headers"]]) for row in committed(log, name)]
    assert found == [(b"one", [("a", b"1")]), (b"x", [("a", b"1"), ("b", b"2")])]


def test_records_of_a_write_that_a_wrong_type_ends_are_reported(kafka_log, name):
    kafka_log.create_topic(name)
    reported: list[tuple[Delivery | None, Exception | None]] = []
    note = lambda done, error: reported.append((done, error))  # noqa: E731
    with (  # noqa: PT012 - both are of one write
        Producer(kafka_log, transactional_id=name, linger_ms=3_600_000) as producer,
        pytest.raises(pa.ArrowException),
        producer.transaction(),
    ):
        producer.send(name, b"good", on_delivery=note)
        producer.send(name, [1], on_delivery=note)  # type: ignore[arg-type]
    assert [done for done, _ in reported] == [None, None]
    assert all(isinstance(error, LogUnavailableError) for _, error in reported)
    assert values(kafka_log, name) == []


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"producer.linger.ms": "soon"}, "linger.ms='soon' is not a number"),
        ({"batch.size": "1k"}, "batch.size='1k' is not a whole number"),
        ({"max.request.size": "big"}, "max.request.size='big' is not a whole number"),
        ({"transaction.timeout.ms": "1m"}, "transaction.timeout.ms='1m' is not a whole number"),
        ({"retries": "0"}, "retries"),
    ],
)
def test_settings_of_a_wrong_value_are_named(kafka, name, setting, said):
    servers = kafka.settings.bootstrap_servers
    with pytest.raises(ConfigError, match=said), open_log(servers, setting) as log:
        Producer(log, transactional_id=name)


def test_batches_are_no_larger_than_their_topic_takes(kafka_log, name):
    kafka_log.create_topic(name, 1, {"max.message.bytes": "20000"})
    with Producer(kafka_log, transactional_id=name, linger_ms=3_600_000) as producer, producer.transaction():
        for number in range(200):
            producer.send(name, b"%04d" % number * 250, partition=0)
    assert [value[:4] for value in values(kafka_log, name)] == [b"%04d" % number for number in range(200)]


def test_threads_share_a_producer_and_its_transaction(log, name):
    log.create_topic(name, 3)
    heard: list[int] = []

    def send(first: int) -> None:
        for number in range(first, first + 300):
            producer.send(
                name, b"%d" % number, key=b"%d" % first, on_delivery=lambda done, _: heard.append(done.offset)
            )

    with (
        Producer(log, transactional_id=name, batch_bytes=2000, linger_ms=0) as producer,
        producer.transaction(),
        ThreadPoolExecutor(4) as pool,
    ):
        list(pool.map(send, (0, 300, 600, 900)))
    assert len(heard) == 1200
    found = committed(log, name)
    assert sorted(int(row["value"]) for row in found) == list(range(1200))
    for key in {row["key"] for row in found}:
        mine = [int(row["value"]) for row in found if row["key"] == key]
        assert mine == sorted(mine)


def test_a_commit_that_ends_with_any_error_leaves_no_transaction_open(kafka_log, name):
    kafka_log.create_topic(name)
    with Producer(kafka_log, transactional_id=name, linger_ms=3_600_000) as producer:
        with pytest.raises(pa.ArrowException), producer.transaction():  # noqa: PT012 - the second one ends the commit
            producer.send(name, b"never")
            producer.flush()
            producer.send(name, [1])  # type: ignore[arg-type]
        assert name not in {each.transactional_id for each in list_transactions(kafka_log.clients.cluster(), "Ongoing")}
        with producer.transaction():
            producer.send(name, b"good")
    assert values(kafka_log, name) == [b"good"]
