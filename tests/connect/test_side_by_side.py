"""Cases at random that Kafka Connect's own classes have judged: those that once differed here, and some of each family.

``side_by_side.py --record found-cases.tar.xz NAME...`` makes the archive anew, by the names of its cases.
"""

from pathlib import Path

import pytest

from connect_cases import load_cases
from connect_pure import run_case

CASES = load_cases(Path(__file__).with_name("found-cases.tar.xz"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_case_at_random(case):
    assert run_case(case) == []
