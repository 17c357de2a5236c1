"""Run cases in ksqlDB's format, and print how many pass, by area.

python tests/sql/run.py DIR [--rest DIR] [-k TEXT] [--json FILE] [-v]
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import java_functions

from penstock.sql.functions import UserFunctions
from penstock.sql.testing import CaseOutcome, SqlCase, load_cases, run_case, run_rest_case


def main(arguments: list[str]) -> int:
    """Run the cases that are named; the result is 0 if all pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder of cases, or one file")
    parser.add_argument("--rest", type=Path, help="a folder of cases of pull and push queries")
    parser.add_argument("-k", default="", help="run only cases with this text in area and name")
    parser.add_argument("--json", type=Path, help="write each outcome to this file")
    parser.add_argument("-v", action="store_true", help="print the reasons of failures")
    given = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    outcomes: list[CaseOutcome] = []
    functions = UserFunctions()
    functions.add(java_functions)
    for folder, run in ((given.folder, run_case), (given.rest, run_rest_case)):
        some = [] if folder is None else [c for c in load_cases(folder) if given.k.lower() in named(c)]
        found = [run(case, functions) for case in some]
        for outcome in found:
            if given.v and not outcome.passed:
                print(f"{outcome.case.area} | {outcome.case.name} | {outcome.reason}")
        if found:
            print(f"-- {folder}")
            report(found)
        outcomes += found
    if given.json:
        given.json.write_text(json.dumps([_plain(outcome) for outcome in outcomes], indent=1), encoding="utf-8")
    failed = sum(not outcome.passed for outcome in outcomes)
    print(f"{sum(outcome.passed for outcome in outcomes)} passed, {failed} failed")
    return 1 if failed else 0


def named(case: SqlCase) -> str:
    """The name of a case in lower case, with that of its file."""
    return f"{case.area} - {case.name}".lower()


def report(outcomes: list[CaseOutcome]) -> None:
    """Print the counts by area, and of refusals."""
    areas: dict[str, Counter[bool]] = defaultdict(Counter)
    for outcome in outcomes:
        areas[outcome.case.area][outcome.passed] += 1
    for area, counts in sorted(areas.items()):
        print(f"{area:32} {counts[True]:4} of {counts.total():4}")
    formats = ("AVRO", "PROTOBUF", "JSON_SR")
    for word, refused, registry in (
        ("plain formats", False, False),
        ("registry formats", False, True),
        ("refusals", True, None),
    ):
        some = [
            outcome
            for outcome in outcomes
            if (outcome.case.refused is not None) == refused
            and (registry is None or any(form in outcome.case.script.upper() for form in formats) == registry)
        ]
        print(f"{word:32} {sum(outcome.passed for outcome in some):4} of {len(some):4}")
    refused_ones = [outcome for outcome in outcomes if outcome.case.refused is not None and outcome.passed]
    print(f"{'refusals with the same cause':32} {sum(outcome.same_cause for outcome in refused_ones):4}")


def _plain(outcome: CaseOutcome) -> dict[str, object]:
    return {
        "area": outcome.case.area,
        "name": outcome.case.name,
        "passed": outcome.passed,
        "refusal": outcome.case.refused is not None,
        "same_cause": outcome.same_cause,
        "crashed": outcome.crashed,
        "reason": outcome.reason,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
