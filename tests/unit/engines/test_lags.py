"""The lag that the driver shows after a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import StreamsBuilder
from penstock.engines.app_metrics import lag_behind, with_known_ends
from penstock.log.open import open_log
from penstock.metrics import PartitionLag
from penstock.topology.plan.plan import plan_of


def test_a_topic_that_is_deleted_for_a_moment_makes_the_lag_unknown_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        log.create_topic("in")
        builder = StreamsBuilder()
        builder.stream("in").to("out")
        plan = plan_of(builder.build(), "lags", {"in": 1, "out": 1})
        assert lag_behind(log, plan, {"in-0": 0}, 1) == {"in-0": 0}
        log.delete_topic("in")
        assert lag_behind(log, plan, {"in-0": 0}, 2) == {}
    assert "the lag after batch 2 is not known: there is no topic 'in'" in caplog.text


def test_a_thread_that_is_busy_knows_the_ends_of_its_last_fetch_and_the_driver_newer_ones() -> None:
    seen = [PartitionLag("in", number, 10, 500, None, 0.0, 0) for number in range(2)]
    known = with_known_ends({"in-0": 0, "inner-0": 3}, {"in-0": 100, "inner-0": 7}, seen)
    assert known == {"in-0": 400, "in-1": 490, "inner-0": 3}  # nothing is reported of in-1 yet
    assert with_known_ends({"in-0": 9}, {"in-0": 600, "in-1": 501}, seen) == {"in-0": 9, "in-1": 0}
