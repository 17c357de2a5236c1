"""Latency from produce to consume: micro-batches (exactly once) and real-time mode (at least once), as JSON.

    python bench/latency.py --bootstrap-servers localhost:9092 --seconds 120 --output bench/results/latency.json

The topology is W3's: a sum per key. Records carry the time at which they were produced; the consumer runs in a thread
of this process, so one clock measures both ends. The first ``--warm-up`` seconds do not count. Without
``--bootstrap-servers`` a broker is started for the run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock import Consumed, KafkaStreams, Materialized, Produced, StreamsBuilder
from penstock.app import State
from penstock.broker.process import Broker
from penstock.broker.settings import BrokerSettings, free_port

__all__ = ["main"]

_MODES = ("micro_batch", "realtime")
_VALUE = (1).to_bytes(8, "big")
_KEYS = 1_000


def measure(servers: str, mode: str, args: argparse.Namespace) -> dict[str, Any]:
    """One run of an application in a mode."""
    name = f"latency-{mode.replace('_', '-')}-{int(time.time())}"
    source, target = f"{name}-in", f"{name}-out"
    topics = [NewTopic(topic, args.partitions) for topic in (source, target)]
    admin = AdminClient({"bootstrap.servers": servers})  # it must live until the answers are there
    for created in admin.create_topics(topics).values():
        created.result(30)
    builder = StreamsBuilder()
    sums = builder.stream(source, Consumed(key_serde="string", value_serde="long")).group_by_key()
    table = sums.reduce(lambda old, new: old + new, Materialized("sums"))
    table.to_stream().to(target, Produced(key_serde="string", value_serde="long"))
    with tempfile.TemporaryDirectory() as state:
        config = {
            "application.id": name,
            "bootstrap.servers": servers,
            "state.dir": state,
            "spark.master": f"local[{max(args.partitions, os.cpu_count() or 1)}]",
            "processing.mode": mode,
        }
        if mode == "realtime":
            config["penstock.realtime.batch.ms"] = args.realtime_batch_ms
        app = KafkaStreams(builder.build(), config)
        found = _Latencies(servers, target, "read_committed" if mode == "micro_batch" else "read_uncommitted")
        with found, app:
            sent = _produce(servers, source, args, app)
            time.sleep(2)
            if app.state is not State.RUNNING:
                app.wait(1_000)
    return {"mode": mode, "records": sent, **found.summary(args.warm_up)}


def _produce(servers: str, topic: str, args: argparse.Namespace, app: KafkaStreams) -> int:
    """Records at an even rate; gives how many."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    begun = time.time()
    sent = 0
    for due in _moments(begun, args.rate, args.seconds + args.warm_up):
        pause = due - time.time()
        if pause > 0:
            time.sleep(pause)
        producer.produce(topic, _VALUE, str(sent % _KEYS).encode(), timestamp=int(time.time() * 1000))
        producer.poll(0)
        sent += 1
        if sent % 1_000 == 0 and app.state is not State.RUNNING:
            break
    producer.flush(10)
    return sent


def _moments(begun: float, rate: int, seconds: float) -> Iterator[float]:
    return (begun + number / rate for number in range(int(rate * seconds)))


class _Latencies:
    """A consumer of the output; a record's timestamp is when its input was produced, in milliseconds."""

    def __init__(self, servers: str, topic: str, isolation: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"{topic}-reader",
                "auto.offset.reset": "earliest",
                "isolation.level": isolation,
                "fetch.wait.max.ms": 5,
            }
        )
        self._consumer.subscribe([topic])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._seen: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, 0.01):
                if message.error() is None:
                    now = time.time() * 1000
                    self._seen.append((now, now - message.timestamp()[1]))

    def summary(self, warm_up_s: float) -> dict[str, Any]:
        """Percentiles in milliseconds of what came after the warm-up."""
        if not self._seen:
            return {"outputs": 0}
        first = self._seen[0][0] - self._seen[0][1]  # when the first record was produced
        counted = sorted(latency for at, latency in self._seen if at - latency >= first + warm_up_s * 1000)
        if not counted:
            return {"outputs": len(self._seen)}
        at = {f"p{p}": round(counted[min(len(counted) - 1, int(len(counted) * p / 100))], 1) for p in (50, 90, 99)}
        return {"outputs": len(self._seen), "counted": len(counted), **at, "max": round(counted[-1], 1)}


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", help="a broker that runs; by default one is started")
    parser.add_argument("--modes", nargs="+", choices=_MODES, default=list(_MODES))
    parser.add_argument("--rate", type=int, default=1_000, help="records a second")
    parser.add_argument("--seconds", type=float, default=120, help="how long after the warm-up")
    parser.add_argument("--warm-up", type=float, default=20)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--realtime-batch-ms", type=int, default=60_000)
    parser.add_argument("--output", type=Path, help="a JSON file")
    args = parser.parse_args()
    with ExitStack() as stack:
        servers = args.bootstrap_servers
        if servers is None:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            settings = BrokerSettings(scratch, port=free_port(), controller_port=free_port())
            servers = stack.enter_context(Broker(settings)).settings.bootstrap_servers
        runs = [measure(servers, mode, args) for mode in args.modes]
    document = {
        "rate": args.rate,
        "seconds": args.seconds,
        "partitions": args.partitions,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "runs": runs,
    }
    text = json.dumps(document, indent=1)
    print(text)
    if args.output is not None:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
