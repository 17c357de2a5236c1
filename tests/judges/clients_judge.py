"""Clients of three libraries around an application: what each of them writes is answered, and all of them read the same."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from client_program import CODECS, LIBRARIES, Sent, sent_by
from judge_process import Application, Faults, JudgedProcessError
from judge_topologies import APPLICATIONS
from judge_world import World, wait_until
from kafka_judges import CannotJudgeError, Round, Verdict
from penstock.base.jars import cache_directory

__all__ = ["check_answers", "judge_clients"]

REQUIREMENTS = ("kafka-python[lz4,snappy,zstd]==3.0.12", "aiokafka[lz4,snappy,zstd]==0.14.0", "confluent-kafka==2.16.1")
PROGRAM = Path(__file__).with_name("client_program.py")
COUNTS = {"short": 20, "whole": 500}  # records of each library and codec
PATIENCE_S = 300.0
MOST_PROBLEMS = 20


def clients_python() -> Path:
    """The interpreter of an environment with the clients, in the user's cache.

    Raises:
        CannotJudgeError: They could not be installed.
    """
    folder = cache_directory() / "peers" / f"clients-python{sys.version_info.major}.{sys.version_info.minor}"
    python, complete = folder / "bin" / "python", folder / "installed"
    if not complete.exists() or complete.read_text() != "\n".join(REQUIREMENTS):
        venv.create(folder, clear=True, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotJudgeError(f"the clients could not be installed: {' '.join(done.stderr.splitlines()[-2:])}")
        complete.write_text("\n".join(REQUIREMENTS))
    return python


def run_client(world: World, python: Path, *arguments: str) -> list[Sent]:
    action, library, codec, topic, count = arguments
    command = [str(python), str(PROGRAM), action, library, codec, world.bootstrap, topic, count]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if done.returncode:
        raise JudgedProcessError(f"{library} cannot {action} with {codec}: {done.stderr[-1500:]}")
    lines = (json.loads(line) for line in done.stdout.splitlines())
    return [Sent(key, value, [(name, text) for name, text in headers]) for key, value, headers in lines]


def judge_clients(turn: Round) -> Verdict:
    """Each library writes with each codec, within transactions of which half are aborted; each reads all answers."""
    world, judged, count = turn.world, APPLICATIONS["clients"], COUNTS[turn.size]
    python = clients_python()
    world.create_topics(judged)
    requests = [each for library in LIBRARIES for codec in CODECS for each in sent_by(library, codec, count)]
    codec_of_outputs = turn.chance.choice(CODECS)
    app = Application("clients", judged, world, turn.mode)
    app.settings["producer.compression.type"] = codec_of_outputs
    words, problems = [], []
    with app:
        faults = Faults(app, world, turn.chance, turn.say)

        def write_all() -> None:
            for library in LIBRARIES:
                for codec in CODECS:
                    run_client(world, python, "produce", library, codec, "requests", str(count))

        def have_read_all() -> bool:
            return writing.done() and world.has_read_all(judged.name, judged.inputs)

        with ThreadPoolExecutor(1) as clients:
            writing = clients.submit(write_all)
            faults.do_all(turn.faults, turn.count, have_read_all)
            writing.result()
        wait_until(have_read_all, "all requests are read")
        wait_until(lambda: len(world.records("answers")) >= len(requests), "all requests are answered")
        for library in LIBRARIES:
            answers = run_client(world, python, "consume", library, "-", "answers", str(len(requests)))
            found = check_answers(requests, answers)
            problems += [f"{library}: {problem}" for problem in found]
            words.append(f"{library} reads {len(answers)} answers to {len(requests)} requests, {codec_of_outputs}")
        if (code := app.stop()) != 0:
            raise JudgedProcessError(f"the application ended with {code} when it was stopped: {app.said_last()}")
    wanted = Counter(each.key for each in requests if each.key is not None and each.value is not None)
    counted = {each.key().decode(): int.from_bytes(each.value(), "big") for each in world.records("counts")}
    if counted != wanted:
        problems.append(f"the counts are {counted}, not {dict(wanted)}")
    words.append(f"counts of {len(counted)} keys: {sum(counted.values())} of {wanted.total()}")
    return Verdict(not problems, [*words, *(problems[:MOST_PROBLEMS] or ["no problem"])], faults.story)


def check_answers(requests: Iterable[Sent], answers: Iterable[Sent]) -> list[str]:
    """Find requests without their answer, and answers too many; key, value and headers count.

    >>> check_answers([Sent("k", "v", [("h", "1")])], [Sent("k", "answer to v", [("h", "1")])])
    []
    >>> check_answers([Sent("k", "v", [("h", "1")])], [Sent("k", "answer to v", [])])
    ["1 answers are missing, such as ('k', 'answer to v', (('h', '1'),))", "1 are too many, such as ('k', 'answer to v', ())"]
    """
    wanted = Counter(
        (each.key, None if each.value is None else f"answer to {each.value}", tuple(each.headers)) for each in requests
    )
    came = Counter((each.key, each.value, tuple(each.headers)) for each in answers)
    problems = []
    for found, what in ((wanted - came, "answers are missing"), (came - wanted, "are too many")):
        if found:
            problems.append(f"{found.total()} {what}, such as {next(iter(found))}")
    return problems
