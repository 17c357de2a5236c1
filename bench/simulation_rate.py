"""How many schedules a second simulations run: the topologies of `tests/simulation`, faults and layouts as each seed draws them.

    python bench/simulation_rate.py [--seeds 20] [--first 50] [--records 36] [--processes 2] [--output FILE]

A schedule is a run of a whole application with its checks. ``a_cpu_second`` is what one core does that has nothing else to do; ``a_second``
is by the clock on the wall, of all processes together.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import machine

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/simulation"))

from schedules import parts


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("seeds", 20), ("first", 50), ("records", 36), ("processes", 2)):
        arguments.add_argument(f"--{name}", type=int, default=default)
    arguments.add_argument("--output", type=Path)
    given = arguments.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    began = time.perf_counter()
    done = list(parts(seeds, given.records, given.processes, len(seeds)))
    seconds = time.perf_counter() - began
    runs, cpu_s = sum(each.runs for each in done), sum(each.cpu_s for each in done)
    found = {
        "runs": runs,
        "failed": sum(len(each.failed) for each in done),
        "a_second": round(runs / seconds, 2),
        "a_cpu_second": round(runs / cpu_s, 2),
        "cpu_ms_a_run": {
            each.topology: round(each.cpu_s / each.runs * 1000) for each in sorted(done, key=lambda each: each.topology)
        },
    }
    machine.show(machine.facts("bench/simulation_rate.py") | found, given.output)


if __name__ == "__main__":
    main()
