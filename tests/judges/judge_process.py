"""A judged application as a process, and what is done to it while it works."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from judge_topologies import JudgedApplication
from judge_world import World, wait_until

__all__ = ["FAULTS", "KILLS", "Application", "Faults", "JudgedProcessError"]

HERE = Path(__file__).parent
STOP_S = 120.0
STATE_S = 60.0
SESSION_MS = 6_000
PAUSED_S = 9.0  # longer than the session and the lease
REFUSED = "runs already"
LAST_LINES = 15


class JudgedProcessError(Exception):
    """The application did not do what it has to."""


class Application:
    """Starts, stops and kills the application; all its starts write to one log.

    Args:
        name: Its name among ``APPLICATIONS``.
        mode: ``processing.mode``.
        commit_ms: The time between two commits: a process that is killed leaves an open transaction.
    """

    def __init__(self, name: str, judged: JudgedApplication, world: World, mode: str, *, commit_ms: int = 500) -> None:
        self.judged = judged
        self._name = name
        self._world = world
        self._log = world.folder / "application.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._known: dict[int, psutil.Process] = {}
        self.settings = {
            "bootstrap.servers": world.bootstrap,
            "state.dir": str(world.folder / "state"),
            "processing.mode": mode,
            **({"group.protocol": "classic"} if mode == "continuous" else {}),  # a start beside a paused one is refused
            "processing.guarantee": "exactly_once_v2",
            "auto.offset.reset": "earliest",
            "replication.factor": len(world.brokers),
            "commit.interval.ms": commit_ms,
            "statestore.cache.max.bytes": 0,
            "session.timeout.ms": SESSION_MS,
            "spark.master": "local[2]",
            "spark.driver.host": "127.0.0.1",
        }

    def __enter__(self) -> Self:
        try:
            self.start_and_wait()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def start(self) -> None:
        paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}
        command = [sys.executable, str(HERE / "judge_app.py"), self._name, json.dumps(self.settings)]
        with self._log.open("ab") as log:
            log.write(f"---- start at {time.strftime('%H:%M:%S')}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
            )

    def start_and_wait(self) -> None:
        """Start it, and wait until it runs: until then, workers of an earlier start may go on for a moment."""
        self.start()

        def runs() -> bool:
            self.check_alive()
            return "STATE RUNNING" in self._said()

        wait_until(runs, "the application runs")

    def _said(self) -> str:
        """What it has said since its newest start."""
        return self._log.read_text(errors="replace").rpartition("---- start")[2]

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "call start() first"
        return self._process

    def said_last(self) -> str:
        """The end of its log, from its newest start."""
        return "\n".join(self._said().splitlines()[-LAST_LINES:])

    def processes(self) -> list[psutil.Process]:
        """It, and all that it has started."""
        found: list[psutil.Process] = []
        with suppress(psutil.Error):
            driver = psutil.Process(self.process.pid)
            found = [driver, *driver.children(recursive=True)]
        self._known |= {each.pid: each for each in found}
        return found

    def workers(self) -> list[psutil.Process]:
        """The Python processes that run its tasks: forks of a daemon that never runs one itself."""
        daemons = [each for each in self.processes() if "pyspark.worker" in command_of(each)]
        above = {each.pid for each in daemons}
        return [each for each in daemons if parent_of(each) in above]

    def kill(self) -> None:
        """Kill the driver with -9; JVM and workers find out by themselves."""
        self.processes()
        self.process.kill()
        self._over()

    def stop(self) -> int:
        """Ask it to end; return its exit code."""
        self.processes()
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        self._over()
        return self.process.returncode

    def end(self) -> None:
        """Kill all that is left of it and of its earlier starts."""
        if self._process is None:
            return
        self.processes()
        for each in self._known.values():
            with suppress(psutil.Error):
                each.kill()
        self._over()

    def abandon(self) -> subprocess.Popen[bytes]:
        """Leave the process that runs to the caller; the next start is another one."""
        process = self.process
        self.processes()
        self._process = None
        return process

    def _over(self) -> None:
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired as late:
            raise JudgedProcessError(f"the application did not end within {STOP_S:.0f} s: {self.said_last()}") from late
        if self.process.stdin is not None:
            self.process.stdin.close()

    def check_alive(self) -> None:
        if (code := self.process.poll()) is not None:
            raise JudgedProcessError(f"the application ended by itself with {code}: {self.said_last()}")

    def state(self, store: str) -> dict[str, str]:
        """The contents of a store, by an interactive query."""
        answer = self._world.folder / f"state-{store}.json"
        answer.unlink(missing_ok=True)
        assert self.process.stdin is not None
        self.process.stdin.write(f"state {store} {answer}\n".encode())
        self.process.stdin.flush()
        wait_until(answer.exists, f"the contents of the store {store}", STATE_S)
        return dict(json.loads(answer.read_text()))


KILLS = ("killed", "bounced")
FAULTS = (
    "killed", "bounced", "worker_killed", "paused", "replaced_while_paused", "broker_restarted", "broker_killed",
)  # fmt: skip


class Faults:
    """Does faults to an application in an order by a seed, each once it works again after the one before.

    Attributes:
        story: What was done, and how long it took until the application had committed more.
    """

    def __init__(self, app: Application, world: World, chance: random.Random, say: Callable[[str], None]) -> None:
        self.story: list[str] = []
        self._app = app
        self._world = world
        self._chance = chance
        self._say = say

    def plan(self, names: Sequence[str], count: int) -> list[str]:
        """Each equally often."""
        plan: list[str] = []
        while len(plan) < count:
            plan += self._chance.sample(names, len(names))
        return plan[:count]

    def do_all(self, names: Sequence[str], count: int, until: Callable[[], bool] = lambda: False) -> None:
        """Do that many faults, fewer if something happens before.

        Raises:
            JudgedProcessError: The application ended, or does not work again.
        """
        self.wait_for_progress("after the start")
        for name in self.plan(names, count):
            if until():
                self._tell("the input has ended: no more faults")
                return
            time.sleep(self._chance.uniform(0, 3))
            began = time.monotonic()
            done = getattr(self, name)()
            self.wait_for_progress(done)
            self._tell(f"{done}; it works again after {time.monotonic() - began:.1f} s")

    def wait_for_progress(self, since: str) -> None:
        """Wait until more input is committed than now, or all of it."""
        group, inputs = self._app.judged.name, self._app.judged.inputs
        before: list[int] = []

        def committed() -> int:
            self._app.check_alive()
            return sum(self._world.committed(group, inputs).values())

        def went_on() -> bool:
            if not before:
                before.append(committed())
            return committed() > before[0] or (before[0] > 0 and self._world.has_read_all(group, inputs))

        try:
            wait_until(went_on, f"{since}: no more input is committed")
        except TimeoutError as late:
            raise JudgedProcessError(f"{late}: {self._app.said_last()}") from late

    def _tell(self, text: str) -> None:
        self.story.append(text)
        self._say(text)

    def killed(self) -> str:
        self._app.kill()
        self._app.start_and_wait()
        return "kill -9 of the application, and a new start"

    def bounced(self) -> str:
        code = self._app.stop()
        if code != 0:
            raise JudgedProcessError(f"the application ended with {code} when it was stopped: {self._app.said_last()}")
        self._app.start_and_wait()
        return "a stop and a new start"

    def worker_killed(self) -> str:
        workers = self._app.workers()
        if not workers:
            return "no worker to kill"
        victim = self._chance.choice(workers)
        with suppress(psutil.Error):
            victim.kill()
        return f"kill -9 of one of {len(workers)} workers"

    def paused(self) -> str:
        found = self._suspend()
        time.sleep(PAUSED_S)
        resume(found)
        return f"a pause of all {len(found)} processes for {PAUSED_S:.0f} s"

    def replaced_while_paused(self) -> str:
        """Another process takes over from a paused one, which then goes on and has to find out."""
        found = self._suspend()
        paused = self._app.abandon()
        try:
            self._start_until_accepted()
        finally:
            resume(found)
        paused.wait(STOP_S)
        if paused.stdin is not None:
            paused.stdin.close()
        return f"a new start beside a paused application, which ended with {paused.returncode} when it went on"

    def _start_until_accepted(self) -> None:
        deadline = time.monotonic() + STOP_S
        while True:
            self._app.start()
            try:
                self.wait_for_progress("beside a paused application")
            except JudgedProcessError:
                if (
                    self._app.process.poll() is None
                    or REFUSED not in self._app.said_last()
                    or time.monotonic() > deadline
                ):
                    raise
            else:
                return

    def _suspend(self) -> list[psutil.Process]:
        found = self._app.processes()
        for each in found:
            with suppress(psutil.Error):
                each.suspend()
        return found

    def broker_restarted(self) -> str:
        return self._broker("a stop and start of a broker", kill=False)

    def broker_killed(self) -> str:
        return self._broker("kill -9 of a broker, and a new start", kill=True)

    def _broker(self, done: str, *, kill: bool) -> str:
        broker = self._chance.choice(self._world.brokers)
        broker.stop(kill=kill)
        time.sleep(self._chance.uniform(0, 3))
        broker.start()
        self._world.wait_until_up()
        return done


def resume(processes: Sequence[psutil.Process]) -> None:
    """Let processes go on, those below first."""
    for each in reversed(processes):
        with suppress(psutil.Error):
            each.resume()


def command_of(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def parent_of(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return process.ppid()
    return -1
