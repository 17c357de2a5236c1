"""The JDBC source under schedules of inserts, updates, late commits and restarts: no row is lost."""

import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from penstock.connect.connectors.sql_source import SqlSourceConnector
from penstock.connect.testing import ConnectTestDriver, Step

EVENTS = st.sampled_from(
    ["insert", "insert", "update", "poll", "poll", "restart", "kill", "POLLED", "WRITTEN", "COMMITTED"]
)
START_S = 1_704_067_200


class Shop:
    """A table whose rows carry the time of their last change; several changes share one time."""

    def __init__(self, url):
        self._engine = create_engine(url)
        self._changes = 0
        self.versions = {}
        self._run("CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, at TIMESTAMP NOT NULL, v BIGINT NOT NULL)")

    def insert(self):
        """Add a row."""
        number = len(self.versions) + 1
        self.versions[number] = 0
        self._run("INSERT INTO t VALUES (:id, :at, 0)", id=number, at=self._time())

    def update(self):
        """Change the row that was changed longest ago, of those with the fewest changes."""
        if self.versions:
            number = min(self.versions, key=lambda each: (self.versions[each], each))
            self.versions[number] += 1
            self._run(
                "UPDATE t SET v = :v, at = :at WHERE id = :id", id=number, v=self.versions[number], at=self._time()
            )

    def _time(self):
        """The time of a change: always a later one, as rows of one time that come later are not seen."""
        self._changes += 1
        return (START_S + self._changes) * 1000

    def _run(self, statement, **values):
        with self._engine.begin() as connection:
            connection.execute(text(statement), values)

    def close(self):
        """Close the connections."""
        self._engine.dispose()


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["timestamp", "timestamp+incrementing"]), st.lists(EVENTS, min_size=3, max_size=14))
def test_the_last_version_of_each_row_comes_whatever_happens(mode, events):
    with tempfile.TemporaryDirectory(prefix="jdbc-schedule-") as folder:
        url = f"sqlite:///{Path(folder) / 'shop.db'}"
        with closing(Shop(url)) as shop:
            read = dict(followed(url, shop, mode, events))
            assert read == shop.versions


def followed(url, shop, mode, events):
    """The rows that the source writes while events happen, and until nothing more comes."""
    config = {
        "connection.url": url, "mode": mode, "timestamp.column.name": "at", "table.whitelist": "t",
        "topic.prefix": "", "poll.interval.ms": "0", "batch.max.rows": "2", "value.converter": "JsonConverter",
    }  # fmt: skip
    if "incrementing" in mode:
        config["incrementing.column.name"] = "id"
    driver = ConnectTestDriver(SqlSourceConnector, config)
    killed = []
    for event in events:
        before = [source.task for source in driver.sources]
        if event in ("insert", "update"):
            getattr(shop, event)()
        elif event in ("poll", "restart", "kill"):
            getattr(driver, event)()
        else:
            driver.poll(crash=Step[event])
        killed += [task for task in before if task not in [source.task for source in driver.sources]]
    quiet = 0
    while quiet < 2:
        quiet = 0 if driver.poll() else quiet + 1
    driver.stop()
    for task in killed:
        task.stop()
    names = {info.name for info in driver.log.topics()}
    return [(record.value["id"], record.value["v"]) for record in driver.read("t")] if "t" in names else []
