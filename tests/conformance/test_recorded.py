"""The recorded cases of Kafka Streams 4.3.1 that Penstock reproduces."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from interpreter import check_describe
from run import load, run_driver

CASES = {case["file"]: case for case in load(Path(__file__).with_name("cases.tar.xz"))}


@pytest.mark.parametrize("name", CASES)
def test_one_by_one(name: str) -> None:
    assert run_driver(CASES[name], None)[0] is None


@pytest.mark.parametrize("name", CASES)
def test_in_random_batches(name: str) -> None:
    assert run_driver(CASES[name], 20_260_101)[0] is None


def test_descriptions() -> None:
    differences = {name: check_describe(case) for name, case in CASES.items()}
    assert {name: text for name, text in differences.items() if text} == {}
