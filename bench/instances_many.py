"""What instances pay, and whether anything is lost, while an application with many partitions grows and shrinks.

python bench/instances_many.py [--partitions 1000] [--shape map count] [--log embedded kafka] [--json bench/results/instances-many.json]

Three instances of two threads each, exactly once, a commit every 100 ms. They come and go one after the other: two join, one
ends in order, one joins, one is killed (-9), and the last but one ends. After each event a record goes into each
partition; the event is over when all of them have come out. Its figures:

seconds          from the event to the last of these outputs; for one that joins from the time at which its threads are members
cpu_s            CPU of the instance that has used most meanwhile, for each of its threads: driver and Python workers
                 together. Not Spark's JVM, which only waits. ``none`` is the same without an event

At the end each record has to have come out once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

import machine
from penstock import KafkaStreams, Produced, Serdes, StreamsBuilder
from penstock.log.base import TopicLog
from penstock.log.open import open_log
from penstock.tools.broker.broker_settings import BrokerSettings, free_port
from penstock.tools.broker.process import Broker

APPLICATION = "instances-many"
THREADS, OUTPUTS = 2, 4
SESSION_MS = 6_000
PATIENCE_S = 600.0
SETTINGS = {
    "application.id": APPLICATION, "group.protocol": "streams", "commit.interval.ms": 100, "num.stream.threads": THREADS,
    "default.key.serde": "string", "default.value.serde": "string", "statestore.cache.max.bytes": 0,
    "spark.master": f"local[{THREADS}]",
}  # fmt: skip


def run_instance(url: str, state: str, shape: str) -> None:
    """Run an instance until it is stopped. Values are unique, and pass through a count where there is one."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    if shape == "count":
        counts = stream.group_by_key().count()
        counts.to_stream().to("counts", Produced(value_serde=Serdes.text_long()))
    stream.to("out")
    KafkaStreams(builder.build(), {**SETTINGS, "bootstrap.servers": url, "state.dir": state}).run()


class Instance:
    """A running instance, and the CPU that its Python processes have used."""

    def __init__(self, url: str, folder: Path, shape: str, number: int) -> None:
        self._used: dict[int, float] = {}
        command = [sys.executable, __file__, "--instance", url, str(folder / "state"), shape]
        with (folder / f"instance-{number}.log").open("w") as lines:
            self.process = subprocess.Popen(command, stdout=lines, stderr=lines, start_new_session=True)

    def cpu_s(self) -> float:
        """CPU seconds of its Python processes, those that have ended included."""
        with suppress(psutil.Error):
            root = psutil.Process(self.process.pid)
            for each in [root, *root.children(recursive=True)]:
                with suppress(psutil.Error):
                    if each.name() != "java":
                        times = each.cpu_times()
                        self._used[each.pid] = times.user + times.system
        return sum(self._used.values())


class Group:
    """The instances, what is fed to them, and what has come out."""

    def __init__(self, url: str, folder: Path, shape: str, partitions: int) -> None:
        self.url, self.folder, self.shape, self.partitions = url, folder, shape, partitions
        self.log: TopicLog = open_log(url)
        self._coordinator = self.log.streams_coordinator()  # type: ignore[attr-defined] # both logs have one
        self._coordinator.set_group_settings(APPLICATION, {"streams.session.timeout.ms": str(SESSION_MS)})
        self.log.create_topic("in", partitions)
        for name in ("out", "counts"):
            self.log.create_topic(name, OUTPUTS)
        self.instances: list[Instance] = []
        self.fed, self._started = 0, 0
        self.seen: Counter[str] = Counter()
        self._at = [0] * OUTPUTS

    def start(self) -> None:
        self.instances.append(Instance(self.url, self.folder, self.shape, self._started))
        self._started += 1

    def end(self) -> None:
        one = self.instances.pop()
        one.process.send_signal(signal.SIGTERM)
        one.process.wait(PATIENCE_S)

    def kill(self) -> None:
        one = self.instances.pop()
        os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait(PATIENCE_S)

    def described(self) -> tuple[int, bool]:
        """The number of members, and whether they have all tasks between them and nothing moves."""
        described = self._coordinator.describe(APPLICATION)
        if described is None:
            return 0, False
        tasks = sum(len(each.assignment.active) for each in described.members)
        return len(described.members), described.state == "Stable" and tasks == self.partitions

    def await_members(self) -> None:
        self._until(lambda: self.described()[0] >= THREADS * len(self.instances), "not all instances are members")

    def await_shared(self) -> None:
        self._until(lambda: self.described() == (THREADS * len(self.instances), True), "the tasks are not shared")

    def feed_all(self) -> None:
        """Write a record to each partition, and wait until all records have come out."""
        now = int(time.time() * 1000)
        with self.log.transaction("") as transaction:
            for partition in range(self.partitions):
                text = pa.array([f"{self.fed}".encode()], pa.large_binary())
                columns = {"timestamp": pa.array([now]), "key": text, "value": text}
                transaction.append("in", partition, pa.RecordBatch.from_pydict(columns))
                self.fed += 1
        self._until(self._is_through, "outputs are missing")

    def _is_through(self) -> bool:
        for partition in range(OUTPUTS):
            fetched = self.log.read("out", partition, self._at[partition], 100_000)
            self.seen.update(each.decode() for each in fetched.records.column("value").to_pylist())
            self._at[partition] = fetched.next_offset
        return len(self.seen) >= self.fed

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end or any(each.process.poll() is not None for each in self.instances):
                raise SystemExit(f"{what}; the logs are in {self.folder}")
            time.sleep(0.1)

    def close(self) -> None:
        while self.instances:
            self.kill()
        self._coordinator.close()
        self.log.close()


