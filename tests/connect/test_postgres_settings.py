"""Change data capture: columns that are withheld, partitions, keys, types and each setting, over a real PostgreSQL."""

import hashlib
import itertools
import logging

import pytest

from penstock.connect.connectors.confluent_settings import SQL_SINK_MODEL, SQL_SOURCE_MODEL
from penstock.connect.connectors.postgres import PostgresChangesConnector
from penstock.connect.connectors.postgres.captured_tables import Capture
from penstock.connect.connectors.postgres.column_masks import Patterns, column_rules
from penstock.connect.connectors.postgres.columns import Handling, column_form
from penstock.connect.connectors.postgres.postgres_settings import CONFIG, POSTGRES_MODEL, parse_settings
from penstock.connect.connectors.postgres.types import PgType
from penstock.connect.connectors.sql_settings import SINK, SOURCE
from penstock.connect.data import DataError, SettingError
from penstock.connect.testing import ConnectTestDriver
from penstock.errors import ConnectError
from postgres_server import postgres

__all__ = ["postgres"]
NUMBERS = itertools.count()
DEBEZIUM = [
    "topic.prefix",
    "database.hostname",
    "database.port",
    "database.user",
    "database.password",
    "database.dbname",
    "database.query.timeout.ms",
    "plugin.name",
    "slot.name",
    "publication.name",
    "publication.autocreate.mode",
    "replica.identity.autoset.values",
    "slot.drop.on.stop",
    "slot.failover",
    "slot.stream.params",
    "database.initial.statements",
    "database.sslmode",
    "database.sslcert",
    "database.sslpassword",
    "database.sslrootcert",
    "database.sslkey",
    "slot.max.retries",
    "slot.retry.delay.ms",
    "database.sslfactory",
    "status.update.interval.ms",
    "lsn.flush.timeout.ms",
    "lsn.flush.timeout.action",
    "database.tcpKeepAlive",
    "xmin.fetch.interval.ms",
    "skipped.operations",
    "lsn.flush.mode",
    "flush.lsn.source",
    "event.processing.failure.handling.mode",
    "max.batch.size",
    "max.queue.size",
    "poll.interval.ms",
    "max.queue.size.in.bytes",
    "provide.transaction.metadata",
    "snapshot.delay.ms",
    "streaming.delay.ms",
    "snapshot.include.collection.list",
    "snapshot.fetch.size",
    "snapshot.max.threads",
    "snapshot.max.threads.multiplier",
    "legacy.snapshot.max.threads",
    "snapshot.mode.custom.name",
    "snapshot.mode.configuration.based.snapshot.data",
    "retriable.restart.connector.wait.ms",
    "query.fetch.size",
    "errors.max.retries",
    "incremental.snapshot.watermarking.strategy",
    "connection.validation.timeout.ms",
    "executor.shutdown.timeout.ms",
    "openlineage.integration.enabled",
    "extended.headers.enabled",
    "guardrail.collections.max",
    "custom.sanitize.pattern",
    "statistics.metrics.enabled",
    "decimal.handling.mode",
    "time.precision.mode",
    "snapshot.lock.timeout.ms",
    "memory.management.schemas.class",
    "snapshot.mode",
    "snapshot.isolation.mode",
    "snapshot.query.mode",
    "snapshot.query.mode.custom.name",
    "snapshot.locking.mode.custom.name",
    "snapshot.locking.mode",
    "hstore.handling.mode",
    "binary.handling.mode",
    "schema.name.adjustment.mode",
    "field.name.adjustment.mode",
    "interval.handling.mode",
    "schema.refresh.mode",
    "incremental.snapshot.chunk.size",
    "unavailable.value.placeholder",
    "message.prefix.include.list",
    "message.prefix.exclude.list",
    "publish.via.partition.root",
    "converters",
    "post.processors",
    "tombstones.on.delete",
    "heartbeat.interval.ms",
    "heartbeat.topics.prefix",
    "signal.data.collection",
    "signal.poll.interval.ms",
    "signal.enabled.channels",
    "topic.naming.strategy",
    "notification.enabled.channels",
    "notification.sink.topic.name",
    "transaction.metadata.factory",
    "custom.metric.tags",
    "column.include.list",
    "column.exclude.list",
    "table.include.list",
    "table.exclude.list",
    "table.ignore.builtin",
    "schema.include.list",
    "schema.exclude.list",
    "message.key.columns",
    "snapshot.select.statement.overrides",
    "column.mask.hash.SHA-256.with.salt.x",
    "column.mask.hash.v2.SHA-256.with.salt.x",
    "column.mask.with.3.chars",
    "column.truncate.to.3.chars",
    "include.schema.comments",
    "column.propagate.source.type",
    "datatype.propagate.source.type",
    "snapshot.tables.order.by.row.count",
    "heartbeat.action.query",
    "include.unknown.datatypes",
    "sourceinfo.struct.maker",
    "topic.delimiter",
    "topic.cache.size",
    "topic.heartbeat.prefix",
    "topic.transaction",
    "read.only",
    "skip.messages.without.change",
    "offset.mismatch.strategy",
]
JDBC_SOURCE = [
    "connection.url",
    "connection.user",
    "connection.password",
    "jdbc.credentials.provider.class",
    "connection.attempts",
    "connection.backoff.ms",
    "table.whitelist",
    "table.blacklist",
    "table.include.list",
    "table.exclude.list",
    "catalog.pattern",
    "schema.pattern",
    "numeric.precision.mapping",
    "numeric.mapping",
    "dialect.name",
    "date.calendar.system",
    "mode",
    "incrementing.column.name",
    "timestamp.column.name",
    "timestamp.columns.mapping",
    "incrementing.column.mapping",
    "timestamp.initial",
    "validate.non.null",
    "query",
    "query.masked",
    "quote.sql.identifiers",
    "query.suffix",
    "transaction.isolation.mode",
    "query.retry.attempts",
    "table.types",
    "poll.interval.ms",
    "batch.max.rows",
    "max.buffer.size",
    "poll.linger.ms",
    "table.monitoring.startup.polling.limit.ms",
    "table.poll.interval.ms",
    "topic.prefix",
    "timestamp.delay.interval.ms",
    "db.timezone",
    "timestamp.granularity",
]
JDBC_SINK = [
    "connection.url",
    "connection.user",
    "connection.password",
    "jdbc.credentials.provider.class",
    "dialect.name",
    "connection.attempts",
    "connection.backoff.ms",
    "insert.mode",
    "batch.size",
    "delete.enabled",
    "table.types",
    "replace.null.with.default",
    "table.name.format",
    "pk.mode",
    "pk.fields",
    "fields.whitelist",
    "string.output.value.column.name",
    "db.timezone",
    "date.timezone",
    "date.calendar.system",
    "timestamp.precision.mode",
    "timestamp.fields.list",
    "auto.create",
    "auto.evolve",
    "quote.sql.identifiers",
    "max.retries",
    "retry.backoff.ms",
    "trim.sensitive.log",
    "mssql.use.merge.holdlock",
]


