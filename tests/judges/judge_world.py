"""Where a round is judged: brokers of its own, and what their topics and groups hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from judge_topologies import JudgedApplication
from penstock.tools.broker.broker_settings import BrokerSettings, free_port
from penstock.tools.broker.process import Broker, BrokerCluster

__all__ = ["PARTITIONS", "World", "new_world", "wait_until"]

PARTITIONS = 4
PATIENCE_S = 300.0
PAUSE_S = 0.5
ASK_S = 10.0
Place = tuple[str, int]


def wait_until(condition: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
    """Wait for a condition; the brokers may be away meanwhile.

    Raises:
        TimeoutError: It was not fulfilled.
    """
    deadline = time.monotonic() + within_s
    error = ""
    while True:
        try:
            if condition():
                return
        except KafkaException as failed:
            error = f" ({failed})"
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within_s:.0f} s{error}")
        time.sleep(PAUSE_S)


@dataclass(frozen=True)
class World:
    """Brokers in a folder of their own, seen through a client that is not Penstock's."""

    folder: Path
    bootstrap: str
    brokers: list[Broker]

    def client(self, **more: Any) -> dict[str, Any]:
        """Settings of librdkafka, which would fill the terminal while a broker is away."""
        return {"bootstrap.servers": self.bootstrap, "log_level": 0, "socket.timeout.ms": 10_000, **more}

    def create_topics(self, application: JudgedApplication) -> None:
        """Create the topics of an application, on all brokers."""
        replicas = len(self.brokers)
        topics = [
            NewTopic(name, PARTITIONS, replicas, config={"retention.ms": "-1"})
            for name in (*application.inputs, *application.outputs)
        ]
        admin = AdminClient(self.client())
        for created in admin.create_topics(topics).values():
            created.result(60)

    @contextmanager
    def _consumer(self, group: str) -> Iterator[Consumer]:
        settings = self.client(**{
            "group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed",
            "auto.offset.reset": "earliest", "enable.partition.eof": True,
        })  # fmt: skip
        with closing(Consumer(settings)) as consumer:
            yield consumer

    def committed(self, group: str, topics: Iterable[str]) -> dict[Place, int]:
        """The committed offsets of a group; 0 where there is none."""
        with self._consumer(group) as consumer:
            places = [TopicPartition(topic, partition) for topic in topics for partition in range(PARTITIONS)]
            return {(at.topic, at.partition): max(at.offset, 0) for at in consumer.committed(places, timeout=ASK_S)}

    def records(self, topic: str) -> list[Message]:
        """All committed records of a topic up to its end, partition by partition."""
        found = [message for messages in self._batches(topic, {}) for message in messages]
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    def has_read_all(self, group: str, topics: Iterable[str]) -> bool:
        """Whether there are no committed records behind the committed offsets of a group."""
        topics = tuple(topics)
        start = self.committed(group, topics)
        return not any(messages for topic in topics for messages in self._batches(topic, start))

    def _batches(self, topic: str, start: dict[Place, int]) -> Iterator[list[Message]]:
        """The committed records of a topic as they come, up to its end."""
        with self._consumer("judge") as consumer:
            consumer.assign([TopicPartition(topic, p, start.get((topic, p), 0)) for p in range(PARTITIONS)])
            ended: set[int] = set()
            deadline = time.monotonic() + PATIENCE_S
            while len(ended) < PARTITIONS:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{topic}: {len(ended)} of {PARTITIONS} partitions could be read to their end")
                messages = consumer.consume(10_000, PAUSE_S)
                yield [message for message in messages if message.error() is None]
                errors = (message for message in messages if message.error() is not None)
                ended |= {message.partition() for message in errors if message.error().name() == "_PARTITION_EOF"}

    def wait_until_up(self) -> None:
        wait_until(lambda: bool(AdminClient(self.client()).list_topics(timeout=5).brokers), "brokers answer")


@contextmanager
def new_world(folder: Path, brokers: int) -> Iterator[World]:
    """Start one broker, or three with replicated topics."""
    if brokers == 1:
        settings = BrokerSettings(folder / "broker", free_port(), free_port(), partitions=PARTITIONS)
        with Broker(settings) as broker:
            yield World(folder, settings.bootstrap_servers, [broker])
    else:
        with BrokerCluster(folder / "brokers", brokers, partitions=PARTITIONS) as cluster:
            yield World(folder, cluster.bootstrap_servers, cluster.brokers)
