"""The sink to Delta Lake: each record is a row once, whatever crashes, read back by DuckDB, Polars and PyArrow."""

import json
from collections import Counter

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.connect.connectors.lakehouse import DeltaSinkConnector
from penstock.connect.data import SettingError
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError
from penstock.log import Producer
from penstock.log.open import open_log


def sink(table, log=None, tasks=1, **more):
    config = {"topics": "hits", "table.uri": str(table), "name": "lake", "flush.interval.ms": 0}
    given = {name.replace("_", "."): value for name, value in more.items()}
    return ConnectTestDriver(DeltaSinkConnector, {**config, **given}, log=log, tasks=tasks)


def upserts(table, log=None, **more):
    return sink(table, log, **{"insert_mode": "upsert", "pk_fields": "id", **more})


def rows(table, **version):
    return DeltaTable(str(table), **version).to_pyarrow_table().to_pylist()


def numbers(table):
    return sorted(row["n"] for row in rows(table))


def typed(fields, **payload):
    return {
        "schema": {"type": "struct", "fields": [{"field": f, "type": t} for f, t in fields.items()]},
        "payload": payload,
    }


def send(log, *records, **more):
    """Records whose key and value are JSON with their schemas."""
    with Producer(log) as producer:
        for key, value in records:
            producer.send("hits", json.dumps(value).encode(), key=key and json.dumps(key).encode(), **more)


def test_rows_are_read_by_duckdb_polars_and_arrow(tmp_path):
    driver = sink(tmp_path / "t", table_uri=f"{tmp_path}/${{topic}}")
    driver.produce("hits", *({"n": n, "path": f"/{n}", "place": {"x": n / 2}} for n in range(7)))
    driver.put()
    table = tmp_path / "hits"
    assert numbers(table) == list(range(7))
    assert pl.read_delta(str(table))["n"].sort().to_list() == list(range(7))
    arrow = DeltaTable(str(table)).to_pyarrow_dataset()
    assert duckdb.sql("select sum(n), max(place.x), count(distinct path) from arrow").fetchall() == [(21, 3.0, 7)]
    assert arrow.count_rows() == 7
    assert next(iter(driver.group_offsets().values())).offset == 7


def test_rows_wait_for_their_number_or_their_time(tmp_path):
    driver = sink(tmp_path / "t", flush_interval_ms=600_000, flush_size=5)
    driver.produce("hits", *({"n": n} for n in range(4)))
    driver.put()
    assert not DeltaTable.is_deltatable(str(tmp_path / "t"))
    assert next(iter(driver.group_offsets().values())).offset == 0
    driver.produce("hits", {"n": 4})
    driver.put()
    assert numbers(tmp_path / "t") == list(range(5))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    crashes=st.lists(st.sampled_from([None, Step.READ, Step.PUT, Step.FLUSHED, Step.COMMITTED]), max_size=6),
    size=st.integers(1, 5),
    data=st.data(),
)
def test_each_record_is_a_row_once_wherever_the_task_crashes(tmp_path_factory, crashes, size, data):
    table = tmp_path_factory.mktemp("lake") / "t"
    driver, count = sink(table, flush_size=size, flush_interval_ms=600_000), 0
    for crash in [*crashes, None]:
        number = data.draw(st.integers(0, 7))
        driver.produce("hits", *({"n": n} for n in range(count, count + number)))
        count += number
        driver.put(crash=crash)
    driver.produce("hits", *({"n": n} for n in range(count, count + size)))
    count += size
    driver.put_all()
    driver.restart()
    driver.put_all()
    found = numbers(table)
    assert found == list(range(len(found)))
    assert len(found) > count - size


def test_a_task_goes_on_where_the_table_ends_although_nothing_was_committed_to_the_group(tmp_path):
    log = open_log("memory://delta-once")
    first = sink(tmp_path / "t", log)
    first.produce("hits", *({"n": n} for n in range(5)))
    first.put(commit=False)
    first.put(crash=Step.READ)
    assert first.group_offsets() == {}
    first.put_all()
    assert numbers(tmp_path / "t") == list(range(5))
    other = sink(tmp_path / "t", log, name="other")  # another connector has offsets of its own
    other.put_all()
    assert Counter(numbers(tmp_path / "t")) == Counter(list(range(5)) * 2)


def test_a_task_that_was_cut_off_cannot_write_what_its_successor_has_written(tmp_path):
    log = open_log("memory://delta-zombie")
    old = sink(tmp_path / "t", log, flush_interval_ms=600_000, flush_size=6)
    old.produce("hits", *({"n": n} for n in range(3)))
    old.put()  # kept in memory, with a table that was looked up before
    new = sink(tmp_path / "t", log)
    new.produce("hits", *({"n": n} for n in range(3, 5)))
    new.put_all()
    task = old.sinks[0].task
    task.put([record for record in old.read("hits") if record.offset >= 3] * 2)
    task._flush()
    assert numbers(tmp_path / "t") == list(range(5))


