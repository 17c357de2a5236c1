"""Servers that answer the HTTP source in all ways that HTTP allows, and in some that it does not (RFC 9110, 9112)."""

import gzip
import json
import socket
import time
import zlib

import pytest

from http_servers import JsonServer, RawServer, serving
from penstock.base.backoff import Backoff
from penstock.connect.connectors.http_requests import retry_after_s
from penstock.errors import ConnectError
from test_http_source import poll, poll_until, source

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[1,2]"


def raw(head, body=b"", *, length=True):
    size = f"Content-Length: {len(body)}\r\n" if length else ""
    return f"HTTP/1.1 {head}\r\n{size}\r\n".encode() + body


def chunked(*chunks, end=b"0\r\n\r\n"):
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + end


def packed(coding, data):
    return raw(f"200 OK\r\nContent-Encoding: {coding}", data)


@pytest.mark.parametrize(
    "answer",
    [
        chunked(b"[", b"1,", b"2]"),
        chunked(b"[1,2]", end=b"0\r\nTrailer-Field: x\r\n\r\n"),
        packed("gzip", gzip.compress(b"[1,2]", mtime=0)),
        packed("deflate", zlib.compress(b"[1,2]")),
        packed("gzip, gzip", gzip.compress(gzip.compress(b"[1,2]", mtime=0), mtime=0)),
        packed("identity", b"[1,2]"),
        raw("200 OK", b"[1,2]", length=False),  # it ends where the connection does
        raw("203 Non-Authoritative Information", b"[1,2]"),
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n" + GOOD,
        b"HTTP/1.0 200 OK\r\n\r\n[1,2]",
        raw("200", b"[1,2]"),  # without a reason
        raw("200 OK\r\nContent-Type: text/plain", b"[1,2]"),
        raw("200 OK", b"\xef\xbb\xbf[1,2]"),  # a byte order mark
        raw("200 OK\r\nContent-Type: application/json; charset=utf-16", "[1,2]".encode("utf-16")),
        raw("200 OK", "[1,2]".encode("utf-16-le")),
        raw("200 OK\r\nX: a\r\nX: b\r\nSet-Cookie: a=b", b" [1,2] \r\n"),
    ],
)
def test_a_right_answer_of_any_form_is_read(answer):
    with serving(RawServer(answer)) as server:
        assert poll(source(server, interval_ms=60_000), 1) == [1, 2]


