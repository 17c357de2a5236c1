"""The SQL sink: tables that change under it, columns of any type, fields that stay out, keys of each kind."""

from contextlib import contextmanager
from decimal import Decimal
from types import SimpleNamespace

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.dialects.mysql.base import MySQLDialect
from sqlalchemy.exc import DBAPIError

from databases import execute, own_database
from mariadb_server import mariadb
from penstock.connect.connectors.sql_columns import ColumnRules
from penstock.connect.connectors.sql_reading import DatabaseReader
from penstock.connect.connectors.sql_sink import SqlSinkConnector, SqlSinkTask
from penstock.connect.connectors.sql_source import SqlSourceConnector
from penstock.connect.connectors.sql_writing import ValueRules, column_default
from penstock.connect.data import (
    BYTES,
    DATE,
    FLOAT64,
    INT32,
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    TIME,
    TIMESTAMP,
    DataError,
    Moment,
    Schema,
    SettingError,
    Struct,
    Type,
    array,
    decimal_schema,
    struct,
    with_default,
)
from penstock.connect.testing import ConnectTestDriver
from penstock.errors import ConnectError
from postgres_server import postgres

__all__ = ["mariadb", "postgres"]
JSON = {"value.converter": "JsonConverter", "key.converter": "JsonConverter"}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shop.db'}"
        return
    with own_database(request.getfixturevalue("postgres")) as own:
        yield own


@pytest.fixture
def postgres_url(postgres):
    with own_database(postgres) as own:
        yield own


def sink(url, **more):
    given = {name.replace("_", "."): value for name, value in more.items()}
    return ConnectTestDriver(SqlSinkConnector, {"connection.url": url, "topics": "t", "name": "s", **given})


def put(driver, *values, key=None, topic="t"):
    for value in values:
        driver.produce(topic, value, key=key)
    driver.put()


def test_a_column_that_was_added_meanwhile_is_found_before_a_record_is_refused(url):
    execute(url, "CREATE TABLE t (a INTEGER)")
    driver = sink(url)
    put(driver, {"a": 1})
    driver.produce("t", {"a": 2, "b": "x"})
    with pytest.raises(ConnectError, match=r"Table t is missing fields \(b\) and auto-evolution is disabled"):
        driver.put()
    execute(url, "ALTER TABLE t ADD COLUMN b TEXT")
    driver.put()
    assert execute(url, "SELECT a, b FROM t ORDER BY a") == [(1, None), (2, "x")]
    driver.stop()


def test_columns_that_are_renamed_dropped_or_of_another_type_are_looked_up_again(url):
    execute(url, "CREATE TABLE t (a INTEGER, b INTEGER)")
    driver = sink(url, auto_evolve="true")
    put(driver, {"a": 1, "b": 1})
    execute(url, "ALTER TABLE t RENAME COLUMN b TO c")
    put(driver, {"a": 2, "b": 2})
    assert execute(url, "SELECT a, c, b FROM t ORDER BY a") == [(1, 1, None), (2, None, 2)]
    execute(url, "ALTER TABLE t DROP COLUMN b")
    put(driver, {"a": 3, "b": 3}, {"a": 4})
    assert execute(url, "SELECT a, b FROM t ORDER BY a") == [(1, None), (2, None), (3, 3), (4, None)]
    if "postgres" in url:
        execute(url, "ALTER TABLE t ALTER COLUMN b TYPE text")
        put(driver, {"a": 5, "b": 7})
        assert execute(url, "SELECT b FROM t WHERE a = 5") == [("7",)]
    driver.stop()


def test_a_table_that_was_dropped_or_renamed_is_made_anew_or_missed(url):
    driver = sink(url, auto_create="true")
    put(driver, {"a": 1})
    execute(url, "ALTER TABLE t RENAME TO old")
    put(driver, {"a": 2})
    assert execute(url, "SELECT a FROM t") == [(2,)]
    driver.stop()
    plain = sink(url, name="plain")
    put(plain, {"a": 3})
    execute(url, "DROP TABLE t")
    plain.produce("t", {"a": 4})
    with pytest.raises(ConnectError, match="Table t is missing and auto-creation is disabled"):
        plain.put()
    plain.stop()


