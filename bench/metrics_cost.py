"""What counting for metrics costs: CPU seconds a record of W1 and W3 with no sensor, at INFO and at DEBUG, in turns.

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
from penstock.clock import unix_ms
from penstock.runtime.context import Surroundings
from penstock.runtime.counting import CountingSensor
from penstock.runtime.record import TopicBatch
from penstock.runtime.sensor import Sensor
from penstock.runtime.task import StreamTask, TaskPart
from penstock.state.counted_map import count_calls, take_calls
from penstock.state.memory import MemoryMap
from penstock.state.overlay import BatchState
from workloads import WORKLOADS

KINDS = ("none", "INFO", "DEBUG")
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
        self._state = BatchState(0, {store: MemoryMap() for store in topology.stores}, {})
        self._sensor = Sensor() if kind == "none" else CountingSensor(unix_ms, detailed=kind == "DEBUG")
        if kind == "DEBUG":
            count_calls(self._state)
        part = TaskPart("0_0", {INPUTS[workload][0]: 1, "out": 1}, list(topology.nodes))
        self._task = StreamTask(topology, config, part, self._state, Surroundings(self._sensor))

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
        for kind in (*KINDS[number % 3 :], *KINDS[: number % 3]):
            times[kind].append(tasks[kind].cpu_s(batch))
    records = batch.records.num_rows
    base = statistics.median(times["none"])
    found: dict[str, Any] = {"records": records, "rounds": rounds}
    for kind, each in times.items():
        quarters = statistics.quantiles(each, n=4)
        found[kind] = {
            "cpu_us_a_record": round(statistics.median(each) / records * 1e6, 4),
            "quartiles_us": [round(at / records * 1e6, 4) for at in (quarters[0], quarters[2])],
            "share_more": round(statistics.median(each) / base - 1, 4),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    found = machine.facts("bench/metrics_cost.py") | {each: compare(each, given.n, given.rounds) for each in INPUTS}
    machine.show(found, given.output)


if __name__ == "__main__":
    main()
