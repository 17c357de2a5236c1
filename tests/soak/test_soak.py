"""The soak in short: a round with a fault that needs no new start of Spark; `make test-all` adds one that does."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak import Soak
from soak_power import is_possible

ENDED = "power_cut" if is_possible() else "driver_killed"


@pytest.mark.whole
@pytest.mark.parametrize(
    "faults",
    [["broker_restarted"], ["executor_killed_late", "broker_restarted", ENDED]],
    ids=lambda faults: str(len(faults)),
)
def test_nothing_lost_and_nothing_double(faults: list[str], tmp_path: Path) -> None:
    soak = Soak(tmp_path, seed=11)
    assert soak.run(len(faults), faults) == []
    assert "indeterminate output" not in (tmp_path / "app.log").read_text()  # Spark would give the query up for it
    assert sorted(str(row["fault"]) for row in soak.rounds) == sorted(faults)
