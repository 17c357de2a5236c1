"""The recorded transforms, converters and mirror's parts of Kafka Connect, all of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from connect_cases import load_cases
from connect_mirror import run_mirror
from connect_pure import run_case

CASES = [case for kind in ("transforms", "converters") for case in load_cases(kind=kind)]


MIRROR = load_cases(kind="mirror")


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_recorded_case(case):
    assert run_case(case) == []


@pytest.mark.parametrize("case", MIRROR, ids=[case["name"] for case in MIRROR])
def test_recorded_case_of_the_mirror(case):
    assert run_mirror(case) == []


def test_the_runner_counts_and_fails(tmp_path):
    case = next(case for case in CASES if case["name"] == "hoistfield-value")
    (tmp_path / "good.json").write_text(json.dumps(case))
    wrong = {**case, "name": "wrong", "steps": [{**case["steps"][0], "out": None}]}
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    command = [sys.executable, str(Path(__file__).with_name("run.py")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("FAILED transform/wrong")
    assert lines[-1] == "1 passed, 1 failed"
