"""The settings of a group by Kafka's names, for the embedded log: what ``kafka-configs --entity-type groups`` sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.log.streams_groups.group import GroupSettings

__all__ = ["accepted", "with_named"]

_OF_GROUP = {
    "streams.session.timeout.ms": "session_timeout_ms",
    "streams.heartbeat.interval.ms": "heartbeat_interval_ms",
    "streams.initial.rebalance.delay.ms": "initial_rebalance_delay_ms",
    "streams.task.offset.interval.ms": "task_offset_interval_ms",
}
_OF_RULES = {
    "streams.num.standby.replicas": "num_standby_replicas",
    "streams.num.warmup.replicas": "max_warmup_replicas",
    "streams.acceptable.recovery.lag": "acceptable_recovery_lag",
}
_AT_ONCE = "streams.assignment.interval.ms"  # an embedded log plans an assignment with the heartbeat that asks for it


def accepted(settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings that a group in an embedded log takes, and why it refuses the others.

    >>> accepted({"streams.num.standby.replicas": "1", "streams.session.timeout.ms": "soon"})[1]
    {'streams.session.timeout.ms': "not a whole number of at least 0: 'soon'"}
    >>> accepted({"share.session.timeout.ms": "1"})
    ({}, {'share.session.timeout.ms': 'no setting of streams groups'})
    """
    refused: dict[str, str] = {}
    for name, value in settings.items():
        if name not in _OF_GROUP and name not in _OF_RULES and name != _AT_ONCE:
            refused[name] = "no setting of streams groups"
        elif not (value.isascii() and value.isdecimal()):
            refused[name] = f"not a whole number of at least 0: {value!r}"
        elif name == _AT_ONCE and int(value):
            refused[name] = f"an embedded log assigns at once: 0, not {value}"
    return {name: value for name, value in settings.items() if name not in refused}, refused


def with_named(settings: GroupSettings, named: Mapping[str, str]) -> GroupSettings:
    """Return settings with those that a group has of its own.

    >>> settings = with_named(GroupSettings(), {"streams.num.standby.replicas": "1"})
    >>> settings.rules.num_standby_replicas, settings.session_timeout_ms
    (1, 45000)
    """
    of_group: dict[str, Any] = {field: int(named[name]) for name, field in _OF_GROUP.items() if name in named}
    of_rules: dict[str, Any] = {field: int(named[name]) for name, field in _OF_RULES.items() if name in named}
    return replace(settings, rules=replace(settings.rules, **of_rules), **of_group)
