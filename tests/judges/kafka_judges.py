"""The verifiers of Apache Kafka's system tests, run from their jars against applications of Penstock.

``SmokeTestDriver`` and ``RelationalSmokeTest`` come with Kafka Streams 4.3.1, whose test jar is published, ``EosTestDriver``
with 4.0.0, the last one that has it. Brokers are of the default version.
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from judge_process import Application, Faults, JudgedProcessError
from judge_topologies import APPLICATIONS
from judge_world import World, wait_until
from penstock.base.jars import fetch_jars, java_command
from penstock.errors import EnvironmentProblemError

__all__ = ["CannotJudgeError", "Round", "Verdict", "judge_eos", "judge_relational", "judge_smoke", "relevant_lines"]

SMOKE_VERSION = "4.3.1"
EOS_VERSION = "4.0.0"
CALLER = Path(__file__).parent / "java" / "KafkaJudges.java"
END_S = 900.0
DAY_S = 86_400
MOST_WORDS = 25
SMOKE_SIZES = {"short": (5, 200, 20), "whole": (20, 1000, 90)}  # keys, records of each, seconds: Kafka's are the whole
RELATIONAL_SIZES = {"short": (60, 600, 20), "whole": (1000, 10_000, 60)}  # articles, comments, seconds


class CannotJudgeError(Exception):
    """This machine does not have what a judge needs."""


@dataclass(frozen=True)
class Round:
    """One round of a judge.

    Attributes:
        world: Its brokers.
        mode: ``processing.mode``.
        size: ``short`` or ``whole``: how much the judge generates.
        faults: The faults to choose from.
        count: How many of them are done.
        chance: Chooses them.
        say: Is called with what happens.
    """

    world: World
    mode: str
    size: str
    faults: Sequence[str]
    count: int
    chance: random.Random
    say: Callable[[str], None]


@dataclass
class Verdict:
    """What a judge says: ``words`` are its own, ``story`` is what was done to the application meanwhile."""

    passed: bool
    words: list[str]
    story: list[str] = field(default_factory=list)


class JavaJudge:
    """A Java program as a process, whose output goes to a file of the round's folder."""

    def __init__(self, world: World, name: str, version: str, *program: str) -> None:
        try:
            jars = fetch_jars(
                f"kafka-judges-{version}",
                [("org.apache.kafka", "kafka-streams:test", version), ("org.slf4j", "slf4j-simple", "1.7.36")],
            )
        except EnvironmentProblemError as problem:
            raise CannotJudgeError(str(problem)) from problem
        self._log = world.folder / f"{name}.log"
        self._command = [
            java_command(), "-Xmx512m", "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients=warn",
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common=warn", "-cp", f"{jars}/*", *program,
        ]  # fmt: skip

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def has_generated(self) -> bool:
        return self.has_ended() or "GENERATED" in self.said

    def wait(self) -> int:
        """Wait for its end; return its exit code."""
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired as late:
            last = "\n".join(self.said.splitlines()[-MOST_WORDS:])
            raise JudgedProcessError(f"the judge did not end within {END_S:.0f} s; it said at last: {last}") from late


def require_compiler() -> None:
    """Java compiles the caller as it starts it, which a JRE alone cannot.

    Raises:
        CannotJudgeError: There is no JDK.
    """
    try:
        java = java_command()
    except EnvironmentProblemError as problem:
        raise CannotJudgeError(str(problem)) from problem
    if not Path(java).resolve().with_name("javac").exists() and shutil.which("javac") is None:
        raise CannotJudgeError("there is no javac: a JDK is needed, not a JRE alone")


def judge_smoke(turn: Round) -> Verdict:
    """Let ``SmokeTestDriver`` generate its records and verify the outputs of the application."""
    require_compiler()
    keys, records, seconds = SMOKE_SIZES[turn.size]
    wait_for_a_day(3 * seconds + 60, turn.say)
    arguments = ("smoke", turn.world.bootstrap, str(keys), str(records), str(seconds))
    said, code, story = run_judge(turn, "smoke", arguments)
    wanted = re.search(r"^SUCCESS$", said, re.MULTILINE) and "ALL-RECORDS-DELIVERED" in said
    more = re.search(r"PROCESSED-(MORE|LESS)-THAN-GENERATED", said)
    words = relevant_lines(said, "Result Verification", r"^-+$|^Exception|\{.*=|\d records? processed = ")
    return Verdict(code == 0 and bool(wanted) and not more, words, story)


def judge_relational(turn: Round) -> Verdict:
    """Let ``RelationalSmokeTest`` generate articles and comments, and verify what the application makes of them."""
    require_compiler()
    arguments = ("relational", turn.world.bootstrap, *map(str, RELATIONAL_SIZES[turn.size]))
    said, code, story = run_judge(turn, "relational", arguments)
    words = relevant_lines(said, "GENERATED", r" - sent | Consumed first |Duplicate|not passed yet")
    return Verdict(code == 0 and "Evaluation passed" in said, words, story)


def run_judge(turn: Round, name: str, arguments: Sequence[str]) -> tuple[str, int, list[str]]:
    """Run a judge that generates and verifies, and do the round's faults meanwhile."""
    judged = APPLICATIONS[name]
    judge = JavaJudge(turn.world, "judge", SMOKE_VERSION, str(CALLER), *arguments)
    turn.world.create_topics(judged)
    with Application(name, judged, turn.world, turn.mode) as app, judge:
        faults = Faults(app, turn.world, turn.chance, turn.say)
        group, inputs = judged.name, judged.inputs
        faults.do_all(turn.faults, turn.count, lambda: judge.has_generated() and turn.world.has_read_all(group, inputs))
        code = judge.wait()
        app.check_alive()
        return judge.said, code, faults.story


def judge_eos(turn: Round) -> Verdict:
    """Let ``EosTestDriver`` generate until the faults are done, and verify outputs, offsets and transactions."""
    judged = APPLICATIONS["eos"]
    properties = turn.world.folder / "judge.properties"
    properties.write_text(f"bootstrap.servers={turn.world.bootstrap}\nprocessing.guarantee=exactly_once_v2\n")
    main = ("org.apache.kafka.streams.tests.StreamsEosTest", str(properties))
    generator = JavaJudge(turn.world, "generator", EOS_VERSION, *main, "run")
    verifier = JavaJudge(turn.world, "judge", EOS_VERSION, *main, "verify-complex")
    turn.world.create_topics(judged)
    with Application("eos", judged, turn.world, turn.mode) as app:
        with generator:
            faults = Faults(app, turn.world, turn.chance, turn.say)
            faults.do_all(turn.faults, turn.count, generator.has_ended)
            generator.process.send_signal(signal.SIGTERM)
            generator.wait()
        if "Producer closed" not in generator.said:
            raise JudgedProcessError(f"the generator failed: {generator.said[-2000:]}")
        for topic in ("data", "repartition"):
            wait_until(lambda topic=topic: turn.world.has_read_all(judged.name, [topic]), f"all of {topic} is read")
        if (code := app.stop()) != 0:
            raise JudgedProcessError(f"the application ended with {code} when it was stopped: {app.said_last()}")
        with verifier:
            verifier.wait()
    said = verifier.said
    passed = "ALL-RECORDS-DELIVERED" in said.splitlines()  # the last that it says, if nothing was wrong
    words = relevant_lines(said, "read end offset", r"^read end offset|Retry|Removing")
    return Verdict(passed, words, [*faults.story, *generator.said.splitlines()[-1:]])


def relevant_lines(said: str, start: str, noise: str) -> list[str]:
    """Return what a judge said from a line on, without lines that match ``noise``; no more than a page."""
    lines = said.splitlines()
    first = next((number for number, line in enumerate(lines) if start in line), 0)
    kept = [line for line in lines[first:] if line.strip() and not re.search(noise, line)]
    return [line[:300] for line in kept[-MOST_WORDS:]]


def wait_for_a_day(seconds: float, say: Callable[[str], None]) -> None:
    """Wait until midnight has passed if it is near: the driver expects all its records in one window of a day (UTC)."""
    left = DAY_S - time.time() % DAY_S
    if left < seconds:
        say(f"the records would be of two days: the round begins in {left:.0f} s")
        time.sleep(left + 1)
