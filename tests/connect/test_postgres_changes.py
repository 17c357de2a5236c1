"""Change data capture over a real PostgreSQL: Debezium's envelopes, and each change once whatever crashes."""

import gc
import itertools
import uuid
from contextlib import nullcontext, suppress
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventually import eventually
from penstock.connect.connectors.installed_plugins import known_plugins
from penstock.connect.connectors.postgres import PostgresChangesConnector
from penstock.connect.connectors.postgres.columns import Handling, column_form
from penstock.connect.connectors.postgres.pgoutput import Begin, parse_message
from penstock.connect.data import DataError, RetriableError
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError
from postgres_server import postgres

__all__ = ["postgres"]


@pytest.fixture
def table(postgres):
    name = f"t{uuid.uuid4().hex[:8]}"
    postgres.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, name text, n int NOT NULL DEFAULT 0)")
    made = []
    yield name, lambda **more: made.append(source(postgres, name, **more)) or made[-1]
    for driver in made:
        driver.stop()
    postgres.execute(
        f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 's_{name}'",
        f"DROP PUBLICATION IF EXISTS p_{name}",
        f"DROP TABLE {name}",
    )


def source(postgres, table, plugins=None, **more):
    config = {
        "topic.prefix": "shop",
        "database.hostname": "127.0.0.1",
        "database.port": postgres.port,
        "database.user": "postgres",
        "database.dbname": "postgres",
        "slot.name": f"s_{table}",
        "publication.name": f"p_{table}",
        "publication.autocreate.mode": "filtered",
        "table.include.list": f"public.{table}",
        "poll.interval.ms": 1,
        "value.converter": "JsonConverter",
        "key.converter": "JsonConverter",
    }
    given = {name.replace("_", "."): value for name, value in more.items()}
    return ConnectTestDriver(PostgresChangesConnector, {**config, **given}, plugins=plugins)


def changes(driver, table):
    """What the topic has: operation, key, and the rows before and after; a deletion's tombstone is None."""
    found = []
    for record in driver.read(f"shop.public.{table}"):
        value = record.value
        key = None if record.key is None else record.key["id"]
        row = {part: value and value[part] and value[part].to_dict() for part in ("before", "after")}
        found.append((value and value["op"], key, row["before"], row["after"]))
    return found


def drain(driver, empty=2):
    """Poll until nothing comes."""
    while empty:
        empty -= not driver.poll()


