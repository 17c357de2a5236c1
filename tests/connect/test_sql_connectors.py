"""The SQL source and sink over SQLite: modes, keys, crashes, a database that is away."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from penstock.connect.connectors.sql_sink import SqlSinkConnector
from penstock.connect.connectors.sql_source import SqlSourceConnector
from penstock.connect.data import DataError, SettingError
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError

SCHEMA = """CREATE TABLE users (id INTEGER PRIMARY KEY, name VARCHAR NOT NULL, score NUMERIC(8,2), changed TIMESTAMP NOT NULL,
            active BOOLEAN, born DATE, picture BLOB)"""


@pytest.fixture
def url(tmp_path):
    made = f"sqlite:///{tmp_path / 'shop.db'}"
    execute(made, SCHEMA)
    return made


def execute(url, *statements):
    engine = create_engine(url)
    with engine.begin() as connection:
        found = [connection.execute(text(each)) for each in statements][-1]
        rows = [tuple(row) for row in found] if found.returns_rows else []
    engine.dispose()
    return rows


def add(url, number, when="2024-01-01 00:00:00.000000"):
    execute(url, f"INSERT INTO users VALUES ({number}, 'n{number}', 1.5, '{when}', 1, '2000-02-29', x'00ff')")


def source(url, **more):
    config = {"connection.url": url, "topic.prefix": "db-", "poll.interval.ms": "0", "table.whitelist": "users"}
    given = {name.replace("_", "."): value for name, value in more.items()}
    return ConnectTestDriver(SqlSourceConnector, {**config, **given})


def ids(driver, topic="db-users"):
    return [record.value["id"] for record in driver.read(topic)]


def test_rows_come_with_their_types(url):
    add(url, 1)
    driver = source(url, mode="incrementing", incrementing_column_name="id", value_converter="JsonConverter")
    record = driver.poll()[0]
    assert str(record.value_schema.field("score").schema) == "Schema{org.apache.kafka.connect.data.Decimal:BYTES}"
    row = driver.read("db-users")[0].value
    assert (row["name"], str(row["score"]), row["active"], row["picture"]) == ("n1", "1.50", True, b"\x00\xff")
    assert row["born"].date().isoformat() == "2000-02-29"
    assert driver.offsets() == [({"protocol": "1", "table": "users"}, {"incrementing": 1})]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([None, Step.POLLED, Step.WRITTEN, Step.COMMITTED]), min_size=1, max_size=8))
def test_each_row_comes_once_wherever_the_task_crashes(url, crashes):
    execute(url, "DELETE FROM users")
    driver = source(url, mode="timestamp+incrementing", incrementing_column_name="id", timestamp_column_name="changed")
    for number, crash in enumerate(crashes):
        add(url, number, f"2024-01-01 00:00:0{number // 3}.000000")  # some at equal times
        driver.poll(crash=crash)
    while driver.poll():
        pass
    assert ids(driver) == list(range(len(crashes)))


def test_changed_rows_come_again_by_their_time(url):
    add(url, 1)
    driver = source(url, mode="timestamp", timestamp_column_name="changed")
    driver.poll()
    execute(url, "UPDATE users SET name = 'new', changed = '2024-01-02 00:00:00.000001' WHERE id = 1")
    driver.poll()
    assert driver.poll() == []
    assert [record.value["name"] for record in driver.read("db-users")] == ["n1", "new"]


def test_a_query_is_a_source_too_and_bulk_reads_all_each_time(url):
    add(url, 1)
    query = "SELECT id, name || '!' AS shout FROM users"
    driver = source(url, mode="incrementing", incrementing_column_name="id", query=query, table_whitelist="")
    driver.poll()
    add(url, 2)
    driver.poll()
    assert [record.value["shout"] for record in driver.read("db-")] == ["n1!", "n2!"]
    bulk = source(url, mode="bulk", name="bulk")
    assert (len(bulk.poll()), len(bulk.poll())) == (2, 2)


def test_tables_are_shared_among_tasks_and_wrong_settings_are_named(url):
    connector = SqlSourceConnector()
    base = {"connection.url": url, "topic.prefix": "", "mode": "bulk", "table.whitelist": "a,b,c"}
    connector.start(base)
    assert [config["table.whitelist"] for config in connector.task_configs(2)] == ["a,c", "b"]
    with pytest.raises(SettingError, match=r"incrementing\.column\.name: mode=incrementing needs"):
        source(url, mode="incrementing", query="SELECT 1", **{"table.whitelist": ""})
    with pytest.raises(SettingError, match="not both"):
        source(url, mode="bulk", query="SELECT 1")
    with pytest.raises(ConnectError, match=r"column: nope does not exist in table.*\n.*It has id, name"):
        source(url, mode="incrementing", incrementing_column_name="nope").poll()
    with pytest.raises(SettingError, match="not a URL of a database"):
        source("nonsense", mode="bulk").poll()
    driver = source(url, mode="bulk", table_whitelist="gone")
    assert driver.poll() == []  # tried again later


def sink(url, **more):
    given = {name.replace("_", "."): value for name, value in more.items()}
    return ConnectTestDriver(SqlSinkConnector, {"connection.url": url, "topics": "out", "name": "s", **given})


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([None, *[Step.READ, Step.PUT, Step.FLUSHED, Step.COMMITTED]]), min_size=1, max_size=8))
def test_each_record_is_a_row_once_wherever_the_sink_crashes(url, crashes):
    execute(url, "DROP TABLE IF EXISTS out", "DROP TABLE IF EXISTS penstock_offsets")
    driver = sink(url, auto_create="true")
    for number, crash in enumerate(crashes):
        driver.produce("out", {"n": number}, partition=number % 2)
        driver.put(crash=crash)
    driver.put_all()
    assert Counter(execute(url, "SELECT n FROM out")) == Counter((n,) for n in range(len(crashes)))


def test_the_row_of_a_key_is_replaced_and_a_null_deletes_it(url):
    more = {"insert_mode": "upsert", "pk_mode": "record_key", "pk_fields": "id", "auto_create": "true"}
    driver = sink(url, **more, delete_enabled="true", auto_evolve="true")
    driver.produce("out", {"v": 1}, key="a")
    driver.produce("out", {"v": 2}, key="b")
    driver.produce("out", {"v": 3, "extra": "x"}, key="a")
    driver.produce("out", None, key="b")
    driver.put_all()
    assert execute(url, "SELECT id, v, extra FROM out") == [("a", 3, "x")]


def test_records_that_do_not_fit_fail_and_leave_nothing_of_their_batch(url):
    driver = sink(url, auto_create="true")
    driver.produce("out", {"n": 1})
    driver.put()
    driver.produce("out", {"n": 2}, "no row")
    with pytest.raises(DataError, match="offset 2 is not a struct or map"):
        driver.put()
    assert execute(url, "SELECT n FROM out") == [(1,)]
    other = sink(url, table_name_format="nothing", name="other")
    other.produce("out", {"n": 1})
    with pytest.raises(ConnectError, match="there is no table nothing"):
        other.put()


def test_a_database_that_is_away_is_tried_again(url, tmp_path):
    driver = sink(f"sqlite:////{tmp_path}/folder/away.db", exactly_once="false", auto_create="true")
    driver.produce("out", {"n": 1})
    assert driver.put() == []
    (tmp_path / "folder").mkdir()
    assert len(driver.put()) == 1
