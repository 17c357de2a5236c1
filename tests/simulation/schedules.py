"""Many schedules of the topologies of this folder, with the faults and layouts that their seeds draw, in several processes.

    python tests/simulation/schedules.py [--schedules 100000] [--first 20000] [--records 12] [--processes 2]

Says how far it is once a minute, and prints the story of each topology's first failure. `make test-all` runs 100,000.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

from penstock.testing.simulation.simulate import simulate
from simulated_topologies import NAMES, inputs_of, plan_of

__all__ = ["FEW", "Part", "parts"]

FEW = 12  # records: most of what a run costs is what happens around them
PART = 100  # seeds of one topology that a process runs at once
REPORT_S = 60.0


@dataclass(frozen=True)
class Part:
    """The result of some seeds of one topology.

    Attributes:
        topology: The topology.
        runs: The number of runs, which end with a failure unless all are wanted.
        cpu_s: What they took.
        failed: The seeds that have failed.
        stories: What happened then.
    """

    topology: str
    runs: int
    cpu_s: float
    failed: tuple[int, ...]
    stories: tuple[str, ...]


def _run(job: tuple[str, range, int]) -> Part:
    name, seeds, records = job
    began = time.process_time()
    report = simulate(plan_of(name), partial(inputs_of, name, count=records), seeds, most_failures=len(seeds))
    failures = report.failures
    return Part(
        name,
        report.seeds,
        time.process_time() - began,
        tuple(each.seed for each in failures),
        tuple(each.story() for each in failures[:1]),
    )


def parts(seeds: range, records: int, processes: int, size: int = PART) -> Iterator[Part]:
    """Run these seeds of each topology; yield the parts as they are done.

    Args:
        seeds: The seeds of each topology.
        records: The number of records of a run.
        processes: The number of processes.
        size: The number of seeds of a part.
    """
    ranges = [seeds[at : at + size] for at in range(0, len(seeds), size)]
    jobs = [(name, each, records) for each in ranges for name in NAMES]
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(_run, jobs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("schedules", 100_000), ("first", 20_000), ("records", FEW), ("processes", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    each = -(-arguments.schedules // len(NAMES))
    began = said = time.monotonic()
    runs, cpu_s, failed = 0, 0.0, 0
    for part in parts(range(arguments.first, arguments.first + each), arguments.records, arguments.processes):
        runs, cpu_s, failed = runs + part.runs, cpu_s + part.cpu_s, failed + len(part.failed)
        for story in part.stories:
            print(f"FAILED {part.topology}, seeds {', '.join(map(str, part.failed))}\n{story}\n", flush=True)
        now = time.monotonic()
        if now - said > REPORT_S or runs >= each * len(NAMES):
            said = now
            rates = f"{runs / (now - began):.1f} a second, {runs / cpu_s:.1f} a CPU second"
            print(f"{runs:,} of {each * len(NAMES):,} schedules, {failed} failed; {rates}", flush=True)
    if failed:
        sys.exit(f"{failed} schedules have failed")


if __name__ == "__main__":
    main()
