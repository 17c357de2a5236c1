"""The peers of compare.py: what they need, how they are installed, and how they are started.

Each Python peer gets a virtual environment of its own in the user's cache (``penstock/peers``), the Java peer is compiled
there against jars fetched by their coordinates. What is there already is used again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from penstock.base.jars import KAFKA_VERSION, cache_directory, fetch_jars, java_command

PEERS = Path(__file__).parent / "peers"
JAVA_JARS = (("org.apache.kafka", "kafka-streams", KAFKA_VERSION), ("org.slf4j", "slf4j-nop", "1.7.36"))
JAVA_HEAP = "-Xmx2g"
FLINK_KAFKA = ("org.apache.flink", "flink-sql-connector-kafka", "5.0.0-2.2")
FLINK_KAFKA_SHA256 = "5605c691d11a501382c383fecba37a7a552467da5ab7ba904ef5d6f3d62c5616"


class NotInstalledError(Exception):
    """A peer that this machine cannot have, and why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """``share``: of the records, for those that would take minutes over all; ``processes`` use two cores together."""

    name: str
    title: str
    requirement: str = ""  # of pip
    processes: int = 1
    share: float = 1.0
    ends: bool = True  # by itself, once all records are processed
    exactly_once: bool = True

    def install(self) -> Path:
        """The interpreter or, in Java, the class path's first folder; installs what is missing.

        Raises:
            NotInstalledError: It does not work here.
        """
        if self.name == "penstock":
            return Path(sys.executable)
        if self.name == "flink":
            _flink_connector()
        return self._java() if self.name == "kstreams" else self._virtual_environment()

    def command(self, installed: Path, index: int, port: int, recovery: Path) -> list[str]:
        """How process ``index`` is started."""
        if self.name == "kstreams":
            jars = fetch_jars(f"kafka-streams-{KAFKA_VERSION}", JAVA_JARS)
            return [java_command(), JAVA_HEAP, "-cp", f"{installed}:{jars}/*", "KafkaStreamsPeer"]
        if self.name == "bytewax":
            addresses = ";".join(f"127.0.0.1:{port + number}" for number in range(self.processes))
            return [
                str(installed), "-m", "bytewax.run", "bytewax_peer", "-r", str(recovery), "-s", "10", "-b", "0",
                "-i", str(index), "-a", addresses,
            ]  # fmt: skip
        if self.name == "flink":
            return [str(installed), str(PEERS / "flink_peer.py"), str(_flink_connector())]
        if self.name == "faust":
            return [str(installed), "-m", "faust", "-A", "faust_peer", "worker", "-l", "warn", "--without-web"]
        return [str(installed), str(PEERS / f"{self.name}_peer.py")]

    def _java(self) -> Path:
        sources = sorted(PEERS.glob("*.java"))
        stamp = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
        classes = cache_directory() / "peers" / f"kafka-streams-{KAFKA_VERSION}-{stamp}"
        if classes.is_dir():
            return classes
        compiler = Path(java_command()).with_name("javac")
        found = str(compiler) if compiler.exists() else shutil.which("javac")
        if found is None:
            raise NotInstalledError("there is no javac: a JDK is needed, not a JRE alone")
        jars = fetch_jars(f"kafka-streams-{KAFKA_VERSION}", JAVA_JARS)
        scratch = classes.with_suffix(f".{os.getpid()}")
        _run([found, "-nowarn", "-cp", f"{jars}/*", "-d", str(scratch), *map(str, sources)])
        scratch.rename(classes)
        return classes

    def _virtual_environment(self) -> Path:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        name = self.requirement.replace("[", "-").replace("]", "").replace("==", "-")
        folder = cache_directory() / "peers" / f"{name}-python{version}"
        python = folder / "bin" / "python"
        complete = folder / "installed"
        if not complete.exists():
            venv.create(folder, clear=True, with_pip=True)
            _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", self.requirement])
            complete.touch()
        return python


def _flink_connector() -> Path:
    """The jar of Flink's Kafka connector, whose digest is not among those of the product's own jars."""
    _, artifact, version = FLINK_KAFKA
    name = f"{artifact}-{version}"

    def check(folder: Path) -> None:
        digest = hashlib.sha256((folder / f"{name}.jar").read_bytes()).hexdigest()
        if digest != FLINK_KAFKA_SHA256:
            raise NotInstalledError(f"{name}.jar is not the one that was tested with: its SHA-256 is {digest}")

    return fetch_jars(name, [FLINK_KAFKA], transitive=False, check=check) / f"{name}.jar"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        told = (done.stderr or done.stdout).strip().splitlines()
        raise NotInstalledError(" ".join(told[-2:]) or f"{command[0]} ended with {done.returncode}")


ALL = {
    peer.name: peer
    for peer in (
        Peer("penstock", "Penstock"),
        Peer("kstreams", f"Kafka Streams {KAFKA_VERSION}"),
        Peer("quix", "Quix Streams 3.28.1", "quixstreams==3.28.1", processes=2, share=0.2, ends=False),
        Peer("bytewax", "Bytewax 0.21.1", "bytewax[kafka]==0.21.1", processes=2, share=0.2, exactly_once=False),
        Peer("faust", "Faust 0.15.3", "faust-streaming[rocksdict]==0.15.3", processes=2, share=0.05, ends=False),
    )
}
# Not of compare.py: what it takes of the workloads is task a of bench/rtm.
REALTIME = Peer("realtime", "Spark 4.2.0's real-time mode", "pyspark==4.2.0", ends=False, exactly_once=False)
# Of nexmark, which its SQL can say; the newest version with a Kafka connector.
FLINK = Peer("flink", "Flink SQL 2.2.1", "apache-flink==2.2.1")
# Of shufflebench, whose results may come in any order; the 4.2.0 whose Kafka connector can be had by its coordinates.
STRUCTURED = Peer("structured", "Spark 4.2.0's Structured Streaming", "pyspark[sql]==4.2.0", exactly_once=False)
