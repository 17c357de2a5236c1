"""Latency from produce to consume: micro-batches and continuous mode (exactly once, with --at-least-once not), as JSON.

    python bench/latency.py --bootstrap-servers localhost:9092 --seconds 120 --output bench/results/latency.json

The topology is W3's: a sum per key. Records carry the time at which they were produced; the consumer runs in a thread
of this process, so one clock measures both ends. The first ``--warm-up`` seconds do not count. Without
``--bootstrap-servers`` a broker is started for the run.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import machine
from latency_probe import SENDER, Arrival, Arrivals, evenly, percentiles
from penstock import Consumed, KafkaStreams, Materialized, Produced, StreamsBuilder
from penstock.tools.broker.broker_settings import BrokerSettings, free_port
from penstock.tools.broker.process import Broker

__all__ = ["main"]

_MODES = ("micro_batch", "continuous")
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
        if args.at_least_once:
            config["processing.guarantee"] = "at_least_once"
        if args.commit_interval_ms is not None:
            config["commit.interval.ms"] = args.commit_interval_ms
        app = KafkaStreams(builder.build(), config)
        isolation = "read_uncommitted" if args.at_least_once else "read_committed"
        found = Arrivals({"bootstrap.servers": servers}, target, args.partitions, isolation)
        with found, app:
            sent = _produce(servers, source, args, app)
            time.sleep(2)
            if not app.state.is_running_or_rebalancing:
                app.wait(1_000)
    return {"mode": mode, "records": sent, **_summary(found.seen, args.warm_up)}


def _produce(servers: str, topic: str, args: argparse.Namespace, app: KafkaStreams) -> int:
    """Records at an even rate; gives how many."""
    producer = Producer({"bootstrap.servers": servers} | SENDER)
    sent = 0
    for number in evenly(args.rate, int(args.rate * (args.seconds + args.warm_up))):
        producer.produce(topic, _VALUE, str(number % _KEYS).encode(), timestamp=int(time.time() * 1000))
        producer.poll(0)
        sent += 1
        if sent % 1_000 == 0 and not app.state.is_running_or_rebalancing:
            break
    producer.flush(10)
    return sent


def _summary(seen: list[Arrival], warm_up_s: float) -> dict[str, Any]:
    """Percentiles of what came after the warm-up; an output's timestamp is when its input was produced."""
    if not seen:
        return {"outputs": 0}
    counted = [one.at - one.timestamp for one in seen if one.timestamp >= seen[0].timestamp + warm_up_s * 1000]
    return {"outputs": len(seen), "counted": len(counted), **(percentiles(counted) if counted else {})}


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", help="a broker that runs; by default one is started")
    parser.add_argument("--modes", nargs="+", choices=_MODES, default=list(_MODES))
    parser.add_argument("--rate", type=int, default=1_000, help="records a second")
    parser.add_argument("--seconds", type=float, default=120, help="how long after the warm-up")
    parser.add_argument("--warm-up", type=float, default=20)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--at-least-once", action="store_true")
    parser.add_argument("--commit-interval-ms", type=int)
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
        "processing.guarantee": "at_least_once" if args.at_least_once else "exactly_once_v2",
        "commit.interval.ms": args.commit_interval_ms,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "runs": runs,
    }
    machine.show(document, args.output)


if __name__ == "__main__":
    main()
