"""Reading and writing record batches by column, against a real broker and beside librdkafka's clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers import running_broker
from eventually import eventually
from penstock.log.base import HEADERS_TYPE
from penstock.log.base import TopicPartition as Place
from penstock.log.kafka.client_settings import ClientSettings
from penstock.log.kafka.wire import transactions
from penstock.log.kafka.wire.batch_format import codec_number
from penstock.log.kafka.wire.cluster import Cluster
from penstock.log.kafka.wire.fetch import fetch_once, fetch_range
from penstock.log.kafka.wire.produce import ProduceLimits
from penstock.log.kafka.wire.transactions import (
    ProducerTransactions,
    TransactionalWriter,
    TransactionTimedOutError,
    list_transactions,
)
from penstock.tools.broker.broker_settings import free_port
from penstock.tools.broker.process import Broker

PATIENCE_S = 60.0
START = 1_790_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("wire"), {"alice": "wonder"}) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(broker: Broker) -> Iterator[Cluster]:
    made = Cluster(ClientSettings.of(broker.settings.bootstrap_servers).kafka_python())
    yield made
    made.close()


def create(broker: Broker, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.settings.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result()
    reader = Consumer({"bootstrap.servers": broker.settings.bootstrap_servers, "group.id": "test"})
    place = TopicPartition(topic, 0)  # whose leader may be chosen only later
    eventually(lambda: reader.get_watermark_offsets(place, timeout=PATIENCE_S), PATIENCE_S, passing=(KafkaException,))
    reader.close()


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    numbers = np.arange(first, first + count)
    headers = [
        [{"key": "n", "value": b"%d" % n}, {"key": "none", "value": None}] if n % 5 == 0 else None for n in numbers
    ]
    return pa.RecordBatch.from_pydict(
        {
            "timestamp": pa.array(START + numbers),
            "key": pa.array([None if n % 7 == 0 else b"key-%d" % n for n in numbers], pa.large_binary()),
            "value": pa.array([None if n % 11 == 0 else b"value-%d" % n * (n % 4) for n in numbers], pa.large_binary()),
            "headers": pa.array(headers, HEADERS_TYPE),
        }
    )


def seen_by_librdkafka(broker: Broker, topic: str, isolation: str = "read_committed") -> list[tuple]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.settings.bootstrap_servers,
            "group.id": "test",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    with closing(Cluster(ClientSettings.of(broker.settings.bootstrap_servers).kafka_python())) as cluster:
        # A transaction may have ended before all its partitions show it.
        eventually(lambda: not list_transactions(cluster, "PrepareCommit", "PrepareAbort"), PATIENCE_S)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple] = []
    while True:
        message = consumer.poll(PATIENCE_S)
        if message is None or message.error():
            consumer.close()
            return found
        found.append((message.timestamp()[1], message.key(), message.value(), message.headers()))


def as_tuples(records: pa.RecordBatch) -> list[tuple]:
    return [
        (
            row["timestamp"],
            row["key"],
            row["value"],
            row["headers"] and [(h["key"], h["value"]) for h in row["headers"]],
        )
        for row in records.to_pylist()
    ]


def writer(cluster: Cluster, name: str, **limits: int) -> TransactionalWriter:
    made = TransactionalWriter(cluster, name, 30_000, ProduceLimits(**limits))
    made.init()
    return made


def open_ids(cluster: Cluster) -> set[str]:
    """Return the transactional ids with an open transaction."""
    return {each.transactional_id for each in list_transactions(cluster, "Ongoing")}


@pytest.fixture(params=["Kafka 4", "older"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The two kinds of transactions; this broker knows both."""
    if request.param == "older":
        monkeypatch.setattr(transactions, "_OF_KAFKA_4", 99)
    return str(request.param).replace(" ", "-")


def read_all(cluster: Cluster, topic: str, end: int, isolation: str = "read_committed") -> pa.Table:
    pieces = fetch_range(cluster, Place(topic, 0), (0, end), isolation, PATIENCE_S)
    return pa.Table.from_batches([each.records for each in pieces])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_columns_write_librdkafka_reads(broker: Broker, cluster: Cluster, codec: str) -> None:
    create(broker, f"written-{codec}")
    records = rows(3000)
    place = Place(f"written-{codec}", 0)
    with_codec = writer(cluster, f"writes-{codec}", codec=codec_number(codec), batch_bytes=20_000)
    with_codec.write([(place, records.slice(0, 1000)), (place, records.slice(1000))])
    assert seen_by_librdkafka(broker, place.topic) == as_tuples(records)
    assert as_tuples(read_all(cluster, place.topic, 3000)) == as_tuples(records)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_librdkafka_writes_columns_read(broker: Broker, cluster: Cluster, codec: str) -> None:
    topic = f"read-{codec}"
    create(broker, topic)
    producer = Producer(
        {"bootstrap.servers": broker.settings.bootstrap_servers, "compression.type": codec, "linger.ms": 20}
    )
    records = as_tuples(rows(3000))
    for stamp, key, value, headers in records:
        producer.produce(topic, value, key, timestamp=stamp, headers=headers)
    producer.flush()
    found = read_all(cluster, topic, 3000)
    assert as_tuples(found) == records
    assert found.column("offset").to_pylist() == list(range(3000))
    middle = list(fetch_range(cluster, Place(topic, 0), (1234, 2345), "read_committed", PATIENCE_S))
    assert as_tuples(pa.Table.from_batches([each.records for each in middle])) == records[1234:2345]
    assert middle[-1].next_offset == 2345


