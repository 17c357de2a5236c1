"""The names, groups, tags and levels of an application's metrics are those that Kafka Streams 4.3.1 registers.

``kafka_metrics.json.xz`` lists them as we recorded them from running applications: group, name, levels, sets of tags,
and whether the figure exists here (now, small, medium: at hand, with some work; no: it has no meaning).
"""

import json
import lzma
import time
from collections import defaultdict
from pathlib import Path

import pytest

from penstock import StreamsBuilder, StreamsConfig
from penstock.log.open import open_log
from penstock.runtime.task_counts import Spread, TaskCounts
from penstock.spark.batch.progress import BatchProgress
from penstock.spark.driver.app_metrics import AppMetrics
from penstock.states import State

RECORDED = json.loads(lzma.decompress(Path(__file__).with_name("kafka_metrics.json.xz").read_bytes()))
BY_NAME = {(group, name): (levels, tags, status) for group, name, levels, tags, status in RECORDED}
# What the clients of a worker count while they talk to a broker that asks for passwords.
COUNTED = [
    *((client, what) for client in ("consumer", "producer", "admin") for what in (
        "request-bytes", "answer-bytes", "connections-made", "connections-closed", "authentications",
    )),
    ("admin", "failed-authentications"),
    *(("consumer", what) for what in (
        "fetch-ms", "fetch-bytes", "throttle-ms", "commit-ms", "committed-ms", "heartbeat-ms", "rebalance-ms",
        "failed-rebalances",
    )),
    *(("producer", what) for what in (
        "batch-bytes", "compression", "record-bytes", "produce-ms", "throttle-ms", "retried-records", "failed-records",
        "commit-txn-ms", "abort-txn-ms", "init-txn-ms", "metadata-at-ms",
    )),
]  # fmt: skip
OWN = {"penstock-metrics"}
ONLY_HERE = {("stream-task-metrics", "function-errors-rate"), ("stream-task-metrics", "function-errors-total")}


def topology():
    from penstock import Materialized, Suppressed, TimeWindows

    builder = StreamsBuilder()
    stream = builder.stream("in")
    grouped = stream.group_by_key()
    grouped.count(Materialized("keys")).to_stream().to("out")
    windowed = grouped.windowed_by(TimeWindows.of("1 minute")).count(Materialized("windows"))
    windowed.suppress(Suppressed.until_window_closes()).to_stream().to("closed")
    builder.table("rows").to_stream().to("copies")
    grouped.windowed_by(TimeWindows.of("1 minute")).emit_strategy("on_window_close").count().to_stream().to("final")
    return builder.build()


def measured(level, tmp_path):
    built = topology()
    config = StreamsConfig(
        {"application.id": "named", "bootstrap.servers": "memory://n", "metrics.recording.level": level}
    )
    metrics = AppMetrics(built, config, lambda: State.RUNNING)
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        log.create_topic("in")
        metrics.look(log, ["in"], {"in-0": 0})
    counts = TaskCounts(5, Spread(5, 0.1, 0.02, 0.02))
    counts.consumed["KSTREAM-SOURCE-0000000000", "in"] = [5, 100]
    report = {
        "task": "0_0", "records_read": 5, "seconds": {"read": 0.1, "process": 0.2, "write": 0.1},
        "entries": dict.fromkeys(built.stores, 1), "counts": counts.document(), "opened": 1, "restored": [1, 9],
        "restored_rows": 3,
        "clients": [[client, what, "out", 2, 4.0, 1.0, 3.0] for client, what in COUNTED],
    }  # fmt: skip
    counts.produced["KSTREAM-SINK-0000000001", "out"] = [5, 100]
    report["counts"] = counts.document()
    table = {"task": "1_0", "records_read": 0, "seconds": {}}
    for number in range(2):
        metrics(BatchProgress(number, 5, 5, 0, 0, tasks=(report, table), seconds=0.001))
        time.sleep(0.002)
    metrics.catch_up()
    return metrics.registry


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return measured("TRACE", tmp_path_factory.mktemp("trace"))


def of_kafka(tags):
    return frozenset(tag.replace("lmdb", "rocksdb") for tag in tags)


def test_every_figure_that_is_at_hand_exists(trace):
    wanted = {key for key, (_, _, status) in BY_NAME.items() if status in ("now", "small")}
    found = {(name.group, name.name) for name in trace}
    assert wanted - found == set()


def test_what_has_no_meaning_here_does_not_exist(trace):
    meaningless = {key for key, (_, _, status) in BY_NAME.items() if status == "no"}
    assert {(name.group, name.name) for name in trace} & meaningless == set()


def test_every_metric_is_one_of_kafkas_or_in_the_group_of_penstock(trace):
    found = {(name.group, name.name) for name in trace if name.group not in OWN}
    assert found - BY_NAME.keys() - ONLY_HERE == set()


def test_tags_are_those_of_kafka(trace):
    wrong = defaultdict(set)
    for name in trace:
        if (name.group, name.name) in BY_NAME:
            tags = of_kafka(tag for tag, _ in name.tags)
            if tags not in {frozenset(each) for each in BY_NAME[name.group, name.name][1]}:
                wrong[name.group, name.name].add(tags)
    # Kafka has these of one kind of store alone.
    stores = {key: tags for key, tags in wrong.items() if key[0] == "stream-state-metrics"}
    assert {key: tags for key, tags in wrong.items() if key not in stores} == {}
    assert all(any(tag.endswith("state-id") for tag in tags) for each in stores.values() for tags in each)


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_the_recording_level_selects_as_in_kafka(level, tmp_path, trace):
    order = ["INFO", "DEBUG", "TRACE"]
    found = {(name.group, name.name) for name in measured(level, tmp_path)}
    everything = {(name.group, name.name) for name in trace if (name.group, name.name) in BY_NAME}
    below = {
        key for key in everything if min(map(order.index, BY_NAME[key][0])) <= order.index(level)
    }  # fmt: skip
    assert everything & found == below
