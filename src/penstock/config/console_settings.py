"""Settings of the console and of its alerts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.config.kinds import BOOLEAN, DURATION, LIST, STRING, SettingKind, integer

__all__ = ["CONSOLE", "hides_records"]

CONSOLE: tuple[tuple[str, SettingKind, Any, str], ...] = (
    (
        "penstock.console.enabled",
        BOOLEAN,
        True,
        "Whether the application keeps figures for `penstock ui` and serves `/ui`.",
    ),
    ("penstock.console.token", STRING, None, "Token of the console at the HTTP port; by default one that is kept."),
    (
        "penstock.console.allow.writes",
        BOOLEAN,
        False,
        "Whether visitors of `/ui` may change something, too.",
    ),
    (
        "penstock.console.users",
        STRING,
        None,
        "File of the visitors of `/ui`, lines NAME:ROLE:TOKEN, in place of one token; roles say what they may change.",
    ),
    (
        "penstock.console.messages",
        BOOLEAN,
        True,
        "Whether `/ui`, logs and alerts may show keys, values, and texts of errors, which may quote them.",
    ),
    (
        "penstock.console.mask",
        LIST,
        (),
        "Fields of keys, values and headers that `/ui` hides, such as `value.card`; texts of errors are hidden, too.",
    ),
    ("penstock.metrics.spark", BOOLEAN, False, "Whether Spark's listeners and metric sinks get the totals."),
    (
        "penstock.alerts.state.growth.percent",
        integer(0),
        20,
        "Growth of a store in an hour that raises an alert; 0: none.",
    ),
    ("penstock.alerts.hold.ms", DURATION, 3_600_000, "Time for which alerts of restarts and new errors hold; 0: none."),
    ("penstock.alerts.webhook", STRING, None, "URL to which the start and the end of alerts are posted as JSON."),
)


def hides_records(config: Mapping[str, Any]) -> bool:
    """Return whether a part of the records must not be shown, so that no text of an error may quote one."""
    return not config["penstock.console.messages"] or bool(config["penstock.console.mask"])
