"""Few records in many partitions: what a batch costs beyond its records."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil
import pyarrow as pa

from machine import own_bytes
from measure import MASTER, cpu_s
from penstock import Consumed, Grouped, KafkaStreams, Produced, Serdes, StreamsBuilder
from penstock.engines.kafka_streams import State
from penstock.log.base import TopicLog
from penstock.log.open import open_log

TIMEOUT_S = 1_500.0
IDLE_S = 10.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--counts", type=int, nargs="+", default=[8, 64, 256, 1_000])
    parser.add_argument("--shapes", nargs="+", default=["map", "count", "regrouped"])
    parser.add_argument("--log", choices=("sqlite", "kafka"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spread-up-to", type=int, default=256, help="partitions; P x P records in one batch")


def run(given: argparse.Namespace) -> list[dict[str, Any]]:
    from scale import alone

    found = []
    for shape in given.shapes:
        for count in given.counts:
            with broker(given.log) as servers:
                kinds = {"one_each": given.rounds, "two_records": given.rounds}
                if shape == "regrouped" and count <= given.spread_up_to:
                    kinds["all_to_all"] = 1
                found.append(alone(measure, shape, count, servers, kinds, timeout_s=TIMEOUT_S))
            print(found[-1], flush=True)
    return found


@contextlib.contextmanager
def broker(log: str) -> Iterator[str | None]:
    """Where a new broker answers; None for the embedded log."""
    if log == "sqlite":
        yield None
        return
    from penstock.tools.broker.broker_settings import BrokerSettings, free_port
    from penstock.tools.broker.process import Broker

    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        Broker(BrokerSettings(Path(directory), free_port(), free_port())) as running,
    ):
        yield running.settings.bootstrap_servers


def topology(shape: str) -> Any:
    """One level without state, one with it, or two with a repartition between."""
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(key_serde="string", value_serde="string"))
    if shape == "map":
        stream.map_values(pl.col("value").str.to_uppercase()).to("out", Produced(value_serde="string"))
        return builder.build()
    if shape == "regrouped":
        stream = stream.select_key(pl.col("value"))
    counts = stream.group_by_key(Grouped(key_serde="string", value_serde="string")).count()
    counts.to_stream().to("out", Produced(key_serde="string", value_serde=Serdes.text_long()))
    return builder.build()


def write(log: TopicLog, partitions: range, each: int) -> int:
    """So many records into each of these partitions, in one transaction; the values are all different."""
    now = int(time.time() * 1000)
    with log.transaction("") as transaction:
        for partition in partitions:
            texts = pa.array([f"{partition}-{number}".encode() for number in range(each)], pa.large_binary())
            times = pa.array(np.full(each, now))
            transaction.append(
                "in", partition, pa.RecordBatch.from_pydict({"timestamp": times, "key": texts, "value": texts})
            )
    return each * len(partitions)


class Watch:
    """What batches report; waits for records."""

    def __init__(self, app: KafkaStreams) -> None:
        self.records = self.batches = 0
        self.steps: dict[str, float] = {}
        self._app = app
        app.add_progress_listener(self._on)

    def _on(self, progress: Any) -> None:
        self.batches += 1
        self.records += progress.records_in
        for task in progress.tasks:
            for step, seconds in task["seconds"].items():
                self.steps[step] = self.steps.get(step, 0.0) + seconds

    def wait(self, records: int) -> None:
        while self.records < records:
            if self._app.state in (State.ERROR, State.NOT_RUNNING):
                raise SystemExit(f"the application has ended: {self._app.state}")
            time.sleep(0.002)


def workers() -> list[psutil.Process]:
    """Spark's Python workers, the planner's among them."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "pyspark" in " ".join(process.cmdline()) and "java" not in process.name():
                found.append(process)
    return found


def _round(watch: Watch, log: TopicLog, partitions: range, each: int) -> dict[str, Any]:
    """Writes records and waits until they are processed."""
    batches, steps = watch.batches, dict(watch.steps)
    begin, before = time.perf_counter(), cpu_s()
    watch.wait(watch.records + write(log, partitions, each))
    return {
        "s": round(time.perf_counter() - begin, 3), "cpu_s": round(cpu_s() - before, 2),
        "batches": watch.batches - batches,
        "steps": {s: round(v - steps.get(s, 0.0), 3) for s, v in watch.steps.items() if v > steps.get(s, 0.0)},
    }  # fmt: skip


def measure(shape: str, count: int, servers: str | None, kinds: dict[str, int]) -> dict[str, Any]:
    facts: dict[str, Any] = {"shape": shape, "partitions": count, "log": "kafka" if servers else "sqlite"}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        url = servers or f"sqlite:///{directory}/log.db"
        with open_log(url) as log:
            for topic in ("in", "out"):
                log.create_topic(topic, count, {"retention.ms": "-1"})
            written = write(log, range(count), 1)
            app = KafkaStreams(
                topology(shape),
                {
                    "application.id": "scale",
                    "bootstrap.servers": url,
                    "state.dir": f"{directory}/work",
                    "spark.master": MASTER,
                    "processing.mode": "micro_batch",
                    "commit.interval.ms": 0,
                },
            )
            watch = Watch(app)
            begin, before = time.perf_counter(), cpu_s()
            app.start()
            watch.wait(written)
            facts["first_batch_s"] = round(time.perf_counter() - begin, 2)
            facts["first_batch_cpu_s"] = round(cpu_s() - before, 2)
            for kind, rounds in kinds.items():
                partitions = range(2) if kind == "two_records" else range(count)
                each = count if kind == "all_to_all" else 1
                facts[kind] = [_round(watch, log, partitions, each) for _ in range(rounds + 1)][1:]
            facts["workers"] = [
                {"files": each.num_fds(), "own_mb": own_bytes(each.pid) >> 20}
                for each in workers()
                if each.is_running()
            ]
            time.sleep(2)
            before, begin = cpu_s(), time.perf_counter()
            time.sleep(IDLE_S)
            facts["idle_cores"] = round((cpu_s() - before) / (time.perf_counter() - begin), 3)
            begin = time.perf_counter()
            app.close()
            facts["close_s"] = round(time.perf_counter() - begin, 2)
    facts["load"] = round(os.getloadavg()[0], 1)
    facts["files_limit"] = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return facts
