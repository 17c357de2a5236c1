"""The SQL source: every row of equal times, columns that come and go, types that a table or a query declares."""

from decimal import Decimal

import pytest

from databases import execute, own_database
from penstock.connect.connectors.sql_source import SqlSourceConnector
from penstock.connect.data import DataError, SettingError, Type
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError
from postgres_server import postgres

__all__ = ["postgres"]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shop.db'}"
        return
    with own_database(request.getfixturevalue("postgres")) as own:
        yield own


def source(url, **more):
    config = {
        "connection.url": url,
        "topic.prefix": "db-",
        "poll.interval.ms": "0",
        "table.whitelist": "t",
        "mode": "bulk",
        "value.converter": "JsonConverter",
    }
    return ConnectTestDriver(SqlSourceConnector, {**config, **{name.replace("_", "."): v for name, v in more.items()}})


def drain(driver):
    while driver.poll():
        pass


def numbers(driver, column="id", topic="db-t"):
    return [record.value[column] for record in driver.read(topic)]


def many(url, count, when="'2024-01-01 00:00:00'"):
    execute(
        url,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, at TIMESTAMP NOT NULL)",
        f"INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
        f"SELECT i, {'CAST' if 'postgres' in url else ''}({when}{' AS TIMESTAMP' if 'postgres' in url else ''}) FROM n",
    )


@pytest.mark.parametrize(
    "mode",
    [
        {"mode": "timestamp", "timestamp_column_name": "at"},
        {"mode": "timestamp+incrementing", "timestamp_column_name": "at", "incrementing_column_name": "id"},
        {"mode": "incrementing", "incrementing_column_name": "id"},
        {"mode": "timestamp", "timestamp_column_name": "at", "query": "SELECT * FROM t", "table_whitelist": ""},
    ],
    ids=["timestamp", "both", "incrementing", "query"],
)
def test_all_rows_of_one_time_come_in_as_many_batches_as_they_need(url, mode):
    many(url, 350)
    driver = source(url, batch_max_rows="100", **mode)
    sizes = [len(driver.poll()) for _ in range(5)]
    assert sizes == [100, 100, 100, 50, 0]
    assert numbers(driver, topic="db-" if "query" in mode else "db-t") == list(range(1, 351))
    driver.stop()


def test_rows_that_come_between_two_batches_wait_for_the_next_query_and_none_is_locked_out(url):
    many(url, 250)
    driver = source(url, mode="timestamp", timestamp_column_name="at", batch_max_rows="100")
    driver.poll()
    execute(url, "INSERT INTO t VALUES (900, '2024-01-02 00:00:00')")  # a writer does not wait for the reader
    drain(driver)
    assert numbers(driver) == [*range(1, 251), 900]
    driver.stop()


@pytest.mark.parametrize("crash", [Step.POLLED, Step.WRITTEN, Step.COMMITTED])
def test_a_restart_between_rows_of_one_time_loses_none(url, crash):
    many(url, 250)
    execute(url, "INSERT INTO t VALUES (0, '2023-01-01 00:00:00'), (900, '2024-06-01 00:00:00')")
    driver = source(url, mode="timestamp", timestamp_column_name="at", batch_max_rows="100")
    tasks = []
    for step in (None, crash, None):
        tasks.append(driver.sources[0].task)
        driver.poll(crash=step)
    drain(driver)
    assert set(numbers(driver)) == {*range(251), 900}
    assert driver.offsets()[0][1]["timestamp"] == 1717200000000
    driver.stop()
    for task in tasks:
        task.stop()


def test_the_offset_of_a_row_is_the_last_time_of_which_all_rows_were_read(url):
    execute(
        url,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, at TIMESTAMP NOT NULL)",
        "INSERT INTO t VALUES (1, '2024-01-01 00:00:00.000001'), (2, '2024-01-01 00:00:00.000001')",
        "INSERT INTO t VALUES (3, '2024-01-01 00:00:00.000002'), (4, '2024-01-01 00:00:00.000002')",
    )
    driver = source(url, mode="timestamp", timestamp_column_name="AT")  # case does not matter where one fits
    offsets = [record.source_offset for record in driver.poll()]
    first, second = ({"timestamp": 1704067200000, "timestamp_nanos": nanos} for nanos in (1000, 2000))
    assert offsets == [{}, first, first, second]
    assert driver.poll() == []
    driver.stop()


