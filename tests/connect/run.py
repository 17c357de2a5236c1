#!/usr/bin/env python3
"""Runs recorded cases of Kafka Connect: run.py [DIR] [--kind KIND] [--log LOG] [--json FILE].

It prints a line a failed case, and ends in ``N passed, M failed``. Kinds that are not built yet are named and not counted.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from connect_cases import ARCHIVE, KINDS, load_cases
from connect_mirror import run_mirror
from connect_pure import run_case

BUILT = ("transform", "converter", "mirror")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", nargs="?", default=ARCHIVE, help="a folder of cases; by default the project's own")
    parser.add_argument("--kind", choices=tuple(KINDS))
    parser.add_argument(
        "--log", choices=("kafka", "embedded"), default="embedded", help="the log under a worker's cases"
    )
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    cases = load_cases(options.dir, options.kind)
    waiting = Counter(case["kind"] for case in cases if case["kind"] not in BUILT)
    for kind, count in waiting.items():
        print(f"{kind}: not built yet, {count} cases left out")
    results = []
    for case in cases:
        if case["kind"] in BUILT:
            found = run_mirror(case) if case["kind"] == "mirror" else run_case(case)
            results.append({"kind": case["kind"], "name": case["name"], "passed": not found, "differences": found})
            if found:
                print(f"FAILED {case['kind']}/{case['name']}: {found[0][:600]}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    failed = sum(not result["passed"] for result in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
