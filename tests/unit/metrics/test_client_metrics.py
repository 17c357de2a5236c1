"""What clients count, and the metrics of consumer, producer and admin client that the driver makes of it."""

import json

import pyarrow as pa
import pytest

from penstock.base.log_lines import Work
from penstock.engines.threads.engine import ProgressCounter
from penstock.engines.threads.hosting.thread_state import ThreadState
from penstock.engines.threads.loop.thread_figures import ThreadCounts
from penstock.log.base import RECORD_SCHEMA
from penstock.log.client_counts import ClientCounts, count, counted, rebalancing
from penstock.log.open import open_log
from penstock.metrics import MetricName, MetricRegistry, RecordingLevel
from penstock.metrics.batch_records import BatchRecord
from penstock.metrics.client_metrics import ClientMetrics
from penstock.metrics.task_counts import TaskCounts

BROKERS = [
    ["consumer", "connections-made", "", 2, 2.0, 1.0, 1.0],
    ["consumer", "request-bytes", "", 4, 400.0, 50.0, 200.0],
    ["consumer", "answer-bytes", "", 4, 4000.0, 500.0, 2000.0],
    ["consumer", "fetch-ms", "", 4, 40.0, 5.0, 20.0],
    ["producer", "connections-made", "", 1, 1.0, 1.0, 1.0],
    ["producer", "produce-ms", "", 2, 10.0, 4.0, 6.0],
    ["producer", "retried-records", "out", 1, 7.0, 7.0, 7.0],
    ["producer", "commit-txn-ms", "", 2, 3.0, 1.0, 2.0],
]


class Clock:
    now = 1_000_000

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def registry(clock):
    return MetricRegistry(RecordingLevel.INFO, clock=clock)


@pytest.fixture
def metrics(registry, clock):
    return ClientMetrics(registry, "orders-StreamThread-1", clock, lambda: 3)


def test_requests_connections_and_records_are_those_of_the_client(metrics, registry):
    metrics.record(BROKERS)
    counts = TaskCounts()
    counts.consumed["source", "in"] = [100, 5000]
    counts.produced["sink", "out"] = [50, 900]
    metrics.record_tasks([counts])
    reader = {"client_id": "orders-StreamThread-1-consumer"}
    assert registry.value("request-total", group="consumer-metrics", **reader) == 4
    assert registry.value("request-size-max", group="consumer-metrics", **reader) == 200
    assert registry.value("incoming-byte-total", group="consumer-metrics", **reader) == 4000
    assert registry.value("network-io-total", group="consumer-metrics", **reader) == 8
    assert registry.value("connection-count", group="consumer-metrics", **reader) == 2
    fetches = {"group": "consumer-fetch-manager-metrics"}
    assert registry.value("fetch-total", **fetches) == 4
    assert registry.value("fetch-latency-avg", **fetches) == 10
    assert registry.value("records-per-request-avg", **fetches) == 25
    assert registry.value("records-consumed-total", **fetches, topic="in") == 100
    registry.gauge(MetricName.of("records-consumed-total", "stream-topic-metrics", {"topic": "in"}), lambda: 7.0)
    assert registry.total("records-consumed-total", topic="in") == 7  # that of tasks goes first
    assert [metric.metric_value() for metric in registry.find("bytes-consumed-total", **fetches)] == [5000, 5000]
    writer = {"client_id": "orders-StreamThread-1-producer"}
    assert registry.value("record-send-total", group="producer-topic-metrics", topic="out", **writer) == 50
    assert registry.value("record-retry-total", group="producer-metrics", **writer) == 7
    assert registry.value("record-error-total", group="producer-topic-metrics", topic="out", **writer) == 0
    assert registry.value("records-per-request-avg", group="producer-metrics", **writer) == 25
    assert registry.value("txn-commit-time-ns-total", **writer) == 3e6


def test_connections_that_are_closed_are_not_open(metrics, registry):
    metrics.record(BROKERS)
    metrics.record([["consumer", "connections-closed", "", 2, 2.0, 1.0, 1.0]])
    assert registry.value("connection-count", group="consumer-metrics") == 0
    assert registry.value("connection-close-total", group="consumer-metrics") == 2
    assert registry.value("connection-creation-total", group="consumer-metrics") == 2