def test_a_table_of_mariadb_that_was_dropped_is_made_anew_or_missed(mariadb):
    mariadb.connect().cursor().execute("CREATE OR REPLACE DATABASE dropped")
    url = f"{mariadb.url}/dropped"
    driver = sink(url, auto_create="true")
    put(driver, {"a": 1})
    execute(url, "DROP TABLE t")
    put(driver, {"a": 2}, {"a": 3})
    assert execute(url, "SELECT a FROM t ORDER BY a") == [(2,), (3,)]
    driver.stop()
    plain = sink(url, name="plain")
    put(plain, {"a": 4})
    execute(url, "DROP TABLE t")
    plain.produce("t", {"a": 5})
    with pytest.raises(ConnectError, match="Table t is missing and auto-creation is disabled"):
        plain.put()
    plain.stop()


def test_a_required_field_without_default_cannot_be_added(url):
    execute(url, "CREATE TABLE t (a BIGINT)")
    driver = sink(url, auto_evolve="true", **{"value.converter": "JsonConverter"})
    row = struct({"a": INT64, "b": INT64})
    driver.produce("t", Struct(row, {"a": 1, "b": 2}))
    with pytest.raises(ConnectError, match="Cannot ALTER TABLE t to add missing field b, as the field is not optional"):
        driver.put()
    driver.stop()


def test_made_tables_take_nulls_only_where_the_schema_does(postgres_url):
    driver = sink(postgres_url, auto_create="true", **JSON)
    row = struct({"a": INT64, "b": OPTIONAL_STRING, "c": decimal_schema(2), "d": array(STRING)})
    put(driver, Struct(row, {"a": 1, "b": None, "c": Decimal("1.50"), "d": ["x"]}))
    described = execute(
        postgres_url,
        "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute "
        "WHERE attrelid = 't'::regclass AND attnum > 0",
    )
    assert described == [
        ("a", "bigint", True),
        ("b", "text", False),
        ("c", "numeric", True),
        ("d", "text[]", True),
    ]
    driver.stop()


def test_fields_that_are_not_listed_are_neither_written_nor_shown(url):
    execute(url, "CREATE TABLE t (id INTEGER PRIMARY KEY, name VARCHAR(9) NOT NULL)")
    more = {"fields_whitelist": "name", "pk_mode": "record_value", "pk_fields": "id"}
    driver = sink(url, insert_mode="upsert", **more)
    put(driver, {"id": 1, "name": "a", "card": "hunter2"})
    assert execute(url, "SELECT id, name FROM t") == [(1, "a")]
    driver.produce("t", {"id": 2, "name": None, "card": "hunter2"})
    with pytest.raises(DataError) as caught:
        driver.put()
    assert "hunter2" not in f"{caught.value}{caught.value.__cause__}"
    driver.stop()
    made = sink(url, name="made", table_name_format="made", auto_create="true", **more)
    put(made, {"id": 1, "name": "a", "card": "hunter2"})
    assert execute(url, "SELECT id, name FROM made") == [(1, "a")]
    with pytest.raises(DBAPIError):
        execute(url, "SELECT card FROM made")
    made.stop()


def test_messages_without_the_databases_words(postgres_url):
    execute(postgres_url, "CREATE TABLE t (id uuid)")
    for trims, name in (("true", "trims"), ("false", "shows")):
        driver = sink(postgres_url, name=name, trim_sensitive_log=trims)
        driver.produce("t", {"id": "hunter2"})
        with pytest.raises(DataError, match="the database fails to write: ") as caught:
            driver.put()
        assert ("hunter2" in str(caught.value)) is (trims == "false")
        driver.stop()


def test_rows_are_written_in_order_whatever_the_size_of_batches(url):
    execute(url, "CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)")
    more = {"insert_mode": "upsert", "pk_mode": "record_key", "pk_fields": "id", "delete_enabled": "true"}
    for size in ("0", "2", "3000"):
        execute(url, "DELETE FROM t")
        driver = sink(url, name=f"size{size}", batch_size=size, topics=f"t{size}", table_name_format="t", **more)
        for key, value in ((1, 10), (1, 11), (2, 20), (1, None), (2, 21), (3, 30), (3, None), (3, 31), (4, None)):
            driver.produce(f"t{size}", None if value is None else {"v": value}, key=key)
        driver.put()
        assert execute(url, "SELECT id, v FROM t ORDER BY id") == [(2, 21), (3, 31)]
        driver.stop()


def test_a_deletion_where_no_table_is_has_nothing_to_do(url):
    more = {"pk_mode": "record_key", "pk_fields": "id", "delete_enabled": "true", "auto_create": "true"}
    driver = sink(url, **more)
    driver.produce("t", None, key=1)
    driver.produce("t", {"v": 1}, key=2)
    driver.put()
    assert execute(url, "SELECT id, v FROM t") == [("2", 1)]
    driver.stop()


