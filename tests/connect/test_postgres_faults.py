"""PostgreSQL's changes under faults: each committed change is in the topic once, in order, whatever is killed."""

import json
import os
import signal
import socket
import threading
import uuid
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connect_group import GroupWorker, with_suppressed
from eventually import eventually
from penstock.connect.connectors.installed_plugins import known_plugins
from penstock.connect.data import RetriableError
from penstock.connect.testing import Step
from penstock.errors import ConnectError
from penstock.log import open_log
from postgres_server import PostgresServer, postgres
from test_postgres_changes import drain, source

__all__ = ["postgres"]
STEPS = [Step.POLLED, Step.CONVERTED, Step.WRITTEN, Step.COMMITTED]
JSON = "org.apache.kafka.connect.json.JsonConverter"


class Table:
    """A table whose changes are numbered, and that knows all of them.

    Args:
        server: The server.
        rows: The number of rows at the start.
    """

    def __init__(self, server, rows=0):
        self.server = server
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.numbers = {}
        self.changes = []
        self.number = 0
        server.execute(
            f"CREATE TABLE {self.name} (id int PRIMARY KEY, n int NOT NULL, name text)",
            f"ALTER TABLE {self.name} REPLICA IDENTITY FULL",
            f"INSERT INTO {self.name} SELECT g, 0, repeat('x', 500) FROM generate_series(1, {rows}) g",
        )
        self.numbers.update(dict.fromkeys(range(1, rows + 1), 0))

    def put(self, *keys):
        """Insert or update rows in one transaction."""
        self.commit(*((key, False) for key in keys))

    def delete(self, *keys):
        """Delete rows in one transaction."""
        self.commit(*((key, True) for key in keys))

    def commit(self, *changes):
        """Change rows in one transaction: each a key, and whether its row is deleted."""
        statements = []
        for key, is_deletion in changes:
            self.number += 1
            if is_deletion and key in self.numbers:
                statements.append(f"DELETE FROM {self.name} WHERE id = {key}")
                self.changes.append(("d", key, self.numbers.pop(key)))
            elif not is_deletion:
                is_there = key in self.numbers
                update = f"UPDATE {self.name} SET n = {self.number} WHERE id = {key}"
                statements.append(update if is_there else f"INSERT INTO {self.name} VALUES ({key}, {self.number}, 'x')")
                self.changes.append(("u" if is_there else "c", key, self.number))
                self.numbers[key] = self.number
        self.server.execute("; ".join(statements) or "SELECT 1")

    def state(self, found):
        """The rows that a reader of the topic has."""
        rows = {}
        for op, key, number in found:
            if op == "d":
                rows.pop(key, None)
            else:
                rows[key] = number
        return rows

    def check(self, found, changes=None):
        """Each change is there once, in order, and a reader has the rows of the table."""
        assert [each for each in found if each[0] != "r"] == (self.changes if changes is None else changes)
        assert self.state(found) == self.numbers

    def drop(self, server=None):
        (server or self.server).execute(
            f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 's_{self.name}'",
            f"DROP PUBLICATION IF EXISTS p_{self.name}",
            f"DROP TABLE {self.name}",
        )


def found_in(records):
    """Operation, key and number of all changes in values of the topic."""
    return [
        (each["op"], *((each["after"] or each["before"])[part] for part in ("id", "n"))) for each in records if each
    ]


def topic_of(driver, table):
    name = f"shop.public.{table.name}"
    there = any(each.name == name for each in driver.log.topics())
    return found_in([record.value for record in driver.read(name)] if there else [])


def in_a_process(driver):
    """A driver whose tasks let go of their connections when they are killed, as a process does."""
    start = driver.kill

    def kill():
        for each in driver.sources:
            each.task.stop()
        start()

    driver.kill = kill
    return driver


@pytest.fixture
def made(postgres):
    """Makes tables with their connectors."""
    things = []

    def make(rows=0, **more):
        table = Table(postgres, rows)
        driver = in_a_process(source(postgres, table.name, **more))
        things.append((table, driver))
        return table, driver

    yield make
    for table, driver in things:
        driver.stop()
        table.drop(postgres)


