"""HTTP/2: requests on one connection, their limits, clients that go, and clients that break the rules."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from penstock.serving import CHANGING, READING, AccessRules, HttpServer, Limits, listen

connection = pytest.importorskip("h2.connection", reason="h2 is not installed: make setup")
events = pytest.importorskip("h2.events", reason="h2 is not installed: make setup")
SettingCodes = pytest.importorskip("h2.settings", reason="h2 is not installed: make setup").SettingCodes

JSON = {"content-type": "application/json"}
LARGE = 300_000


class Echo:
    """An application that answers with what it gets, streams without an end, or notes that its client has gone."""

    def __init__(self) -> None:
        self.left = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, message = b"", await receive()
        while message["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
            message = await receive()
        headers = [(b"x-version", scope["http_version"].encode()), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["path"] == "/endless":
            watching = asyncio.create_task(receive())
            while not watching.done():
                await send({"type": "http.response.body", "body": b"a line\n", "more_body": True})
                await asyncio.sleep(0.01)
            self.left.set()
            return
        if scope["path"] == "/error":
            raise ValueError("half a response")
        await send({"type": "http.response.body", "body": body or b"%d" % len(scope["query_string"])})


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture(params=[False], ids=["patient"])
def port(echo: Echo, request: pytest.FixtureRequest) -> Iterator[int]:
    """Of a server whose deadlines are minutes away, unless the test asks for short ones."""
    receive_s, idle_s = (0.5, 1.0) if request.param else (600.0, 600.0)
    limits = Limits(body_bytes=LARGE, streams=8, receive_s=receive_s, idle_s=idle_s)
    serving = HttpServer(
        echo, listen("127.0.0.1", 0, "test server"), access=AccessRules(methods=READING | CHANGING), limits=limits
    )
    serving.start()
    yield serving.port
    serving.close()


@pytest.fixture
def http(port: int) -> Iterator[httpx.Client]:
    with httpx.Client(http1=False, http2=True, base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        yield client


IMPATIENT = pytest.mark.parametrize("port", [True], indirect=True, ids=["impatient"])


class Raw:
    """A client that may do what is not allowed."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.h2 = connection.H2Connection()
        self.h2.initiate_connection()
        self.port = port

    def request(self, number: int, method: str = "GET", *, end: bool = True, path: str = "/") -> None:
        pseudo = [(":method", method), (":path", path), (":scheme", "http"), (":authority", f"127.0.0.1:{self.port}")]
        self.h2.send_headers(number, [*pseudo, ("content-type", "application/json")], end_stream=end)

    def send(self, data: bytes | None = None) -> None:
        self.socket.sendall(self.h2.data_to_send() if data is None else data)

    def until(self, kind: type) -> list[Any]:
        """The events until one of a kind, or until the server closes the connection."""
        found: list[Any] = []
        while not any(isinstance(event, kind) for event in found):
            try:
                data = self.socket.recv(65536)
                if not data:
                    return [*found, events.ConnectionTerminated()]
                found += self.h2.receive_data(data)
                self.send()
            except (ConnectionResetError, BrokenPipeError):  # with bytes that the server has not read
                return [*found, events.ConnectionTerminated()]
        return found


@pytest.fixture
def raw(port: int) -> Iterator[Raw]:
    client = Raw(port)
    yield client
    client.socket.close()


def test_one_connection_has_many_requests(http: httpx.Client) -> None:
    body = bytes(range(256)) * (LARGE // 256)
    answered = http.post("/?a=1", content=body, headers=JSON)
    assert (answered.http_version, answered.headers["x-version"]) == ("HTTP/2", "2")
    assert answered.content == body, "more than a window of either side"
    assert "connection" not in answered.headers
    assert http.get("/?abc=1").text == "5"
    assert http.head("/").content == b""


def test_the_guard_stands_before_it(http: httpx.Client, port: int) -> None:
    assert http.post("/", content=b"1" * (LARGE + 1), headers=JSON).status_code == 413
    assert http.get("/", headers={"host": "rebound.example"}).status_code == 421
    assert http.post("/", content=b"{}", headers=JSON | {"origin": "http://elsewhere.example"}).status_code == 403
    assert httpx.get(f"http://127.0.0.1:{port}/?ab").text == "2", "HTTP/1.1 is there too"


def test_a_response_without_an_end_comes_beside_others(http: httpx.Client, echo: Echo) -> None:
    with http.stream("GET", "/endless") as answered:
        lines = answered.iter_lines()  # kept: an iterator that is thrown away resets the stream
        assert next(lines) == "a line"
        assert http.get("/?four").text == "4"
    http.close()
    assert echo.left.wait(60)


def test_a_client_that_takes_its_request_back_ends_the_response(raw: Raw, echo: Echo) -> None:
    raw.request(1, path="/endless")
    raw.send()
    raw.until(events.DataReceived)
    raw.h2.reset_stream(1)
    raw.send()
    assert echo.left.wait(60)


@pytest.mark.logs_error("GET /error could not be answered")
def test_half_a_response_is_an_error_of_the_client(http: httpx.Client) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        http.get("/error")


def test_a_preface_in_pieces_is_one(raw: Raw) -> None:
    raw.request(1)
    data = raw.h2.data_to_send()
    for start in range(0, len(data), 10):
        raw.send(data[start : start + 10])
        time.sleep(0.002)
    assert any(isinstance(event, events.StreamEnded) for event in raw.until(events.StreamEnded))


@IMPATIENT
def test_half_a_request_is_reset_and_a_connection_without_one_closed(raw: Raw) -> None:
    raw.request(1, "POST", end=False)
    raw.send()
    assert any(isinstance(event, events.StreamReset) for event in raw.until(events.StreamReset))
    assert any(isinstance(event, events.ConnectionTerminated) for event in raw.until(events.ConnectionTerminated))


@pytest.mark.parametrize(
    "data", [b"\x00" * 100, b"\xff" * 100, b"GET / HTTP/1.1\r\n\r\n"], ids=["zeros", "ones", "a request of HTTP/1.1"]
)
@IMPATIENT
def test_bytes_that_are_no_frames_end_the_connection(raw: Raw, data: bytes) -> None:
    raw.send()
    raw.send(data)
    assert any(isinstance(event, events.ConnectionTerminated) for event in raw.until(events.ConnectionTerminated))


def test_a_client_that_takes_back_all_its_requests_is_sent_away(raw: Raw) -> None:
    for number in range(1, 301, 2):
        raw.request(number)
        raw.h2.reset_stream(number)
    with suppress(ConnectionResetError, BrokenPipeError):  # it may be sent away before it has said all
        raw.send()
    assert any(isinstance(event, events.ConnectionTerminated) for event in raw.until(events.ConnectionTerminated))


def test_a_window_that_settings_make_negative_is_no_room(raw: Raw) -> None:
    """Smaller settings take back what the client has allowed (RFC 9113, 6.9.2): the rest waits for its windows."""
    body = b"x" * 300
    raw.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 100})
    raw.request(1, "POST", end=False)
    raw.h2.send_data(1, body, end_stream=True)
    raw.send()
    found = raw.until(events.DataReceived)
    for size in (50, 10, 0):
        raw.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: size})
        raw.send()
        found += raw.until(events.SettingsAcknowledged)
    for size in (60, 40, 200):  # from -100 to -40, 0 and 200
        raw.h2.increment_flow_control_window(size, stream_id=1)
        raw.send()
    found += raw.until(events.StreamEnded)
    assert not any(isinstance(event, events.StreamReset | events.ConnectionTerminated) for event in found)
    assert b"".join(event.data for event in found if isinstance(event, events.DataReceived)) == body