def test_rows_come_first_then_changes_in_debeziums_envelope(postgres, table):
    name, start = table
    postgres.execute(f"INSERT INTO {name} VALUES (1, 'a', 5)")
    driver = start()
    drain(driver)
    postgres.execute(
        f"INSERT INTO {name} VALUES (2, NULL, 6)",
        f"UPDATE {name} SET name = 'b' WHERE id = 1",
        f"UPDATE {name} SET id = 3 WHERE id = 2",
        f"DELETE FROM {name} WHERE id = 1",
    )
    drain(driver)
    assert changes(driver, name) == [
        ("r", 1, None, {"id": 1, "name": "a", "n": 5}),
        ("c", 2, None, {"id": 2, "name": None, "n": 6}),
        ("u", 1, None, {"id": 1, "name": "b", "n": 5}),
        ("d", 2, {"id": 2, "name": None, "n": 0}, None),
        (None, 2, None, None),
        ("c", 3, None, {"id": 3, "name": None, "n": 6}),
        ("d", 1, {"id": 1, "name": None, "n": 0}, None),
        (None, 1, None, None),
    ]
    first, second = driver.read(f"shop.public.{name}")[:2]
    assert first.value.schema.name == f"shop.public.{name}.Envelope"
    assert first.key.schema.name == f"shop.public.{name}.Key"
    assert [part.name for part in first.value.schema.fields] == [
        "before",
        "after",
        "source",
        "transaction",
        "op",
        "ts_ms",
        "ts_us",
        "ts_ns",
    ]
    origin = second.value["source"].to_dict()
    assert (origin["connector"], origin["db"], origin["schema"], origin["table"]) == (
        "postgresql",
        "postgres",
        "public",
        name,
    )
    assert (first.value["source"]["snapshot"], second.value["source"]["snapshot"]) == ("last", "false")
    assert origin["lsn"] > 0
    assert origin["txId"] > 0


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    crashes=st.lists(st.sampled_from([None, Step.POLLED, Step.CONVERTED, Step.WRITTEN, Step.COMMITTED]), max_size=6),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    batch=st.integers(1, 4),
)
def test_each_change_comes_once_wherever_the_task_crashes(postgres, crashes, sizes, batch):
    name = f"t{uuid.uuid4().hex[:8]}"
    postgres.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, name text, n int NOT NULL DEFAULT 0)")
    driver = source(postgres, name, max_batch_size=batch, snapshot_mode="no_data")
    total, tasks = 0, []
    crashing = iter(crashes)
    for size in sizes:
        postgres.execute(f"INSERT INTO {name} (name) SELECT 'x' FROM generate_series(1, {size})")  # one transaction
        total += size
        tasks.append(driver.sources[0].task)
        driver.poll(crash=next(crashing, None))
    for crash in crashing:
        tasks.append(driver.sources[0].task)
        driver.poll(crash=crash)
    drain(driver, empty=3)
    assert [key for _, key, _, _ in changes(driver, name)] == list(range(1, total + 1))
    driver.stop()
    for task in tasks:
        task.stop()  # a crash in a process of its own closes the connection
    postgres.execute(f"SELECT pg_drop_replication_slot('s_{name}')", f"DROP PUBLICATION p_{name}", f"DROP TABLE {name}")


def test_what_is_committed_while_the_snapshot_is_taken_comes_once(postgres, table):
    import psycopg

    name, start = table
    postgres.execute(f"INSERT INTO {name} VALUES (1, 'before', 0)")
    driver = start()  # the slot and its snapshot are made here, the rows are read at the first poll
    postgres.execute(f"INSERT INTO {name} VALUES (2, 'between', 0)")
    with psycopg.connect(host="127.0.0.1", port=postgres.port, user="postgres") as other:
        other.execute(f"INSERT INTO {name} VALUES (3, 'open', 0)")
        driver.poll()
        other.commit()
    drain(driver)
    assert sorted((key, op) for op, key, _, _ in changes(driver, name)) == [(1, "r"), (2, "c"), (3, "c")]


def test_the_server_can_be_asked_while_the_rows_of_a_snapshot_are_read(postgres, table):
    name, start = table
    postgres.execute(f"INSERT INTO {name} SELECT g, 'x', 0 FROM generate_series(1, 20) g")
    driver = start(xmin_fetch_interval_ms=1, max_batch_size=5)
    drain(driver)
    assert [key for _, key, _, _ in changes(driver, name)] == list(range(1, 21))
    assert all(record.value["source"]["xmin"] for record in driver.read(f"shop.public.{name}"))


def test_a_task_is_stopped_in_the_middle_of_a_snapshot(postgres, table):
    name, start = table
    postgres.execute(f"INSERT INTO {name} SELECT g, repeat('x', 20000), 0 FROM generate_series(1, 500) g")
    driver = start(max_batch_size=100)
    assert driver.poll(), driver.poll()
    driver.restart()
    gc.collect()
    assert driver.poll(), driver.poll()
    drain(driver)
    gc.collect()
    assert [key for _, key, _, _ in changes(driver, name)][-500:] == list(range(1, 501))


