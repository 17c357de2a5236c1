"""What waiting costs: CPU without records, time per micro-batch at 1,000 records/s, and recovery of a million keys.

python bench/idle.py [--seconds 15] [--keys 1000000] [--output FILE]

The application counts records by key: directly (one level of tasks), and behind a repartition (two levels).
Time per micro-batch is from the end of a batch to the end of the next (commit.interval.ms is 0).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import machine
import state
from datasets import PARTITIONS, records
from measure import MASTER, cpu_s
from penstock import Consumed, Grouped, KafkaStreams, Produced, Serdes, StreamsBuilder
from penstock.log.open import open_log

RATE = 1_000  # records a second
EVERY_S = 0.05
WARM_UP_S = 10


def application(url: str, work: Path, *, regrouped: bool) -> KafkaStreams:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(key_serde="string", value_serde="string"))
    if regrouped:
        stream = stream.select_key(pl.col("value"))
    counts = stream.group_by_key(Grouped(key_serde="string", value_serde="string")).count()
    counts.to_stream().to("out", Produced(key_serde="string", value_serde=Serdes.text_long()))
    return KafkaStreams(
        builder.build(),
        {
            "application.id": "idle",
            "bootstrap.servers": url,
            "state.dir": str(work),
            "spark.master": MASTER,
            "processing.mode": "micro_batch",
            "commit.interval.ms": 0,
        },
    )


def paced(url: str, seconds: float) -> None:
    """Appends RATE records a second, spread over the partitions, in small appends as producers do."""
    random = np.random.default_rng(1)
    size = int(RATE * EVERY_S / PARTITIONS)
    begin = time.perf_counter()
    with open_log(url) as log:
        for tick in range(int(seconds / EVERY_S)):
            for partition in range(PARTITIONS):
                keys = pl.Series(random.integers(0, 1000, size)).cast(pl.String)
                frame = pl.DataFrame({"timestamp": [int(time.time() * 1000)] * size, "key": keys, "value": keys})
                log.append("in", partition, records(frame))
            time.sleep(max(0.0, begin + (tick + 1) * EVERY_S - time.perf_counter()))


def measure(*, regrouped: bool, seconds: float) -> dict[str, Any]:
    ends: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        url = f"sqlite:///{directory}/log.db"
        with open_log(url) as log:
            for topic in ("in", "out"):
                log.create_topic(topic, PARTITIONS)
        app = application(url, Path(directory) / "work", regrouped=regrouped)
        app.add_progress_listener(lambda progress: ends.append((time.perf_counter(), progress.records_in)))
        app.start()
        paced(url, WARM_UP_S)
        ends.clear()
        before = cpu_s()
        paced(url, seconds)
        busy = (cpu_s() - before) / seconds
        running = list(ends)
        time.sleep(3)
        ends.clear()
        before, begin = cpu_s(), time.perf_counter()
        time.sleep(seconds / 2)
        idle = (cpu_s() - before) / (time.perf_counter() - begin)
        batches_idle = len(ends)
        app.close()
    times = np.diff([at for at, _ in running]) * 1000
    return {
        "batches": len(times), "records_per_batch": round(float(np.mean([n for _, n in running])), 1),
        "median_ms": round(float(np.median(times)), 1), "p99_ms": round(float(np.percentile(times, 99)), 1),
        "cores_used_at_rate_with_producer": round(busy, 3), "cores_used_idle": round(idle, 3), "batches_idle": batches_idle,
    }  # fmt: skip


def recovery(keys: int) -> dict[str, float]:
    """Seconds until a machine without a replica can run the next batch, from deltas or from a snapshot."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        return state.recovery(Path(directory), keys, 100_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "idle.json")
    given = parser.parse_args()
    report = machine.facts("bench/idle.py") | {"records_per_s": RATE}
    report["recovery_s"] = {"keys": given.keys, **recovery(given.keys)}
    report["one_level"] = measure(regrouped=False, seconds=given.seconds)
    report["two_levels"] = measure(regrouped=True, seconds=given.seconds)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
