from __future__ import annotations

import json
import pickle
import shutil
import time
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from eventually import eventually
from penstock import Consumed, KafkaStreams, Materialized, StreamsBuilder, StreamsConfig
from penstock.engines.application_figures import BatchMeter
from penstock.engines.application_run import Run
from penstock.engines.reset import ApplicationReset
from penstock.errors import CheckpointMismatchError, SerializationError, TopologyError
from penstock.log.groups.reset_targets import Target

from .conftest import START, Bench, long
from .test_continuous import kill_a_worker, wait_for_epoch_after

SCHEMA = "item string, amount bigint, at timestamp, tags array<string>"


def add(folder: Path, name: str, rows: list[tuple[str | None, int, int]]) -> None:
    folder.mkdir(exist_ok=True)
    lines = []
    for item, amount, seconds in rows:
        at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(START / 1000 + seconds))
        lines.append(json.dumps({"item": item, "amount": amount, "at": at, "tags": ["t"]}))
    (folder / f".{name}").write_text("\n".join(lines))
    (folder / f".{name}").rename(folder / name)  # whole at once, as Spark wants it


def orders(bench: Bench) -> Any:
    return bench.spark.readStream.schema(SCHEMA).json(str(bench.root / "orders"))


def totals(df: Any) -> Any:
    builder = StreamsBuilder()
    stream = builder.stream_dataframe(df, name="orders", key="item", value="amount", timestamp="at", partitions=2)
    stream.group_by_key().count(Materialized("n")).to_stream().to("counts")
    return builder.build()


@pytest.mark.parametrize("mode", ["continuous", "micro_batch"])
def test_each_row_once_over_restarts_and_a_repeated_batch(bench: Bench, mode: str) -> None:
    folder, settings = bench.root / "orders", {"processing.mode": mode}
    add(folder, "1.json", [("pen", 2, 5), ("ink", 1, 1), ("pen", 4, 3)])
    bench.run(totals(orders(bench)), **settings)
    assert sorted(bench.read("counts", long)) == [("ink", 1), ("pen", 2)]
    done = bench.root / "state/app/checkpoint/dataframes/orders/commits/0"
    assert done.exists()
    done.unlink()  # a crash after the write, before Spark notes it: batch 0 comes again
    add(folder, "2.json", [("pen", 7, 9), ("ink", 1, 10)])
    bench.run(totals(orders(bench)), **settings)
    assert sorted(bench.read("counts", long)) == [("ink", 1), ("ink", 2), ("pen", 2), ("pen", 3)]
    assert bench.log.ledger("app")["dataframe-orders"] == 1


@pytest.mark.parametrize("mode", ["continuous", "micro_batch"])
def test_a_run_that_finishes_what_is_half_done_reads_no_rows(bench: Bench, mode: str) -> None:
    """A conversion begins with such a run in the earlier mode."""
    folder, settings = bench.root / "orders", {"processing.mode": mode}
    add(folder, "1.json", [("pen", 2, 5)])
    bench.run(totals(orders(bench)), **settings)
    add(folder, "2.json", [("ink", 7, 9)])
    app = KafkaStreams(totals(orders(bench)), bench.config(**settings), session=bench.spark)
    run = Run(app.topology, app.config, bench.spark, (), BatchMeter("app"), reads_nothing=True)
    try:
        run.launch(until_latest=True)
        eventually(lambda: run.wait(0.1))
    finally:
        run.release(commit=True)
    assert bench.log.ledger("app")["dataframe-orders"] == 0
    assert bench.read("counts", long) == [("pen", 1)]
    bench.run(totals(orders(bench)), **settings)
    assert sorted(bench.read("counts", long)) == [("ink", 1), ("pen", 1)]


@pytest.mark.parametrize("mode", ["continuous", "micro_batch"])
def test_rows_are_not_taken_for_written_ones_when_their_progress_is_lost(bench: Bench, mode: str) -> None:
    folder, settings = bench.root / "orders", {"processing.mode": mode}
    add(folder, "1.json", [("pen", 2, 5)])
    bench.run(totals(orders(bench)), **settings)
    lost = "checkpoint" if mode == "continuous" else "checkpoint/dataframes"
    shutil.rmtree(bench.root / "state/app" / lost)
    add(folder, "2.json", [("pen", 7, 9), ("ink", 1, 10)])
    for _ in range(2):
        with pytest.raises(CheckpointMismatchError, match="progress of DataFrame 'orders' is lost") as caught:
            bench.run(totals(orders(bench)), **settings)
    assert "penstock app reset app.py:topology --without-checkpoint" in caught.value.hint
    assert bench.read("counts", long) == [("pen", 1)]
    reset = ApplicationReset(
        bench.log, StreamsConfig(bench.config(**settings)), totals(orders(bench)), without_checkpoint=True
    )
    reset.run(reset.plan(Target.earliest()))
    bench.run(totals(orders(bench)), **settings)
    assert sorted(bench.read("counts", long)[1:]) == [("ink", 1), ("pen", 2)]


def test_rows_are_read_once_over_conversions(bench: Bench) -> None:
    folder = bench.root / "orders"
    for number, mode in enumerate(["micro_batch", "continuous", "micro_batch", "continuous"], 1):
        add(folder, f"{number}.json", [("pen", number, number)])
        bench.run(totals(orders(bench)), **{"processing.mode": mode})
        assert bench.read("counts", long) == [("pen", count) for count in range(1, number + 1)]
    assert bench.log.ledger("app")["dataframe-orders"] == 3