def test_three_tasks_write_one_table_and_conflicts_are_repeated(tmp_path):
    log = open_log("memory://delta-tasks")
    log.create_topic("hits", 3)
    first = upserts(tmp_path / "t", log, name="shared")
    others = [upserts(tmp_path / "t", log, name="shared") for _ in range(2)]
    with Producer(log) as producer:
        for n in range(9):
            producer.send("hits", json.dumps({"n": n}).encode(), key=str(n).encode(), partition=n % 3)
    drivers = [first, *others]
    for partition, driver in enumerate(drivers):  # all of them look at the table as it is now
        driver.sinks[0].assign([tp for tp in driver.sinks[0].assignment if tp.partition == partition])
    for driver in drivers:
        driver.put_all()
    assert sorted((row["id"], row["n"]) for row in rows(tmp_path / "t")) == [(str(n), n) for n in range(9)]


def test_upserts_replace_rows_and_tombstones_delete_them(tmp_path):
    table = tmp_path / "t"
    driver = upserts(table)
    driver.produce("hits", {"n": 1}, key="a")
    driver.produce("hits", {"n": 2}, key="b")
    driver.produce("hits", {"n": 3}, key="a")
    driver.put()
    assert sorted((row["id"], row["n"]) for row in rows(table)) == [("a", 3), ("b", 2)]
    driver.produce("hits", {"n": 4}, key="c")
    driver.produce("hits", None, key="a")
    driver.produce("hits", None, key="never")
    driver.put()
    assert sorted((row["id"], row["n"]) for row in rows(table)) == [("b", 2), ("c", 4)]
    assert sorted((row["id"], row["n"]) for row in rows(table, version=1)) == [("a", 3), ("b", 2)]  # time travel
    driver.produce("hits", None, key="b")
    driver.put()
    assert rows(table) == [{"n": 4, "id": "c"}]
    assert driver.put_all() is not None


def test_keys_of_several_fields_and_keys_in_the_value(tmp_path):
    driver = upserts(tmp_path / "t", pk_fields="a,b", pk_mode="record_value")
    for n, (a, b) in enumerate([(1, 1), (1, 2), (1, 1)]):
        driver.produce("hits", {"a": a, "b": b, "n": n})
    driver.put()
    assert sorted(row["n"] for row in rows(tmp_path / "t")) == [1, 2]
    log = open_log("memory://delta-keys")
    log.create_topic("hits")
    send(log, *((typed({"a": "int32"}, a=a), {"n": n}) for n, a in enumerate([1, 2, 1])))
    upserts(tmp_path / "k", log, pk_fields="", **{"key.converter": "JsonConverter"}).put()
    assert sorted((row["a"], row["n"]) for row in rows(tmp_path / "k")) == [(1, 2), (2, 1)]


