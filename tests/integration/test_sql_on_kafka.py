"""Penstock SQL over a broker: catalog, rows, persistent, pull and push queries; a session that is killed."""

from __future__ import annotations

import itertools
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from penstock.errors import SqlError
from penstock.log.open import open_log
from penstock.sql.results import Rows, Stream
from penstock.sql.session import SqlSession
from penstock.tools.broker.process import Broker

from .test_sql_on_spark import records_of, running, wait_for

NUMBERS = itertools.count()


class Place:
    """Names of one test in a broker that others use too."""

    def __init__(self, broker: Broker, state: Path) -> None:
        self.name = f"sql{next(NUMBERS)}"
        self.config = {
            "bootstrap.servers": broker.settings.bootstrap_servers,
            "ksql.service.id": f"{self.name}_",
            "ksql.output.topic.name.prefix": f"{self.name}-",
            "statestore.cache.max.bytes": 0,
            "spark.master": "local[1]",
            "state.dir": str(state),
        }
        self.clicks = (
            "CREATE STREAM clicks (id INT KEY, page STRING, ms INT) "
            f"WITH (kafka_topic='{self.name}-clicks', format='JSON', partitions=2);"
        )

    def session(self, **more: Any) -> SqlSession:
        return SqlSession(self.config, **more)


@pytest.fixture
def place(kafka: Broker, tmp_path: Path) -> Place:
    return Place(kafka, tmp_path / "state")


def insert(session: SqlSession, *rows: tuple[int, str, int]) -> None:
    session.execute("".join(f"INSERT INTO clicks (id, page, ms) VALUES ({i}, '{page}', {ms});" for i, page, ms in rows))


def rows_of(session: SqlSession, query: str) -> list[tuple[Any, ...]]:
    (found,) = session.execute(query)
    assert isinstance(found, Rows)
    return sorted(found.rows)


def test_statements_queries_and_rows_over_a_broker(place: Place, spark: Any) -> None:
    with place.session(queries="wait", spark=spark) as session:
        session.execute(place.clicks)
        insert(session, (1, "/home", 120), (2, "/cart", 950), (1, "/home", 80))
        session.execute("CREATE TABLE pages AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;")
        session.catch_up()
        assert rows_of(session, "SELECT * FROM pages;") == [("/cart", 1), ("/home", 2)]
        assert rows_of(session, "SELECT n FROM pages WHERE page = '/home';") == [(2,)]
        insert(session, (9, "/help", 1))
        session.catch_up()
        assert rows_of(session, "SELECT n FROM pages WHERE page = '/help';") == [(1,)], "the open state has moved on"
        assert rows_of(session, "SELECT page FROM clicks WHERE ms > 100;") == [("/cart",), ("/home",)]
        session.execute("SET 'auto.offset.reset' = 'earliest';")
        (pushed,) = session.execute("SELECT page, n FROM pages EMIT CHANGES LIMIT 4;")
        assert isinstance(pushed, Stream)
        assert sorted(pushed) == [("/cart", 1), ("/help", 1), ("/home", 1), ("/home", 2)]
        with pytest.raises(SqlError, match="the list of aggregates was"):
            session.execute("CREATE OR REPLACE TABLE pages AS SELECT page, COUNT(ms) AS n FROM clicks GROUP BY page;")
    with place.session(queries="wait", spark=spark) as again:
        insert(again, (3, "/home", 5), (4, "/help", 900))
        again.execute(
            "CREATE OR REPLACE TABLE pages AS SELECT page, COUNT(*) AS n FROM clicks WHERE ms > 10 GROUP BY page;"
        )
        again.catch_up()
        assert rows_of(again, "SELECT * FROM pages;") == [("/cart", 1), ("/help", 2), ("/home", 2)]
        again.execute("DROP TABLE pages DELETE TOPIC;")
        eventually(lambda: f"{place.name}-PAGES" not in {topic.name for topic in again.log.topics()}, 30)
        assert not again.queries
    with place.session(queries="wait", spark=spark) as last:
        assert list(last.catalog.sources) == ["CLICKS"]


def counts(place: Place) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    with open_log(place.config["bootstrap.servers"]) as log:
        for partition in range(2):
            for key, value, _ in records_of(log, f"{place.name}-PAGES", partition):
                found.setdefault(json.loads(key or b"null"), []).append(json.loads(value or b"")["N"])
    return found


@pytest.mark.whole
@pytest.mark.faults
def test_a_killed_session_over_a_broker_comes_back_with_all_queries(place: Place) -> None:
    statements = place.clicks + (
        "CREATE STREAM homes AS SELECT * FROM clicks WHERE page LIKE '/h%';"
        "CREATE TABLE pages AS SELECT page, COUNT(*) AS n FROM homes GROUP BY page;"
    )

    def click(*pages: str) -> None:
        with place.session(queries="wait") as other:
            assert other.holder is not None
            insert(other, *[(1, page, 1) for page in pages])

    config = json.dumps(place.config)
    with running(config, statements) as process:
        wait_for(process, "RUNNING", 2)
        click("/home", "/x", "/home", "/help")
        eventually(lambda: counts(place) == {"/home": [1, 2], "/help": [1]}, 120, facts=lambda: counts(place))
        click("/home")
        process.send_signal(signal.SIGKILL)
        process.wait()
    with running(config) as process:
        wait_for(process, "RUNNING", 2)
        click("/help", "/home")
        wanted = {"/home": [1, 2, 3, 4], "/help": [1, 2]}
        eventually(lambda: counts(place) == wanted, 120, facts=lambda: counts(place))
