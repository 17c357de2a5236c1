"""Proof that simulations find faults: those that were in production code are put back one by one, and found."""

from __future__ import annotations

from itertools import count, cycle

import pytest

from mutants import MUTANTS, Mutant
from penstock.testing.simulation.simulate import simulate_seed
from simulated_topologies import inputs_of, plan_of

RARE = 400  # a fault that more seeds may be needed for is looked for by `make test-all`


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(each, marks=[pytest.mark.whole] if each.most_seeds > RARE else [], id=str(each)) for each in MUTANTS],
)
def test_a_fault_that_was_mended_is_found(mutant: Mutant) -> None:
    if not mutant.has_place():
        pytest.skip("the source has changed: write it anew")
    with mutant.put_back():
        for seed, name in zip(count(), cycle(mutant.shown_by)):
            if simulate_seed(plan_of(name), inputs_of(name, seed), seed).violations:
                break
            assert seed < mutant.most_seeds, "it is not found"


@pytest.mark.whole
def test_each_fault_has_its_place_in_the_source() -> None:
    assert [mutant.name for mutant in MUTANTS if not mutant.has_place()] == []
