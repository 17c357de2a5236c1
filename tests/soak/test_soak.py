"""The soak in short: a fault that needs no new start of Spark, and one that does; `make test-all` adds another."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak import Soak
from soak_power import is_possible


@pytest.mark.parametrize("more", [[], pytest.param(["executor_killed_late"], marks=pytest.mark.whole)], ids=str)
def test_nothing_lost_and_nothing_double(more: list[str], tmp_path: Path) -> None:
    soak = Soak(tmp_path, seed=11)
    ended = "power_cut" if is_possible() else "driver_killed"
    faults = [*more, "broker_restarted", ended]
    assert soak.run(len(faults), faults) == []
    assert "indeterminate output" not in (tmp_path / "app.log").read_text()  # Spark would give the query up for it
    assert sorted(str(row["fault"]) for row in soak.rounds) == sorted(faults)
