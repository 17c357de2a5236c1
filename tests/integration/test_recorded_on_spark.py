"""Recorded cases of every family through Spark, in stream threads and in micro-batches over the embedded log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

CONFORMANCE = Path(__file__).parents[1] / "conformance"
sys.path.insert(0, str(CONFORMANCE))

from batches import cut_in_order  # noqa: E402
from derived import derived  # noqa: E402
from run import load  # noqa: E402
from samples import sample  # noqa: E402
from spark_engine import has_one_input, is_comparable, results  # noqa: E402

CASES = list(load(CONFORMANCE / "cases.tar.xz"))
SAMPLE = {case["file"]: case for case in sample([case for case in CASES if is_comparable(case)], 28)}
# In threads, those with few records that have to come one by one; threads follow global tables at a pace of their own.
SHORT = [
    case
    for case in CASES
    if is_comparable(case)
    and (has_one_input(case) or len(case["inputs"]) <= 25)
    and not any(node["op"] in ("globalTable", "globalStore") for node in case["topology"])
]
IN_THREADS = {case["file"]: case for case in sample(SHORT, 20)}
# With the default cache, and with jumps in time: windows that close, sessions, suppressed tables, joins of streams.
TIMED = {
    text: [case for case in CASES if text in case["file"] and is_comparable(case)]
    for text in ("-close", "session", "suppress", "outer")
}


@pytest.fixture(scope="module")
def differences(spark: Any) -> dict[str, str | None]:
    """All cases are run at once, a few at a time: one after the other they would take three times as long."""
    del spark  # its session is the active one
    cached = [
        {**changed, "file": f"{case['file']}, cached"}
        for cases in TIMED.values()
        for case in cases[:4]
        if (changed := derived(case)) is not None and is_comparable(changed)
    ]
    return {case["file"]: difference for case, difference in results([*SAMPLE.values(), *cached])}


@pytest.fixture(scope="module")
def differences_in_threads(spark: Any) -> dict[str, str | None]:
    del spark
    return {case["file"]: difference for case, difference in results([*IN_THREADS.values()], "continuous")}


def test_the_sample_is_broad() -> None:
    assert {case["family"] for case in SAMPLE.values()} == {case["family"] for case in CASES}
    assert len(SAMPLE) >= 24
    assert {case["family"] for case in IN_THREADS.values()} == {case["family"] for case in CASES}
    assert sum(len(cut_in_order(case["inputs"])) > 1 for case in SAMPLE.values()) > len(SAMPLE) // 2


@pytest.mark.parametrize("name", SAMPLE)
def test_recorded_case(name: str, differences: dict[str, str | None]) -> None:
    assert differences[name] is None


def test_recorded_cases_with_a_cache_and_jumps_in_time(differences: dict[str, str | None]) -> None:
    cached = {name: text for name, text in differences.items() if name.endswith(", cached")}
    assert len(cached) >= 8
    assert {name: text for name, text in cached.items() if text is not None} == {}


@pytest.mark.parametrize("name", IN_THREADS)
def test_recorded_case_in_threads(name: str, differences_in_threads: dict[str, str | None]) -> None:
    assert differences_in_threads[name] is None
