"""The application as a process, and all that is done to it and to its broker."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from penstock.broker.process import Broker
from soak_app import APPLICATION
from soak_world import wait_until_it_answers

APP = Path(__file__).with_name("soak_app.py")
MASTER = "local-cluster[2,1,1024]"
STOP_S = 90
STEPS = 6  # of the exactly-once protocol, see penstock.spark.faults


class App:
    """Starts and stops the application; all its starts write to one log."""

    def __init__(self, bootstrap: str, folder: Path, master: str) -> None:
        self._arguments = [sys.executable, str(APP), bootstrap, str(folder / "state"), master]
        self._log = folder / "app.log"
        self._checkpoint = folder / "state" / APPLICATION / "checkpoint"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, fault: str = "") -> None:
        kept = {name: value for name, value in os.environ.items() if name != "PENSTOCK_FAULT"}
        with self._log.open("a") as log:
            log.write(f"---- start {fault}\n")
            log.flush()
            self._process = subprocess.Popen(
                self._arguments,
                env={**kept, "PENSTOCK_FAULT": fault} if fault else kept,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "start() comes first"
        return self._process

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """The driver alone; JVM, executors and workers find out by themselves."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Cleanly; the exit code."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.end()
            return -1

    def end(self) -> None:
        """All of it at once, at the end of a soak."""
        tree = [psutil.Process(self.process.pid)] if self.is_alive() else []
        for process in [*tree, *self._below()]:
            with suppress(psutil.Error):
                process.kill()
        self.process.wait()

    def executors(self) -> list[psutil.Process]:
        return [p for p in self._below() if "CoarseGrainedExecutorBackend" in _command(p)]

    def workers(self) -> list[psutil.Process]:
        """The processes that run tasks: forks of a daemon that never runs one itself."""
        daemons = {p.pid for p in self._below() if "pyspark.daemon" in _command(p)}
        return [p for p in self._below() if "pyspark.daemon" in _command(p) and _parent(p) in daemons]

    def _below(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.Error:
            return []

    def newest_batch(self) -> int:
        """The last batch that Spark has committed; -1 for none."""
        commits = self._checkpoint / "spark" / "commits"
        return max((int(path.name) for path in commits.glob("[0-9]*") if path.name.isdecimal()), default=-1)

    def said_last(self) -> str:
        """The end of its log, from the start that went wrong."""
        return "\n".join(self._log.read_text(errors="replace").rpartition("---- start")[2].splitlines()[-15:])


def _command(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _parent(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return process.ppid()
    return -1


class Faults:
    """Each method does one thing and says what it has done; the application must go on by itself after all but the first
    three, which start it again.
    """

    def __init__(self, app: App, broker: Broker, chance: random.Random) -> None:
        self._app = app
        self._broker = broker
        self._chance = chance

    @staticmethod
    def names() -> list[str]:
        return [
            "driver_killed", "driver_killed_at_step", "stopped_and_started", "executor_killed", "worker_killed",
            "worker_stalled", "broker_restarted", "broker_killed",
        ]  # fmt: skip

    def do(self, name: str) -> str:
        fault: Callable[[], str] = getattr(self, name)
        return fault()

    def driver_killed(self) -> str:
        self._app.kill()
        self._app.start()
        return "killed the driver (-9) and started it again"

    def driver_killed_at_step(self) -> str:
        """Everything of the application dies at one step of the protocol, then it starts again."""
        step, ahead = self._chance.randrange(STEPS), self._chance.randrange(1, 6)
        self._app.stop()
        batch = self._app.newest_batch() + ahead
        self._app.start(f"{step}:{batch}:{'driver' if step == STEPS - 1 else '*'}")
        end = time.monotonic() + STOP_S
        while self._app.is_alive() and time.monotonic() < end:
            time.sleep(0.05)
        reached = not self._app.is_alive()
        if not reached:
            self._app.kill()
        self._app.start()
        return f"killed it at step {step} of batch {batch}" + ("" if reached else " (not reached, killed the driver)")

    def stopped_and_started(self) -> str:
        code = self._app.stop()
        self._app.start()
        return f"stopped it cleanly (exit code {code}) and started it again"

    def executor_killed(self) -> str:
        found = self._app.executors()
        if not found:
            return "no executor to kill"
        victim = self._chance.choice(found)
        victim.kill()
        return f"killed executor process {victim.pid} of {len(found)}"

    def worker_killed(self) -> str:
        found = self._app.workers()
        if not found:
            return "no worker to kill"
        victim = self._chance.choice(found)
        victim.kill()
        return f"killed worker process {victim.pid} of {len(found)}"

    def worker_stalled(self) -> str:
        """Like a long pause of the machine: Spark runs the task a second time, and the first goes on in the middle."""
        found = self._app.workers()
        if not found:
            return "no worker to stall"
        victim = self._chance.choice(found)
        seconds = self._chance.uniform(2, 6)
        victim.suspend()
        time.sleep(seconds)
        victim.resume()
        return f"stalled worker process {victim.pid} of {len(found)} for {seconds:.1f} s"

    def broker_restarted(self) -> str:
        return self._restart(kill=False)

    def broker_killed(self) -> str:
        return self._restart(kill=True)

    def _restart(self, *, kill: bool) -> str:
        away = self._chance.uniform(0, 3)
        self._broker.stop(kill=kill)
        time.sleep(away)
        self._broker.start()
        wait_until_it_answers(self._broker.settings.bootstrap_servers)
        return f"{'killed' if kill else 'stopped'} the broker, away for {away:.1f} s and the time to start"
