"""The application of the soak as a process: started, stopped, killed, and asked what it does."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from penstock.state.checkpoint import list_documents
from soak_app import APPLICATION, CONTINUOUS
from soak_cluster import SparkCluster
from soak_places import Place
from soak_power import Power, is_possible

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))  # for what all tests share, when no pytest has added it

from fault_sites import Fault  # noqa: E402

STOP_S = 60
JSTACK_S = 20
LAST_LINES = 15
# Python imports this by itself. SIGUSR1 then writes what all threads of a process do.
TRACED = """
import faulthandler, os, signal
faulthandler.register(signal.SIGUSR1, open(os.environ["PENSTOCK_SOAK_THREADS"], "a"), all_threads=True)
"""


class App:
    """Starts and stops the application on a cluster of its own; all its starts write to one log.

    Attributes:
        folder: Where it keeps what it has.
        cluster: Spark's.
        power: What notes which files are on the disk; None where they are not or nothing can note it.
        step: A file: with a fault in it (see penstock.engines.spark.fault_injection) all of the application dies there.
        sites: The places at which processes of continuous mode die or stop; None in micro-batches.
    """

    def __init__(self, place: Place, folder: Path, *, continuous: bool = False) -> None:
        self.folder = folder
        self.step = folder / "step"
        self._place = place
        self._log = folder / "app.log"
        self._threads = folder / "threads.log"
        self._checkpoint = place.checkpoint or str(folder / "state" / APPLICATION / "checkpoint")
        self._process: subprocess.Popen[bytes] | None = None
        # Stream threads need no file after a power cut: their replicas are not used across a boot of the machine.
        self.power = Power(folder) if is_possible() and not place.checkpoint and not continuous else None
        traced = folder / "traced"
        traced.mkdir(exist_ok=True)
        (traced / "sitecustomize.py").write_text(TRACED)
        paths = [str(traced), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._environment = {
            **os.environ,
            **place.environment,
            **(self.power.environment if self.power is not None else {}),
            "PENSTOCK_FAULT": f"@{self.step}",
            "PENSTOCK_SOAK_THREADS": str(self._threads),
            "PYTHONPATH": os.pathsep.join(paths),
            "PYSPARK_PYTHON": sys.executable,
        }
        self.sites = Fault(folder) if continuous else None
        if self.sites is not None:
            self._environment = {**self.sites.environment(self._environment), CONTINUOUS: "1"}
        self.cluster = SparkCluster(folder / "spark", self._environment)

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self.cluster.__exit__(kind, error, trace)

    def start(self) -> None:
        place, script = self._place, str(HERE / "soak_app.py")
        arguments = [sys.executable, script, place.bootstrap, str(self.folder), self.cluster.url, place.checkpoint]
        with self._log.open("a") as log:
            log.write(f"---- start at {time.strftime('%H:%M:%S')}\n")
            log.flush()
            self._process = subprocess.Popen(
                arguments, env=self._environment, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "call start() first"
        return self._process

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """The driver alone; JVM, executors and workers find out by themselves."""
        self.process.kill()
        self._over()

    def cut_power(self, chance: random.Random) -> tuple[int, int]:
        """Ends all that works for the application at one moment, and takes back what is not on the disk.

        Gives how many files were emptied by that, and how many are gone.
        """
        assert self.power is not None
        victims = [*self._own(), *self.executors()]
        for executor in self.executors():
            with suppress(psutil.Error):
                victims += executor.children(recursive=True)
        for act in (psutil.Process.suspend, psutil.Process.kill):
            for each in victims:
                with suppress(psutil.Error):
                    act(each)
        psutil.wait_procs(victims, STOP_S)
        self._over()
        return self.power.lose(self.folder / "state", chance)

    def stop(self) -> int:
        """Cleanly; the exit code, -1 if it took too long."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.tell_all()
            self.end()
            return -1
        self._over()
        return self.process.returncode

    def end(self) -> None:
        """All of it at once, at the end of a soak."""
        if self._process is None:
            return
        for process in self._own():
            with suppress(psutil.Error):
                process.kill()
        self._over()

    def _over(self) -> None:
        self.process.wait(STOP_S)
        if self.process.stdin is not None:
            self.process.stdin.close()

    def executors(self) -> list[psutil.Process]:
        return [p for p in self.cluster.below() if "CoarseGrainedExecutorBackend" in _command(p)]

    def executor_of(self, worker: int) -> psutil.Process | None:
        """The executor that a worker process belongs to."""
        with suppress(psutil.Error):
            above = {p.pid for p in psutil.Process(worker).parents()}
            return next((p for p in self.executors() if p.pid in above), None)
        return None

    def workers(self) -> list[psutil.Process]:
        """The processes that run tasks: forks of a daemon that never runs one itself."""
        daemons = {p.pid for p in self.cluster.below() if "pyspark.worker" in _command(p)}
        return [p for p in self.cluster.below() if "pyspark.worker" in _command(p) and _parent(p) in daemons]

    def _own(self) -> list[psutil.Process]:
        """The driver, and what it has started: the JVM beside it, and the process that plans batches."""
        with suppress(psutil.Error):
            driver = psutil.Process(self.process.pid)
            return [driver, *driver.children(recursive=True)] if self.is_alive() else []
        return []

    def newest_batch(self) -> int:
        """The last batch that Spark has committed; -1 for none."""
        names = list_documents(self._checkpoint, "spark/commits")
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def said_last(self) -> str:
        """The end of its log, from the start that went wrong."""
        return "\n".join(self._log.read_text(errors="replace").rpartition("---- start")[2].splitlines()[-LAST_LINES:])

    def query_restarts(self) -> int:
        """How often the application has started its query again, as Spark had given it up."""
        return self._log.read_text(errors="replace").count("the query is started again")

    def tell_all(self) -> None:
        """Writes to ``threads.log`` what all of its processes do."""
        for process in [*self._own(), *self.cluster.below()]:
            with self._threads.open("a") as file:
                file.write(f"\n==== {time.strftime('%H:%M:%S')} {process.pid}: {_command(process)[-200:]}\n")
                file.flush()
                if "java" in _command(process).split(" ", 1)[0]:
                    with suppress(subprocess.TimeoutExpired, OSError):
                        subprocess.run(["jstack", str(process.pid)], stdout=file, timeout=JSTACK_S, check=False)
                elif "pyspark" in _command(process) or process.pid == self.process.pid:
                    with suppress(psutil.Error):
                        process.send_signal(signal.SIGUSR1)
                    time.sleep(0.2)


def _command(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _parent(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return process.ppid()
    return -1
