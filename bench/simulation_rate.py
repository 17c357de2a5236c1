"""How many schedules a second simulations run: the topologies of `tests/simulation`, faults and layouts as each seed draws them.

    python bench/simulation_rate.py [--seeds 20] [--first 50] [--records 36] [--processes 2] [--output FILE]

A schedule is a run of a whole application with its checks. ``a_cpu_second`` is what one core does that has nothing else to do; ``a_second``
is by the clock on the wall, of all processes together.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import machine

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/simulation"))

from penstock.testing.simulation.simulate import simulate
from simulated_topologies import NAMES, inputs_of, plan_of


def part(job: tuple[str, range, int]) -> dict[str, Any]:
    """Run the seeds of one topology."""
    name, seeds, records = job
    began = time.process_time()
    inputs = partial(inputs_of, name, count=records)
    report = simulate(plan_of(name), inputs, seeds, most_failures=len(seeds), most_tries=0)
    failed = [failure.seed for failure in report.failures]
    return {"topology": name, "runs": report.seeds, "cpu_s": time.process_time() - began, "failed": failed}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("seeds", 20), ("first", 50), ("records", 36), ("processes", 2)):
        arguments.add_argument(f"--{name}", type=int, default=default)
    arguments.add_argument("--output", type=Path)
    given = arguments.parse_args()
    jobs = [(name, range(given.first, given.first + given.seeds), given.records) for name in NAMES]
    began = time.perf_counter()
    with get_context("spawn").Pool(given.processes) as pool:
        parts = pool.map(part, jobs, 1)
    seconds = time.perf_counter() - began
    runs, cpu_s = sum(each["runs"] for each in parts), sum(each["cpu_s"] for each in parts)
    found = {
        "runs": runs,
        "failed": sum(len(each["failed"]) for each in parts),
        "a_second": round(runs / seconds, 2),
        "a_cpu_second": round(runs / cpu_s, 2),
        "cpu_ms_a_run": {each["topology"]: round(each["cpu_s"] / each["runs"] * 1000) for each in parts},
    }
    machine.show(machine.facts("bench/simulation_rate.py") | found, given.output)


if __name__ == "__main__":
    main()
