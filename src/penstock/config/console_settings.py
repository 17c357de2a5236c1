"""Settings of the console and of its alerts."""

from __future__ import annotations

from typing import Any

from penstock.config.kinds import BOOLEAN, DURATION, STRING, Kind, integer

__all__ = ["CONSOLE"]

CONSOLE: tuple[tuple[str, Kind, Any, str], ...] = (
    (
        "penstock.console.enabled",
        BOOLEAN,
        True,
        "Whether it keeps figures for `penstock ui` and serves `/ui`.",
    ),
    ("penstock.console.token", STRING, None, "Token of the console at the HTTP port; by default one that is kept."),
    (
        "penstock.console.allow.writes",
        BOOLEAN,
        False,
        "Whether visitors of `/ui` may change something, too.",
    ),
    ("penstock.metrics.spark", BOOLEAN, False, "Whether Spark's listeners and metric sinks get the totals."),
    ("penstock.alerts.state.growth.percent", integer(0), 20, "Growth of a store in an hour that is an alert; 0: none."),
    ("penstock.alerts.hold.ms", DURATION, 3_600_000, "Time for which alerts of restarts and new errors hold; 0: none."),
    ("penstock.alerts.webhook", STRING, None, "URL that alerts are posted to as JSON, and that they are over."),
)
