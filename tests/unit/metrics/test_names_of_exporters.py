"""Prometheus finds our series under the names that exporters of a JVM's metrics give to Kafka Streams' MBeans.

``RULES`` says what the rules of Confluent's jmx-monitoring-stacks (``jmx-exporter/kafka_streams.yml``) do to an MBean, in
the exporter's own form: a pattern over ``domain<key=value, ...><>attribute: value``, the name, the labels. Strimzi's
metrics reporter joins domain, group and name.
"""

import re

import pytest
from measured_application import measured

from penstock.metrics import prometheus_text

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")

INFO = "state|alive-stream-threads|commit-id|version|application-id"
VALUE = r": (?P<value>.*)"
RULES = [
    (r"kafka\.streams<type=(.+), thread-id=(.+), task-id=(.+), (.+)=(.+)><>(.+?)" + VALUE, r"kafka_streams_\1_\6",
     ((r"thread_id", r"\2"), (r"task_id", r"\3"), (r"\4", r"\5"))),
    (r"kafka\.streams<type=(.+), thread-id=(.+), task-id=(.+)><>(.+?)" + VALUE, r"kafka_streams_\1_\4",
     ((r"thread_id", r"\2"), (r"task_id", r"\3"))),
    (rf"kafka\.streams<type=stream-metrics, (.+)=(.+)><>({INFO}): (.+)", r"kafka_streams_stream_metrics",
     ((r"\1", r"\2"), (r"\3", r"\4"))),
    (r"kafka\.streams<type=(.+), (.+)=(.+)><>([^:]+)" + VALUE, r"kafka_streams_\1_\4", ((r"\2", r"\3"),)),
    (r"kafka\.(.+)<type=app-info, client-id=(.+)><>(.+): (.+)", r"kafka_\1_app_info",
     (("client_type", r"\1"), ("client_id", r"\2"), (r"\3", r"\4"))),
    (r"kafka\.(.+)<type=(.+), (.+)=(.+), (.+)=(.+), (.+)=(.+)><>(.+?)" + VALUE, r"kafka_\1_\2_\9",
     (("client_type", r"\1"), (r"\3", r"\4"), (r"\5", r"\6"), (r"\7", r"\8"))),
    (r"kafka\.(.+)<type=(.+), (.+)=(.+), (.+)=(.+)><>(.+?)" + VALUE, r"kafka_\1_\2_\7",
     (("client_type", r"\1"), (r"\3", r"\4"), (r"\5", r"\6"))),
    (r"kafka\.(.+)<type=(.+), (.+)=(.+)><>(.+?)" + VALUE, r"kafka_\1_\2_\5", (("client_type", r"\1"), (r"\3", r"\4"))),
]  # fmt: skip
DOMAINS = {"consumer-": "kafka.consumer", "producer-": "kafka.producer", "admin-client-": "kafka.admin.client"}
# As Kafka's reporter has them in an MBean.
ORDER = ("client-id", "thread-id", "task-id", "processor-node-id", "topic", "partition")
OURS = ("penstock-metrics", "kafka-metrics-count")


def domain(name):
    if name.group == "app-info":
        return f"kafka.{name.tag('client-id').rpartition('-')[2].replace('admin', 'admin.client')}"
    return next((found for begin, found in DOMAINS.items() if name.group.startswith(begin)), "kafka.streams")


def mbean(name, value):
    tags = sorted(name.tags, key=lambda tag: ORDER.index(tag[0]) if tag[0] in ORDER else len(ORDER))
    shown = "".join(f", {tag}={text}" for tag, text in tags)
    return f"{domain(name)}<type={name.group}{shown}><>{name.name}: {value}"


def word(text):
    return re.sub("[^a-zA-Z0-9_]", "_", text).lower()


def exported(bean):
    """Return what the first rule that matches makes of an MBean: its name and labels."""
    for pattern, name, labels in RULES:
        if found := re.fullmatch(pattern, bean):
            return word(found.expand(name)), {word(found.expand(label)): found.expand(text) for label, text in labels}
    return None


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    return measured("TRACE", tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def series(registry):
    return {
        (sample.name, frozenset(sample.labels.items()))
        for family in parser.text_string_to_metric_families(prometheus_text(registry))
        for sample in family.samples
    }


def test_every_series_that_confluents_rules_make_is_ours(registry, series):
    made = 0
    for name, metric in registry.items():
        value = metric.metric_value()
        # Rates of nothing are NaN, which are left out; what is not a number is a label or is nothing to the exporter.
        is_info = name.group == "app-info" or (name.group == "stream-metrics" and re.fullmatch(INFO, name.name))
        if name.group in OURS or value != value or (isinstance(value, str) and not is_info):  # noqa: PLR0124 - NaN
            continue
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        wanted, labels = exported(mbean(name, value))
        if any("=" in text for text in (wanted, *labels.values())) or name.tag("process-id"):
            continue  # the rules are older than metrics with so many tags, and run them together
        assert (wanted, frozenset(labels.items())) in series, (name, wanted, labels)
        made += 1
    assert made > 250


def test_the_names_are_those_of_strimzis_reporter_too(registry, series):
    names = {name for name, _ in series}
    for name, metric in registry.items():
        value = metric.metric_value()
        if name.group not in (*OURS, "app-info") and isinstance(value, int | float) and value == value:  # noqa: PLR0124
            assert word(f"{domain(name)}_{name.group}_{name.name}") in names


@pytest.mark.parametrize(
    "name",
    [
        # What dashboards ask for.
        "kafka_streams_stream_thread_metrics_process_rate", "kafka_streams_stream_thread_metrics_commit_latency_avg",
        "kafka_streams_stream_thread_metrics_poll_latency_avg", "kafka_streams_stream_thread_metrics_task_closed_total",
        "kafka_streams_stream_metrics_alive_stream_threads", "kafka_streams_stream_metrics",
        "kafka_streams_stream_task_metrics_process_latency_avg",
        "kafka_consumer_consumer_fetch_manager_metrics_records_consumed_total",
        "kafka_consumer_consumer_fetch_manager_metrics_bytes_consumed_rate",
        "kafka_consumer_consumer_fetch_manager_metrics_fetch_latency_avg",
        "kafka_consumer_consumer_coordinator_metrics_rebalance_total", "kafka_consumer_app_info",
        "kafka_producer_producer_metrics_record_send_rate", "kafka_producer_producer_metrics_outgoing_byte_rate",
        "kafka_producer_producer_topic_metrics_byte_rate", "kafka_producer_producer_metrics_connection_count",
        "kafka_admin_client_admin_client_metrics_request_total",
    ],
)  # fmt: skip
def test_series_of_dashboards_exist(series, name):
    assert name in {found for found, _ in series}
