"""Requests at random that a worker of Kafka Connect has answered (`rest_side_by_side.py`), beside ours: some of each family."""

from pathlib import Path

import pytest

from connect_cases import load_cases
from connect_rest import Scenario

CASES = load_cases(Path(__file__).with_name("rest-found-cases.tar.xz"))
SOONER = ("edges", "looks")  # they change nothing, so they are fast
SAMPLE = ("life-2", "life-13", "pair-14", "together-10")


def param(case):
    is_sample = case["family"] in SOONER or case["name"] in SAMPLE
    return pytest.param(case, id=case["name"], marks=() if is_sample else pytest.mark.whole)


@pytest.mark.parametrize("case", [param(case) for case in CASES])
def test_a_worker_answers_as_kafka_connects(case):
    assert Scenario(case, most_sleep_ms=300).run() == []


def test_there_are_hundreds_of_requests():
    steps = [step for case in CASES for step in case["steps"]]
    assert sum("request" in step or "together" in step for step in steps) > 1000
