"""How the tests of random topologies search, and how a case that they have found is run again.

``PENSTOCK_EXAMPLES=2000`` searches long, each time elsewhere; without it the search is short and always the same
(`make test-all` searches 100).
``PENSTOCK_CASE=file.json`` runs that one case, at every split from 0 to 9.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from dice import drawn, seeded
from families import available
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from random_cases import random_case

__all__ = ["cases", "searching"]

Case = dict[str, Any]
_USUAL = 40


def searching(
    share: float, without: frozenset[str] = frozenset()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs a test of (case, seed of the batches) with random ones.

    Args:
        share: Of the usual number of examples.
        without: Families of operators that are left out.
    """
    given_case, long = os.environ.get("PENSTOCK_CASE"), os.environ.get("PENSTOCK_EXAMPLES")
    examples = max(1, round(share * int(long or _USUAL)))

    def wrap(test: Callable[..., None]) -> Callable[..., None]:
        if given_case:
            case = json.loads(Path(given_case).read_text())
            return pytest.mark.parametrize(("case", "split"), [(case, split) for split in range(10)])(test)

        @wraps(test)
        def noted(case: Case, split: int) -> None:
            note(f"split {split} of\n{json.dumps(case)}")
            test(case=case, split=split)

        searched = given(case=_random_cases(without), split=st.integers(0, 1000))(noted)
        return settings(
            max_examples=examples,
            deadline=None,
            derandomize=not long,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        )(searched)

    return wrap


@st.composite
def _random_cases(draw: Callable[[Any], Any], without: frozenset[str]) -> Case:
    return random_case(drawn(draw), available() - without)


def cases(count: int) -> list[Case]:
    """Some cases of seeds."""
    return [random_case(seeded(seed), available()) for seed in range(count)]
