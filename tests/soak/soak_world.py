"""Around the application: a producer that goes on through everything, and a reader that knows what must come out."""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from soak_app import APPLICATION, INPUTS, JOIN_MS, OUTPUTS, WINDOW_MS

PARTITIONS = 2
USERS = 50
CITIES = 7
START_MS = 1_790_000_000_000
STEP_MS = 100  # of event time between two orders
PATIENCE_S = 60
Outputs = dict[str, Counter[tuple[str, str]]]


def client(bootstrap: str) -> dict[str, Any]:
    """While the broker is away, librdkafka would fill the terminal; and it would wait a minute for one that hangs."""
    return {"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 10_000}


def city_of(user: int) -> str:
    return f"city{user % CITIES}"


def make_topics(bootstrap: str) -> None:
    admin = AdminClient(client(bootstrap))
    topics = [NewTopic(name, PARTITIONS, config={"retention.ms": "-1"}) for name in (*INPUTS, *OUTPUTS)]
    for made in admin.create_topics(topics).values():
        made.result(PATIENCE_S)
    producer = Producer(client(bootstrap) | {"partitioner": "murmur2_random"})
    for user in range(USERS):
        producer.produce("users", city_of(user), f"u{user}", timestamp=START_MS - 1)
    assert producer.flush(PATIENCE_S) == 0


@dataclass
class Sent:
    """Orders and payments so far: (user, number, time)."""

    orders: list[tuple[int, int, int]] = field(default_factory=list)
    payments: list[tuple[int, int, int]] = field(default_factory=list)

    @staticmethod
    def read(bootstrap: str) -> Sent:
        """What the input topics hold: that is what counts, also if a client could not deliver something."""
        found = Sent()
        rows = {"orders": found.orders, "payments": found.payments}
        consumer = Consumer(client(bootstrap) | {"group.id": "soak-judge", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, p, 0) for topic in rows for p in range(PARTITIONS)])
        places = [TopicPartition(topic, p) for topic in rows for p in range(PARTITIONS)]
        ends = [end_of(consumer, place) for place in places]
        limit = time.monotonic() + PATIENCE_S
        while any(at.offset < end for at, end in zip(consumer.position(places), ends, strict=True)):
            assert time.monotonic() < limit, "the input topics could not be read"
            for message in consumer.consume(10_000, 0.5):
                if not message.error():
                    user, number = int(message.key()[1:]), int(message.value()[1:])
                    rows[message.topic()].append((user, number, message.timestamp()[1]))
        consumer.close()
        return found

    def expected(self) -> Outputs:
        """What the application must have written for them, computed without Penstock."""
        per_user: Counter[int] = Counter()
        per_window: Counter[str] = Counter()
        found: Outputs = {topic: Counter() for topic in OUTPUTS}
        for user, _, at in self.orders:
            per_user[user] += 1
            found["per-user"][(f"u{user}", str(per_user[user]))] += 1
            window = f"{city_of(user)}@{at - at % WINDOW_MS}"
            per_window[window] += 1
            found["per-city"][(window, str(per_window[window]))] += 1
        paid_at: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for user, number, at in self.payments:
            paid_at[user].append((at, number))
        for user, number, at in self.orders:
            payments = paid_at[user]  # in order of time
            low, high = bisect_left(payments, (at - JOIN_MS, -1)), bisect_right(payments, (at + JOIN_MS, 1 << 62))
            for _, payment in payments[low:high]:
                found["paid"][(f"u{user}", f"o{number}|p{payment}")] += 1
        return found


class SteadyProducer(threading.Thread):
    """Writes orders and payments at a rate until it is stopped; idempotent, and patient while the broker is away."""

    def __init__(self, bootstrap: str, seed: int, rate: int) -> None:
        super().__init__(daemon=True)
        self.sent = Sent()
        self.failure: Exception | None = None
        self.undelivered: list[str] = []
        self._random = random.Random(seed)
        self._rate = rate
        self._done = threading.Event()
        self._producer = Producer(
            client(bootstrap)
            | {"enable.idempotence": True, "linger.ms": 5, "partitioner": "murmur2_random", "message.timeout.ms": 0}
            | {"on_delivery": self._delivered, "delivery.report.only.error": True}
        )

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.undelivered.append(f"{message.value().decode()}: {error.str()}")

    def run(self) -> None:
        try:
            while not self._done.wait(1 / self._rate):
                self._one()
        except Exception as error:  # noqa: BLE001 - told by stop()
            self.failure = error

    def _one(self) -> None:
        number = len(self.sent.orders)
        at = START_MS + number * STEP_MS
        for topic, letter, kept in (("orders", "o", self.sent.orders), ("payments", "p", self.sent.payments)):
            user = self._random.randrange(USERS)
            self._producer.produce(topic, f"{letter}{number}", f"u{user}", timestamp=at)
            kept.append((user, number, at))
        self._producer.poll(0)

    def stop(self) -> Sent:
        """All that could be delivered is in its topics when this returns."""
        self._done.set()
        self.join(PATIENCE_S)
        assert self.failure is None, self.failure
        assert self._producer.flush(2 * PATIENCE_S) == 0, "not all input records could be written"
        return self.sent


