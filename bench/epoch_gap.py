"""The gap that a reader of an application's outputs sees when tasks move, in continuous mode.

python bench/epoch_gap.py [--kafka] [--rounds 3] [--json FILE]

1,000 records a second go through a counting store, exactly once, commit every 10 ms, on two stream threads. A reader of committed
outputs notes when each arrives. The gap of an event is the longest time between two arrivals in the seconds after it, over
all partitions of the input (``longest``) and for the partition that waited longest (``partition``). Events:

none             nothing happens: what the machine does by itself
partition        partitions are added to the input; their tasks come to the threads that run
epoch            a new epoch is asked for: all threads commit and end, a new Spark job starts
worker           the process of one thread is killed
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

import machine
from penstock import KafkaStreams, Materialized, Repartitioned, StreamsBuilder
from penstock.log.base import TopicLog
from penstock.log.open import open_log
from penstock.tools.broker.broker_settings import BrokerSettings, free_port
from penstock.tools.broker.process import Broker

PARTITIONS = 4
RATE = 1_000
BEFORE_S, AFTER_S = 2.0, 12.0
PATIENCE_S = 120.0


def now() -> float:
    return time.monotonic()


class Sender(threading.Thread):
    """Writes records at an even rate, in turn to each partition, whose number is the key."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._log = open_log(url)
        self.partitions = PARTITIONS
        self.done = threading.Event()

    def run(self) -> None:
        due, turn = now(), 0
        while not self.done.is_set():
            count = max(1, RATE // 100)
            partition = turn % self.partitions
            columns = {
                "timestamp": pa.array([int(time.time() * 1000)] * count, pa.int64()),
                "key": pa.array([str(partition).encode()] * count, pa.large_binary()),
                "value": pa.array([b"1"] * count, pa.large_binary()),
            }
            self._log.append("in", partition, pa.RecordBatch.from_pydict(columns))
            turn += 1
            due += 0.01
            time.sleep(max(0.0, due - now()))


class Reader(threading.Thread):
    """Notes the arrival of each committed output by its key."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._log = open_log(url)
        self.arrivals: list[tuple[float, bytes]] = []
        self.done = threading.Event()

    def run(self) -> None:
        at = self._log.end_offset("out", 0)
        while not self.done.is_set():
            fetched = self._log.read("out", 0, at, 100_000)
            keys = set(fetched.records.column("key").to_pylist())
            self.arrivals += [(now(), key) for key in keys]
            at = fetched.next_offset
            time.sleep(0.002)


def gaps(arrivals: list[tuple[float, bytes]], since: float, until: float) -> dict[str, float]:
    """The longest time between two arrivals of any key, and of one key, from the last ones before the event on.

    A key that does not arrive any more counts to the end; one that arrives for the first time counts from then on.
    """
    times: dict[bytes, list[float]] = {}
    for at, key in arrivals:
        if at <= until:
            times.setdefault(key, []).append(at)

    def longest(all_times: list[float]) -> float:
        before = [at for at in all_times if at <= since][-1:]
        counted = [*before, *(at for at in all_times if at > since), until]
        return max(b - a for a, b in itertools.pairwise(counted)) if len(counted) > 1 else until - since

    return {
        "longest_ms": round(1000 * longest(sorted(at for at, _ in arrivals if at <= until)), 1),
        "partition_ms": round(1000 * max((longest(each) for each in times.values()), default=until - since)),
    }


def until(condition: Callable[[], Any], what: str, app: KafkaStreams) -> None:
    deadline = now() + PATIENCE_S
    while not condition():
        if app.error is not None:
            raise app.error
        if now() > deadline:
            raise TimeoutError(what)
        time.sleep(0.02)


def inside(app: KafkaStreams) -> Any:
    """The application's run, which is not public."""
    return vars(app)["_supervisor"].run


def add_partitions(log: TopicLog) -> None:
    log.create_partitions("in", log.partitions("in") + 2)


def ask_for_epoch(app: KafkaStreams) -> None:
    """Have the next look find a plan that needs a new epoch."""
    run = inside(app)
    look, extend = run.new_plan, run.rebalance

    def found_once() -> Any:
        run.new_plan = look
        return run.plan

    def begin_again(_: Any) -> None:
        run.rebalance = extend
        run.recover()

    run.rebalance, run.new_plan = begin_again, found_once


def kill_worker(app: KafkaStreams) -> None:
    os.kill(vars(inside(app).engine)["_jobs"].pids()["thread-0"], signal.SIGKILL)


def measure(url: str, folder: str, rounds: int) -> dict[str, Any]:
    log = open_log(url)
    log.create_topic("in", PARTITIONS)
    log.create_topic("out", 1)
    builder = StreamsBuilder()
    builder.stream("in").repartition(Repartitioned(partitions=PARTITIONS)).group_by_key().count(
        Materialized("counts")
    ).to_stream().to("out")
    settings = {
        "application.id": "gap", "bootstrap.servers": url, "state.dir": folder, "default.key.serde": "string",
        "default.value.serde": "string", "processing.mode": "continuous", "commit.interval.ms": 10,
        "statestore.cache.max.bytes": 0, "metadata.max.age.ms": 200, "spark.master": "local[2]",
    }  # fmt: skip
    app = KafkaStreams(builder.build(), settings)
    found: dict[str, list[dict[str, float]]] = {}
    sender, reader = Sender(url), Reader(url)
    events: dict[str, Callable[[], None]] = {
        "none": lambda: None,
        "partition": lambda: add_partitions(log),
        "epoch": lambda: ask_for_epoch(app),
        "worker": lambda: kill_worker(app),
    }
    with app:
        until(lambda: app.state.value == "RUNNING", "the application does not run", app)
        sender.start()
        reader.start()
        for name, cause in events.items():
            for _ in range(rounds):
                until(lambda: app.state.value == "RUNNING" and inside(app).has_running_tasks(), name, app)
                time.sleep(BEFORE_S)
                began = now()
                cause()
                time.sleep(AFTER_S)
                found.setdefault(name, []).append(gaps(reader.arrivals, began, now()))
                print(name, found[name][-1], flush=True)
        sender.done.set()
        reader.done.set()
        sender.join()
        reader.join()
    log.close()
    return {
        name: {"median_ms": median(each["longest_ms"] for each in runs), "runs": runs} for name, runs in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", action="store_true", help="over a broker, not the embedded log")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    facts = machine.facts("bench/epoch_gap.py")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        url = f"sqlite:///{folder}/log.db"
        if args.kafka:
            broker = stack.enter_context(Broker(BrokerSettings(Path(folder) / "broker", free_port(), free_port())))
            url = broker.settings.bootstrap_servers
        found = measure(url, f"{folder}/state", args.rounds)
    document = {**facts, "log": "kafka" if args.kafka else "embedded", "events": found}
    print(json.dumps(document, indent=1))
    if args.json:
        args.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
