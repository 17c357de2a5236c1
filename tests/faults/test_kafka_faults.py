"""Over a real broker: whatever dies and comes back, a read_committed consumer sees each result exactly once."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from brokers import running_broker
from eventually import eventually
from harness import environment
from kafka_app import settings, topology
from penstock import KafkaStreams
from penstock.config import StreamsConfig
from penstock.engines.micro_batches.recovery.lost_checkpoint import lost_checkpoint_of
from penstock.log.kafka.transactions.ledger import entry_part
from penstock.log.kafka.wire.transactions import list_transactions
from penstock.log.open import open_log
from penstock.tools.broker.process import Broker

APP = Path(__file__).with_name("kafka_app.py")
START = 1_790_000_000_000
PATIENCE_S = 240
WORDS = 4


class Site:
    """Topics of one application, written and read by plain clients: nothing of Penstock judges Penstock."""

    _names = itertools.count()

    def __init__(self, kafka: Broker, root: Path) -> None:
        self.name, self.root = f"faulty-{next(self._names)}", root
        self.servers = kafka.settings.bootstrap_servers
        self.sent = 0
        admin = AdminClient({"bootstrap.servers": self.servers})
        topics = [NewTopic(f"{self.name}-{t}", 2, config={"retention.ms": "-1"}) for t in ("words", "counts", "upper")]
        for made in admin.create_topics(topics).values():
            made.result(PATIENCE_S)
        self._producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "log_level": 0})

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            self._producer.produce(
                f"{self.name}-words", f"w{number % WORDS}", str(number), number % 2, timestamp=START + number
            )
        self.sent += count
        assert self._producer.flush(PATIENCE_S) == 0

    def start(self, fault: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, str(APP), self.name, self.servers, str(self.root)]
        return subprocess.Popen(
            command, env=environment(fault), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8"
        )

    def run(self, fault: str = "") -> int:
        process = self.start(fault)
        error = process.communicate(timeout=180)[1]
        if process.returncode and not fault:
            print(error[-3000:])
        return process.returncode

    def written(self, topic: str) -> Counter[tuple[bytes, bytes]]:
        """All that a read_committed consumer sees now."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "judge",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        ended, found = 0, Counter()
        consumer.subscribe([f"{self.name}-{topic}"])
        try:
            while ended < 2:
                message = consumer.poll(PATIENCE_S)
                assert message is not None
                if message.error() is None:
                    found[message.key(), message.value()] += 1
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended += 1
        finally:
            consumer.close()
        return found

    def expected(self, *, broker_died: bool) -> tuple[Counter[Any], Counter[Any]]:
        words = Counter((str(n).encode(), f"w{n % WORDS}".encode()) for n in range(self.sent))
        if broker_died:  # the site's own producer may have written a batch twice
            sent, words = words, self.written("words")
            assert words.keys() == sent.keys()
        counts: Counter[Any] = Counter()
        for (_, word), times in words.items():
            counts[word] += times
        numbers = [(word, n.to_bytes(8, "big")) for word, count in counts.items() for n in range(1, count + 1)]
        upper = {(number, word.upper()): times for (number, word), times in words.items()}
        return Counter(numbers), Counter(upper)

    def check(self, *, broker_died: bool = False) -> None:
        """Waits until all is there, then a little for what must not be there."""
        counts, upper = self.expected(broker_died=broker_died)
        self._await("counts", counts)
        self._await("upper", upper)

    def _await(self, topic: str, wanted: Counter[Any]) -> None:
        whole = wanted.total()
        eventually(lambda: self.written(topic).total() >= whole, PATIENCE_S, facts=lambda: self.written(topic))
        assert self.written(topic) == wanted


@pytest.fixture
def site(kafka: Broker, tmp_path: Path) -> Site:
    return Site(kafka, tmp_path)


