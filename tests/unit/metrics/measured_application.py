"""An application's registry with every metric: a topology of many kinds, and counts of all that its tasks can count."""

from __future__ import annotations

import time

from penstock import StreamsBuilder, StreamsConfig
from penstock.engines.app_metrics import AppMetrics
from penstock.engines.lifecycle import State
from penstock.engines.spark.progress import BatchProgress
from penstock.log.open import open_log
from penstock.metrics.task_counts import Spread, TaskCounts

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


def topology():
    from penstock import Materialized, SessionWindows, Suppressed, TimeWindows

    builder = StreamsBuilder()
    stream = builder.stream("in")
    grouped = stream.group_by_key()
    grouped.count(Materialized("keys")).to_stream().to("out")
    windowed = grouped.windowed_by(TimeWindows.of("1 minute")).count(Materialized("windows"))
    windowed.suppress(Suppressed.until_window_closes()).to_stream().to("closed")
    builder.table("rows").to_stream().to("copies")
    grouped.windowed_by(SessionWindows.of("1 minute")).count(Materialized("sessions"))
    grouped.count(Materialized("memory", store_type="in_memory"))
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
