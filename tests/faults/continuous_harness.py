"""What the fault tests of continuous mode share: topics, an application as a process, and the outputs that must come."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil
import pyarrow as pa

from eventually import eventually
from fault_sites import Fault
from penstock.log.open import open_log

APP = Path(__file__).with_name("continuous_app.py")
START = 1_790_000_000_000
PATIENCE_S = 300
WORDS = 4
_names = itertools.count()


class Words:
    """An application's topics, over any log, and the numbers of records in them.

    Attributes:
        name: The ``application.id``, with which its topics begin.
        fault: The places at which its processes may die.
    """

    def __init__(self, root: Path, url: str = "") -> None:
        self.name = f"proof{next(_names)}"
        self.root = root
        self.url = url or f"sqlite:///{root / 'log.db'}"
        self.log: Any = open_log(self.url)
        self.sent = 0
        self.fault = Fault(root)
        for topic in ("words", "counts", "upper"):
            self.log.create_topic(self.topic(topic), 2, {"retention.ms": "-1"})

    def topic(self, name: str) -> str:
        return f"{self.name}-{name}"

    def send(self, count: int) -> None:
        for partition in range(2):
            numbers = [n for n in range(self.sent, self.sent + count) if n % 2 == partition]
            columns = {
                "timestamp": pa.array([START + n for n in numbers], pa.int64()),
                "key": pa.array([str(n).encode() for n in numbers], pa.large_binary()),
                "value": pa.array([f"w{n % WORDS}".encode() for n in numbers], pa.large_binary()),
            }
            self.log.append(self.topic("words"), partition, pa.RecordBatch.from_pydict(columns))
        self.sent += count

    def written(self, topic: str) -> Counter[tuple[bytes, bytes]]:
        """All committed records of an output."""
        found: Counter[tuple[bytes, bytes]] = Counter()
        for partition in range(2):
            rows = self.log.read(self.topic(topic), partition, 0, 1_000_000).records
            found.update(zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True))
        return found

    def expected(self) -> dict[str, Counter[tuple[bytes, bytes]]]:
        counts = [(f"w{n % WORDS}".encode(), (n // WORDS + 1).to_bytes(8, "big")) for n in range(self.sent)]
        upper = [(str(n).encode(), f"W{n % WORDS}".encode()) for n in range(self.sent)]
        return {"counts": Counter(counts), "upper": Counter(upper)}

    def check(self, facts: Any = lambda: None) -> None:
        """Wait for all outputs, and compare them: each exactly once."""
        expected = self.expected()
        whole = sum(each.total() for each in expected.values())

        def number() -> int:
            return sum(self.written(topic).total() for topic in expected)

        eventually(lambda: number() >= whole, PATIENCE_S, facts=lambda: (number(), whole, facts()))
        assert {topic: self.written(topic) for topic in expected} == expected

    def check_at_least(self) -> None:
        """Wait until no output is missing; some may be there more than once."""
        expected = self.expected()
        eventually(lambda: all(wanted.keys() <= self.written(topic).keys() for topic, wanted in expected.items()), 120)


class Process:
    """The application in a process of its own."""

    def __init__(self, words: Words, master: str = "local[2]", *, until: str = "stopped", **more: Any) -> None:
        self.words = words
        self._said = words.root / f"{words.name}.log"
        command = [sys.executable, str(APP), words.name, words.url, str(words.root), master, until, json.dumps(more)]
        with self._said.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                env={**words.fault.environment(dict(os.environ)), "PYSPARK_PYTHON": sys.executable},
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def said(self) -> str:
        """All that it and earlier ones of its name have printed."""
        return self._said.read_text(errors="replace")

    def facts(self) -> object:
        return self.process.poll(), self.said[-3000:]

    def below(self, text: str) -> list[psutil.Process]:
        """The processes that it has started, directly or not, with this text in their command."""
        found = []
        with suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    if text in " ".join(child.cmdline()):
                        found.append(child)
        return found

    def workers(self) -> list[psutil.Process]:
        """The Python processes that run tasks: forks of a daemon that never runs one itself."""
        daemons = self.below("pyspark.worker")
        above = {each.pid for each in daemons}
        return [each for each in daemons if each.ppid() in above]

    def kill_a_worker(self) -> None:
        eventually(self.workers, PATIENCE_S, facts=self.facts)[0].kill()

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> float:
        """Ask it to end; return the seconds that it took."""
        began = time.monotonic()
        self.process.send_signal(how)
        self.process.wait(PATIENCE_S)
        return time.monotonic() - began

    def end(self) -> None:
        """Kill it and all that it has started."""
        victims = self.below("")
        self.process.kill()
        self.process.wait(PATIENCE_S)
        for each in victims:
            with suppress(psutil.Error):
                each.kill()
