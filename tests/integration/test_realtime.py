"""Real-time mode over a broker: what it runs, what it refuses, and what a restart does."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from penstock import KafkaStreams, StreamsBuilder
from penstock.app import State
from penstock.errors import CheckpointMismatchError, ConfigError
from penstock.log.base import TopicPartition
from penstock.spark.launch import plan_for, prepare_job
from penstock.spark.realtime_stage import _Work

from . import realtime_app
from .conftest import Bench, long

APP = Path(realtime_app.__file__)
PATIENCE_S = 150
MODE = {"processing.mode": "realtime", "penstock.realtime.batch.ms": 5_000, "statestore.cache.max.bytes": 0}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_counts_as_records_come_and_goes_on_after_a_stop(kafka_bench: Bench) -> None:
    bench = kafka_bench
    name = "rt-words"
    bench.log.create_topic(name, 1)
    bench.log.create_topic(f"{name}-counts", 1)
    for run in range(2):
        app: KafkaStreams = bench.app(realtime_app.topology(name), **{**MODE, "application.id": name})
        assert app.explain_json()["realtime"] == {"possible": True, "reason": None}
        with app:
            bench.write(name, [("a", "x", run), ("b", "x", run), ("a", "x", run)])
            until(lambda run=run: len(bench.read(f"{name}-counts", long)) >= 3 * (run + 1))
    assert app.state is State.NOT_RUNNING
    assert dict(bench.read(f"{name}-counts", long)) == {"a": 4, "b": 2}
    assert bench.read(f"{name}-counts", long)[:3] == [("a", 1), ("b", 1), ("a", 2)]
    with pytest.raises(CheckpointMismatchError, match=r"made with processing\.mode=realtime"):
        bench.run(realtime_app.topology(name), **{"application.id": name})


def test_records_that_come_again_count_once(kafka_bench: Bench) -> None:
    """What a crash does: Spark hands over the batch again, from its beginning and perhaps further."""
    bench = kafka_bench
    name = "rt-again"
    bench.log.create_topic(name, 1)
    bench.log.create_topic(f"{name}-counts", 1)
    app = bench.app(realtime_app.topology(name), **{**MODE, "application.id": name})
    plan = plan_for(app.topology, app.config, bench.log)
    lease = bench.log.acquire_lease(name, "test")
    job = prepare_job(app.topology, app.config, plan, bench.log, lease, parallelism=2, until_latest=False)

    def run(batch: int, offsets: range, *, crashes: bool = False) -> None:
        work = _Work(job, batch)
        for offset in offsets:
            work.take([arrived(name, offset)])
        if crashes:
            work.abandon()
        else:
            work.finish()

    run(0, range(3))
    run(1, range(3, 5), crashes=True)  # neither state nor offset; its outputs are written
    run(1, range(3, 6))
    run(1, range(3, 8))  # published, but Spark did not note it
    run(2, range(8, 9))
    counts = [count for _, count in bench.read(f"{name}-counts", long)]
    assert counts == [1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9]
    bench.log.release_lease(lease)


def arrived(topic: str, offset: int) -> pa.RecordBatch:
    """A record as the connector hands it over."""
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {
        "topic": pa.array([topic]),
        "partition": pa.array([0], pa.int32()),
        "offset": pa.array([offset], pa.int64()),
        "timestamp": pa.array([offset], pa.int64()),
        "key": pa.array([b"k"], pa.binary()),
        "value": pa.array([b"v"], pa.binary()),
        "headers": pa.array([None], headers),
    }
    return pa.RecordBatch.from_pydict(columns)


def test_what_real_time_mode_cannot_run_is_refused_with_the_reason(kafka_bench: Bench, bench: Bench) -> None:
    kafka_bench.log.create_topic("rt-left")
    kafka_bench.log.create_topic("rt-right")
    builder = StreamsBuilder()
    builder.stream("rt-left").join(builder.table("rt-right"), lambda a, b: a + b).to("rt-joined")
    app = kafka_bench.app(builder.build(), **{**MODE, "application.id": "rt-join"})
    reason = "it gives each task one topic, and sub-topology 0 reads rt-left, rt-right together"
    assert reason in app.explain()
    with pytest.raises(ConfigError, match=reason):
        app.start()

    again = StreamsBuilder()
    again.stream("rt-left").group_by(lambda _, value: value).count().to_stream().to("rt-counted")
    app = kafka_bench.app(again.build(), **{**MODE, "application.id": "rt-two"})
    with pytest.raises(ConfigError, match="this topology has 2: records pass through"):
        app.start()

    app = kafka_bench.app(
        realtime_app.topology("rt-left"),
        **{**MODE, "application.id": "rt-exactly", "processing.guarantee": "exactly_once_v2"},
    )
    with pytest.raises(ConfigError, match="at least once"):
        app.start()

    bench.log.create_topic("words")
    with pytest.raises(ConfigError, match="the log is an embedded one"):
        bench.app(realtime_app.topology("words"), **MODE).start()


def test_a_group_that_others_have_set_is_where_it_begins(kafka_bench: Bench) -> None:
    bench = kafka_bench
    name = "rt-group"
    bench.log.create_topic(name, 1)
    bench.log.create_topic(f"{name}-counts", 1)
    bench.write(name, [("a", "x", 0), ("b", "x", 0), ("c", "x", 0)])
    bench.log.commit_offsets(name, {TopicPartition(name, 0): 2})
    with bench.app(realtime_app.topology(name), **{**MODE, "application.id": name}):
        until(lambda: len(bench.read(f"{name}-counts", long)) == 1)
    assert bench.read(f"{name}-counts", long) == [("c", 1)]


def test_a_driver_that_is_killed_in_mid_batch_loses_nothing_and_counts_nothing_twice(kafka_bench: Bench) -> None:
    bench = kafka_bench
    name, start = "rt-killed", TopicPartition("rt-killed", 0)
    bench.log.create_topic(name, 1)
    bench.log.create_topic(f"{name}-counts", 1)
    sent: dict[str, int] = defaultdict(int)

    def write(count: int) -> None:
        keys = [f"k{number % 3}" for number in range(count)]
        for key in keys:
            sent[key] += 1
        bench.write(name, [(key, "x", 0) for key in keys])

    def counts() -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for key, count in bench.read(f"{name}-counts", long):
            found[str(key)].append(count)
        return found

    def all_are_counted() -> bool:
        return {key: max(seen) for key, seen in counts().items()} == sent

    write(20)
    driver = psutil.Popen([sys.executable, str(APP), bench.url, str(bench.root / "state"), name])
    try:
        until(lambda: bench.log.committed_offsets(name).get(start) == 20)  # the first batch has ended
        write(20)
        until(all_are_counted)
    finally:
        kill_all(driver)
    write(20)
    with bench.app(realtime_app.topology(name), **{**MODE, "application.id": name}):
        until(all_are_counted)
    for key, seen in counts().items():
        assert set(seen) == set(range(1, sent[key] + 1))  # none is missing, and none counts twice


def kill_all(driver: psutil.Popen) -> None:
    """The driver, its JVM and the workers at once, so that none of them can tidy up."""
    processes = [driver, *driver.children(recursive=True)]
    for signal in (psutil.Process.suspend, psutil.Process.kill):
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                signal(process)
    driver.wait()
    psutil.wait_procs(processes, timeout=10)
