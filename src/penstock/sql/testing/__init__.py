"""Tests of statements: cases in ksqlDB's own format, and files of statements with ASSERT, in a `TopologyTestDriver`."""

from __future__ import annotations

from penstock.sql.testing.cases import SqlCase, case_of_files, load_cases
from penstock.sql.testing.engine import CaseOutcome, run_case, run_rest_case
from penstock.sql.testing.script_tests import ScriptOutcome, ScriptTest, load_script_tests, run_script_test

__all__ = [
    "CaseOutcome",
    "ScriptOutcome",
    "ScriptTest",
    "SqlCase",
    "case_of_files",
    "load_cases",
    "load_script_tests",
    "run_case",
    "run_rest_case",
    "run_script_test",
]
