"""Recorded cases of every family through a stream thread; `make test-all` runs all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from continuous_engine import run_case
from run import load
from samples import sample

CASES = list(load(Path(__file__).with_name("cases.tar.xz")))
SAMPLE = {case["file"]: case for case in sample(CASES, 33)}


def test_the_sample_is_broad() -> None:
    assert {case["family"] for case in SAMPLE.values()} == {case["family"] for case in CASES}


@pytest.mark.parametrize("name", SAMPLE)
def test_record_by_record(name: str) -> None:
    assert run_case(SAMPLE[name], None)[0] is None


@pytest.mark.parametrize("name", SAMPLE)
def test_in_random_pieces(name: str) -> None:
    assert run_case(SAMPLE[name], 20_260_101)[0] is None
