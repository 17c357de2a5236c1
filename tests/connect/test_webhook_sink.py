"""The webhook sink over servers that answer in all ways that HTTP allows, and in some that it does not."""

import gzip
import re
import socket
import ssl
import time
from collections import Counter

import pytest
import trustme

from http_servers import RawServer, serving
from penstock.connect.connectors.http_requests import AskedWait
from penstock.connect.connectors.webhook_sink import WebhookSinkConnector
from penstock.connect.data import DataError, RetriableError, SettingError
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError
from penstock.log import Producer, TopicPartition


def raw(head, body=b"", *, length=True):
    size = f"Content-Length: {len(body)}\r\n" if length else ""
    return f"HTTP/1.1 {head}\r\nConnection: close\r\n{size}\r\n".encode() + body


OK = raw("200 OK", b"{}")
TOLERANT = {"errors.tolerance": "all"}


@pytest.fixture
def sink():
    drivers = []

    def make(server, size=2, **more):
        settings = {"topics": "in", "url": server.url, "batch.size": size, "timeout.ms": 30_000}
        given = {name.replace("_", "."): value for name, value in more.items()}
        drivers.append(ConnectTestDriver(WebhookSinkConnector, {**settings, **given}))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.stop()


def put(driver):
    """Put until it succeeds: a connection that the server has closed shows it at the next request."""
    return next(filter(None, (driver.put() for _ in range(20))), [])


def hang_up(connection):
    connection.close()


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


def silence(connection):
    connection.settimeout(60)
    connection.recv(1)  # until the client hangs up


def trickle(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    for _ in range(100_000):
        connection.sendall(b" ")
        time.sleep(0.01)


def trickle_headers(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    for _ in range(100_000):
        connection.sendall(b"x")
        time.sleep(0.01)


def test_records_come_in_lists_and_only_what_failed_for_now_comes_again(sink):
    with serving(RawServer(OK, raw("503 Service Unavailable"), OK)) as server:
        driver = sink(server)
        driver.produce("in", {"n": 1}, {"n": 2}, {"n": 3})
        assert driver.put() == []
        assert len(put(driver)) == 3
        assert server.bodies == [[{"n": 1}, {"n": 2}], [{"n": 3}], [{"n": 3}]]
        driver.produce("in", {"n": 4})
        put(driver)
        assert server.bodies[-1] == [{"n": 4}]


def test_numbers_that_json_lacks_are_texts_and_one_record_alone_is_no_list(sink):
    with serving(RawServer(OK)) as server:
        driver = sink(server, 1, method="PUT", headers="X-A: b", authorization="Bearer x")
        driver.produce("in", {"n": float("nan"), "m": float("inf")})
        driver.put()
        assert server.bodies == [{"n": "NaN", "m": "Infinity"}]


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"HTTP/1.1 200 OK\r\n", b"garbage\r\n\r\n", hang_up, reset, silence, trickle_headers, raw("408 Request Timeout"),
        raw("425 Too Early"), raw("429 Too Many Requests"), raw("500 Internal Server Error", b"<html>"), raw("502 Bad Gateway"),
        raw("503 Service Unavailable\r\nRetry-After: soon"), raw("504 Gateway Timeout"), raw("507 Insufficient Storage"),
        raw("503 Service Unavailable\r\nContent-Encoding: gzip", b"no gzip"), raw("500 Oh\r\nContent-Length: 900", b"cut off", length=False),
    ],
)  # fmt: skip
def test_what_may_pass_is_sent_again(sink, answer):
    with serving(RawServer(answer, OK)) as server:
        driver = sink(server, timeout_ms=2000 if answer in (silence, trickle_headers) else 30_000)
        driver.produce("in", {"n": 1})
        assert driver.put() == []
        assert len(put(driver)) == 1
        assert server.bodies == [[{"n": 1}]] * 2


