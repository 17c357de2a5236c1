"""Records of 1 MB: how many are in a batch, and what the workers take of memory."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa

from machine import own_bytes
from measure import MASTER, cpu_s
from penstock import KafkaStreams
from penstock.log.base import TopicLog
from penstock.log.open import open_log
from scale_partitions import broker, topology, workers

RECORD_BYTES = 1 << 20
PARTITIONS = 4
TIMEOUT_S = 600.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=1_000)
    parser.add_argument("--log", choices=("sqlite", "kafka"), default="sqlite")


def run(given: argparse.Namespace) -> list[dict[str, Any]]:
    from scale import alone

    with broker(given.log) as servers:
        return [alone(measure, given.records, servers, timeout_s=TIMEOUT_S)]


def write(log: TopicLog, records: int) -> None:
    """Bytes that do not compress, 20 records a transaction."""
    random = np.random.default_rng(1)
    for start in range(0, records, 20):
        with log.transaction("") as transaction:
            values = [random.bytes(RECORD_BYTES - 1_000).hex().encode()[: RECORD_BYTES - 1_000] for _ in range(20)]
            transaction.append("in", start // 20 % PARTITIONS, pa.RecordBatch.from_pydict({"value": values}))


def measure(records: int, servers: str | None) -> dict[str, Any]:
    batches: list[int] = []
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.2):
            with contextlib.suppress(Exception):  # a process that ends meanwhile
                peak = max(peak, *(own_bytes(each.pid) for each in workers()))

    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        url = servers or f"sqlite:///{directory}/log.db"
        with open_log(url) as log:
            for topic in ("in", "out"):
                log.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
            write(log, records)
        settings = {
            "application.id": "scale",
            "bootstrap.servers": url,
            "state.dir": f"{directory}/work",
            "spark.master": MASTER,
            "processing.mode": "micro_batch",
        }
        app = KafkaStreams(topology("map"), settings)
        app.add_progress_listener(lambda progress: batches.append(progress.records_in))
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        begin, before = time.perf_counter(), cpu_s()
        app.run(until="latest")
        seconds, cpu = time.perf_counter() - begin, cpu_s() - before
        done.set()
        watcher.join()
    return {
        "log": "kafka" if servers else "sqlite", "records": records, "record_bytes": RECORD_BYTES,
        "records_in_batches": batches, "peak_worker_mb": peak >> 20, "s": round(seconds, 1), "cpu_s": round(cpu, 1),
    }  # fmt: skip
