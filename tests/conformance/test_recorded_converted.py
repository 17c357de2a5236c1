"""Recorded cases of every family that run partly in micro-batches and partly in a stream thread, converted in between."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from converted_engine import run_case
from run import load
from samples import sample
from spark_engine import is_comparable

CASES = list(load(Path(__file__).with_name("cases.tar.xz")))
FITTING = [
    case for case in CASES
    if is_comparable(case) and not any("error" in row for rows in case["outputs"] for row in rows)
]  # fmt: skip
SAMPLE = {case["file"]: case for case in sample(FITTING, 66)}
FIRST = {name: ("micro_batch", "continuous")[number % 2] for number, name in enumerate(SAMPLE)}
# A changelog of a versioned store cannot be written from its rows.
UNLOGGED = {case["file"]: case for case in sample(FITTING, 22) if "ersioned" not in str(case["topology"])}


def test_the_sample_is_broad() -> None:
    assert {case["family"] for case in SAMPLE.values()} == {case["family"] for case in CASES}
    assert len(SAMPLE) >= 60


@pytest.mark.parametrize("name", SAMPLE)
def test_in_three_parts(name: str) -> None:
    assert run_case(SAMPLE[name], FIRST[name]) is None


@pytest.mark.parametrize(
    "case", [case for case in FITTING if "table-cached" in case["file"]], ids=lambda case: case["file"]
)
def test_tables_behind_a_cache_in_three_parts(case: dict[str, Any]) -> None:
    assert run_case(case, "micro_batch") is None


@pytest.mark.parametrize("name", UNLOGGED)
def test_from_micro_batches_without_changelogs(name: str) -> None:
    assert run_case(UNLOGGED[name], "micro_batch", **{"penstock.changelog.enabled": False}) is None