@pytest.mark.parametrize(
    ("more", "key", "value", "message"),
    [
        ({"pk_mode": "record_key", "pk_fields": "id"}, None, {"v": 1}, "records with a non-null key"),
        ({"pk_mode": "record_key"}, "k", {"v": 1}, "Need exactly one PK column defined"),
        ({"pk_mode": "record_value", "pk_fields": "id,no"}, None, {"id": 1}, "does not contain field: no"),
        ({"pk_mode": "none"}, None, None, "with a null value and null value schema"),
        ({"pk_mode": "none"}, None, [1], "with a list value and null value schema"),
    ],
)
def test_records_without_what_the_key_needs_are_named(tmp_path, more, key, value, message):
    driver = sink(f"sqlite:///{tmp_path / 'shop.db'}", auto_create="true", **more)
    driver.produce("t", value, key=key)
    with pytest.raises(DataError, match=message):
        driver.put()
    driver.stop()


def test_keys_are_found_whatever_their_columns_type(postgres_url):
    execute(
        postgres_url,
        "CREATE TABLE t (u uuid, c char(5), d date, v jsonb, PRIMARY KEY (u, c, d))",
    )
    key = struct({"u": STRING, "c": STRING, "d": DATE})
    value = struct({"v": OPTIONAL_STRING})
    more = {"insert_mode": "upsert", "pk_mode": "record_key", "delete_enabled": "true"}
    driver = sink(postgres_url, **more, **JSON)
    row_key = Struct(key, {"u": "00000000-0000-0000-0000-000000000001", "c": "ab   ", "d": Moment(86_400_000)})
    put(driver, Struct(value, {"v": '{"a": 1}'}), Struct(value, {"v": '{"a": [2]}'}), key=row_key)
    assert execute(postgres_url, "SELECT c, d::text, v->'a'->>0 FROM t") == [("ab   ", "1970-01-02", "2")]
    put(driver, None, key=row_key)
    assert execute(postgres_url, "SELECT count(*) FROM t") == [(0,)]
    driver.stop()
    updates = sink(postgres_url, name="updates", insert_mode="update", pk_mode="record_key", topics="u",
        table_name_format="t", **JSON)  # fmt: skip
    execute(postgres_url, "INSERT INTO t VALUES ('00000000-0000-0000-0000-000000000001', 'ab', '1970-01-02', NULL)")
    put(updates, Struct(value, {"v": "[3]"}), key=row_key, topic="u")
    assert execute(postgres_url, "SELECT v->>0 FROM t") == [("3",)]
    updates.stop()


def test_columns_of_postgresql_get_values_that_their_types_read(postgres_url):
    execute(
        postgres_url,
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE EXTENSION hstore",
        "CREATE TABLE t (j jsonb, j2 json, ta text[], na numeric[], n2 int[], m mood, iv interval, ip inet, r int4range, "
        "h hstore, b bit(4), raw bytea, p numeric(38,2), f double precision, at timestamptz, far timestamp, u uuid)",
    )
    row = struct(
        {
            "j": STRING,
            "j2": array(struct({"a": INT32})),
            "ta": array(OPTIONAL_STRING),
            "na": array(decimal_schema(1)),
            "n2": array(array(INT32)),
            "m": STRING,
            "iv": STRING,
            "ip": STRING,
            "r": STRING,
            "h": Schema(Type.MAP, keys=STRING, values=OPTIONAL_STRING),
            "b": INT32,
            "raw": Schema(Type.BYTES),
            "p": decimal_schema(2),
            "f": Schema(Type.FLOAT64),
            "at": TIMESTAMP,
            "far": TIMESTAMP,
            "u": STRING,
        }
    )
    item = struct({"a": INT32})
    values = {
        "j": '{"a": [1, 2]}',
        "j2": [Struct(item, {"a": 1})],
        "ta": ["a", None, 'b,"c', "null", ""],
        "na": [Decimal("1.5")],
        "n2": [[1, 2], [3, 4]],
        "m": "ok",
        "iv": "1 day",
        "ip": "10.0.0.1",
        "r": "[1,5)",
        "h": {"a": "1", 'b"': None},
        "b": 5,
        "raw": b"\x00\xff",
        "p": Decimal("123456789012345678901234567890123456.78"),
        "f": 0.1,
        "at": Moment(1704067200500),
        "far": Moment(568971820800000),
        "u": "00000000-0000-0000-0000-000000000001",
    }
    driver = sink(postgres_url, db_timezone="Asia/Tokyo", **JSON)
    put(driver, Struct(row, values))
    found = execute(postgres_url, "SELECT row_to_json(t)::text, at AT TIME ZONE 'UTC' FROM t")[0]
    texts = execute(
        postgres_url, "SELECT j->'a'->>1, ta[4], ta[5], n2[2][1]::text, h->'a', b::text, p::text, far::text FROM t"
    )
    assert texts == [
        ("2", "null", "", "3", "1", "0101", "123456789012345678901234567890123456.78", "20000-01-01 09:00:00")
    ]
    assert '"ta":["a",null,"b,\\"c","null",""]' in found[0]
    assert found[1].isoformat() == "2024-01-01T00:00:00.500000"
    driver.stop()


