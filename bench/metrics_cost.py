"""What counting for metrics costs: CPU seconds a record of W1 and W3 with no sensor, at INFO and at DEBUG, in turns.

A second task without a sensor, "again", shows the noise: what its rounds differ by from those of the first. Each kind is
compared with the first task's batch of the same round, so that what else the machine does then does not count.

python bench/metrics_cost.py [--n 20000] [--rounds 15] [--output FILE]

A task processes the same batch over and over in this process, each round once with each kind of counting, in an order that
changes; so what else the machine does meets all kinds alike. Spark, the log and the reports are left out: the share of the
counting is larger here than in an application.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import datasets
import machine
from penstock import StreamsConfig
from penstock.base.clock import unix_ms
from penstock.engines.app_metrics import AppMetrics
from penstock.engines.lifecycle import State
from penstock.engines.spark.progress import BatchProgress
from penstock.metrics.task_counts import Spread, TaskCounts
from penstock.runtime.context import TaskEnvironment
from penstock.runtime.rows import TopicBatch
from penstock.runtime.sensor import CountingSensor, Sensor
from penstock.runtime.task import StreamTask, TaskPart
from penstock.state.maps import MemoryMap, TaskOverlay, count_calls, take_calls
from workloads import WORKLOADS

KINDS = ("none", "again", "INFO", "DEBUG")
UNCOUNTED = ("none", "again")
INPUTS = {"w1": ("logs", datasets.logs), "w3": ("sums", datasets.sums)}


class Measured:
    """A task with one kind of counting.

    Args:
        workload: The workload.
        kind: One of KINDS.
    """

    def __init__(self, workload: str, kind: str) -> None:
        topology = WORKLOADS[workload]()
        config = StreamsConfig({"application.id": "cost", "bootstrap.servers": "memory://cost"})
        self._state = TaskOverlay(0, {store: MemoryMap() for store in topology.stores}, {})
        self._sensor = Sensor() if kind in UNCOUNTED else CountingSensor(unix_ms, detailed=kind == "DEBUG")
        if kind == "DEBUG":
            count_calls(self._state)
        part = TaskPart("0_0", {INPUTS[workload][0]: 1, "out": 1}, list(topology.nodes))
        self._task = StreamTask(topology, config, part, self._state, TaskEnvironment(self._sensor))

    def cpu_s(self, batch: TopicBatch) -> float:
        """Process a batch, make the report of its counts, and return the CPU seconds."""
        began = time.process_time()
        self._task.process([batch], unix_ms())
        if isinstance(self._sensor, CountingSensor):
            self._sensor.on_store_calls("0_0", take_calls(self._state))
            json.dumps({task: counts.document() for task, counts in self._sensor.take().items()})
        return time.process_time() - began


def compare(workload: str, n: int, rounds: int) -> dict[str, Any]:
    topic, made = INPUTS[workload]
    batch = TopicBatch(topic, 0, datasets.records(next(made(n))).slice(0, n))
    tasks = {kind: Measured(workload, kind) for kind in KINDS}
    for task in tasks.values():
        task.cpu_s(batch)
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        for kind in (*KINDS[number % len(KINDS) :], *KINDS[: number % len(KINDS)]):
            times[kind].append(tasks[kind].cpu_s(batch))
    records = batch.records.num_rows
    found: dict[str, Any] = {"records": records, "rounds": rounds}
    for kind, each in times.items():
        ratios = [mine / base - 1 for mine, base in zip(each, times["none"], strict=True)]
        found[kind] = {
            "cpu_us_a_record": _three([time / records * 1e6 for time in each]),
            "share_more": _three(ratios),
        }
    return found


def _three(values: list[float]) -> dict[str, float]:
    """Return the median, and the quartiles around it."""
    low, middle, high = (round(at, 4) for at in statistics.quantiles(values, n=4))
    return {"median": middle, "from": low, "to": high}


def driver(rounds: int) -> dict[str, Any]:
    """Return what a batch of eight tasks costs on the driver: in its own path, and when somebody reads."""
    topology = WORKLOADS["w3"]()
    config = StreamsConfig({"application.id": "cost", "bootstrap.servers": "memory://cost"})
    metrics = AppMetrics(topology, config, lambda: State.RUNNING)
    counts = TaskCounts(1000, Spread(1000, 0.1, 1e-4, 1e-4))
    counts.consumed["KSTREAM-SOURCE-0000000000", "sums"] = [1000, 20_000]
    steps = {"state": 0.01, "read": 0.05, "process": 0.1, "publish": 0.02, "write": 0.05}
    tasks = [
        {"task": f"0_{n}", "records_read": 1000, "seconds": steps, "began_ms": 0, "counts": counts.document()}
        for n in range(8)
    ]
    batches = [BatchProgress(n, 8000, 8000, 0, 0, tasks=tuple(tasks), seconds=0.5) for n in range(rounds * 10)]
    began = time.process_time()
    for batch in batches:
        metrics(batch)
    put = time.process_time()
    metrics.catch_up()
    counted = time.process_time()
    each = 1e6 / len(batches)
    return {"put_us": round((put - began) * each, 2), "counted_later_us": round((counted - put) * each, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    found = machine.facts("bench/metrics_cost.py") | {each: compare(each, given.n, given.rounds) for each in INPUTS}
    found["driver"] = driver(given.rounds)
    machine.show(found, given.output)


if __name__ == "__main__":
    main()
