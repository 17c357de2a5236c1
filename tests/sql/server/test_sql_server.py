"""The REST interface of ksqlDB: its endpoints over a session, as clients call them."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from penstock.sql.server import SqlService, server
from penstock.sql.session import SqlSession

CLICKS = (
    "CREATE STREAM clicks (user STRING KEY, ms INT) WITH (kafka_topic='clicks', value_format='JSON', partitions=1);"
)
JSON = {"content-type": "application/vnd.ksql.v1+json"}
DELIMITED = "application/vnd.ksqlapi.delimited.v1"


class Client:
    """Requests to a server of a session of its own."""

    def __init__(self, session: SqlSession, users: dict[str, str] | None = None, most_queries: int = 32) -> None:
        self.session = session
        self.service = SqlService(session, most_queries=most_queries)
        self.server = server(self.service, port=0, users=users)
        self.server.start()
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.server.port}", headers=JSON, timeout=120)

    def ksql(self, text: str, **more: Any) -> httpx.Response:
        return self.http.post("/ksql", json={"ksql": text, **more})

    def close(self) -> None:
        self.service.close()
        self.http.close()
        self.server.close()


@pytest.fixture
def session(tmp_path) -> Iterator[SqlSession]:
    with SqlSession({"bootstrap.servers": str(tmp_path / "log.db")}, queries="wait") as made:
        yield made


@pytest.fixture
def client(session: SqlSession) -> Iterator[Client]:
    made = Client(session)
    yield made
    made.close()


def test_statements_have_statuses_that_can_be_looked_up(client: Client) -> None:
    answered = client.ksql(CLICKS)
    assert answered.status_code == 200
    (found,) = answered.json()
    assert found["@type"] == "currentStatus"
    assert found["commandId"] == "stream/`CLICKS`/create"
    assert found["commandStatus"]["status"] == "SUCCESS"
    assert found["statementText"] == CLICKS
    assert found["warnings"] == []
    assert client.http.get("/status/stream/`CLICKS`/create").json()["status"] == "SUCCESS"
    assert client.http.get("/status").json() == {"commandStatuses": {"stream/`CLICKS`/create": "SUCCESS"}}
    assert client.http.get("/status/stream/`OTHER`/create").status_code == 404


def test_lists_and_descriptions_have_the_models_form(client: Client) -> None:
    client.ksql(CLICKS + "CREATE TYPE point AS STRUCT<x INT, y INT>; DEFINE town = 'Oslo';")
    (streams,) = client.ksql("SHOW STREAMS;").json()
    assert streams["@type"] == "streams"
    assert streams["streams"] == [
        {
            "type": "STREAM",
            "name": "CLICKS",
            "topic": "clicks",
            "keyFormat": "KAFKA",
            "valueFormat": "JSON",
            "isWindowed": False,
        }
    ]
    kinds = {
        "SHOW TABLES;": "tables",
        "SHOW TOPICS;": "kafka_topics",
        "SHOW QUERIES;": "queries",
        "SHOW FUNCTIONS;": "function_names",
        "SHOW PROPERTIES;": "properties",
        "SHOW TYPES;": "type_list",
        "SHOW VARIABLES;": "variables",
    }
    assert {text: client.ksql(text).json()[0]["@type"] for text in kinds} == kinds
    described = client.ksql("DESCRIBE clicks;").json()[0]["sourceDescription"]
    assert [field["name"] for field in described["fields"]] == ["USER", "MS"]
    assert described["fields"][0]["type"] == "KEY"
    assert described["fields"][1]["schema"]["type"] == "INTEGER"
    assert client.ksql("DESCRIBE FUNCTION ucase;").json()[0]["@type"] == "describe_function"


def test_a_refused_statement_names_its_place_and_keeps_what_came_before(client: Client) -> None:
    answered = client.ksql(CLICKS + "DROP STREAM klicks;")
    assert answered.status_code == 400
    found = answered.json()
    assert found["@type"] == "statement_error"
    assert found["error_code"] == 40001
    assert found["statementText"].startswith("DROP STREAM klicks")
    assert "KLICKS does not exist" in found["message"]
    assert [entity["@type"] for entity in found["entities"]] == ["currentStatus"]


def test_a_text_that_is_no_statement_is_refused_with_its_line_and_column(client: Client) -> None:
    found = client.ksql("SELEKT 1;").json()
    assert found["error_code"] == 40001
    assert "line 1:1" in found["message"]


def test_queries_have_an_endpoint_of_their_own(client: Client) -> None:
    client.ksql(CLICKS)
    found = client.ksql("SELECT * FROM clicks;").json()
    assert found["error_code"] == 40002
    found = client.http.post("/query", json={"ksql": "SHOW STREAMS;"}).json()
    assert found["error_code"] == 40001
    assert "/ksql" in found["message"]


def test_a_pull_query_is_an_array_of_objects(client: Client) -> None:
    client.ksql(CLICKS + "INSERT INTO clicks VALUES ('ann', 1); INSERT INTO clicks VALUES ('bob', 2);")
    answered = client.http.post("/query", json={"ksql": "SELECT * FROM clicks;"})
    header, first, second, last = answered.json()
    assert header["header"]["schema"] == "`USER` STRING, `MS` INTEGER"
    assert [first, second] == [{"row": {"columns": ["ann", 1]}}, {"row": {"columns": ["bob", 2]}}]
    assert last == {"finalMessage": "Query Completed"}


def test_query_stream_has_lines_or_one_array(client: Client) -> None:
    client.ksql(CLICKS + "INSERT INTO clicks VALUES ('ann', 1);")
    body = {"sql": "SELECT * FROM clicks;"}
    lines = client.http.post("/query-stream", json=body, headers={"accept": DELIMITED})
    assert lines.headers["content-type"].startswith(DELIMITED)
    header, row = map(json.loads, lines.text.splitlines())
    assert header == {"queryId": None, "columnNames": ["USER", "MS"], "columnTypes": ["STRING", "INTEGER"]}
    assert row == ["ann", 1]
    array = client.http.post("/query-stream", json=body, headers={"accept": "application/json"}).json()
    assert array == [header, row]
    objects = client.http.post("/query-stream", json=body, headers={"accept": "application/vnd.ksql.v1+json"}).json()
    assert objects[1] == {"row": {"columns": ["ann", 1]}}


def test_a_push_query_sends_rows_as_they_come_and_can_be_closed(client: Client) -> None:
    client.ksql(CLICKS)
    body = {"sql": "SELECT user, ms FROM clicks EMIT CHANGES;", "properties": {"auto.offset.reset": "earliest"}}
    with client.http.stream("POST", "/query-stream", json=body, headers={"accept": DELIMITED}) as answered:
        lines = answered.iter_lines()
        header = json.loads(next(lines))
        assert header["queryId"]
        client.ksql("INSERT INTO clicks VALUES ('ann', 1);")
        assert json.loads(next(lines)) == ["ann", 1]
        client.ksql("INSERT INTO clicks VALUES ('bob', 2);")
        assert json.loads(next(lines)) == ["bob", 2]
        assert client.http.post("/close-query", json={"queryId": header["queryId"]}).status_code == 200
        assert list(lines) == []
    again = client.http.post("/close-query", json={"queryId": header["queryId"]})
    assert again.status_code == 400
    assert "No query with id" in again.json()["message"]


def test_a_push_query_whose_client_goes_ends(client: Client) -> None:
    client.ksql(CLICKS)
    body = {"sql": "SELECT * FROM clicks EMIT CHANGES;"}
    with client.http.stream("POST", "/query-stream", json=body) as answered:
        lines = answered.iter_lines()  # kept: an iterator that is thrown away closes the connection
        next(lines)
        assert len(client.service._running) == 1
    waited = threading.Event()
    for _ in range(100):
        if not client.service._running:
            break
        waited.wait(0.05)
    assert not client.service._running


def test_the_number_of_push_queries_is_bounded(session: SqlSession) -> None:
    made = Client(session, most_queries=1)
    try:
        made.ksql(CLICKS)
        body = {"sql": "SELECT * FROM clicks EMIT CHANGES;"}
        with made.http.stream("POST", "/query-stream", json=body) as answered:
            lines = answered.iter_lines()
            next(lines)
            refused = made.http.post("/query-stream", json=body)
            assert refused.status_code == 429
    finally:
        made.close()


def test_print_sends_a_line_a_record_at_the_endpoint_of_queries(client: Client) -> None:
    client.ksql(CLICKS + "INSERT INTO clicks (rowtime, user, ms) VALUES (1000, 'ann', 3);")
    printed = client.http.post("/query", json={"ksql": "PRINT clicks FROM BEGINNING LIMIT 1;"})
    assert printed.headers["content-type"].startswith("text/plain")
    assert printed.text.splitlines() == [
        "Key format: KAFKA",
        "Value format: JSON",
        "rowtime: 1970/01/01 00:00:01.000 Z, key: ann, value: 3, partition: 0",
    ]
    refused = client.http.post("/query", json={"ksql": "PRINT klicks;"})
    assert refused.status_code == 400
    assert "Did you mean clicks?" in refused.json()["message"]
    assert client.http.post("/query-stream", json={"sql": "PRINT clicks;"}).status_code == 400


def test_a_limit_ends_a_push_query(client: Client) -> None:
    client.ksql(CLICKS + "INSERT INTO clicks VALUES ('ann', 1);")
    body = {
        "ksql": "SELECT user FROM clicks EMIT CHANGES LIMIT 1;",
        "streamsProperties": {"ksql.streams.auto.offset.reset": "earliest"},
    }
    found = client.http.post("/query", json=body).json()
    assert found[1:] == [{"row": {"columns": ["ann"]}}, {"finalMessage": "Limit Reached"}]


def test_rows_are_inserted_and_acknowledged(client: Client) -> None:
    client.ksql(CLICKS)
    lines = ['{"target": "clicks"}', '{"user": "ann", "ms": 1}', '{"USER": "bob", "MS": 2}', '{"user": "cem", "x": 3}']
    answered = client.http.post("/inserts-stream", content="\n".join(lines))
    acks = [json.loads(line) for line in answered.text.splitlines()]
    assert [(ack["status"], ack["seq"]) for ack in acks] == [("ok", 0), ("ok", 1), ("error", 2)]
    assert "no column x" in acks[2]["message"]
    found = client.http.post("/query", json={"ksql": "SELECT user, ms FROM clicks;"}).json()
    assert [line["row"]["columns"] for line in found if "row" in line] == [["ann", 1], ["bob", 2]]
    wrong = client.http.post("/inserts-stream", content='{"target": "klicks"}\n{"a": 1}')
    assert wrong.status_code == 400
    assert "Did you mean CLICKS?" in wrong.json()["message"]


def test_inserted_decimals_are_exact_and_a_bad_value_names_its_column(client: Client) -> None:
    client.ksql(
        "CREATE STREAM paid (id INT KEY, sum DECIMAL(38, 20)) WITH (kafka_topic='paid', value_format='JSON', partitions=1);"
    )
    number = "123456789012345678.12345678901234567890"
    lines = ['{"target": "paid"}', f'{{"id": 1, "sum": {number}}}', '{"id": "one", "sum": 1}']
    acks = [
        json.loads(line) for line in client.http.post("/inserts-stream", content="\n".join(lines)).text.splitlines()
    ]
    assert [ack["status"] for ack in acks] == ["ok", "error"]
    assert acks[1]["error_code"] == 40000
    assert "the value of column ID is not an INTEGER" in acks[1]["message"]
    assert number in client.http.post("/query", json={"ksql": "SELECT sum FROM paid;"}).text


def test_settings_and_variables_of_a_request_hold_for_it_alone(client: Client) -> None:
    client.ksql(CLICKS, streamsProperties={"ksql.sink.partitions": "3"})
    assert "ksql.sink.partitions" not in client.session.catalog.settings
    client.ksql("SET 'auto.offset.reset'='earliest';")
    assert "auto.offset.reset" not in client.session.catalog.settings
    found = client.ksql("DESCRIBE ${which};", sessionVariables={"which": "clicks"}).json()
    assert found[0]["sourceDescription"]["name"] == "CLICKS"
    wrong = client.ksql("SHOW STREAMS;", streamsProperties={"ksql.sink.partitionz": "3"})
    assert wrong.status_code == 400
    assert "ksql.sink.partitionz" in wrong.json()["message"]


def test_information_about_the_server(client: Client) -> None:
    info = client.http.get("/info").json()["KsqlServerInfo"]
    assert info["serverStatus"] == "RUNNING"
    assert info["ksqlServiceId"] == "default_"
    assert client.http.get("/healthcheck").json()["isHealthy"] is True
    assert client.http.get("/is_valid_property/auto.offset.reset").json() is True
    assert client.http.get("/is_valid_property/ksql.nothing.of.this").status_code == 400
    assert client.http.get("/clusterStatus").json()["clusterStatus"]
    assert client.http.get("/nothing").json()["error_code"] == 40400


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"", 400), (b"[]", 400), (b"{", 400), (b'{"ksql": 1}', 400), (b'{"ksql": "  "}', 400), (b"[" * 5000, 400)],
    ids=["empty", "a list", "half", "a number", "blanks", "deep"],
)
def test_a_bad_body_is_refused_without_a_stack_trace(client: Client, content: bytes, status: int) -> None:
    answered = client.http.post("/ksql", content=content)
    assert answered.status_code == status
    assert answered.json()["@type"] == "generic_error"
    assert "Traceback" not in answered.text


def test_users_have_passwords(session: SqlSession) -> None:
    made = Client(session, users={"ann": "secret"})
    try:
        assert made.http.get("/info").status_code == 401
        token = base64.b64encode(b"ann:secret").decode()
        assert made.http.get("/info", headers={"authorization": f"Basic {token}"}).status_code == 200
    finally:
        made.close()


def test_requests_of_other_sites_and_forms_are_refused(client: Client) -> None:
    foreign = client.http.post("/ksql", json={"ksql": "SHOW STREAMS;"}, headers={"origin": "https://evil.example"})
    assert foreign.status_code == 403
    form = {"content-type": "application/x-www-form-urlencoded"}
    for page in (
        {"origin": str(client.http.base_url)},
        {"sec-fetch-site": "same-origin"},
        {"referer": "https://a.example"},
    ):
        refused = client.http.post("/ksql", content=b'{"ksql": "SHOW STREAMS;"}', headers=form | page)
        assert (refused.status_code, refused.json()["error_code"]) == (415, 41500)
    assert client.http.post("/ksql", content=b'{"ksql": "SHOW STREAMS;"}', headers=form).status_code == 200
