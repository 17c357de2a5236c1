"""The sinks to Delta Lake and Apache Iceberg: each record is a row once, whatever crashes, read back by DuckDB, Polars and PyArrow."""

import json
import sys
from collections import Counter

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException

from lakehouses import KINDS, Lakehouse
from penstock.connect.connectors.lakehouse.iceberg import compact_files
from penstock.connect.data import SettingError
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError
from penstock.log import Producer
from penstock.log.open import open_log
from s3_server import s3_server


@pytest.fixture(params=KINDS)
def lake(request, tmp_path):
    return Lakehouse(request.param, tmp_path)


def sink(table, log=None, **more):
    config = {"topics": "hits", "name": "lake", "flush.interval.ms": 0, **table.config}
    given = {name.replace("_", "."): value for name, value in more.items()}
    return ConnectTestDriver(table.lake.connector, {**config, **given}, log=log)


def upserts(table, log=None, **more):
    return sink(table, log, **{"insert_mode": "upsert", "pk_fields": "id", **more})


def numbers(table):
    return sorted(row["n"] for row in table.rows())


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


def test_rows_are_read_by_duckdb_polars_and_arrow(lake):
    driver = sink(lake / "${topic}")
    driver.produce("hits", *({"n": n, "path": f"/{n}", "place": {"x": n / 2}} for n in range(7)))
    driver.put()
    table = lake / "hits"
    assert numbers(table) == list(range(7))
    polars = (
        pl.read_delta(str(lake.folder / "hits"))
        if lake.kind == "delta"
        else pl.scan_iceberg(table.load(), reader_override="pyiceberg").collect()
    )
    assert polars["n"].sort().to_list() == list(range(7))
    arrow = table.load().to_pyarrow_dataset() if lake.kind == "delta" else table.load().scan().to_arrow_batch_reader()
    duck = duckdb.connect()
    duck.register("hits", arrow)
    assert duck.sql("select sum(n), max(place.x), count(distinct path) from hits").fetchall() == [(21, 3.0, 7)]
    assert next(iter(driver.group_offsets().values())).offset == 7


def test_a_table_that_is_dropped_while_the_sink_runs_is_made_again_or_missed(lake):
    table = lake / "t"
    making, missing = sink(table), sink(table, auto_create="false", name="missing")
    for driver in (making, missing):
        driver.produce("hits", {"n": 1})
        driver.put()
    for number in (2, 3):
        table.drop()
        making.produce("hits", {"n": number})
        making.put()
        assert numbers(table) == [number]
    table.drop()
    missing.produce("hits", {"n": 4})
    with pytest.raises(ConnectError) as caught:
        missing.put()
    assert "there is no table" in f"{caught.value}{caught.value.__cause__}"


def test_rows_wait_for_their_number_or_their_time(lake):
    driver = sink(lake / "t", flush_interval_ms=600_000, flush_size=5)
    driver.produce("hits", *({"n": n} for n in range(4)))
    driver.put()
    assert not (lake / "t").exists
    assert next(iter(driver.group_offsets().values())).offset == 0
    driver.produce("hits", {"n": 4})
    driver.put()
    assert numbers(lake / "t") == list(range(5))


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(KINDS),
    crashes=st.lists(st.sampled_from([None, Step.READ, Step.PUT, Step.FLUSHED, Step.COMMITTED]), max_size=6),
    size=st.integers(1, 5),
    data=st.data(),
)
def test_each_record_is_a_row_once_wherever_the_task_crashes(tmp_path_factory, kind, crashes, size, data):
    table = Lakehouse(kind, tmp_path_factory.mktemp("lake")) / "t"
    driver, count = sink(table, flush_size=size, flush_interval_ms=600_000), 0
    for crash in [*crashes, None]:
        number = data.draw(st.integers(0, 7))
        driver.produce("hits", *({"n": n} for n in range(count, count + number)))
        count += number
        driver.put(crash=crash)
    driver.produce("hits", {"n": count})
    driver.put_all()
    driver.restart()  # a task that ends commits what it has kept
    assert numbers(table) == list(range(count + 1))


