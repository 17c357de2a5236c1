"""All that is done to the application and to its broker."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from penstock.tools.broker.process import Broker
from soak_app import SLOW_S
from soak_power import is_possible
from soak_process import App
from soak_world import wait_until_it_answers

REACH_S = 60
STEPS = 5  # of the exactly-once protocol that tasks come to, see penstock.engines.spark.fault_injection


class Faults:
    """Each method does one thing and says what it has done. The application must go on by itself, also where the
    fault has ended and started it.
    """

    def __init__(self, app: App, broker: Broker, chance: random.Random) -> None:
        self._app = app
        self._broker = broker
        self._chance = chance

    @staticmethod
    def names() -> list[str]:
        found = [
            "driver_killed", "driver_killed_at_step", "stopped_and_started", "executor_killed", "executor_killed_late",
            "worker_killed", "task_slowed", "worker_stalled", "broker_restarted", "broker_killed",
        ]  # fmt: skip
        return [*found, "power_cut"] if is_possible() else found

    def mend(self) -> None:
        """Brings back what is still away, once outputs have come without it."""

    def do(self, name: str) -> str:
        fault: Callable[[], str] = getattr(self, name)
        return fault()

    def driver_killed(self) -> str:
        self._app.kill()
        self._app.start()
        return "killed the driver (-9) and started it again"

    def driver_killed_at_step(self) -> str:
        """Driver, one executor and its worker die when the next task comes to a step of the protocol."""
        step = self._chance.randrange(STEPS)
        reached = self._dies_at(f"{step}:*:*")
        self._app.start()
        return f"killed it at step {step}" + ("" if reached else " (not reached, killed the driver)")

    def _dies_at(self, step: str) -> bool:
        new = self._app.step.with_suffix(".new")
        new.write_text(step)
        new.replace(self._app.step)
        try:
            reached = _within(REACH_S, lambda: not self._app.is_alive())
        finally:
            self._app.step.unlink()
        self._app.kill()
        return reached

    def stopped_and_started(self) -> str:
        code = self._app.stop()
        self._app.start()
        return f"stopped it cleanly (exit code {code}) and started it again"

    def power_cut(self) -> str:
        """Of the machine of driver and executors; the broker is another one."""
        emptied, gone = self._app.cut_power(self._chance)
        self._app.start()
        return f"cut the power: of what was not on the disk {emptied} files are empty and {gone} gone; started it again"

    def executor_killed(self) -> str:
        found = self._app.executors()
        if not found:
            return "no executor to kill"
        victim = self._chance.choice(found)
        victim.kill()
        return f"killed executor process {victim.pid} of {len(found)}"

    def executor_killed_late(self) -> str:
        """In the middle of the last stage, when its other task is done and Spark cannot take that back."""
        with self._slow_task(stage=1) as asked:
            worker = _taken_by(asked)
            time.sleep(1)
            executor = None if worker is None else self._app.executor_of(worker)
            if executor is None:
                return "no task of the last stage to kill an executor at"
            executor.kill()
        return f"killed executor process {executor.pid} with a task of the last stage"

    def worker_killed(self) -> str:
        victim, count = self._busiest_worker()
        if victim is None:
            return "no worker to kill"
        victim.kill()
        return f"killed worker process {victim.pid} of {count}"

    def task_slowed(self) -> str:
        """Waits in the middle of a task, long enough for Spark to run it a second time beside."""
        stage = self._chance.randrange(2)
        with self._slow_task(stage) as asked:
            worker = _taken_by(asked)
            if worker is None:
                return f"no task of stage {stage} to slow down"
            again = _within(SLOW_S + 2, asked.with_suffix(".again").exists)
        return f"slowed a task of stage {stage} in process {worker}" + (", Spark ran it a second time" if again else "")

    @contextmanager
    def _slow_task(self, stage: int) -> Iterator[Path]:
        asked = self._app.folder / f"slow-{stage}"
        notes = [asked.with_suffix(".taken"), asked.with_suffix(".again")]
        for path in notes:
            path.unlink(missing_ok=True)
        asked.touch()
        try:
            yield asked
        finally:
            for path in (asked, *notes):
                path.unlink(missing_ok=True)

    def worker_stalled(self) -> str:
        """Like a long pause of the machine: Spark runs the task a second time, and the first goes on in the middle."""
        victim, count = self._busiest_worker()
        if victim is None:
            return "no worker to stall"
        seconds = self._chance.uniform(2, 6)
        with suppress(psutil.Error):
            victim.suspend()
            try:
                time.sleep(seconds)
            finally:
                victim.resume()
        return f"stalled worker process {victim.pid} of {count} for {seconds:.1f} s"

    def _busiest_worker(self) -> tuple[psutil.Process | None, int]:
        """The one that works most at the moment: an idle one would not be missed."""
        found = self._app.workers()
        before = [_cpu_s(each) for each in found]
        time.sleep(0.3)
        spent = [_cpu_s(each) - first for each, first in zip(found, before, strict=True)]
        return (found[spent.index(max(spent))] if found else None), len(found)

    def broker_restarted(self) -> str:
        return self._restart(kill=False)

    def broker_killed(self) -> str:
        return self._restart(kill=True)

    def _restart(self, *, kill: bool) -> str:
        away, began = self._chance.uniform(0, 3), time.monotonic()
        self._broker.stop(kill=kill)
        stopped = time.monotonic() - began
        time.sleep(away)
        self._broker.start()
        wait_until_it_answers(self._broker.settings.bootstrap_servers)
        total = time.monotonic() - began
        return f"{'killed' if kill else 'stopped'} the broker in {stopped:.1f} s, back after {total:.1f} s"


def _taken_by(asked: Path) -> int | None:
    """The process that has found itself asked to be slow."""
    taken = asked.with_suffix(".taken")
    _within(REACH_S, lambda: taken.exists() and bool(taken.read_text()))
    return int(taken.read_text()) if taken.exists() else None


def _within(seconds: float, done: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _cpu_s(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        used = process.cpu_times()
        return float(used.user + used.system)
    return 0.0