def test_columns_whose_nulls_would_never_be_read_are_refused_at_the_start(url):
    execute(
        url,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, at TIMESTAMP, made TIMESTAMP NOT NULL, n INTEGER)",
        "INSERT INTO t VALUES (1, NULL, '2024-01-01 00:00:00', NULL)",
        "INSERT INTO t VALUES (2, '2024-02-01 00:00:00', '2024-01-01 00:00:00', 5)",
    )
    with pytest.raises(
        ConnectError, match="Cannot make incremental queries using timestamp columns at on t because all of these"
    ) as caught:
        source(url, mode="timestamp", timestamp_column_name="at")
    assert "validate.non.null=false" in caught.value.hint
    with pytest.raises(ConnectError, match="using incrementing column n on t because this column is nullable"):
        source(url, mode="incrementing", incrementing_column_name="n")
    driver = source(url, mode="timestamp", timestamp_column_name="at,made")  # the first that is not null
    drain(driver)
    assert numbers(driver) == [1, 2]
    driver.stop()
    loose = source(url, mode="timestamp", timestamp_column_name="at", validate_non_null="false", name="loose")
    drain(loose)
    assert numbers(loose) == [2]
    loose.stop()


@pytest.mark.parametrize(("kind", "value"), [("TEXT", "'2024-01-01 00:00:00'"), ("DATE", "'2024-01-01'")])
def test_a_timestamp_column_of_another_type_is_refused_by_name_and_type(url, kind, value):
    execute(url, f"CREATE TABLE t (id INTEGER PRIMARY KEY, at {kind} NOT NULL)", f"INSERT INTO t VALUES (1, {value})")
    for more in ({}, {"query": "SELECT * FROM t", "table_whitelist": ""}):
        with pytest.raises(ConnectError, match=f"(?i)the timestamp column at of .* has the type {kind}, which is no"):
            source(url, mode="timestamp", timestamp_column_name="at", **more)
    with pytest.raises(ConnectError, match=r"Invalid type for incrementing column: [A-Z0-9]+: at of t"):
        source(url, mode="incrementing", incrementing_column_name="at")


def test_columns_that_are_added_renamed_and_dropped_are_in_the_next_rows(url):
    execute(url, "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)", "INSERT INTO t VALUES (1, 'x')")
    driver = source(url, mode="incrementing", incrementing_column_name="id")
    drain(driver)
    execute(url, "ALTER TABLE t ADD COLUMN b INTEGER", "INSERT INTO t VALUES (2, 'y', 7)")
    drain(driver)
    execute(url, "ALTER TABLE t RENAME COLUMN a TO c", "INSERT INTO t VALUES (3, 'z', 8)")
    drain(driver)
    execute(url, "ALTER TABLE t DROP COLUMN b", "INSERT INTO t VALUES (4, 'w')")
    drain(driver)
    rows = [record.value.to_dict() for record in driver.read("db-t")]
    assert rows == [{"id": 1, "a": "x"}, {"id": 2, "a": "y", "b": 7}, {"id": 3, "c": "z", "b": 8}, {"id": 4, "c": "w"}]
    execute(url, "ALTER TABLE t RENAME COLUMN id TO key")
    with pytest.raises(ConnectError, match="Incrementing column: id does not exist in table 't'"):
        driver.poll()
    driver.stop()


def test_a_query_over_an_empty_table_has_the_types_of_its_columns(url):
    execute(
        url, "CREATE TABLE t (id INTEGER PRIMARY KEY, price NUMERIC(8,2), at TIMESTAMP, big BIGINT, name VARCHAR(9))"
    )
    query = "SELECT id, price, at, big, name FROM t"
    driver = source(url, mode="incrementing", incrementing_column_name="id", query=query, table_whitelist="")
    assert driver.poll() == []
    execute(url, "INSERT INTO t VALUES (1, 1.5, '2024-01-01 00:00:00', 3000000000, 'a')")
    row = driver.poll()[0]
    assert [str(part.schema) for part in row.value_schema.fields][1:3] == [
        "Schema{org.apache.kafka.connect.data.Decimal:BYTES}",
        "Schema{org.apache.kafka.connect.data.Timestamp:INT64}",
    ]
    values = row.value.to_dict()
    assert (values["price"], values["big"], values["name"]) == (Decimal("1.50"), 3000000000, "a")
    driver.stop()