def test_a_task_goes_on_where_the_table_ends_although_nothing_was_committed_to_the_group(lake):
    log = open_log(f"memory://lake-once-{lake.kind}")
    first = sink(lake / "t", log)
    first.produce("hits", *({"n": n} for n in range(5)))
    first.put(commit=False)
    first.put(crash=Step.READ)
    assert first.group_offsets() == {}
    first.put_all()
    assert numbers(lake / "t") == list(range(5))
    other = sink(lake / "t", log, name="other")  # another connector has offsets of its own
    other.put_all()
    assert Counter(numbers(lake / "t")) == Counter(list(range(5)) * 2)


def test_a_topic_that_was_made_again_fails_the_task_and_loses_no_record_in_silence(lake):
    log = open_log(f"memory://lake-made-again-{lake.kind}")
    driver = sink(lake / "t", log)
    driver.produce("hits", *({"n": n} for n in range(5)))
    driver.put_all()
    log.delete_topic("hits")
    log.create_topic("hits")
    other = sink(lake / "t", log)  # a task that starts then
    other.produce("hits", {"n": 100})
    for each in (driver, other):
        with pytest.raises(ConnectError, match="hits-0 goes on at offset 0, but what was read of it ended at 5"):
            each.put()
    renamed = sink(lake / "t", log, name="renamed")
    renamed.put_all()
    assert numbers(lake / "t") == [*range(5), 100]


def test_connectors_of_one_name_over_two_logs_have_offsets_of_their_own(lake):
    drivers = [sink(lake / "t", open_log(f"memory://lake-logs-{lake.kind}-{number}")) for number in range(2)]
    for number, driver in enumerate(drivers):
        driver.produce("hits", *({"n": n + 10 * number} for n in range(3)))
        driver.put(commit=False)
    for driver in drivers:
        driver.kill()
        driver.restart()
        assert driver.group_offsets() == {}
        driver.put_all()
    assert numbers(lake / "t") == [0, 1, 2, 10, 11, 12]


def test_a_task_that_was_cut_off_cannot_write_what_its_successor_has_written(lake):
    log = open_log(f"memory://lake-zombie-{lake.kind}")
    old = sink(lake / "t", log, flush_interval_ms=600_000, flush_size=6)
    old.produce("hits", *({"n": n} for n in range(3)))
    old.put()  # kept in memory, with a table that was looked up before
    new = sink(lake / "t", log)
    new.produce("hits", *({"n": n} for n in range(3, 5)))
    new.put_all()
    task = old.sinks[0].task
    task.put([record for record in old.read("hits") if record.offset >= 3] * 2)
    task._flush()
    assert numbers(lake / "t") == list(range(5))


def test_three_tasks_write_one_table_and_conflicts_are_repeated(lake):
    log = open_log(f"memory://lake-tasks-{lake.kind}")
    log.create_topic("hits", 3)
    first = upserts(lake / "t", log, name="shared")
    others = [upserts(lake / "t", log, name="shared") for _ in range(2)]
    with Producer(log) as producer:
        for n in range(9):
            producer.send("hits", json.dumps({"n": n}).encode(), key=str(n).encode(), partition=n % 3)
    drivers = [first, *others]
    for partition, driver in enumerate(drivers):  # all of them look at the table as it is now
        driver.sinks[0].assign([tp for tp in driver.sinks[0].assignment if tp.partition == partition])
    for driver in drivers:
        driver.put_all()
    assert sorted((row["id"], row["n"]) for row in (lake / "t").rows()) == [(str(n), n) for n in range(9)]


def test_upserts_replace_rows_and_tombstones_delete_them(lake):
    table = lake / "t"
    driver = upserts(table)
    driver.produce("hits", {"n": 1}, key="a")
    driver.produce("hits", {"n": 2}, key="b")
    driver.produce("hits", {"n": 3}, key="a")
    driver.put()
    assert sorted((row["id"], row["n"]) for row in table.rows()) == [("a", 3), ("b", 2)]
    driver.produce("hits", {"n": 4}, key="c")
    driver.produce("hits", None, key="a")
    driver.produce("hits", None, key="never")
    driver.put()
    assert sorted((row["id"], row["n"]) for row in table.rows()) == [("b", 2), ("c", 4)]
    assert sorted((row["id"], row["n"]) for row in table.rows(versions_back=1 if lake.kind == "delta" else 2)) == [
        ("a", 3),
        ("b", 2),
    ]  # time travel
    driver.produce("hits", None, key="b")
    driver.put()
    assert table.rows() == [{"n": 4, "id": "c"}]
    assert driver.put_all() is not None