@pytest.mark.parametrize(
    ("names", "definition", "model"),
    [(DEBEZIUM, CONFIG, POSTGRES_MODEL), (JDBC_SOURCE, SOURCE, SQL_SOURCE_MODEL), (JDBC_SINK, SINK, SQL_SINK_MODEL)],
)
def test_each_setting_of_the_model_is_obeyed_refused_or_named(names, definition, model):
    assert [name for name in names if name not in definition.settings and not model.has(name)] == []
    assert [name for name in definition.settings if model.has(name)] == []


@pytest.fixture
def started(postgres):
    """Starts sources in databases of their own."""
    drivers, databases = [], []

    def start(*statements, **more):
        name = f"cdc_{next(NUMBERS)}"
        postgres.execute(f"CREATE DATABASE {name}")
        databases.append(name)
        run = runner(postgres, name)
        run(*statements)
        config = {
            "topic.prefix": "srv",
            "database.hostname": "127.0.0.1",
            "database.port": str(postgres.port),
            "database.user": "postgres",
            "database.dbname": name,
            "slot.name": name,
            "poll.interval.ms": "1",
            "value.converter": "JsonConverter",
            "key.converter": "JsonConverter",
        }
        driver = ConnectTestDriver(PostgresChangesConnector, {**config, **more})
        drivers.append(driver)
        return driver, run

    yield start
    for driver in drivers:
        driver.stop()
    for name in databases:
        postgres.execute(
            f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{name}'",
            f"DROP DATABASE {name} WITH (FORCE)",
        )


def runner(postgres, database):
    import psycopg

    def run(*statements):
        where = {"host": "127.0.0.1", "port": postgres.port, "user": "postgres", "dbname": database}
        with psycopg.connect(**where, autocommit=True) as connection:
            for each in statements:
                cursor = connection.execute(each)
            return cursor.fetchall() if statements and cursor.description else []

    return run


def drain(driver):
    found, empty = [], 2
    while empty:
        records = driver.poll()
        found += records
        empty -= not records
    return found


def seen(records):
    """Topic, operation, key, and the rows before and after."""
    found = []
    for record in records:
        key = None if record.key is None else record.key.to_dict()
        if record.value is None:
            found.append((record.topic, None, key, None, None))
            continue
        rows = [record.value[part] and record.value[part].to_dict() for part in ("before", "after")]
        found.append((record.topic, record.value["op"], key, *rows))
    return found


TABLE = ("CREATE TABLE t (id int PRIMARY KEY, a text, b text, c int)", "INSERT INTO t VALUES (1, 'hunter2', 'x', 5)")
CHANGES = (
    "ALTER TABLE t REPLICA IDENTITY FULL",
    "INSERT INTO t VALUES (2, 'hunter2', 'y', 6)",
    "UPDATE t SET c = 7 WHERE id = 1",
    "DELETE FROM t WHERE id = 1",
)


