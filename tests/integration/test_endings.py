"""How an application ends: by a signal at any time, without stack traces; and what is said when a worker is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock import StreamsBuilder
from penstock.console.exposure import facts_of
from penstock.errors import AppFailedError

from .conftest import BATCHES

PROGRAM = """
import sys
from penstock import KafkaStreams, Materialized, StreamsBuilder

builder = StreamsBuilder()
words = builder.stream("lines").flat_map_values(str.split)
words.group_by(lambda _, word: word).count(Materialized("counts")).to_stream().to("out")
config = {
    "application.id": "ending",
    "bootstrap.servers": "sqlite:///logs.db",
    "state.dir": "state",
    "default.key.serde": "string",
    "default.value.serde": "string",
    "penstock.source.partitions": 2,
    "spark.master": "local[2]",
}
app = KafkaStreams(builder.build(), config)
app.set_state_listener(lambda new, old: print(new.value, flush=True))
app.run()
print("went on", flush=True)
"""
PATIENCE_S = 180


class Program:
    """The program above in a process of its own, with all that it and its children say."""

    def __init__(self, folder: Path, source: str = PROGRAM, name: str = "said") -> None:
        folder.mkdir(exist_ok=True)
        self._said = folder / name
        with self._said.open("w") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-c", source], cwd=folder, stdout=file, stderr=file, start_new_session=True
            )

    def said(self) -> str:
        return self._said.read_text()

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.said():
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def signal(self, number: int, *, group: bool = False) -> int:
        """Sends a signal; gives the exit code, when all children have ended too."""
        (os.killpg if group else os.kill)(self._process.pid, number)
        return self.ended()

    def ended(self) -> int:
        """Waits for its end; gives the exit code."""
        try:
            return self._process.wait(PATIENCE_S)
        finally:
            time.sleep(0.5)  # children may have a last word
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)


def _is_clean(said: str) -> bool:
    return not any(word in said for word in ("Traceback", "Error", "Exception", "WARNING"))


@pytest.mark.parametrize("after_s", [0.5, 3.0])
def test_ctrl_c_during_the_start(tmp_path, after_s):
    program = Program(tmp_path / "app")
    program.wait_for("REBALANCING")
    time.sleep(after_s)
    assert program.signal(signal.SIGINT) in (0, 130)  # 0: a fast machine had started it by then
    assert _is_clean(program.said()), program.said()


def test_sigterm_to_the_whole_group_just_after_the_start(tmp_path):
    program = Program(tmp_path / "app")
    program.wait_for("RUNNING")
    assert program.signal(signal.SIGTERM, group=True) == 0
    said = program.said()
    assert _is_clean(said), said
    assert said.split() == ["REBALANCING", "RUNNING", "PENDING_SHUTDOWN", "NOT_RUNNING", "went", "on"]


def test_sigterm_to_a_driver_that_waits_for_another_one(tmp_path):
    source = "import logging\nlogging.basicConfig()\n" + PROGRAM
    source = source.replace('"state.dir"', '"processing.mode": "micro_batch", "state.dir"')
    running = Program(tmp_path / "app", source)
    running.wait_for("RUNNING")
    waiting = Program(tmp_path / "app", source, "second")
    waiting.wait_for("this instance waits, and takes over")
    assert waiting.signal(signal.SIGTERM) == 143
    assert running.signal(signal.SIGTERM) == 0


def test_a_spark_context_that_the_cluster_stops_is_an_error(tmp_path):
    stopped = """
import time
app.start()
while app.state.value != "RUNNING":
    time.sleep(0.1)
app._run.spark.context._jsc.sc().stop()
app.wait()
"""
    program = Program(tmp_path / "app", PROGRAM.replace("app.run()", stopped))
    assert program.ended() == 1
    said = program.said()
    states = [word for word in said.split() if word in ("REBALANCING", "RUNNING", "PENDING_ERROR")]  # Spark may warn
    assert states[:3] == ["REBALANCING", "RUNNING", "PENDING_ERROR"], said
    assert "because SparkContext was shut down" in said


def test_a_function_that_ends_its_process_is_named_with_its_task_and_offsets(bench, caplog):
    driver = os.getpid()

    def deadly(value):
        if value == "v7" and os.getpid() != driver:
            os._exit(9)
        return value

    builder = StreamsBuilder()
    builder.stream("lines").map_values(deadly).to("out")
    bench.log.create_topic("lines", 1)
    bench.write("lines", [(None, f"v{number}", number) for number in range(20)])
    app = bench.app(builder.build(), **BATCHES)
    with caplog.at_level("WARNING"), pytest.raises(AppFailedError) as caught:
        app.run(until="latest")
    message = caught.value.message
    assert "ran task 0_0 in batch 0, in KSTREAM-MAPVALUES-0000000001" in message
    assert "deadly" in message
    assert f"{Path(__file__).name}:" in message
    assert "lines-0 offsets 0 to 19" in message
    known = facts_of(caught.value)
    assert (known["node"], known["task"], known["record"]) == ("KSTREAM-MAPVALUES-0000000001", "0_0", None)
    assert known["positions"]["lines-0"] == 0, "the page of the application leads there"
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert sum("ran task 0_0" in warning for warning in warnings) == 1, "it is tried once more"
