"""The alert of an application that is stuck names what it does meanwhile."""

from __future__ import annotations

from penstock.console.alerts import NAMES, RULES, alerts_of
from penstock.console.app_view import Picture

DOCUMENT = {
    "state": "RUNNING",
    "started_ms": 0,
    "written_ms": 100_000,
    "behind": {"lag": {"orders-0": 7}, "as_of_ms": 100_000},
}


def test_a_stuck_application_says_its_phase() -> None:
    (alert,) = alerts_of(Picture({**DOCUMENT, "phase": "batch 7 runs for 94 s, stage 3: 1 of 4 tasks run"}), 100_000)
    assert alert.name == "stuck"
    assert alert.what.endswith(": batch 7 runs for 94 s, stage 3: 1 of 4 tasks run")


def test_without_a_known_phase_nothing_is_made_up() -> None:
    (alert,) = alerts_of(Picture(DOCUMENT), 100_000)
    assert alert.what.endswith("since the start")


def test_the_partition_with_the_most_waiting_records_is_named() -> None:
    (alert,) = alerts_of(Picture(DOCUMENT), 100_000)
    assert alert.what.startswith("7 records wait (all in orders-0)")
    more = {**DOCUMENT, "behind": {"lag": {"orders-0": 7, "orders-1": 30}, "as_of_ms": 100_000}}
    (alert,) = alerts_of(Picture(more), 100_000)
    assert alert.what.startswith("37 records wait (30 of them in orders-1)")


def test_every_rule_has_a_name_that_exports_list() -> None:
    assert len(NAMES) == len(set(NAMES)) >= len(RULES)