@pytest.mark.parametrize(
    "answer",
    [
        raw("200 OK"), raw("201 Created", b"x"), raw("202 Accepted"), b"HTTP/1.1 204 No Content\r\n\r\n", raw("200"), b"HTTP/1.0 200 OK\r\n\r\n",
        raw("207 Multi-Status", b"x"), raw("200 OK\r\nContent-Encoding: gzip", gzip.compress(b"{}", mtime=0)),
        raw("200 OK\r\nContent-Encoding: gzip", b"no gzip"), raw("200 OK\r\nContent-Length: 900", b"cut off", length=False),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz",
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK, raw("200 OK", b"x" * 1_000_000), trickle,
    ],
)  # fmt: skip
def test_an_answer_from_200_on_says_that_the_records_have_arrived_whatever_its_body(sink, answer):
    with serving(RawServer(answer, OK)) as server:
        driver = sink(server, timeout_ms=2000 if answer is trickle else 30_000)
        driver.produce("in", {"n": 1}, {"n": 2}, {"n": 3})
        assert len(put(driver)) == 3
        assert server.bodies == [[{"n": 1}, {"n": 2}], [{"n": 3}]]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (raw("401 Unauthorized", b"who?"), "answers 401: who"), (raw("403 Forbidden"), "answers 403"), (raw("404 Not Found"), "answers 404"),
        (raw("405 Method Not Allowed"), "answers 405"), (raw("410 Gone"), "answers 410"), (raw("415 Unsupported Media Type"), "answers 415"),
        (raw("300 Multiple Choices"), "answers 300"), (raw("304 Not Modified"), "answers 304"), (raw("308 Permanent Redirect"), "answers 308"),
        (raw("307 Temporary Redirect\r\nLocation: ftp://127.0.0.1/x"), "redirects to what is no HTTP"),
        (raw("307 Temporary Redirect\r\nLocation: /items"), "redirects more than 20 times"),
        *((raw(f"{status} Moved\r\nLocation: /there"), f"answers {status} and names http://127.0.0.1:[0-9]+/there, which would get no records")
          for status in (301, 302, 303)),
    ],
)  # fmt: skip
def test_what_would_fail_again_whatever_the_records_fails_the_task(sink, answer, message):
    with serving(RawServer(answer)) as server:
        for tolerance in ({}, TOLERANT):
            driver = sink(server, **tolerance)
            driver.produce("in", {"n": 1}, {"n": 2})
            with pytest.raises(ConnectError) as caught:
                driver.put()
            assert re.search(message, f"{caught.value.message} {caught.value.__cause__}")
            assert driver.group_offsets() == {}


@pytest.mark.parametrize("status", [307, 308])
def test_redirections_that_keep_the_body_are_followed(sink, status):
    with serving(RawServer(raw(f"{status} Moved\r\nLocation: /there?a=b"), OK)) as server:
        driver = sink(server, authorization="Bearer x")
        driver.produce("in", {"n": 1})
        put(driver)
        assert server.asked == ["/items", "/there?a=b"]
        assert server.bodies == [[{"n": 1}]] * 2


def test_secrets_and_records_do_not_follow_a_redirection_to_another_server(sink):
    with serving(RawServer(OK)) as other, serving(RawServer(raw(f"307 Moved\r\nLocation: {other.url}"))) as server:
        driver = sink(server, authorization="Bearer x")
        driver.produce("in", {"n": 1})
        with pytest.raises(ConnectError, match="redirects to another server"):
            driver.put()
        assert other.asked == []
        driver = sink(server)
        driver.produce("in", {"n": 1})
        put(driver)
        assert other.bodies == [[{"n": 1}]]


@pytest.mark.parametrize("text", ["100", "Fri, 31 Dec 2100 23:59:59 GMT"])
@pytest.mark.parametrize("status", [429, 503])
def test_nothing_is_sent_before_the_time_that_the_server_names(sink, status, text):
    with serving(RawServer(raw(f"{status} Wait\r\nRetry-After: {text}"), OK)) as server:
        driver = sink(server)
        driver.produce("in", {"n": 1})
        for _ in range(3):
            assert driver.put() == []
            assert driver.sinks[0].context.take_timeout_ms(1000) == 10_000
        assert len(server.asked) == 1
        driver.restart()
        assert len(put(driver)) == 1