class Reader:
    """Reads the outputs with read_committed as they come; each (key, value) must come once."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: Outputs = {topic: Counter() for topic in OUTPUTS}
        self.doubles: list[tuple[str, str, str]] = []
        self._consumer = Consumer(
            client(bootstrap)
            | {
                "group.id": "soak-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        self.last_error = ""
        self._consumer.assign([TopicPartition(topic, p, 0) for topic in OUTPUTS for p in range(PARTITIONS)])

    @property
    def count(self) -> int:
        return sum(counts.total() for counts in self.seen.values())

    def read(self, seconds: float = 0.2) -> int:
        """Takes what comes within that time; gives how many there were."""
        taken = 0
        for message in self._consumer.consume(10_000, seconds):
            if message.error():
                self.last_error = message.error().str()
                continue  # the broker is away
            topic, row = message.topic(), (message.key().decode(), message.value().decode())
            taken += 1
            self.seen[topic][row] += 1
            if self.seen[topic][row] == 2:
                self.doubles.append((topic, *row))
        return taken

    def read_all(self) -> None:
        """All that is there."""
        end = time.monotonic() + PATIENCE_S
        while not self.has_reached_the_end() and time.monotonic() < end:
            self.read()

    def has_reached_the_end(self) -> bool:
        """Whether all is read, and no transaction is left open in front of anything."""
        positions = self._consumer.position([TopicPartition(t, p) for t in OUTPUTS for p in range(PARTITIONS)])
        return all(max(at.offset, 0) >= self._end(at) for at in positions)

    def _end(self, at: TopicPartition) -> int:
        return end_of(self._consumer, TopicPartition(at.topic, at.partition))

    def standing(self) -> list[str]:
        """Where it is in each partition, and where the partition ends."""
        found = []
        for at in self._consumer.position([TopicPartition(t, p) for t in OUTPUTS for p in range(PARTITIONS)]):
            try:
                end = str(self._end(at))
            except KafkaException as error:
                end = str(error)
            found.append(f"{at.topic}-{at.partition}: at {at.offset}, stable end {end}")
        return [*found, f"last error: {self.last_error}"]

    def close(self) -> None:
        self._consumer.close()


def end_of(consumer: Consumer, place: TopicPartition) -> int:
    """Where a partition ends; asked for again while it has no leader, as after a start of the broker."""
    limit = time.monotonic() + PATIENCE_S
    while True:
        try:
            return int(consumer.get_watermark_offsets(place, timeout=5)[1])
        except KafkaException:
            if time.monotonic() > limit:
                raise
            time.sleep(0.1)


def differences(expected: Outputs, seen: Outputs) -> tuple[Outputs, Outputs]:
    """What is lost and what is too much, by topic."""
    lost = {topic: expected[topic] - seen[topic] for topic in OUTPUTS}
    more = {topic: seen[topic] - expected[topic] for topic in OUTPUTS}
    return {t: rows for t, rows in lost.items() if rows}, {t: rows for t, rows in more.items() if rows}


def offsets_left(bootstrap: str) -> list[str]:
    """Source partitions that the group's committed offset is not at the end of."""
    consumer = Consumer(client(bootstrap) | {"group.id": APPLICATION, "enable.auto.commit": False})
    try:
        wanted = [TopicPartition(topic, p) for topic in INPUTS for p in range(PARTITIONS)]
        committed = consumer.committed(wanted, timeout=PATIENCE_S)
        ends = [end_of(consumer, TopicPartition(c.topic, c.partition)) for c in committed]
    finally:
        consumer.close()
    return [
        f"{at.topic}-{at.partition}: committed {at.offset}, end {end}"
        for at, end in zip(committed, ends, strict=True)
        if at.offset != end
    ]


def wait_until_it_answers(bootstrap: str, timeout_s: float = PATIENCE_S) -> None:
    """After a start of the broker."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            AdminClient(client(bootstrap)).list_topics(timeout=5)
        except KafkaException:
            if time.monotonic() > end:
                raise
        else:
            return