@pytest.mark.parametrize(
    ("setting", "value", "shown"),
    [
        ("column.exclude.list", "public.t.a", None),
        ("column.exclude.list", ".*\\.A", None),
        ("column.include.list", "public.t.(id|b|c)", None),
        ("column.mask.with.3.chars", "public.t.a", "***"),
        ("column.mask.with.0.chars", "public\\.t\\.a,other", ""),
        ("column.mask.hash.v2.SHA-256.with.salt.s", "public.t.a", hashlib.sha256(b"shunter2").hexdigest()),
        (
            "column.mask.hash.MD5.with.salt.s",
            "public.t.a",
            hashlib.md5(b"s\xac\xed\x00\x05t\x00\x07hunter2").hexdigest(),
        ),
        ("column.truncate.to.2.chars", "public.t.a", "hu"),
    ],
)
def test_a_withheld_column_comes_out_of_no_row(started, setting, value, shown):
    driver, run = started(*TABLE, **{setting: value})
    records = drain(driver)
    run(*CHANGES)
    records += drain(driver)
    found = [row for _, _, _, *rows in seen(records) for row in rows if row is not None]
    assert len(found) == 5
    assert [row.get("a") for row in found] == [shown] * 5
    assert all(("a" in row) is (shown is not None) for row in found)
    topic = "srv.public.t"
    for place in range(driver.log.partitions(topic)):
        for batch in driver.log.read_range(topic, place, 0, driver.log.end_offset(topic, place)):
            assert "hunter2" not in str(batch.to_pylist())


def test_columns_of_keys_are_masked_too_and_stay_in_keys_when_they_are_left_out(started):
    keyed = ("CREATE TABLE t (a text PRIMARY KEY, n int)", "INSERT INTO t VALUES ('hunter2', 1)")
    expected = hashlib.sha256(b"shunter2").hexdigest()
    driver, _ = started(*keyed, **{"column.mask.hash.v2.SHA-256.with.salt.s": "public.t.a"})
    assert [each[2] for each in seen(drain(driver))] == [{"a": expected}]
    driver, run = started(*keyed, **{"column.exclude.list": "public.t.a"})
    assert seen(drain(driver)) == [("srv.public.t", "r", {"a": "hunter2"}, None, {"n": 1})]
    run("DELETE FROM t")
    assert [each[1:4] for each in seen(drain(driver))] == [
        ("d", {"a": "hunter2"}, {"n": None}),
        (None, {"a": "hunter2"}, None),
    ]


def test_a_mask_over_a_column_that_is_no_text_fails_before_anything_comes_out(started):
    driver, _ = started(*TABLE, **{"column.mask.with.3.chars": "public.t.*"})
    with pytest.raises(
        ConnectError, match=r"column\.mask\.with\.3\.chars names the column public\.t\.id, whose type int4"
    ):
        driver.poll()


def test_messages_do_not_show_what_is_masked():
    form = column_form(PgType(25, "text"), -1, Handling(), nullable=False)
    masked = column_rules({"column.mask.with.3.chars": "public.t.a"}, [], []).form(
        "public.t.a", PgType(25, "text"), form
    )
    assert masked.value("hunter2") == masked.value(None) == "***"
    numbers = column_form(PgType(1700, "numeric", modifier=(5 << 16 | 2) + 4), -1, Handling("string"), nullable=False)
    cut = column_rules({"column.truncate.to.2.chars": "p.t.a"}, [], []).form("p.t.a", PgType(1700, "numeric"), numbers)
    assert cut.value("1234") == "12"
    assert cut.shows is False


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"column.mask.with.x.chars": "a"}, r"column\.mask\.with\.x\.chars is not a setting"),
        ({"column.mask.hash.SHA-999.with.salt.pepper": "a"}, r"there is no hash SHA-999"),
        ({"column.mask.with.3.chars": "a("}, "Invalid regex"),
        ({"column.include.list": "a", "column.exclude.list": "b"}, '"column.include.list" is already specified'),
        ({"table.include.list": "a", "table.exclude.list": "b"}, '"table.include.list" is already specified'),
        ({"skipped.operations": "c,x"}, "Invalid operation"),
        ({"message.key.columns": "public.t"}, r"public.t has an invalid format \(expecting"),
        ({"snapshot.select.statement.overrides": "public.t"}, "whose statement is not there"),
        ({"snapshot.mode": "Custom"}, "this connector reads neither rows nor changes so"),
        ({"snapshot.mode": "configuration_based"}, "this connector reads neither rows nor changes so"),
        ({"skipped.operations": "m"}, "Invalid operation"),
        ({"replica.identity.autoset.values": "public.t:SOME"}, "public.t:SOME has an invalid format"),
        ({"time.precision.mode": "seconds"}, "Value must be one of .*adaptive"),
        (
            {"snapshot.mode": "sometimes"},
            "Value must be one of always, initial_only, configuration_based, when_needed, initial",
        ),
    ],
)
def test_wrong_settings_are_refused_without_their_secrets(settings, message):
    base = {"topic.prefix": "srv", "database.hostname": "localhost", "database.dbname": "app"}
    with pytest.raises(SettingError, match=message) as caught:
        PostgresChangesConnector().start({**base, **settings})
    assert "pepper" not in str(caught.value)


