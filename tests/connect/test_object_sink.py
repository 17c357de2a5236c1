"""The object sink over a folder and an S3 server: formats, rotation, and each record once whatever crashes."""

import csv
import gzip
import io
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import obstore
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.connect.connectors.objects import ObjectSinkConnector
from penstock.connect.connectors.objects.formats import to_arrow
from penstock.connect.data import (
    BYTES,
    DATE,
    INT32,
    OPTIONAL_STRING,
    STRING,
    TIME,
    TIMESTAMP,
    DataError,
    Moment,
    SettingError,
    SinkRecord,
    Struct,
    array,
    decimal_schema,
    map_of,
    struct,
)
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError
from penstock.log import Producer
from penstock.log.open import open_log
from s3_server import s3_server


def sink(folder, log=None, **more):
    config = {"topics": "hits", "store.url": f"file://{folder}", "format": "json", "name": "lake"}
    given = {name.replace("_", "."): value for name, value in more.items()}
    return ConnectTestDriver(ObjectSinkConnector, {**config, **given}, log=log)


def files(folder):
    found = [path for path in Path(folder).rglob("*+*") if path.is_file()]
    return sorted(str(path.relative_to(folder)) for path in found)


def rows(folder):
    return [json.loads(line)["n"] for name in files(folder) for line in (Path(folder) / name).read_text().splitlines()]


def test_objects_hold_so_many_records_and_their_names_the_offsets(tmp_path):
    driver = sink(tmp_path, flush_size=3)
    driver.produce("hits", *({"n": n} for n in range(7)))
    driver.put()
    assert [name.rpartition("+")[2] for name in files(tmp_path)] == [
        "00000000000000000000-00000000000000000002.json",
        "00000000000000000003-00000000000000000005.json",
    ]
    assert files(tmp_path)[0].startswith("hits/partition=0/hits+0+")
    assert next(iter(driver.group_offsets().values())).offset == 6  # the seventh waits
    assert rows(tmp_path) == list(range(6))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    crashes=st.lists(st.sampled_from([None, Step.READ, Step.PUT, Step.FLUSHED, Step.COMMITTED]), max_size=8),
    size=st.integers(1, 5),
    data=st.data(),
)
def test_each_record_is_there_once_wherever_the_task_crashes(tmp_path_factory, crashes, size, data):
    folder = tmp_path_factory.mktemp("lake")
    driver, count = sink(folder, flush_size=size, rotate_schedule_interval_ms=0), 0
    for crash in crashes:
        number = data.draw(st.integers(0, 7))
        driver.produce("hits", *({"n": n} for n in range(count, count + number)))
        count += number
        driver.put(crash=crash)
    driver.put_all()
    driver.restart()
    driver.put_all()
    assert Counter(rows(folder)) == Counter(range(count))


def test_a_task_goes_on_behind_the_newest_object_and_writes_the_same_names_again(tmp_path):
    log = open_log("memory://once")
    first = sink(tmp_path, log, flush_size=2)
    first.produce("hits", *({"n": n} for n in range(5)))
    first.put(commit=False)
    first.put(crash=Step.READ)  # objects are there, the group's offsets are not committed
    assert first.group_offsets() == {}
    written = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    first.put()
    assert rows(tmp_path) == [0, 1, 2, 3]
    for name in written:
        (tmp_path / name).unlink()
    again = sink(tmp_path, log, name="other", flush_size=2)
    again.put()
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == written


def test_a_new_schema_and_a_new_hour_are_new_objects(tmp_path):
    log = open_log("memory://schemas")
    log.create_topic("hits", 1)
    with Producer(log) as producer:
        for hour, fields in ((0, ["n"]), (0, ["n"]), (0, ["n", "m"]), (1, ["n", "m"])):
            schema = {"type": "struct", "fields": [{"field": name, "type": "int32"} for name in fields]}
            value = {"schema": schema, "payload": dict.fromkeys(fields, 1)}
            producer.send("hits", json.dumps(value).encode(), timestamp=hour * 3_600_000)
    more = {"format": "parquet", "path_format": "${topic}/hour=%H", "value_converter": "JsonConverter"}
    sink(tmp_path, log, **more, rotate_schedule_interval_ms=0).put()
    assert files(tmp_path) == [
        f"hits/hour=00/hits+0+{0:020}-{1:020}.parquet",
        f"hits/hour=00/hits+0+{2:020}-{2:020}.parquet",
        f"hits/hour=01/hits+0+{3:020}-{3:020}.parquet",
    ]
    assert [pq.read_schema(tmp_path / name).names for name in files(tmp_path)] == [["n"], ["n", "m"], ["n", "m"]]


