"""Sessions without Spark: statements, topics, the catalog that lasts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import InvalidStateError, LogError, SqlError
from penstock.log.open import open_log
from penstock.sql.results import QueryStarted, Status
from penstock.sql.session import SqlSession

CLICKS = "CREATE STREAM clicks (id INT KEY, page STRING) WITH (kafka_topic='clicks', format='JSON', partitions=2);"
PAGES = "CREATE TABLE pages AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;"


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "log.db")


@pytest.fixture
def session(place: str) -> Iterator[SqlSession]:
    with SqlSession({"bootstrap.servers": place}, queries="wait") as made:
        yield made


def again(place: str) -> SqlSession:
    return SqlSession({"bootstrap.servers": place}, queries="wait")


def test_a_stream_makes_its_topic_and_takes_rows(session: SqlSession) -> None:
    results = session.execute(CLICKS + "INSERT INTO clicks (id, page, rowtime) VALUES (7, '/home', 1000);")
    assert [result.text for result in results if isinstance(result, Status)] == [
        "Stream CLICKS created (topic clicks made)",
        "Inserted a row into CLICKS",
    ]
    assert session.log.partitions("clicks") == 2
    (batch,) = [b for p in range(2) for b in session.log.iterate("clicks", p, 0, session.log.end_offset("clicks", p))]
    record = batch.to_pylist()[0]
    assert (record["timestamp"], record["key"], json.loads(record["value"])) == (1000, b"7", {"PAGE": "/home"})


def test_a_missing_topic_is_refused_with_the_nearest_name(session: SqlSession) -> None:
    session.execute(CLICKS)
    with pytest.raises(SqlError) as raised:
        session.execute("CREATE STREAM c (page STRING) WITH (kafka_topic='click', value_format='JSON');")
    assert "Topic 'click' does not exist" in raised.value.message
    assert "Did you mean clicks?" in raised.value.hint
    assert "C" not in session.catalog.sources


def test_a_table_of_a_query_has_a_compacted_topic_with_the_partitions_of_its_source(session: SqlSession) -> None:
    (_, started) = session.execute(CLICKS + PAGES)
    assert isinstance(started, QueryStarted)
    assert started.id == "CTAS_PAGES_0"
    topic = session.log.topic("PAGES")
    assert (topic.partitions, topic.config["cleanup.policy"]) == (2, "compact")


def test_the_next_session_has_streams_queries_types_and_the_number_of_the_next_query(place: str) -> None:
    with again(place) as session:
        session.execute("CREATE TYPE point AS STRUCT<x INT, y INT>;" + CLICKS + PAGES)
        session.execute("PAUSE CTAS_PAGES_0;")
    with again(place) as session:
        assert list(session.catalog.types) == ["POINT"]
        assert session.catalog.sources["PAGES"].schema() == "`PAGE` STRING KEY, `N` BIGINT".replace(
            "KEY", "PRIMARY KEY"
        )
        assert session.queries["CTAS_PAGES_0"].state == "PAUSED"
        (_, started) = session.execute(
            "RESUME CTAS_PAGES_0; CREATE STREAM home AS SELECT * FROM clicks WHERE page = '/home';"
        )
        assert isinstance(started, QueryStarted)
        assert started.id == "CSAS_HOME_1"
    with again(place) as session:
        assert session.queries["CTAS_PAGES_0"].state == "CREATED"


def test_settings_of_a_query_last_with_it(place: str) -> None:
    with again(place) as session:
        session.execute("SET 'commit.interval.ms' = '500';" + CLICKS + PAGES)
    with again(place) as session:
        assert session.catalog.settings == {}
        assert dict(session.queries["CTAS_PAGES_0"].plan.settings)["commit.interval.ms"] == "500"


def test_a_changed_statement_of_the_journal_is_found(place: str) -> None:
    with again(place) as session:
        session.execute(CLICKS)
        session.execute("CREATE TYPE id AS INT;")
        topic = session._work.journal.topic
        session.log.delete_records(topic, 0, 1)
    with pytest.raises(LogError, match=r"statement 0 of the topic .* has another checksum"):
        again(place)


def test_a_second_session_may_look_but_not_change(session: SqlSession, place: str) -> None:
    session.execute(CLICKS)
    with again(place) as other:
        assert "CLICKS" in other.catalog.sources
        with pytest.raises(InvalidStateError, match="is in use by process"):
            other.execute("DROP STREAM clicks;")


def test_drop_delete_topic_deletes_the_topic(session: SqlSession) -> None:
    session.execute(CLICKS)
    session.execute("DROP STREAM clicks DELETE TOPIC;")
    assert "clicks" not in {topic.name for topic in session.log.topics()}
    assert not session.catalog.sources


def test_a_closed_session_says_so(place: str) -> None:
    session = again(place)
    session.close()
    session.close()
    with pytest.raises(InvalidStateError, match="closed"):
        session.execute("SHOW STREAMS;")


def test_statements_of_a_text_that_is_no_sql_do_not_run(session: SqlSession) -> None:
    with pytest.raises(SqlError, match="syntax error"):
        session.execute(CLICKS + "SELCT 1;")
    assert not session.catalog.sources
    assert open_log(session.settings.log).topics() == []
