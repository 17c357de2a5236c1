"""Metrics as Prometheus reads them, under the names that the exporters of Java's metrics give them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.metrics.store_definitions import OWN

if TYPE_CHECKING:
    from penstock.metrics.name import Metric, MetricName, MetricValue

__all__ = ["prometheus_text"]

_CLIENTS = ("consumer-", "producer-", "admin-client-")  # their groups begin with the client's kind


def prometheus_text(metrics: Mapping[MetricName, Metric]) -> str:
    r"""Return metrics in Prometheus' text format.

    The name is ``kafka_streams_`` with group and name, ``_`` for ``-``; of clients ``kafka_consumer_`` and so on, of
    Penstock's own metrics ``penstock_``. A text becomes a label of a series whose value is 1. Values that are not
    numbers yet are left out.

    >>> from penstock.metrics import MetricName, MetricRegistry, RecordingLevel
    >>> registry = MetricRegistry(RecordingLevel.INFO, clock=lambda: 0)
    >>> registry.gauge(MetricName.of("process-total", "stream-task-metrics", {"task-id": "0_0"}), lambda: 3.0)
    >>> print(prometheus_text(registry), end="")
    # TYPE kafka_streams_stream_task_metrics_process_total counter
    kafka_streams_stream_task_metrics_process_total{task_id="0_0"} 3
    """
    families: dict[str, list[str]] = {}
    for name, metric in metrics.items():
        value = metric.metric_value()
        family, labels = _family(name, value), {tag.replace("-", "_"): text for tag, text in name.tags}
        if isinstance(value, str):
            labels[_word(name.name)] = value
            value = 1
        if isinstance(value, float) and math.isnan(value):
            continue
        shown = ",".join(f'{_word(label)}="{_escaped(text)}"' for label, text in labels.items())
        families.setdefault(family, []).append(
            f"{family}{{{shown}}} {_number(value)}" if shown else f"{family} {_number(value)}"
        )
    lines: list[str] = []
    for family in sorted(families):
        lines += [f"# TYPE {family} {'counter' if family.endswith('_total') else 'gauge'}", *families[family]]
    return "\n".join(lines) + "\n" if lines else ""


def _family(name: MetricName, value: MetricValue) -> str:
    group = _word(name.group)
    if name.group == OWN:
        return f"penstock_{_word(name.name)}"
    prefix = "kafka_streams_"
    for client in _CLIENTS:
        if name.group.startswith(client):
            prefix = "kafka_" if client != "admin-client-" else "kafka_admin_"
    return f"{prefix}{group}" if isinstance(value, str) else f"{prefix}{group}_{_word(name.name)}"


def _word(text: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", text)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