def test_a_comma_with_a_backslash_is_part_of_an_expression():
    patterns = Patterns.of(["public.a{1\\", "2}", " other"], "table.include.list")
    assert [patterns.match(name) for name in ("public.aa", "PUBLIC.A", "other", "public.aaa")] == [
        True,
        True,
        True,
        False,
    ]


PARTED = (
    "CREATE TABLE p (id int, r int, v text, PRIMARY KEY (id, r)) PARTITION BY RANGE (r)",
    "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)",
    "INSERT INTO p VALUES (1, 1, 'a')",
)


@pytest.mark.parametrize("by_root", ["true", "false"])
def test_changes_of_a_partitioned_table_that_is_listed_come_as_that_table(started, by_root):
    more = {"table.include.list": "public.p", "publish.via.partition.root": by_root}
    driver, run = started(*PARTED, **more, **{"publication.autocreate.mode": "filtered"})
    assert [each[:3] for each in seen(drain(driver))] == [("srv.public.p", "r", {"id": 1, "r": 1})]
    run(
        "INSERT INTO p VALUES (2, 2, 'b'), (3, 12, 'c')",
        "UPDATE p SET v = 'x' WHERE id = 1",
        "DELETE FROM p WHERE id = 3",
    )
    run("CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30)", "INSERT INTO p VALUES (4, 22, 'd')")
    assert [each[:3] for each in seen(drain(driver))] == [
        ("srv.public.p", "c", {"id": 2, "r": 2}),
        ("srv.public.p", "c", {"id": 3, "r": 12}),
        ("srv.public.p", "u", {"id": 1, "r": 1}),
        ("srv.public.p", "d", {"id": 3, "r": 12}),
        ("srv.public.p", None, {"id": 3, "r": 12}),
        ("srv.public.p", "c", {"id": 4, "r": 22}),
    ]


def test_partitions_that_are_taken_themselves_come_under_their_own_names(started):
    driver, run = started(*PARTED)
    assert [each[0] for each in seen(drain(driver))] == ["srv.public.p", "srv.public.p1"]
    run("INSERT INTO p VALUES (2, 12, 'b')")
    assert [each[:2] for each in seen(drain(driver))] == [("srv.public.p2", "c")]


def test_rows_and_changes_have_the_same_texts_whatever_the_type(started, caplog):
    columns = {
        "c": ("char(5)", "'ab'", "ab   "),
        "ip": ("inet", "'10.0.0.1'", "10.0.0.1"),
        "num": ("numeric", "0.123456789", {"scale": 9, "value": b"\x07\x5b\xcd\x15"}),
        "far": ("timestamp", "'20000-01-01'", 568971820800000000),
        "never": ("timestamptz", "'infinity'", "infinity"),
        "iv": ("interval", "'1 mon 1 day'", 2716200000000),
        "ta": ("text[]", "'{a,NULL,\"b,c\"}'", ["a", None, "b,c"]),
        "na": ("numeric(5,1)[]", "'{1.5}'", None),
        "dom": ("price", "1.5", None),
        "m": ("mood", "'ok'", "ok"),
        "b": ("bit(12)", "B'100000000001'", b"\x01\x08"),
        "r": ("int4range", "'[1,5)'", "[1,5)"),
    }
    kinds = ", ".join(f"{name} {kind}" for name, (kind, _, _) in columns.items())
    values = ", ".join(value for _, value, _ in columns.values())
    driver, run = started(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TYPE comp AS (a int)",
        "CREATE DOMAIN price AS numeric(8,3)",
        f"CREATE TABLE t ({kinds}, odd comp, PRIMARY KEY (c, ip))",
        f"INSERT INTO t VALUES ({values}, ROW(1))",
    )
    with caplog.at_level(logging.WARNING):
        (first,) = drain(driver)
    assert "the column public.t.odd is left out" in caplog.text
    run("DELETE FROM t", f"INSERT INTO t VALUES ({values})")
    last = drain(driver)[-1]
    assert first.key == last.key
    row = first.value["after"].to_dict()
    assert row == last.value["after"].to_dict()
    assert "odd" not in row
    row["num"] = row["num"].to_dict()
    expected = {name: value for name, (_, _, value) in columns.items() if value is not None}
    assert {name: row[name] for name in expected} == expected
    assert (str(row["na"][0]), str(row["dom"])) == ("1.5", "1.500")


def test_a_number_of_ten_thousand_digits_is_exact(started):
    digits = "7" * 10_000
    driver, _ = started("CREATE TABLE t (id int PRIMARY KEY, n numeric)", f"INSERT INTO t VALUES (1, {digits})")
    value = drain(driver)[0].value["after"]["n"]
    assert int.from_bytes(value["value"], "big", signed=True) % 10**30 == int("7" * 30)
    assert driver.read("srv.public.t")[0].value["after"]["n"]["value"] == value["value"]