def test_parquet_has_connects_types():
    inner = struct({"a": INT32})
    schema = struct(
        {
            "name": OPTIONAL_STRING,
            "price": decimal_schema(2),
            "day": DATE,
            "at": TIMESTAMP,
            "tags": array(STRING),
            "by": map_of(STRING, INT32),
            "inner": inner,
        }
    )
    value = Struct(
        schema,
        {
            "price": Decimal("1.50"),
            "day": Moment(86_400_000),
            "at": Moment(1),
            "tags": ["x"],
            "by": {"k": 1},
            "inner": Struct(inner, {"a": 2}),
        },
    )
    table = to_arrow([SinkRecord(topic="t", value=value, value_schema=schema)])
    kinds = {field.name: (str(field.type), field.nullable) for field in table.schema}
    assert kinds["name"] == ("string", True)
    assert kinds["price"] == ("decimal128(38, 2)", False)
    assert kinds["day"] == ("date32[day]", False)
    assert kinds["at"] == ("timestamp[ms, tz=UTC]", False)
    row = table.to_pylist()[0]
    assert (row["price"], row["day"].isoformat(), row["by"], row["inner"]) == (
        Decimal("1.50"),
        "1970-01-02",
        [("k", 1)],
        {"a": 2},
    )


def test_csv_and_compressed_json_are_read_by_others(tmp_path):
    for kind, compression in (("csv", "none"), ("json", "gzip")):
        driver = sink(tmp_path / kind, flush_size=2, format=kind, compression=compression)
        driver.produce("hits", {"n": 1, "s": "a,b"}, {"n": 2, "s": 'say "hi"'})
        driver.put()
    found = (tmp_path / "csv" / files(tmp_path / "csv")[0]).read_text()
    assert list(csv.DictReader(io.StringIO(found))) == [{"n": "1", "s": "a,b"}, {"n": "2", "s": 'say "hi"'}]
    packed = (tmp_path / "json" / files(tmp_path / "json")[0]).read_bytes()
    assert [json.loads(line) for line in gzip.decompress(packed).splitlines()][1] == {"n": 2, "s": 'say "hi"'}


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        ([1, None, 2], ["1", "", "2"]),
        ([None, None, 1.5], ["", "", "1.5"]),
        (["a", None, "b\n\nc"], ["a", "", "b\n\nc"]),
    ],
)
def test_a_null_in_the_only_column_of_a_csv_is_a_row(tmp_path, values, rows):
    driver = sink(tmp_path, flush_size=3, format="csv")
    driver.produce("hits", *({"n": value} for value in values))
    driver.put()
    [name] = files(tmp_path)
    assert [row["n"] for row in csv.DictReader(io.StringIO((tmp_path / name).read_text(), newline=""))] == rows


def test_size_and_the_records_own_time_close_objects(tmp_path):
    by_size = sink(tmp_path / "size", rotate_bytes=16)
    by_size.produce("hits", *({"n": n} for n in range(5)))  # eight bytes each
    by_size.put()
    assert [name.rpartition("-")[2] for name in files(tmp_path / "size")] == [f"{n:020}.json" for n in (1, 3)]


def test_objects_of_another_log_are_not_taken_for_ones_own(tmp_path):
    first = sink(tmp_path, open_log("memory://one"), flush_size=1)
    first.produce("hits", {"n": 1})
    first.put()
    other = open_log("memory://another")
    other.create_topic("hits", 1)
    with pytest.raises(ConnectError, match="of another log") as caught:
        sink(tmp_path, other, flush_size=1)
    assert "store.url" in caught.value.hint


