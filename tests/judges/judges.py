"""Judges of Penstock's applications: the verifiers of Apache Kafka's own system tests, and two of ours.

python tests/judges/judges.py [--judge smoke eos relational history clients] [--mode continuous micro_batch]
    [--brokers 1 3] [--rounds 1] [--seed N] [--size short|whole] [--faults NAME ...] [--count N]
    [--folder DIR] [--results FILE]

smoke       SmokeTestDriver of Kafka Streams 4.3.1: windows, suppress, joins of tables, a table grouped anew
eos         EosTestDriver of 4.0.0: each output of each record, committed offsets, no transaction left open
relational  RelationalSmokeTest of 4.3.1: a left join of tables and a join by foreign key
history     unique appends by key: none lost or double, in order, each aggregate follows the one before, and stores,
            changelogs and outputs hold the same
clients     kafka-python, aiokafka and confluent-kafka write and read: compression, aborted transactions, headers, null keys

Each round has brokers of its own. Its application is killed (-9), stopped and started while a judge writes its input; the
history's is paused as well and replaced while it is paused, its workers and brokers are killed. The same seed chooses the
same faults. A round that fails keeps its folder. A judge whose jars or clients cannot be had is skipped, with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from clients_judge import judge_clients
from history_judge import judge_history
from judge_process import FAULTS, KILLS, JudgedProcessError
from judge_world import new_world
from kafka_judges import CannotJudgeError, Round, Verdict, judge_eos, judge_relational, judge_smoke
from penstock.errors import EnvironmentProblemError

__all__ = ["FAILED", "JUDGES", "judge_round"]

JUDGES: dict[str, Callable[[Round], Verdict]] = {
    "smoke": judge_smoke,
    "eos": judge_eos,
    "relational": judge_relational,
    "history": judge_history,
    "clients": judge_clients,
}
FAULTS_OF = {"history": FAULTS}
MODES = ("continuous", "micro_batch")
FAILED = 1


def say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, flush=True)


def judge_round(
    judge: str,
    mode: str,
    brokers: int,
    folder: Path,
    *,
    size: str,
    seed: int,
    faults: Sequence[str] = (),
    count: int = 3,
) -> Verdict:
    """Do one round in a folder.

    Raises:
        CannotJudgeError: This machine does not have what the judge needs.
    """
    chance = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            world = stack.enter_context(new_world(folder, brokers))
        except EnvironmentProblemError as problem:
            raise CannotJudgeError(str(problem)) from problem
        names = faults or FAULTS_OF.get(judge, KILLS)
        try:
            return JUDGES[judge](Round(world, mode, size, names, count, chance, say))
        except (JudgedProcessError, TimeoutError) as failed:
            return Verdict(passed=False, words=[f"{type(failed).__name__}: {failed}"])


def entry_of(
    arguments: argparse.Namespace, judge: str, mode: str, brokers: int, verdicts: list[dict[str, Any]]
) -> dict[str, Any]:
    """A result as plain data."""
    options = f"--judge {judge} --mode {mode} --brokers {brokers} --rounds {arguments.rounds} --seed {arguments.seed}"
    options += f" --size {arguments.size} --count {arguments.count}"
    options += f" --faults {' '.join(arguments.faults)}" if arguments.faults else ""
    return {
        "judge": judge, "mode": mode, "brokers": brokers,
        "command": f'make judges ARGS="{options}"',
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"cpus": os.cpu_count(), "system": platform.system(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("pyspark", "confluent-kafka")},
        "passed": sum(each["passed"] for each in verdicts),
        "rounds": verdicts,
    }  # fmt: skip


def save(file: Path, entry: dict[str, Any]) -> None:
    """Put a result into the file, in the place of an older one of the same judge, mode and brokers."""
    place = ("judge", "mode", "brokers")
    entries = json.loads(file.read_text()) if file.exists() else []
    kept = [each for each in entries if any(each[name] != entry[name] for name in place)]
    kept.append(entry)
    kept.sort(key=lambda each: (list(JUDGES).index(each["judge"]), each["mode"], each["brokers"]))
    file.write_text(json.dumps(kept, indent=1) + "\n")


def judge_all(arguments: argparse.Namespace, judge: str, mode: str, brokers: int, folder: Path) -> list[dict[str, Any]]:
    """Do the rounds of a judge; a failed one keeps its folder, and ends them."""
    verdicts: list[dict[str, Any]] = []
    for number in range(arguments.rounds):
        name = f"{judge}-{mode}-{brokers}-{number}"
        say(f"---- {name}")
        began = time.monotonic()
        verdict = judge_round(
            judge, mode, brokers, folder / name, size=arguments.size, seed=arguments.seed + number,
            faults=arguments.faults or (), count=arguments.count,
        )  # fmt: skip
        verdicts.append({
            "passed": verdict.passed, "seed": arguments.seed + number, "seconds": round(time.monotonic() - began),
            "story": verdict.story, "words": verdict.words,
        })  # fmt: skip
        for line in verdict.words:
            say(f"  {line}")
        say(f"{name}: {'passed' if verdict.passed else f'FAILED, see {folder / name}'}")
        if not verdict.passed:
            break
        shutil.rmtree(folder / name, ignore_errors=True)
    return verdicts


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", nargs="+", choices=JUDGES, default=list(JUDGES), metavar="NAME")
    parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES), metavar="MODE")
    parser.add_argument("--brokers", nargs="+", type=int, choices=(1, 3), default=[1], metavar="N")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.Random().randrange(1_000_000))
    parser.add_argument("--size", choices=("short", "whole"), default="whole", help="how much input a judge writes")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, metavar="NAME", help=f"some of {', '.join(FAULTS)}")
    parser.add_argument("--count", type=int, default=3, help="faults in a round")
    parser.add_argument("--folder", type=Path, help="kept; otherwise one that is kept when a round failed")
    parser.add_argument("--results", type=Path, help="a file for the results, as JSON")
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parsed()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="penstock-judges-"))
    say(f"seed {arguments.seed}, everything in {folder}")
    failed, skipped = [], []
    for judge in arguments.judge:
        for mode in arguments.mode:
            for brokers in arguments.brokers:
                try:
                    verdicts = judge_all(arguments, judge, mode, brokers, folder)
                except CannotJudgeError as reason:
                    say(f"SKIPPED {judge}: {reason}")
                    skipped.append(judge)
                    continue
                if arguments.results is not None:
                    save(arguments.results, entry_of(arguments, judge, mode, brokers, verdicts))
                failed += [f"{judge} ({mode}, {brokers} brokers)" for each in verdicts if not each["passed"]]
    if failed:
        sys.exit(f"failed with seed {arguments.seed}: {', '.join(failed)}; see {folder}")
    say("all passed" + (f", but these were skipped: {', '.join(sorted(set(skipped)))}" if skipped else ""))
    if arguments.folder is None:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # applications and brokers end with it
    main()