def test_operations_keys_and_statements_are_those_of_the_settings(started):
    settings = {
        "skipped.operations": "u",
        "message.key.columns": "public.t:b,a",
        "snapshot.select.statement.overrides": "public.t",
        "snapshot.select.statement.overrides.public.t": "SELECT * FROM t WHERE id > 1 ORDER BY id DESC",
        "snapshot.include.collection.list": "public.t",
        "topic.delimiter": "-",
        "schema.exclude.list": "hidden",
    }
    driver, run = started(
        *TABLE,
        "INSERT INTO t VALUES (2, 'p', 'q', 1), (3, 'r', 's', 1)",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "INSERT INTO u VALUES (1)",
        "CREATE SCHEMA hidden",
        "CREATE TABLE hidden.h (id int PRIMARY KEY)",
        **settings,
    )
    assert [each[:3] for each in seen(drain(driver))] == [
        ("srv-public-t", "r", {"b": "s", "a": "r"}),
        ("srv-public-t", "r", {"b": "q", "a": "p"}),
    ]
    run("INSERT INTO hidden.h VALUES (1)", "UPDATE t SET c = 0", "INSERT INTO u VALUES (2)", "TRUNCATE t")
    assert [each[:3] for each in seen(drain(driver))] == [
        ("srv-public-u", "c", {"id": 2}),
        ("srv-public-t", "t", None),
    ]


def test_keys_come_of_a_unique_index_where_there_is_no_primary_key(started):
    driver, _ = started(
        "CREATE TABLE t (id int, v text, w int)",
        "CREATE UNIQUE INDEX b_first ON t (v)",
        "CREATE UNIQUE INDEX a_first ON t (w, id)",
        "INSERT INTO t VALUES (1, 'x', 2)",
        "CREATE TABLE u (id int, v text, PRIMARY KEY (id) INCLUDE (v))",
        "INSERT INTO u VALUES (1, 'x')",
    )
    assert [each[2] for each in seen(drain(driver))] == [{"w": 2, "id": 1}, {"id": 1}]


def test_snapshots_come_when_the_mode_says_so(started):
    driver, run = started(*TABLE, **{"snapshot.mode": "always"})
    drain(driver)
    driver.restart()
    assert [each[1] for each in seen(drain(driver))] == ["r"]
    driver, run = started(*TABLE, **{"snapshot.mode": "when_needed"})
    drain(driver)
    driver.restart()
    assert drain(driver) == []
    driver.stop()
    run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = current_database()")
    run("INSERT INTO t VALUES (2, 'p', 'q', 1)")
    driver._start()
    assert [each[1] for each in seen(drain(driver))] == ["r", "r"]


def test_a_slot_is_dropped_and_statements_are_run_as_the_settings_say(started):
    statements = "SET search_path TO public;SET application_name TO 'a;;b'"
    driver, run = started(*TABLE, **{"slot.drop.on.stop": "true", "database.initial.statements": statements})
    drain(driver)
    assert run("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'a;b'") == [(1,)]
    driver.sources[0].task.stop()
    assert run("SELECT count(*) FROM pg_replication_slots WHERE slot_name = current_database()") == [(0,)]


def operations(records):
    return [record.value["op"] for record in records if record.value is not None]


def test_a_publication_has_what_the_settings_do_not_skip(started):
    driver, run = started(*TABLE, **{"skipped.operations": "c,t", "snapshot.mode": "no_data"})
    ((inserts, updates, deletes, truncates),) = run(
        "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication"
    )
    assert (inserts, updates, deletes, truncates) == (False, True, True, False)
    run("INSERT INTO t VALUES (2, 'a', 'b', 1)", "UPDATE t SET c = 9")
    assert operations(drain(driver)) == ["u", "u"]


def test_signals_come_although_inserts_are_skipped(started):
    signals = "CREATE TABLE sig (id varchar(42) PRIMARY KEY, type varchar(32), data varchar(2048))"
    more = {"skipped.operations": "c", "snapshot.mode": "no_data", "signal.data.collection": "public.sig"}
    driver, run = started(*TABLE, signals, **more)
    run("""INSERT INTO sig VALUES ('s', 'execute-snapshot', '{"data-collections": ["public.t"]}')""")
    assert operations(drain(driver)) == ["r"]


def test_a_publication_that_lacks_operations_is_said(started, caplog):
    driver, run = started(*TABLE, **{"skipped.operations": "d", "snapshot.mode": "no_data"})
    drain(driver)
    driver.restart()
    assert "the publication" not in caplog.text
    driver.config["skipped.operations"] = "none"
    driver.restart()
    assert "the publication dbz_publication has no operations of the kind delete" in caplog.text
    (statement,) = {text.partition("Run: ")[2] for text in caplog.messages if "Run: " in text}
    run(statement, "DELETE FROM t")
    assert operations(drain(driver)) == ["d"]