def test_the_rows_of_a_snapshot_may_take_longer_than_the_timeout_of_a_query(postgres, table):
    name, start = table
    postgres.execute(f"INSERT INTO {name} VALUES (1, 'a', 0)")
    override = f"snapshot.select.statement.overrides.public.{name}"
    driver = start(
        database_query_timeout_ms=60_000,
        snapshot_select_statement_overrides=f"public.{name}",
        **{override: f"SELECT id, current_setting('statement_timeout') AS name, n FROM {name}"},
    )
    drain(driver)
    assert [after["name"] for _, _, _, after in changes(driver, name)] == ["0"]


def test_changes_of_one_position_come_once_where_a_transformation_fails_between_them(postgres, table):
    import psycopg

    name, start = table
    other = f"{name}b"
    postgres.execute(
        f"ALTER TABLE {name} ALTER COLUMN id TYPE text", f"CREATE TABLE {other} (id text PRIMARY KEY, name text)"
    )
    driver = start(
        table_include_list=f"public.{name},public.{other}",
        snapshot_mode="no_data",
        skipped_operations="none",
        provide_transaction_metadata="true",
        plugins=known_plugins(),
    )
    plain = dict(driver.config)

    def run(part="", spec="", topic=name):
        """Restart with a cast that does not fit a record of a topic, or without one."""
        driver.config.clear()
        driver.config.update(plain)
        if spec:
            driver.config |= {
                "transforms": "cast",
                "transforms.cast.type": f"org.apache.kafka.connect.transforms.Cast${part}",
                "transforms.cast.spec": spec,
                "transforms.cast.predicate": "there",
                "predicates": "there",
                "predicates.there.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
                "predicates.there.pattern": f"shop.public.{topic}",
            }
        driver.restart()
        with pytest.raises(ConnectError, match=r"range|Invalid|Cast") if spec else nullcontext():
            drain(driver)
        return [(op, str(key)) for op, key, _, _ in changes(driver, name)]

    with (
        psycopg.connect(host="127.0.0.1", port=postgres.port, user="postgres") as connection,
        connection.cursor().copy(f"COPY {name} FROM STDIN") as copy,
    ):
        for key in ("1", "2", "300", "4", "x", "6"):
            copy.write_row((key, "a", 0))
    copied = [("c", "1"), ("c", "2"), ("c", "300"), ("c", "4"), ("c", "x"), ("c", "6")]
    assert run("Key", "id:int8") == copied[:2]
    assert run("Key", "id:int8") == copied[:2]
    assert run("Key", "id:int32") == copied[:4]
    assert run() == copied

    postgres.execute(f"UPDATE {name} SET id = 'y' WHERE id = '6'")  # a deletion, its tombstone, and an insert
    updated = [*copied, ("d", "6"), (None, "6"), ("c", "y")]
    assert run("Key", "id:int32") == updated[:8]
    assert run() == updated

    postgres.execute(f"TRUNCATE {name}, {other}")
    run("Value", "op:int32", topic=other)
    assert run() == [*updated, ("t", "None")]
    assert [op for op, *_ in changes(driver, other)] == ["t"]
    places = [
        record.value["transaction"]["total_order"] for record in driver.read(f"shop.public.{name}") if record.value
    ]
    assert places[:8] == [1, 2, 3, 4, 5, 6, 1, 2]
    ends = [
        record.value["event_count"] for record in driver.read("shop.transaction") if record.value["status"] == "END"
    ]
    assert ends == [6, 2, 2]
    driver.stop()
    postgres.execute(f"DROP TABLE {other}")


