from __future__ import annotations

import base64
import json
import pickle
import threading
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from eventually import eventually
from penstock import KafkaStreams, Materialized, StreamsBuilder
from penstock.engines.kafka_streams import State
from penstock.errors import (
    CheckpointMismatchError,
    CoPartitionError,
    EnvironmentProblemError,
    FencedError,
    ProcessingError,
    TopologyError,
    UnknownTopicError,
)
from penstock.metrics import prometheus_text

from .conftest import BATCHES, Bench, long


def counting(words: str = "words", counts: str = "counts", store: str = "word-counts"):
    builder = StreamsBuilder()
    builder.stream(words).group_by(lambda _, value: value).count(Materialized(store)).to_stream().to(counts)
    return builder.build()


def test_counts_through_a_shuffle_and_continues_after_a_restart(bench: Bench) -> None:
    bench.log.create_topic("words", 2)
    bench.log.create_topic("counts", 2)
    wanted: Counter[str] = Counter()
    for run in range(3):
        for partition in range(2):
            rows = [("k", f"w{i % 5}", i) for i in range(100 + run)]
            wanted.update(value for _, value, _ in rows)
            bench.write("words", rows, partition)
        bench.run(counting(), **BATCHES)
    newest = dict(bench.read("counts", long))
    assert newest == dict(wanted)
    assert len(bench.read("counts")) == 15  # one change a key and batch, never twice
    assert bench.log.committed_offsets("app").keys()
    stages = "stage 1: sub-topology 0 (words); stage 2: sub-topology 1 (word-counts-repartition)"
    assert f"Some(app, batch 2: {stages})" in descriptions(bench)


def descriptions(bench: Bench) -> list[str]:
    """What Spark's web page calls its jobs."""
    jobs = bench.spark._jsc.sc().statusStore().jobsList(None)
    return [jobs.apply(n).description().toString() for n in range(jobs.size())]


def test_a_stateless_topology_needs_no_segment(bench: Bench) -> None:
    bench.log.create_topic("in", 2)
    builder = StreamsBuilder()
    builder.stream("in").filter(pl.col("value") != "b").map_values(lambda v: v.upper()).to("out")
    bench.write("in", [("1", "a", 0), ("2", "b", 1), ("3", "c", 2)])
    seen = []
    app = bench.app(builder.build(), **BATCHES)
    app.add_progress_listener(seen.append)
    app.run(until="latest")
    assert bench.read("out") == [("1", "A"), ("3", "C")]
    assert [(p.records_in, p.records_out, p.lag) for p in seen] == [(3, 2, {"in-0": 0})]
    assert not list((bench.root / "state").rglob("*.delta"))


def test_a_table_joined_in_the_second_stage(bench: Bench) -> None:
    bench.log.create_topic("orders", 2)
    bench.log.create_topic("users", 2)
    builder = StreamsBuilder()
    users = builder.table("users")
    orders = builder.stream("orders").select_key(lambda _, value: value.split(":")[0])
    orders.join(users, lambda order, user: f"{order}={user}").to("named")
    from penstock.log.partitioner import partition_for

    for user in ("ann", "bob"):
        bench.write("users", [(user, user.upper(), 0)], partition_for(user.encode(), 2))
    bench.write("orders", [("1", "ann:5", 10), ("2", "bob:6", 11), ("3", "zoe:7", 12)])
    bench.run(builder.build())
    assert sorted(bench.read("named")) == [("ann", "ann:5=ANN"), ("bob", "bob:6=BOB")]


def test_a_repartition_topic_with_two_readers_and_a_topic_loop(bench: Bench) -> None:
    bench.log.create_topic("in", 2)
    bench.log.create_topic("again", 1)
    builder = StreamsBuilder()
    shared = builder.stream("in").select_key(lambda _, v: v[0]).repartition()
    shared.group_by_key().count(Materialized("firsts")).to_stream().to("firsts")
    shared.map_values(lambda v: v * 2).to("doubles")
    builder.stream("again").filter(lambda _, v: len(v) < 4).map_values(lambda v: v + "x").to("again")
    bench.write("in", [("", "a1", 0), ("", "b1", 1), ("", "a2", 2)])
    bench.write("again", [("l", "o", 0)])
    app = bench.app(builder.build())
    with app:
        eventually(lambda: len(bench.read("again")) >= 4)
    assert [v for _, v in bench.read("again")] == ["o", "ox", "oxx", "oxxx"]
    assert dict(bench.read("firsts", long)) == {"a": 2, "b": 1}
    assert sorted(v for _, v in bench.read("doubles")) == ["a1a1", "a2a2", "b1b1"]


