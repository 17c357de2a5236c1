"""How long an application stands still when a broker of three dies, and how much of that is not the election.

python bench/failover.py [--kills 4] [--how kill] [--json FILE]

Topics have three replicas. The broker that leads the first partition of the input is killed (-9), or stopped as by a
machine that hangs (``--how stall``), and started again when all works. Seconds from its death until:

election      each partition of each topic, internal ones included, has a living leader
producer      the bench's own producer has written to each partition of the input again
first_output  the first output after the election
all_outputs   each partition of the input has led to an output of a record that was sent after the death

``client_s`` is ``first_output`` less ``election``: what Penstock adds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import machine
from penstock import KafkaStreams, Materialized, StreamsBuilder
from penstock.tools.broker.process import BrokerCluster

PARTITIONS = 4
PATIENCE_S = 120.0
QUICK = {
    "log_level": 0, "reconnect.backoff.max.ms": 200, "topic.metadata.refresh.fast.interval.ms": 50,
    "socket.connection.setup.timeout.ms": 1000, "socket.timeout.ms": 3000,
}  # fmt: skip


def application(servers: str, folder: str) -> None:
    """Each record through a store and a repartition to the output."""
    builder = StreamsBuilder()
    again = builder.stream("in").group_by(lambda key, _: key)
    again.reduce(lambda _, new: new, Materialized("newest")).to_stream().to("out")
    settings = {
        "application.id": "failover",
        "bootstrap.servers": servers,
        "state.dir": folder,
        "default.key.serde": "string",
        "default.value.serde": "string",
        "auto.offset.reset": "earliest",
        "commit.interval.ms": 100,
        "statestore.cache.max.bytes": 0,
        "spark.master": "local[2]",
    }
    KafkaStreams(builder.build(), settings).run()


class Sender(threading.Thread):
    """Writes 50 records a second, in turn to each partition; the key names the partition, the value is a number."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self.number = 0
        self.written: dict[str, int] = {}
        self._done = threading.Event()
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True, **QUICK})

    def run(self) -> None:
        while not self._done.wait(0.02):
            partition = self.number % PARTITIONS
            self._producer.produce("in", str(self.number), f"k{partition}", partition, on_delivery=self._delivered)
            self.number += 1
            self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.written[message.key().decode()] = int(message.value())

    def stop(self) -> None:
        self._done.set()
        self.join()
        self._producer.flush(PATIENCE_S)


class Seen(threading.Thread):
    """The newest output of each key, and when the last one came."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self.newest: dict[str, int] = {}
        self.last = 0.0
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "bench", "isolation.level": "read_committed", **QUICK}
            | {"auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.error.backoff.ms": 50}
        )
        self._consumer.subscribe(["out"])

    def run(self) -> None:
        while True:
            message = self._consumer.poll(0.1)
            if message is not None and not message.error():
                self.newest[message.key().decode()] = int(message.value())
                self.last = time.monotonic()


def all_led(admin: AdminClient, victim: int) -> bool:
    """Whether each partition is led by another broker than this one."""
    try:
        topics = admin.list_topics(timeout=1).topics.values()
    except KafkaException:
        return False
    return all(each.leader not in (-1, victim) for topic in topics for each in topic.partitions.values())


def all_in_sync(servers: str) -> bool:
    topics = AdminClient({"bootstrap.servers": servers, **QUICK}).list_topics(timeout=5).topics.values()
    return all(len(each.isrs) == 3 for topic in topics for each in topic.partitions.values())


def until(done: Any, began: float) -> float:
    """Seconds from then until it is so."""
    while not done():
        if time.monotonic() - began > PATIENCE_S:
            raise SystemExit(f"{done.__name__} took more than {PATIENCE_S:.0f} s")
        time.sleep(0.02)
    return time.monotonic() - began


def one(cluster: BrokerCluster, sender: Sender, seen: Seen, how: str) -> dict[str, float]:
    """A broker dies, and comes back."""
    everywhere = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUICK})
    victim = everywhere.list_topics("in", timeout=10).topics["in"].partitions[0].leader
    broker = cluster.broker(victim)
    others = ",".join(each.settings.bootstrap_servers for each in cluster.brokers if each is not broker)
    admin = AdminClient({"bootstrap.servers": others, **QUICK})
    pid = broker.status().pid
    assert pid is not None
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL if how == "kill" else signal.SIGSTOP)
    first = sender.number
    threads: dict[str, float] = {}

    def note(name: str, done: Any) -> threading.Thread:
        def run() -> None:
            threads[name] = until(done, began)

        made = threading.Thread(target=run, daemon=True)
        made.start()
        return made

    def of_all(newest: dict[str, int]) -> bool:
        return len(newest) == PARTITIONS and min(newest.values()) >= first

    waiting = [
        note("election", lambda: all_led(admin, victim)),
        note("producer", lambda: of_all(sender.written)),
        note("all_outputs", lambda: of_all(seen.newest)),
    ]
    waiting[0].join()
    if "election" not in threads:
        raise SystemExit("no election")
    threads["first_output"] = until(lambda: seen.last > began + threads["election"], began)
    for each in waiting:
        each.join()
    if how == "kill":
        broker.stop()
        broker.start()
    else:
        os.kill(pid, signal.SIGCONT)
    until(lambda: all_in_sync(cluster.bootstrap_servers), time.monotonic())
    time.sleep(3)
    found = {name: round(seconds, 2) for name, seconds in sorted(threads.items())}
    return found | {"client_s": round(found["first_output"] - found["election"], 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--how", choices=["kill", "stall"], default="kill")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--app", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.app:
        application(*given.app)
        return
    with tempfile.TemporaryDirectory() as folder, BrokerCluster(Path(folder) / "kafka") as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, **QUICK})
        for made in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in ("in", "out")]).values():
            made.result(30)
        sender, seen = Sender(servers), Seen(servers)
        sender.start()
        seen.start()
        command = [sys.executable, __file__, "--app", servers, f"{folder}/state"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as app:
            rows = []
            try:
                until(lambda: len(seen.newest) == PARTITIONS, time.monotonic())
                time.sleep(5)
                for _ in range(given.kills):
                    rows.append(one(cluster, sender, seen, given.how))
                    print(rows[-1], flush=True)
            finally:
                sender.stop()
                with suppress(ProcessLookupError):
                    app.terminate()
                app.wait(60)
    found = {
        "machine": machine.facts("bench/failover.py"),
        "rows": rows,
        "median": {name: median(row[name] for row in rows) for name in rows[0]},
    }
    print(found["median"])
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