def cut_off(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n[1,2")


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n[1,2")
    connection.close()


def trickle(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n[")
    for _ in range(100_000):
        connection.sendall(b" ")
        time.sleep(0.01)


def trickle_headers(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    for _ in range(100_000):
        connection.sendall(b"x")
        time.sleep(0.01)


def silence(connection):
    connection.settimeout(60)
    connection.recv(1)  # until the client hangs up


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"HTTP/1.1 200 OK\r\n", b"garbage\r\n\r\n", cut_off, reset, silence, trickle, trickle_headers,
        chunked(b"[1,2", end=b""), chunked(b"[1,2]", end=b"zz\r\n"), chunked(b"[1,2]", end=b"5\r\n,"),
        raw("200 OK\r\nContent-Length: 3", b"[1,2]"),  # two lengths
        raw("200 OK", b"[1,2", length=False), raw("200 OK", b'[1,"ab', length=False), raw("200 OK", b'{"items":', length=False),
        raw("500 Internal Server Error", b"<html>"), raw("502 Bad Gateway"), raw("503 Service Unavailable"), raw("504 Gateway Timeout"),
        raw("507 Insufficient Storage"), raw("408 Request Timeout"), raw("425 Too Early"), raw("429 Too Many Requests"),
    ],
)  # fmt: skip
def test_what_may_pass_is_asked_again_and_loses_nothing(answer, monkeypatch):
    monkeypatch.setattr("penstock.connect.connectors.http_source._BACKOFF", Backoff(0.01, 0.1))
    with serving(RawServer(answer, GOOD)) as server:
        driver = source(server, interval_ms=60_000, timeout_ms=2000)
        assert poll_until(driver, 2) == [1, 2]
        assert len(server.asked) >= 2


@pytest.mark.parametrize("answer", [raw("503 Service Unavailable"), cut_off, raw("200 OK", b"[1,2", length=False)])
def test_the_line_about_a_retry_names_no_secret_of_the_address(answer, monkeypatch, caplog):
    monkeypatch.setattr("penstock.connect.connectors.http_source._BACKOFF", Backoff(0.01, 0.1))
    with serving(RawServer(answer, GOOD)) as server:
        url = server.url.replace("//", "//ann:s3cr3t@")
        driver = source(server, url=f"{url}?page=7&token=s3cr3t", interval_ms=60_000)
        assert poll_until(driver, 2) == [1, 2]
    assert "/items?page=7" in caplog.text
    assert "is asked again" in caplog.text
    assert "s3cr3t" not in caplog.text


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (raw("400 Bad Request", b"no"), "answers 400: no"), (raw("401 Unauthorized\r\nWWW-Authenticate: Basic"), "answers 401"),
        (raw("403 Forbidden"), "answers 403"), (raw("404 Not Found"), "answers 404"), (raw("406 Not Acceptable"), "answers 406"),
        (raw("410 Gone"), "answers 410"), (raw("451 Unavailable For Legal Reasons"), "answers 451"),
        (raw("300 Multiple Choices"), "answers 300"), (raw("302 Found"), "answers 302"), (raw("305 Use Proxy"), "answers 305"),
        (raw("302 Found\r\nLocation: ftp://127.0.0.1/x"), "redirects to what is no HTTP"),
        (raw("200 OK", b"[1,2"), "does not answer JSON"),  # as long as it says
        (raw("200 OK", b"<html>", length=False), "does not answer JSON"),
        (raw("200 OK", b""), "does not answer JSON"),
        (packed("gzip", b"[1,2]"), "cannot be read"),
        (raw("200 OK\r\nContent-Type: application/json; charset=utf-16", b"[1,2]"), "does not answer JSON"),
        (raw("200 OK", b"[" * 100_000), "does not answer JSON"),
    ],
)  # fmt: skip
def test_what_would_fail_again_fails_the_task(answer, message):
    with serving(RawServer(answer)) as server, pytest.raises(ConnectError, match=message):
        source(server).poll()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "where", ["/moved?a=b", "moved", "?a=b", "http://127.0.0.1:PORT/moved", "//127.0.0.1:PORT/moved", "/moved#part"]
)
def test_redirections_are_followed_in_all_forms(status, where):
    def answer(query, _):
        if first:
            location = first.pop().replace("PORT", str(server.server_port))
            return status, b"moved", [("Location", location)]
        return 200, [1, 2]

    first = [where]
    with serving(JsonServer(answer)) as server:
        assert poll(source(server, interval_ms=60_000), 1) == [1, 2]


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [("0", 0.1, 0.1), ("-5", 0.1, 0.1), ("7", 7, 7), ("1e9", 300, 300), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.1, 0.1),
     ("Fri, 31 Dec 2100 23:59:59 GMT", 300, 300)],
)  # fmt: skip
def test_retry_after_is_obeyed_within_bounds(text, least, most):
    assert least <= retry_after_s(text) <= most


@pytest.mark.parametrize("text", ["soon", "", "nan", "inf", "2100-01-01", "Fri, 99 Dec 2100 23:59:59 GMT"])
def test_a_retry_after_that_says_nothing_is_not_obeyed(text):
    assert retry_after_s(text) is None


def test_pages_that_are_the_same_by_chance_are_all_read():
    pages = [["a"], ["b"], ["b"], ["b"], ["c"], ["c"], []]

    def answer(query, _):
        return 200, pages[int(query["page"]) - 1] if int(query["page"]) <= len(pages) else []

    with serving(JsonServer(answer)) as server:
        driver = source(server, pagination="page", interval_ms=60_000)
        assert poll_until(driver, 6) == ["a", "b", "b", "b", "c", "c"]


