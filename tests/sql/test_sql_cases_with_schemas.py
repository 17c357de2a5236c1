"""A sample of the shared cases in formats with schemas, where they are there."""

import os
from pathlib import Path

import pytest

from penstock.sql.testing import load_cases, run_case

SHARED = Path(os.environ.get("PENSTOCK_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "sql" / "cases"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared cases are not here")
FORMATS = ("AVRO", "PROTOBUF", "JSON_SR")
SAMPLE = 6


def test_the_shared_cases_of_formats_with_schemas_pass():
    chosen = [case for case in load_cases(SHARED) if any(form in case.script.upper() for form in FORMATS)]
    outcomes = [run_case(case) for case in chosen[::SAMPLE] if case.refused is None]
    failed = [f"{o.case.area} - {o.case.name}: {o.reason[:200]}" for o in outcomes if not o.passed]
    assert len(outcomes) > 50
    assert len(failed) <= len(outcomes) // 20, "\n".join(failed)
