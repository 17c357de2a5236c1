"""Snapshots for JSON, records of batches, and lags in records and seconds."""

import json

import pyarrow as pa
import pytest

from penstock import StreamsBuilder, StreamsConfig
from penstock.engines.app_metrics import AppMetrics
from penstock.engines.lifecycle import State
from penstock.engines.spark.progress import BatchProgress
from penstock.errors import ConfigError
from penstock.log.base import RECORD_SCHEMA, TopicPartition
from penstock.log.open import open_log
from penstock.metrics import MetricName, MetricRegistry, RecordingLevel, snapshot
from penstock.metrics.definitions import E2E_LATENCY
from penstock.metrics.lag import LagWatch


@pytest.fixture
def measured():
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    config = StreamsConfig({"application.id": "measured", "bootstrap.servers": "memory://m"})
    return AppMetrics(builder.build(), config, lambda: State.RUNNING)


def progress(number, *tasks, **more):
    return BatchProgress(number, 10, 10, 1, 0, tasks=tasks, seconds=2.0, **more)


def task(name, seconds, reasons=()):
    return {"task": name, "records_read": 5, "seconds": seconds, "counts": {"processed": 5, "reasons": list(reasons)}}


def test_a_snapshot_is_json_and_what_is_no_number_yet_is_null():
    registry = MetricRegistry(RecordingLevel.INFO, clock=lambda: 0)
    registry.meter(E2E_LATENCY, {"task-id": "0_0"})
    registry.gauge(MetricName.of("state", "stream-metrics", {"client-id": "a"}), lambda: "RUNNING")
    found = json.loads(json.dumps(snapshot(registry)))
    assert [(one["name"], one["value"]) for one in found] == [
        ("state", "RUNNING"),
        ("record-e2e-latency-avg", None),
        ("record-e2e-latency-max", None),
        ("record-e2e-latency-min", None),
    ]
    assert [one["name"] for one in snapshot(registry, "^stream-metrics:")] == ["state"]


def test_a_snapshot_refuses_what_is_no_regular_expression():
    with pytest.raises(ConfigError, match=r"'\(' is not a regular expression"):
        snapshot(MetricRegistry(RecordingLevel.INFO, clock=lambda: 0), "(")


def test_the_record_of_a_batch_has_steps_skew_and_drops_by_node_and_reason(measured):
    late = ["KSTREAM-SOURCE-0000000000", "late", 1]
    measured(progress(7, task("0_0", {"process": 1.0, "write": 0.5}), task("0_1", {"process": 0.5}, [late])))
    measured.catch_up()
    document = json.loads(json.dumps(measured.batches.newest.document()))
    assert document["number"] == 7
    assert document["steps"] == {"process": 1.5, "write": 0.5}
    assert document["slowest"] == {"process": 1.0, "write": 0.5}
    assert document["skew"] == 1.5  # 1.5 s against the median of 1.5 s and 0.5 s
    assert document["drops"] == [{"node": "KSTREAM-SOURCE-0000000000", "reason": "late", "records": 1}]
    assert [one["task"] for one in document["tasks"]] == ["0_0", "0_1"]


def test_a_batch_waits_in_a_queue_until_somebody_reads(measured):
    measured(progress(0, task("0_0", {"process": 1.0})))
    assert measured.batches.newest is None
    measured.catch_up()
    assert measured.batches.newest.number == 0
    assert measured.registry.value("process-total", group="stream-thread-metrics") == 10


def records(number):
    row = {"key": b"k", "value": b"v", "timestamp": 1_000, "headers": None, "offset": 0}
    rows = [{name: row.get(name) for name in RECORD_SCHEMA.names}] * number
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def test_the_lag_is_known_before_the_first_batch(measured, tmp_path):
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        log.create_topic("in", 2)
        log.append("in", 0, records(5))
        log.append("in", 1, records(7))
        log.commit_offsets("measured", {TopicPartition("in", 1): 3})
        assert measured.look(log, ["in"], {}) == {"in-0": 5, "in-1": 4}
        assert measured.look(log, ["in"], {"in-0": 2}) == {"in-0": 3, "in-1": 4}


def test_lag_has_records_and_the_age_of_the_first_record_that_waits(measured, tmp_path):
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        log.create_topic("in")
        assert measured.look(log, ["in"], {"in-0": 0}) == {"in-0": 0}
        log.append("in", 0, records(3))
        assert measured.look(log, ["in"], {"in-0": 1}) == {"in-0": 2}
        (lag,) = measured.lags()
        assert (lag.position, lag.end, lag.records) == (1, 3, 2)
        assert lag.seconds > 1_000_000  # its record is of 1970
        assert measured.registry.value("records-lag", partition="0") == 2
        log.delete_topic("in")
        assert measured.look(log, ["in"], {"in-0": 1}) == {"in-0": 2}  # as of the last look


def test_a_batch_has_the_lag_that_it_leaves(measured, tmp_path):
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        log.create_topic("in")
        log.append("in", 0, records(5))
        measured.look(log, ["in"], {})
        for number, end in enumerate((3, 5)):
            measured(progress(number, task("0_0", {"process": 1.0}) | {"ends": {"in-0": end}}))
        measured.catch_up()
    left, none = measured.batches
    assert [(batch.waiting, batch.lags[0].position) for batch in (left, none)] == [(2, 3), (0, 5)]
    assert (left.document()["lag"], none.document()["lag"]) == (
        {"records": 2, "seconds": None},
        {"records": 0, "seconds": 0.0},
    )


def test_the_trend_of_a_lag_is_that_of_the_last_minute():
    now = [0]
    watch = LagWatch(lambda: now[0])
    for second in range(120):
        now[0] = second * 1000
        watch.look({"in-0": 0}, {"in-0": 5 * min(second, 60)}, lambda *_: None)
    assert watch.of("in-0").trend == pytest.approx(5 * 1 / 60, abs=0.1)
    assert watch.of("in-0").seconds is None


def test_the_age_of_a_waiting_record_is_looked_up_every_five_seconds_and_after_a_move():
    now, asked = [10_000], []
    watch = LagWatch(lambda: now[0])

    def time_of(topic, partition, offset):
        asked.append((topic, partition, offset))
        return 8_000

    for step in range(12):
        now[0] = 10_000 + step * 1000
        watch.look({"a-b-0": step // 3}, {"a-b-0": 100}, time_of)
    assert asked == [("a-b", 0, 0), ("a-b", 0, 1), ("a-b", 0, 3)]