def test_incremental_snapshots_with_keys_of_types_elsewhere_and_signals_in_a_table_of_any_name(postgres):
    mark = uuid.uuid4().hex[:8]
    name, signals = f"t{mark}", f"sig%s {mark}"
    postgres.execute(
        f"CREATE SCHEMA away_{mark}",
        f"CREATE TYPE away_{mark}.mood AS ENUM ('sad', 'well', 'glad')",
        f"CREATE TABLE {name} (id away_{mark}.mood PRIMARY KEY)",
        f"INSERT INTO {name} VALUES ('sad'), ('well'), ('glad')",
        f'CREATE TABLE "{signals}" (id text PRIMARY KEY, type text, data text)',
    )
    more = {"incremental.snapshot.chunk.size": 1, "signal.data.collection": f"public.{signals}"}
    driver = source(
        postgres, name, snapshot_mode="no_data", table_include_list=f"public.{name},public.{signals}", **more
    )
    try:
        driver.poll()
        postgres.execute(
            f"""INSERT INTO "{signals}" VALUES ('one', 'execute-snapshot', '{{"data-collections": ["public.{name}"]}}')"""
        )
        topic = f"shop.public.{name}"

        def read():
            driver.poll()
            topics = {each.name for each in driver.log.topics()}
            return [record.value["after"]["id"] for record in driver.read(topic)] if topic in topics else []

        eventually(lambda: len(read()) == 3)
        assert read() == ["sad", "well", "glad"]
    finally:
        driver.stop()
        postgres.execute(
            f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 's_{name}'",
            f"DROP PUBLICATION IF EXISTS p_{name}",
            f'DROP TABLE {name}, "{signals}"',
            f"DROP SCHEMA away_{mark} CASCADE",
        )


def test_the_server_may_forget_what_is_written_also_when_nothing_changes(postgres, table):
    name, start = table
    driver = start(snapshot_mode="no_data")
    postgres.execute(f"INSERT INTO {name} VALUES (1, 'a', 0)")
    drain(driver)
    query = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 's_{name}'"
    before = postgres.execute(query)
    postgres.execute("CREATE TABLE noise (x int)", "DROP TABLE noise")
    drain(driver)
    assert postgres.execute(query) > before
    assert [key for _, key, _, _ in changes(driver, name)] == [1]


def test_full_replica_identity_has_whole_rows_before_and_untouched_large_values(postgres, table):
    name, start = table
    driver = start(snapshot_mode="no_data")
    large = "".join(uuid.uuid4().hex for _ in range(600))
    postgres.execute(f"ALTER TABLE {name} ALTER COLUMN name SET STORAGE EXTERNAL")
    postgres.execute(f"INSERT INTO {name} VALUES (1, '{large}', 0)", f"UPDATE {name} SET n = 1")
    drain(driver)
    assert changes(driver, name)[1][3]["name"] == "__debezium_unavailable_value"
    postgres.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL", f"UPDATE {name} SET n = 2")
    drain(driver)
    _, key, before, after = changes(driver, name)[2]
    assert (key, before["n"], after["n"], after["name"] == large) == (1, 1, 2, True)


def test_the_server_forgets_what_is_written_also_after_a_failure_in_the_middle_of_a_look(postgres, table, monkeypatch):
    name, start = table
    driver = start(snapshot_mode="no_data")
    postgres.execute(f"INSERT INTO {name} VALUES (1, 'a', 0)", f"INSERT INTO {name} VALUES (2, 'a', 0)")
    with monkeypatch.context() as patched:
        patched.setattr(driver.sources[0].task, "_committed", fails_at_the_second(driver.sources[0].task._committed))
        assert driver.poll() == []
    query = f"SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = 's_{name}'"
    for key in (3, 4, 5):
        before = postgres.execute(query)
        postgres.execute(f"INSERT INTO {name} VALUES ({key}, 'a', 0)")
        driver.poll()  # it is never idle
        assert postgres.execute(query) > before
    assert [key for _, key, _, _ in changes(driver, name)] == [1, 2, 3, 4, 5]


def fails_at_the_second(function):
    calls = itertools.count(1)

    def failing(*arguments):
        if next(calls) == 2:
            raise RetriableError("the database is away")
        return function(*arguments)

    return failing


