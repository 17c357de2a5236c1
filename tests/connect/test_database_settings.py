"""Settings of the database connectors, each set by a test that fails if it is ignored."""

import threading

import pytest
from sqlalchemy import create_engine, text

from eventually import eventually
from penstock.connect.connectors.postgres import PostgresChangesConnector
from penstock.connect.connectors.postgres.captured_tables import _conninfo
from penstock.connect.connectors.postgres.postgres_settings import CONFIG
from penstock.connect.connectors.sql_sink import SqlSinkConnector
from penstock.connect.connectors.sql_source import SqlSourceConnector
from penstock.connect.data import SettingError
from penstock.connect.testing import ConnectTestDriver
from postgres_server import postgres
from test_postgres_settings import drain, seen, started

__all__ = ["postgres", "started"]

TABLE = ("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'x')")


def execute(url, *statements):
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            found = [connection.execute(text(each)) for each in statements][-1]
            return [tuple(row) for row in found] if found.returns_rows else []
    finally:
        engine.dispose()


def source(url, **more):
    config = {"connection.url": url, "topic.prefix": "db-", "poll.interval.ms": "0", "mode": "bulk", **more}
    return ConnectTestDriver(SqlSourceConnector, {"table.whitelist": "t", **config})


@pytest.fixture
def shop(tmp_path):
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    execute(url, "CREATE TABLE t (id INTEGER PRIMARY KEY, n NUMERIC(8))", "INSERT INTO t VALUES (1, 5), (2, 6), (3, 7)")
    return url


# The SQL source and sink


def test_the_user_of_a_connection_is_the_one_that_is_set(postgres):
    postgres.execute(
        "DROP TABLE IF EXISTS owned", "DROP OWNED BY clerk" if role(postgres) else "CREATE ROLE clerk LOGIN"
    )
    postgres.execute("GRANT CREATE, USAGE ON SCHEMA public TO clerk")
    settings = {"connection.url": postgres.url, "connection.user": "clerk"}
    query = {"query": "SELECT current_user::text AS who", "topic.prefix": "q", "mode": "bulk", "poll.interval.ms": "0"}
    driver = ConnectTestDriver(SqlSourceConnector, {**settings, **query})
    assert driver.poll()[0].value["who"] == "clerk"
    driver.stop()
    driver = ConnectTestDriver(SqlSinkConnector, {**settings, "topics": "owned", "name": "s", "auto.create": "true"})
    driver.produce("owned", {"id": 1})
    driver.put()
    driver.stop()
    assert postgres.execute("SELECT tableowner FROM pg_tables WHERE tablename = 'owned'") == [("clerk",)]


def role(postgres):
    return postgres.execute("SELECT 1 FROM pg_roles WHERE rolname = 'clerk'")


def test_a_suffix_stands_behind_each_statement(shop):
    driver = source(shop, **{"query.suffix": "LIMIT 2"})
    assert [record.value["id"] for record in driver.poll()] == [1, 2]
    driver.stop()


@pytest.mark.parametrize(("mapping", "kind"), [("true", "INT32"), ("false", "BYTES")])
def test_whole_decimals_are_numbers_if_the_setting_says_so(shop, mapping, kind):
    driver = source(shop, **{"numeric.precision.mapping": mapping})
    assert driver.poll()[0].value_schema.field("n").schema.type.name == kind
    driver.stop()


@pytest.mark.parametrize(("quotes", "row"), [("always", 1), ("never", 2)])
def test_names_without_quotes_have_the_case_of_the_server(postgres, quotes, row):
    for table, number in (('"Quoted"', 1), ("quoted", 2)):
        postgres.execute(f"DROP TABLE IF EXISTS {table}", f"CREATE TABLE {table} (id int)")
        postgres.execute(f"INSERT INTO {table} VALUES ({number})")
    driver = source(postgres.url, **{"table.whitelist": "Quoted", "quote.sql.identifiers": quotes})
    assert [record.value["id"] for record in driver.poll()] == [row]
    driver.stop()


