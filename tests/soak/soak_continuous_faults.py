"""What is done to an application in continuous mode: its processes die or pause at each step of a stream thread."""

from __future__ import annotations

import random
import shutil
import time
from contextlib import suppress

import psutil

from penstock.tools.broker.process import Broker
from soak_app import SESSION_S
from soak_faults import REACH_S, Faults, _within
from soak_process import App  # which finds the next one

from fault_sites import BOTH, DRIVER, STARTING, Fault  # isort: skip


class ContinuousFaults(Faults):
    """Faults of continuous mode; ``sites`` are places in the code where a process kills or stops itself."""

    def __init__(self, app: App, broker: Broker, chance: random.Random) -> None:
        super().__init__(app, broker, chance)
        assert app.sites is not None
        self._sites: Fault = app.sites
        self._zombies: list[psutil.Process] = []

    @staticmethod
    def names() -> list[str]:
        return [
            "driver_killed", "driver_killed_at_step", "stopped_and_started", "executor_killed", "executor_paused",
            "worker_killed", "worker_killed_at_step", "worker_killed_as_it_starts", "worker_paused_at_step",
            "state_lost", "broker_restarted", "broker_killed",
        ]  # fmt: skip

    def mend(self) -> None:
        """Let paused processes go on, now that others have their tasks."""
        while self._zombies:
            with suppress(psutil.Error):
                self._zombies.pop().resume()
        self._sites.disarm()

    def driver_killed_at_step(self) -> str:
        """It dies as it prepares an epoch, which the end of a worker makes it do."""
        site = self._chance.choice(list(DRIVER))
        self._sites.arm(site)
        self._kill_a_worker()
        reached = _within(REACH_S, lambda: not self._app.is_alive())
        self._sites.disarm()
        self._app.kill()
        self._app.start()
        return f"killed the driver {site}" + ("" if reached else " (not reached, killed it)")

    def executor_paused(self) -> str:
        """Executor and workers, for longer than their session; they go on when others have their tasks."""
        found = self._app.executors()
        if not found:
            return "no executor to pause"
        victim = self._chance.choice(found)
        self._zombies = [victim, *victim.children(recursive=True)]
        for each in self._zombies:
            with suppress(psutil.Error):
                each.suspend()
        return f"paused executor process {victim.pid} and {len(self._zombies) - 1} below until the others went on"

    def worker_killed_at_step(self) -> str:
        return self._at(self._chance.choice(list(BOTH)), "kill")

    def worker_killed_as_it_starts(self) -> str:
        site = self._chance.choice(list(STARTING))
        self._forget_state()
        self._sites.arm(site)
        self._kill_a_worker()
        return f"killed a worker and its successor {site}" + self._reached(site)

    def worker_paused_at_step(self) -> str:
        site = self._chance.choice(list(BOTH))
        done = self._at(site, "stop")
        if (pid := self._sites.taken_by) is not None:
            with suppress(psutil.Error):
                self._zombies = [psutil.Process(pid)]
        time.sleep(SESSION_S)
        return done

    def state_lost(self) -> str:
        """All files of the machine, under a running application; the next epoch restores from the log."""
        self._forget_state()
        return f"deleted the state, and {self._kill_a_worker()}"

    def _at(self, site: str, action: str) -> str:
        self._sites.arm(site, action)
        return f"{action} a worker: {site}" + self._reached(site)

    def _reached(self, site: str) -> str:
        reached = _within(REACH_S, lambda: self._sites.taken_by is not None)
        self._sites.disarm()
        return "" if reached else f" ({site} was not reached)"

    def _kill_a_worker(self) -> str:
        found = self._app.workers()
        if not found:
            return "no worker to kill"
        victim = self._chance.choice(found)
        with suppress(psutil.Error):
            victim.kill()
        return f"killed worker process {victim.pid} of {len(found)}"

    def _forget_state(self) -> None:
        shutil.rmtree(self._app.folder / "state", ignore_errors=True)
