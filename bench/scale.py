"""What grows with the number of partitions, keys and bytes, and how fast.

python bench/scale.py partitions [--counts 8 64 256 1000] [--shapes map count regrouped] [--log sqlite|kafka]
python bench/scale.py bytes [--records 1000] [--log sqlite|kafka]
python bench/scale.py handover [--counts 8 64 256 1000]
python bench/scale.py threads [--cases partitions levels topics bytes keys queries] [--sizes N ...] [--log sqlite|kafka]
python bench/scale.py ... --label before     (a name beside which other runs stay in the results)

Each scenario is a file of its own, `scale_<name>.py`, with a docstring, ``arguments(parser)``, and ``run(given)``, which
gives what goes into the results. Each measurement runs in a process of its own, so that one cannot disturb the next.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine

SCENARIOS = ("partitions", "bytes", "handover", "threads")
RESULTS = Path(__file__).parent / "results" / "scale.json"


def alone(work: Callable[..., Any], *given: Any, timeout_s: float) -> Any:
    """What the work gives, done in a process of its own; a note in its place when it takes too long or fails."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(there, work, given))
    process.start()
    there.close()
    try:
        return here.recv() if here.poll(timeout_s) else {"given": str(given), "gave_up_after_s": timeout_s}
    except EOFError:
        return {"given": str(given), "failed": True}
    finally:
        process.join(30)
        process.kill()
        process.join()


def _call(there: Any, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    there.send(work(*given))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--label", default="now")
    parser.add_argument("--output", type=Path, default=RESULTS)
    chosen = parser.add_subparsers(dest="scenario", required=True)
    modules = {}
    for name in SCENARIOS:
        modules[name] = importlib.import_module(f"scale_{name}")
        modules[name].arguments(chosen.add_parser(name, help=modules[name].__doc__))
    given = parser.parse_args()
    report = {"facts": machine.facts("bench/scale.py"), "runs": modules[given.scenario].run(given)}
    results = json.loads(given.output.read_text()) if given.output.exists() else {}
    results.setdefault(given.scenario, {}).setdefault(given.label, []).append(report)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