def test_small_batches_give_what_one_batch_gives(bench: Bench) -> None:
    bench.log.create_topic("words", 2)
    for partition in range(2):
        bench.write("words", [("k", f"w{i % 3}", i) for i in range(60)], partition)
    bench.run(counting(), **BATCHES, **{"penstock.max.records.per.batch": 25, "statestore.cache.max.bytes": 0})
    assert dict(bench.read("counts", long)) == {"w0": 40, "w1": 40, "w2": 40}
    assert len(bench.read("counts")) == 120


def test_states_and_a_clean_close(bench: Bench) -> None:
    bench.log.create_topic("words", 1)
    app = bench.app(counting())
    states: list[str] = []
    app.set_state_listener(lambda new, old: states.append(new.value))
    app.start()
    bench.write("words", [("k", "a", 0)])
    eventually(lambda: app.state is State.RUNNING, 120)
    app.close()
    assert app.wait(60_000)
    assert states == ["REBALANCING", "RUNNING", "PENDING_SHUTDOWN", "NOT_RUNNING"]
    assert app.metadata()["tasks"] == ["0_0", "1_0"]
    bench.run(counting())
    assert bench.read("counts", long) == [("a", 1)]


def test_a_user_error_names_operator_function_and_record(bench: Bench) -> None:
    class Evil:  # its bytes create a file where they are unpickled
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (bench.root / "ran",)

    bad = f"penstock-error:{base64.b64encode(pickle.dumps(Evil())).decode()}:end"
    bench.log.create_topic("in", 1)
    bench.write("in", [("k", "fine", 0), ("k", bad, 1)])
    builder = StreamsBuilder()

    def parse(value: str) -> str:
        if value == bad:
            raise ValueError(f"cannot read this: {value}")
        return value

    builder.stream("in").map_values(parse).to("out")
    told = []
    app = bench.app(builder.build())
    app.set_uncaught_exception_handler(told.append)
    with pytest.raises(ProcessingError, match="cannot read this") as caught:
        app.run(until="latest")
    assert told == [caught.value]
    assert caught.value.node == "KSTREAM-MAPVALUES-0000000001"
    assert Path(caught.value.file).name == "test_end_to_end.py"
    assert app.state.value == "ERROR"
    assert bench.read("out") == []
    assert not (bench.root / "ran").exists()


def test_checks_before_the_start(bench: Bench) -> None:
    bench.log.create_topic("words", 1)
    with pytest.raises(UnknownTopicError, match="word"):
        bench.app(counting("word")).start()
    lock = threading.Lock()
    builder = StreamsBuilder()
    builder.stream("words").peek(lambda _k, _v: lock.acquire(blocking=False)).to("out")
    with pytest.raises(TopologyError, match=r"KSTREAM-PEEK.*lock"):
        bench.app(builder.build()).start()
    bench.log.create_topic("users", 3)
    builder = StreamsBuilder()
    builder.stream("words").join(builder.table("users"), lambda a, b: a + b).to("out")
    with pytest.raises(CoPartitionError, match="'users' has 3 partitions and 'words' has 1"):
        bench.app(builder.build()).start()
    (bench.root / "file").write_text("")
    with pytest.raises(EnvironmentProblemError, match="not writable"):
        bench.app(counting(), **{"state.dir": str(bench.root / "file")}).start()


def test_a_second_instance_is_refused(bench: Bench) -> None:
    bench.log.create_topic("words", 1)
    with bench.app(counting()), pytest.raises(FencedError, match="runs already"):
        bench.app(counting()).start()


