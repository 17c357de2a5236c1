"""Penstock and a Kafka Streams program in Java over one broker: each reads what the other has written, and takes over."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from java_sources import compiler
from penstock import (
    Consumed,
    Grouped,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from penstock.log.partitioner import partition_for

from .java_program import JavaProgram, compile_program

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no JDK (javac) to compile the Java program with")

PARTITIONS = 3
PATIENCE_S = 180
Rows = list[tuple[str, str, int]]
Row = tuple[int, bytes, bytes]
HITS: Rows = [
    ("a", "x", 0),
    ("b", "y", 5_000),
    ("a", "x", 20_000),
    ("a", "z", 55_000),
    ("b", "x", 70_000),
    ("ü", "y", 90_000),
]
BEGIN = 1_790_000_040_000  # a whole minute
TIMES, SESSIONS = len(HITS), len(HITS) + 1  # a session that grows leaves a tombstone under its old key


class Topics:
    """Topics of one test, by short names."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self._prefix = prefix

    def __call__(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def create(self, *names: str) -> list[str]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        made = admin.create_topics([NewTopic(self(name), PARTITIONS, 1) for name in names])
        for each in made.values():
            each.result(PATIENCE_S)
        return [self(name) for name in names]

    def write(self, name: str, rows: Rows) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random"})
        for key, value, after_ms in rows:
            producer.produce(self(name), value, key, timestamp=BEGIN + after_ms)
        assert producer.flush(PATIENCE_S) == 0

    def read(self, topic: str, wanted: int) -> list[Row]:
        """Partition, key and value of so many committed records, and of all that are there then."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap, "group.id": "look", "enable.auto.commit": False,
                "enable.partition.eof": True, "isolation.level": "read_committed", "auto.offset.reset": "earliest",
            }
        )  # fmt: skip
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        found, ended, deadline = [], set(), time.monotonic() + PATIENCE_S
        while len(found) < wanted or len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, f"{len(found)} of {wanted} records in {topic}: {found}"
            for message in consumer.consume(100, 0.1):
                if message.error():
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    ended.add(message.partition())
                else:
                    found.append((message.partition(), message.key(), message.value()))
                    ended.discard(message.partition())
        consumer.close()
        return found


@pytest.fixture(scope="session")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_program(tmp_path_factory.mktemp("classes"))


@pytest.fixture
def topics(kafka: Any, request: pytest.FixtureRequest) -> Topics:
    return Topics(kafka.settings.bootstrap_servers, request.node.name.replace("_", "-"))


@pytest.fixture
def java(class_path: str, kafka: Any, tmp_path: Path) -> Callable[..., JavaProgram]:
    count = 0

    def make(application: str, program: str, *names: str) -> JavaProgram:
        nonlocal count
        count += 1
        bootstrap = kafka.settings.bootstrap_servers
        return JavaProgram(class_path, bootstrap, application, tmp_path / f"java-{count}", program, *names)

    return make


TEXT = Consumed(key_serde="string", value_serde="string")
WINDOWED = Serdes.time_windowed("string", "1 minute")
SESSION = Serdes.session_windowed("string")


def writes_windows(source: str, times: str, sessions: str) -> Topology:
    builder = StreamsBuilder()
    hits = builder.stream(source, TEXT).group_by_key(Grouped(key_serde="string", value_serde="string"))
    counts = Materialized(key_serde="string", value_serde="long")
    in_time = hits.windowed_by(TimeWindows.of("1 minute", grace=0)).count(counts)
    in_time.to_stream().to(times, Produced(key_serde=WINDOWED, value_serde="long"))
    in_session = hits.windowed_by(SessionWindows.of("30 seconds", grace=0)).count(counts)
    in_session.to_stream().to(sessions, Produced(key_serde=SESSION, value_serde="long"))
    return builder.build()


def reads_windows(times: str, sessions: str, out: str) -> Topology:
    builder = StreamsBuilder()
    for topic, serde in ((times, WINDOWED), (sessions, SESSION)):
        counts = builder.stream(topic, Consumed(key_serde=serde, value_serde="long"))
        shown = counts.map(
            lambda at, count: (at.key, f"{at.window.start}-{at.window.end}={'null' if count is None else count}")
        )
        shown.to(out, Produced(key_serde="string", value_serde="string"))
    return builder.build()


def counts(source: str, out: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(source, TEXT)
    grouped = words.group_by(lambda _, value: value, Grouped("counts", key_serde="string", value_serde="string"))
    counted = grouped.count(Materialized("counts", key_serde="string", value_serde="long"))
    counted.to_stream().to(out, Produced(key_serde="string", value_serde="long"))
    return builder.build()


WORDS = 17


def words(count: int) -> Rows:
    return [(f"k{number}", f"wört{number % WORDS}", number) for number in range(count)]


def counted(rows: Rows) -> Counter[tuple[bytes, bytes]]:
    """What `counts` writes for them."""
    seen: Counter[str] = Counter()
    found: Counter[tuple[bytes, bytes]] = Counter()
    for _, word, _ in rows:
        seen[word] += 1
        found[(word.encode(), seen[word].to_bytes(8, "big"))] += 1
    return found


def pairs(rows: list[Row]) -> Counter[tuple[bytes, bytes]]:
    return Counter((key, value) for _, key, value in rows)


def latest(rows: list[Row]) -> dict[tuple[int, bytes], bytes]:
    return {(partition, key): value for partition, key, value in rows}


def test_windows_that_each_writes_the_other_reads(topics: Topics, java: Any, kafka_bench: Any) -> None:
    source, j_times, j_sessions, j_shown, times, sessions, shown = topics.create(
        "in", "j-times", "j-sessions", "j-shown", "times", "sessions", "shown"
    )
    topics.write("in", HITS)
    with java(topics("writer"), "write-windows", source, j_times, j_sessions):
        by_java = Counter(topics.read(j_times, TIMES)), Counter(topics.read(j_sessions, SESSIONS))
    config = {"application.id": topics("penstock-writer"), "statestore.cache.max.bytes": 0}
    kafka_bench.run(writes_windows(source, times, sessions), **config)
    assert (Counter(topics.read(times, TIMES)), Counter(topics.read(sessions, SESSIONS))) == by_java
    with java(topics("reader"), "read-windows", times, sessions, j_shown):
        seen = Counter(topics.read(j_shown, TIMES + SESSIONS))
    kafka_bench.run(reads_windows(j_times, j_sessions, shown), **{"application.id": topics("penstock-reader")})
    assert Counter(topics.read(shown, TIMES + SESSIONS)) == seen
    texts = {(key, value) for _, key, value in seen}
    assert (b"a", f"{BEGIN}-{BEGIN + 60_000}=3".encode()) in texts
    assert (b"a", f"{BEGIN}-{BEGIN + 20_000}=2".encode()) in texts


def test_keys_of_a_repartition_land_on_the_same_partitions(topics: Topics, java: Any, kafka_bench: Any) -> None:
    source, j_out, out = topics.create("in", "j-out", "out")
    rows = words(60)
    topics.write("in", rows)
    with java(topics("java"), "counts", source, j_out):
        by_java = topics.read(j_out, len(rows))
    regrouped = topics.read(f"{topics('java')}-counts-repartition", 0)
    app = topics("penstock")
    config = {"application.id": app, "statestore.cache.max.bytes": 0}
    kafka_bench.run(counts(source, out), **config)
    assert Counter(topics.read(out, len(rows))) == Counter(by_java)
    assert regrouped
    assert {partition - partition_for(key, PARTITIONS) for partition, key, _ in regrouped} == {0}
    by_java, by_penstock = (topics.read(f"{topics(name)}-counts-changelog", WORDS) for name in ("java", "penstock"))
    assert latest(by_penstock) == latest(by_java)


def test_java_takes_over_from_penstock(topics: Topics, java: Any, kafka_bench: Any) -> None:
    """It continues at the group's offsets, with the store that it restores from the changelog that Penstock wrote."""
    source, out = topics.create("in", "out")
    application = topics("app")
    topics.write("in", words(40))
    config = {"application.id": application, "statestore.cache.max.bytes": 0}
    kafka_bench.run(counts(source, out), **config)
    assert len(topics.read(out, 40)) == 40
    topics.write("in", words(30))
    with java(application, "counts", source, out):
        assert pairs(topics.read(out, 70)) == counted(words(40) + words(30))


def test_java_takes_over_and_gives_back(topics: Topics, java: Any, kafka_bench: Any) -> None:
    """What the Java program has done is taken up: its changelogs and the offsets that it has committed."""
    source, out = topics.create("in", "out")
    application = topics("app")
    config = {"application.id": application, "statestore.cache.max.bytes": 0}
    topics.write("in", words(40))
    kafka_bench.run(counts(source, out), **config)
    topics.write("in", words(30))
    with java(application, "counts", source, out):
        topics.read(out, 70)
    topics.write("in", words(50))
    kafka_bench.run(counts(source, out), **config)
    whole = words(40) + words(30) + words(50)
    assert pairs(topics.read(out, 120)) == counted(whole)
    by_word = latest(topics.read(f"{application}-counts-changelog", WORDS))
    assert sum(int.from_bytes(count, "big") for count in by_word.values()) == 120


def test_penstock_takes_over_from_java(topics: Topics, java: Any, kafka_bench: Any) -> None:
    """It continues at the group's offsets, with the store that it restores from the changelog that Java wrote."""
    source, out = topics.create("in", "out")
    application = topics("app")
    topics.write("in", words(40))
    with java(application, "counts", source, out):
        assert len(topics.read(out, 40)) == 40
    topics.write("in", words(30))
    kafka_bench.run(counts(source, out), **{"application.id": application, "statestore.cache.max.bytes": 0})
    assert pairs(topics.read(out, 70)) == counted(words(40) + words(30))
