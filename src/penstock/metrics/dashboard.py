"""A Grafana dashboard for an application's metrics as Prometheus reads them."""

from __future__ import annotations

from typing import Any

__all__ = ["dashboard"]

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
