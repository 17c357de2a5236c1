"""Requests of several clients at once: settings and variables of one are not seen by the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from penstock.sql.server import SqlService, server
from penstock.sql.session import SqlSession

USERS = "CREATE SOURCE TABLE users (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='users', format='JSON', partitions=1);"
NO_SCANS = {"ksql.query.pull.table.scan.enabled": "false"}
MANY_STATEMENTS = "".join(f"CREATE TYPE t{number} AS STRUCT<x INT>;" for number in range(60))


@pytest.fixture
def session(tmp_path) -> Iterator[SqlSession]:
    with SqlSession({"bootstrap.servers": str(tmp_path / "log.db")}, queries="wait") as made:
        yield made


@pytest.fixture
def http(session: SqlSession) -> Iterator[httpx.Client]:
    service = SqlService(session)
    served = server(service, port=0)
    served.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{served.port}", timeout=60) as client:
        yield client
    service.close()
    served.close()


def statements(http: httpx.Client, text: str, **more: Any) -> Any:
    answered = http.post("/ksql", json={"ksql": text, **more})
    assert answered.status_code == 200, answered.text
    return answered.json()


def test_settings_of_a_long_request_do_not_hold_for_queries_of_other_clients(http: httpx.Client) -> None:
    statements(http, USERS)
    others: list[int] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            others.append(http.post("/query", json={"ksql": "SELECT * FROM users;"}).status_code)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        statements(http, MANY_STATEMENTS, streamsProperties=NO_SCANS)
    finally:
        ended.set()
        asking.join()
    assert len(others) >= 3
    assert set(others) == {200}


def test_settings_of_a_request_hold_for_its_own_query(http: httpx.Client) -> None:
    statements(http, USERS)
    refused = http.post("/query", json={"ksql": "SELECT * FROM users;", "streamsProperties": NO_SCANS})
    assert refused.status_code == 400
    assert "table scan" in refused.json()["message"]


def test_set_and_define_of_a_request_end_with_it(http: httpx.Client, session: SqlSession) -> None:
    text = (
        "SET 'commit.interval.ms' = '500'; DEFINE topic = 'clicks';"
        "CREATE STREAM clicks (page STRING) WITH (kafka_topic='${topic}', value_format='JSON', partitions=1);"
        "CREATE STREAM homes AS SELECT * FROM clicks;"
        "UNSET 'commit.interval.ms'; CREATE STREAM others AS SELECT * FROM clicks; SHOW PROPERTIES; SHOW VARIABLES;"
    )
    *_, properties, variables = statements(http, text, sessionVariables={"town": "Oslo"})
    assert properties["overwrittenProperties"] == []
    assert [each["name"] for each in variables["variables"]] == ["TOPIC", "TOWN"]
    plans = {query.plan.sink: dict(query.plan.settings) for query in session.queries.values()}
    assert plans == {"HOMES": {"commit.interval.ms": "500"}, "OTHERS": {}}
    assert session.catalog.settings == {}
    assert session.catalog.variables == {}
    assert statements(http, "SHOW VARIABLES;")[0]["variables"] == []


def test_settings_of_the_session_hold_in_a_request_and_come_back_after_it(
    http: httpx.Client, session: SqlSession
) -> None:
    session.execute("SET 'commit.interval.ms' = '700'; DEFINE town = 'Oslo';")
    hidden = statements(http, "UNSET 'commit.interval.ms'; UNDEFINE town; SHOW PROPERTIES; SHOW VARIABLES;")
    assert [hidden[0]["overwrittenProperties"], hidden[1]["variables"]] == [[], []]
    (shown,) = statements(http, "SHOW PROPERTIES;")
    assert shown["overwrittenProperties"] == ["commit.interval.ms"]
    assert session.catalog.variables == {"TOWN": "Oslo"}


def test_alter_system_holds_for_all_requests(http: httpx.Client, session: SqlSession) -> None:
    statements(http, "ALTER SYSTEM 'commit.interval.ms' = '900';")
    assert session.catalog.settings == {"commit.interval.ms": "900"}
    assert statements(http, "SHOW PROPERTIES;")[0]["overwrittenProperties"] == ["commit.interval.ms"]


def test_settings_of_a_query_that_a_request_made_last_with_it(http: httpx.Client, session: SqlSession) -> None:
    text = (
        "CREATE STREAM clicks (page STRING) WITH (kafka_topic='clicks', value_format='JSON', partitions=1);"
        "CREATE STREAM homes AS SELECT * FROM clicks;"
    )
    statements(http, text, streamsProperties={"commit.interval.ms": 300})
    config = {"bootstrap.servers": session.settings.log}
    with SqlSession(config, queries="wait") as other:
        assert dict(other.queries["CSAS_HOMES_0"].plan.settings) == {"commit.interval.ms": "300"}


def test_no_more_push_queries_than_allowed_run_when_many_are_asked_for_at_once(session: SqlSession) -> None:
    session.execute(USERS)
    service = SqlService(session, most_queries=2)
    begin = threading.Barrier(8)
    taken, refused = [], []

    def ask() -> None:
        begin.wait()
        try:
            body = {"sql": "SELECT * FROM users EMIT CHANGES;"}
            taken.append(service.query(body, field="sql", settings="properties"))
        except Exception as error:  # noqa: BLE001 - collected
            refused.append(error)

    asking = [threading.Thread(target=ask) for _ in range(8)]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    assert (len(taken), len(refused)) == (2, 6), refused
    service.close()
