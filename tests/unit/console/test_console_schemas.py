"""The page of schemas over a registry: subjects, versions, differences; changes for administrators."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from recorded import Recorded, recorded
from test_console_users import FILE, TOKENS

pytest.importorskip("confluent_kafka.schema_registry", reason="confluent-kafka is not installed: make setup")

from penstock.console import schemas as schemas_of_console
from penstock.console.schemas import Schemas, _indented, difference
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.console.web.site import Permissions
from penstock.console.web.visitors import Users
from penstock.serde.registry.service import Registry
from penstock.tools.registry_server import server as registry_server

SUBJECT = "shop/orders-value"


def order(*fields: str) -> str:
    made = [{"name": name, "type": "string", "default": ""} for name in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": made})


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """A registry of its own, over HTTP."""
    pytest.importorskip("fastapi", reason="fastapi is not installed: make setup")
    serving = registry_server(Registry(), port=0)
    serving.start()
    yield f"http://127.0.0.1:{serving.port}"
    serving.close()


@pytest.fixture(scope="module")
def server(registry: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    with recorded(tmp_path_factory.mktemp("console")) as data:
        yield from _serving(data, registry)


def _serving(data: Recorded, registry: str) -> Iterator[ConsoleServer]:
    users = Users.of(FILE.splitlines(), "users")
    data.site.permissions = Permissions(writes=True)
    limit = schemas_of_console._PATIENCE["timeout"]  # of a registry in this process, on a busy machine
    patient = {} if limit < 10 else {"schema.registry.timeout": "120"}
    data.site.schemas = schemas = Schemas({"schema.registry.url": registry, **patient})
    running = ConsoleServer(data.site, ConsoleAddress(port=0, admission=users))
    running.start()
    yield running
    running.close()
    schemas.close()


def client(server: ConsoleServer, name: str = "anna") -> httpx.Client:
    url = f"http://127.0.0.1:{server.port}"
    own = {"authorization": f"Bearer {TOKENS[name]}", "origin": url, "x-penstock": "1"}
    return httpx.Client(base_url=url, headers=own, trust_env=False, timeout=120)


def test_schemas_are_registered_compared_and_deleted(server: ConsoleServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.console.audit")
    with client(server) as anna:
        assert "The registry has no schemas." in anna.get("/schemas").text
        first = {"subject": SUBJECT, "type": "AVRO", "schema": order("id")}
        plan = anna.post("/api/v1/schemas?dry_run=true", json=first)
        assert plan.json()["note"] == "The subject is new."
        assert anna.get("/api/v1/schemas").json() == {"subjects": [], "compatibility": "BACKWARD"}
        assert anna.post("/api/v1/schemas", json=first).status_code == 200
        second = {**first, "schema": order("id", "city")}
        assert "It is compatible: BACKWARD" in anna.post("/api/v1/schemas?dry_run=true", json=second).json()["note"]
        assert anna.post("/api/v1/schemas", json=second).status_code == 200
        wrong = {**first, "schema": '{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}'}
        assert "It is not compatible" in anna.post("/api/v1/schemas?dry_run=true", json=wrong).json()["note"]
        refused = anna.post("/api/v1/schemas", json=wrong)
        assert refused.status_code >= 400
        assert "refuses to register" in refused.json()["error"]["message"]

        page = anna.get("/schemas", params={"subject": SUBJECT}).text
        assert "<ins>+       &#34;name&#34;: &#34;city&#34;,</ins>" in page
        assert "<del>" not in page
        back = anna.get("/schemas", params={"subject": SUBJECT, "version": 1, "against": 2}).text
        assert "<del>-       &#34;name&#34;: &#34;city&#34;,</del>" in back
        found = anna.get("/api/v1/schemas/subject", params={"name": SUBJECT}).json()
        assert (found["versions"], found["version"], found["kind"]) == ([1, 2], 2, "AVRO")

        level = {"subject": SUBJECT, "level": "NONE"}
        assert anna.post("/api/v1/schemas/compatibility", json=level).status_code == 200
        assert anna.post("/api/v1/schemas/compatibility", json={**level, "level": "SOME"}).status_code == 400
        assert "compatibility BACKWARD -> NONE" in caplog.text
        assert anna.post("/api/v1/schemas/delete", json={"subject": SUBJECT, "version": 1}).json()["versions"] == [1]
        assert anna.post("/api/v1/schemas/delete", json={"subject": SUBJECT}).json()["versions"] == [2]
        assert anna.get("/schemas", params={"subject": SUBJECT}).status_code == 404
    assert "anna (admin) at 127.0.0.1: register a schema: done: " in caplog.text


def test_others_read_alone(server: ConsoleServer) -> None:
    with client(server) as anna:
        anna.post("/api/v1/schemas", json={"subject": "read-value", "type": "JSON", "schema": '{"type": "string"}'})
    with client(server, "omar") as omar:
        page = omar.get("/schemas", params={"subject": "read-value"}).text
        assert "JSON" in page
        assert 'data-write="' not in page
        for path in ("schemas", "schemas/delete", "schemas/restore", "schemas/compatibility"):
            answer = omar.post(f"/api/v1/{path}", json={"subject": "read-value", "level": "NONE", "schema": "{}"})
            assert answer.status_code == 403


def test_what_is_not_there_or_wrong_is_said(server: ConsoleServer) -> None:
    with client(server) as anna:
        anna.post("/api/v1/schemas", json={"subject": "one-value", "type": "JSON", "schema": "{}"})
        for address in (
            "/schemas?subject=nobody",
            "/schemas?subject=one-value&version=9",
            "/schemas?subject=one-value&against=7",
        ):
            assert anna.get(address).status_code == 404
        assert "is a whole number" in anna.get("/schemas?subject=one-value&version=x").text
        for body in (
            {},
            {"subject": "x"},
            {"subject": "x", "schema": "{}", "type": "XML"},
            {"subject": 5, "schema": "{}"},
        ):
            assert anna.post("/api/v1/schemas", json=body).status_code == 400
        assert anna.post("/api/v1/schemas/delete", json={"subject": "one-value", "version": "1"}).status_code == 400


def test_a_registry_that_does_not_answer_is_a_note_on_the_page(tmp_path: Path) -> None:
    with recorded(tmp_path) as data:
        for running in _serving(data, "http://127.0.0.1:9"):
            with client(running) as anna:
                assert "cannot be reached to list the subjects" in anna.get("/schemas").text
            data.site.schemas = None
            with client(running) as anna:
                assert "No schema registry is known." in anna.get("/schemas").text
                assert anna.get("/api/v1/schemas").status_code == 404


def test_a_schema_that_was_deleted_is_registered_again(server: ConsoleServer) -> None:
    again = {"subject": "again-value", "type": "AVRO", "schema": order("id")}
    with client(server) as anna:
        for _ in range(3):
            assert anna.post("/api/v1/schemas", json=again).status_code == 200
            assert "again-value" in anna.get("/api/v1/schemas").json()["subjects"]
            assert anna.post("/api/v1/schemas/delete", json={"subject": "again-value"}).status_code == 200
            assert "again-value" not in anna.get("/api/v1/schemas").json()["subjects"]


def test_what_is_deleted_is_shown_restored_and_deleted_for_good(server: ConsoleServer) -> None:
    body = {"subject": "back-value", "type": "AVRO", "schema": order("id")}
    one = {"subject": "back-value", "version": 1}
    with client(server) as anna:
        assert anna.post("/api/v1/schemas", json=body).status_code == 200
        assert anna.post("/api/v1/schemas/restore", json=one).status_code == 409
        assert anna.post("/api/v1/schemas/delete", json={**one, "permanently": True}).status_code >= 400
        assert anna.post("/api/v1/schemas/delete", json=one).status_code == 200
        assert "back-value" not in anna.get("/schemas").text
        assert "back-value" in anna.get("/schemas?deleted=1").text
        page = anna.get("/schemas?subject=back-value&deleted=1").text
        assert 'data-write="/schemas/restore"' in page
        assert "Register a new version" not in page
        assert anna.post("/api/v1/schemas/restore", json=one).json()["version"] == 2
        found = anna.get("/api/v1/schemas/subject?name=back-value&deleted=true").json()
        assert (found["versions"], found["version"]) == ([1, 2], 2)
        assert "Register a new version" in anna.get("/schemas?subject=back-value&deleted=1").text
        assert anna.post("/api/v1/schemas/delete", json={**one, "permanently": "yes"}).status_code == 400
        gone = anna.post("/api/v1/schemas/delete", json={**one, "permanently": True}).json()
        assert gone["changes"] == ["back-value: versions 1 deleted permanently"]
        assert anna.get("/schemas?subject=back-value&version=1&deleted=1").status_code == 404
        assert anna.post("/api/v1/schemas/restore", json={"subject": "back-value"}).status_code == 400


def test_an_open_page_of_a_subject_says_that_it_is_gone(server: ConsoleServer) -> None:
    with client(server) as anna, client(server) as other:
        body = {"subject": "gone-value", "type": "JSON", "schema": "{}"}
        assert anna.post("/api/v1/schemas", json=body).status_code == 200
        with other.stream("GET", "/live", params={"of": "/schemas?subject=gone-value"}) as events:
            pages = (line for line in events.iter_lines() if line.startswith("data: "))
            assert "Register a new version" in next(pages)
            assert anna.post("/api/v1/schemas/delete", json={"subject": "gone-value"}).status_code == 200
            assert "there is no subject" in next(pages)


@pytest.mark.parametrize(
    ("status", "answer", "said", "shown"),
    [
        (200, b"<html>", 502, "is not the answer of a schema registry"),
        (200, b"7", 502, "is not the answer of a schema registry"),
        (401, b'{"error_code": 401, "message": "who?"}', 502, "refuses to list the subjects"),
        (500, b'{"error_code": 500, "message": "no"}', 502, "refuses to list the subjects"),
        (None, b"", 502, "cannot be reached to list the subjects"),
    ],
)
def test_what_is_no_registry_or_never_answers_is_said(
    status: int | None, answer: bytes, said: int, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if status is None:
                ended.wait()
                return
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    monkeypatch.setitem(schemas_of_console._PATIENCE, "timeout", 0.5 if status is None else 120.0)
    other = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=other.serve_forever, daemon=True)
    thread.start()
    try:
        with recorded(tmp_path) as data:
            for running in _serving(data, f"http://127.0.0.1:{other.server_port}"):
                with client(running) as anna:
                    assert shown in anna.get("/schemas").text
                    assert anna.get("/api/v1/schemas").status_code == said
    finally:
        ended.set()
        other.shutdown()
        thread.join()
        other.server_close()


def test_schemas_that_are_large_deep_or_from_windows_are_shown() -> None:
    before, after = ([f'"name": "{name}{n}",' for n in range(3000)] for name in ("column_", "field_"))
    lines = difference("\n".join(before), "\n".join(after))
    assert lines == [("-", line) for line in before] + [("+", line) for line in after]
    deep = "[" * 100_000 + "]" * 100_000
    assert _indented(deep) == deep
    assert _indented('syntax = "proto3";\r\nmessage A {}\r\n') == 'syntax = "proto3";\nmessage A {}\n'