def killed(driver, crash):
    """Poll, and crash in the middle, or behind it."""
    task = driver.sources[0].task
    driver.poll(crash=crash)
    if driver.sources[0].task is task:
        driver.kill()


@pytest.mark.parametrize("crash", STEPS)
def test_a_snapshot_that_is_killed_begins_again_behind_the_changes_since_then(made, crash):
    table, driver = made(8, max_batch_size=2)
    table.delete(8)
    driver.poll()
    table.commit((1, True), (2, False))
    killed(driver, crash)
    table.commit((3, True), (9, False), (4, False))
    driver.poll()
    killed(driver, crash)
    table.commit((1, False), (2, True))
    table.commit((9, True), (5, False))
    for _ in range(3):
        driver.poll()
    killed(driver, crash)
    table.put(7)
    drain(driver, empty=4)
    table.check(topic_of(driver, table))


def test_a_snapshot_whose_connections_break_begins_again_behind_the_changes_since_then(made, postgres):
    table, driver = made(3000, max_batch_size=500)
    driver.poll()
    driver.poll()
    ours = "FROM pg_stat_activity WHERE application_name = 'penstock-connect'"
    postgres.execute(f"SELECT pg_terminate_backend(pid) {ours}")
    table.commit((1, True), (3000, True), (2, False))
    for _ in range(12):
        driver.poll()
    drain(driver, empty=4)
    table.check(topic_of(driver, table))


def test_a_slot_that_was_made_again_or_read_by_others_is_noticed(made, postgres):
    table, driver = made(snapshot_mode="no_data")
    slot = f"s_{table.name}"
    table.put(1)
    drain(driver)
    postgres.execute("CREATE TABLE noise (x int)", "DROP TABLE noise")
    drain(driver)  # the server forgets what has no change
    driver.restart()
    drain(driver)
    table.put(2)
    drain(driver)
    driver.kill()
    table.put(3)
    postgres.execute(
        f"SELECT pg_drop_replication_slot('{slot}')", f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"
    )
    with pytest.raises(ConnectError, match="made again") as caught:
        driver.restart()
    assert "when_needed" in caught.value.hint
    driver.config["snapshot.mode"] = "when_needed"
    driver.restart()
    drain(driver)
    table.put(4)
    drain(driver)
    found = topic_of(driver, table)
    assert [each for each in found if each[0] == "r"] == [("r", key, table.numbers[key]) for key in (1, 2, 3)]
    assert table.state(found) == table.numbers
    table.put(5)
    postgres.execute(
        f"SELECT count(*) FROM pg_logical_slot_get_binary_changes('{slot}', NULL, NULL, 'proto_version', '1', "
        f"'publication_names', 'p_{table.name}')"
    )
    with pytest.raises(ConnectError, match="another one has read it"):
        driver.poll()


def test_an_answer_that_was_lost_when_the_slot_was_moved_is_not_another_reader(made):
    table, driver = made(snapshot_mode="no_data")
    table.put(1)
    drain(driver)
    server = driver.sources[0].task._server
    confirm, moved = server.confirm, []

    def lost(lsn):
        confirm(lsn)
        moved.append(lsn)
        raise RetriableError("the connection broke before the answer")

    server.confirm = lost
    table.put(2)
    with suppress(RetriableError):
        driver.poll()
    assert moved
    server.confirm = confirm
    table.put(3)
    drain(driver)
    table.check(topic_of(driver, table))


def test_a_slot_that_is_deleted_while_its_changes_are_read_is_said(made, postgres):
    table, driver = made(snapshot_mode="no_data")
    table.put(1)
    drain(driver)
    postgres.execute(f"SELECT pg_drop_replication_slot('s_{table.name}')")
    with pytest.raises(ConnectError, match="does not exist") as caught:
        driver.poll()
    assert "when_needed" in caught.value.hint