def test_a_column_that_is_added_is_in_the_next_change(postgres, table):
    name, start = table
    driver = start(snapshot_mode="no_data")
    postgres.execute(f"INSERT INTO {name} VALUES (1, 'a', 0)", f"ALTER TABLE {name} ADD COLUMN more numeric(6,2)")
    postgres.execute(f"INSERT INTO {name} VALUES (2, 'b', 0, 1.5)")
    drain(driver)
    assert [after.get("more") for _, _, _, after in changes(driver, name)] == [None, Decimal("1.50")]


def test_types_are_debeziums_in_snapshots_and_changes_alike(postgres):
    name = f"t{uuid.uuid4().hex[:8]}"
    columns = {
        "b": ("boolean", "true", True),
        "i2": ("smallint", "-5", -5),
        "i8": ("bigint", "9007199254740993", 9007199254740993),
        "f4": ("real", "1.5", 1.5),
        "f8": ("double precision", "0.1", 0.1),
        "num": ("numeric(8,3)", "-12.5", Decimal("-12.500")),
        "day": ("date", "'1969-12-31'", -1),
        "at": ("timestamp", "'1970-01-01 00:00:01.000002'", 1_000_002),
        "atz": ("timestamptz", "'2024-01-01 10:00:00.5+02'", "2024-01-01T08:00:00.500000Z"),
        "t": ("time", "'01:02:03.000004'", 3_723_000_004),
        "u": ("uuid", "'00000000-0000-0000-0000-000000000001'", "00000000-0000-0000-0000-000000000001"),
        "j": ("jsonb", "'{\"a\": [1]}'", '{"a": [1]}'),
        "raw": ("bytea", "'\\x00ff'", b"\x00\xff"),
        "tags": ("text[]", "'{a,NULL,\"b,c\"}'", ["a", None, "b,c"]),
        "nums": ("int[]", "'{1,2}'", [1, 2]),
        "ip": ("inet", "'10.0.0.1'", "10.0.0.1"),
    }
    kinds = ", ".join(f"{column} {kind}" for column, (kind, _, _) in columns.items())
    values = ", ".join(text for _, text, _ in columns.values())
    postgres.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, {kinds})", f"INSERT INTO {name} VALUES (1, {values})")
    driver = source(postgres, name)
    drain(driver)
    postgres.execute(f"INSERT INTO {name} VALUES (2, {values})")
    drain(driver)
    rows = [after for _, _, _, after in changes(driver, name)]
    for row in rows:
        found = {column: row[column] for column in columns}
        assert found == {column: value for column, (_, _, value) in columns.items()}
    driver.stop()
    postgres.execute(f"SELECT pg_drop_replication_slot('s_{name}')", f"DROP PUBLICATION p_{name}", f"DROP TABLE {name}")


def test_what_the_server_lacks_is_said_with_what_to_do(postgres, table):
    name, start = table
    with pytest.raises(ConnectError, match="No table filters found for filtered publication"):
        start(table_include_list="public.nothing")
    with pytest.raises(ConnectError, match="There is no publication") as caught:
        start(publication_autocreate_mode="disabled")
    assert f"CREATE PUBLICATION p_{name}" in caught.value.hint
    with pytest.raises(ConnectError, match="away"):
        start(database_port=9)


def test_a_slot_that_was_deleted_is_noticed(postgres, table):
    name, start = table
    driver = start(snapshot_mode="no_data")
    postgres.execute(f"INSERT INTO {name} VALUES (1, 'a', 0)")
    drain(driver)
    driver.stop()
    postgres.execute(f"SELECT pg_drop_replication_slot('s_{name}')")
    with pytest.raises(ConnectError, match=r"no longer available on the server"):
        driver.restart()
    with pytest.raises(ConnectError, match=r"no longer available on the server"):
        driver.restart()  # also at the next try