def test_a_sink_writes_names_with_quotes_or_without(postgres):
    postgres.execute("DROP TABLE IF EXISTS sunk", 'DROP TABLE IF EXISTS "Sunk"')
    for quotes, table in (("never", "sunk"), ("always", '"Sunk"')):
        settings = {"connection.url": postgres.url, "topics": "Sunk", "name": "s", "auto.create": "true"}
        driver = ConnectTestDriver(SqlSinkConnector, {**settings, "quote.sql.identifiers": quotes})
        driver.produce("Sunk", {"id": 1})
        driver.put()
        driver.stop()
        assert postgres.execute(f"SELECT id FROM {table}") == [(1,)]


@pytest.mark.parametrize(("catalog", "rows"), [("postgres", [1]), ("post%", [1]), ("other", [])])
def test_only_tables_of_databases_like_the_pattern_are_read(postgres, catalog, rows):
    postgres.execute("DROP TABLE IF EXISTS t_catalog", "CREATE TABLE t_catalog (id int)")
    postgres.execute("INSERT INTO t_catalog VALUES (1)")
    driver = source(postgres.url, **{"catalog.pattern": catalog, "table.whitelist": "t_catalog"})
    assert [record.value["id"] for record in driver.poll()] == rows
    driver.stop()


@pytest.mark.parametrize("backoff", ["7", None])
def test_a_sink_waits_before_it_tries_again_as_long_as_the_setting_says(tmp_path, backoff):
    settings = {"connection.url": f"sqlite:////{tmp_path}/folder/away.db", "topics": "t", "name": "s"}
    settings |= {"auto.create": "true", "exactly.once": "false"}
    if backoff is not None:
        settings["retry.backoff.ms"] = backoff
    driver = ConnectTestDriver(SqlSinkConnector, settings)
    waits = []
    driver.sinks[0].task.context.timeout = waits.append
    driver.produce("t", {"a": 1})
    assert driver.put() == []
    assert waits == ([] if backoff is None else [7])
    driver.stop()


def test_new_tables_are_looked_for_as_often_as_the_setting_says(shop):
    asked = threading.Event()

    class Context:
        def request_task_reconfiguration(self):
            asked.set()

        def raise_error(self, error):
            raise error

    for interval, finds in (("3600000", False), ("20", True)):
        connector = SqlSourceConnector()
        connector.context = Context()
        settings = {"connection.url": shop, "topic.prefix": "db-", "mode": "bulk", "table.include.list": ".*"}
        connector.start({**settings, "table.poll.interval.ms": interval})
        connector.task_configs(5)
        execute(shop, f"CREATE TABLE more_{interval} (id INTEGER)")
        if finds:
            assert eventually(asked.is_set)
        connector.stop()
        assert asked.is_set() is finds


# The source of PostgreSQL's changes


def test_forms_of_values_are_those_of_the_settings(started):
    driver, run = started(
        "CREATE EXTENSION IF NOT EXISTS hstore",
        "CREATE TABLE f (id int PRIMARY KEY, i interval, b bytea, h hstore, q tsquery)",
        "INSERT INTO f VALUES (1, '1 mon 2 days', '\\x00ff', 'a=>1', 'cat')",
        **{
            "interval.handling.mode": "string",
            "binary.handling.mode": "hex",
            "hstore.handling.mode": "map",
            "include.unknown.datatypes": "true",
        },
    )
    expected = {"id": 1, "i": "P0Y1M2DT0H0M0S", "b": "00ff", "h": {"a": "1"}, "q": b"'cat'".hex()}
    (first,) = drain(driver)
    run("UPDATE f SET i = i")
    (change,) = drain(driver)
    assert [record.value["after"].to_dict() for record in (first, change)] == [expected, expected]