class Meter(threading.Thread):
    """Looks at the CPU of all instances often, so that little of a process that ends is missed."""

    def __init__(self, group: Group) -> None:
        super().__init__(daemon=True)
        self._group, self.done = group, threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.5):
            for each in [*self._group.instances]:
                each.cpu_s()


def measure(shape: str, url: str, folder: Path, partitions: int) -> dict[str, Any]:
    """Let three instances come and go."""
    events: list[dict[str, Any]] = []
    with ExitStack() as stack:
        group = Group(url, folder, shape, partitions)
        stack.callback(group.close)
        meter = Meter(group)
        meter.start()
        stack.callback(meter.done.set)
        group.start()
        group.await_shared()
        group.feed_all()

        def event(name: str, cause: Callable[[], None] = lambda: None) -> None:
            began = time.monotonic()
            before = {each: each.cpu_s() for each in group.instances}
            cause()
            if name == "join":
                group.await_members()
                began = time.monotonic()
                before = {each: each.cpu_s() for each in group.instances}
            group.await_shared()
            group.feed_all()
            used = [(each.cpu_s() - before[each]) / THREADS for each in group.instances]
            row = {
                "event": name, "instances": len(group.instances), "seconds": round(time.monotonic() - began, 2),
                "cpu_s": round(max(used), 2),
            }  # fmt: skip
            events.append(row)
            print(shape, row, flush=True)

        began = time.monotonic()
        event("none")
        event("join", group.start)
        event("join", group.start)
        event("none")
        event("leave", group.end)
        event("join", group.start)
        event("kill", group.kill)
        event("leave", group.end)
        took = time.monotonic() - began
        seen = group.seen
    wrong = {"lost": group.fed - len(seen), "doubled": sum(count - 1 for count in seen.values())}
    return {"partitions": partitions, "seconds": round(took, 1), "records": group.fed, **wrong, "events": events}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--shape", nargs="+", choices=("map", "count"), default=["map", "count"])
    parser.add_argument("--log", nargs="+", choices=("embedded", "kafka"), default=["embedded"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--instance", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.instance:
        run_instance(*given.instance)
        return
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # brokers and instances end with it
    facts = machine.facts("bench/instances_many.py")
    found: dict[str, Any] = {}
    for log in given.log:
        for shape in given.shape:
            with tempfile.TemporaryDirectory(prefix="bench-instances-") as made, ExitStack() as stack:
                folder = Path(made)
                url = f"sqlite:///{folder}/log.db"
                if log == "kafka":
                    settings = BrokerSettings(folder / "broker", free_port(), free_port())
                    url = stack.enter_context(Broker(settings)).settings.bootstrap_servers
                found[f"{shape}, {log}"] = measure(shape, url, folder, given.partitions)
            machine.show({**facts, "session_ms": SESSION_MS, "runs": found}, given.json)
    print(json.dumps({name: {key: run[key] for key in ("lost", "doubled")} for name, run in found.items()}))


if __name__ == "__main__":
    main()
