"""Continuous mode with little to do: its start, its CPU time without records, its memory under light load.

python bench/continuous_idle.py [--log sqlite|kafka] [--partitions 4] [--threads 2] [--idle 30] [--load 300] [--json FILE]
python bench/continuous_idle.py --partitions 256 --load 0
python bench/continuous_idle.py --minutes 60           # memory of an hour

``start_s`` is the time from a Spark session that is ready to stream threads that run. Idle cores are those of each kind of
process: Spark's JVM, Python workers (stream threads, and Spark's own helpers), and this driver. Under load
``--rate`` records a second are written, counted and committed; ``grows_mb_an_hour`` is the slope of a worker's own memory
(anonymous pages) in the second half of that time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

import machine
from penstock import KafkaStreams
from penstock.engines.kafka_streams import State
from penstock.log.open import open_log
from scale_partitions import broker, topology

START_S = 120.0
SETTLE_S = 5.0
EVERY_S = 0.05


def processes() -> dict[str, list[psutil.Process]]:
    """This process and those below it, by kind."""
    own = psutil.Process()
    found: dict[str, list[psutil.Process]] = {"driver": [own], "jvm": [], "workers": []}
    for process in own.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "kafka.Kafka" in " ".join(process.cmdline()):
                continue
            found["jvm" if "java" in process.name() else "workers"].append(process)
    return found


def seconds_of(process: psutil.Process) -> float:
    try:
        return sum(process.cpu_times()[:2])
    except psutil.Error:
        return 0.0


def cores(seconds: float) -> dict[str, Any]:
    """Cores used for a while, by kind of process; of workers each."""
    kinds = processes()
    before = {process.pid: seconds_of(process) for each in kinds.values() for process in each}
    began = time.perf_counter()
    time.sleep(seconds)
    passed = time.perf_counter() - began
    used = {kind: [round((seconds_of(p) - before[p.pid]) / passed, 4) for p in each] for kind, each in kinds.items()}
    return {kind: sorted(each, reverse=True) for kind, each in used.items()} | {
        "all": round(sum(sum(each) for each in used.values()), 4)
    }


def memory(log: Any, given: argparse.Namespace) -> dict[str, Any]:
    """The workers' own memory while records come."""
    workers = [process.pid for process in processes()["workers"]]
    samples: list[tuple[float, list[int]]] = []
    began, sent, looked = time.perf_counter(), 0, 0.0
    dice = np.random.default_rng(1)
    while (now := time.perf_counter() - began) < given.load:
        if now - looked > 5:
            samples.append((now, [machine.own_bytes(pid) for pid in workers]))
            looked = now
        due = int(now * given.rate) - sent
        if due > 0:
            keys = pa.array([b"%d" % key for key in dice.integers(0, 1_000, due)], pa.large_binary())
            times = pa.array([int(time.time() * 1000)] * due, pa.int64())
            partition = int(dice.integers(0, given.partitions))
            log.append("in", partition, pa.RecordBatch.from_pydict({"timestamp": times, "key": keys, "value": keys}))
            sent += due
        time.sleep(EVERY_S)
    half = [each for each in samples if each[0] > given.load / 2]
    at = np.array([each[0] for each in half]) / 3_600
    slopes = [
        round(float(np.polyfit(at, [each[1][number] / 2**20 for each in half], 1)[0]), 1)
        for number in range(len(workers))
    ]
    shown = samples[:: max(1, len(samples) // 12)]
    return {
        "seconds": given.load, "records_per_s": given.rate, "grows_mb_an_hour": slopes,
        "mb": [[round(at), *(each >> 20 for each in sizes)] for at, sizes in shown],
    }  # fmt: skip


def main() -> None:
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", choices=("sqlite", "kafka"), default="sqlite")
    parser.add_argument("--shape", choices=("map", "count", "regrouped"), default="count")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--idle", type=float, default=30)
    parser.add_argument("--load", type=float, default=300)
    parser.add_argument("--minutes", type=float, help="of light load, in place of --load")
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    given.load = given.load if given.minutes is None else 60 * given.minutes
    report: dict[str, Any] = machine.facts("bench/continuous_idle.py") | {"threads": given.threads}
    report |= {"partitions": given.partitions, "shape": given.shape, "log": given.log}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the session is not the application's own
    session = SparkSession.builder.master(f"local[{given.threads}]").config("spark.ui.enabled", "false").getOrCreate()
    session.range(1).collect()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as root, broker(given.log) as servers:
        url = servers or f"sqlite:///{root}/log.db"
        with open_log(url) as log:
            for topic in ("in", "out"):
                log.create_topic(topic, given.partitions, {"retention.ms": "-1"})
            app = KafkaStreams(
                topology(given.shape),
                {
                    "application.id": "idle",
                    "bootstrap.servers": url,
                    "state.dir": f"{root}/work",
                    "processing.mode": "continuous",
                },
                session=session,
            )
            ready = [0.0]
            app.set_state_listener(lambda new, _: ready.append(time.perf_counter()) if new is State.RUNNING else None)
            began = time.perf_counter()
            app.start()
            while len(ready) == 1:
                if app.state is State.ERROR or time.perf_counter() - began > START_S:
                    raise SystemExit(f"no stream thread runs: {app.state}")
                time.sleep(0.02)
            report["start_s"] = round(ready[-1] - began, 2)
            time.sleep(SETTLE_S)
            report["idle_cores"] = cores(given.idle)
            if given.load:
                report["light_load"] = memory(log, given)
            app.close()
    report["load_after"] = round(os.getloadavg()[0], 1)
    machine.show(report, given.json)


if __name__ == "__main__":
    main()
