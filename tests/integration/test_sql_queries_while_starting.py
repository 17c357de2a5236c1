"""Queries that are terminated, paused or replaced while a server is starting them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from eventually import eventually
from penstock.sql.server import SqlService, server
from penstock.sql.session import SqlSession

CLICKS = "CREATE STREAM clicks (page STRING) WITH (kafka_topic='clicks', value_format='JSON', partitions=1);"
COPIES = "".join(f"CREATE STREAM copy{number} AS SELECT * FROM clicks;" for number in range(5))


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return {"bootstrap.servers": str(tmp_path / "log.db"), "state.dir": str(tmp_path / "state")}


@pytest.fixture
def served(spark: Any, config: dict[str, Any]) -> Iterator[tuple[SqlSession, httpx.Client]]:
    """A server that has just begun to start five queries of an earlier session."""
    with SqlSession(config, queries="wait") as earlier:
        earlier.execute(CLICKS + COPIES)
    with SqlSession(config, spark=spark) as session:
        service = SqlService(session)
        made = server(service, port=0)
        made.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{made.port}", timeout=120) as client:
            yield session, client
        service.close()
        made.close()


def pages(session: SqlSession, topic: str) -> list[str]:
    batches = session.log.iterate(topic, 0, 0, session.log.end_offset(topic, 0))
    return [json.loads(row["value"])["PAGE"] for batch in batches for row in batch.to_pylist()]


def test_a_query_that_is_ended_or_paused_while_others_start_does_not_start(
    served: tuple[SqlSession, httpx.Client],
) -> None:
    session, http = served
    text = "TERMINATE CSAS_COPY4_4; PAUSE CSAS_COPY3_3; DROP STREAM copy2; RESUME CSAS_COPY1_1;"
    answered = http.post("/ksql", json={"ksql": text})
    assert answered.status_code == 200, answered.text

    def states() -> dict[str, str]:
        return {query.id: query.state for query in session.queries.values()}

    wanted = {"CSAS_COPY0_0": "RUNNING", "CSAS_COPY1_1": "RUNNING", "CSAS_COPY3_3": "PAUSED"}
    eventually(lambda: states() == wanted, 120, facts=states)
    assert http.post("/ksql", json={"ksql": "INSERT INTO clicks VALUES ('/a');"}).status_code == 200
    for topic in ("COPY0", "COPY1"):
        eventually(lambda topic=topic: pages(session, topic) == ["/a"], 120)
    assert [pages(session, topic) for topic in ("COPY2", "COPY3", "COPY4")] == [[], [], []]
    for query_id in ("CSAS_COPY2_2", "CSAS_COPY3_3", "CSAS_COPY4_4"):
        assert session.log.lease(session.settings.application_id(query_id)) is None


def test_a_session_that_is_closed_while_its_queries_start_leaves_none_behind(
    spark: Any, config: dict[str, Any]
) -> None:
    with SqlSession(config, queries="wait") as earlier:
        earlier.execute(CLICKS + COPIES)
    with SqlSession(config, spark=spark) as session:
        queries = list(session.queries.values())
    assert [query.state for query in queries] == ["CREATED"] * 5
    assert [query for query in queries if query.app is not None] == []


def test_an_empty_answer_says_that_the_query_of_its_table_is_still_starting(spark: Any, config: dict[str, Any]) -> None:
    pages_ = "CREATE TABLE pages AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;"
    with SqlSession(config, spark=spark) as session:
        *_, first = session.execute(CLICKS + "INSERT INTO clicks VALUES ('/a');" + pages_ + "SELECT * FROM pages;")
        assert first.rows in ((), (("/a", 1),))
        # one that runs by then, and has not come to the row, has no note either
        assert first.note in (("",) if first.rows else ("", "CTAS_PAGES_0 is still starting"))
        eventually(lambda: session.table("pages").rows == (("/a", 1),), 120)
        assert session.table("pages").note == ""
        session.execute("PAUSE CTAS_PAGES_0;")
        (found,) = session.execute("SELECT * FROM pages WHERE page = '/b';")
        assert (found.rows, found.note) == ((), "CTAS_PAGES_0 is paused")
