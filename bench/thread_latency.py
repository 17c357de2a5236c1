"""One stream thread at a fixed rate, without Spark: milliseconds from a record to its output, and CPU time by step.

python bench/thread_latency.py [--rate 1000] [--seconds 15] [--at-least-once] [--commit-ms 10] [--idle]
python bench/thread_latency.py --profile         # the functions that take most

The thread has all tasks of the application, two partitions, and a broker on the same machine; records and outputs are
another process's. ``turns`` are steps of the loop in which something happened; ``ms_a_turn`` is CPU time of the thread's
process. ``--idle`` sends nothing, and counts cores.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import json
import multiprocessing
import pstats
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer

import broker_topics as topics
from compare import broker_in
from datasets import N_KEYS
from latency_probe import SENDER, Arrivals, evenly, percentiles
from penstock.config import StreamsConfig
from penstock.engines.application.locations import log_settings
from penstock.engines.threads.loop.stream_thread import StreamThread
from penstock.log.open import open_log
from penstock.log.thread_clients import Writer
from thread_rate import planned_app
from workloads import WORKLOADS

PARTITIONS = 2
WARM_UP_S, DRAIN_S = 4.0, 2.0


def feed(bootstrap: str, source: str, out: str, rate: int, seconds: float, isolation: str, done: Any) -> None:
    """Send amounts of 1 to w3, in a process of its own, and put the figures of their outputs into ``done``."""
    producer = Producer(topics.client(bootstrap) | SENDER)
    keys = np.random.default_rng(7).integers(0, N_KEYS, int(rate * seconds)).tolist()
    sent: dict[bytes, list[float]] = defaultdict(list)
    with Arrivals(topics.client(bootstrap), out, PARTITIONS, isolation) as arrivals:
        begun = time.time()
        for number in evenly(rate, len(keys)):
            now, key = time.time() * 1000, f"k{keys[number]:06d}".encode()
            sent[key].append(now)
            producer.produce(source, b"1", key, timestamp=int(now))
            producer.poll(0)
        producer.flush(10)
        time.sleep(DRAIN_S)
    waited, counted = [], defaultdict(int)
    for one in arrivals.seen:
        waited += [
            one.at - at for at in sent[one.key][counted[one.key] : int(one.value)] if at > (begun + WARM_UP_S) * 1000
        ]
        counted[one.key] = max(counted[one.key], int(one.value))
    done.put(percentiles(waited) | {"answered": len(waited)} if waited else {})


def measure(bootstrap: str, given: argparse.Namespace) -> dict[str, Any]:
    """Run the thread until the other process has its figures."""
    url, name = f"kafka://{bootstrap}", f"latency-{time.time_ns() // 1_000_000}"
    for topic in ("in", "out"):
        topics.create(bootstrap, f"{name}-{topic}", {}, PARTITIONS)
    guarantee = "at_least_once" if given.at_least_once else "exactly_once_v2"
    settings = {"application.id": name, "bootstrap.servers": url, "processing.guarantee": guarantee}
    settings |= {"commit.interval.ms": given.commit_ms, "statestore.cache.max.bytes": 0} | given.conf
    config = StreamsConfig(settings)
    with open_log(url, log_settings(config)) as log, tempfile.TemporaryDirectory(prefix="penstock-bench-") as root:
        app = planned_app(WORKLOADS["w3"](f"{name}-in", f"{name}-out"), config, log, root)
        lease = log.acquire_lease(name, "bench")
        writer = Writer(name, "thread-0", lease.epoch, not given.at_least_once)
        thread = StreamThread(app, log, writer, list(app.tasks()))
        thread.start()
        for _ in range(10):
            thread.step(0.1)
        processes = multiprocessing.get_context("spawn")
        done: Any = processes.Queue()
        isolation = "read_uncommitted" if given.at_least_once else "read_committed"
        other = processes.Process(
            target=feed, args=(bootstrap, f"{name}-in", f"{name}-out", given.rate, given.seconds, isolation, done)
        )
        before, began, turns, commits = time.process_time(), time.perf_counter(), 0, thread.figures().commits
        profile = cProfile.Profile() if given.profile else contextlib.nullcontext()
        with profile:
            if given.idle:
                while time.perf_counter() - began < given.seconds:
                    thread.step(0.1)
            else:
                other.start()
                while other.is_alive():
                    turns += thread.step(0.1)
        cpu, seconds = time.process_time() - before, time.perf_counter() - began
        if given.profile:
            pstats.Stats(profile).sort_stats(given.sort).print_stats(given.lines)
        found = thread.figures()
        thread.close(commit=True)
        topics.delete(bootstrap, name)
    row = {"guarantee": guarantee, "commit_interval_ms": given.commit_ms, "cores": round(cpu / seconds, 3)}
    if given.idle:
        return row
    steps = {step: round(1000 * time_s / turns, 2) for step, time_s in found.seconds.items()}
    row |= {"turns": turns, "commits": found.commits - commits, "ms_a_turn": round(1000 * cpu / turns, 2)}
    return row | {"wall_ms_a_turn": steps} | done.get()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--at-least-once", action="store_true")
    parser.add_argument("--commit-ms", type=int, default=10)
    parser.add_argument("--conf", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--bootstrap", help="a broker that runs; else one is started")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--idle", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--sort", default="tottime")
    parser.add_argument("--lines", type=int, default=50)
    given = parser.parse_args()
    given.conf = dict(each.split("=", 1) for each in given.conf)
    with contextlib.ExitStack() as stack:
        if not given.bootstrap:
            root = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-"))
            given.bootstrap = stack.enter_context(broker_in(Path(root))).settings.bootstrap_servers
        for _ in range(given.runs):
            print(json.dumps(measure(given.bootstrap, given)), flush=True)


if __name__ == "__main__":
    main()
