"""All recorded cases through a stream thread, which does not wait for wall-clock time (`continuous_engine`)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from compare import LeftOut
from continuous_engine import run_case
from run import load
from samples import sample

CASES = {case["file"]: case for case in load(Path(__file__).with_name("cases.tar.xz"))}
SAMPLE = {case["file"]: case for case in sample([*CASES.values()], 33)}


def test_the_sample_is_broad() -> None:
    assert {case["family"] for case in SAMPLE.values()} == {case["family"] for case in CASES.values()}


@pytest.mark.parametrize("name", SAMPLE)
def test_record_by_record(name: str) -> None:
    assert run_case(SAMPLE[name], None)[0] is None


@pytest.mark.parametrize("name", CASES)
def test_in_random_pieces(name: str) -> None:
    """Those that cannot be split run record by record (`continuous_engine`)."""
    try:
        difference, _ = run_case(CASES[name], 20_260_101)
    except LeftOut as reason:
        pytest.skip(str(reason))
    assert difference is None
