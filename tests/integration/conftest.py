from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import KafkaStreams
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.open import open_log
from penstock.tools.broker.process import Broker
from streams_stage import Stage, broker_stage, embedded_stage

START = 1_790_000_000_000
BATCHES = {"processing.mode": "micro_batch"}


class Bench:
    """A log, an application's settings, and shorthands."""

    def __init__(self, root: Path, spark: Any, url: str = "") -> None:
        self.root = root
        self.url = url or f"sqlite:///{root / 'log.db'}"
        self.log: TopicLog = open_log(self.url)
        self.spark = spark
        self._names = itertools.count()

    def config(self, **more: Any) -> dict[str, Any]:
        return {
            "application.id": "app",
            "bootstrap.servers": self.url,
            "state.dir": str(self.root / "state"),
            "default.key.serde": "string",
            "default.value.serde": "string",
            **more,
        }

    def app(self, topology: Any, **more: Any) -> KafkaStreams:
        return KafkaStreams(topology, self.config(**more), session=self.spark)

    def run(self, topology: Any, **more: Any) -> KafkaStreams:
        app = self.app(topology, **more)
        app.run(until="latest")
        return app

    def write(self, topic: str, rows: list[tuple[str | None, str | None, int]], partition: int = 0) -> None:
        columns = {
            "timestamp": pa.array([START + t for _, _, t in rows], pa.int64()),
            "key": pa.array([None if k is None else k.encode() for k, _, _ in rows], pa.large_binary()),
            "value": pa.array([None if v is None else v.encode() for _, v, _ in rows], pa.large_binary()),
        }
        self.log.append(topic, partition, pa.RecordBatch.from_pydict(columns))

    def read(self, topic: str, value: Callable[[bytes], Any] = bytes.decode) -> list[tuple[str | None, Any]]:
        """All records that are committed by now: over Kafka a commit may return before its partitions show it."""
        found: list[tuple[str | None, Any]] = []
        places = [TopicPartition(topic, partition) for partition in range(self.log.partitions(topic))]
        self.log.settled_ends(places)
        for place in places:
            records = self.log.read(topic, place.partition, 0, 1_000_000).records
            for key, one in zip(records.column("key").to_pylist(), records.column("value").to_pylist(), strict=True):
                found.append((None if key is None else key.decode(), None if one is None else value(one)))
        return found


class Place(Bench):
    """A bench for continuous mode whose topics and application have names of their own, as a broker is shared."""

    _numbers = itertools.count()

    def __init__(self, root: Path, spark: Any, url: str = "") -> None:
        super().__init__(root, spark, url)
        self.prefix = f"c{next(self._numbers)}-"

    def config(self, **more: Any) -> dict[str, Any]:
        return super().config(**{"application.id": f"{self.prefix}app", "processing.mode": "continuous", **more})

    def topic(self, name: str, partitions: int = 2) -> str:
        self.log.create_topic(self.prefix + name, partitions)
        return self.prefix + name


@pytest.fixture
def kafka_bench(tmp_path: Path, spark: Any, kafka: Broker) -> Iterator[Bench]:
    """As ``bench``, over the broker."""
    made = Bench(tmp_path, spark, kafka.settings.bootstrap_servers)
    yield made
    made.log.close()


@pytest.fixture
def bench(tmp_path: Path, spark: Any) -> Iterator[Bench]:
    made = Bench(tmp_path, spark)
    yield made
    made.log.close()


@pytest.fixture(params=["embedded", "kafka"])
def log_url(request: pytest.FixtureRequest) -> str:
    """Both logs, one after the other: the broker's address, or nothing for an embedded log of the test's own."""
    if request.param == "embedded":
        return ""
    broker: Broker = request.getfixturevalue("kafka")
    return broker.settings.bootstrap_servers


@pytest.fixture
def place(log_url: str, tmp_path: Path, spark: Any) -> Iterator[Place]:
    made = Place(tmp_path, spark, log_url)
    yield made
    made.log.close()


@pytest.fixture(params=["embedded", "broker"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A stage for streams groups over each coordinator, for each test its own."""
    if request.param == "broker":
        yield from broker_stage(request.getfixturevalue("kafka"))
    else:
        yield from embedded_stage()


@pytest.fixture
def embedded(tmp_path: Path, spark: Any) -> Iterator[Place]:
    made = Place(tmp_path, spark)
    yield made
    made.log.close()


def long(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)
