"""What latency measurements share: records at an even rate, and a consumer that notes when each output came.

Both ends are in one process, so one clock measures them. A record's time ends when a consumer has it, which for
transactions is after their commit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from confluent_kafka import Consumer, TopicPartition

POLL_S = 0.05
# Five requests in flight, as in Java: without that limit each record goes in a request of its own, and a broker that is
# busy for a moment has a queue of seconds in front of it, which the peer would be blamed for.
SENDER = {"linger.ms": 0, "acks": 1, "max.in.flight": 5, "partitioner": "murmur2_random", "socket.nagle.disable": True}
PERCENTILES = (50, 90, 99)


class Arrival(NamedTuple):
    """An output: when it came and what it is; times in milliseconds."""

    at: float
    key: bytes
    value: bytes
    timestamp: int


class Arrivals:
    """Reads a topic in a thread of its own, from its beginning on, for as long as the block lasts."""

    def __init__(self, settings: dict[str, Any], topic: str, partitions: int, isolation: str) -> None:
        self._consumer = Consumer(
            settings
            | {
                "group.id": f"{topic}-reader",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "fetch.wait.max.ms": 100,  # the broker answers as soon as there is something
                "socket.nagle.disable": True,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.seen: list[Arrival] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ends.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._ends.is_set():
            message = self._consumer.poll(POLL_S)  # one at a time: many at once would wait for others
            if message is not None and message.error() is None:
                now = time.time() * 1000
                self.seen.append(Arrival(now, message.key(), message.value(), message.timestamp()[1]))


def evenly(rate: int, count: int) -> Iterator[int]:
    """Numbers from 0 on, each when it is due."""
    begun = time.time()
    for number in range(count):
        pause = begun + number / rate - time.time()
        if pause > 0:
            time.sleep(pause)
        yield number


def percentiles(latencies: Sequence[float]) -> dict[str, float]:
    """Median, 90th and 99th percentile and the largest, in milliseconds."""
    found = {f"p{each}_ms": round(float(np.percentile(latencies, each)), 1) for each in PERCENTILES}
    return found | {"max_ms": round(max(latencies), 1)}
