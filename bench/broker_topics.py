"""The benchmark's records in topics of a broker, and what a peer has written to one; by confluent-kafka alone."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import polars as pl
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import answers
import prepare
from datasets import N_KEYS, PARTITIONS

PATIENCE_S = 60
SHORT_S = 0.2
LOOK_S = 2  # a question that goes unanswered is asked again
CHUNK = 20_000
FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}  # the records' timestamps are in the past


def client(bootstrap: str) -> dict[str, Any]:
    """Settings of all clients; librdkafka's own log says nothing that an exception does not."""
    return {"bootstrap.servers": bootstrap, "log_level": 0}


def input_topic(topic: str, n: int) -> str:
    return f"bench-{topic}" if topic == "users" else f"bench-{topic}-{n}"


def size_of(topic: str, n: int) -> int:
    return N_KEYS if topic == "users" else n


def create(bootstrap: str, topic: str, config: dict[str, str], partitions: int = PARTITIONS) -> None:
    admin = AdminClient(client(bootstrap))  # has to outlive the answer
    made = admin.create_topics([NewTopic(topic, partitions, -1, config=config)])
    made[topic].result(PATIENCE_S)


def warm_up(bootstrap: str) -> None:
    """A transaction and a group of no consequence: the first ones make the broker create topics of its own."""
    create(bootstrap, "bench-warm-up", {})
    producer = Producer(client(bootstrap) | {"transactional.id": "bench-warm-up"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("bench-warm-up", b"")
    producer.commit_transaction(PATIENCE_S)
    consumer = Consumer(client(bootstrap) | {"group.id": "bench-warm-up", "auto.offset.reset": "earliest"})
    consumer.subscribe(["bench-warm-up"])
    consumer.consume(1, PATIENCE_S)
    consumer.close()
    delete(bootstrap, "bench-warm-up")


def delete(bootstrap: str, part: str) -> None:
    """All topics with this in their names."""
    admin = AdminClient(client(bootstrap))
    found = [topic for topic in admin.list_topics(timeout=PATIENCE_S).topics if part in topic]
    for deleted in admin.delete_topics(found).values() if found else ():
        with contextlib.suppress(Exception):  # one that is gone already
            deleted.result(PATIENCE_S)


class Watch:
    """Looks at topics from outside all groups."""

    def __init__(self, bootstrap: str) -> None:
        settings = {
            "group.id": "bench-watch", "enable.auto.commit": False, "enable.partition.eof": True,
            "auto.offset.reset": "earliest", "isolation.level": "read_committed",
        }  # fmt: skip
        self._consumer = Consumer(client(bootstrap) | settings)

    def held(self, topic: str) -> int:
        """Offsets between beginning and end, transaction markers included."""
        return sum(high - low for low, high in (self._span(topic, partition) for partition in range(PARTITIONS)))

    def _span(self, topic: str, partition: int) -> tuple[int, int]:
        """Again when the broker is not quite ready, as with a topic that has only just been made."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=LOOK_S)
            except KafkaException:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def read(self, topic: str) -> pl.DataFrame:
        """Key and value as text, and timestamp, of all committed records, each partition in its order."""
        return self.read_bytes(topic).cast({"key": pl.String, "value": pl.String})

    def read_bytes(self, topic: str, partitions: int = PARTITIONS) -> pl.DataFrame:
        """Key, value and timestamp of all committed records, each partition in its order."""
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        open_partitions = set(range(partitions))
        keys, values, times = [], [], []
        heard = time.monotonic()
        while open_partitions:
            messages = self._consumer.consume(CHUNK, SHORT_S)  # waits that long, unless it has so many at once
            heard = time.monotonic() if messages else heard
            if time.monotonic() - heard > PATIENCE_S:
                raise TimeoutError(f"no records and no end of {topic} in {PATIENCE_S} s")
            for message in messages:
                if message.error():
                    open_partitions.discard(message.partition())
                else:
                    keys.append(message.key())
                    values.append(message.value())
                    times.append(message.timestamp()[1])
        self._consumer.unassign()
        frame = {"key": pl.Series(keys, dtype=pl.Binary), "value": pl.Series(values, dtype=pl.Binary), "at": times}
        return pl.DataFrame(frame, schema_overrides={"at": pl.Int64})

    def close(self) -> None:
        self._consumer.close()


def preload(bootstrap: str, root: Path, topic: str, n: int) -> None:
    """Fills the input topic, and root/n/topic.parquet for the answers, unless both hold the records already."""
    name, frames_file = input_topic(topic, n), root / str(n) / f"{topic}.parquet"
    watch = Watch(bootstrap)
    try:
        exists = name in AdminClient(client(bootstrap)).list_topics(timeout=PATIENCE_S).topics
        full = exists and watch.held(name) == size_of(topic, n)
    finally:
        watch.close()
    if full and frames_file.exists():
        return
    frames = list(prepare.frames(topic, n))
    frames_file.parent.mkdir(parents=True, exist_ok=True)
    pl.concat(frames).write_parquet(frames_file, compression="lz4")
    if full:
        return
    if exists:
        delete(bootstrap, name)
    create(bootstrap, name, FOREVER)
    settings = {"linger.ms": 50, "batch.size": 500_000, "queue.buffering.max.messages": 2_000_000}
    producer = Producer(client(bootstrap) | settings | {"partitioner": "murmur2_random"})
    for frame in frames:
        partitions = frame["partition"] if "partition" in frame.columns else pl.repeat(-1, frame.height, eager=True)
        rows = zip(frame["key"], frame["value"].cast(pl.Binary), partitions, frame["timestamp"], strict=True)
        for key, value, partition, timestamp in rows:
            producer.produce(name, value, key, partition, timestamp=timestamp)
        producer.flush(PATIENCE_S)


def check(workload: str, root: Path, n: int, found: pl.DataFrame) -> tuple[bool, str]:
    """Whether what a peer has written is the right answer, and what is wrong otherwise."""
    expected = answers.ANSWERS[workload](root / str(n))
    if workload == "w1":
        fields = pl.Struct({"ip": pl.String, "path": pl.String, "status": pl.Int64})
        rows = [frame.select(pl.col("value").str.json_decode(fields)).unnest("value") for frame in (found, expected)]
        seen, wanted = (frame.sort(frame.columns) for frame in rows)
        return seen.equals(wanted), f"{seen.height} records, {wanted.height} expected"
    number = pl.coalesce(pl.col("value").str.json_path_match("$.count"), "value").cast(pl.Int64)
    last = found.unique("key", keep="last", maintain_order=True).select("key", value=number)
    both = last.join(expected, on="key", how="full", coalesce=True)
    wrong = both.filter(pl.col("value").ne_missing(pl.col("value_right"))).height
    return wrong == 0, f"{last.height} keys, {wrong} wrong, sum {last['value'].sum()} of {expected['value'].sum()}"