def test_a_transaction_that_a_dead_task_has_left_open_delays_no_other(kafka: Broker) -> None:
    """Tasks of one partition share a partition of the ledger, and the dead one's turn may come after the other's."""
    servers = kafka.settings.bootstrap_servers
    with open_log(servers, {"task.timeout.ms": 5_000}) as log:  # less than transaction.timeout.ms: no waiting it out
        log.release_lease(log.acquire_lease("left", "first"))
        topic, partition, _ = entry_part("left", "1_0", b"{}")
        dead = Producer({"bootstrap.servers": servers, "transactional.id": "left-1_0", "log_level": 0})
        dead.init_transactions(PATIENCE_S)
        dead.begin_transaction()
        dead.produce(topic, b"never seen", b"1_0", partition)
        assert dead.flush(PATIENCE_S) == 0
        assert ongoing(log, "left-") == ["left-1_0"]

        lease = log.acquire_lease("left", "second")
        assert ongoing(log, "left-") == []
        with log.transaction("left-0_0", lease.epoch) as transaction:
            transaction.put_ledger("left", "0_0", 7)
        assert log.ledger("left") == {"0_0": 7}


def ongoing(log: Any, prefix: str) -> list[str]:
    """The transactional ids with this prefix whose transactions are open."""
    found = [each.transactional_id for each in list_transactions(log.clients.cluster(), "Ongoing")]
    return [each for each in found if each.startswith(prefix)]


STEPS = ("1:0:0_1", "2:1:1_0", "3:2:1_1", "5:3:driver")


@pytest.mark.parametrize(
    "faults",
    [("2:0:1_0", "5:1:driver"), pytest.param(STEPS, marks=pytest.mark.whole)],
    ids=lambda faults: str(len(faults)),
)
def test_killed_at_step_after_step(faults: tuple[str, ...], site: Site) -> None:
    """Each start gets one batch further than the one before, and is killed there at another step."""
    site.send(200)
    for fault in faults:
        assert site.run(fault) != 0, f"{fault} was not reached"
    assert site.run() == 0
    site.check()


@pytest.mark.whole
def test_killed_and_the_checkpoint_lost_with_it(site: Site) -> None:
    """What was planned is in the ledger, so a half-written batch is finished: stateless tasks run again, the others
    find that it is done."""
    site.send(200)
    config = StreamsConfig(settings(site.name, site.servers, site.root))
    for fault in ("2:0:0_1", "3:2:0_0", "3:3:1_0"):
        assert site.run(fault) != 0, f"{fault} was not reached"
        eventually(lambda: is_removed(site.root / "state"), PATIENCE_S)  # workers that outlive the driver still write
        with lost_checkpoint_of(topology(site.name), config) as lost:
            lost.make()
    assert site.run() == 0
    site.check()


def is_removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


@pytest.mark.whole
def test_the_driver_dies_at_any_time(site: Site) -> None:
    site.send(120)
    process = site.start()
    eventually(lambda: site.written("upper").total() or process.poll() is not None, PATIENCE_S)
    process.kill()
    process.communicate()
    site.send(40)
    assert site.run() == 0
    site.check()


def test_a_broker_that_comes_back(tmp_path: Path, spark: Any) -> None:
    """Killed and started again, twice, while records come in and the application runs."""
    with running_broker(tmp_path / "broker") as broker:
        site = Site(broker, tmp_path)
        app = KafkaStreams(topology(site.name), settings(site.name, site.servers, site.root), session=spark)
        app.start()
        try:
            site.send(60)
            eventually(lambda: site.written("counts").total() >= 40, PATIENCE_S)
            for kill in (True, False):
                writing = threading.Thread(target=lambda: [site.send(20) or time.sleep(0.1) for _ in range(20)])
                writing.start()
                time.sleep(1)
                broker.stop(kill=kill)
                time.sleep(1)
                broker.start()
                writing.join()
            site.check(broker_died=True)
            assert app.error is None
        finally:
            assert app.close()
