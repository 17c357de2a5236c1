"""Cases of pull and push queries: those of this project, and a sample of the shared ones where they are there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.sql.testing import SqlCase, load_cases, run_rest_case

OWN = Path(__file__).parent.parent / "query_cases"
SHARED = Path(os.environ.get("PENSTOCK_SHARED", Path(__file__).resolve().parents[4] / "shared")) / "sql" / "rest-cases"
CASES = list(load_cases(OWN))


@pytest.mark.parametrize("case", CASES, ids=[f"{case.area}-{case.name}".replace(" ", "-") for case in CASES])
def test_a_case_of_this_project(case: SqlCase) -> None:
    outcome = run_rest_case(case)
    assert outcome.passed, outcome.reason
    if case.refused is not None:
        assert case.refused["message"] in outcome.reason
        assert "^" in outcome.reason, "the message shows the place"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared cases are not here")
def test_nineteen_in_twenty_of_the_shared_cases_pass() -> None:
    outcomes = [run_rest_case(case) for case in load_cases(SHARED)]
    failed = [f"{o.case.area} - {o.case.name}: {o.reason[:200]}" for o in outcomes if not o.passed]
    assert len(outcomes) > 200
    assert len(failed) <= len(outcomes) // 20, "\n".join(failed)
    assert not [outcome for outcome in outcomes if outcome.crashed]
