"""Two executors with folders of their own: one is killed, and its tasks go on at their standbys."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from brokers import running_broker
from eventually import eventually
from harness import environment
from penstock.log.base import TopicLog
from penstock.log.open import open_log

APP = Path(__file__).with_name("standby_app.py")
WAIT_S = 300.0
KEYS = 300


class Running:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.startswith("{"):
                    self.events.append(json.loads(line))

    def newest(self) -> dict[str, Any]:
        return next((each for each in reversed(self.events) if each["event"] == "state"), {"threads": {}})

    def until(self, is_so: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        eventually(lambda: is_so(self.newest()), within_s=WAIT_S, facts=lambda: (self.newest(), self.process.poll()))
        return self.newest()


@contextmanager
def running(root: Path, *settings: str) -> Iterator[Running]:
    """The application, which ends cleanly unless the test has killed it."""
    with (root / "err.txt").open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, str(APP), str(root), *settings],
            cwd=root, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
        try:
            yield Running(process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(WAIT_S) in (0, -signal.SIGKILL)
        finally:
            process.kill()
            process.wait()


def write(log: TopicLog, rounds: range) -> None:
    for partition in range(2):
        keys = [f"{partition}-{n}".encode() for n in range(KEYS)] * len(rounds)
        columns = {
            "timestamp": pa.array([round_ for round_ in rounds for _ in range(KEYS)], pa.int64()),
            "key": pa.array(keys, pa.large_binary()),
            "value": pa.array([b"x"] * len(keys), pa.large_binary()),
        }
        log.append("words", partition, pa.RecordBatch.from_pydict(columns))


def outputs(log: TopicLog) -> Counter[tuple[bytes, int]]:
    records = log.read("out", 0, 0, 10_000_000).records
    values = [int.from_bytes(each, "big", signed=True) for each in records.column("value").to_pylist()]
    return Counter(zip(records.column("key").to_pylist(), values, strict=True))


def expected(rounds: int) -> Counter[tuple[bytes, int]]:
    return Counter((f"{p}-{n}".encode(), r + 1) for p in range(2) for n in range(KEYS) for r in range(rounds))


def are_warm(state: dict[str, Any]) -> bool:
    threads = state["threads"].values()
    return len(threads) == 2 and all(
        each["state"] == "running" and len(each["owned"]) == 1 and list(each["standbys"].values()) == [0]
        for each in threads
    )


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="executors of a local cluster share their folders")
@pytest.mark.parametrize("kind", ["embedded", pytest.param("kafka", marks=pytest.mark.whole)])
def test_a_killed_executors_task_goes_on_at_its_standby_with_only_the_rest_restored(tmp_path: Path, kind: str) -> None:
    """Over Kafka the driver is killed too, and the next one goes on."""
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/log.db"
        if kind == "kafka":
            url = stack.enter_context(running_broker(tmp_path / "broker")).settings.bootstrap_servers
        log = stack.enter_context(open_log(url))
        log.create_topic("words", 2)
        log.create_topic("out", 1)
        write(log, range(5))
        with running(tmp_path, f"bootstrap.servers={url}") as app:
            eventually(lambda: outputs(log) == expected(5), within_s=WAIT_S, facts=app.newest)
            state = app.until(are_warm)
            places = {each["place"] for each in state["threads"].values()}
            assert len(places) == 2
            epoch, victim = state["epoch"], state["threads"]["thread-0"]
            task = victim["owned"][0]
            worker = psutil.Process(victim["pid"])
            executor = next(each for each in worker.parents() if "CoarseGrained" in " ".join(each.cmdline()))
            write(log, range(5, 6))
            os.kill(executor.pid, signal.SIGKILL)
            seen = len(app.events)
            app.until(lambda now: task in now["threads"].get("thread-1", {}).get("owned", ()))
            write(log, range(6, 7))
            eventually(lambda: outputs(log) == expected(7), within_s=WAIT_S, facts=app.newest)
            partition = int(task.split("_")[1])
            restored = [each for each in app.events[seen:] if each["event"] == "restored"]
            # The standby had five rounds and perhaps the sixth: it restores no more than that one.
            assert sum(each["total"] for each in restored if each["partition"] == partition) <= KEYS
            assert app.newest()["epoch"] == epoch  # the other thread went on
            app.until(are_warm)  # with the executor that has replaced the killed one
            if kind == "kafka":
                write(log, range(7, 8))
                app.process.kill()
        if kind == "embedded":
            assert outputs(log) == expected(7)
            return
        with running(tmp_path, f"bootstrap.servers={url}") as app:
            write(log, range(8, 9))
            eventually(lambda: outputs(log) == expected(9), within_s=WAIT_S, facts=app.newest)
        assert outputs(log) == expected(9)