@pytest.mark.parametrize("query", ["SELECT 'a:b' AS s, id FROM t -- all", "SELECT s, id FROM t WHERE s LIKE '%10:3%';"])
def test_a_query_is_taken_as_it_is_written(url, query):
    execute(url, "CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT)", "INSERT INTO t VALUES (1, '10:30')")
    driver = source(url, query=query, table_whitelist="", mode="incrementing", incrementing_column_name="id")
    assert [record.value["id"] for record in driver.poll()] == [1]
    driver.stop()


def test_a_query_that_has_a_column_twice_or_a_mistake_is_refused_at_the_start(url):
    execute(url, "CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT)")
    with pytest.raises(ConnectError, match="has the column id twice") as caught:
        source(url, query="SELECT a.id, b.id FROM t a JOIN t b ON a.id = b.id", table_whitelist="")
    assert "AS" in caught.value.hint
    with pytest.raises(ConnectError, match="the database fails at query: "):
        source(url, query="SELECT nothing FROM t", table_whitelist="")


def test_decimals_are_exact_whatever_their_digits(url):
    digits = "123456789012345678901234567890123456.78"
    kind = "NUMERIC(38,2)" if "postgres" in url else "DECIMAL_TEXT(38,2)"
    execute(
        url,
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, a NUMERIC, b {kind}, c NUMERIC(4,1))",
        f"INSERT INTO t VALUES (1, 0.123456789, '{digits}', 0.25)",
        "INSERT INTO t VALUES (2, -1000000000000, NULL, NULL)",
    )
    driver = source(url)
    first, second = (record.value for record in driver.poll())
    assert (first["a"], first["b"], first["c"]) == (Decimal("0.123456789"), Decimal(digits), Decimal("0.3"))
    assert second["a"] == -1000000000000
    assert driver.read("db-t")[0].value["b"] == Decimal(digits)
    driver.stop()


@pytest.mark.parametrize(
    ("mapping", "types"),
    [
        ("none", [Type.BYTES, Type.BYTES, Type.BYTES, Type.BYTES]),
        ("precision_only", [Type.INT32, Type.BYTES, Type.BYTES, Type.BYTES]),
        ("best_fit", [Type.INT32, Type.FLOAT64, Type.BYTES, Type.BYTES]),
        ("best_fit_eager_double", [Type.INT32, Type.FLOAT64, Type.FLOAT64, Type.FLOAT64]),
    ],
)
def test_decimals_are_mapped_as_the_setting_says(url, mapping, types):
    execute(url, "CREATE TABLE t (a NUMERIC(8), b NUMERIC(8,2), c NUMERIC(30,2), d NUMERIC)")
    execute(url, "INSERT INTO t VALUES (5, 1.5, 2.5, 3.5)")
    driver = source(url, numeric_mapping=mapping)
    row = driver.poll()[0]
    assert [part.schema.type for part in row.value_schema.fields] == types
    assert [float(value) for value in row.value.to_dict().values()] == [5, 1.5, 2.5, 3.5]
    driver.stop()


@pytest.mark.parametrize(
    ("granularity", "expected"),
    [
        ("micros_long", 1704106800123456),
        ("micros_string", "1704106800123456"),
        ("micros_iso_datetime_string", "2024-01-01T20:00:00.123456"),
        ("nanos_long", 1704106800123456000),
        ("nanos_string", "1704106800123456000"),
        ("nanos_iso_datetime_string", "2024-01-01T20:00:00.123456000"),
    ],
)
def test_timestamps_have_the_granularity_and_the_zone_of_the_settings(url, granularity, expected):
    execute(url, "CREATE TABLE t (at TIMESTAMP NOT NULL)", "INSERT INTO t VALUES ('2024-01-01 20:00:00.123456')")
    zone = {"db_timezone": "Asia/Tokyo", "mode": "timestamp", "timestamp_column_name": "at"}
    driver = source(url, timestamp_granularity=granularity, **zone)
    assert driver.poll()[0].value["at"] == expected
    execute(url, "INSERT INTO t VALUES ('2024-01-01 20:00:00.123455'), ('2024-01-01 20:00:00.123457')")
    assert len(driver.poll()) == 1  # behind the last microsecond
    plain = source(url, name="plain", **zone)
    assert plain.poll()[0].value["at"].ms == 1704106800123
    driver.stop()
    plain.stop()


