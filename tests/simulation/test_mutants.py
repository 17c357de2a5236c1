"""Proof that simulations find faults: those that were in production code are put back one by one, and found."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, count

import pytest

from mutants import MUTANTS, Mutant
from penstock.testing.simulation.run import run
from simulated_records import run_records
from simulated_topologies import inputs_of, plan_of


def violations(mutant: Mutant, seed: int) -> list[str]:
    if mutant.is_of_records:
        return run_records(seed).violations
    name = mutant.shown_by[seed % len(mutant.shown_by)]
    layout = mutant.layout(seed)
    if mutant.is_shared:
        layout = replace(layout, is_embedded=True, instances=2)
    return run(plan_of(name), inputs_of(name, seed), seed, mutant.faults(seed), layout).violations


RARE = 400  # a fault that more seeds may be needed for is looked for by `make test-all`


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(each, marks=[pytest.mark.whole] if each.most_seeds > RARE else [], id=str(each)) for each in MUTANTS],
)
def test_a_fault_that_was_mended_is_found(mutant: Mutant) -> None:
    assert mutant.has_place(), f"{'.'.join(mutant.where)} has changed: write this fault anew in mutants.py"
    with mutant.put_back():
        for tries, seed in enumerate(chain([mutant.first_seed], count())):
            if violations(mutant, seed):
                break
            assert tries < mutant.most_seeds, "it is not found"
    assert violations(mutant, seed) == [], f"seed {seed} fails without the fault, too"


def test_each_fault_has_its_place_in_the_source() -> None:
    assert [mutant.name for mutant in MUTANTS if not mutant.has_place()] == []


def test_a_fault_whose_place_is_gone_is_not_passed_over() -> None:
    gone = Mutant("gone", (MUTANTS[0].where[0], "StreamThread.commit"), "what no source has", "pass")
    assert not gone.has_place()
    with pytest.raises(AssertionError, match="write this fault anew"):
        test_a_fault_that_was_mended_is_found(gone)
