"""Cases in ksqlDB's format: those of this project, and a sample of the shared ones where they are there."""

import os
from pathlib import Path

import java_functions
import pytest

from penstock.sql.functions import UserFunctions
from penstock.sql.testing import load_cases, run_case

OWN = Path(__file__).parent / "cases"
SHARED = Path(os.environ.get("PENSTOCK_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "sql" / "cases"
REGISTRY = ("AVRO", "PROTOBUF", "JSON_SR")
SAMPLE = 3  # every third: the whole takes some 20 s; tests/sql/run.py runs all
CASES = list(load_cases(OWN))
FUNCTIONS = UserFunctions()
FUNCTIONS.add(java_functions)  # of the model's test jars


@pytest.mark.parametrize("case", CASES, ids=[f"{case.area}-{case.name}".replace(" ", "-") for case in CASES])
def test_a_case_of_this_project(case):
    outcome = run_case(case, FUNCTIONS)
    assert outcome.passed, outcome.reason
    if case.refused is not None:
        assert case.refused["message"] in outcome.reason
        assert "^" in outcome.reason, "the message shows the place"


def test_the_names_of_cases_are_unique():
    names = [(case.area, case.name) for case in CASES]
    assert len(set(names)) == len(names) >= 400


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared cases are not here")
def test_the_shared_cases_of_formats_without_registry_pass():
    chosen = [case for case in load_cases(SHARED) if not any(word in case.script.upper() for word in REGISTRY)]
    outcomes = [run_case(case, FUNCTIONS) for case in chosen[::SAMPLE] if case.refused is None]
    failed = [f"{o.case.area} - {o.case.name}: {o.reason[:200]}" for o in outcomes if not o.passed]
    assert len(outcomes) > 200
    assert len(failed) <= len(outcomes) // 100, "\n".join(failed)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared cases are not here")
def test_statements_that_the_model_refuses_are_refused_with_the_same_cause():
    refused = [case for case in load_cases(SHARED) if case.refused is not None]
    outcomes = [run_case(case, FUNCTIONS) for case in refused[::SAMPLE]]
    missed = [f"{o.case.area} - {o.case.name}: {o.reason[:200]}" for o in outcomes if not o.passed]
    assert len(missed) <= len(outcomes) // 10, "\n".join(missed)
    assert sum(o.same_cause for o in outcomes) >= len(outcomes) * 8 // 10