def test_rows_that_are_too_young_wait_and_the_first_start_may_begin_later(url):
    execute(url, "CREATE TABLE t (id INTEGER PRIMARY KEY, at TIMESTAMP NOT NULL)")
    execute(url, "INSERT INTO t VALUES (1, '2024-01-01 00:00:00'), (2, CURRENT_TIMESTAMP), (3, '2024-01-03 00:00:00')")
    stamped = {"mode": "timestamp", "timestamp_column_name": "at"}
    for name, more, expected in (
        ("delay", {"timestamp_delay_interval_ms": "3600000"}, [1, 3]),
        ("later", {"timestamp_initial": "1704153600000", "timestamp_delay_interval_ms": "3600000"}, [3]),
        ("now", {"timestamp_initial": "-1"}, []),
    ):
        driver = source(url, name=name, **stamped, **more)
        assert [record.value["id"] for record in driver.poll()] == expected
        driver.stop()


def test_tables_are_found_by_lists_of_expressions_and_columns_by_their_mappings(url):
    schema = "public\\." if "postgres" in url else ""
    for number, name in enumerate(("orders_a", "orders_b", "orders_temp", "users")):
        execute(
            url,
            f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, n{number} INTEGER NOT NULL)",
            f"INSERT INTO {name} VALUES (1, 5)",
        )
    execute(url, "CREATE VIEW orders_view AS SELECT * FROM users")
    more = {"table_whitelist": "", "mode": "incrementing"}
    driver = source(
        url,
        table_include_list=f"{schema}orders.*",
        table_exclude_list=".*temp",
        incrementing_column_mapping=f"{schema}orders_a:n0,{schema}orders_b:id",
        **more,
    )
    drain(driver)
    offsets = {place["table"].rpartition(".")[2]: offset for place, offset in driver.offsets()}
    assert offsets == {"orders_a": {"incrementing": 5}, "orders_b": {"incrementing": 1}}
    driver.stop()
    black = source(url, name="black", table_whitelist="", table_blacklist="users,orders_temp", table_types="TABLE,VIEW")
    assert {record.topic for record in black.poll() + black.poll() + black.poll()} == {
        "db-orders_a",
        "db-orders_b",
        "db-orders_view",
    }
    black.stop()
    with pytest.raises(ConnectError, match="orders_view is a VIEW, and table"):
        source(url, table_whitelist="orders_view")


def test_names_that_need_quotes_and_many_columns_are_read(url):
    columns = ", ".join(f"c{number} INTEGER" for number in range(1200))
    execute(
        url,
        'CREATE TABLE "Sel.ect" (id INTEGER PRIMARY KEY, "a b" TEXT, "we""ird" TEXT, "50%" TEXT, "order" TEXT)',
        """INSERT INTO "Sel.ect" VALUES (1, 'x', 'y', 'z', '')""",
        f"CREATE TABLE wide ({columns})",
        "INSERT INTO wide (c0, c1199) VALUES (1, 2)",
    )
    driver = source(url, table_whitelist='"Sel.ect",wide')
    drained = driver.poll() + driver.poll()
    rows = {record.topic: record.value.to_dict() for record in drained}
    assert list(rows["db-Sel.ect"].values()) == [1, "x", "y", "z", ""]
    assert (rows["db-wide"]["c0"], rows["db-wide"]["c5"], rows["db-wide"]["c1199"]) == (1, None, 2)
    driver.stop()