def test_the_last_page_again_and_again_comes_once_also_behind_a_crash():
    def answer(query, _):
        return 200, [min(int(query["page"]), 3)]

    with serving(JsonServer(answer)) as server:
        driver = source(server, pagination="page", interval_ms=60_000)
        assert poll_until(driver, 3) == [1, 2, 3]
        driver.restart()
        assert poll(driver, 3) == [1, 2, 3]


@pytest.mark.parametrize("ring", [1, 2, 3])
def test_links_in_a_ring_end_the_round(ring):
    def answer(query, _):
        page = int(query.get("p", 0))
        following = (page + 1) % ring
        return 200, [page], [("Link", f'<{server.url}{f"?p={following}" if following else ""}>; rel="next"')]

    with serving(JsonServer(answer)) as server:
        driver = source(server, pagination="link", interval_ms=60_000)
        assert poll_until(driver, ring) == list(range(ring))
        assert len(server.asked) == ring


def test_cursors_in_a_ring_do_not_come_without_a_pause():
    following = {None: "b", "b": "c", "c": "b"}

    def answer(query, _):
        cursor = query.get("cursor")
        return 200, {"items": [cursor], "next": following[cursor]}

    with serving(JsonServer(answer)) as server:
        driver = source(server, pagination="cursor", records_path="items", interval_ms=60_000)
        assert poll_until(driver, 3) == [None, "b", "c"]
        assert len(server.asked) == 3


def test_a_record_without_a_position_comes_once_and_ends_nothing():
    rows = [{"id": 1, "at": 5}, {"id": 2, "at": None}, {"id": 3}]

    def answer(*_):
        return 200, rows

    with serving(JsonServer(answer)) as server:
        driver = source(server, since_path="at")
        assert [each["id"] for each in poll(driver)] == [1, 2, 3]
        driver.restart()
        rows.append({"id": 4, "at": 6})
        rows[1] = {"id": 2, "at": 7}  # it has one now
        assert [each["id"] for each in poll(driver)] == [1, 2, 3, 2, 4]


def test_records_without_a_position_that_are_listed_no_more_are_forgotten(monkeypatch):
    monkeypatch.setattr("penstock.connect.connectors.http_source.MOST_EQUAL", 5)
    rounds = iter(
        [[*({"id": first + n, "at": None} for n in range(4)), {"id": -1, "at": 1}] for first in range(0, 80, 2)]
    )
    last = []

    def answer(*_):
        last[:] = next(rounds, last)
        return 200, last

    with serving(JsonServer(answer)) as server:
        driver = source(server, since_path="at", interval_ms=1)
        got = poll_until(driver, 83)
        assert [each["id"] for each in got] == [0, 1, 2, 3, -1, *range(4, 82)]
        ((_, offset),) = driver.offsets()
        assert len(offset["unplaced"]) <= 6
        driver.restart()
        assert len(poll(driver, 3)) == 83
        last.extend({"id": 100 + n} for n in range(2))
        with pytest.raises(ConnectError, match="more than 5 records of one round have no position"):
            poll_until(driver, 90)


def test_a_field_that_no_record_has_is_a_wrong_setting():
    wrong = JsonServer(lambda *_: (200, [{"id": 1}, {"id": 2}]))
    with serving(wrong) as server, pytest.raises(ConnectError, match=r"a record has null at since\.path"):
        source(server, since_path="changed_at").poll()


def test_a_body_without_end_is_bounded(monkeypatch):
    monkeypatch.setattr("penstock.connect.connectors.http_source.MOST_BYTES", 1000)
    body = json.dumps(list(range(1000))).encode()
    with (
        serving(RawServer(chunked(body, body, body))) as server,
        pytest.raises(ConnectError, match="Ask for smaller pages"),
    ):
        source(server).poll()
