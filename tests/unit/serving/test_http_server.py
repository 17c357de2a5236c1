"""The guard of all HTTP servers, over real sockets: slow, many, large and foreign requests."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import ExitStack, suppress
from http import HTTPMethod
from importlib.util import find_spec

import httpx
import pytest

from penstock.errors import ConfigError, EnvironmentProblemError
from penstock.serving import CHANGING, READING, AccessRules, Certificate, HttpServer, Limits, listen, parse_users

LIMITS = Limits(connections=8, requests=2, header_bytes=4096, body_bytes=100, receive_s=1.0, idle_s=1.0, send_s=0.4)


class Application:
    """Answers with the request's body; ``/wait`` answers when it may, ``/fail`` fails, ``/large`` has no end."""

    def __init__(self):
        self.may_answer = threading.Event()

    async def __call__(self, scope, receive, send):
        if scope["path"] == "/fail":
            raise RuntimeError("a mistake")
        while scope["path"] == "/wait" and not self.may_answer.is_set():
            await asyncio.sleep(0.01)
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        if scope["path"] == "/large":
            for _ in range(1000):
                await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
def application():
    return Application()


@pytest.fixture
def server(application):
    made = HttpServer(
        application, listen("127.0.0.1", 0, "server"), limits=LIMITS,
        access=AccessRules(frozenset({"known.example"}), methods=READING | CHANGING),
    )  # fmt: skip
    made.start()
    yield made
    application.may_answer.set()
    made.close()


@pytest.fixture
def http(server):
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as client:
        yield client


def connect(server, sent=b""):
    made = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    made.sendall(sent)
    return made