@pytest.mark.parametrize(
    "data",
    [
        '["public.t"]', '{"data-collections": ["public.("]}', '{"data-collections": "public.t"}',
        '{"data-collections": ["public.t"], "additional-conditions": ["id > 1"]}', "{",
    ],
)  # fmt: skip
def test_a_signal_that_cannot_be_read_is_left_out(started, data, caplog):
    signals = "CREATE TABLE sig (id varchar(42) PRIMARY KEY, type varchar(32), data varchar(2048))"
    driver, run = started(*TABLE, signals, **{"snapshot.mode": "no_data", "signal.data.collection": "public.sig"})
    run(f"INSERT INTO sig VALUES ('s', 'execute-snapshot', '{data}')", "UPDATE t SET c = 7")
    assert operations(drain(driver)) == ["c", "u"]
    assert "the signal s cannot be read" in caplog.text


@pytest.mark.parametrize(
    ("value", "before"),
    [
        ("public.t:FULL", {"id": 1, "a": "hunter2", "b": "x", "c": 5}),
        ("public.t:INDEX by_c", {"id": 0, "a": None, "b": None, "c": 5}),
        ("public.t:FULL, PUBLIC.*:full", None),  # twice: it stays as it is
        ("public.t:INDEX nope", None),
    ],
)
def test_replica_identities_are_set_at_the_start(started, value, before):
    unique = ("ALTER TABLE t ALTER c SET NOT NULL", "CREATE UNIQUE INDEX by_c ON t (c)")
    driver, run = started(*TABLE, *unique, **{"replica.identity.autoset.values": value, "snapshot.mode": "no_data"})
    run("UPDATE t SET c = 7")
    change, *_ = drain(driver)
    assert (change.value["before"] and change.value["before"].to_dict()) == before


@pytest.mark.parametrize("mode", ["warn", "skip"])
def test_what_cannot_be_read_is_left_out_where_the_settings_say_so(started, mode, caplog):
    table = ("CREATE TABLE t (id int PRIMARY KEY, n numeric(8,2) NOT NULL)", "INSERT INTO t VALUES (1, 1), (2, 'NaN')")
    driver, run = started(*table, **{"event.processing.failure.handling.mode": mode})
    (row,) = drain(driver)
    assert row.value["source"]["snapshot"] == "last"
    run("INSERT INTO t VALUES (3, 'NaN'), (4, 4)", "UPDATE t SET n = 'NaN' WHERE id = 1")
    assert [record.key["id"] for record in drain(driver)] == [4]
    assert ("a change is left out" in caplog.text) is (mode == "warn")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"snapshot.data": "true", "snapshot.schema": "true", "start.stream": "true"}, ["r", "u"]),
        ({"snapshot.data": "true"}, ["r"]),
        ({"start.stream": "true"}, ["u"]),
    ],
)
def test_snapshots_based_on_the_configuration_read_rows_and_changes_or_one_of_them(started, more, expected):
    based = {f"snapshot.mode.configuration.based.{name}": value for name, value in more.items()}
    # "snapshot.mode.configuration.based.snapshot.data", "snapshot.mode.configuration.based.snapshot.schema" and
    # "snapshot.mode.configuration.based.start.stream"
    driver, run = started(*TABLE, **{"snapshot.mode": "configuration_based", **based})
    found = operations(drain(driver))
    run("UPDATE t SET c = 7")
    assert [*found, *operations(drain(driver))] == expected
    driver.restart()  # rows come at each start
    assert operations(drain(driver)) == expected[:1] * ("r" in expected)


@pytest.mark.parametrize("mode", ["serializable", "read_committed", "READ_UNCOMMITTED"])
def test_each_mode_of_isolation_is_taken(started, mode):
    """All of them read rows of one moment, as the setting's text says."""
    driver, _ = started(*TABLE, **{"snapshot.isolation.mode": mode})
    assert operations(drain(driver)) == ["r"]


def test_notifications_say_how_an_incremental_snapshot_goes_on(started):
    signals = "CREATE TABLE sig (id varchar(42) PRIMARY KEY, type varchar(32), data varchar(2048))"
    more = {"snapshot.mode": "no_data", "signal.data.collection": "public.sig", "incremental.snapshot.chunk.size": "1"}
    sink = {"notification.enabled.channels": "sink", "notification.sink.topic.name": "notes"}
    driver, run = started(*TABLE, "INSERT INTO t VALUES (2, 'a', 'b', 6), (3, 'a', 'b', 7)", signals, **more, **sink)
    run("""INSERT INTO sig VALUES ('s', 'execute-snapshot', '{"data-collections": ["public.t", "public.none"]}')""")
    notes = [record.value for record in drain(driver) if record.topic == "notes"]
    assert [note["type"] for note in notes] == [
        "SKIPPED", "STARTED", *["IN_PROGRESS"] * 3, *["TABLE_SCAN_COMPLETED"] * 2, "COMPLETED",
    ]  # fmt: skip
    assert [note["additional_data"].get("last_processed_key") for note in notes[2:5]] == ["1", "2", "3"]
    assert [note["additional_data"]["status"] for note in notes[5:7]] == ["SUCCEEDED", "UNKNOWN_SCHEMA"]
    assert notes[5]["additional_data"]["total_rows_scanned"] == "3"


