"""Leases and journals in simulations: one start at a time has the lease, and no statement is lost or stored twice."""

from __future__ import annotations

import pytest

from simulated_records import run_records


@pytest.mark.parametrize("seeds", [range(20), range(20, 40), range(220, 240)])  # 233: the lease is lost meanwhile
def test_leases_and_journals_hold_whatever_happens(seeds: range) -> None:
    for run in map(run_records, seeds):
        assert run.violations == [], run.story()


@pytest.mark.whole
def test_leases_and_journals_hold_in_many_schedules() -> None:
    for run in map(run_records, range(1_000, 4_000)):
        assert run.violations == [], run.story()


def test_a_seed_of_leases_has_one_story() -> None:
    assert run_records(3).story() == run_records(3).story()
