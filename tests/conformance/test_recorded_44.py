"""The recorded cases of Kafka Streams 4.4.0: exception handlers, headers in stores, queries, and what else is new."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import continuous_engine
from batches import is_split_invariant
from compare import LeftOut, is_of_the_driver
from derived import derived
from interpreter import check_describe
from run import load, run_driver
from samples import sample

CASES = {case["file"]: case for case in load(Path(__file__).with_name("cases-44.tar.xz"))}
IN_THREADS = {case["file"]: case for case in sample([*CASES.values()], 48)}
WITH_JUMPS = {case["file"]: case for case in sample([*CASES.values()], 24)}
# Where a record fails, what is left of its work depends on the operator: joins, windows, what waits, what a log refuses.
FAILING = ("h-joins", "h-suppress", "o-send-too-large-resume", "p-ss-", "p-st-grace", "p-tt-")
IN_BATCHES = {case["file"]: case for case in sample([*CASES.values()], 80) if is_split_invariant(case)} | {
    name: case for name, case in CASES.items() if name.partition("__")[2].startswith(FAILING)
}


def test_all_families_are_there() -> None:
    families = {case["family"] for case in CASES.values()}
    assert families == {"11-exception-handlers", "12-headers-in-stores", "13-interactive-queries", "14-new-in-4.x"}


@pytest.mark.parametrize("name", CASES)
def test_one_by_one(name: str) -> None:
    assert run_driver(CASES[name], None)[0] is None


@pytest.mark.parametrize("name", IN_BATCHES)
def test_in_random_batches(name: str) -> None:
    assert run_driver(IN_BATCHES[name], 1)[0] is None


def difference_in_a_thread(case: dict[str, Any]) -> str | None:
    try:
        return continuous_engine.run_case(case, None)[0]
    except LeftOut as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", IN_THREADS)
def test_in_a_thread(name: str) -> None:
    assert difference_in_a_thread(IN_THREADS[name]) is None


@pytest.mark.parametrize("name", WITH_JUMPS)
def test_in_a_thread_with_a_cache_and_jumps_in_time(name: str) -> None:
    case = derived(WITH_JUMPS[name])
    if case is None or is_of_the_driver(case):
        pytest.skip("the case fails, or shows every change")
    assert difference_in_a_thread(case) is None


def test_each_family_has_cases_with_a_cache_and_jumps_also_those_with_queries() -> None:
    found = [case for case in map(derived, WITH_JUMPS.values()) if case is not None]
    assert {case["family"] for case in found} == {case["family"] for case in CASES.values()}
    assert not any("query" in record for case in found for record in case["inputs"])


def test_descriptions() -> None:
    differences = {name: check_describe(case) for name, case in CASES.items() if "describe" in case}
    assert {name: text for name, text in differences.items() if text} == {}
