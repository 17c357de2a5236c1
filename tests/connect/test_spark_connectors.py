"""Any source or sink of Spark as a connector, whose child process runs PySpark: each record once, whatever crashes."""

import datetime as dt
import json
import time
from decimal import Decimal

import psutil
import pyarrow as pa
import pytest
from pyarrow import dataset, parquet

from eventually import eventually
from penstock.connect.connectors.spark import SparkSinkConnector, SparkSourceConnector, schema_of, value_of
from penstock.connect.data import Moment
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError

PATIENCE_S = 240
JSON = "org.apache.kafka.connect.json.JsonConverter"
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def polled(driver, wanted, **more):
    """Poll until this many records have come, at most for some minutes: Spark starts slowly on a busy machine."""
    found, deadline = [], time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found += driver.poll(**more)
        if len(found) >= wanted:
            return found
    raise AssertionError(f"{len(found)} records in place of {wanted}")


def crash(driver, step):
    """Kill the task at a step of the next batch, and its process of Spark."""
    [before], deadline = driver.sources, time.monotonic() + PATIENCE_S
    while driver.sources == [before]:
        driver.poll(crash=step)
        assert time.monotonic() < deadline, "no batch came"
    before.task.stop()


def place_file(path, text):
    """Let a file appear whole: Spark reads one that it finds empty never again."""
    unseen = path.with_name(f".{path.name}")
    unseen.write_text(text)
    unseen.rename(path)


@pytest.fixture
def csv_source(tmp_path):
    (tmp_path / "in").mkdir()
    place_file(tmp_path / "in" / "1.csv", "1,ann\n2,bob\n")
    return {
        "name": "people", "topic": "people", "spark.format": "csv", "spark.option.path": str(tmp_path / "in"),
        "spark.schema": "id INT, name STRING", "spark.checkpoint": str(tmp_path / "checkpoint"),
        "spark.interval.ms": "100", "spark.key.column": "id",
    }  # fmt: skip


@pytest.mark.whole
def test_rows_of_a_stream_come_once_whatever_crashes(csv_source, tmp_path):
    driver = ConnectTestDriver(SparkSourceConnector, csv_source)
    polled(driver, 2)
    place_file(tmp_path / "in" / "2.csv", "3,cy\n")
    crash(driver, Step.WRITTEN)  # before the commit
    place_file(tmp_path / "in" / "3.csv", "4,dan\n")
    crash(driver, Step.COMMITTED)  # behind it, before Spark knows
    deadline = time.monotonic() + PATIENCE_S
    while len(driver.read("people")) < 4 and time.monotonic() < deadline:
        driver.poll()
    driver.stop()
    found = driver.read("people")
    assert sorted((int(record.key), record.value["name"]) for record in found) == [
        (1, "ann"), (2, "bob"), (3, "cy"), (4, "dan"),
    ]  # fmt: skip


def test_a_parquet_folder_is_read_once_as_a_batch(tmp_path):
    table = pa.table({"n": [1, 2, 3], "value": ["a", "b", None]})
    parquet.write_table(table, tmp_path / "in.parquet")
    config = {
        "topic": "t", "spark.format": "parquet", "spark.option.path": str(tmp_path / "in.parquet"),
        "spark.mode": "batch", "spark.value.column": "value",
    }  # fmt: skip
    before = psutil.Process().children()
    driver = ConnectTestDriver(SparkSourceConnector, config)
    assert [record.value for record in polled(driver, 3)] == ["a", "b", None]
    again = ConnectTestDriver(SparkSourceConnector, config, log=driver.log)
    driver.stop()
    for _ in range(20):
        assert again.poll() == []
    again.stop()
    eventually(lambda: not {*psutil.Process().children()} - {*before})


@pytest.mark.whole
def test_files_hold_each_record_once_whatever_crashes_and_other_sinks_take_rows(tmp_path):
    out = tmp_path / "out"
    config = {"topics": "orders", "spark.format": "parquet", "spark.option.path": str(out), "value.converter": JSON}
    config["value.converter.schemas.enable"] = "false"
    driver = ConnectTestDriver(SparkSinkConnector, config)
    driver.produce("orders", *[{"id": number} for number in range(3)])
    [killed] = driver.sinks
    driver.put(crash=Step.FLUSHED)
    killed.task.stop()
    driver.produce("orders", *[{"id": number} for number in range(3, 5)])
    driver.put()
    driver.produce("orders", {"id": 5})
    driver.put()
    driver.stop()
    found = dataset.dataset(out, partitioning="hive").to_table().to_pylist()
    assert sorted((row["id"], row["kafka_partition"], row["kafka_offset"]) for row in found) == [
        (0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0), (4, 0, 0), (5, 0, 5),
    ]  # fmt: skip
    assert {row["kafka_topic"] for row in found} == {"orders"}


def test_spark_runs_where_the_setting_of_a_source_or_sink_says(tmp_path):
    where = {"spark.format": "parquet", "spark.option.path": str(tmp_path), "spark.master": "local[nowhere]"}
    with pytest.raises(ConnectError, match=r"local\[nowhere\]"):
        ConnectTestDriver(SparkSinkConnector, {**where, "topics": "t"})
    driver = ConnectTestDriver(SparkSourceConnector, {**where, "topic": "t", "spark.checkpoint": str(tmp_path / "c")})
    with pytest.raises(ConnectError, match=r"local\[nowhere\]"):
        polled(driver, 1)
    driver.stop()


@pytest.mark.whole
def test_what_spark_refuses_is_an_error_with_its_words(tmp_path):
    config = {"topic": "t", "spark.format": "nonesuch", "spark.checkpoint": str(tmp_path / "c")}
    driver = ConnectTestDriver(SparkSourceConnector, config)
    with pytest.raises(ConnectError, match="nonesuch"):
        polled(driver, 1)
    driver.stop()


def test_columns_have_schemas_of_connect_for_all_of_their_types():
    kind = pa.struct(
        [("d", pa.decimal128(10, 2)), ("when", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string()))]
    )
    value = {"d": Decimal("1.50"), "when": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "tags": ["a", None]}
    made = value_of(value, schema_of(kind))
    assert (made["d"], made["when"], made["tags"]) == (Decimal("1.50"), Moment(1_767_225_600_000), ["a", None])
    many = value_of([("a", 1)], schema_of(pa.map_(pa.string(), pa.int32())))
    assert json.dumps(many) == '{"a": 1}'
    with pytest.raises(ConnectError, match="Connect has no type"):
        schema_of(pa.duration("s"))
