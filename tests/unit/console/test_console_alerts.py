from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.console.alerts import Alert, AlertLog, alerts_of
from penstock.console.app_view import BatchLine, Picture

NOW = 1_790_000_000_000


def lines(count: int, every_ms: int = 1000, **changes: Any) -> list[Any]:
    """Batches up to now; a callable value gets the number of the batch."""
    facts = {
        "seconds": 0.4,
        "records_in": 100,
        "records_out": 10,
        "dropped": 0,
        "lag": 0,
        "skew": 1.0,
        "segment_bytes": 0,
        "steps": {},
    }
    found = []
    for n in range(count):
        given = {name: value(n) if callable(value) else value for name, value in changes.items()}
        found.append(BatchLine(n, NOW - (count - 1 - n) * every_ms, **{**facts, **given}).row())
    return found


def behind(lag: int, seconds: float | None = None, kept: tuple[int, int] = (0, 1000)) -> dict[str, Any]:
    measured = {} if seconds is None else {"orders-0": seconds}
    return {
        "behind": {"lag": {"orders-0": lag}, "seconds": measured, "beginnings": {"orders-0": list(kept)}},
        "positions": {"orders-0": kept[1] - lag},
    }


def names(**document: Any) -> list[str]:
    return [
        alert.name
        for alert in alerts_of(
            Picture({"state": "RUNNING", "started_ms": NOW - 3_600_000, "written_ms": NOW, **document}), NOW
        )
    ]


def test_an_application_that_keeps_up_has_no_alert() -> None:
    assert names(lines=lines(100), **behind(0)) == []
    assert names(lines=lines(100, lag=50), **behind(50, 2.0)) == []


def test_it_is_stuck_when_records_wait_and_no_batch_has_ended_for_a_minute() -> None:
    old = [[row[0], row[1] - 61_000, *row[2:]] for row in lines(10)]
    assert names(lines=old, **behind(5, 3.0)) == ["stuck"]
    assert names(lines=old, **behind(0)) == []
    slow = [[row[0], row[1], 30.0, *row[3:]] for row in old]
    assert names(lines=slow, **behind(5, 3.0)) == []  # its batches take long


def test_a_lag_that_grows_is_told_once_it_is_more_than_a_minute() -> None:
    growing = lines(60, lag=lambda n: n * 100)
    assert names(lines=growing, **behind(6000, 75.0, (0, 100_000))) == ["lag grows"]
    assert names(lines=growing, **behind(6000, 30.0, (0, 100_000))) == []
    assert names(lines=lines(60, lag=lambda n: 12_000 - n * 100), **behind(6000, 75.0, (0, 100_000))) == []


def test_retention_that_comes_near_and_records_that_are_gone_are_told() -> None:
    assert names(lines=lines(5), **behind(950, 90.0)) == ["retention overtakes"]
    assert names(lines=lines(5), lost={"orders-0": 12}, **behind(0)) == ["records lost"]


def test_drops_are_told_from_one_percent_on_with_their_first_reason() -> None:
    assert names(lines=lines(50, dropped=1), **behind(0)) == []
    document = {
        "state": "RUNNING",
        "lines": lines(50, dropped=2),
        "reasons": [["SOURCE", "late", 3, 0, 0], ["MAP", "null key", 97, 0, 0]],
    }
    (alert,) = alerts_of(Picture(document), NOW)
    assert (alert.name, alert.where) == ("drops", "MAP")
    assert "null key" in alert.what


def test_skew_needs_twenty_batches_and_a_clock_an_hour() -> None:
    assert names(lines=lines(19, skew=4.0)) == []
    assert names(lines=lines(20, skew=4.0)) == ["skew"]
    assert names(stream_time_ms=NOW + 3_500_000) == []
    assert names(stream_time_ms=NOW + 3_700_000) == ["clock"]


def test_a_process_that_writes_no_figures_is_silent_but_one_that_has_stopped_is_not() -> None:
    assert names(written_ms=NOW - 31_000) == ["silent"]
    assert names(written_ms=NOW - 31_000, state="NOT_RUNNING") == []


def test_an_alert_is_logged_after_two_minutes_then_at_doubled_times_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "penstock.app")
    log, alert = AlertLog("shop"), Alert("stuck", "", "nothing moves", "look", "error")
    for second in range(0, 1000, 10):
        (seen,) = log.seen([alert], second * 1000)
        assert seen.since_ms == 0
    assert len(caplog.records) == 2  # after 120 and 360 seconds; the next would be after 1,080
    log.seen([], 1_000_000)
    assert "recovered" in caplog.records[-1].getMessage()
    assert len(caplog.records) == 3


def test_a_short_alert_is_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.app")
    log = AlertLog("shop")
    log.seen([Alert("drops", "", "a few", "look")], 0)
    log.seen([], 60_000)
    assert caplog.records == []