def test_settings_that_contradict_each_other_are_refused(tmp_path):
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    for more, message in (
        ({"query": "SELECT 1", "query_masked": "SELECT 2", "table_whitelist": ""}, "cannot be set at the same time"),
        ({"table_include_list": "a.*"}, "table.whitelist and table.include.list cannot be used together"),
        ({"table_exclude_list": "a.*"}, "it only applies to tables that table.include.list has"),
        ({"numeric_mapping": "best"}, "String must be one of: null, none, precision_only"),
        ({"db_timezone": "Mars/Base"}, "Invalid time zone identifier"),
        ({"table_types": "SYNONYM"}, "Only TABLE, VIEW"),
        ({"incrementing_column_mapping": "a"}, "Expected 'regex:columnName'"),
        ({"timestamp_columns_mapping": "a:b"}, "Expected 'regex:"),
        ({"transaction_isolation_mode": "SQL_SERVER_SNAPSHOT"}, "String must be one of"),
    ):
        with pytest.raises(SettingError, match=message):
            source(url, **more)


def test_a_masked_query_is_in_no_message(url):
    secret = "SELECT id, 'hunter2' AS word, nothing FROM t"
    execute(url, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
    with pytest.raises(ConnectError) as caught:
        source(url, query_masked=secret, table_whitelist="")
    assert "hunter2" not in str(caught.value)


# Only SQLite


def sqlite(tmp_path):
    return f"sqlite:///{tmp_path / 'shop.db'}"


def test_whole_numbers_of_sqlite_have_64_bits_and_values_of_other_types_are_named(tmp_path):
    url = sqlite(tmp_path)
    execute(url, "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)", "INSERT INTO t VALUES (1, 3000000000), (2, '7')")
    driver = source(url)
    assert [record.value["n"] for record in driver.poll()] == [3000000000, 7]
    execute(url, "INSERT INTO t VALUES (3, 'seven')")
    with pytest.raises(DataError, match="a value in the column n of t does not fit its type INTEGER"):
        driver.poll()
    driver.stop()


def test_times_of_sqlite_are_texts_of_any_form_or_numbers(tmp_path):
    url = sqlite(tmp_path)
    execute(
        url,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, at DATETIME NOT NULL, day DATE, clock TIME)",
        "INSERT INTO t VALUES (1, '2024-01-01 00:00:00', '2024-01-01', '01:02:03')",
        "INSERT INTO t VALUES (2, 1704067200500, 1704067200000, 3723000)",
        "INSERT INTO t VALUES (3, '2024-01-01T00:00:01.25Z', '2024-01-01 00:00:00', '01:02:03.5')",
        "INSERT INTO t VALUES (4, '2024-01-01T02:00:02+02:00', NULL, NULL)",
    )
    stamped = {"timestamp_column_name": "at", "incrementing_column_name": "id", "batch_max_rows": "1"}
    driver = source(url, mode="timestamp+incrementing", **stamped)
    tasks = []
    for _ in range(3):
        tasks.append(driver.sources[0].task)
        driver.poll()
        driver.restart()
    drain(driver)
    assert numbers(driver) == [1, 2, 3, 4]
    assert [record.value["at"].ms - 1704067200000 for record in driver.read("db-t")] == [0, 500, 1250, 2000]
    assert [record.value["clock"] for record in driver.read("db-t")[:3]] == ["01:02:03", "3723000", "01:02:03.5"]
    driver.stop()


def test_expressions_have_the_type_of_their_values(tmp_path):
    url = sqlite(tmp_path)
    execute(url, "CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT)", "INSERT INTO t VALUES (1, NULL), (2, 'ab')")
    query = "SELECT id, length(s) AS n, s || '!' AS shout, id * 0.5 AS half FROM t"
    driver = source(url, query=query, table_whitelist="")
    rows = driver.poll()
    types = [Type.INT64, Type.INT64, Type.STRING, Type.FLOAT64]
    assert [part.schema.type for part in rows[0].value_schema.fields] == types
    assert [record.value.to_dict() for record in rows] == [
        {"id": 1, "n": None, "shout": None, "half": 0.5},
        {"id": 2, "n": 2, "shout": "ab!", "half": 1.0},
    ]
    driver.stop()


def test_a_query_fails_for_good_after_the_retries_that_are_set(tmp_path):
    url = sqlite(tmp_path)
    execute(url, "CREATE TABLE other (id INTEGER PRIMARY KEY)")
    driver = source(url, query_retry_attempts="2")
    assert driver.poll() == []
    driver.sources[0].task._watched[0].due = 0
    with pytest.raises(ConnectError, match="Failed to query table after retries: there is no table t"):
        driver.poll()
    driver.stop()