def is_closed(connection):
    """Read until the server closes; a time-out of the test's own would be an error."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\nHost: 127", b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: a/b+json\r\nContent-Length: 50\r\n\r\n{"],
)  # fmt: skip
def test_a_connection_that_sends_too_little_is_closed(server, sent):
    with connect(server, sent) as connection:
        assert is_closed(connection)


def test_a_byte_now_and_then_does_not_put_the_deadline_off(server):
    with connect(server, b"GET / HTTP/1.1\r\n") as connection:
        connection.settimeout(0.05)
        for _ in range(200):
            try:
                connection.sendall(b"a")
                if not connection.recv(100):
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
        pytest.fail("the connection stays open while bytes come")


def test_an_answer_that_nobody_reads_is_given_up(server):
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        deadline = threading.Event()
        deadline.wait(1.5)  # longer than send_s: the server has closed its end by then
        assert is_closed(connection)


def test_connections_are_limited_and_come_free_again(server, http):
    held = [connect(server) for _ in range(20)]
    assert sum(is_closed(one) for one in held) == 20
    for one in held:
        one.close()
    assert http.get("/").status_code == 200


SLOW = {
    "nothing": b"",
    "half a request line": b"GET / HT",
    "half of the headers": b"GET / HTTP/1.1\r\nHost: 127",
    "half of the body": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{",
    "a response that is not read": b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "one request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "half a preface of HTTP/2": b"PRI * HTTP/2.0\r\n",
    "HTTP/2 without a request": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
}


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
def test_three_hundred_slow_clients_keep_nobody_out(application, sent):
    """All of them come first, and stay; the deadlines are minutes away. A request that is being served goes on."""
    patient = Limits(streams=8 if find_spec("h2") else 0, receive_s=600.0, idle_s=600.0, send_s=600.0)
    listener = listen("127.0.0.1", 0, "server")
    listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # a response waits from its first part on
    server = HttpServer(application, listener, limits=patient, access=AccessRules(methods=READING | CHANGING))
    server.start()
    with ExitStack() as open_ones:
        open_ones.callback(server.close)
        open_ones.callback(application.may_answer.set)
        working = open_ones.enter_context(connect(server, b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        kept = open_ones.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False))
        assert kept.get("/").status_code == 200
        for _ in range(300):
            slow = open_ones.enter_context(socket.socket())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", server.port))
            slow.settimeout(120)
            with suppress(ConnectionError):
                slow.sendall(sent)
                if sent in (SLOW["a response that is not read"], SLOW["one request"]):
                    slow.recv(1, socket.MSG_PEEK)  # until then it is being answered, and nobody's place
        for number in range(30):
            with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as good:
                assert good.post("/", json=number).content == b"%d" % number
        if sent != SLOW["one request"]:  # of those that wait alike, the one that has waited longest goes
            assert kept.get("/").status_code == 200
        application.may_answer.set()
        assert working.recv(100).startswith(b"HTTP/1.1 200")


def test_of_the_slow_ones_those_of_the_address_with_most_go_first(application):
    few = Limits(connections=4, receive_s=600.0, idle_s=600.0, send_s=600.0)
    server = HttpServer(application, listen("0.0.0.0", 0, "server"), limits=few, access=AccessRules())
    server.start()

    def connect_from(address):
        made = socket.socket()
        made.bind((address, 0))
        made.settimeout(30)
        made.connect(("127.0.0.1", server.port))
        return made

    with ExitStack() as open_ones:
        open_ones.callback(server.close)
        alone = open_ones.enter_context(connect_from("127.0.0.9"))
        many = [open_ones.enter_context(connect_from("127.0.0.2")) for _ in range(9)]
        assert all(is_closed(each) for each in many[:6])
        for each in (alone, *many[6:]):
            each.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert each.recv(100).startswith(b"HTTP/1.1 200")


def test_slow_bodies_take_no_place_of_requests(server, http):
    half = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
    with ExitStack() as open_ones:
        for _ in range(5):
            open_ones.enter_context(connect(server, half))
        threading.Event().wait(0.2)  # the application reads all of them by now
        assert [http.post("/", json=1).status_code for _ in range(3)] == [200] * 3


def test_requests_are_limited(server, application, http):
    line = b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(server, line) as first, connect(server, line) as second:
        while (answer := http.get("/")).status_code == 200:
            pass  # until both are being answered
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        application.may_answer.set()
        assert first.recv(100).startswith(b"HTTP/1.1 200")
        assert second.recv(100).startswith(b"HTTP/1.1 200")


def test_bodies_and_headers_are_limited(server, http):
    as_json = {"content-type": "application/json"}
    assert http.post("/", content=b"1" * 100, headers=as_json).status_code == 200
    assert http.post("/", content=b"1" * 101, headers=as_json).status_code == 413
    chunks = (b"1" * 60 for _ in range(5))  # without a length
    assert http.post("/", content=chunks, headers=as_json).status_code == 413
    assert http.get("/", headers={"x": "y" * 9000}).status_code == 431
    assert http.get("/").status_code == 200


@pytest.mark.parametrize(
    "sent", [b"\0\0\0\0", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", b"\x16\x03\x01" * 50, b"a" * 10_000]
)
def test_what_is_no_http(server, http, sent):
    with connect(server, sent) as connection:
        is_closed(connection)
    assert http.get("/").status_code == 200


@pytest.mark.parametrize("at_once", [True, False], ids=["with its head", "after the response has begun"])
def test_a_body_that_is_no_http_is_noted_by_nobody(at_once, caplog):
    """The application works on such a request, or has begun to answer: neither that nor the server's own answer fails."""
    arrived, ended = threading.Event(), threading.Event()

    async def application(scope, receive, send):
        if scope["method"] == "POST":
            start = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
            await send(start)
            arrived.set()
            while not at_once and (await receive())["type"] != "http.disconnect":
                pass
            await send({"type": "http.response.body", "body": b"ok"})
            ended.set()

    server = HttpServer(application, listen("127.0.0.1", 0, "server"), access=AccessRules(methods=READING | CHANGING))
    server.start()
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"no length\r\n"
    with connect(server, head + body if at_once else head) as connection:
        assert arrived.wait(30)
        if not at_once:
            connection.sendall(body)
        is_closed(connection)
    assert ended.wait(30)
    server.close()
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9", 200), ("localhost", 200), ("[::1]:80", 200), ("known.example:1", 200), (socket.gethostname(), 200),
        ("rebound.example", 421), ("127.0.0.1.rebound.example", 421), ("", 421), ("[", 421),
    ],
)  # fmt: skip
def test_hosts(http, host, status):
    assert http.get("/", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "application/json"}, 200),
        ({"content-type": "application/vnd.schemaregistry.v1+json; charset=utf-8"}, 200),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({}, 415),
        ({"content-type": "application/json", "origin": "http://elsewhere.example"}, 403),
        ({"content-type": "application/json", "origin": "null"}, 403),
        ({"content-type": "application/json", "sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "application/json", "sec-fetch-site": "same-origin"}, 200),
    ],
)
def test_requests_of_other_sites(http, headers, status):
    assert http.post("/", content=b"{}", headers=headers).status_code == status


