"""The sources that read Delta Lake and Apache Iceberg: each row is a record once, and each change, whatever crashes."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouses import KINDS, Lakehouse
from penstock.connect.connectors.lakehouse.iceberg import compact_files
from penstock.connect.data import SettingError
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError


@pytest.fixture(params=KINDS)
def lake(request, tmp_path):
    return Lakehouse(request.param, tmp_path)


def write(table, rows, key=None):
    """Append rows to a table, or upsert them by key, by its sink; a row without more than its key is deleted."""
    config = {"topics": "hits", "flush.interval.ms": 0, "compact.commits": 0, **table.config}
    if key:
        config |= {"insert.mode": "upsert", "pk.fields": key}
    driver = ConnectTestDriver(table.lake.connector, config)
    driver.log.create_topic("hits")
    for row in rows:
        value = {name: each for name, each in row.items() if name != key}
        driver.produce("hits", value or None, key=row[key] if key else None)
    driver.put_all()
    driver.stop()
    return table


def compacted(table):
    if table.lake.kind == "delta":
        table.load().optimize.compact()
    else:
        assert compact_files(table.load(), {})


def source(table, **more):
    given = {name.replace("_", "."): value for name, value in more.items()}
    config = {"topic": "rows", "name": "rows", "poll.interval.ms": 1, **table.config, **given}
    return ConnectTestDriver(table.lake.source, config)


def read(driver, polls=8):
    for _ in range(polls):
        driver.poll()
    known = [info.name for info in driver.log.topics()]
    return [(each.key, each.value) for each in driver.read("rows")] if "rows" in known else []


def numbers(driver, polls=8):
    return [value["n"] for _, value in read(driver, polls)]


def test_rows_of_a_table_are_records_then_what_is_added_and_compaction_makes_none(lake):
    table = write(lake / "t", [{"n": 1}])
    write(table, [{"n": 2}])
    driver = source(table)
    assert sorted(numbers(driver)) == [1, 2]
    write(table, [{"n": 3}])
    compacted(table)
    write(table, [{"n": 4, "more": "x"}])
    assert numbers(driver)[2:] == [3, 4]
    driver.restart()
    assert len(numbers(driver)) == 4
    assert read(driver)[-1] == (None, {"n": 4, "more": "x"})
    early, late = source(table, start_at="earliest", name="early"), source(table, start_at="latest", name="late")
    assert numbers(early) == [1, 2, 3, 4]
    assert numbers(late) == []
    write(table, [{"n": 5}])
    assert numbers(late) == [5]


def test_each_row_is_a_record_once_wherever_the_task_crashes(lake):
    table = write(lake / "t", [{"n": n} for n in range(7)])
    driver = source(table, batch_max_rows=2)
    steps = [Step.POLLED, Step.CONVERTED, Step.WRITTEN, Step.COMMITTED]
    for number, step in enumerate(steps * 2):
        driver.poll(crash=step)
        driver.poll()
        if number == 3:
            write(table, [{"n": n} for n in range(7, 12)])
    assert numbers(driver, polls=12) == list(range(12))


def test_changes_are_records_by_key_and_deletes_are_tombstones(lake):
    table = write(lake / "t", [{"id": name, "n": n} for n, name in enumerate("abc")], key="id")
    driver = source(table, read_mode="changes", key_fields="id", batch_max_rows=1)
    assert sorted(read(driver)) == [(name, {"n": n, "id": name}) for n, name in enumerate("abc")]
    write(table, [{"id": "a", "n": 7}, {"id": "b"}, {"id": "d", "n": 8}], key="id")
    found = read(driver)[3:]
    assert dict(found) == {"a": {"n": 7, "id": "a"}, "b": None, "d": {"n": 8, "id": "d"}}
    assert len(found) == 3
    write(table, [{"id": name} for name in "acd"], key="id")  # no row is left
    assert sorted(read(driver)[6:]) == [("a", None), ("c", None), ("d", None)]
    appends = source(table, name="appends", start_at="earliest")
    with pytest.raises(ConnectError, match=r"changes or deletes rows, and read\.mode=append"):
        read(appends)


def test_a_change_feed_says_what_has_changed(tmp_path):
    table, path = Lakehouse("delta", tmp_path) / "t", str(tmp_path / "t")
    rows = pa.table({"id": ["a", "b", "c"], "day": ["2026-01-01", None, "2026-01-01"], "n": [1, 2, 3]})
    rows = rows.set_column(1, "day", rows.column("day").cast(pa.date32()))
    write_deltalake(path, rows, partition_by=["day"], configuration={"delta.enableChangeDataFeed": "true"})
    driver = source(table, read_mode="changes", key_fields="id,day")
    assert len(read(driver)) == 3
    DeltaTable(path).update(updates={"n": "9"}, predicate="id = 'a'")
    DeltaTable(path).delete("id = 'b'")
    found = read(driver)[3:]
    assert [(key[:9], value and value["n"]) for key, value in found] == [("Struct{id", 9), ("Struct{id", None)]
    assert found[0][1]["day"] == 20454
    assert driver.offsets()[0][1] == {"version": 2}


def test_what_cannot_be_read_is_said(lake):
    missing = source(lake / "none")
    with pytest.raises(ConnectError, match="there is no table"):
        missing.poll()
    with pytest.raises(SettingError, match="must name the columns that identify a row"):
        source(lake / "none", read_mode="changes")
    table = write(lake / "t", [{"n": 1}])
    with pytest.raises(SettingError, match="the columns are n"):
        source(table, key_fields="id").poll()
    driver = source(table)
    assert numbers(driver) == [1]
    table.drop()
    write(table, [{"n": 5}])
    if lake.kind == "iceberg":
        with pytest.raises(ConnectError, match=r"is gone.*expired"):
            driver.poll()
