"""The SQL source and sink over a real PostgreSQL."""

import uuid
from decimal import Decimal

import pytest

from penstock.connect.connectors.sql_sink import SqlSinkConnector
from penstock.connect.connectors.sql_source import SqlSourceConnector
from penstock.connect.data import DataError
from penstock.connect.testing import ConnectTestDriver, Step
from postgres_server import postgres

__all__ = ["postgres"]


@pytest.fixture
def name(postgres):
    made = f"t{uuid.uuid4().hex[:8]}"
    yield made
    postgres.execute(f"DROP TABLE IF EXISTS {made}")


@pytest.fixture
def killed():
    """Tasks that a test kills: in processes of their own the system closes their connections."""
    made = []
    yield made
    for task in made:
        task.stop()


def test_rows_come_once_with_their_types_wherever_the_task_crashes(postgres, name, killed):
    kinds = "id int PRIMARY KEY, at timestamp NOT NULL, price numeric(8,2), ok boolean, raw bytea, tag varchar(9)"
    postgres.execute(f"CREATE TABLE {name} ({kinds})")
    config = {
        "connection.url": postgres.url,
        "topic.prefix": "pg-",
        "table.whitelist": name,
        "mode": "timestamp+incrementing",
        "incrementing.column.name": "id",
        "timestamp.column.name": "at",
        "poll.interval.ms": "0",
        "value.converter": "JsonConverter",
    }
    driver = ConnectTestDriver(SqlSourceConnector, config)
    for number, crash in enumerate([None, Step.POLLED, Step.WRITTEN, Step.COMMITTED, None]):
        values = f"{number}, '2024-01-01 00:00:00.00000{number // 2}', 1.5, true, '\\x00ff', 'a'"
        postgres.execute(f"INSERT INTO {name} VALUES ({values})")
        killed.append(driver.sources[0].task)
        driver.poll(crash=crash)
    while driver.poll():
        pass
    rows = [record.value for record in driver.read(f"pg-{name}")]
    assert [row["id"] for row in rows] == list(range(5))
    assert (rows[0]["price"], rows[0]["ok"], rows[0]["raw"], rows[0]["tag"]) == (
        Decimal("1.50"),
        True,
        b"\x00\xff",
        "a",
    )
    driver.stop()


def test_records_are_rows_once_wherever_the_sink_crashes_and_offsets_belong_to_the_log(postgres, name, killed):
    config = {
        "name": f"sink-{name}",
        "topics": name,
        "connection.url": postgres.url,
        "pk.mode": "kafka",
        "auto.create": "true",
    }
    driver = ConnectTestDriver(SqlSinkConnector, config)
    for number, crash in enumerate([None, Step.READ, Step.PUT, Step.FLUSHED, Step.COMMITTED]):
        driver.produce(name, {"n": number})
        killed.append(driver.sinks[0].task)
        driver.put(crash=crash)
    driver.put_all()
    assert postgres.execute(f"SELECT n FROM {name} ORDER BY n") == [(n,) for n in range(5)]
    stored = postgres.execute(f"SELECT log, next_offset FROM penstock_sink_offsets WHERE connector = 'sink-{name}'")
    assert stored == [(driver.log.identity(), 5)]
    other = ConnectTestDriver(SqlSinkConnector, {**config, "pk.mode": "none", "table.name.format": name})
    other.produce(name, {"n": 7})  # offset 0 of another log, which the first log's offsets do not hide
    postgres.execute(f"ALTER TABLE {name} DROP CONSTRAINT {name}_pkey")
    for column in ("topic", "partition", "offset"):
        postgres.execute(f"ALTER TABLE {name} ALTER __connect_{column} DROP NOT NULL")
    other.put()
    assert postgres.execute(f"SELECT count(*) FROM {name} WHERE n = 7") == [(1,)]
    driver.stop()
    other.stop()


def test_a_row_that_the_table_refuses_is_an_error_of_the_record(postgres, name):
    postgres.execute(f"CREATE TABLE {name} (n int UNIQUE)", f"INSERT INTO {name} VALUES (1)")
    driver = ConnectTestDriver(SqlSinkConnector, {"topics": name, "connection.url": postgres.url, "name": name})
    driver.produce(name, {"n": 1})
    with pytest.raises(DataError, match="duplicate key"):
        driver.put()
    for sink in driver.sinks:
        sink.task.stop()


@pytest.mark.parametrize(
    ("query", "rows", "optional"),
    [
        ("SELECT a.id, b.v FROM {0} a JOIN {0} b ON b.id = a.id + 1", [(1, "y")], [False, False]),
        ("SELECT a.id, b.v FROM {0} a LEFT JOIN {0} b ON b.id = a.id + 1", [(1, "y"), (2, None)], [True, True]),
        ("SELECT b.id, a.v FROM {0} b right join {0} a ON b.id = a.id + 1", [(2, "x"), (None, "y")], [True, True]),
        ("SELECT a.id, b.v FROM {0} a NATURAL FULL OUTER JOIN {0} b", [(1, "x"), (2, "y")], [True, True]),
        ("SELECT id, v FROM {0} GROUP BY ROLLUP (id, v) HAVING id = 1", [(1, None), (1, "x")], [True, True]),
    ],
)
def test_a_column_that_a_query_fills_with_null_is_optional(postgres, name, query, rows, optional):
    postgres.execute(
        f"CREATE TABLE {name} (id int NOT NULL, v text NOT NULL)", f"INSERT INTO {name} VALUES (1, 'x'), (2, 'y')"
    )
    config = {"connection.url": postgres.url, "topic.prefix": "q", "query": query.format(name), "mode": "bulk"}
    config["value.converter"] = "JsonConverter"
    driver = ConnectTestDriver(SqlSourceConnector, config)
    records = driver.poll()
    driver.stop()
    found = [tuple(record.value.to_dict().values()) for record in records]
    assert sorted(found, key=repr) == sorted(rows, key=repr)
    assert [field.schema.optional for field in records[0].value_schema.fields] == optional
