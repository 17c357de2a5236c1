"""Requests at random that a worker of Kafka Connect has answered (`rest_side_by_side.py`), beside ours.

Those of the archive change nothing but the offsets of connectors that are stopped, so that no answer depends on how fast tasks start. The life of connectors is in the
recorded scenarios (`test_connect_rest.py`).
"""

from pathlib import Path

import pytest

from connect_cases import load_cases
from connect_rest import Scenario

CASES = load_cases(Path(__file__).with_name("rest-found-cases.tar.xz"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_worker_answers_as_kafka_connects(case):
    assert Scenario(case).run() == []


def test_there_are_hundreds_of_requests():
    assert sum("request" in step for case in CASES for step in case["steps"]) > 800
