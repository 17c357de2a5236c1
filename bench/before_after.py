"""This tree and another one, in turns: does a change make a workload slower?

python bench/before_after.py TREE [--n 200000] [--rounds 3] [--workloads w1 w5] [--engines threads] [--name before-after] [--merge]

TREE is a checkout of the commit before the change, with an environment of its own in TREE/.venv. In each round each tree measures
all workloads with its own programs of bench/, once this tree first and once the other: thread_rate.py (one stream thread with a broker, no
Spark; the second of two runs), and measure.py (micro-batches of --n / 4 records over the embedded log, all in one process; the first batch
warms up, and a run of W3 before). W5 is W2 by IP exactly once; micro-batches are exactly once for all workloads, so they have no W5 of their own.

Figures are CPU seconds of the processes that work for the application, a million records: on a shared machine they vary less than rates.
"slower" says that the fastest run of this tree took more than the slowest of the other one.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

import machine

HERE = Path(__file__).parent
WORKLOADS = ("w1", "w2a", "w2b", "w3", "w4", "w5")
SIDES = ("before", "after")
BATCHES = """
import json, sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import measure, prepare
n, workloads = int(sys.argv[2]), sys.argv[3:]
measure.BATCH_RECORDS = n // 4
with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
    for number, workload in enumerate(["w3", *workloads]):
        data, work = Path(folder, "first" if number == 0 else "data"), Path(folder, f"work-{number}")
        data.mkdir(exist_ok=True)
        for topic in measure.TOPICS[workload]:
            if not any(data.glob(f"{topic}*")):
                prepare.load(data, topic, n)
        work.mkdir()
        result = measure.penstock(workload, data, work)
        if number:
            print("RESULT", json.dumps({"workload": workload, "us": 1e6 / result["records_per_cpu_s"]}), flush=True)
"""


def lines_of(tree: Path, arguments: list[str], timeout_s: float) -> list[str]:
    """Run a program in a tree; return what it has written."""
    command = [str(tree / ".venv" / "bin" / "python"), *arguments]
    done = subprocess.run(command, cwd=tree / "bench", capture_output=True, text=True, check=False, timeout=timeout_s)
    if done.returncode:
        raise SystemExit(f"{tree}: {' '.join(arguments)[-200:]} ended with {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout.splitlines()


def threads(tree: Path, given: argparse.Namespace) -> dict[str, float]:
    """Measure one stream thread: microseconds of CPU time a record by workload."""
    us: dict[str, float] = {}
    for exactly_once in (False, True):
        workloads = ["w2b"] if exactly_once else [w for w in given.workloads if w != "w5"]
        if not workloads or (exactly_once and "w5" not in given.workloads):
            continue
        options = ["--n", str(given.n), "--runs", "2", "--workloads", *workloads, *["--exactly-once"] * exactly_once]
        for line in lines_of(tree, ["thread_rate.py", *options], given.timeout):
            if line.startswith("{"):  # of two runs of a workload the second one stays
                row = ast.literal_eval(line)
                us["w5" if exactly_once else row["workload"]] = row["us"]["all"]
    return us


def batches(tree: Path, given: argparse.Namespace) -> dict[str, float]:
    """Measure micro-batches: microseconds of CPU time a record by workload."""
    workloads = [w for w in given.workloads if w != "w5"]
    lines = lines_of(tree, ["-c", BATCHES, str(tree / "bench"), str(given.n), *workloads], given.timeout)
    rows = [json.loads(line.removeprefix("RESULT ")) for line in lines if line.startswith("RESULT ")]
    return {row["workload"]: round(row["us"], 2) for row in rows}


ENGINES = {"threads": threads, "micro-batches": batches}


def compared(runs: dict[str, list[dict[str, float]]], workload: str) -> dict[str, Any]:
    """Return the figures of a workload in both trees."""
    cpu = {side: [run[workload] for run in runs[side]] for side in SIDES}
    median = {side: round(statistics.median(cpu[side]), 2) for side in SIDES}
    return {
        "workload": workload,
        "cpu_s_per_million": cpu,
        "median": median,
        "after/before": round(median["after"] / median["before"], 3),
        "slower": min(cpu["after"]) > max(cpu["before"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="a checkout of the commit before the change")
    parser.add_argument("--n", type=int, default=200_000, help="records of each input topic")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--timeout", type=float, default=900, help="seconds for a tree and a round")
    parser.add_argument(
        "--merge", action="store_true", help="into the results of that name, in the place of the same engines"
    )
    parser.add_argument("--name", default="before-after")
    given = parser.parse_args()
    trees = {"before": given.tree.absolute(), "after": HERE.parent.absolute()}
    output = HERE / "results" / f"{given.name}.json"
    report = machine.facts("bench/before_after.py") | {"records": given.n, "results": {}}
    if given.merge and output.exists():
        report["results"] = json.loads(output.read_text())["results"]
    for engine in given.engines:
        runs: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
        for number in range(given.rounds):
            for side in SIDES[:: -1 if number % 2 else 1]:
                runs[side].append(ENGINES[engine](trees[side], given))
                print(engine, side, runs[side][-1], flush=True)
            rows = [compared(runs, workload) for workload in runs["before"][0]]
            report["results"][engine] = rows
            output.write_text(json.dumps(report, indent=1) + "\n")
        for row in rows:
            print(f"{engine} {row['workload']:4} {row['after/before']}{', slower' if row['slower'] else ''}")
    print(f"written: {output}")


if __name__ == "__main__":
    main()
