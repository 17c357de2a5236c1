"""What the state of a stream thread's task costs: a restore of a million keys, a start with a replica, and commits.

python bench/restore_thread.py [--keys 1000000] [--value-bytes 100] [--changes 1] [--log HOST:PORT] [--json FILE]

whole     the replica is lost: everything is read from the changelog
current   the replica is there, and nothing is new
behind    the replica is there, and lacks the last 10,000 changes
commit    ten changed keys a commit: `changes`, and `TaskReplica.commit`, without the log's part (medians)

Keys come in random order, in transactions of 10,000. ``--log`` may name a Kafka broker in place of an embedded log in a
temporary directory. ``peak_bytes`` is the process's own memory while it restores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import machine
from penstock.config import StreamsConfig
from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.replicas.task_replica import TaskReplica
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.open import open_log
from penstock.serde.column import Column
from penstock.serde.primitives import StringSerde
from penstock.state.views import open_view
from penstock.topology.plan.internal_topics import changelogs_of
from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology, TaskId
from penstock.topology.stores import StoreSpec
from penstock.topology.topology import Topology

TABLE = StoreSpec("table", "timestamped", StringSerde(), StringSerde())
TASK = TaskId(0, 0)
SIZE = 10_000


class Task:
    """A task with one table over a log."""

    def __init__(self, root: Path, log: TopicLog, application: str = "") -> None:
        application = application or f"bench-{uuid.uuid4().hex[:8]}"
        topology = Topology(stores={TABLE.name: TABLE})
        sub = PlannedSubTopology(0, (), (TABLE.name,), (), (), (), 1, (0,), keeps_state=True, ticks=False)
        plan = PhysicalPlan(application, (sub,), {}, ())
        config = StreamsConfig({"application.id": application, "bootstrap.servers": "memory://none"})
        topics = changelogs_of(topology, plan, config)
        there = {each.name for each in log.topics()}
        for each in topics:
            if each.topic not in there:
                log.create_topic(each.topic, each.partitions, each.config)
        stores = {each.store: each.topic for each in topics if each.store}
        self.log = log
        self.app = ThreadApp(topology, config, plan, stores, topics[-1].topic, str(root / "replicas"), "bench")
        self.replica = TaskReplica.open(self.app, TASK)

    def put(self, numbers: np.ndarray, values: list[str]) -> None:
        state = self.replica.state
        view = open_view(TABLE, state.map(TABLE.name), state.meta)
        keys = Column.of_series(pl.Series([f"key-{n:012d}" for n in numbers]))
        view.put_columns(keys, Column.of_series(pl.Series(values)), np.full(len(numbers), 1, np.int64))
        state.meta["stream_time"] = state.meta.get("stream_time", 0) + 1

    def to_log(self) -> dict[TopicPartition, int]:
        following = {}
        parts = self.replica.changes()
        with self.log.transaction("") as transaction:
            for topic, partition, records in parts:
                transaction.append(topic, partition, records)
        for topic, partition, _ in parts:
            following[TopicPartition(topic, partition)] = self.log.end_offset(topic, partition)
        return following

    def opened(self) -> float:
        """Open it again; return the seconds until it has all."""
        started = time.perf_counter()
        self.replica = TaskReplica.open(self.app, TASK)
        self.replica.restore(self.log, {})
        return time.perf_counter() - started


def fill(task: Task, keys: int, size: int, changes: int) -> None:
    order = np.random.default_rng(1)
    task.replica.restore(task.log, {})
    for change in range(changes):
        shuffled = order.permutation(keys)
        for start in range(0, keys, SIZE):
            numbers = shuffled[start : start + SIZE]
            task.put(numbers, [f"{n}-{change}-".ljust(size, "x") for n in numbers])
            task.replica.commit(task.to_log(), {})


def commits(task: Task, size: int, rounds: int = 300) -> dict[str, float]:
    """Median seconds of `changes` and `commit` of ten keys."""
    dice = np.random.default_rng(2)
    seconds: dict[str, list[float]] = {"changes_s": [], "commit_s": []}
    following = {TopicPartition(topic, 0): 10**9 for topic in (*task.app.changelogs.values(), task.app.numbers_topic)}
    for _ in range(rounds):
        task.put(dice.integers(0, 1000, 10), ["y" * size] * 10)
        started = time.perf_counter()
        task.replica.changes()
        middle = time.perf_counter()
        task.replica.commit(following, {})
        seconds["changes_s"].append(middle - started)
        seconds["commit_s"].append(time.perf_counter() - middle)
    return {name: statistics.median(each) for name, each in seconds.items()}


def measure(root: Path, log: TopicLog, given: argparse.Namespace) -> dict[str, Any]:
    task = Task(root, log)
    fill(task, given.keys, given.value_bytes, given.changes)
    task.replica.close()
    shutil.rmtree(root / "replicas")
    before = time.process_time()
    with machine.TreeWatch(os.getpid(), 0.4) as watch:
        whole = task.opened()
    cpu = time.process_time() - before
    results: dict[str, Any] = {"whole_s": whole, "whole_cpu_s": cpu, "peak_bytes": watch.peak_bytes}
    count = len(task.replica.state.map(TABLE.name))
    if count != given.keys:
        raise SystemExit(f"{count} keys came back of {given.keys}")
    task.replica.close()
    results["current_s"] = task.opened()
    task.put(np.arange(SIZE), ["z" * given.value_bytes] * SIZE)
    task.to_log()
    task.replica.close()
    results["behind_s"] = task.opened()
    results["commit"] = commits(task, given.value_bytes)
    task.replica.close()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--changes", type=int, default=1, help="how often each key changes")
    parser.add_argument("--log", default="", help="where the changelog is")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="penstock-restore-"))
    facts = machine.facts("bench/restore_thread.py")
    try:
        with open_log(given.log or f"sqlite:///{root / 'log.db'}") as log:
            results = measure(root, log, given)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    machine.show(facts | {"results": results}, given.json)


if __name__ == "__main__":
    main()
