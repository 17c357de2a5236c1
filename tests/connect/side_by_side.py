#!/usr/bin/env python3
"""Runs random cases through Kafka Connect's own classes and through this project's, and compares.

``side_by_side.py --cases 5000`` runs so many of each family, ``--family cast,json`` of these; ``--seed`` is the first seed. It
prints how many agree, and of those that do not one example of each kind. ``--record FILE`` takes the names of cases
(``cast-17``) and writes them with Java's outcomes into an archive, which `test_side_by_side.py` runs.
"""

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from connect_cases import write_archive
from connect_compare import differences, plain, same_value
from connect_pure import run_case
from connect_random import FAMILIES, random_case
from java_judge import JavaJudge

PIECE = 500


def sharpened(problem):
    """A difference between two documents as the first place where they differ."""
    head, _, rest = problem.partition(": ")
    try:
        actual, expected = (json.loads(part) for part in rest.split(" in place of "))
    except ValueError:
        return problem
    found = differences(untagged(expected), untagged(actual))
    found = [each for each in found if not is_same(each)]
    return f"{head}: {found[0] if found else problem}"


def is_same(difference):
    """Whether it is one of numbers that are the same as floats of 32 bits, or as text and number."""
    match = re.search(r"(\S+) expected, got (\S+)$", difference)
    try:
        return match is not None and same_value(float(match[1].strip("'")), float(match[2].strip("'")))
    except ValueError:
        return False


def untagged(value):
    """A document whose tags are not taken for the matchers of REST's cases."""
    if isinstance(value, dict):
        return (
            {key.replace("$", "@"): untagged(part) for key, part in plain(value).items()}
            if isinstance(plain(value), dict)
            else plain(value)
        )
    return [untagged(part) for part in value] if isinstance(value, list) else value


def kind_of(problem):
    """What a difference is, without its values."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\d+|\[[^\]]*\]|\([^)]*\)|\{.*\}", "_", problem)[:150]


def compare(judge, family, seeds, shown):
    """The number of cases and steps that agree, and the differences by their kind."""
    steps, kinds, examples = 0, Counter(), {}
    different = set()
    for start in range(0, len(seeds), PIECE):
        for case in judge.judged([random_case(family, seed) for seed in seeds[start : start + PIECE]]):
            steps += len(case["steps"])
            for problem in map(sharpened, run_case(case)):
                different.add(case["name"])
                kind = kind_of(problem)
                kinds[kind] += 1
                examples.setdefault(kind, (case, problem))
    print(f"{family}: {len(seeds) - len(different)} of {len(seeds)} cases agree ({steps} steps)", flush=True)
    for kind, count in kinds.most_common(shown):
        case, problem = examples[kind]
        print(f"  {count} x {problem[:1200]}\n    {case['name']} {case.get('class')} {json.dumps(case['config'])}")
        number = re.match(r"step (\d+)", problem)
        if number:
            print(f"    {json.dumps(case['steps'][int(number[1])])[:2500]}")
    return not different


def record(judge, names, file):
    """Write cases with their outcomes."""
    cases = judge.judged([random_case(*split(name)) for name in names])
    write_archive(
        file, ((f"{case['kind']}s/{case['name']}.json", (json.dumps(case) + "\n").encode()) for case in cases)
    )


def split(name):
    family, _, seed = name.partition("-")
    return family, int(seed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="cases to show or to record")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", default=",".join(FAMILIES))
    parser.add_argument("--shown", type=int, default=5, help="examples of differences for each family")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, JavaJudge(folder) as judge:
        if options.record:
            record(judge, options.names, options.record)
            return 0
        seeds = range(options.seed, options.seed + options.cases)
        agree = [compare(judge, family, seeds, options.shown) for family in options.family.split(",")]
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
