#!/usr/bin/env python3
"""Rounds of faults against three workers: connect_soak.py [--rounds N] [--log kafka|embedded] [--seed N] [--fault NAME] [--json FILE].

Each round raises the number of records that a source makes and changes the number of its tasks, so that its partitions
move; a sink writes them to a file. In the middle a worker or a task is killed or stopped. At the end of a round each
record is in the topic exactly once, and in the file at least once. The run ends in ``N rounds, nothing lost or doubled``.
"""

import argparse
import contextlib
import json
import os
import platform
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))

from brokers import running_broker  # noqa: E402
from connect_group import SESSION_MS, GroupWorker, committed_values, eventually  # noqa: E402
from counted_connectors import PARTITIONS  # noqa: E402

FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
TOPIC = "counted"
ROUND_S = 180
FAULTS = ("kill-worker", "stop-worker", "kill-task", "stop-task", "leave")


class Soak:
    """Some workers, a source and a sink.

    Args:
        folder: Where everything is.
        url: The topics' log.
        choice: Chooses faults and times.
        step: Records of each partition that a round adds.
        workers: The number of workers.
    """

    connectors = ("source", "sink")

    def __init__(self, folder, url, choice, step=150, workers=3):
        self.folder, self.url, self.choice, self.step = folder, url, choice, step
        self.workers = [GroupWorker(folder, url) for _ in range(workers)]
        self.records = 0
        self.out = folder / "out.txt"

    def __enter__(self):
        try:
            for worker in self.workers:
                worker.start()
            for worker in self.workers:
                eventually(lambda worker=worker: worker.ask("GET", "/health")[0] == 200, 90, f"{worker.id} is ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception):
        for worker in self.workers:
            worker.end()

    def configure(self, tasks):
        """Let the source make more records with so many tasks, and the sink write them."""
        source = {
            "connector.class": "CountedConnector", "tasks.max": str(tasks), "topic": TOPIC, "records": str(self.records),
            "topic.creation.default.partitions": "3", "topic.creation.default.replication.factor": "1",
        }  # fmt: skip
        sink = {"connector.class": FILE_SINK, "tasks.max": "2", "topics": TOPIC, "file": str(self.out)}
        self.put("source", source)
        self.put("sink", sink)

    def put(self, name, config):
        def try_each():
            return any(
                worker.ask("PUT", f"/connectors/{name}/config", config)[0] in (200, 201) for worker in self.workers
            )

        eventually(try_each, 60, f"{name} is configured")

    def round(self, fault):
        """Go through one round; raises AssertionError if a record is lost or doubled."""
        self.records += self.step
        self.configure(self.choice.randint(1, 4))
        time.sleep(self.choice.uniform(0.1, 2.0))
        undo = getattr(self, fault.replace("-", "_"))()
        wanted = {f"{place}-{number}" for place in range(PARTITIONS) for number in range(self.records)}
        eventually(
            lambda: self.heal() or set(committed_values(self.url, TOPIC)) >= wanted, ROUND_S, "all is in the topic"
        )
        undo()
        eventually(lambda: self.heal() or set(self.written()) >= wanted, ROUND_S, "all is in the file")
        doubled = [value for value, count in Counter(committed_values(self.url, TOPIC)).items() if count > 1]
        assert not doubled, f"{len(doubled)} records are there twice: {sorted(doubled)[:10]}"
        return Counter(Counter(self.written()).values())

    def written(self):
        return self.out.read_text().splitlines() if self.out.exists() else []

    def heal(self):
        """What an operator does: start workers that are gone, and tasks that have failed."""
        for worker in self.workers:
            if not worker.is_alive():
                worker.start()
        if self.choice.random() < 0.1:
            for name in self.connectors:
                self.choice.choice(self.workers).ask(
                    "POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true", timeout=3
                )

    # Faults: each returns what is to be done at the end of the round

    def kill_worker(self):
        worker = self.choice.choice(self.workers)
        worker.process.kill()
        worker.process.wait()
        return lambda: None

    def stop_worker(self):
        """A worker hangs for longer than its session, with its tasks or without, and comes back."""
        worker = self.choice.choice(self.workers)
        pids = [worker.process.pid, *(worker.tasks() if self.choice.random() < 0.5 else ())]
        self.stop(pids)
        time.sleep(SESSION_MS / 1000 + 1)
        return lambda: self.resume(pids)

    def kill_task(self):
        self.on_a_task(signal.SIGKILL)
        return lambda: None

    def stop_task(self):
        pids = self.on_a_task(signal.SIGSTOP)
        self.configure(self.choice.randint(1, 4))  # it is to stop, and is killed if it cannot
        time.sleep(2)
        return lambda: self.resume(pids)

    def leave(self):
        worker = self.choice.choice(self.workers)
        worker.end()
        return lambda: None

    def on_a_task(self, number):
        pids = [pid for worker in self.workers for pid in worker.tasks()]
        if not pids:
            return []
        chosen = self.choice.choice(pids)
        with contextlib.suppress(ProcessLookupError):
            os.kill(chosen, number)
        return [chosen]

    def stop(self, pids):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def resume(self, pids):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--log", choices=("kafka", "embedded"), default="kafka")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--fault", choices=FAULTS, help="this one in all rounds")
    parser.add_argument("--json", type=Path, help="write what happened to this file")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    choice = random.Random(seed)
    print(f"seed {seed}")
    began_at, rounds, totals = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), [], {}
    with contextlib.ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="connect-soak-", ignore_cleanup_errors=True))
        )
        url = f"sqlite:///{folder}/log.db"
        if options.log == "kafka":
            url = stack.enter_context(running_broker(folder / "kafka")).settings.bootstrap_servers
        with Soak(folder, url, choice) as soak:
            for number in range(options.rounds):
                fault, began = options.fault or choice.choice(FAULTS), time.monotonic()
                try:
                    written = soak.round(fault)
                except AssertionError:
                    for file in sorted(folder.glob("*.log")):
                        print(f"--- {file.name}\n{file.read_text(errors='replace')[-3000:]}")
                    print(soak.workers[0].ask("GET", "/connectors?expand=status"))
                    raise
                again, seconds = sum(count for times, count in written.items() if times > 1), time.monotonic() - began
                rounds.append((fault, seconds))
                totals = {"records": soak.records * PARTITIONS, "lost": 0, "doubled": 0, "sink_lines_again": again}
                print(f"round {number + 1}: {fault}, {seconds:.0f} s, {again} lines again at the sink", flush=True)
    print(f"{options.rounds} rounds, nothing lost or doubled")
    if options.json:
        options.json.write_text(json.dumps(report(options, seed, began_at, rounds, totals), indent=1) + "\n")


def report(options, seed, began_at, rounds, totals):
    """What a run has shown: rounds and their seconds by fault. The wall clock says little where others work."""
    seconds = {fault: [s for each, s in rounds if each == fault] for fault in FAULTS}
    return {
        "command": f'make soak-connect ARGS="--rounds {options.rounds} --log {options.log} --seed {seed}"',
        "at": began_at,
        "workers": 3,
        "rounds": len(rounds),
        "seconds_of_rounds": round(sum(s for _, s in rounds)),
        "machine": {"cpus": os.cpu_count(), "system": platform.system(), "python": platform.python_version()},
        "totals": totals,
        "faults": {
            fault: {"rounds": len(found), "median_s": round(median(found)), "longest_s": round(max(found))}
            for fault, found in seconds.items()
            if found
        },
    }


if __name__ == "__main__":
    main()