def test_a_text_with_a_null_byte_is_the_records_fault(postgres_url):
    execute(postgres_url, "CREATE TABLE t (s text)")
    driver = sink(postgres_url)
    driver.produce("t", {"s": "a\0b"})
    with pytest.raises(DataError, match="NUL"):
        driver.put()
    driver.stop()


def test_times_are_those_of_the_databases_zone(url):
    row = struct({"at": TIMESTAMP, "day": DATE, "clock": TIME})
    values = {"at": Moment(1704067200123), "day": Moment(1704067200000), "clock": Moment(3_723_004)}
    for zone, dates, expected in (
        ("UTC", "DB_TIMEZONE", ("2024-01-01 00:00:00.123000", "2024-01-01", "01:02:03.004000")),
        ("America/New_York", "DB_TIMEZONE", ("2023-12-31 19:00:00.123000", "2023-12-31", "20:02:03.004000")),
        ("America/New_York", "UTC", ("2023-12-31 19:00:00.123000", "2024-01-01", "20:02:03.004000")),
    ):
        execute(url, "DROP TABLE IF EXISTS t")
        more = {"db_timezone": zone, "date_timezone": dates, "auto_create": "true"}
        driver = sink(url, name=f"{zone}{dates}", **more, **JSON)
        put(driver, Struct(row, values))
        found = execute(url, "SELECT CAST(at AS TEXT), CAST(day AS TEXT), CAST(clock AS TEXT) FROM t")[0]
        # SQLite has milliseconds since 1970, which know no zone
        wanted = ("1704067200123", "1704067200000", "3723004") if "sqlite" in url else expected
        assert tuple(each.ljust(len(want), "0") for each, want in zip(found, wanted, strict=True)) == wanted
        driver.stop()


def test_numbers_and_texts_of_the_listed_fields_are_timestamps(url):
    row = struct({"a": INT64, "b": STRING, "c": INT64})
    for unit, factor in (("microseconds", 1), ("nanoseconds", 1000)):
        execute(url, "DROP TABLE IF EXISTS t")
        more = {"timestamp_fields_list": "a,b", "timestamp_precision_mode": unit, "auto_create": "true"}
        driver = sink(url, name=unit, **more, **JSON)
        micros = 1704067200123456 * factor
        put(driver, Struct(row, {"a": micros, "b": str(micros), "c": 7}))
        text = "1704067200123" if "sqlite" in url else "2024-01-01 00:00:00.123456"
        assert execute(url, "SELECT CAST(a AS TEXT), CAST(b AS TEXT), c FROM t") == [(text, text, 7)]
        driver.stop()


def test_nulls_become_defaults_as_the_setting_says_and_texts_have_a_column(url):
    row = struct({"a": INT64, "b": with_default(OPTIONAL_INT64, 7)})
    for replaces, expected in (("true", 7), ("false", None)):
        execute(url, "DROP TABLE IF EXISTS t")
        more = {"value.converter.replace.null.with.default": "false", "replace.null.with.default": replaces}
        driver = ConnectTestDriver(
            SqlSinkConnector,
            {"connection.url": url, "topics": "t", "name": replaces, "auto.create": "true", **JSON, **more},
        )
        put(driver, Struct(row, {"a": 1, "b": None}))
        assert execute(url, "SELECT b FROM t") == [(expected,)]
        driver.stop()
    texts = sink(url, name="texts", topics="x", auto_create="true", string_output_value_column_name="line",
        **{"value.converter": "org.apache.kafka.connect.storage.StringConverter"})  # fmt: skip
    put(texts, "GET /", topic="x")
    assert execute(url, "SELECT line FROM x") == [("GET /",)]
    texts.stop()