# Only PostgreSQL


def test_types_of_postgresql_are_those_of_the_model_or_its_texts(postgres):
    postgres.execute("CREATE TYPE mood_s AS ENUM ('sad','ok')", "CREATE DOMAIN price_s AS numeric(8,3)")
    cells = {
        "js": ("jsonb", "'{\"a\": [1]}'", '{"a": [1]}'),
        "ta": ("text[]", "'{a,NULL,\"b,c\"}'", ["a", None, "b,c"]),
        "na": ("numeric(5,2)[]", "'{1.5,NULL}'", [Decimal("1.50"), None]),
        "iv": ("interval", "'1 year 2 days'", "1 year 2 days"),
        "ip": ("inet", "'10.0.0.1'", "10.0.0.1"),
        "ch": ("char(5)", "'ab'", "ab   "),
        "u": ("uuid", "'00000000-0000-0000-0000-000000000001'", "00000000-0000-0000-0000-000000000001"),
        "e": ("mood_s", "'ok'", "ok"),
        "d": ("price_s", "1.5", Decimal("1.500")),
        "r": ("int4range", "'[1,5)'", "[1,5)"),
        "m": ("money", "12.34", 12.34),
        "b1": ("bit(1)", "B'1'", True),
        "b12": ("bit(12)", "B'100000000001'", b"\x08\x01"),
        "raw": ("bytea", "'\\x00ff'", b"\x00\xff"),
    }
    moments = {
        "far": ("timestamp", "'20000-01-01'", 568971820800000),
        "bc": ("date", "'0044-03-15 BC'", -735160 * 86_400_000),
        "never": ("timestamp", "'infinity'", 9223372036825200000),
        "zoned": ("timestamptz", "'2024-01-01 10:00:00.5+02'", 1704096000500),
        "end_of_day": ("time", "'24:00'", 86_400_000),
    }
    kinds = ", ".join(f"{name} {kind}" for name, (kind, _, _) in (cells | moments).items())
    values = ", ".join(value for _, value, _ in (cells | moments).values())
    postgres.execute(f"CREATE TABLE t_kinds ({kinds})", f"INSERT INTO t_kinds VALUES ({values})")
    for more in ({"table_whitelist": "t_kinds"}, {"table_whitelist": "", "query": "SELECT * FROM t_kinds"}):
        driver = source(postgres.url, **more)
        row = driver.poll()[0].value.to_dict()
        assert {name: row[name] for name in cells} == {name: value for name, (_, _, value) in cells.items()}
        assert {name: row[name].ms for name in moments} == {name: value for name, (_, _, value) in moments.items()}
        driver.stop()
    postgres.execute("DROP TABLE t_kinds", "DROP TYPE mood_s", "DROP DOMAIN price_s")


def test_a_jdbc_url_with_parameters_opens_the_database(postgres):
    postgres.execute(
        "CREATE SCHEMA jdbc_s", "CREATE TABLE jdbc_s.t (id int PRIMARY KEY)", "INSERT INTO jdbc_s.t VALUES (1)"
    )
    url = f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres?user=postgres&currentSchema=jdbc_s&stringtype=unspecified"
    driver = source(url)
    assert [record.value["id"] for record in driver.poll()] == [1]
    driver.stop()
    postgres.execute("DROP SCHEMA jdbc_s CASCADE")


def test_partitioned_tables_are_tables_and_their_partitions_are_not(postgres):
    postgres.execute(
        "CREATE SCHEMA parts",
        "CREATE TABLE parts.p (id int, r int, PRIMARY KEY (id, r)) PARTITION BY RANGE (r)",
        "CREATE TABLE parts.p1 PARTITION OF parts.p FOR VALUES FROM (0) TO (10)",
        "INSERT INTO parts.p VALUES (1, 1)",
    )
    driver = source(postgres.url, table_whitelist="", table_blacklist="none", schema_pattern="par%")
    assert [record.topic for record in driver.poll()] == ["db-p"]
    driver.stop()
    postgres.execute("DROP SCHEMA parts CASCADE")
