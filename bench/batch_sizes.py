"""CPU time of one stream thread under backlog by the size of its batches, over a log in memory: us for each record.

python bench/batch_sizes.py [--n 300000] [--workloads w1 w3] [--sizes 8000 25000 100000] [--rounds 3]

The sizes take turns, and the least of the rounds but the first counts: what else the machine does changes little. All
that micro-batches do with a record is in it but Spark, the broker and its connections; a size of --n is that of a micro-batch.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from typing import Any

import datasets
from penstock.config import StreamsConfig
from penstock.engines.threads.loop.stream_thread import StreamThread
from penstock.log.open import open_log
from penstock.log.thread_clients import Writer
from prepare import append_frame, frames
from thread_rate import cpu_steps, planned_app
from workloads import TOPICS, WORKLOADS


def seconds(workload: str, size: int, name: str, log: Any) -> dict[str, float]:
    """CPU seconds by step of the loop, and of the whole."""
    log.create_topic(f"{name}-out", datasets.PARTITIONS)
    settings = {"application.id": name, "bootstrap.servers": log.url, "max.poll.records": size}
    settings |= {"buffered.records.per.partition": max(100_000, size)}
    topology = WORKLOADS[workload](**{topic: topic for topic in TOPICS[workload]}, out=f"{name}-out")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as root:
        app = planned_app(topology, StreamsConfig(settings), log, root)
        writer = Writer(name, "thread-0", log.acquire_lease(name, "bench").epoch, exactly_once=False)
        thread = StreamThread(app, log, writer, list(app.tasks()))
        thread.start()
        before, quiet = time.process_time(), 0
        while quiet < 2:  # steps without anything to do
            quiet = 0 if thread.step(0.01) else quiet + 1
        thread.commit()
        whole = time.process_time() - before
        found = dict(thread.figures().seconds)
        thread.close(commit=True)
    return found | {"all": whole}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=300_000)
    parser.add_argument("--workloads", nargs="+", default=["w1", "w2a", "w2b", "w3", "w4"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[8_000, 25_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    cpu_steps()
    for workload in given.workloads:
        found: dict[int, list[dict[str, float]]] = defaultdict(list)
        with open_log(f"memory://{workload}") as log:
            for topic in TOPICS[workload]:
                log.create_topic(topic, datasets.PARTITIONS)
                for frame in frames(topic, given.n):
                    append_frame(log, topic, frame)
            for number in range(given.rounds):
                for size in given.sizes:
                    found[size].append(seconds(workload, size, f"{workload}-{number}-{size}", log))
        for size, rounds in found.items():
            least = min(rounds[1:] or rounds, key=lambda each: each["all"])
            print(workload, size, {step: round(1e6 * s / given.n, 2) for step, s in least.items()}, flush=True)


if __name__ == "__main__":
    main()
