"""A Spark cluster of one machine that looks like two: Spark runs a second attempt of a slow task on another host only."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from penstock.tools.broker.broker_settings import free_port
from penstock.tools.broker.process import guard

MASTER = "127.0.0.1"
HOSTS = ("127.0.0.2", "127.0.0.3")  # Linux has all of 127.0.0.0/8
UP_S = 60
SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # its JVMs plan or wait, which repays no optimizing compiler


class SparkCluster:
    """A standalone master and two workers of one core each; they end with this process.

    Args:
        folder: For their logs, and for those of executors.
        environment: Theirs, and that of the executors.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {"SPARK_DAEMON_JAVA_OPTS": SHORT_RUN, "SPARK_LAUNCHER_OPTS": SHORT_RUN, **environment}
        self._port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._open = ExitStack()

    @property
    def url(self) -> str:
        return f"spark://{MASTER}:{self._port}"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._start("master.Master", "--host", MASTER, "--port", str(self._port), "--webui-port", str(free_port()))
        end = time.monotonic() + UP_S
        while not _listens(self._port):
            assert time.monotonic() < end, "Spark's master does not start"
            time.sleep(0.1)
        for host in HOSTS:
            self.start_worker(host)
        return self

    def start_worker(self, host: str) -> None:
        own = ["--host", host, "--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / host)]
        self._workers[host] = self._start("worker.Worker", *own, "--webui-port", str(free_port()), self.url)

    def lose(self, host: str) -> int:
        """Kills all that runs on a host, at once; gives how many processes that were."""
        victims = _tree(self._workers[host])
        for each in victims:
            with suppress(psutil.Error):
                each.kill()
        self._workers[host].wait(UP_S)
        return len(victims)

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        log = self._open.enter_context((self._folder / f"{name}-{len(self._processes)}.log").open("ab"))
        process = subprocess.Popen(
            [*command, *arguments], env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        self._processes.append(process)
        self._open.callback(_end, guard(process.pid))
        return process

    def below(self) -> list[psutil.Process]:
        """Its processes, and all that they have started."""
        return [each for process in self._processes for each in _tree(process)]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self.below():
            with suppress(psutil.Error):
                each.kill()
        for process in self._processes:
            process.wait(UP_S)
        self._open.close()


def _tree(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """A process and all below it; nothing if it has ended."""
    with suppress(psutil.Error):
        if process.poll() is None:
            known = psutil.Process(process.pid)
            return [known, *known.children(recursive=True)]
    return []


def _end(guard: subprocess.Popen[bytes]) -> None:
    guard.kill()
    guard.communicate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((MASTER, port)) == 0