def test_a_table_that_other_engines_delete_from_by_files_of_deletes_is_upserted_by_copies(tmp_path):
    table = Lakehouse("iceberg", tmp_path) / "t"
    driver = upserts(table, table_properties="write.delete.mode:merge-on-read")
    for key, value in (("a", {"n": 1}), ("b", {"n": 2}), ("a", {"n": 3}), ("b", None)):
        driver.produce("hits", value, key=key)
        driver.put()
    assert table.rows() == [{"n": 3, "id": "a"}]


def test_a_field_may_have_the_name_that_marks_deletions(lake):
    driver = upserts(lake / "t")
    driver.produce("hits", {"n": 1, "__deleted": "false"}, key="a")
    driver.produce("hits", {"n": 2, "__deleted": "true"}, key="b")
    driver.put()
    driver.produce("hits", None, key="a")
    driver.produce("hits", {"n": 3, "__deleted": "false"}, key="c")
    driver.put()
    found = sorted((row["id"], row["__deleted"]) for row in (lake / "t").rows())
    assert found == [("b", "true"), ("c", "false")]


def test_rows_of_a_table_whose_columns_must_not_be_null_are_deleted(tmp_path):
    table = Lakehouse("delta", tmp_path) / "t"
    strict = [pa.field(name, kind, nullable=False) for name, kind in (("id", pa.string()), ("n", pa.int64()))]
    DeltaTable.create(str(tmp_path / "t"), pa.schema(strict))
    driver = upserts(table)
    driver.produce("hits", {"n": 1}, key="a")
    driver.produce("hits", {"n": 2}, key="b")
    driver.put()
    driver.produce("hits", None, key="a")
    driver.produce("hits", {"n": 3}, key="c")
    driver.put()
    assert sorted(row["id"] for row in table.rows()) == ["b", "c"]


def test_keys_of_several_fields_and_keys_in_the_value(lake):
    driver = upserts(lake / "t", pk_fields="a,b", pk_mode="record_value")
    for n, (a, b) in enumerate([(1, 1), (1, 2), (1, 1)]):
        driver.produce("hits", {"a": a, "b": b, "n": n})
    driver.put()
    assert sorted(row["n"] for row in (lake / "t").rows()) == [1, 2]
    log = open_log(f"memory://lake-keys-{lake.kind}")
    log.create_topic("hits")
    send(log, *((typed({"a": "int32"}, a=a), {"n": n}) for n, a in enumerate([1, 2, 1])))
    upserts(lake / "k", log, pk_fields="", **{"key.converter": "JsonConverter"}).put()
    assert sorted((row["a"], row["n"]) for row in (lake / "k").rows()) == [(1, 2), (2, 1)]


def test_keys_without_schemas_have_their_fields_in_any_order_and_other_keys_are_errors(lake):
    log, plain = open_log(f"memory://lake-key-order-{lake.kind}"), "org.apache.kafka.connect.json.JsonConverter"
    log.create_topic("hits")
    more = {f"{part}.converter": plain for part in ("key", "value")}
    more |= {f"{part}.converter.schemas.enable": "false" for part in ("key", "value")}
    more |= {"flush.interval.ms": 600_000, "errors.tolerance": "all"}
    driver = upserts(lake / "t", log, pk_fields="", flush_size=3, **more)
    keys = [{"a": 1, "b": 1}, {"b": 1, "a": 1}, {"c": 1}, {"a": {"x": 1}, "b": 1}, {"b": 2, "a": 1}]
    for n, key in enumerate(keys):  # one stretch each
        with Producer(log) as producer:
            producer.send("hits", json.dumps({"n": n}).encode(), key=json.dumps(key).encode())
        driver.put()
    assert sorted((row["a"], row["b"], row["n"]) for row in (lake / "t").rows()) == [(1, 1, 1), (1, 2, 4)]


