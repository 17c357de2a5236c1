"""The soak in short: one round of each fault that needs no new start of Spark, and one that does."""

from __future__ import annotations

from pathlib import Path

from soak import Soak
from soak_power import is_possible


def test_nothing_lost_and_nothing_double(tmp_path: Path) -> None:
    soak = Soak(tmp_path, seed=11)
    ended = "power_cut" if is_possible() else "driver_killed"
    faults = ["broker_restarted", ended]
    assert soak.run(len(faults), faults) == []
    assert "indeterminate output" not in (tmp_path / "app.log").read_text()  # Spark would give the query up for it
    assert sorted(str(row["fault"]) for row in soak.rounds) == sorted(faults)