def test_wrong_settings_and_values_say_what_to_do(tmp_path):
    with pytest.raises(SettingError, match=r"begin with s3://"):
        sink(tmp_path, store_url="ftp://x").produce("hits", {})
    with pytest.raises(SettingError, match="compression"):
        sink(tmp_path, compression="zstd").produce("hits", {})
    with pytest.raises(ConnectError, match="cannot be made"):
        sink(tmp_path, store_url="file:///dev/null/x").produce("hits", {})
    driver = sink(tmp_path, format="csv", flush_size=1)
    driver.produce("hits", {"n": [1]})
    with pytest.raises(ConnectError, match="CSV") as caught:
        driver.put()
    assert "Flatten" in caught.value.hint
    strict = sink(tmp_path / "strict", behavior_on_null_values="fail")
    strict.produce("hits", None)
    with pytest.raises(DataError, match="has no value"):
        strict.put()


@pytest.fixture(scope="module")
def bucket():
    with s3_server("lake") as endpoint:
        yield endpoint


def test_parquet_in_a_bucket_is_there_once_after_a_crash(bucket, tmp_path):
    more = {"store_url": "s3://lake/raw", "store_options": f"endpoint:{bucket}", "flush_size": 2, "format": "parquet"}
    driver = sink(tmp_path, **more)
    driver.produce("hits", *({"n": n} for n in range(4)))
    driver.put(crash=Step.PUT)
    driver.put_all()
    options = {"endpoint": bucket, "client_options": {"allow_http": True}}
    store = obstore.store.from_url("s3://lake/raw", **options)
    names = sorted(entry["path"] for page in obstore.list(store, prefix="hits") for entry in page)
    assert len(names) == 2
    tables = [pq.read_table(io.BytesIO(bytes(obstore.get(store, name).bytes()))) for name in names]
    assert [row["n"] for table in tables for row in table.to_pylist()] == [0, 1, 2, 3]
    with pytest.raises(ConnectError, match="s3://nowhere"):
        sink(tmp_path, log=driver.log, **{**more, "store_url": "s3://nowhere"})


def test_numbers_that_json_does_not_have_are_texts(tmp_path):
    driver = sink(tmp_path, flush_size=1)
    driver.produce("hits", {"n": float("nan"), "m": [float("inf")]})
    driver.put()
    (name,) = files(tmp_path)
    assert json.loads((tmp_path / name).read_text(), parse_constant=pytest.fail) == {"n": "NaN", "m": ["Infinity"]}


def timed(log, *times):
    log.create_topic("hits", 1)
    with Producer(log) as producer:
        for number, time in enumerate(times):
            producer.send("hits", json.dumps({"n": number}).encode(), timestamp=time)


def reported(driver):
    found = []

    class Reporter:
        def report(self, record, error):
            found.append((record.original_offset, error.message))

    driver.sinks[0].task.context.errant_record_reporter = Reporter()
    return found


def test_a_time_in_microseconds_is_that_records_own_error_and_not_the_tasks_end(tmp_path):
    log = open_log("memory://")
    timed(log, 1_700_000_000_000, 1_700_000_000_000_000, 1_700_000_001_000)
    more = {"path_format": "%Y/%m", "flush_size": 1}
    strict = sink(tmp_path, log, **more)
    with pytest.raises(DataError, match=r"hits-0 offset 1: the time 1700000000000000 .* no year from 1 to 9999"):
        strict.put()
    tolerant = sink(tmp_path, log, **more, errors_tolerance="all")
    tolerant.put_all()
    assert rows(tmp_path) == [0, 2]
    tolerant.restart()
    assert tolerant.put() == []


def test_records_that_do_not_make_one_table_make_several(tmp_path):
    driver = sink(tmp_path, format="parquet", flush_size=7, rotate_bytes=0)
    driver.produce("hits", *({"n": n} for n in (1, 2, 3, "x", "y", 4, 5)))
    driver.put()
    tables = [pq.read_table(tmp_path / name).to_pylist() for name in files(tmp_path)]
    assert [[row["n"] for row in table] for table in tables] == [[1, 2, 3], ["x", "y"], [4, 5]]


def test_a_record_that_makes_no_table_is_reported_and_the_others_are_written(tmp_path):
    driver = sink(tmp_path, format="csv", flush_size=4, errors_tolerance="all")
    found = reported(driver)
    driver.produce("hits", {"n": 1}, {"n": [1]}, {"n": 2}, {"n": 3})
    driver.put()
    texts = [(tmp_path / name).read_text() for name in files(tmp_path)]
    assert texts == ['"n"\n1\n', '"n"\n2\n3\n']
    assert [offset for offset, _ in found] == [1]