def test_rows_are_read_on_by_threads_that_begin_again(bench: Bench) -> None:
    folder = bench.root / "orders"
    add(folder, "1.json", [("pen", 1, 0)])
    builder = StreamsBuilder()
    stream = builder.stream_dataframe(orders(bench), name="orders", key="item", value="amount")
    stream.map_values(str).to("out")
    app = bench.app(builder.build())
    with app:
        eventually(lambda: bench.read("out") == [("pen", "1")])
        wait_for_epoch_after(app, kill_a_worker(app))
        add(folder, "2.json", [("ink", 2, 0)])
        eventually(lambda: bench.read("out") == [("pen", "1"), ("ink", "2")], facts=lambda: app.error)


def test_while_it_runs_and_out_again(bench: Bench) -> None:
    folder = bench.root / "orders"
    add(folder, "1.json", [("pen", 2, 0), (None, 3, 1)])
    builder = StreamsBuilder()
    stream = builder.stream_dataframe(orders(bench), name="orders", key="item", value="amount", timestamp="at")
    output = stream.map_values(lambda amount: -amount).to_dataframe("negative")
    rows: list[Any] = []
    app = bench.app(builder.build(), **{"default.value.serde": "long"})
    with app:
        frame = output.of(app)
        query = frame.writeStream.foreachBatch(lambda part, _: rows.extend(part.collect())).start()
        add(folder, "2.json", [("ink", 5, 2)])
        eventually(lambda: len(rows) >= 3)
        query.stop()
    assert sorted((row.key or "", row.value, row.timestamp - START) for row in rows) == [
        ("", -3, 1000),
        ("ink", -5, 2000),
        ("pen", -2, 0),
    ]


def test_whole_rows_are_json_and_reset_reads_again(bench: Bench) -> None:
    add(bench.root / "orders", "1.json", [("pen", 2, 0)])
    builder = StreamsBuilder()
    kept = builder.stream_dataframe(orders(bench), name="rows", key="amount", value=("item", "amount", "tags"))
    kept.map_values(lambda row: row["item"] * row["amount"] + row["tags"][0]).to("out")
    topology = builder.build()
    bench.run(topology)
    bench.app(topology).reset()
    assert not (bench.root / "state" / "app" / "checkpoint").exists()
    bench.run(topology)
    assert bench.log.end_offset("app-rows-dataframe", 0) == 1
    topic = bench.log.read("out", 0, 0).records
    assert topic.column("key").to_pylist() == [(2).to_bytes(8, "big")] * 2
    assert topic.column("value").to_pylist() == [b"penpent"] * 2


def test_a_serde_of_ones_own_and_its_failure(bench: Bench) -> None:
    add(bench.root / "orders", "1.json", [("7", 2, 0)])
    builder = StreamsBuilder()
    options = Consumed(key_serde="text_long")
    builder.stream_dataframe(orders(bench), name="rows", key="item", value="amount", consumed=options).to("out")
    with pytest.raises(SerializationError, match="text_long"):
        bench.run(builder.build())


def test_a_pickled_topology_needs_its_dataframe_again(bench: Bench) -> None:
    add(bench.root / "orders", "1.json", [("pen", 2, 5)])
    topology = pickle.loads(cloudpickle.dumps(totals(orders(bench))))
    with pytest.raises(TopologyError, match="was not pickled with it"):
        bench.run(topology)
    with pytest.raises(TopologyError, match="does not read"):
        KafkaStreams(topology, bench.config(), dataframes={"order": orders(bench)})
    KafkaStreams(topology, bench.config(), session=bench.spark, dataframes={"orders": orders(bench)}).run(
        until="latest"
    )
    assert bench.read("counts", long) == [("pen", 1)]


def test_refusals_at_the_line_that_builds(bench: Bench) -> None:
    (bench.root / "orders").mkdir()
    builder, df = StreamsBuilder(), orders(bench)
    with pytest.raises(TopologyError, match="takes a streaming DataFrame"):
        builder.stream_dataframe(bench.spark.range(3), name="a")
    with pytest.raises(TopologyError, match="no column itm"):
        builder.stream_dataframe(df, name="a", key="itm")
    with pytest.raises(TopologyError, match="of type timestamp"):
        builder.stream_dataframe(df, name="a", value="at")
    with pytest.raises(TopologyError, match="of type string"):
        builder.stream_dataframe(df, name="a", timestamp="item")
    builder.stream_dataframe(df, name="a")
    with pytest.raises(TopologyError, match="two DataFrames are named 'a'"):
        builder.stream_dataframe(df, name="a")


def test_a_dataframe_that_fails_fails_the_application(bench: Bench) -> None:
    folder = bench.root / "orders"
    add(folder, "1.json", [("pen", 1, 0)])
    builder = StreamsBuilder()
    options = Consumed(key_serde="text_long")
    df = orders(bench).selectExpr("case when amount > 1 then 'seven' end as item", "amount")
    builder.stream_dataframe(df, name="rows", key="item", value="amount", consumed=options).to("out")
    app = bench.app(builder.build())
    app.start()
    add(folder, "2.json", [("ink", 2, 0)])
    with pytest.raises(SerializationError, match="text_long"):
        app.wait(40_000)
    assert app.state.value == "ERROR"
