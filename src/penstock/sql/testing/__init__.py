"""Cases in ksqlDB's own format: statements, inputs, the outputs that they must have, run in a `TopologyTestDriver`."""

from __future__ import annotations

from penstock.sql.testing.cases import Case, load_cases
from penstock.sql.testing.engine import Outcome, run_case
from penstock.sql.testing.rest import run_rest_case

__all__ = ["Case", "Outcome", "load_cases", "run_case", "run_rest_case"]