def test_an_incremental_snapshot_that_has_no_more_rows_behind_a_restart_says_that_it_has_ended(started):
    signals = "CREATE TABLE sig (id varchar(42) PRIMARY KEY, type varchar(32), data varchar(2048))"
    more = {"snapshot.mode": "no_data", "signal.data.collection": "public.sig", "incremental.snapshot.chunk.size": "1"}
    sink = {"notification.enabled.channels": "sink", "notification.sink.topic.name": "notes"}
    driver, run = started(*TABLE, "INSERT INTO t VALUES (2, 'a', 'b', 6)", signals, **more, **sink)
    run("""INSERT INTO sig VALUES ('s', 'execute-snapshot', '{"data-collections": ["public.t"]}')""")
    while not any(record.topic == "srv.public.t" for record in driver.poll()):
        pass
    run("DELETE FROM t WHERE id = 2")
    driver.restart()
    notes = [record.value["type"] for record in drain(driver) if record.topic == "notes"]
    assert notes == ["SKIPPED", "TABLE_SCAN_COMPLETED", "COMPLETED"]


def messages(records):
    return [record.key["prefix"] for record in records if record.topic == "srv.message"]


@pytest.mark.parametrize(
    ("setting", "value", "prefixes"),
    [
        ("message.prefix.include.list", "aud.*,x", ["audit"]),
        ("message.prefix.exclude.list", "audit", ["noise"]),
    ],
)
def test_messages_come_of_the_prefixes_that_the_settings_name(started, setting, value, prefixes):
    driver, run = started(*TABLE, **{setting: value, "snapshot.mode": "no_data"})
    run("SELECT pg_logical_emit_message(true, prefix, 'x') FROM unnest('{audit,noise}'::text[]) prefix")
    assert messages(drain(driver)) == prefixes


def test_records_say_what_the_settings_ask_for(started):
    driver, run = started(
        *TABLE,
        "COMMENT ON COLUMN t.a IS 'a secret'",
        **{
            "xmin.fetch.interval.ms": "1",
            "include.schema.comments": "true",
            "extended.headers.enabled": "false",
            "provide.transaction.metadata": "true",
            "topic.transaction": "tx",
        },
    )
    (row,) = drain(driver)
    assert len(list(row.headers)) == 0
    assert row.value.schema.field("after").schema.field("a").schema.doc == "a secret"
    run("INSERT INTO t VALUES (2, 'p', 'q', 1)")
    begun, inserted, ended = drain(driver)
    assert (begun.topic, ended.topic, ended.value["event_count"]) == ("srv.tx", "srv.tx", 1)
    assert inserted.value["source"]["xmin"] > 0


@pytest.mark.parametrize(("setting", "value"), [("flush.lsn.source", "false"), ("lsn.flush.mode", "manual")])
def test_the_slot_stays_where_it_is_if_the_settings_say_so(started, setting, value):
    driver, run = started(*TABLE, **{setting: value, "snapshot.mode": "no_data", "max.queue.size": "2"})
    query = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = current_database()"
    before = run(query)
    for number in range(2, 12):
        run(f"INSERT INTO t VALUES ({number}, 'p', 'q', 1)")
    found = []
    for _ in range(100):
        found += driver.poll()
        if len(found) == 10:
            break
    driver.restart()
    run("DELETE FROM t WHERE id = 1")
    for _ in range(100):
        found += driver.poll()
        if len(found) == 12:
            break
    assert [record.key["id"] for record in found] == [*range(2, 12), 1, 1]
    assert run(query) == before


SIGNALS = (
    "CREATE TABLE sig (id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))",
    "CREATE TABLE big (a int, b text, v int, PRIMARY KEY (a, b))",
    "INSERT INTO big SELECT i % 3, 'k' || i, i FROM generate_series(1, 10) i",
)


def rows_of(records):
    return [
        (record.value["op"], *record.key.to_dict().values())
        for record in records
        if record.topic == "srv.public.big" and record.value is not None
    ]


@pytest.mark.parametrize("restarts", [False, True])
def test_an_incremental_snapshot_reads_chunk_by_chunk_and_goes_on_after_a_restart(started, restarts):
    settings = {
        "signal.data.collection": "public.sig",
        "signal.enabled.channels": "source",
        "incremental.snapshot.chunk.size": "3",
        "snapshot.mode": "no_data",
        "table.include.list": "public.big",
    }
    driver, run = started(*SIGNALS, **settings)
    run("INSERT INTO sig VALUES ('s1', 'execute-snapshot', '{\"data-collections\": [\"public.*\"]}')")
    records = []
    while len(rows_of(records)) < 10:
        records += driver.poll()
        if restarts:
            driver.restart()
    records += drain(driver)
    expected = sorted(("r", i % 3, f"k{i}") for i in range(1, 11))
    assert sorted(set(rows_of(records))) == expected
    if not restarts:
        assert rows_of(records) == sorted(expected, key=lambda row: row[1:])