def test_deletions_have_no_tombstones_if_the_setting_says_so(started):
    driver, run = started(*TABLE, **{"tombstones.on.delete": "false"})
    drain(driver)
    run("DELETE FROM t")
    assert [each[1] for each in seen(drain(driver))] == ["d"]


def test_large_values_that_have_not_changed_have_the_placeholder_that_is_set(started):
    driver, run = started(
        "CREATE TABLE big (id int PRIMARY KEY, n int, v text)",
        "ALTER TABLE big ALTER COLUMN v SET STORAGE EXTERNAL",
        "INSERT INTO big VALUES (1, 1, repeat('x', 100000))",
        **{"unavailable.value.placeholder": "not here"},
    )
    drain(driver)
    run("UPDATE big SET n = 2")
    assert drain(driver)[0].value["after"]["v"] == "not here"


def test_only_schemas_that_are_included_are_read(started):
    driver, run = started(
        *TABLE,
        "CREATE SCHEMA wanted",
        "CREATE TABLE wanted.w (id int PRIMARY KEY)",
        "INSERT INTO wanted.w VALUES (1)",
        **{"schema.include.list": "wanted"},
    )
    assert [each[0] for each in seen(drain(driver))] == ["srv.wanted.w"]
    run("INSERT INTO t VALUES (2, 'y')", "INSERT INTO wanted.w VALUES (2)")
    assert [each[0] for each in seen(drain(driver))] == ["srv.wanted.w"]


def test_a_look_at_the_slot_takes_as_many_changes_as_the_setting_says(started):
    """The server gives whole transactions: of three, one in each look."""
    driver, run = started(*TABLE, **{"max.queue.size": "1", "max.batch.size": "1"})
    drain(driver)
    for number in (2, 3, 4):
        run(f"INSERT INTO t VALUES ({number}, 'x')")
    server = driver.sources[0].task._server
    assert len({lsn for lsn, _ in server.changes(100)}) > len({lsn for lsn, _ in server.changes(1)})
    asked = []
    changes = server.changes

    def counted(most):
        asked.append(most)
        return changes(most)

    server.changes = counted
    records = [record for _ in range(20) for record in driver.poll()]  # a look that ends behind a full batch is empty
    assert [each[2]["id"] for each in seen(records)] == [2, 3, 4]
    assert set(asked) == {1}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"plugin.name": "wal2json"}, "plugin.name"),
        ({"database.sslmode": "sometimes"}, "sslmode"),
    ],
)
def test_values_that_a_setting_cannot_have_are_refused(settings, message):
    base = {"topic.prefix": "srv", "database.hostname": "localhost", "database.dbname": "app"}
    with pytest.raises(SettingError, match=message):
        PostgresChangesConnector().start({**base, **settings})


def test_a_connection_is_made_with_the_settings(started):
    given = {
        "database.password": "secret",
        "database.sslmode": "verify-ca",
        "database.sslcert": "c.pem",
        "database.sslkey": "k.pem",
        "database.sslpassword": "hidden",
        "database.sslrootcert": "r.pem",
        "database.tcpKeepAlive": "false",
    }
    base = {"topic.prefix": "srv", "database.hostname": "localhost", "database.dbname": "app"}
    made = _conninfo(CONFIG.parse({**base, **given}))
    names = ("password", "sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "keepalives")
    assert [made[name] for name in names] == ["secret", "verify-ca", "c.pem", "k.pem", "hidden", "r.pem", 0]
    driver, _ = started(*TABLE, **{"database.query.timeout.ms": "123000"})
    assert driver.sources[0].task._server._one("SHOW statement_timeout") == "123s"


def test_rows_and_changes_begin_after_the_waits_that_are_set(started):
    driver, _ = started(*TABLE, **{"snapshot.delay.ms": "21", "streaming.delay.ms": "22"})
    waits = []
    driver.sources[0].task._stopped.wait = waits.append
    drain(driver)
    assert waits[:2] == [0.021, 0.022]
