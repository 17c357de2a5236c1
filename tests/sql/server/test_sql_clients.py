"""The requests that clients of PyPI send to ksqlDB (ksql-python-ng 0.29, ksqldb 1.0): path, headers, body, what they read."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.sql.server import SqlService, server
from penstock.sql.session import SqlSession

HEADERS = {"Content-Type": "application/vnd.ksql.v1+json; charset=utf-8"}
CLICKS = (
    "CREATE stream clicks (user STRING KEY, ms INT) WITH (kafka_topic='clicks', value_format='JSON', partitions=1);"
)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with SqlSession({"bootstrap.servers": f"memory://{tmp_path.name}"}, queries="wait") as session:
        service = SqlService(session)
        serving = server(service, port=0, users={"key": "secret"})
        serving.start()
        yield f"http://127.0.0.1:{serving.port}"
        service.close()
        serving.close()


def send(url: str, path: str, body: dict[str, Any], headers: dict[str, str] = HEADERS) -> httpx.Response:
    basic = {"Authorization": f"Basic {base64.b64encode(b'key:secret').decode()}"}
    return httpx.post(f"{url}/{path}", content=json.dumps(body).encode(), headers={**headers, **basic}, timeout=120)


def ksql(url: str, text: str) -> Any:
    answered = send(url, "ksql", {"ksql": text, "streamsProperties": {}})
    return answered.json() if answered.status_code == 200 else answered.json()["error_code"]


def test_a_client_asks_for_the_version_with_a_content_type_and_no_body(url: str) -> None:
    found = httpx.get(f"{url}/info", headers=HEADERS, auth=("key", "secret")).json()
    assert found["KsqlServerInfo"]["version"]


def test_statements_lists_and_descriptions_have_the_fields_that_clients_read(url: str) -> None:
    assert ksql(url, CLICKS)[0]["commandStatus"]["status"] == "SUCCESS"
    made = (
        "CREATE stream slow WITH (kafka_topic='slow', value_format='JSON') AS SELECT user, ms FROM clicks WHERE ms > 3;"
    )
    assert ksql(url, made)[0]["@type"] == "currentStatus"
    assert isinstance(ksql(url, "show properties;")[0]["properties"], list)
    assert [each["name"] for each in ksql(url, "SHOW STREAMS;")[0]["streams"]] == ["CLICKS", "SLOW"]
    described = ksql(url, "DESCRIBE clicks EXTENDED")[0]["sourceDescription"]
    assert (described["readQueries"], described["writeQueries"]) == ([{"id": "CSAS_SLOW_0"}], [])
    assert ksql(url, "DESCRIBE nothing EXTENDED") == 40001, "which clients take for: there is none"


def test_a_query_comes_as_lines_of_one_array(url: str) -> None:
    ksql(url, CLICKS + "INSERT INTO clicks VALUES ('ann', 3); INSERT INTO clicks VALUES ('bob', 4);")
    properties = {"ksql.streams.auto.offset.reset": "earliest"}
    pushed = send(
        url, "query", {"ksql": "SELECT * FROM clicks EMIT CHANGES LIMIT 2;", "streamsProperties": properties}
    ).text.splitlines()
    assert (
        json.loads(pushed[0].removeprefix("[").removesuffix(","))["header"]["schema"] == "`USER` STRING, `MS` INTEGER"
    )
    assert json.loads(pushed[1].removesuffix(","))["row"]["columns"] == ["ann", 3]
    assert json.loads(pushed[-1].removesuffix("]"))["finalMessage"] == "Limit Reached"
    plain = {"Content-Type": "application/json"}
    rows = send(url, "query-stream", {"sql": "SELECT * FROM clicks;", "properties": {}}, plain).text.splitlines()
    assert [json.loads(row) for row in rows][1:] == [["ann", 3], ["bob", 4]]


@pytest.mark.parametrize(
    "kind", ["application/json", "application/x-www-form-urlencoded", "application/vnd.ksqlapi.delimited.v1", ""]
)
def test_requests_of_clients_are_read_whatever_content_type_they_name(url: str, kind: str) -> None:
    headers = {"Content-Type": kind} if kind else {}
    assert send(url, "close-query", {"queryId": "x"}, headers).json()["message"] == "No query with id x"
    assert send(url, "close-query", {"queryId": "x"}, {"Content-Type": "text/plain"}).status_code == 415


def test_clients_that_insist_on_http_2_insert_and_query_rows(url: str) -> None:
    pytest.importorskip("h2", reason="h2 is not installed: make setup")
    headers = {"Content-Type": "application/vnd.ksqlapi.delimited.v1"}
    with httpx.Client(http1=False, http2=True, base_url=url, headers=headers, auth=("key", "secret")) as client:
        assert client.post("/ksql", content=json.dumps({"ksql": CLICKS}).encode()).status_code == 200
        rows = [{"target": "clicks"}, *({"USER": f"u{number}", "MS": number} for number in range(3))]
        answered = client.post("/inserts-stream", content="\n".join(map(json.dumps, rows)))
        assert (answered.http_version, answered.text.count('"ok"')) == ("HTTP/2", 3)
        text = "SELECT * FROM clicks EMIT CHANGES LIMIT 2;"
        body = {"sql": text, "properties": {"auto.offset.reset": "earliest"}}
        with client.stream("POST", "/query-stream", content=json.dumps(body)) as pushed:
            lines = [json.loads(line) for line in pushed.iter_lines() if line]
        assert lines[1:] == [["u0", 0], ["u1", 1]]
