"""The JDBC source under schedules of inserts, updates, late commits and restarts: no row is lost."""

import datetime as dt
import itertools
import tempfile
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from examples import examples
from mariadb_server import mariadb
from penstock.connect.connectors import sql_reading
from penstock.connect.connectors.sql_source import SqlSourceConnector
from penstock.connect.testing import ConnectTestDriver, Step
from postgres_server import postgres

__all__ = ["mariadb", "postgres"]

EVENTS = st.sampled_from(
    ["insert", "insert", "update", "begin", "late", "poll", "poll", "restart", "kill", "POLLED", "WRITTEN", "COMMITTED"]
)
MODES = st.sampled_from(["timestamp", "timestamp+incrementing"])
SCHEDULES = st.lists(EVENTS, min_size=3, max_size=14)
DELAYED = st.lists(
    st.sampled_from(["tick", "tick", "insert", "update", "begin", "late", "poll", "poll", "restart", "kill", "POLLED", "WRITTEN"]),
    min_size=3,
    max_size=20,
)  # fmt: skip
START_S, DELAY_S = 1_704_067_200, 3
NAMES = itertools.count()


class Shop:
    """A table whose rows carry the time of their last change.

    Args:
        url: The database; a new table is made in it.
        form: How times are written: numbers, texts, or times.
    """

    def __init__(self, url, form="times"):
        self._engine = create_engine(url)
        self._form, self._changes = form, 0
        self._open = None  # a transaction that has not committed yet
        self.table = f"t{next(NAMES)}"
        self.versions = {}
        kind = "DATETIME(3)" if "mariadb" in url else "TIMESTAMP"
        self._run(f"CREATE TABLE {self.table} (id BIGINT NOT NULL PRIMARY KEY, at {kind} NOT NULL, v BIGINT NOT NULL)")

    def insert(self):
        """Add a row."""
        self.commit()
        self._run(*self._insertion())

    def late(self):
        """Add two rows, of which the first commits after the second."""
        self.commit()
        if self._is_sqlite:
            return
        first, second = self._insertion(), self._insertion()
        with self._engine.connect() as connection:
            connection.execute(text(first[0]), first[1])
            self._run(*second)
            connection.commit()

    def begin(self):
        """Add a row and leave its transaction open, until the next change."""
        self.commit()
        if not self._is_sqlite:  # a database of one writer
            self._open = self._engine.connect()
            statement, values = self._insertion()
            self._open.execute(text(statement), values)

    def update(self):
        """Change the row that was changed longest ago, of those with the fewest changes."""
        self.commit()
        if self.versions:
            number = min(self.versions, key=lambda each: (self.versions[each], each))
            self.versions[number] += 1
            values = {"id": number, "v": self.versions[number], "at": self._time()}
            self._run(f"UPDATE {self.table} SET v = :v, at = :at WHERE id = :id", values)

    def settle(self):
        """Let all that is open end."""
        self.commit()

    def commit(self):
        """End the transaction that is open."""
        if self._open is not None:
            self._open.commit()
            self._open.close()
            self._open = None

    @property
    def _is_sqlite(self):
        return self._engine.url.drivername == "sqlite"

    def _insertion(self):
        number = len(self.versions) + 1
        self.versions[number] = 0
        return f"INSERT INTO {self.table} VALUES (:id, :at, 0)", {"id": number, "at": self._time()}

    def _time(self):
        """The time of a change: always a later one, as rows of one time that come later are not seen."""
        self._changes += 1
        return self._shown(START_S + self._changes)

    def _shown(self, seconds):
        if self._form == "numbers":
            return seconds * 1000
        when = dt.datetime.fromtimestamp(seconds, dt.UTC).replace(tzinfo=None)
        return when.isoformat(" ", "milliseconds") if self._form == "texts" else when

    def _run(self, statement, values=None):
        with self._engine.begin() as connection:
            connection.execute(text(statement), values or {})

    def close(self):
        """Drop the table."""
        self.commit()
        self._run(f"DROP TABLE {self.table}")
        self._engine.dispose()


