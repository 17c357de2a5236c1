"""Recorded cases with the default cache and jumps in time, in threads and in micro-batches; `make test-all` runs all of them on Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import continuous_engine
import converted_engine
from compare import is_of_the_driver
from derived import CACHE_BYTES, JUMP_MS, derived
from run import load
from samples import sample
from spark_engine import is_comparable

CASES = list(load(Path(__file__).with_name("cases.tar.xz")))
KINDS = ("window", "session", "suppress", '"join"')
TIMED = [case for case in CASES if any(kind in str(case["topology"]).replace("'", '"') for kind in KINDS)]
CLOSING = [case for case in TIMED if "on_window_close" in str(case["topology"])]
SAMPLE = {
    case["file"]: case
    for cases in (TIMED, CLOSING)
    for case in sample([case for case in cases if is_comparable(case)], 20)
}


@pytest.fixture(params=SAMPLE)
def case(request: Any) -> dict[str, Any]:
    found = derived(SAMPLE[request.param])
    if found is None or is_of_the_driver(found):
        pytest.skip("the case fails, or shows every change")
    return found


def test_the_sample_has_a_cache_and_jumps() -> None:
    found = [each for each in map(derived, SAMPLE.values()) if each is not None]
    assert len(found) > 20
    assert all(each["config"]["statestore.cache.max.bytes"] == CACHE_BYTES for each in found)
    assert all(max(r["timestamp"] for r in each["inputs"]) > JUMP_MS for each in found if len(each["inputs"]) > 2)
    assert any("on_window_close" in str(each["topology"]) and any(each["outputs"]) for each in found)


def test_in_a_thread(case: dict[str, Any]) -> None:
    assert continuous_engine.run_case(case, None)[0] is None


def test_in_micro_batches_and_a_thread(case: dict[str, Any]) -> None:
    assert converted_engine.run_case(case, "micro_batch") is None
