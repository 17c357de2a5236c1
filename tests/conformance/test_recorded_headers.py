"""Serdes that read and write record headers in every operator, recorded from Kafka Streams 4.3.1 with both store formats."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import continuous_engine
from compare import LeftOut
from run import load, run_driver
from samples import sample

CASES = {case["file"]: case for case in load(Path(__file__).with_name("cases-headers.tar.xz"))}
IN_THREADS = {case["file"]: case for case in sample([*CASES.values()], 12)}


def test_both_formats_are_there() -> None:
    formats = {case["config"]["dsl.store.format"] for case in CASES.values()}
    assert formats == {"DEFAULT", "HEADERS"}
    assert len(CASES) > 60


@pytest.mark.parametrize("name", CASES)
def test_one_by_one(name: str) -> None:
    assert run_driver(CASES[name], None)[0] is None


@pytest.mark.parametrize("name", IN_THREADS)
def test_in_a_thread(name: str) -> None:
    try:
        difference, _ = continuous_engine.run_case(IN_THREADS[name], None)
    except LeftOut as reason:
        pytest.skip(str(reason))
    assert difference is None
