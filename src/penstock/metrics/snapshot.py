"""The metrics of an application as JSON: for pages, terminals and files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.metrics.name import Metric, MetricName, MetricValue

__all__ = ["snapshot"]


def snapshot(metrics: Mapping[MetricName, Metric], matching: str = "") -> list[dict[str, Any]]:
    """Return each metric with its present value, ready for JSON, by group, name and tags.

    Args:
        metrics: The metrics, such as ``app.metrics``.
        matching: A regular expression that ``<group>:<name>`` must contain; empty: all.

    Returns:
        Dicts with ``group``, ``name``, ``tags``, ``description`` and ``value``. What is not a number yet (the mean of
        nothing) has the value None.

    Raises:
        ConfigError: The expression is not a regular expression.

    >>> from penstock.metrics import MetricName, MetricRegistry, RecordingLevel
    >>> registry = MetricRegistry(RecordingLevel.INFO, clock=lambda: 0)
    >>> registry.gauge(MetricName.of("state", "stream-metrics", {"client-id": "a"}, "The state."), lambda: "RUNNING")
    >>> (found,) = snapshot(registry, "^stream-metrics:")
    >>> found["name"], found["tags"], found["description"], found["value"]
    ('state', {'client-id': 'a'}, 'The state.', 'RUNNING')
    """
    try:
        pattern = re.compile(matching)
    except re.error as error:
        raise ConfigError(f"{matching!r} is not a regular expression: {error}") from error
    documents = [
        {
            "group": name.group,
            "name": name.name,
            "tags": dict(name.tags),
            "description": name.description,
            "value": _value(metric.metric_value()),
        }
        for name, metric in metrics.items()
        if pattern.search(f"{name.group}:{name.name}")
    ]
    return sorted(documents, key=lambda one: (one["group"], one["name"], sorted(one["tags"].items())))


def _value(value: MetricValue) -> MetricValue | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value