def test_names_that_need_quotes_and_letters_of_another_case_are_found(url):
    execute(url, 'CREATE TABLE "Sel.ect" ("Order" INTEGER, "a b" TEXT, "we""ird" TEXT, "50%;x" TEXT)')
    driver = sink(url, table_name_format='"Sel.ect"', insert_mode="insert")
    put(driver, {"order": 1, "a b": "x", 'we"ird': "y", "50%;x": ""})
    assert execute(url, 'SELECT * FROM "Sel.ect"') == [(1, "x", "y", "")]
    driver.stop()


def test_views_are_written_to_only_if_the_settings_say_so(postgres_url):
    execute(postgres_url, "CREATE TABLE base (a int, b int)", "CREATE VIEW t AS SELECT a FROM base")
    driver = sink(postgres_url)
    driver.produce("t", {"a": 1})
    with pytest.raises(ConnectError, match="t is a VIEW, and table"):
        driver.put()
    driver.stop()
    views = sink(postgres_url, name="views", table_types="TABLE,VIEW")
    put(views, {"a": 1})
    assert execute(postgres_url, "SELECT a FROM base") == [(1,)]
    views.produce("t", {"a": 1, "b": 2})
    with pytest.raises(ConnectError, match=r"View t is missing fields \(b\) and ALTER VIEW is unsupported"):
        views.put()
    views.stop()


def test_sqlite_keeps_all_digits_of_a_decimal_or_refuses_the_record(tmp_path):
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    long = Decimal("123456789012345678901234567890123456.78")
    wide = Schema(
        Type.BYTES, name=decimal_schema(2).name, version=1, parameters={"scale": "2", "connect.decimal.precision": "38"}
    )
    row = struct({"a": decimal_schema(9), "b": wide})
    driver = sink(url, auto_create="true", **JSON)
    put(driver, Struct(row, {"a": Decimal("0.123456789"), "b": long}))
    config = {"connection.url": url, "topic.prefix": "x-", "table.whitelist": "t", "mode": "bulk", **JSON}
    back = ConnectTestDriver(SqlSourceConnector, config)
    value = back.poll()[0].value
    assert (value["a"], value["b"]) == (Decimal("0.123456789"), long)
    back.stop()
    driver.produce("t", Struct(struct({"a": decimal_schema(2)}), {"a": long}))
    with pytest.raises(DataError, match="the column a of t does not take this value: SQLite's numbers keep 15 digits"):
        driver.put()
    driver.stop()


def test_a_batch_fails_for_good_after_the_retries_that_are_set(tmp_path):
    driver = sink(f"sqlite:////{tmp_path}/folder/away.db", exactly_once="false", auto_create="true", max_retries="2")
    driver.produce("t", {"a": 1})
    assert [driver.put(), driver.put()] == [[], []]
    with pytest.raises(ConnectError, match="after 2 retries"):
        driver.put()
    driver.stop()


def test_settings_that_contradict_each_other_are_refused(tmp_path):
    for more, message in (
        ({"insert_mode": "upsert"}, "finds rows by a key"),
        ({"delete_enabled": "true", "pk_mode": "kafka"}, "pk.mode has to be record_key"),
        ({"db_timezone": "Mars/Base"}, "Invalid time zone identifier"),
        ({"timestamp_precision_mode": "seconds"}, "String must be one of: microseconds, nanoseconds"),
    ):
        connector = SqlSinkConnector()
        given = {"connection.url": f"sqlite:///{tmp_path}/a.db"}
        with pytest.raises(SettingError, match=message):
            connector.parse(given | {name.replace("_", "."): value for name, value in more.items()})


