"""Avro over a real broker and a registry over HTTP, with confluent-kafka's serializers on both ends."""

from __future__ import annotations

import json

import polars as pl
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from penstock import Consumed, Grouped, Produced, Serdes, StreamsBuilder
from penstock.serde.registry import Registry
from penstock.tools.registry_server import server

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "city", "type": "string"}, {"name": "amount", "type": "double"}],
}
LATER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}


@pytest.fixture
def registry(tmp_path):
    made = server(Registry(tmp_path / "registry.db"), port=0)
    made.start()
    with SchemaRegistryClient({"url": f"http://127.0.0.1:{made.port}"}) as client:
        yield client
    made.close()


def produce(url, client, topic, schema, rows, conf=None):
    write = AvroSerializer(client, json.dumps(schema), conf=conf)
    producer = Producer({"bootstrap.servers": url})
    for number, row in enumerate(rows):
        headers = []
        value = write(row, SerializationContext(topic, MessageField.VALUE, headers))
        producer.produce(topic, value, f"k{number}".encode(), partition=number % 2, headers=headers)
    producer.flush()


def consume(url, client, topic):
    """All records that are committed, in the order of partitions."""
    read = AvroDeserializer(client)
    consumer = Consumer({"bootstrap.servers": url, "group.id": "reader", "isolation.level": "read_committed"})
    try:
        partitions = [
            TopicPartition(topic, number, 0) for number in consumer.list_topics(topic).topics[topic].partitions
        ]
        ends = {place.partition: consumer.get_watermark_offsets(place)[1] for place in partitions}
        consumer.assign(partitions)
        found = []
        while any(
            0 <= place.offset < ends[place.partition] or (place.offset < 0 and ends[place.partition])
            for place in consumer.position(partitions)
        ):
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None
                context = SerializationContext(topic, MessageField.VALUE, message.headers())
                found.append((message.key(), read(message.value(), context), message.headers() or []))
        return found
    finally:
        consumer.close()


def test_avro_from_producer_to_consumer(kafka_bench, registry):
    orders = Serdes.avro(LATER)
    builder = StreamsBuilder()
    source = builder.stream("orders", Consumed(value_serde=orders))
    source.filter(pl.col("amount") >= 50).to("large", Produced(value_serde=Serdes.avro(LATER, framing="header")))
    (
        source.group_by(lambda key, order: order["city"], Grouped(value_serde=orders))
        .reduce(lambda old, new: {**new, "amount": old["amount"] + new["amount"]})
        .to_stream()
        .to("sums", Produced(value_serde=orders))
    )
    log = kafka_bench.log
    for topic in ("orders", "large", "sums"):
        log.create_topic(topic, 2)
    rows = [{"city": f"c{i % 3}", "amount": float(i)} for i in range(60)]
    produce(kafka_bench.url, registry, "orders", ORDER, rows[:30])
    late = [{**row, "note": "x"} for row in rows[30:]]
    produce(kafka_bench.url, registry, "orders", LATER, late, {"schema.id.serializer": header_schema_id_serializer})
    settings = {"schema.registry.url": registry.config()["url"]}
    kafka_bench.run(builder.build(), **settings)

    large = consume(kafka_bench.url, registry, "large")
    assert sorted(value["amount"] for _, value, _ in large) == [float(i) for i in range(50, 60)]
    assert {name for _, _, headers in large for name, _ in headers} == {"__value_schema_id"}
    sums = {}
    for key, value, headers in consume(kafka_bench.url, registry, "sums"):
        sums[key] = value["amount"]
        assert headers == []
    assert sums == {f"c{c}".encode(): sum(float(i) for i in range(60) if i % 3 == c) for c in range(3)}
    subjects = set(registry.get_subjects())
    assert subjects >= {"orders-value", "large-value", "sums-value"}
    assert any(subject.startswith("app-") and subject.endswith("-repartition-value") for subject in subjects)
    assert registry.get_versions("orders-value") == [1, 2]
