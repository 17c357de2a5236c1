"""Prometheus' text format, read back by its own parser."""

import pytest

from penstock.metrics import MetricName, MetricRegistry, RecordingLevel, prometheus_text
from penstock.metrics.definitions import E2E_LATENCY

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")


def test_the_text_is_what_prometheus_reads():
    registry = MetricRegistry(RecordingLevel.INFO, clock=lambda: 0)
    tags = {"client-id": 'a"\\\nb'}
    registry.gauge(MetricName.of("state", "stream-metrics", tags), lambda: "RUNNING")
    registry.gauge(MetricName.of("process-total", "stream-thread-metrics", tags), lambda: 12.0)
    registry.gauge(MetricName.of("lag", "consumer-fetch-manager-metrics", tags), lambda: 0.5)
    registry.meter(E2E_LATENCY, {"task-id": "0_0"})
    families = {family.name: family for family in parser.text_string_to_metric_families(prometheus_text(registry))}
    assert set(families) == {
        "kafka_streams_stream_metrics",
        "kafka_streams_stream_thread_metrics_process",
        "kafka_consumer_consumer_fetch_manager_metrics_lag",
    }
    (state,) = families["kafka_streams_stream_metrics"].samples
    assert state.labels == {"client_id": 'a"\\\nb', "state": "RUNNING"}
    assert state.value == 1
    (total,) = families["kafka_streams_stream_thread_metrics_process"].samples
    assert (total.name, total.value) == ("kafka_streams_stream_thread_metrics_process_total", 12)


def test_each_family_has_its_meaning_once():
    registry = MetricRegistry(RecordingLevel.INFO, clock=lambda: 0)
    for task in ("0_0", "0_1"):
        name = MetricName.of("process-total", "stream-task-metrics", {"task-id": task}, "Records, \\ and\nmore.")
        registry.gauge(name, lambda: 1.0)
    text = prometheus_text(registry)
    (family,) = parser.text_string_to_metric_families(text)
    assert text.count("# HELP") == 1
    assert (family.documentation.startswith("Records, "), len(family.samples)) == (True, 2)
    assert all(line.startswith(("#", "kafka_streams_")) for line in text.splitlines())


def test_nothing_is_an_empty_text():
    assert prometheus_text({}) == ""
