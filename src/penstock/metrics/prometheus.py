"""Metrics as Prometheus reads them, under the names that the exporters of Java's metrics give them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.base.escapes import visible
from penstock.metrics.store_definitions import OWN

if TYPE_CHECKING:
    from penstock.metrics.name import Metric, MetricName

__all__ = ["family_of", "label_text", "prometheus_text"]

_CLIENTS = {"consumer-": "consumer", "producer-": "producer", "admin-client-": "admin_client"}  # by begin of a group
_KINDS = {"-consumer": "consumer", "-producer": "producer", "-admin": "admin_client"}  # by end of a client's id
_APP_INFO = "app-info"
_THREADS = ("stream-metrics", "alive-stream-threads")  # which the exporters' rules make a label
_LEFT_OUT = frozenset({"topology-description"})  # a page of text in each scrape


def prometheus_text(metrics: Mapping[MetricName, Metric]) -> str:
    r"""Return metrics in Prometheus' text format.

    The name is ``kafka_streams_`` with group and name, ``_`` for ``-``; of clients ``kafka_consumer_`` and so on, with
    the label ``client_type``; of Penstock's own metrics ``penstock_``. A text becomes a label of a series whose value
    is 1, as does the number of stream threads, which has a series of its own too. Values that are not numbers yet are
    left out, and so is the description of the topology.

    >>> from penstock.metrics import MetricName, MetricRegistry, RecordingLevel
    >>> registry = MetricRegistry(RecordingLevel.INFO, clock=lambda: 0)
    >>> name = MetricName.of("process-total", "stream-task-metrics", {"task-id": "0_0"}, "Records.")
    >>> registry.gauge(name, lambda: 3.0)
    >>> print(prometheus_text(registry), end="")
    # HELP kafka_streams_stream_task_metrics_process_total Records.
    # TYPE kafka_streams_stream_task_metrics_process_total counter
    kafka_streams_stream_task_metrics_process_total{task_id="0_0"} 3
    """
    families: dict[str, list[str]] = {}
    meanings: dict[str, str] = {}  # the first description of each family
    for name, metric in metrics.items():
        value = metric.metric_value()
        if name.name in _LEFT_OUT or (isinstance(value, float) and math.isnan(value)):
            continue
        labels = {tag.replace("-", "_"): text for tag, text in name.tags}
        if kind := _client(name):
            labels = {"client_type": kind.replace("_", "."), **labels}
        if not isinstance(value, str) and name.group != _APP_INFO:
            _add(families, family_of(name), labels, value)
            meanings.setdefault(family_of(name), name.description)
        if isinstance(value, str) or name.group == _APP_INFO or (name.group, name.name) == _THREADS:
            text = value if isinstance(value, str) else _number(value)
            _add(families, _family_of_group(name), {**labels, _word(name.name): text}, 1)
            meanings.setdefault(_family_of_group(name), "Texts, each as a label of a series that is 1.")
    lines: list[str] = []
    for family in sorted(families):
        meaning = " ".join(visible(meanings[family]).split()).replace("\\", r"\\")
        lines += [f"# HELP {family} {meaning}"] if meaning else []
        lines += [f"# TYPE {family} {'counter' if family.endswith('_total') else 'gauge'}", *families[family]]
    return "\n".join(lines) + "\n" if lines else ""


def _add(families: dict[str, list[str]], family: str, labels: Mapping[str, str], value: float) -> None:
    shown = ",".join(f'{_word(label)}="{label_text(text)}"' for label, text in labels.items())
    lines = families.setdefault(family, [])
    lines.append(f"{family}{{{shown}}} {_number(value)}" if shown else f"{family} {_number(value)}")


def family_of(name: MetricName) -> str:
    """Return the name that a metric has in Prometheus."""
    return f"penstock_{_word(name.name)}" if name.group == OWN else f"{_family_of_group(name)}_{_word(name.name)}"


def _family_of_group(name: MetricName) -> str:
    return f"kafka_{_client(name) or 'streams'}_{_word(name.group)}"


def _client(name: MetricName) -> str:
    """Return the kind of client that a metric belongs to; empty: none."""
    if name.group == _APP_INFO:
        return next((kind for end, kind in _KINDS.items() if (name.tag("client-id") or "").endswith(end)), "")
    return next((kind for begin, kind in _CLIENTS.items() if name.group.startswith(begin)), "")


def _word(text: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", text)


def label_text(text: str) -> str:
    r"""Return a text as the value of a label, with escapes for characters that are acted upon.

    >>> print(label_text('say "hi"\n\x1b[31m'))
    say \"hi\"\n\\x1b[31m
    """
    shown = visible(text).replace("\t", "\\t")
    return shown.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
