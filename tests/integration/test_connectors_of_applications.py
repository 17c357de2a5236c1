"""Applications whose results a sink connector carries into a table of Delta Lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from penstock import Produced, StreamsBuilder, Topology
from penstock.connect.data import SettingError
from penstock.errors import ConnectError
from penstock.serde import Serdes

from .conftest import Bench

pytest.importorskip("deltalake")
from deltalake import DeltaTable


def orders(table: Path, **more: Any) -> Topology:
    builder = StreamsBuilder()
    paid = builder.stream("orders").map_values(json.loads).filter(lambda order: order["total"] > 0)
    connector = {
        "connector.class": "DeltaSink",
        "table.uri": str(table),
        "flush.size": 10,
        "flush.interval.ms": 100,
        **more,
    }
    paid.sink_to(connector, topic="paid", produced=Produced(key_serde="string", value_serde=Serdes.json()))
    return builder.build()


def rows(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table().column("n").to_pylist())


def write(bench: Bench, numbers: range) -> None:
    for partition in range(2):
        mine = [n for n in numbers if n % 2 == partition]
        bench.write("orders", [(str(n), json.dumps({"n": n, "total": n % 5}), n) for n in mine], partition)


def test_the_table_has_each_result_once_over_several_runs(bench: Bench, tmp_path: Path) -> None:
    table = tmp_path / "lake"
    for topic in ("orders", "paid"):
        bench.log.create_topic(topic, 2)
    write(bench, range(100))
    bench.run(orders(table))  # until "latest": it ends when the table has all
    assert rows(table) == [n for n in range(100) if n % 5]
    app = bench.app(orders(table))
    app.start()
    try:
        write(bench, range(100, 200))
        expected = [n for n in range(200) if n % 5]
        eventually(lambda: rows(table) == expected, 300)
    finally:
        app.close()
    write(bench, range(200, 210))
    bench.run(orders(table))
    assert rows(table) == [n for n in range(210) if n % 5]


def test_an_error_of_the_connector_ends_the_application(bench: Bench, tmp_path: Path) -> None:
    for topic in ("orders", "paid"):
        bench.log.create_topic(topic, 2)
    write(bench, range(10))
    app = bench.app(
        orders(tmp_path / "lake", **{"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id"})
    )
    app.start()
    with pytest.raises(ConnectError, match=r"the connector app-paid of topic paid has failed: .* no field id"):
        app.wait(300_000)
    assert app.state.value == "ERROR"


def test_a_wrong_connector_is_an_error_before_anything_runs(bench: Bench, tmp_path: Path) -> None:
    for topic in ("orders", "paid"):
        bench.log.create_topic(topic, 2)
    app = bench.app(orders(tmp_path / "lake", **{"flush.size": "many"}))
    with pytest.raises(
        SettingError, match=r"the connector app-paid of topic paid: .*\n +flush\.size: Invalid value many"
    ):
        app.start()


def test_a_source_is_no_sink(bench: Bench) -> None:
    builder = StreamsBuilder()
    builder.stream("orders").sink_to({"connector.class": "FileStreamSource", "topic": "x", "file": "f"}, topic="paid")
    app = bench.app(builder.build())
    with pytest.raises(SettingError, match="FileStreamSource is a source, which sink_to"):
        app.start()