def test_failures_that_do_not_pass_are_errors(postgres, table):
    import psycopg

    name, start = table
    slots = [f"{name}_{number}" for number in range(10)]  # max_replication_slots
    try:
        with suppress(psycopg.errors.ConfigurationLimitExceeded):
            for slot in slots:
                postgres.execute(f"SELECT pg_create_physical_replication_slot('{slot}')")
        with pytest.raises(ConnectError, match="slots are in use") as caught:
            start(snapshot_mode="no_data")
        assert "max_replication_slots" in caught.value.hint
    finally:
        postgres.execute(
            f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE '{name}_%'"
        )
    driver = start(snapshot_mode="no_data", database_initial_statements="SET statement_timeout TO '60s'")
    task = driver.sources[0].task
    with pytest.raises(ConnectError, match="statement timeout") as caught:
        task._server.execute("SET statement_timeout TO '1ms'; SELECT pg_sleep(60)")
    assert "database.query.timeout.ms" in caught.value.hint


def test_a_slot_whose_log_the_server_has_removed_is_an_error_or_made_again(postgres, table):
    name, start = table
    postgres.execute(f"INSERT INTO {name} VALUES (1, 'a', 0)")
    driver = start()
    drain(driver)
    query = f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = 's_{name}'"
    try:
        postgres.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
        for _ in range(200):  # segments of the log
            postgres.execute("SELECT pg_switch_wal()", f"UPDATE {name} SET n = n + 1", "CHECKPOINT")
            if postgres.execute(query) == [("lost",)]:
                break
    finally:
        postgres.execute("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
        eventually(lambda: postgres.execute("SHOW max_slot_wal_keep_size") == [("-1",)])
    assert postgres.execute(query) == [("lost",)]
    with pytest.raises(ConnectError, match="slot") as caught:
        driver.poll()
    assert "when_needed" in caught.value.hint
    with pytest.raises(ConnectError, match="removed the log"):
        driver.restart()
    driver.config["snapshot.mode"] = "when_needed"
    driver.restart()
    drain(driver)
    postgres.execute(f"INSERT INTO {name} VALUES (2, 'b', 0)")
    drain(driver)
    assert [(op, key) for op, key, _, _ in changes(driver, name)] == [("r", 1), ("r", 1), ("c", 2)]


def test_a_snapshot_without_a_stream_leaves_no_slot(postgres, table):
    name, start = table
    postgres.execute(f"INSERT INTO {name} VALUES (1, 'a', 0)")
    driver = start(snapshot_mode="initial_only")
    drain(driver)
    driver.restart()
    postgres.execute(f"INSERT INTO {name} VALUES (2, 'b', 0)")
    drain(driver)
    assert [(op, key) for op, key, _, _ in changes(driver, name)] == [("r", 1)]
    assert not postgres.execute(f"SELECT FROM pg_replication_slots WHERE slot_name LIKE '%{name}%'")


def test_messages_that_are_cut_or_unknown_are_refused():
    begin = b"B" + (7).to_bytes(8, "big") + bytes(8) + (9).to_bytes(4, "big")
    assert parse_message(begin) == Begin(7, 946_684_800_000_000, 9)
    for wrong in (b"", b"?", begin[:-1], b"I\0\0\0\1N\0\1t\xff\xff\xff\xffx", b"R\0\0\0\1abc"):
        with pytest.raises(DataError, match="cannot be read"):
            parse_message(wrong)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_an_error_of_data(data):
    with suppress(DataError):
        parse_message(data)


def test_decimals_and_times_have_other_forms_by_settings():
    assert column_form(1700, -1, Handling("string"), nullable=True).value("1.50") == "1.50"
    assert column_form(1700, -1, Handling("double"), nullable=True).value("1.50") == 1.5
    free = column_form(1700, -1, Handling(), nullable=True).value("-1.50")
    assert (free["scale"], free["value"]) == (1, b"\xf1")
    assert column_form(1114, -1, Handling(times="connect"), nullable=True).value("1970-01-01 00:00:01").ms == 1000
    assert column_form(1700, -1, Handling(), nullable=True).value("NaN") is None
    assert column_form(1700, -1, Handling(), nullable=False).zero["value"] == b"\0"
