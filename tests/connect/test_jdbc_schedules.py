"""The JDBC source under schedules of inserts, updates, late commits and restarts: no row is lost."""

import datetime as dt
import itertools
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from examples import examples
from mariadb_server import mariadb
from penstock.connect.connectors.sql_source import SqlSourceConnector
from penstock.connect.testing import ConnectTestDriver, Step
from postgres_server import postgres

__all__ = ["mariadb", "postgres"]

EVENTS = st.sampled_from(
    ["insert", "insert", "update", "begin", "late", "poll", "poll", "restart", "kill", "POLLED", "WRITTEN", "COMMITTED"]
)
MODES = st.sampled_from(["timestamp", "timestamp+incrementing"])
SCHEDULES = st.lists(EVENTS, min_size=3, max_size=14)
START_S = 1_704_067_200
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
        seconds = START_S + self._changes
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


@settings(max_examples=25, deadline=None)
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


def followed(url, shop, mode, events, zone):
    """The rows that the source writes while events happen, and until nothing more comes."""
    config = {
        "connection.url": url, "mode": mode, "timestamp.column.name": "at", "table.whitelist": shop.table, "db.timezone": zone,
        "topic.prefix": "", "poll.interval.ms": "0", "batch.max.rows": "2", "value.converter": "JsonConverter",
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
    shop.commit()
    quiet = 0
    while quiet < 2:
        quiet = 0 if driver.poll() else quiet + 1
    driver.stop()
    for task in killed:
        task.stop()
    names = {info.name for info in driver.log.topics()}
    return [(r.value["id"], r.value["v"]) for r in driver.read(shop.table)] if shop.table in names else []