@pytest.mark.parametrize("wrong", ["'year'=YYYY/'month'=MM", "YYYY/MM/dd", "a/../b", "${key}"])
def test_path_formats_of_others_and_ways_out_of_the_store_are_refused(tmp_path, wrong):
    with pytest.raises(SettingError, match=r"path\.format"):
        sink(tmp_path, path_format=wrong)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_records_without_fields_are_not_lost_in_tables(tmp_path, kind):
    driver = sink(tmp_path, format=kind, flush_size=3)
    driver.produce("hits", {}, {}, {})
    with pytest.raises(ConnectError, match="have no fields"):
        driver.put()
    assert files(tmp_path) == []
    tolerant = sink(tmp_path / "tolerant", format=kind, flush_size=3, errors_tolerance="all")
    tolerant.produce("hits", {}, {}, {}, {"n": 1}, {}, {"n": 2})
    tolerant.put_all()
    assert [name.rpartition("+")[2][:41] for name in files(tmp_path / "tolerant")] == [
        f"{3:020}-{5:020}"  # a record without fields beside others is a row of nulls
    ]


def test_a_value_that_parquet_does_not_have_is_the_fault_of_its_record(tmp_path):
    driver = sink(tmp_path, format="parquet", flush_size=1, errors_tolerance="all")
    driver.produce("hits", {"n": {}}, {"n": {"a": 1}})
    driver.put_all()
    assert len(files(tmp_path)) == 1
    strict = sink(tmp_path / "strict", format="parquet", flush_size=1)
    strict.produce("hits", {"n": {}})
    with pytest.raises(ConnectError, match="do not fit into Parquet"):
        strict.put()


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_bytes_dates_and_times_of_the_day_and_far_years_come_out_in_each_format(tmp_path, kind):
    schema = struct({"raw": BYTES, "day": DATE, "time": TIME, "at": TIMESTAMP, "days": array(DATE)})
    if kind == "csv":
        schema = struct([(part.name, part.schema) for part in schema.fields if part.name != "days"])
    values = {"raw": b"\xff", "day": Moment(86_400_000), "time": Moment(3_600_000), "at": Moment(253_402_300_800_000)}
    if kind != "csv":
        values["days"] = [Moment(0)]
    driver = sink(tmp_path, format=kind, flush_size=1, value_converter="JsonConverter")
    driver.produce("hits", Struct(schema, values))
    driver.put()
    path = tmp_path / files(tmp_path)[0]
    if kind == "csv":
        assert path.read_text().splitlines()[1] == '"/w==",1970-01-02,01:00:00.000,10000-01-01 00:00:00.000Z'
    elif kind == "json":
        row = json.loads(path.read_text())
        assert (row["raw"], row["day"], row["time"], row["days"]) == ("/w==", "1970-01-02", "01:00:00", ["1970-01-01"])
    else:
        table = pq.read_table(path)
        assert table.column("at").cast("int64").to_pylist() == [253_402_300_800_000]
        assert table.column("day").to_pylist()[0].isoformat() == "1970-01-02"


@pytest.mark.parametrize("path", ["${topic}/%y", "date=%F"])
def test_parts_of_times_that_there_are_not_are_refused(tmp_path, path):
    with pytest.raises(SettingError, match="does not stand for a part of a time"):
        sink(tmp_path, path_format=path)


@pytest.mark.parametrize("year_ms", [10**15, -(10**15) - 10**14])
def test_a_year_that_csv_would_write_as_another_one_is_the_fault_of_its_record(tmp_path, year_ms):
    far = 9 * 10**14  # the year 30489, and one as far before
    schema = struct({"at": TIMESTAMP})
    rows = [{"at": Moment(each)} for each in (far, year_ms, -far)]
    driver = sink(tmp_path, format="csv", flush_size=3, errors_tolerance="all", value_converter="JsonConverter")
    driver.produce("hits", *(Struct(schema, row) for row in rows))
    driver.put()
    lines = [line for name in files(tmp_path) for line in (tmp_path / name).read_text().splitlines()[1:]]
    assert lines == ["30489-11-11 16:00:00.000Z", "-26550-02-19 08:00:00.000Z"]
