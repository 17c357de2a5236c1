"""A YARN of one resource manager and two node managers (Hadoop's MiniYARNCluster), of jars fetched by their coordinates."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from eventually import eventually
from penstock.base.jars import fetch_jars, java_command
from penstock.tools.broker.process import guard

VERSION = "3.5.0"  # of the Hadoop that PySpark brings
JARS = (
    ("org.apache.hadoop", "hadoop-client-minicluster", VERSION),
    ("org.junit.jupiter", "junit-jupiter-api", "5.13.4"),
    ("org.opentest4j", "opentest4j", "1.3.0"),
    ("org.bouncycastle", "bcprov-jdk18on", "1.81"),
    ("org.bouncycastle", "bcpkix-jdk18on", "1.81"),
    ("org.bouncycastle", "bcutil-jdk18on", "1.81"),
)
SOURCE = Path(__file__).parent / "java" / "YarnCluster.java"
SHORT_RUN = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # of JVMs that live for a minute
PATIENCE_S = 180


class YarnCluster:
    """The cluster, which runs in the block.

    Args:
        folder: For its settings, its logs and those of its containers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._conf = folder / "conf"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._conf.mkdir(parents=True)
        spark = Path(pyspark.__file__).parent / "jars"
        own = fetch_jars(f"hadoop-minicluster-{VERSION}", JARS, transitive=False)
        command = [
            java_command(),
            *SHORT_RUN,
            "-cp",
            f"{own}/*:{spark}/*",
            str(SOURCE),
            str(self._conf / "yarn-site.xml"),
        ]
        java_home = Path(java_command()).resolve().parents[1]
        with (self.folder / "cluster.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.folder,
                env={**os.environ, "JAVA_HOME": str(java_home)},
            )  # fmt: skip
        self._guard = guard(self._process.pid)
        try:
            site = self._conf / "yarn-site.xml"
            eventually(lambda: site.exists() or self._process.poll() is not None, PATIENCE_S, facts=self.said)
            assert self._process.poll() is None, self.said()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        assert self._process is not None
        containers = psutil.Process(self._process.pid).children(recursive=True)
        try:
            self._process.communicate(timeout=PATIENCE_S)  # closes its standard input
        finally:
            self._guard.kill()
            self._guard.wait()
            for each in (each for each in containers if each.is_running()):  # of an application that did not end
                each.kill()
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to find the cluster."""
        without = {name: value for name, value in os.environ.items() if name != "PYSPARK_SUBMIT_ARGS"}
        return {**without, "HADOOP_CONF_DIR": str(self._conf)}

    @property
    def settings(self) -> dict[str, str]:
        """Settings of Spark: two small executors, and nothing copied that this machine has."""
        return {
            "spark.master": "yarn",
            "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent / 'jars'}/*",
            "spark.yarn.stagingDir": f"file://{self.folder / 'staging'}",
            "spark.yarn.am.memory": "256m",
            "spark.executor.instances": "2",
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": " ".join(SHORT_RUN),
        }

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of the executors that run."""
        assert self._process is not None
        found = []
        for child in psutil.Process(self._process.pid).children(recursive=True):
            try:
                if child.name() == "java" and "YarnCoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                    found.append(child)
            except psutil.Error:
                continue
        return found

    def said(self) -> str:
        """Return the ends of the logs of cluster and containers."""
        logs = [self.folder / "cluster.log", *sorted(self.folder.rglob("container_*/std*"))]
        return "\n".join(f"--- {each}\n{each.read_text(errors='replace')[-2000:]}" for each in logs)
