"""Databases that go away in the middle and come back: nothing is lost or doubled, and what happens is said."""

import threading
import uuid
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from mariadb_server import mariadb
from penstock.connect.connectors.sql_columns import ColumnRules
from penstock.connect.connectors.sql_databases import reader_for
from penstock.connect.connectors.sql_sink import SqlSinkConnector
from penstock.connect.connectors.sql_source import SqlSourceConnector
from penstock.connect.data import RetriableError
from penstock.connect.rest import WorkerServer
from penstock.connect.testing import ConnectTestDriver
from penstock.connect.worker_settings import WorkerConfig
from postgres_server import postgres
from test_connect_worker import ask, task_state, until
from test_connect_worker import settings as worker_settings

__all__ = ["mariadb", "postgres"]
JSON = "org.apache.kafka.connect.json.JsonConverter"


def execute(url, *statements):
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            found = connection.execute(text(statement))
        rows = [tuple(row) for row in found] if found.returns_rows else []
    engine.dispose()
    return rows


@pytest.fixture
def file(tmp_path):
    return tmp_path / "shop.db"


def test_rows_of_a_database_file_that_goes_away_and_comes_back_come_once(file, tmp_path):
    url = f"sqlite:///{file}"
    execute(url, "CREATE TABLE t (id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    config = {"connection.url": url, "topic.prefix": "", "table.whitelist": "t", "mode": "incrementing"}
    config |= {"incrementing.column.name": "id", "poll.interval.ms": "0"}
    driver = ConnectTestDriver(SqlSourceConnector, config)
    driver.poll()
    away = file.rename(tmp_path / "away.db")
    with pytest.raises(RetriableError, match=r"shop\.db is away"):
        driver.sources[0].task.poll()
    assert not file.exists()  # no empty database in its place
    execute(f"sqlite:///{away}", "INSERT INTO t VALUES (3)")
    other = Path(f"{away}.copy")
    other.write_bytes(away.read_bytes())  # a copy comes back: another file
    other.rename(file)
    until(driver.poll)
    assert [record.value["id"] for record in driver.read("t")] == [1, 2, 3]
    driver.stop()


def queries_of(mariadb, part):
    """The connections that run a query with these words."""
    listed = f"SELECT id FROM information_schema.processlist WHERE info LIKE '%{part}%' AND id <> CONNECTION_ID()"
    return execute(mariadb.url, listed)


def test_a_source_of_mariadb_stops_in_the_middle_of_rows_that_never_end(mariadb):
    config = {
        "connection.url": f"{mariadb.url}/mysql",
        "topic.prefix": "endless",
        "mode": "bulk",
        "batch.max.rows": "10",
    }
    config |= {"query": "SELECT seq FROM seq_1_to_1000000000000000", "poll.interval.ms": "0"}
    driver = ConnectTestDriver(SqlSourceConnector, config)
    driver.poll()
    assert driver.read("endless")[0].value["seq"] == 1
    assert len(queries_of(mariadb, "seq_1_to")) == 1
    stopping = threading.Thread(target=driver.stop, daemon=True)
    stopping.start()
    stopping.join(120)
    assert not stopping.is_alive()
    until(lambda: not queries_of(mariadb, "seq_1_to"))


def fails(fetch):
    """Whether no more rows come; what was sent before the end comes first."""
    try:
        fetch(100_000)
    except OperationalError:
        return True
    return False


def test_rows_of_mariadb_are_closed_without_a_word_whether_their_connection_is_there_or_not(mariadb, caplog):
    engine = create_engine(f"{mariadb.url}/mysql", pool_pre_ping=True)
    reader = reader_for(engine, ColumnRules())
    for command, number in (("QUERY", 2), ("CONNECTION", 3), ("", 4)):
        query = f"SELECT seq FROM seq_{number}_to_1000000000000000"
        rows = reader.start(query)
        assert [tuple(row) for row in rows.fetch(2)] == [(number,), (number + 1,)]
        [(connection,)] = queries_of(mariadb, query)
        if command:
            execute(mariadb.url, f"KILL {command} {connection}")
            until(lambda rows=rows: fails(rows.fetch))
        caplog.clear()
        rows.close()
        assert caplog.records == []
        until(lambda query=query: not queries_of(mariadb, query))
        with reader.connect() as again:
            assert reader.all(again, "SELECT 1") == [(1,)]
    engine.dispose()


@pytest.mark.parametrize("exactly_once", ["true", "false"])
def test_records_wait_for_a_database_file_that_is_away(file, tmp_path, exactly_once):
    url = f"sqlite:///{file}"
    config = {"connection.url": url, "topics": "t", "auto.create": "true", "exactly.once": exactly_once}
    driver = ConnectTestDriver(SqlSinkConnector, config)
    driver.produce("t", {"n": 1})
    driver.put()
    away = file.rename(tmp_path / "away.db")
    driver.produce("t", {"n": 2})
    assert driver.put() == driver.put() == []
    assert not file.exists()
    away.rename(file)
    driver.put()
    driver.stop()
    assert execute(url, "SELECT n FROM t ORDER BY n") == [(1,), (2,)]


def test_a_sink_whose_database_is_away_when_it_gets_its_partitions_goes_on_when_it_comes(file, tmp_path):
    folder = tmp_path / "later"
    url = f"sqlite:///{folder}/shop.db"
    server = WorkerServer(
        WorkerConfig.of(
            worker_settings(tmp_path, **{"tasks.in.process": "true", "value.converter": JSON}), "distributed"
        )
    )
    server.start()
    try:
        assert server.wait_until_ready(180)
        writer = ConnectTestDriver(SqlSinkConnector, {"topics": "t", "connection.url": f"sqlite:///{file}",
            "auto.create": "true", "value.converter": JSON}, log=server.worker.log)  # fmt: skip
        writer.produce("t", {"n": 1}, {"n": 2})
        writer.stop()
        config = {"connector.class": "JdbcSink", "topics": "t", "connection.url": url, "auto.create": "true"}
        assert ask(server, "POST", "/connectors", {"name": "s", "config": config})[0] == 201
        until(lambda: "unable to open database file" in str(ask(server, "GET", "/penstock/progress")[1]))
        until(lambda: task_state(server, "s") == "RUNNING")
        folder.mkdir()
        until(lambda: (folder / "shop.db").exists() and rows(url, "t") == [(1,), (2,)])
    finally:
        server.stop()


def rows(url, table):
    there = execute(url, f"SELECT 1 FROM sqlite_master WHERE name = '{table}'")
    return execute(url, f"SELECT n FROM {table} ORDER BY n") if there else []


def test_a_server_that_crashes_and_comes_back_costs_no_row_and_no_change(postgres, tmp_path):
    table, out = (f"t{uuid.uuid4().hex[:8]}" for _ in range(2))
    postgres.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)", f"INSERT INTO {table} VALUES (0)")
    settings = worker_settings(tmp_path, **{"tasks.in.process": "true", "value.converter": JSON, "key.converter": JSON})
    server = WorkerServer(WorkerConfig.of(settings, "distributed"))
    server.start()
    database = {"connection.url": postgres.url}
    reading = {**database, "connector.class": "JdbcSource", "table.whitelist": table, "mode": "incrementing",
        "incrementing.column.name": "id", "topic.prefix": "rows-", "poll.interval.ms": "50"}  # fmt: skip
    writing = {**database, "connector.class": "JdbcSink", "topics": f"rows-{table}", "table.name.format": out,
        "auto.create": "true"}  # fmt: skip
    changes = {"connector.class": "PostgresConnector", "topic.prefix": "shop", "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port), "database.user": "postgres", "database.dbname": "postgres",
        "slot.name": f"s_{table}", "publication.name": f"p_{table}", "publication.autocreate.mode": "filtered",
        "table.include.list": f"public.{table}", "poll.interval.ms": "50"}  # fmt: skip
    log = server.worker.log
    try:
        assert server.wait_until_ready(180)
        for name, config in (("r", reading), ("w", writing), ("c", changes)):
            assert ask(server, "POST", "/connectors", {"name": name, "config": config})[0] == 201

        def count(topic):
            return log.end_offset(topic, 0) if any(each.name == topic for each in log.topics()) else 0

        def written():
            found = postgres.execute(f"SELECT to_regclass('{out}')")
            return found[0][0] is not None and postgres.execute(f"SELECT id FROM {out} ORDER BY id")

        until(lambda: written() == [(0,)] and count(f"shop.public.{table}") == 1)
        postgres.crash()
        until(lambda: errors(server) >= {"r", "c"})
        assert [task_state(server, name) for name in "rwc"] == ["RUNNING"] * 3
        postgres.start()
        postgres.execute(f"INSERT INTO {table} VALUES (1), (2)")
        until(lambda: written() == [(0,), (1,), (2,)] and count(f"shop.public.{table}") == 3)
        assert [task_state(server, name) for name in "rwc"] == ["RUNNING"] * 3
        keys = [row["key"] for row in log.read(f"shop.public.{table}", 0, 0).records.to_pylist()]
        assert len(set(keys)) == 3
    finally:
        server.stop()
        postgres.execute(f"SELECT pg_drop_replication_slot('s_{table}')", f"DROP TABLE {table}", f"DROP TABLE {out}")


def errors(server):
    return {each["connector"] for each in ask(server, "GET", "/penstock/progress")[1]["tasks"] if each["last_error"]}
