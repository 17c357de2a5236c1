"""Metrics as Prometheus reads them, under the names of Java's exporters, and a Grafana dashboard of them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.base.escapes import visible
from penstock.metrics.definitions import OWN

if TYPE_CHECKING:
    from penstock.metrics.metric import Metric, MetricName

__all__ = ["dashboard", "family_of", "label_text", "prometheus_text"]

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


_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 24
_OF_APPLICATION = 'job=~"$job"'
# Title, unit, and for each line its legend and its expression.
_PANELS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("State (1: is in it)", "short", (("{{state}}", 'max by (state) (kafka_streams_stream_metrics{%s, state!=""})'),)),
    ("Alerts (1: holds)", "short", (
        ("{{application}}: {{name}}", "max by (application, name) (penstock_alert{%s}) > 0"),
    )),
    ("Records a second", "ops", (
        ("read", "sum(rate(kafka_streams_stream_thread_metrics_process_total{%s}[1m]))"),
        ("written", "sum(rate(kafka_streams_stream_topic_metrics_records_produced_total{%s}[1m]))"),
    )),
    ("Lag in records", "short", (("{{topic}}-{{partition}}", "penstock_lag_records{%s}"),)),
    ("Lag in seconds", "s", (("{{topic}}-{{partition}}", "penstock_lag_seconds{%s}"),)),
    ("Time of batches by step", "percentunit", (
        ("{{step}}", "sum by (step) (rate(penstock_batch_seconds_total{%s}[1m]))"),
    )),
    ("Time of the newest batch", "s", (("seconds", "penstock_batch_duration_seconds{%s}"),)),
    ("Skew: slowest task over median", "short", (("skew", "penstock_batch_skew_ratio{%s}"),)),
    ("Time by operator", "percentunit", (
        ("{{processor_node_id}}", "sum by (processor_node_id) (rate(penstock_node_seconds_total{%s}[1m]))"),
    )),
    ("Dropped records a second", "ops", (
        ("{{processor_node_id}}: {{reason}}",
         "sum by (processor_node_id, reason) (rate(penstock_dropped_records_total{%s}[1m]))"),
    )),
    ("Age of records at the end (largest)", "ms", (
        ("{{processor_node_id}}",
         "max by (processor_node_id) (kafka_streams_stream_processor_node_metrics_record_e2e_latency_max{%s})"),
    )),
    ("Rows of stores", "short", (("{{store}}", "sum by (store) (penstock_store_rows{%s})"),)),
    ("Bytes written to stores", "Bps", (
        ("{{store}}", "sum by (store) (rate(penstock_store_written_bytes_total{%s}[1m]))"),
    )),
    ("Share of time", "percentunit", (
        ("reading", "kafka_streams_stream_thread_metrics_poll_ratio{%s}"),
        ("processing", "kafka_streams_stream_thread_metrics_process_ratio{%s}"),
        ("committing", "kafka_streams_stream_thread_metrics_commit_ratio{%s}"),
    )),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it, over a Prometheus data source that the import asks for.

    >>> len(dashboard()["panels"])
    14
    """
    return {
        "__inputs": [{"name": "DS", "label": "Prometheus", "type": "datasource", "pluginId": "prometheus"}],
        "title": "Penstock application",
        "uid": "penstock-application",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_variable()]},
        "panels": [_panel(number, *panel) for number, panel in enumerate(_PANELS)],
    }


def _variable() -> dict[str, Any]:
    query = "label_values(kafka_streams_stream_thread_metrics_process_total, job)"
    return {
        "name": "job",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${DS}"},
        "query": query,
        "includeAll": True,
        "multi": True,
        "refresh": 2,
    }


def _panel(number: int, title: str, unit: str, lines: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    row, column = divmod(number * _WIDTH, _COLUMNS)
    targets = [
        {"refId": chr(ord("A") + at), "legendFormat": legend, "expr": query % _OF_APPLICATION}
        for at, (legend, query) in enumerate(lines)
    ]
    return {
        "id": number + 1,
        "title": title,
        "type": "timeseries",
        "datasource": {"type": "prometheus", "uid": "${DS}"},
        "gridPos": {"x": column, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": targets,
    }