def test_checkpoints_of_others_and_of_changed_topologies(bench: Bench) -> None:
    bench.log.create_topic("words", 1)
    bench.write("words", [("k", "a", 0)])
    bench.run(counting(), **BATCHES)
    with pytest.raises(CheckpointMismatchError, match="store 'word-counts' is gone"):
        bench.app(counting(store="other"), **BATCHES).start()
    checkpoint = str(bench.root / "state" / "app" / "checkpoint")
    with pytest.raises(CheckpointMismatchError, match="is of application 'app'"):
        bench.app(counting(), **BATCHES, **{"application.id": "b", "penstock.checkpoint.location": checkpoint}).start()
    with pytest.raises(CheckpointMismatchError, match="has run before"):
        bench.app(counting(), **BATCHES, **{"penstock.checkpoint.location": str(bench.root / "new")}).start()
    assert checkpoint in bench.app(counting(), **BATCHES).reset()
    assert not Path(checkpoint).exists()  # all of it had names that a reset knows
    assert bench.app(counting(), **BATCHES).reset() == ()
    bench.run(counting(), **BATCHES)
    assert bench.read("counts", long) == [("a", 1), ("a", 1)]


def test_explain(bench: Bench) -> None:
    bench.log.create_topic("words", 2)
    app = bench.app(counting())
    assert "Stage 1 (reads repartition topics)" in app.explain()
    assert "Stage 1 (after a shuffle by task)" in bench.app(counting(), **BATCHES).explain()
    assert json.loads(json.dumps(app.explain_json()))["stages"][0]["subtopologies"][0]["tasks"] == 2


def test_an_output_topic_as_a_dataframe(bench: Bench) -> None:
    bench.log.create_topic("words", 1)
    bench.write("words", [("k", "a", 0), ("k", "b", 0)])
    app: KafkaStreams = bench.app(counting())
    with app:
        eventually(lambda: len(bench.read("counts")) >= 2)
        frame = app.to_dataframe("counts")
        query = frame.writeStream.format("memory").queryName("counts").trigger(availableNow=True).start()
        query.awaitTermination(60)
        rows = bench.spark.sql("select key from counts order by key").collect()
    assert [bytes(r.key) for r in rows] == [b"a", b"b"]


def test_an_application_without_input_runs_too(bench: Bench) -> None:
    bench.log.create_topic("words", 1)
    app = bench.app(counting())
    with app:
        eventually(lambda: app.state is State.RUNNING, 120)


def test_metrics_of_an_application_are_those_of_its_topics(bench: Bench) -> None:
    bench.log.create_topic("words", 2)
    bench.log.create_topic("counts", 1)
    for partition in range(2):
        bench.write("words", [("k", f"w{i % 5}", i) for i in range(100)], partition)
    app = bench.run(counting(), **BATCHES, **{"metrics.recording.level": "DEBUG"})
    metrics = app.metrics
    assert metrics.total("records-consumed-total", topic="words") == 200
    assert metrics.total("records-produced-total", topic="counts") == len(bench.read("counts"))
    assert {metrics.value("process-total", group="stream-task-metrics", task_id=f"0_{n}") for n in range(2)} == {100}
    assert metrics.value("process-total", group="stream-thread-metrics") == 200
    assert metrics.value("commit-total") == 1
    assert metrics.find("record-e2e-latency-min", processor_node_id="KSTREAM-SINK-0000000007")[0].metric_value() > 0
    assert metrics.value("state", group="stream-metrics") == "NOT_RUNNING"
    assert metrics.total("put-rate") > 0
    assert metrics.total("store-written-rows-total") == 5  # of each word, by one task of the count
    assert metrics.total("store-calls-total", call="put") == 5
    assert metrics.find("store-bytes")
    assert metrics.total("node-rows-in-total", processor_node_id="KSTREAM-SOURCE-0000000000") == 0  # no operator
    assert metrics.value("lag-records", topic="words", partition="1") == 0
    assert metrics.total("records-lead", topic="words") == 200
    (batch,) = app.batches
    assert set(batch.steps) >= {"read", "process", "publish", "write"}
    assert sum(batch.slowest.values()) <= sum(batch.steps.values())
    assert 'kafka_streams_stream_topic_metrics_records_consumed_total{processor_node_id="' in prometheus_text(metrics)