def test_new_fields_are_new_columns_and_what_does_not_fit_is_that_records_error(lake):
    table, log = lake / "t", open_log(f"memory://lake-evolution-{lake.kind}")
    driver = sink(table, log, **{"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "bad"})
    driver.produce("hits", {"n": 1, "o": {"a": 1}}, {"n": "text"}, {"n": 2, "o": {"a": 2, "b": "x"}, "m": None})
    driver.put()
    driver.produce("hits", {"n": 3, "m": 1.5}, {"n": 4, "m": {}}, {"n": 5, "o": 7}, [1], {}, {"n": 2.5}, {"n": 6.0})
    driver.put()
    found = {row["n"]: row for row in table.rows()}
    assert sorted(found) == [1, 2, 3, 6]
    assert found[2] == {"n": 2, "o": {"a": 2, "b": "x"}, "m": None}
    assert found[3]["m"] == 1.5
    assert next(iter(driver.group_offsets().values())).offset == 10


def test_a_first_record_whose_fields_are_all_null_is_an_error_of_that_record(lake):
    driver = sink(lake / "t", **{"errors.tolerance": "all"})
    driver.produce("hits", {"n": None})
    driver.put()
    driver.produce("hits", {"n": 1})
    driver.put()
    driver.produce("hits", {"n": None})
    driver.put()
    assert [row["n"] for row in (lake / "t").rows() if row["n"]] == [1]
    assert len((lake / "t").rows()) == 2
    strict = sink(lake / "strict")
    strict.produce("hits", {"n": None})
    with pytest.raises(ConnectError) as caught:
        strict.put()
    assert "all its fields are null, and there is no table yet" in str(caught.value)


def test_names_that_a_table_cannot_have_are_errors_of_their_records(lake):
    driver = sink(lake / "t", **{"errors.tolerance": "all"})
    for value in (
        {"n": 1},
        {"n": 2, "N": 2},
        {"n": 3, "": 3},
        {"n": 4, "o": {"x": 1}},
        {"n": 5, "o": {"X": 1}},
        {"n": 6},
    ):
        driver.produce("hits", value)
        driver.put()
    assert numbers(lake / "t") == ([1, 4, 6] if lake.kind == "delta" else [1, 2, 4, 5, 6])


def test_errors_fail_the_task_unless_they_are_tolerated(lake):
    driver = sink(lake / "t", auto_evolve="false")
    driver.produce("hits", {"n": 1})
    driver.put()
    driver.produce("hits", {"n": 2, "more": 1})
    with pytest.raises(ConnectError) as caught:
        driver.put()
    assert "the record at hits-0 offset 1 cannot be written: the table has no column more" in str(caught.value)
    missing = sink(lake / "none", auto_create="false")
    missing.produce("hits", {"n": 1})
    with pytest.raises(ConnectError) as caught:
        missing.put()
    assert "there is no table" in str(caught.value)


def test_a_table_has_partitions_properties_and_connects_types(lake):
    fields = {"day": "string", "n": "int16", "price": "double", "raw": "bytes", "ok": "boolean"}
    log = open_log(f"memory://lake-types-{lake.kind}")
    log.create_topic("hits")
    days = enumerate(["mo", "tu", "mo"])
    send(log, *((None, typed(fields, day=day, n=n, price=1.5, raw="AAE=", ok=True)) for n, day in days))
    more = {"partition_by": "day", "table_properties": "delta.enableChangeDataFeed:true"}
    table = lake / "t"
    sink(table, log, **more, value_converter="JsonConverter").put()
    if lake.kind == "delta":
        assert table.load().metadata().partition_columns == ["day"]
        assert table.load().metadata().configuration == {"delta.enableChangeDataFeed": "true"}
        assert pa.schema(table.load().schema().to_arrow()).field("n").type == pa.int16()
    else:
        assert [field.name for field in table.load().spec().fields] == ["day"]
        assert table.load().properties == {"delta.enableChangeDataFeed": "true"}
        assert table.arrow().schema.field("n").type == pa.int32()
    assert sorted((row["day"], row["n"], row["raw"]) for row in table.rows()) == [
        ("mo", 0, b"\x00\x01"), ("mo", 2, b"\x00\x01"), ("tu", 1, b"\x00\x01"),
    ]  # fmt: skip


def test_null_values_are_ignored_or_refused(lake):
    for handling, tolerated in (("delete", 2), ("ignore", 2), ("fail", 2)):
        table = lake / handling
        driver = sink(table, behavior_on_null_values=handling, **{"errors.tolerance": "all"})
        driver.produce("hits", {"n": 1}, None, {"n": 2})
        driver.put()
        assert len(table.rows()) == tolerated
    driver = sink(lake / "fails", behavior_on_null_values="fail")
    driver.produce("hits", None)
    with pytest.raises(ConnectError):
        driver.put()


def test_small_files_are_compacted_and_old_ones_vacuumed(tmp_path):
    table = Lakehouse("delta", tmp_path) / "t"
    driver = sink(table, compact_commits=3, vacuum_retention_hours=0)
    for n in range(7):
        driver.produce("hits", {"n": n})
        driver.put()
    assert numbers(table) == list(range(7))
    assert len(table.load().file_uris()) == 2
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 2
    driver.restart()
    driver.produce("hits", {"n": 7})
    driver.put()
    assert numbers(table) == list(range(8))


def test_small_files_of_iceberg_are_compacted_in_each_partition_and_the_offsets_stay(tmp_path):
    table = Lakehouse("iceberg", tmp_path) / "t"
    more = {"partition_by": "g", "expire_commits": 3, "snapshot_retention_hours": 0}
    driver = sink(table, compact_commits=3, **more)
    for n in range(7):
        driver.produce("hits", {"n": n, "g": n % 2})
        driver.put(commit=False)
    assert numbers(table) == list(range(7))
    assert len(list(table.load().scan().plan_files())) == 3
    assert [each.summary.operation.value for each in table.load().snapshots()] == ["replace", "append"]
    driver.put(crash=Step.READ)  # nothing was committed to the group, and snapshots before compaction are expired
    driver.put_all()
    assert numbers(table) == list(range(7))


def test_a_compaction_that_another_commit_overtakes_changes_nothing(tmp_path):
    table = Lakehouse("iceberg", tmp_path) / "t"
    driver = sink(table)
    for n in range(3):
        driver.produce("hits", {"n": n})
        driver.put()
    overtaken = table.load()
    driver.produce("hits", {"n": 3})
    driver.put()
    with pytest.raises(CommitFailedException):
        compact_files(overtaken, {})
    assert compact_files(table.load(), {})
    assert numbers(table) == list(range(4))
    driver.produce("hits", {"n": 4})
    driver.put()
    assert numbers(table) == list(range(5))


def test_a_table_of_others_keeps_its_types_and_its_rows(tmp_path):
    table, path = Lakehouse("delta", tmp_path) / "t", str(tmp_path / "t")
    write_deltalake(path, pa.table({"n": pa.array([100], pa.int32()), "who": ["them"]}))
    driver = sink(table)
    driver.produce("hits", {"n": 1, "at": 5})
    driver.put()
    write_deltalake(path, pa.table({"n": pa.array([101], pa.int32())}), mode="append", schema_mode="merge")
    driver.produce("hits", {"n": 2})
    driver.put()
    assert numbers(table) == [1, 2, 100, 101]
    assert pa.schema(table.load().schema().to_arrow()).field("n").type == pa.int32()


def test_settings_that_do_not_go_together_are_refused(lake):
    with pytest.raises(SettingError, match="must name the fields of the key"):
        upserts(lake / "t", pk_mode="record_value", pk_fields="")


@pytest.mark.parametrize(
    ("options", "partition_by", "said"),
    [
        ("type:rst", "", r"'rst' is not a valid CatalogType\nHint: Check catalog\.options: type \(rest, sql"),
        ("type:sql,uri:sqlite:////no/catalog.db", "", r"cannot be reached.*\nHint: Check .* catalog\.options"),
        ("type:sql,uri:sqlite:///{}/c.db", "", r"No default path.*\nHint: .* warehouse in catalog\.options"),
        ("type:sql,uri:nodriver://h/db,warehouse:{}", "", r"cannot be reached.*nodriver"),
        ("type:sql,uri:postgresql+psycopg2://h/db,warehouse:{}", "", r"psycopg2.*\nHint: .*install"),
        (
            "type:sql,uri:sqlite:///{}/c.db,warehouse:{}",
            "day(n)",
            r"day cannot transform.*\nHint: Correct partition\.by",
        ),
    ],
)
def test_what_is_wrong_with_a_catalog_is_said(tmp_path, monkeypatch, options, partition_by, said):
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    more = {"catalog_options": options.replace("{}", str(tmp_path)), "partition_by": partition_by}

    def write():
        driver = sink(Lakehouse("iceberg", tmp_path) / "t", **more)
        driver.produce("hits", {"n": 1})
        driver.put()

    with pytest.raises(ConnectError, match=said):
        write()


def test_a_table_of_delta_that_cannot_be_made_is_an_error_that_names_the_setting(tmp_path):
    (tmp_path / "file").write_text("")
    for uri in ("unknown://lake/t", tmp_path / "file" / "t"):
        driver = sink(Lakehouse("delta", tmp_path) / "t", table_uri=str(uri))
        driver.produce("hits", {"n": 1})
        with pytest.raises(ConnectError, match=r"the table .*/t cannot be (made|used): .*\nHint: .*table\.uri"):
            driver.put()


def test_a_record_without_a_value_says_what_to_do_where_the_key_is_in_the_value(lake):
    driver = upserts(lake / "t", pk_mode="record_value")
    driver.produce("hits", None, key="a")
    with pytest.raises(ConnectError, match=r"the record has no value, .*\nHint: Set pk\.mode=record_key"):
        driver.put()


def test_without_the_package_a_sentence_says_what_to_install(lake, monkeypatch):
    module, name = ("deltalake", "deltalake") if lake.kind == "delta" else ("pyiceberg.catalog", "PyIceberg")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConnectError, match=f"{name} is not installed") as caught:
        sink(lake / "t").put()
    assert f'pip install "penstock[{lake.kind}]"' in str(caught.value.hint)


@pytest.fixture(scope="module")
def bucket():
    with s3_server("lake") as endpoint:
        yield endpoint


def test_a_table_in_a_bucket_has_each_record_once_after_a_crash(bucket, tmp_path):
    options = {"AWS_ENDPOINT_URL": bucket, "AWS_ALLOW_HTTP": "true"}
    written = ",".join(f"{name}:{value}" for name, value in options.items())
    table = Lakehouse("delta", tmp_path) / "t"
    driver = sink(table, table_uri="s3://lake/hits", storage_options=written)
    for n in range(3):
        driver.produce("hits", {"n": n})
        driver.put(crash=Step.PUT)
    driver.put_all()
    table = DeltaTable("s3://lake/hits", storage_options=options)
    assert sorted(row["n"] for row in table.to_pyarrow_table().to_pylist()) == [0, 1, 2]


def test_partitions_of_iceberg_have_transforms_and_columns_become_wider(tmp_path):
    lake, log = Lakehouse("iceberg", tmp_path), open_log("memory://lake-transforms")
    log.create_topic("hits")
    small = {"at": {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}, "n": "int32"}
    for n, kind in enumerate(["int32", "int64"]):
        value = typed({"n": kind, "user": "string"}, n=n, user=str(n), at=86_400_000 * n)
        value["schema"]["fields"].append({**small["at"], "field": "at"})
        send(log, (None, value))
    more = {"value_converter": "JsonConverter", "partition_by": "day(at), bucket(user, 4)"}
    sink(lake / "t", log, **more).put()
    table = lake / "t"
    assert [str(field.transform) for field in table.load().spec().fields] == ["day", "bucket[4]"]
    assert table.arrow().schema.field("n").type == pa.int64()
    assert sorted((row["n"], row["at"].day) for row in table.rows()) == [(0, 1), (1, 2)]
    with pytest.raises(SettingError, match="columns, or year"):
        sink(lake / "t", log, partition_by="week(at)")
    with pytest.raises(SettingError, match="a namespace and a table"):
        ConnectTestDriver(lake.connector, {**table.config, "topics": "hits", "table": "hits"}, log=log)


def test_old_snapshots_expire_and_the_offsets_stay(tmp_path):
    table = Lakehouse("iceberg", tmp_path) / "t"
    driver = sink(table, expire_commits=3, snapshot_retention_hours=0)
    for n in range(4):
        driver.produce("hits", {"n": n})
        driver.put()
    assert len(table.load().snapshots()) == 2
    driver.put(crash=Step.READ)
    driver.put_all()
    assert numbers(table) == list(range(4))


def test_secrets_of_a_catalog_are_passed_on_and_it_may_have_another_name(tmp_path):
    table = Lakehouse("iceberg", tmp_path) / "t"
    more = {"catalog_options": table.config["catalog.options"], "catalog_name": "own", "catalog_token": "abc"}
    driver = sink(table, catalog_credential="id:secret", **more)
    catalog = driver.sinks[0].task._format.catalog
    assert catalog.name == "own"
    assert (catalog.properties["credential"], catalog.properties["token"]) == ("id:secret", "abc")
