"""Exports: the dashboard, OpenTelemetry to a collector, the command and its address."""

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.metrics import MetricName, MetricRegistry, RecordingLevel, prometheus_text
from penstock.metrics.otel import OtelExport
from penstock.metrics.prometheus import dashboard
from unit.metrics.test_names_of_kafka import measured

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")


@contextmanager
def served(answer):
    """Answer every request by ``answer(path, body)`` at a loopback port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.respond(self.rfile.read(int(self.headers["content-length"])))

        def do_GET(self):
            self.respond(b"")

        def respond(self, body):
            said = answer(self.path, body)
            self.send_response(200)
            self.send_header("content-type", "application/json" if said else "text/plain")
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *said):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_series_of_the_dashboard_are_those_of_an_application(tmp_path):
    shown = CliRunner().invoke(app, ["metrics", "dashboard"])
    assert json.loads(shown.stdout) == dashboard()
    queries = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    asked = {name for query in queries for name in re.findall(r"(?:kafka|penstock)_\w+", query)}
    text = prometheus_text(measured("INFO", tmp_path))
    exported = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    # Of nodes, drops and stores there are series once a batch has them.
    later = {name for name in asked if name.startswith(("penstock_node", "penstock_dropped", "penstock_store_written"))}
    produced = {"kafka_streams_stream_topic_metrics_records_produced_total"}
    e2e = {"kafka_streams_stream_processor_node_metrics_record_e2e_latency_max"}
    alerts = {"penstock_alert"}  # which the server of an application adds
    assert asked - later - exported <= produced | e2e | alerts


def test_a_collector_receives_totals_as_sums_and_the_rest_as_gauges():
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    received = []

    def collect(path, body):
        received.append((path, body))
        return b""

    registry = MetricRegistry(RecordingLevel.INFO, clock=lambda: 0)
    tags = {"task-id": "0_0", "thread-id": "t"}
    registry.gauge(MetricName.of("process-total", "stream-task-metrics", tags, "Records."), lambda: 12.0)
    registry.gauge(MetricName.of("lag-seconds", "penstock-metrics", {"topic": "in"}), lambda: 1.5)
    registry.gauge(MetricName.of("state", "stream-metrics", {}), lambda: "RUNNING")
    registry.gauge(MetricName.of("process-latency-avg", "stream-task-metrics", tags), lambda: float("nan"))
    with served(collect) as url:
        export = OtelExport(lambda: registry, f"{url}/v1/metrics", 60_000, {"service.name": "orders"})
        assert export.flush()
        export.close()
    path, body = received[0]
    assert path == "/v1/metrics"
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    assert {"orders"} <= {attribute.value.string_value for attribute in resource.resource.attributes}
    metrics = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
    total = metrics["org.apache.kafka.stream.task.process.total"]
    assert total.sum.is_monotonic
    assert total.description == "Records."
    (point,) = total.sum.data_points
    assert point.as_double == 12
    assert {a.key: a.value.string_value for a in point.attributes} == {"task_id": "0_0", "thread_id": "t"}
    assert metrics["penstock.lag.seconds"].gauge.data_points[0].as_double == 1.5
    assert not {"org.apache.kafka.stream.state", "org.apache.kafka.stream.task.process.latency.avg"} & metrics.keys()


def test_metrics_that_come_while_the_export_runs_are_sent_at_its_intervals():
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    registry = MetricRegistry(RecordingLevel.INFO, clock=lambda: 0)
    names, has_come = set(), {"first": threading.Event(), "second": threading.Event(), "third": threading.Event()}

    def collect(path, body):
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            names.update(metric.name for scope in resource.scope_metrics for metric in scope.metrics)
        for name, event in has_come.items():
            if f"penstock.{name}" in names:
                event.set()
        return b""

    with served(collect) as url:
        export = OtelExport(lambda: registry, f"{url}/v1/metrics", 20)
        for name, event in has_come.items():  # each is made after an export, as those of tasks and stores are
            registry.gauge(MetricName.of(name, "penstock-metrics", {}), lambda: 1.0)
            assert event.wait(60), name
        export.close()


def test_the_command_shows_what_an_application_answers():
    metric = {"group": "stream-metrics", "name": "state", "tags": {"client-id": "a"}, "value": "RUNNING"}
    total = {"group": "g", "name": "records-total", "tags": {"reason": "[in]"}, "value": 12345.0}
    batch = {"number": 7, "records_in": 5, "seconds": 0.5, "skew": 1.5, "lag": {"records": 90, "seconds": None}}
    partitions = [{"records": 15, "seconds": 2.5}, {"records": 5, "seconds": None}]
    answer = {"state": "RUNNING", "metrics": [total, metric], "batch": batch, "partitions": partitions}
    asked = []

    def respond(path, _):
        asked.append(path)
        return json.dumps(answer).encode()

    with served(respond) as url:
        shown = CliRunner().invoke(app, ["metrics", url, "--matching", "^g:"])
        as_json = CliRunner().invoke(app, ["metrics", url, "--json"])
    assert asked == ["/metrics/json?matching=%5Eg%3A", "/metrics/json?matching="]
    assert "lag 20 records, 2.5 s" in shown.stdout
    assert shown.stdout.index("stream-metrics") < shown.stdout.index("records-total")  # clients' come last
    assert "12,345" in shown.stdout
    assert "[in]" in shown.stdout
    assert json.loads(as_json.stdout) == answer


def test_another_server_is_no_application():
    with served(lambda path, body: b"") as url:
        shown = CliRunner().invoke(app, ["metrics", url])
    assert "is not an address of an application's metrics" in str(shown.exception)
