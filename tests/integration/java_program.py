"""Runs the Kafka Streams program in Java, java/StreamsProgram.java, compiled against jars fetched by their coordinates."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from java_sources import compiled
from penstock.base.jars import KAFKA_VERSION, fetch_jars, java_command

SOURCE = Path(__file__).parent / "java" / "StreamsProgram.java"
COORDINATES = (("org.apache.kafka", "kafka-streams", KAFKA_VERSION), ("org.slf4j", "slf4j-nop", "1.7.36"))
PATIENCE_S = 180


def compile_program(classes: Path) -> str:
    """Compiles into that folder and gives the class path."""
    return compiled(SOURCE, classes, fetch_jars(f"kafka-streams-{KAFKA_VERSION}", COORDINATES))


class JavaProgram:
    """A run of the program; the block begins when it is running and ends when it has closed and left its group."""

    def __init__(self, class_path: str, bootstrap: str, application: str, state: Path, program: str, *topics: str):
        arguments = [bootstrap, application, str(state), program, *topics]
        self._command = [java_command(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", class_path, "StreamsProgram"]
        self._command += arguments
        self._log = state.with_suffix(".log")
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said == "RUNNING\n", self._log.read_text()[-2000:]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        try:
            self._process.communicate(timeout=PATIENCE_S)  # closes its standard input
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        assert self._process.returncode == 0, self._log.read_text()[-2000:]