def test_aborted_and_open_transactions_are_not_seen(broker: Broker, cluster: Cluster) -> None:
    create(broker, "aborts")
    producer = Producer({"bootstrap.servers": broker.settings.bootstrap_servers, "transactional.id": "aborts"})
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        for each in range(3):
            producer.produce("aborts", b"%d-%d" % (number, each))
        producer.flush()
        if number % 2:
            producer.abort_transaction()
        elif number < 5:
            producer.commit_transaction()
    found = read_all(cluster, "aborts", 24)
    assert found.column("value").to_pylist() == [b"%d-%d" % (n, e) for n in (0, 2, 4) for e in range(3)]
    assert read_all(cluster, "aborts", 24, "read_uncommitted").num_rows == 18


def test_a_newer_writer_fences_the_older(broker: Broker, cluster: Cluster) -> None:
    create(broker, "fenced")
    place = Place("fenced", 0)
    old = writer(cluster, "fence")
    old.write([(place, rows(1))])
    new = writer(cluster, "fence")
    with pytest.raises(KafkaException) as raised:
        old.write([(place, rows(1, 100))])
    assert raised.value.args[0].code() in (KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    assert not old.ready
    new.write([(place, rows(1, 1))])
    assert [stamp for stamp, *_ in seen_by_librdkafka(broker, "fenced")] == [START, START + 1]


def test_what_is_refused_leaves_nothing_behind(broker: Broker, cluster: Cluster) -> None:
    create(broker, "small", **{"max.message.bytes": "1000"})
    own = writer(cluster, "refused")
    big = pa.RecordBatch.from_pydict({"timestamp": [START], "key": [b"k"], "value": [b"x" * 5000]})
    with pytest.raises(KafkaException, match="writing to small-0"):
        own.write([(Place("small", 0), rows(2)), (Place("small", 0), big)])
    own.init()
    own.write([(Place("small", 0), rows(1))])
    assert len(seen_by_librdkafka(broker, "small")) == 1


def test_offsets_that_are_not_there_and_topics_that_are_not_there(broker: Broker, cluster: Cluster) -> None:
    create(broker, "short")
    with pytest.raises(KafkaException, match="from offset 5"):
        list(fetch_range(cluster, Place("short", 0), (5, 9), "read_committed", PATIENCE_S))
    with pytest.raises(KafkaException, match="'nowhere'"):
        fetch_once(cluster, Place("nowhere", 0), 0, 1000, "read_committed")
    with pytest.raises(KafkaException, match="short-7"):
        fetch_once(cluster, Place("short", 7), 0, 1000, "read_committed")


@pytest.mark.parametrize("how", ["PLAIN", "SCRAM-SHA-512", "mTLS"])
def test_secured_listeners(broker: Broker, how: str) -> None:
    listeners, certificates = broker.settings.listeners(), broker.settings.certificates
    if how == "mTLS":
        address = f"127.0.0.1:{listeners['SSL']}"
        settings = {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(certificates / "ca.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.keystore.location": str(certificates / "client.pem"),
            "ssl.keystore.type": "PEM",
        }
    else:
        address = f"127.0.0.1:{listeners['SASL_PLAINTEXT']}"
        settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": how, "sasl.username": "alice"}
        wrong = ClientSettings.of(address, {**settings, "sasl.password": "hatter"}).kafka_python()
        with pytest.raises(KafkaException, match="refuses user 'alice' by") as raised:
            Cluster(wrong).any_broker()
        assert "hatter" not in str(raised.value)
        settings["sasl.password"] = "wonder"
    secured = Cluster(ClientSettings.of(address, settings).kafka_python())
    create(broker, f"secured-{how}")
    place = Place(f"secured-{how}", 0)
    writer(secured, f"secured-{how}").write([(place, rows(10))])
    assert read_all(secured, place.topic, 10).num_rows == 10
    secured.close()


def test_nobody_there() -> None:
    with pytest.raises(KafkaException, match="no connection to broker"):
        Cluster({"bootstrap_servers": [f"127.0.0.1:{free_port()}"]}).any_broker()


def test_a_transaction_that_its_coordinator_has_aborted_for_time_is_not_called_fenced(
    broker: Broker, cluster: Cluster, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"slow-{protocol}"
    create(broker, name)
    writing = TransactionalWriter(cluster, name, 100, ProduceLimits())
    writing.init()
    end = ProducerTransactions.end

    def end_late(own: ProducerTransactions) -> None:
        eventually(lambda: name not in open_ids(cluster))
        end(own)

    with monkeypatch.context() as late:
        late.setattr(ProducerTransactions, "end", end_late)
        with pytest.raises(TransactionTimedOutError) as caught:
            writing.write([(Place(name, 0), rows(1))])
    assert caught.value.args[0].code() == KafkaError.TRANSACTION_ABORTABLE
    ended = (KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_TXN_STATE)
    assert caught.value.__cause__.args[0].code() in ended
    writing.init(30_000)
    writing.write([(Place(name, 0), rows(3))])
    assert read_all(cluster, name, 6).num_rows == 3


def test_the_transaction_of_a_failed_write_is_aborted_by_its_own_producer(
    broker: Broker, cluster: Cluster, protocol: str
) -> None:
    name, small = f"given-up-{protocol}", f"given-up-{protocol}-small"
    create(broker, name)
    create(broker, small, **{"max.message.bytes": "1000"})
    big = pa.RecordBatch.from_pydict({"timestamp": [START], "key": [b"k"], "value": [b"x" * 5000]})
    own = writer(cluster, name)
    with pytest.raises(KafkaException, match=f"writing to {small}-0"):
        own.write([(Place(name, 0), rows(2)), (Place(small, 0), big)])
    assert name in open_ids(cluster)
    own.abort()
    eventually(lambda: name not in open_ids(cluster))
    own.init()
    own.write([(Place(name, 0), rows(3))])
    assert len(seen_by_librdkafka(broker, name)) == 3
