"""The gap that a reader of the outputs sees when instances of an application come and go.

python bench/instances.py [--rounds 2] [--only embedded kafka java] [--events join leave] [--json bench/results/instances.json]

1,000 records a second go through a sum by key (workload w3 of the peers), exactly once, a commit every 100 ms, four tasks.
A reader of committed outputs notes when each arrives. An event happens once each partition's outputs have arrived within the
last second. Its gap is the longest time between two arrivals of one partition's outputs, and of any, from the last ones
before the event to some seconds after the group has settled. Series: Penstock
over an embedded log (``embedded``), Penstock over a broker of this machine (``kafka``), and Kafka Streams in Java over the same
broker (``java``), all with group.protocol=streams and the defaults of their heartbeats. Events:

none     nothing happens: what the machine does by itself
join     a second instance is started, which takes half of the tasks
leave    it is ended in order
thread   the process of a thread of the first instance is killed, its driver is alive (Penstock alone has such)
kill     a second instance is killed whole (-9); brokers wait for its session, which is 6 s here
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import Any

import psutil

import machine
from epoch_gap import PARTITIONS, Reader, Sender, gaps, now
from peer_setup import ALL, PEERS, NotInstalledError
from penstock.log.open import open_log
from penstock.tools.broker.broker_settings import BrokerSettings, free_port
from penstock.tools.broker.process import Broker

APPLICATION = "instances"
SESSION_MS = 6_000
BEFORE_S, AFTER_S, RECENT_S = 2.0, 4.0, 1.0
PATIENCE_S = 180.0
SERIES = {"embedded": "penstock", "kafka": "penstock", "java": "kstreams"}
EVENTS = ("none", "join", "leave", "thread", "kill")
SETTINGS = (
    '{"group.protocol": "streams", "commit.interval.ms": 100, "statestore.cache.max.bytes": 0, "num.stream.threads": 2}'
)


class Instances:
    """The instances of one series, and their group."""

    def __init__(self, url: str, folder: Path, series: str) -> None:
        self.url, self.folder, self.is_java = url, folder, series == "java"
        self._peer = ALL[SERIES[series]]
        self._installed = self._peer.install()
        self._log = open_log(url)
        self._group = self._log.streams_coordinator()  # type: ignore[attr-defined] # both logs have one
        self._group.set_group_settings(APPLICATION, {"streams.session.timeout.ms": str(SESSION_MS)})
        self._log.create_topic("in", PARTITIONS)
        self._log.create_topic("out", 1)
        self._started = 0
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        """Start one more instance; those of Penstock have one state.dir on a machine, those in Java one each."""
        self._started += 1
        own = self.folder / f"state-{self._started if self.is_java else 0}"
        own.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ, "BOOTSTRAP": self.url, "APP_ID": APPLICATION, "WORKLOAD": "w3", "TOPIC_SUMS": "in",
            "TOPIC_OUT": "out", "GUARANTEE": "eos", "TAIL": "1", "EXPECT_PROCESSED": "0", "STATE_DIR": str(own),
            "GROUP_PROTOCOL": "streams", "COMMIT_MS": "100", "CACHE_BYTES": "0", "PENSTOCK_CONF": SETTINGS,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(PEERS), os.environ.get("PYTHONPATH")])),
        }  # fmt: skip
        command = self._peer.command(self._installed, 0, 0, own)
        with (self.folder / f"instance-{self._started}.log").open("w") as errors:
            made = subprocess.Popen(
                command, env=environment, cwd=own, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
            )
        self.running.append(made)
        return made

    def wait(self, instances: int) -> None:
        """Wait until so many instances share all tasks, and nothing moves."""
        end = now() + PATIENCE_S
        while self._shares() != instances:
            if now() > end or any(each.poll() is not None for each in self.running):
                raise SystemExit(f"{instances} instances do not share the tasks; the logs are in {self.folder}")
            time.sleep(0.05)

    def _shares(self) -> int:
        described = self._group.describe(APPLICATION)
        if described is None or described.state != "Stable":
            return 0
        busy = {each.process for each in described.members if each.assignment.active}
        tasks = sum(len(each.assignment.active) for each in described.members)
        return len(busy) if tasks == PARTITIONS else 0

    def members(self) -> set[str]:
        described = self._group.describe(APPLICATION)
        return set() if described is None else {each.member for each in described.members}

    def end(self, instance: subprocess.Popen[bytes]) -> None:
        self.running.remove(instance)
        instance.send_signal(signal.SIGTERM)
        instance.wait(PATIENCE_S)

    def kill(self, instance: subprocess.Popen[bytes]) -> None:
        self.running.remove(instance)
        os.killpg(instance.pid, signal.SIGKILL)
        instance.wait(PATIENCE_S)

    def kill_thread(self, instance: subprocess.Popen[bytes]) -> float:
        """Kill a Python worker that is a member; return when."""
        before = self.members()
        for worker in psutil.Process(instance.pid).children(recursive=True):
            began = now()
            with suppress(psutil.Error):  # it has ended by itself
                if "pyspark.worker" not in " ".join(worker.cmdline()) or worker.children():
                    continue
                worker.kill()  # one that Spark keeps idle is no member
            while now() < began + 5:
                if before - self.members():
                    return began
                time.sleep(0.02)
        raise SystemExit("no process of a thread was found")

    def close(self) -> None:
        for each in [*self.running]:
            self.kill(each)
        self._group.close()
        self._log.close()


def series(name: str, url: str, folder: Path, rounds: int, events: list[str]) -> dict[str, Any]:
    """Measure events of a series."""
    found: dict[str, list[dict[str, float]]] = {}
    with ExitStack() as stack:
        group = Instances(url, folder, name)
        stack.callback(group.close)
        sender, reader = Sender(url), Reader(url)
        first = group.start()
        sender.start()
        reader.start()
        stack.callback(sender.done.set)
        stack.callback(reader.done.set)
        group.wait(1)

        def until_all_arrive() -> None:
            """Wait until outputs of all partitions come: who has a task may restore it still."""
            end = now() + PATIENCE_S
            while len({key for at, key in reader.arrivals[-10_000:] if at > now() - RECENT_S}) < PARTITIONS:
                if now() > end:
                    raise SystemExit(f"not all outputs come; the logs are in {folder}")
                time.sleep(0.02)

        def measure(event: str, cause: Callable[[], float | None], instances: int) -> None:
            time.sleep(BEFORE_S)
            until_all_arrive()
            began = now()
            began = cause() or began
            group.wait(instances)
            time.sleep(AFTER_S)
            found.setdefault(event, []).append(gaps(reader.arrivals, began, now()))
            print(name, event, found[event][-1], flush=True)

        def joined() -> None:
            group.start()

        for _ in range(rounds):
            if "none" in events:
                measure("none", lambda: None, 1)
            if {"join", "leave"} & {*events}:
                measure("join", joined, 2)
                measure("leave", lambda: group.end(group.running[-1]), 1)
            if "thread" in events and not group.is_java:
                measure("thread", lambda: group.kill_thread(first), 1)
            if "kill" in events:
                group.start()
                group.wait(2)
                measure("kill", lambda: group.kill(group.running[-1]), 1)
        sender.done.set()
        reader.done.set()
        sender.join()
        reader.join()
    return {event: _summary(runs) for event, runs in found.items()}


def _summary(runs: list[dict[str, float]]) -> dict[str, Any]:
    return {
        "any_partition_ms": median(each["longest_ms"] for each in runs),
        "worst_partition_ms": median(each["partition_ms"] for each in runs),
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=[*SERIES], default=[*SERIES])
    parser.add_argument("--events", nargs="+", choices=EVENTS, default=[*EVENTS])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # brokers and instances end with it
    facts = machine.facts("bench/instances.py")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bench-instances-") as made:
        for name in given.only:
            folder = Path(made) / name
            folder.mkdir()
            with ExitStack() as stack:
                url = f"sqlite:///{folder}/log.db"
                if name != "embedded":
                    settings = BrokerSettings(folder / "broker", free_port(), free_port())
                    url = stack.enter_context(Broker(settings)).settings.bootstrap_servers
                try:
                    found[name] = series(name, url, folder, given.rounds, given.events)
                except NotInstalledError as error:
                    print(f"{name}: {error}", flush=True)
            document = {**facts, "session_ms": SESSION_MS, "series": found, **_ratios(found)}
            machine.show(document, given.json)  # each series takes minutes


def _ratios(found: dict[str, Any]) -> dict[str, Any]:
    """Penstock's gaps by those of Kafka Streams, both over a broker in one run."""
    if not {"kafka", "java"} <= found.keys():
        return {}
    ours, theirs = found["kafka"], found["java"]
    ratios = {
        event: round(ours[event]["worst_partition_ms"] / theirs[event]["worst_partition_ms"], 2) for event in theirs
    }
    return {"penstock_to_java": ratios}


if __name__ == "__main__":
    main()