def test_a_row_that_changes_while_its_chunk_is_read_comes_once_as_it_is_now(started):
    settings = {"signal.data.collection": "public.sig", "snapshot.mode": "no_data"}
    driver, run = started(*SIGNALS, **settings)
    run(
        "CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "UPDATE big SET v = -1 WHERE b = 'k5'; RETURN NEW; END $$",
        "CREATE TRIGGER touched AFTER INSERT ON sig FOR EACH ROW WHEN (NEW.type = 'snapshot-window-open') "
        "EXECUTE FUNCTION touch()",
        "INSERT INTO sig VALUES ('s1', 'execute-snapshot', '{\"data-collections\": [\"public.big\"]}')",
    )
    records = drain(driver)
    while len([row for row in rows_of(records) if row[0] == "r"]) < 9:
        records += driver.poll()
    records += drain(driver)
    found = rows_of(records)
    assert ("r", 2, "k5") not in found
    assert ("u", 2, "k5") in found


def test_a_publication_gets_the_tables_that_are_listed_later(started):
    more = {"publication.autocreate.mode": "filtered", "table.include.list": "public.t,public.u"}
    driver, run = started(
        *TABLE, "CREATE TABLE u (id int PRIMARY KEY)", "CREATE PUBLICATION dbz_publication FOR TABLE t", **more
    )
    drain(driver)
    run("INSERT INTO u VALUES (1)")
    assert [each[0] for each in seen(drain(driver))] == ["srv.public.u"]


@pytest.mark.parametrize(
    ("kind", "mode", "text", "name", "value"),
    [
        ("timestamp", {"times": "adaptive"}, "2024-01-01 00:00:00.123456", "MicroTimestamp", 1704067200123456),
        ("timestamp", {"times": "isostring"}, "2024-01-01 00:00:00.12", "IsoTimestamp", "2024-01-01T00:00:00.12Z"),
        ("timestamp", {"times": "nanoseconds"}, "1970-01-01 00:00:01", "NanoTimestamp", 10**9),
        ("time", {"times": "adaptive"}, "24:00:00", "MicroTime", 86_400_000_000),
        ("time", {"times": "isostring"}, "01:02:03.5", "IsoTime", "01:02:03.5Z"),
        ("timetz", {}, "24:00:00+00", "ZonedTime", "00:00:00Z"),
        ("date", {"times": "isostring"}, "1970-01-02", "IsoDate", "1970-01-02Z"),
        ("timestamptz", {}, "0044-03-15 12:00:00+00 BC", "ZonedTimestamp", "-0043-03-15T12:00:00.000000Z"),
        ("interval", {"intervals": "string"}, "P1Y2M3DT4H5M6.7S", "Interval", "P1Y2M3DT4H5M6.7S"),
        ("interval", {}, "PT-0.000001S", "MicroDuration", -1),
    ],
)
def test_times_have_the_form_of_the_settings(kind, mode, text, name, value):
    form = column_form(PgType(0, kind), -1, Handling(**mode), nullable=True)
    assert (form.schema.name, form.value(text)) == (f"io.debezium.time.{name}", value)


@pytest.mark.parametrize(
    ("kind", "mode", "text", "value"),
    [
        ("money", {"decimals": "string"}, "-$1,234.50", "-1234.50"),
        ("numeric", {"decimals": "string"}, "NaN", "NAN"),
        ("numeric", {"decimals": "string"}, "-Infinity", "NEGATIVE_INFINITY"),
        ("bytea", {"binary": "hex"}, "\\x00ff", "00ff"),
        ("bytea", {"binary": "base64-url-safe"}, "\\xfbef", "--8="),
        ("hstore", {}, '"a"=>"1", "b"=>NULL', '{"a":"1","b":null}'),
        ("hstore", {"hstore": "map"}, '"c d"=>"x\\"y"', {"c d": 'x"y'}),
        ("varbit", {}, "", b""),
        ("tsquery", {"unknown": True}, "'a'", b"'a'"),
    ],
)
def test_values_have_the_form_of_the_settings(kind, mode, text, value):
    assert column_form(PgType(0, kind), -1, Handling(**mode), nullable=True).value(text) == value


def test_types_without_a_form_are_left_out_and_wrong_texts_are_named():
    assert column_form(PgType(0, "tsquery"), -1, Handling(), nullable=True) is None
    with pytest.raises(DataError, match="'soon' is not a value of the type"):
        column_form(PgType(0, "timestamp"), -1, Handling(), nullable=True).value("soon")


def test_what_a_task_captures_is_shown_without_its_password():
    settings = {
        "topic.prefix": "shop",
        "database.hostname": "h",
        "database.dbname": "d",
        "database.user": "u",
        "database.password": "hidden-word",
    }
    capture = Capture.of(parse_settings(settings), settings)
    assert capture.conninfo["password"] == "hidden-word"
    assert "hidden-word" not in repr(capture)
