"""The recorded cases of Kafka Streams 4.4.0: exception handlers, headers in stores, queries, and what else is new."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from interpreter import check_describe
from run import load, run_driver

CASES = {case["file"]: case for case in load(Path(__file__).with_name("cases-44.tar.xz"))}


def test_all_families_are_there() -> None:
    families = {case["family"] for case in CASES.values()}
    assert families == {"11-exception-handlers", "12-headers-in-stores", "13-interactive-queries", "14-new-in-4.x"}


@pytest.mark.parametrize("name", CASES)
def test_one_by_one(name: str) -> None:
    assert run_driver(CASES[name], None)[0] is None


def test_descriptions() -> None:
    differences = {name: check_describe(case) for name, case in CASES.items() if "describe" in case}
    assert {name: text for name, text in differences.items() if text} == {}