@pytest.mark.parametrize("text", ["0", "-1", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_a_time_that_is_over_is_no_wait(sink, text):
    with serving(RawServer(raw(f"429 Wait\r\nRetry-After: {text}"), OK)) as server:
        driver = sink(server)
        driver.produce("in", {"n": 1})
        assert driver.put() == []
        assert driver.sinks[0].context.take_timeout_ms(0) <= 100  # 0: it was over at once
        driver.sinks[0].task._wait._clock = lambda: time.monotonic() + 1
        assert len(put(driver)) == 1


def test_the_wait_that_is_asked_for_ends():
    class Context:
        def timeout(self, timeout_ms):
            waits.append(timeout_ms)

    class Answer:
        headers = {"Retry-After": "25"}  # noqa: RUF012

    now, waits = [100.0], []
    wait = AskedWait(lambda: now[0])
    wait.keep(Context(), "x")
    wait.note(Answer)
    for second in (0, 10, 20):
        now[0] = 100.0 + second
        with pytest.raises(RetriableError, match=f"x {25 - second} s more"):
            wait.keep(Context(), "x")
    now[0] = 125.0
    wait.keep(Context(), "x")
    assert waits == [10_000, 10_000, 5000]


class Picky(RawServer):
    """Refuses requests with a record whose number is 13, and those of more than so many records."""

    def __init__(self, status, most=1000):
        super().__init__(self.judge)
        self.status, self.most, self.taken = status, most, []

    def judge(self, connection):
        body = self.bodies[-1]
        if len(body) > self.most:
            connection.sendall(raw("413 Content Too Large"))
        elif any(each["n"] == 13 for each in body):
            connection.sendall(raw(f"{self.status} No", b"13 is not a number"))
        else:
            self.taken += [each["n"] for each in body]
            connection.sendall(OK)


class Reporter:
    def __init__(self):
        self.reported = []

    def report(self, record, error):
        self.reported.append((record.value["n"], error.message))


@pytest.mark.parametrize("status", [400, 409, 413, 422])
def test_a_record_that_is_refused_is_reported_alone_and_the_others_arrive_once(sink, status):
    with serving(Picky(status)) as server:
        driver = sink(server, 5, **TOLERANT)
        driver.produce("in", *({"n": n} for n in range(20)))
        reporter = driver.sinks[0].task.context.errant_record_reporter = Reporter()
        assert len(put(driver)) == 20
        assert server.taken == [n for n in range(20) if n != 13]
        ((number, message),) = reporter.reported
        assert number == 13
        assert f"in-0, offset 13 is refused: {server.url} answers {status}: 13 is not a number" in message


def test_a_record_that_is_refused_is_reported_once_though_the_batch_comes_again(sink):
    with serving(Picky(422)) as server:
        driver = sink(server, 5, **TOLERANT)
        driver.produce("in", *({"n": n} for n in range(20)))
        reporter = driver.sinks[0].task.context.errant_record_reporter = Reporter()
        judge, failures = server.judge, [1]

        def fail_behind_it(connection):
            if failures and 16 in [each["n"] for each in server.bodies[-1]]:
                failures.pop()
                connection.sendall(raw("503 Later"))
            else:
                judge(connection)

        server.answers = [fail_behind_it]
        assert driver.put() == []
        assert len(put(driver)) == 20
        assert [number for number, _ in reporter.reported] == [13]
        assert Counter(server.taken) == Counter(n for n in range(20) if n != 13)


def test_partitions_that_go_do_not_bring_again_what_has_arrived_of_the_others(sink):
    with serving(RawServer(OK, OK, raw("503 Later"), OK)) as server:
        driver = sink(server, 1)
        driver.log.create_topic("in", 2)
        for partition in (0, 1):
            with Producer(driver.log) as producer:
                for n in range(2):
                    producer.send("in", b'{"n": %d}' % (10 * partition + n), partition=partition)
        driver.rebalance(1)  # the task gets them
        assert driver.put() == []
        (kept,) = {record["n"] // 10 for record in server.bodies[:2]}
        driver.sinks[0].assign([TopicPartition("in", kept)])
        put(driver)
        assert [record["n"] for record in server.bodies if record["n"] // 10 == kept] == [10 * kept, 10 * kept + 1]


def test_dead_letters_are_written_by_the_worker_path_too(sink):
    with serving(Picky(400)) as server:
        driver = sink(server, 5, **TOLERANT)
        driver.produce("in", {"n": 12}, {"n": 13}, {"n": 14})
        put(driver)
        assert server.taken == [12, 14]
        assert next(iter(driver.group_offsets().values())).offset == 3


def test_without_tolerance_a_refused_list_fails_the_task_and_names_its_records(sink):
    with serving(Picky(400)) as server:
        driver = sink(server, 3)
        driver.produce("in", {"n": 12}, {"n": 13}, {"n": 14})
        with pytest.raises(
            DataError, match=r"answers 400: 13 is not a number \(the records from in-0, offset 0 to in-0, offset 2"
        ):
            driver.put()
        assert server.taken == []


def test_a_list_that_is_too_large_is_sent_by_halves(sink):
    with serving(Picky(400, most=3)) as server:
        driver = sink(server, 10)
        driver.produce("in", *({"n": n} for n in range(10)))
        assert len(put(driver)) == 10
        assert server.taken == list(range(10))


@pytest.mark.parametrize("step", [Step.READ, Step.PUT, Step.FLUSHED, Step.COMMITTED])
def test_no_record_is_lost_wherever_the_task_crashes(sink, step):
    with serving(Picky(400)) as server:
        driver = sink(server, 2)
        driver.produce("in", *({"n": n} for n in range(5)))
        driver.put(crash=step)
        driver.put_all()
        assert set(server.taken) == set(range(5))
        assert len(server.taken) == (10 if step in (Step.PUT, Step.FLUSHED) else 5)


def test_a_server_that_is_away_is_asked_again(sink):
    with serving(RawServer(OK)) as server:
        driver = sink(server)
    driver.produce("in", {"n": 1})
    assert driver.put() == []
    driver.stop()


def test_a_certificate_that_nobody_trusts_fails_the_task_and_one_that_is_trusted_does_not(sink, monkeypatch, tmp_path):
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = RawServer(OK)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        url = server.url.replace("http:", "https:")
        driver = sink(server, url=url)
        driver.produce("in", {"n": 1})
        with pytest.raises(ConnectError, match=r"certificate of .* is not trusted: unable to get local issuer"):
            driver.put()
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        driver = sink(server, url=url)
        driver.produce("in", {"n": 2})
        assert len(put(driver)) == 1
        assert server.bodies == [[{"n": 2}]]


def test_a_server_without_tls_behind_an_address_with_it_is_asked_again(sink):
    with serving(RawServer(OK)) as server:
        driver = sink(server, url=server.url.replace("http:", "https:"))
        driver.produce("in", {"n": 1})
        assert driver.put() == []


def test_errors_name_no_secret_of_the_address(sink):
    with serving(RawServer(raw("403 Forbidden"))) as server:
        driver = sink(server, url=server.url.replace("//", "//ann:s3cr3t@") + "?token=s3cr3t")
        driver.produce("in", {"n": 1})
        with pytest.raises(ConnectError) as caught:
            driver.put()
        assert "s3cr3t" not in f"{caught.value}{caught.value.__cause__}"


@pytest.mark.parametrize(
    ("name", "value"),
    [("url", "ftp://x/"), ("url", "nothing"), ("method", "GET"), ("batch.size", "0"), ("timeout.ms", "0"), ("headers", "no-colon")],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(name, value):
    with pytest.raises(SettingError, match=name):
        ConnectTestDriver(WebhookSinkConnector, {"topics": "in", "url": "http://127.0.0.1:1/", name: value})
