"""A Kafka client of another library as a process, in an environment of its own:

    python client_program.py produce LIBRARY CODEC BOOTSTRAP TOPIC COUNT
    python client_program.py consume LIBRARY - BOOTSTRAP TOPIC COUNT

A producer writes COUNT records within a transaction, and as many within one that it aborts. A consumer reads COUNT
committed records and those that come in the next seconds, and prints each as a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["CODECS", "LIBRARIES", "Sent", "sent_by"]

LIBRARIES = ("kafka-python", "aiokafka", "confluent-kafka")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 7
MORE_S = 3.0  # how long nothing more must come
PATIENCE_S = 120.0


class Sent(NamedTuple):
    """A record as text; ``headers`` are pairs."""

    key: str | None
    value: str | None
    headers: list[tuple[str, str]]


def sent_by(library: str, codec: str, count: int, fate: str = "kept") -> list[Sent]:
    """The records of a producer: some without a key, some without a value, some without headers.

    >>> sent_by("aiokafka", "gzip", 1)
    [Sent(key=None, value='aiokafka gzip kept 0', headers=[])]
    """
    records = []
    for number in range(count):
        text = f"{library} {codec} {fate} {number}"
        key = None if number % 10 == 0 else f"{library}-{number % KEYS}"
        value = None if number % 10 == 5 else text
        headers = [] if number % 3 == 0 else [("number", text), ("twice", "1"), ("twice", "2")]
        records.append(Sent(key, value, headers))
    return records


def encoded(record: Sent) -> dict[str, Any]:
    return {
        "key": None if record.key is None else record.key.encode(),
        "value": None if record.value is None else record.value.encode(),
        "headers": [(name, value.encode()) for name, value in record.headers],
    }


def decoded(key: bytes | None, value: bytes | None, headers: Any) -> Sent:
    return Sent(
        None if key is None else key.decode(),
        None if value is None else value.decode(),
        [(name, bytes(content).decode()) for name, content in headers or ()],
    )


def produce(library: str, codec: str, bootstrap: str, topic: str, count: int) -> None:
    transactions = [(sent_by(library, codec, count, fate), fate == "kept") for fate in ("aborted", "kept")]
    name = f"{library}-{codec}"
    if library == "kafka-python":
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=name, compression_type=None if codec == "none" else codec
        )
        producer.init_transactions()
        for records, kept in transactions:
            producer.begin_transaction()
            for record in records:
                producer.send(topic, **encoded(record))
            producer.flush()
            (producer.commit_transaction if kept else producer.abort_transaction)()
        producer.close()
    elif library == "aiokafka":
        asyncio.run(produce_async(name, codec, bootstrap, topic, transactions))
    else:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "compression.type": codec}
        confluent = Producer(settings)
        confluent.init_transactions(PATIENCE_S)
        for records, kept in transactions:
            confluent.begin_transaction()
            for record in records:
                confluent.produce(topic, **encoded(record))
            confluent.flush(PATIENCE_S)
            (confluent.commit_transaction if kept else confluent.abort_transaction)(PATIENCE_S)


async def produce_async(
    name: str, codec: str, bootstrap: str, topic: str, transactions: list[tuple[list[Sent], bool]]
) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=name, compression_type=None if codec == "none" else codec
    )
    await producer.start()
    try:
        for records, kept in transactions:
            await producer.begin_transaction()
            for record in records:
                await producer.send(topic, **encoded(record))
            await producer.flush()
            await (producer.commit_transaction if kept else producer.abort_transaction)()
    finally:
        await producer.stop()


def consume(library: str, bootstrap: str, topic: str, count: int) -> Iterator[Sent]:
    """The committed records of a topic: that many, and those that come within a short time after them."""
    if library == "aiokafka":
        yield from asyncio.run(consume_async(bootstrap, topic, count))
        return
    poll = (
        polled_by_kafka_python(bootstrap, topic) if library == "kafka-python" else polled_by_confluent(bootstrap, topic)
    )
    read, deadline = 0, time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for record in next(poll):
            read += 1
            if read == count:
                deadline = time.monotonic() + MORE_S
            yield record


def polled_by_kafka_python(bootstrap: str, topic: str) -> Iterator[list[Sent]]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    places = [TopicPartition(topic, partition) for partition in consumer.partitions_for_topic(topic)]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    while True:
        found = consumer.poll(timeout_ms=500)
        yield [decoded(each.key, each.value, each.headers) for records in found.values() for each in records]


def polled_by_confluent(bootstrap: str, topic: str) -> Iterator[list[Sent]]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "client", "isolation.level": "read_committed",
        "enable.auto.commit": False,
    })  # fmt: skip
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    while True:
        found = [each for each in consumer.consume(1000, 0.5) if each.error() is None]
        yield [decoded(each.key(), each.value(), each.headers()) for each in found]


async def consume_async(bootstrap: str, topic: str, count: int) -> list[Sent]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip
    await consumer.start()
    try:
        partitions = set[int]()
        while not partitions:
            await consumer._client.force_metadata_update()
            partitions = consumer.partitions_for_topic(topic) or set()
        places = [TopicPartition(topic, partition) for partition in partitions]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        read: list[Sent] = []
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            before = len(read)
            for records in (await consumer.getmany(timeout_ms=500)).values():
                read += [decoded(each.key, each.value, each.headers) for each in records]
            if before < count <= len(read):
                deadline = time.monotonic() + MORE_S
        return read
    finally:
        await consumer.stop()


def main(action: str, library: str, codec: str, bootstrap: str, topic: str, count: str) -> None:
    if action == "produce":
        produce(library, codec, bootstrap, topic, int(count))
        return
    for record in consume(library, bootstrap, topic, int(count)):
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