@pytest.mark.logs_error("GET /fail could not be answered")
def test_a_mistake_of_the_application_is_answered_and_noted(http, caplog):
    answer = http.get("/fail")
    assert answer.status_code == 500
    assert answer.json() == {"error": {"code": 500, "message": "an error of the server; its log has the cause"}}
    assert "a mistake" in caplog.text


def test_a_port_or_certificate_that_cannot_be_had(server, tmp_path, application):
    with pytest.raises(EnvironmentProblemError, match="cannot listen"):
        listen("127.0.0.1", server.port, "server")
    with pytest.raises(EnvironmentProblemError, match="from 0 to 65535"):
        listen("127.0.0.1", 70_000, "server")
    bad = tmp_path / "server.pem"
    bad.write_text("no certificate")
    with pytest.raises(EnvironmentProblemError, match="certificate"):
        HttpServer(application, listen("127.0.0.1", 0, "x"), access=AccessRules(), certificate=Certificate(str(bad)))


def test_a_line_that_is_no_user_is_not_shown():
    with pytest.raises(ConfigError, match=r"users.txt, line 2") as refused:
        parse_users(["ann:1", "secret"], "users.txt")
    assert "secret" not in str(refused.value).partition("Hint")[0]


def test_users_are_asked_for_every_path(application):
    access = AccessRules(users={"ann": "sécret"}, realm="registry")
    made = HttpServer(application, listen("127.0.0.1", 0, "x"), access=access, limits=LIMITS)
    made.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{made.port}", trust_env=False) as http:
            for path in ("/", "/docs", "/openapi.json"):
                refused = http.get(path)
                assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Basic realm="registry"')
                assert json.loads(refused.content)["error"]["code"] == 401
            assert http.get("/", auth=("ann", "secret")).status_code == 401
            assert http.get("/", auth=("ann", "sécret")).status_code == 200
            assert http.get("/", headers={"authorization": "Basic ?"}).status_code == 401
    finally:
        made.close()


def test_only_methods_of_the_list_are_served_and_the_answer_names_them():
    rules = AccessRules()
    host = {"host": "127.0.0.1"}
    for method in HTTPMethod:
        refusal = rules.refusal(method.value, host)
        assert (refusal is None) == (method.value in READING), method
    refused = rules.refusal("DELETE", host)
    assert refused is not None
    assert (refused.status, dict(refused.headers)["allow"]) == (405, "GET, HEAD, OPTIONS")


def test_a_marked_request_needs_its_header_and_an_origin_of_this_server():
    rules = AccessRules(methods=READING | {"POST"}, mark="X-Penstock")
    host = {"host": "127.0.0.1:8080"}
    own = {**host, "origin": "http://127.0.0.1:8080", "x-penstock": "1"}
    assert rules.refusal("POST", own) is None
    assert rules.refusal("GET", host) is None
    for wrong in (
        host,
        {**own, "origin": "http://evil.example"},
        {name: value for name, value in own.items() if name != "origin"},
        {name: value for name, value in own.items() if name != "x-penstock"},
    ):
        refusal = rules.refusal("POST", wrong)
        assert refusal is not None
        assert refusal.status == 403


def test_every_answer_forbids_loading_and_framing(http):
    headers = http.get("/").headers
    assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