def test_an_embedded_log_has_no_requests_connections_or_transactions(metrics, registry):
    metrics.record(
        [["consumer", "range-reads", "", 3, 3.0, 1.0, 1.0], ["consumer", "heartbeat-ms", "", 1, 2.0, 2.0, 2.0]]
    )
    names = {name.name for name in registry}
    assert "fetch-total" in names
    assert not any(name.startswith(("connection", "request", "txn", "incoming", "network")) for name in names)
    assert not any(name.group == "admin-client-metrics" for name in registry)


def test_ages_are_seconds_since_the_last_time(metrics, registry, clock):
    metrics.record([["consumer", "heartbeat-ms", "", 1, 2.0, 2.0, 2.0]])
    metrics.record([["producer", "metadata-at-ms", "", 1, clock.now - 4000, clock.now - 4000, clock.now - 4000]])
    metrics.record_batch(BatchRecord(0, clock.now, 0.5, 1, 1, 0))
    clock.now += 2500
    assert registry.value("last-heartbeat-seconds-ago") == 2.5
    assert registry.value("metadata-age") == 6.5
    assert registry.value("last-poll-seconds-ago") == 3.0
    assert registry.value("assigned-partitions") == 3


def test_the_time_between_batches_is_that_of_their_starts(metrics, registry, clock):
    metrics.record_batch(BatchRecord(0, clock.now, 0.5, 1, 1, 0))
    metrics.record_batch(BatchRecord(1, clock.now + 2000, 0.5, 1, 1, 0))
    assert registry.value("time-between-poll-avg") == 2000
    assert registry.value("poll-idle-ratio-avg") == 0.75


def test_rebalances_are_counted_with_their_time_and_failures(metrics, registry):
    def plan(fails):
        with rebalancing():
            if fails:
                raise ValueError

    with Work(application="rebalanced"):
        plan(fails=False)
        with pytest.raises(ValueError, match=r"^$"):
            plan(fails=True)
    metrics.record(counted("rebalanced").take())
    assert registry.value("rebalance-total") == 1
    assert registry.value("failed-rebalance-total") == 1
    assert registry.value("rebalance-latency-avg") >= 0


def test_a_log_counts_for_the_application_at_work(tmp_path):
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log, Work(application="counted"):
        log.create_topic("in")
        rows = [{"offset": 0, "timestamp": 0, "key": None, "value": b"a", "headers": None}]
        log.append("in", 0, pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA))
        assert log.read("in", 0, 0).records.num_rows == 1
        log.commit_offsets("counted", {})
        log.group_offsets("counted")
    found = {what: number for _, what, _, number, *_ in counted("counted").take()}
    assert found == {"range-reads": 1, "commit-ms": 1, "committed-ms": 1}
    assert counted("another").take() == []


def state(counts, records):
    task = {"task": "0_0", "dropped": 0, "stream_time_ms": 0}
    task |= {"records_in": records, "records_out": 0, "records_read": records, "records_written": 0}
    report = {
        "tasks": [{**task, "entries": {"store": 3}}], "counts": {}, "seconds": {"process": 1.0}, "commits": 1,
        "positions": {}, "ends": {}, "began_ms": 0, "committed_ms": 0,
        "clients": json.loads(json.dumps(counts.clients())),
        "restores": [{"store": "store", "partition": 0, "offset": 5, "end": 9, "restored": 5 * records}],
    }  # fmt: skip
    return ThreadState("here", 1, 0.0, report=report)


def test_a_lost_report_of_a_thread_loses_no_request():
    with Work(application="threads"):
        counted().take()
        counts, driver = ThreadCounts("INFO"), ProgressCounter()
        count("consumer", "fetch-ms", 2.0)
        (task,) = driver.progress(0, {"t": state(counts, 1)}).tasks
        assert task["clients"] == [["consumer", "fetch-ms", "", 1, 2.0, 2.0, 2.0]]
        assert (task["restored_rows"], task["restoring"]) == (5, 1)
        counts.sent()
        count("consumer", "fetch-ms", 7.0)
        state(counts, 2)  # never arrives
        count("consumer", "fetch-ms", 4.0)
        (task,) = driver.progress(0, {"t": state(counts, 3)}).tasks
        ((*_, number, total, _, _),) = task["clients"]
        assert (number, total) == (2, 11.0)
        assert task["restored_rows"] == 10


def test_counts_of_two_add_up():
    both = ClientCounts()
    both.merge([["admin", "request-bytes", "", 2, 10.0, 4.0, 6.0]])
    both.merge([["admin", "request-bytes", "", 1, 9.0, 9.0, 9.0]])
    assert both.take() == [["admin", "request-bytes", "", 3, 19.0, 4.0, 9.0]]