@pytest.mark.parametrize(
    ("table", "value", "more", "message"),
    [
        ("CREATE TABLE other (a INTEGER)", {"a": 1, "A": 2}, {"auto_create": "true"}, "duplicate column name"),
        (
            "CREATE TABLE t (id INTEGER)",
            {"id": 1, "v": "x"},
            {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id", "auto_evolve": "true"},
            "does not match any PRIMARY KEY or UNIQUE constraint",
        ),
        ("CREATE VIEW t AS SELECT 1 AS a", {"a": 2}, {"table_types": "VIEW"}, "cannot modify t because it is a view"),
    ],
)
def test_a_statement_that_sqlite_cannot_run_is_not_tried_again(tmp_path, table, value, more, message):
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    execute(url, table)
    driver = sink(url, **more)
    driver.produce("t", value)
    with pytest.raises(ConnectError, match=message):
        driver.put()
    driver.stop()


@contextmanager
def faster(url, start):
    """Let another one run the first statement that begins so just before the sink does."""
    left = [start]

    def before(connection, cursor, statement, *_):
        if left and statement.lstrip().startswith(left[0]):
            left.clear()
            execute(url, statement)

    event.listen(Engine, "before_cursor_execute", before)
    try:
        yield left
    finally:
        event.remove(Engine, "before_cursor_execute", before)


@pytest.mark.parametrize("tables", [(), ("CREATE TABLE t (b INTEGER)",)], ids=["table", "column"])
def test_a_table_or_column_that_another_task_makes_at_the_same_time_is_taken(url, tables):
    if tables:
        execute(url, *tables)
    driver = sink(url, auto_create="true", auto_evolve="true")
    with faster(url, "ALTER TABLE" if tables else "CREATE TABLE") as left:
        put(driver, {"a": 1})
    driver.stop()
    assert not left
    assert execute(url, "SELECT a FROM t") == [(1,)]


def test_a_table_of_offsets_that_another_task_makes_at_the_same_time_is_taken(url):
    execute(url, "CREATE TABLE t (a INTEGER)")
    with faster(url, "CREATE TABLE") as left:
        driver = sink(url, exactly_once="true")
        put(driver, {"a": 1}, {"a": 2})
    driver.stop()
    assert not left
    assert execute(url, "SELECT a FROM t") == [(1,), (2,)]


def test_tables_are_made_and_altered_before_the_first_row_of_a_batch(url):
    statements = []

    def note(connection, cursor, statement, *more):
        if statement.split()[0] in ("CREATE", "ALTER", "INSERT"):
            statements.append(statement.split()[0])

    driver = sink(url, auto_create="true", auto_evolve="true", exactly_once="false", batch_size="1")
    event.listen(Engine, "before_cursor_execute", note)
    try:
        put(driver, {"a": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 2, "c": 1})
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    driver.stop()
    assert statements == ["CREATE", "ALTER", "ALTER", "INSERT", "INSERT", "INSERT"]
    assert execute(url, "SELECT a, b, c FROM t ORDER BY a") == [(1, None, None), (2, 1, None), (3, 2, 1)]


def test_a_default_of_a_field_that_holds_timestamps_is_a_timestamp(url):
    row = struct([("k", INT64), ("at", with_default(INT64, 1704067200123456)), ("b", with_default(STRING, "none"))])
    more = {"auto_create": "true", "timestamp_fields_list": "at,b", **JSON}
    driver = sink(url, **more)
    put(driver, Struct(row, {"k": 1, "at": 1704067200123456, "b": "1704067200123456"}))
    driver.stop()
    execute(url, "INSERT INTO t (k) VALUES (2)")
    text = "1704067200123" if "sqlite" in url else "2024-01-01 00:00:00.123456"
    found = execute(url, "SELECT CAST(at AS TEXT), CAST(b AS TEXT) FROM t ORDER BY k")
    assert found == [(text, text), (text, None)]


def test_numbers_that_are_none_are_defaults_where_a_database_has_them():
    schema = with_default(FLOAT64, float("nan"))
    assert column_default("postgresql", "x", schema, ValueRules()) == "'nan'"
    assert column_default("sqlite", "x", schema, ValueRules()) is None


def test_mysql_has_no_defaults_of_texts():
    made = {}
    for is_mariadb in (False, True):
        engine = SimpleNamespace(dialect=MySQLDialect(is_mariadb=is_mariadb))
        task = SqlSinkTask()
        task._engine, task._rules = engine, ValueRules()
        task._reader = DatabaseReader(engine, ColumnRules())
        made[is_mariadb] = [task._column("x", (with_default(schema, value), value)) for schema, value in (
            (STRING, "a"), (BYTES, b"a"), (INT64, 1),
        )]  # fmt: skip
    assert made[False] == ["`x` TEXT NULL", "`x` LONGBLOB NULL", "`x` BIGINT DEFAULT 1"]
    assert made[True] == ["`x` TEXT DEFAULT 'a'", "`x` LONGBLOB DEFAULT x'61'", "`x` BIGINT DEFAULT 1"]


def test_decimals_of_a_scale_below_zero_are_whole_numbers(postgres_url):
    execute(postgres_url, "CREATE TABLE t (n BIGINT)")
    driver = sink(postgres_url, **JSON)
    put(driver, Struct(struct([("n", decimal_schema(-3))]), {"n": Decimal("7E+3")}))
    driver.stop()
    assert execute(postgres_url, "SELECT n FROM t") == [(7000,)]