def test_the_server_forgets_changes_that_a_transformation_drops_and_the_connector_goes_on(made, postgres):
    drops = {
        "transforms": "drop",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.drop.predicate": "deleted",
        "predicates": "deleted",
        "predicates.deleted.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    }
    table, driver = made(3, plugins=known_plugins(), max_batch_size=1, **drops)
    drain(driver)
    query = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 's_{table.name}'"
    for key in (1, 2, 3):
        table.delete(key)
        before = postgres.execute(query)
        drain(driver)
        assert postgres.execute(query) > before
        driver.restart()
    table.put(4)
    drain(driver)
    table.check(topic_of(driver, table))


def test_a_connector_that_has_run_waits_for_its_server(made, postgres):
    table, driver = made(snapshot_mode="no_data")
    table.put(1)
    drain(driver)
    postgres.kill()
    try:
        driver.restart()
        assert driver.poll() == []
    finally:
        postgres.start()
    table.put(2)
    drain(driver, empty=3)
    table.check(topic_of(driver, table))


# Failover

REPLAYED = "SELECT pg_last_wal_replay_lsn() >= '{}'::pg_lsn"


def replicated(primary, replica):
    """Wait until the replica has all that the primary has."""
    ((end,),) = primary.execute("SELECT pg_current_wal_lsn()::text")
    eventually(lambda: replica.execute(REPLAYED.format(end)) == [(True,)])


def test_a_replica_that_has_the_slot_and_all_changes_is_gone_on_with(made, postgres):
    table, driver = made(2)
    drain(driver)
    replica = PostgresServer(postgres, slots=[f"s_{table.name}"])
    try:
        table.put(3, 1)
        drain(driver)
        table.commit((2, True), (4, False))  # the primary dies before this is read
        replicated(postgres, replica)
        driver.config["database.port"] = str(replica.port)
        driver.kill()
        assert driver.poll() == []  # it is a standby yet
        replica.promote()
        table.server = replica
        table.put(5)
        drain(driver, empty=3)
        table.put(6, 1)
        drain(driver)
        table.check(topic_of(driver, table))
        driver.config["database.port"] = str(postgres.port)
        with pytest.raises(ConnectError, match="was the primary before"):
            driver.restart()
    finally:
        driver.stop()
        replica.stop()


def test_a_replica_that_lacks_changes_or_the_slot_is_noticed(made, postgres):
    table, driver = made(2)
    drain(driver)
    slot = f"s_{table.name}"
    replica = PostgresServer(postgres, slots=[slot])
    try:
        table.put(3)
        replicated(postgres, replica)
        replica.execute("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
        eventually(lambda: not replica.execute("SELECT 1 FROM pg_stat_wal_receiver"))
        table.put(1)
        drain(driver)
        table.numbers[1] = 0  # the replica has not received it
        replica.promote()
        table.server = replica
        table.put(*range(10, 40))
        driver.config["database.port"] = str(replica.port)
        with pytest.raises(ConnectError, match="has not received all of them") as caught:
            driver.restart()
        assert "when_needed" in caught.value.hint
        replica.execute(f"SELECT pg_drop_replication_slot('{slot}')")
        with pytest.raises(ConnectError, match="was deleted"):
            driver.restart()
        replica.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        with pytest.raises(ConnectError, match=r"has not received|made again"):
            driver.restart()
        driver.config["snapshot.mode"] = "when_needed"
        driver.restart()
        drain(driver)
        table.put(2, 41)
        drain(driver)
        assert table.state(topic_of(driver, table)) == table.numbers
    finally:
        driver.stop()
        replica.stop()


class Address:
    """One address of several servers, as a name or a proxy in front of them has it.

    Args:
        port: The port of the first server.
    """

    def __init__(self, port):
        self._target, self._open, self._threads = port, [], []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._start(self._accept)

    def switch(self, port):
        """Break all connections; new ones go to another server."""
        self._target = port
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._threads.pop(0).join(60)
        self.switch(None)
        for each in self._threads:
            each.join(60)
        for each in (self._listening, *self._open):
            each.close()

    def _start(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with suppress(OSError):
            while True:
                inner, _ = self._listening.accept()
                try:
                    outer = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    inner.close()
                    continue
                self._open += [inner, outer]
                for pair in ((inner, outer), (outer, inner)):
                    self._start(self._pump, *pair)

    @staticmethod
    def _pump(source, target):
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("lacks", [False, True], ids=["has all", "lacks changes"])
def test_servers_are_switched_behind_one_address_while_the_task_runs(made, postgres, lacks):
    address = Address(postgres.port)
    table, driver = made(2, database_port=address.port)
    drain(driver)
    replica = PostgresServer(postgres, slots=[f"s_{table.name}"])
    try:
        table.put(3, 1)
        replicated(postgres, replica)
        if lacks:
            replica.execute("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
            eventually(lambda: not replica.execute("SELECT 1 FROM pg_stat_wal_receiver"))
            table.put(1)
        drain(driver)
        if not lacks:
            table.commit((2, True), (4, False))  # the primary dies before this is read
            replicated(postgres, replica)
        address.switch(replica.port)
        drain(driver)  # it is a standby yet
        replica.promote()
        table.server = replica
        if lacks:
            with pytest.raises(ConnectError, match="has not received all of them"):
                drain(driver, empty=5)
            return
        table.put(5)
        eventually(lambda: driver.poll() == [] and len(topic_of(driver, table)) >= len(table.changes) + 2)
        table.put(6, 1)
        drain(driver)
        table.check(topic_of(driver, table))
    finally:
        driver.stop()
        address.close()
        replica.stop()


# Schedules

CHANGE = st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=5)
POLL = st.sampled_from([None, None, *STEPS])
FAULT = st.sampled_from(["restart", "break", "kill"])
EVENTS = st.lists(st.one_of(CHANGE, POLL, POLL, FAULT), min_size=6, max_size=16)


def go_through(driver, table, events):
    """Change, poll, crash and kill as a schedule says; the number of changes that were there before the first record.

    These may be in the rows of a snapshot alone: where none of its rows was written, it begins anew without them.
    """
    before = 0
    for event in events:
        if not topic_of(driver, table):
            before = len(table.changes)
        if isinstance(event, list):
            table.commit(*event)
        elif event == "restart":
            driver.restart()
        elif event == "break":
            table.server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock-connect'"
            )
        elif event == "kill":
            table.server.kill()
            table.server.start()
        else:
            driver.poll(crash=event)
    return before if topic_of(driver, table) else len(table.changes)


def run_schedule(postgres, events, size, *, incremental):
    """Go through a schedule from the beginning of a snapshot on, or of an incremental one; then all has to be there."""
    table = Table(postgres, 10)
    more = {"max.batch.size": size}
    signals = f"{table.name}s"
    if incremental:
        postgres.execute(f"CREATE TABLE {signals} (id text PRIMARY KEY, type text, data text)")
        more |= {
            "snapshot.mode": "no_data",
            "signal.data.collection": f"public.{signals}",
            "table.include.list": f"public.{table.name},public.{signals}",
            "incremental.snapshot.chunk.size": 3,
        }
    driver = in_a_process(source(postgres, table.name, **more))
    try:
        if incremental:
            data = json.dumps({"data-collections": [f"public.{table.name}"]})
            postgres.execute(f"INSERT INTO {signals} VALUES ('one', 'execute-snapshot', '{data}')")
        before = go_through(driver, table, events)
        if incremental:
            before = 0
        eventually(lambda: driver.poll() == [] and table.state(topic_of(driver, table)) == table.numbers)
        drain(driver, empty=3)
        found = topic_of(driver, table)
        missing = len(table.changes) - len([each for each in found if each[0] != "r"])
        assert missing <= before
        table.check(found, table.changes[max(missing, 0) :])
    finally:
        with suppress(ConnectError):
            driver.stop()
        if incremental:
            postgres.execute(f"DROP TABLE {signals}")
        table.drop()


CHECKED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("incremental", [False, True], ids=["snapshot", "incremental"])
def test_a_schedule_of_faults_loses_and_doubles_nothing(postgres, incremental):
    events = [
        [(1, True), (2, False)], None, Step.WRITTEN, [(3, True), (1, False)], "kill", None, [(2, True)], Step.CONVERTED,
        None, "break", [(4, False), (11, False), (5, True)], None, Step.COMMITTED, None, [(4, True)], "restart", Step.POLLED,
    ]  # fmt: skip
    run_schedule(postgres, events, 2, incremental=incremental)


def test_two_faults_before_the_first_commit_that_is_written(postgres):
    """The slot is older than the snapshot, whose rows have what was committed between."""
    one = [(1, False)]
    events = [one, "restart", None, one * 2, one, one, one, one, Step.WRITTEN, None, None, Step.CONVERTED]
    run_schedule(postgres, events, 1, incremental=False)


@pytest.mark.whole
@pytest.mark.parametrize("incremental", [False, True], ids=["snapshot", "incremental"])
def test_no_schedule_of_faults_loses_or_doubles_anything(postgres, incremental):
    @settings(CHECKED, max_examples=40)
    @given(events=EVENTS, size=st.integers(1, 4))
    def run(events, size):
        run_schedule(postgres, events, size, incremental=incremental)

    run()


# Processes


class Workers:
    """A worker whose connector reads a table, and what of it can be killed."""

    def __init__(self, folder, postgres, table, **more):
        self.url = f"sqlite:///{folder}/log.db"
        self.postgres, self.table = postgres, table
        self.worker = GroupWorker(folder, self.url, **{"key.converter": JSON, "value.converter": JSON})
        self.config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "topic.prefix": "shop",
            "database.hostname": "127.0.0.1", "database.port": str(postgres.port), "database.user": "postgres",
            "database.dbname": "postgres", "slot.name": f"s_{table.name}", "publication.name": f"p_{table.name}",
            "publication.autocreate.mode": "filtered", "table.include.list": f"public.{table.name}",
            "poll.interval.ms": "10", **more,
        }  # fmt: skip

    def __enter__(self):
        self.worker.start()
        body = {"name": "changes", "config": self.config}
        eventually(lambda: self.worker.ask("POST", "/connectors", body)[0] == 201)
        return self

    def __exit__(self, *exception):
        self.worker.end()

    def found(self):
        name = f"shop.public.{self.table.name}"
        with open_log(self.url) as log:
            if name not in {info.name for info in log.topics()}:
                return []
            batches = log.read_range(name, 0, 0, log.end_offset(name, 0))
            values = [value for batch in batches for value in batch.column("value").to_pylist()]
        return found_in([value and json.loads(value)["payload"] for value in values])

    def kill(self, what):
        if what == "server":
            self.postgres.kill()
            self.postgres.start()
            return
        for pid in self.worker.tasks():
            with_suppressed(lambda pid=pid: os.kill(pid, signal.SIGKILL))
        if what == "worker":
            self.worker.process.kill()
            self.worker.process.wait(60)
            self.worker.start()

    def await_all(self):
        def facts():
            return self.worker.ask("GET", "/connectors/changes/status"), self.worker.ask("GET", "/penstock/progress")

        eventually(lambda: self.table.state(self.found()) == self.table.numbers, facts=facts)


def test_each_change_comes_once_though_task_worker_and_server_are_killed(postgres, tmp_path):
    table = Table(postgres, 3000)
    try:
        with Workers(tmp_path, postgres, table, **{"max.batch.size": "100"}) as workers:
            eventually(workers.found)
            table.commit((1, True), (2, False), (3000, True))
            workers.kill("task")
            table.put(*range(3001, 3200))
            workers.kill("server")
            table.delete(*range(3001, 3100))
            workers.kill("worker")
            table.put(1, 3)
            workers.await_all()
            table.check(workers.found())
    finally:
        table.drop()


@pytest.mark.whole
@pytest.mark.parametrize("what", ["task", "worker", "server"])
def test_no_kill_at_any_moment_loses_or_doubles_a_change(postgres, tmp_path, what):
    table = Table(postgres, 3000)
    try:
        restarts = {"restart.policy": "on-failure", "restart.delay.ms": "100", "restart.delay.max.ms": "200"}
        with Workers(tmp_path, postgres, table, **restarts, **{"max.batch.size": "50"}) as workers:
            eventually(workers.found)  # what is there before the slot is in the rows of the snapshot alone
            for number in range(8):
                seen = len(workers.found())
                table.put(*range(4000 + 300 * number, 4300 + 300 * number))
                table.delete(*range(1 + 20 * number, 20 + 20 * number))
                eventually(lambda seen=seen: len(workers.found()) > seen)
                workers.kill(what)
            workers.await_all()
            table.check(workers.found())
    finally:
        table.drop()