@settings(max_examples=examples(25), deadline=None)
@given(
    MODES,
    SCHEDULES,
    st.sampled_from(["numbers", "texts"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
)
def test_the_last_version_of_each_row_comes_whatever_happens(mode, events, form, zone):
    with tempfile.TemporaryDirectory(prefix="jdbc-schedule-") as folder:
        url = f"sqlite:///{Path(folder) / 'shop.db'}"
        with closing(Shop(url, form)) as shop:
            assert dict(followed(url, shop, mode, events, zone)) == shop.versions


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_the_last_version_of_each_row_comes_from_servers_too(kind, request):
    server = request.getfixturevalue(kind)
    url = server.url
    if kind == "mariadb":
        url = f"{server.url}/schedules"
        with closing(server.connect()) as connection:
            connection.cursor().execute("CREATE DATABASE IF NOT EXISTS schedules")

    @settings(max_examples=examples(75), deadline=None, database=None)
    @given(MODES, SCHEDULES)
    def follow(mode, events):
        with closing(Shop(url)) as shop:
            assert dict(followed(url, shop, mode, events, "UTC")) == shop.versions

    follow()


class LateShop(Shop):
    """A shop whose rows have the time at which their transactions begin, which may end up to `DELAY_S` later.

    Args:
        url: The database; a new table is made in it.
        form: How times are written.
        clock: A statement that sets the clock of the server to a time; None: `clock_s` is that of the test.
    """

    def __init__(self, url, form="times", clock=None):
        super().__init__(url, form)
        self.clock_s, self._clock = START_S, clock
        self._begun = []  # transactions: their time, and the statement
        self._set_clock()

    def begin(self):
        """Begin a transaction with a row."""
        self._begun.append((self.clock_s, self._insertion()))

    def late(self):
        """End the transaction that has begun last."""
        self._end(self._begun[-1:])

    def update(self):
        """Change a row whose transaction has ended."""
        open_rows = {values["id"]: 0 for _, (_, values) in self._begun}
        versions, self.versions = self.versions, {n: v for n, v in self.versions.items() if n not in open_rows}
        super().update()
        self.versions = versions | self.versions

    def tick(self, seconds=1):
        """Let time pass, and end the transactions that must not last longer."""
        for _ in range(seconds):
            self._end([each for each in self._begun if each[0] + DELAY_S <= self.clock_s])
            self.clock_s += 1
            self._set_clock()

    def settle(self):
        self._end(list(self._begun))
        self.tick(DELAY_S + 1)

    def _time(self):
        return self._shown(self.clock_s)

    def _set_clock(self):
        if self._clock is not None:
            self._run(self._clock, {"seconds": self.clock_s})

    def _end(self, transactions):
        for each in transactions:
            self._begun.remove(each)
            self._run(*each[1])


@settings(max_examples=examples(25), deadline=None)
@given(MODES, DELAYED, st.sampled_from(["numbers", "texts"]))
def test_rows_that_are_committed_behind_later_ones_come_if_the_delay_covers_it(mode, events, form):
    with tempfile.TemporaryDirectory(prefix="jdbc-schedule-") as folder, pytest.MonkeyPatch.context() as patch:
        url = f"sqlite:///{Path(folder) / 'shop.db'}"
        with closing(LateShop(url, form)) as shop:
            patch.setattr(sql_reading, "time", SimpleNamespace(time_ns=lambda: shop.clock_s * 10**9))
            assert dict(followed(url, shop, mode, events, "UTC", delay_s=DELAY_S)) == shop.versions


CLOCK = """  -- a function that is found before that of the server
    CREATE SCHEMA own; CREATE TABLE own.clock AS SELECT {start} AS seconds;
    CREATE FUNCTION own.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT to_timestamp(seconds) FROM own.clock';
    ALTER ROLE postgres SET search_path = own, pg_catalog, public
"""


@pytest.mark.whole
def test_rows_that_are_committed_behind_later_ones_come_from_a_server_too(postgres):
    postgres.execute(CLOCK.format(start=START_S))
    try:

        @settings(max_examples=examples(75), deadline=None, database=None)
        @given(MODES, DELAYED)
        def follow(mode, events):
            with closing(LateShop(postgres.url, clock="UPDATE own.clock SET seconds = :seconds")) as shop:
                assert dict(followed(postgres.url, shop, mode, events, "UTC", delay_s=DELAY_S)) == shop.versions

        follow()
    finally:
        postgres.execute("ALTER ROLE postgres RESET search_path", "DROP SCHEMA own CASCADE")


@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
def test_without_a_delay_a_row_that_is_committed_behind_a_later_one_is_not_read(mode, tmp_path):
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with closing(LateShop(url, "texts")) as shop:
        events = ["begin", "tick", "insert", "poll", "late"]
        assert dict(followed(url, shop, mode, events, "UTC")) == {2: 0}


def followed(url, shop, mode, events, zone, delay_s=0):
    """The rows that the source writes while events happen, and until nothing more comes."""
    config = {
        "connection.url": url, "mode": mode, "timestamp.column.name": "at", "table.whitelist": shop.table, "db.timezone": zone,
        "topic.prefix": "", "poll.interval.ms": "0", "batch.max.rows": "2", "value.converter": "JsonConverter",
        "timestamp.delay.interval.ms": str(delay_s * 1000),
    }  # fmt: skip
    if "incrementing" in mode:
        config["incrementing.column.name"] = "id"
    driver = ConnectTestDriver(SqlSourceConnector, config)
    killed = []
    for event in events:
        before = [source.task for source in driver.sources]
        if hasattr(shop, event):
            getattr(shop, event)()
        elif event in ("poll", "restart", "kill"):
            getattr(driver, event)()
        else:
            driver.poll(crash=Step[event])
        killed += [task for task in before if task not in [source.task for source in driver.sources]]
    shop.settle()
    quiet = 0
    while quiet < 2:
        quiet = 0 if driver.poll() else quiet + 1
    driver.stop()
    for task in killed:
        task.stop()
    names = {info.name for info in driver.log.topics()}
    return [(r.value["id"], r.value["v"]) for r in driver.read(shop.table)] if shop.table in names else []