def test_new_fields_are_new_columns_and_what_does_not_fit_is_that_records_error(tmp_path):
    table, log = tmp_path / "t", open_log("memory://delta-evolution")
    driver = sink(table, log, **{"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "bad"})
    driver.produce("hits", {"n": 1, "o": {"a": 1}}, {"n": "text"}, {"n": 2, "o": {"a": 2, "b": "x"}, "m": None})
    driver.put()
    driver.produce("hits", {"n": 3, "m": 1.5}, {"n": 4, "m": {}}, {"n": 5, "o": 7}, [1], {}, {"n": 2.5}, {"n": 6.0})
    driver.put()
    found = {row["n"]: row for row in rows(table)}
    assert sorted(found) == [1, 2, 3, 6]
    assert found[2] == {"n": 2, "o": {"a": 2, "b": "x"}, "m": None}
    assert found[3]["m"] == 1.5
    assert next(iter(driver.group_offsets().values())).offset == 10


def test_errors_fail_the_task_unless_they_are_tolerated(tmp_path):
    driver = sink(tmp_path / "t", auto_evolve="false")
    driver.produce("hits", {"n": 1})
    driver.put()
    driver.produce("hits", {"n": 2, "more": 1})
    with pytest.raises(ConnectError) as caught:
        driver.put()
    assert "the record at hits-0 offset 1 cannot be written: the table has no column more" in str(caught.value)
    missing = sink(tmp_path / "none", auto_create="false")
    missing.produce("hits", {"n": 1})
    with pytest.raises(ConnectError) as caught:
        missing.put()
    assert "there is no table" in str(caught.value)


def test_a_table_has_partitions_properties_and_connects_types(tmp_path):
    fields = {"day": "string", "n": "int16", "price": "double", "raw": "bytes", "ok": "boolean"}
    log = open_log("memory://delta-types")
    log.create_topic("hits")
    days = enumerate(["mo", "tu", "mo"])
    send(log, *((None, typed(fields, day=day, n=n, price=1.5, raw="AAE=", ok=True)) for n, day in days))
    more = {"partition_by": "day", "table_properties": "delta.enableChangeDataFeed:true"}
    sink(tmp_path / "t", log, **more, value_converter="JsonConverter").put()
    table = DeltaTable(str(tmp_path / "t"))
    assert table.metadata().partition_columns == ["day"]
    assert table.metadata().configuration == {"delta.enableChangeDataFeed": "true"}
    assert pa.schema(table.schema().to_arrow()).field("n").type == pa.int16()
    assert sorted((row["day"], row["n"], row["raw"]) for row in rows(tmp_path / "t")) == [
        ("mo", 0, b"\x00\x01"), ("mo", 2, b"\x00\x01"), ("tu", 1, b"\x00\x01"),
    ]  # fmt: skip


def test_null_values_are_ignored_or_refused(tmp_path):
    for handling, tolerated in (("delete", 2), ("ignore", 2), ("fail", 2)):
        table = tmp_path / handling
        driver = sink(table, behavior_on_null_values=handling, **{"errors.tolerance": "all"})
        driver.produce("hits", {"n": 1}, None, {"n": 2})
        driver.put()
        assert len(rows(table)) == tolerated
    driver = sink(tmp_path / "fails", behavior_on_null_values="fail")
    driver.produce("hits", None)
    with pytest.raises(ConnectError):
        driver.put()


def test_small_files_are_compacted_and_old_ones_vacuumed(tmp_path):
    driver = sink(tmp_path / "t", compact_commits=3, vacuum_retention_hours=0)
    for n in range(7):
        driver.produce("hits", {"n": n})
        driver.put()
    table = DeltaTable(str(tmp_path / "t"))
    assert numbers(tmp_path / "t") == list(range(7))
    assert len(table.file_uris()) == 2
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 2
    driver.restart()
    driver.produce("hits", {"n": 7})
    driver.put()
    assert numbers(tmp_path / "t") == list(range(8))


def test_a_table_of_others_keeps_its_types_and_its_rows(tmp_path):
    table = str(tmp_path / "t")
    write_deltalake(table, pa.table({"n": pa.array([100], pa.int32()), "who": ["them"]}))
    driver = sink(table)
    driver.produce("hits", {"n": 1, "at": 5})
    driver.put()
    write_deltalake(table, pa.table({"n": pa.array([101], pa.int32())}), mode="append", schema_mode="merge")
    driver.produce("hits", {"n": 2})
    driver.put()
    assert numbers(table) == [1, 2, 100, 101]
    assert pa.schema(DeltaTable(table).schema().to_arrow()).field("n").type == pa.int32()


def test_settings_that_do_not_go_together_are_refused(tmp_path):
    with pytest.raises(SettingError, match="must name the fields of the key"):
        upserts(tmp_path, pk_mode="record_value", pk_fields="")


def test_without_the_package_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    with pytest.raises(ConnectError, match="deltalake is not installed") as caught:
        sink(tmp_path / "t").put()
    assert 'pip install "penstock[delta]"' in str(caught.value.hint)


@pytest.fixture(scope="module")
def bucket():
    boto3 = pytest.importorskip("boto3", reason="moto[s3] and flask are not installed")
    moto = pytest.importorskip("moto.server", reason="moto[s3] and flask are not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"ACCESS_KEY_ID": "anyone", "SECRET_ACCESS_KEY": "anything", "REGION": "us-east-1"}.items():
            patch.setenv(f"AWS_{name}", value)
        endpoint = f"http://{host}:{port}"
        boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket="lake")
        yield endpoint
    server.stop()


def test_a_table_in_a_bucket_has_each_record_once_after_a_crash(bucket):
    options = {"AWS_ENDPOINT_URL": bucket, "AWS_ALLOW_HTTP": "true"}
    written = ",".join(f"{name}:{value}" for name, value in options.items())
    driver = sink("s3://lake/hits", storage_options=written)
    for n in range(3):
        driver.produce("hits", {"n": n})
        driver.put(crash=Step.PUT)
    driver.put_all()
    table = DeltaTable("s3://lake/hits", storage_options=options)
    assert sorted(row["n"] for row in table.to_pyarrow_table().to_pylist()) == [0, 1, 2]
