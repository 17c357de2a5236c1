from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import closing, suppress
from dataclasses import replace
from typing import cast

import pytest
from epoch_support import EPOCH, plan_of_tasks

from eventually import eventually
from penstock.engines.threads.hosting.control_channel import (
    FIRST_LINE_BYTES,
    ControlAddress,
    ControlClient,
    ControlLines,
    ControlServer,
    Member,
    encode_line,
    mac_of,
)
from penstock.engines.threads.hosting.epoch_job import ContinuousJob
from penstock.engines.threads.hosting.thread_host import ThreadHost
from penstock.errors import AppFailedError, FencedError

SECRET = b"s" * 32
HELLO = {"thread": "thread-0", "epoch": 3, "host": "here", "pid": 1}
ME = Member("thread-0", 3)


class Driver:
    def __init__(self, most: int = 10) -> None:
        self.heard: list[tuple[Member, dict]] = []
        self.server = ControlServer(SECRET, lambda *one: self.heard.append(one), most=most)

    def client(self, secret: bytes = SECRET, patience_s: float = 60.0, hello=HELLO) -> ControlClient:
        return ControlClient(
            ControlAddress("127.0.0.1", self.server.port, secret, patience_s, 0.05), hello, lambda: {"records_in": 7}
        )

    def close(self) -> None:
        self.server.close()


@pytest.fixture
def driver():
    with closing(Driver()) as made:
        yield made


def test_a_thread_says_hello_reports_and_is_asked_to_stop(driver: Driver) -> None:
    with closing(driver.client()) as thread:
        eventually(lambda: len(driver.heard) > 3)
        assert driver.heard[0] == (ME, {"hello": HELLO})
        assert driver.heard[1][1]["report"] == {"records_in": 7}
        assert driver.server.send(ME, {"assign": ["0_0"]})
        assert thread.assignment(60.0) == ["0_0"]
        assert thread.send({"error": "text"}, 60.0)
        assert any(message.get("error") == "text" for _, message in driver.heard)
        assert not thread.has_to_stop
        driver.server.send(ME, {"stop": True})
        eventually(lambda: thread.has_to_stop)


def test_a_thread_is_told_of_lists_and_of_its_end_and_of_nothing_else(driver: Driver) -> None:
    with closing(driver.client()) as thread:
        told: list[bool] = []
        thread.on_news = lambda: told.append(thread.has_to_stop)
        eventually(lambda: len(driver.heard) > 3)
        driver.server.send(ME, {"pace": {}})
        eventually(lambda: thread.newest("pace") is not None)
        assert told == []
        driver.server.send(ME, {"assign": ["0_0"]})
        driver.server.send(ME, {"stop": True})
        eventually(lambda: told == [False, True])


def test_no_report_of_a_running_thread_follows_its_last_one(driver: Driver) -> None:
    host = ThreadHost(cast("ContinuousJob", None), "thread-0")
    address = ControlAddress("127.0.0.1", driver.server.port, SECRET, 60.0, 0.005)
    with closing(ControlClient(address, HELLO, host.report)) as thread:
        eventually(lambda: len(driver.heard) > 3)
        assert thread.send({"report": host.ended()}, 60.0)
        sent = len(driver.heard)
        eventually(lambda: len(driver.heard) > sent + 3)
    reports = [message["report"]["state"] for _, message in driver.heard[sent - 1 :] if "report" in message]
    assert set(reports) == {"ended"}


def test_a_thread_without_a_lease_commits_only_in_the_name_of_the_member_that_has_its_tasks() -> None:
    job = ContinuousJob(plan_of_tasks(1), b"", "", {}, "log", EPOCH, 1, "")
    assert ThreadHost(job, "thread-0")._membership() is None
    with pytest.raises(FencedError, match="goes on without the member") as raised:
        ThreadHost(replace(job, instance="i"), "thread-0")._membership()
    assert raised.value.facts["membership"] == "unknown"


def test_a_wrong_secret_is_refused_and_nothing_is_heard(driver: Driver) -> None:
    with closing(driver.client(b"x" * 32, patience_s=0.5)) as thread:
        eventually(lambda: thread.is_lost)
    assert driver.heard == []
    assert not driver.server.send(ME, {"stop": True})


def test_a_server_that_does_not_know_the_secret_is_not_obeyed() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def pretend() -> None:
            connection, _ = listener.accept()
            connection.sendall(encode_line({"nonce": "a"}))
            connection.recv(4096)
            connection.sendall(encode_line({"mac": mac_of(b"x", "driver")}) + encode_line({"stop": True}))
            time.sleep(0.5)
            connection.close()

        threading.Thread(target=pretend, daemon=True).start()
        address = ControlAddress("127.0.0.1", listener.getsockname()[1], SECRET, 0.4)
        with closing(ControlClient(address, HELLO, dict)) as thread:
            eventually(lambda: thread.is_lost)
            assert not thread.has_to_stop


def test_a_recorded_proof_is_of_no_use_on_another_connection(driver: Driver) -> None:
    def first_line(connection: socket.socket) -> str:
        return str(json.loads(connection.makefile().readline())["nonce"])

    with socket.create_connection(("127.0.0.1", driver.server.port)) as one:
        hello = json.dumps(HELLO)
        proof = {"hello": hello, "nonce": "n", "mac": mac_of(SECRET, "thread", first_line(one), "n", hello)}
        one.sendall(encode_line(proof))
        eventually(lambda: len(driver.heard) == 1)
        with socket.create_connection(("127.0.0.1", driver.server.port)) as other:
            first_line(other)
            other.sendall(encode_line(proof))
            other.settimeout(60.0)
            assert other.recv(10) == b""
    eventually(lambda: (ME, {"gone": True}) in driver.heard)
    assert [message for _, message in driver.heard if "hello" in message] == [{"hello": HELLO}]


def test_a_long_first_line_ends_the_connection(driver: Driver) -> None:
    with socket.create_connection(("127.0.0.1", driver.server.port)) as one:
        one.settimeout(60.0)
        one.recv(1000)
        one.sendall(b"x" * (FIRST_LINE_BYTES + 1))
        with suppress(ConnectionError):  # that it did not read the rest is an error of the connection
            assert one.recv(10) == b""
    with closing(driver.client()):  # and the server still serves others
        eventually(lambda: driver.heard)


def test_lines_are_put_together_and_have_a_limit() -> None:
    lines = ControlLines(8)
    assert lines.feed(b"ab") == []
    assert lines.feed(b"c\nd\n\n123") == [b"abc", b"d", b""]
    assert lines.feed(b"45678") == []
    with pytest.raises(AppFailedError, match="more than 8 bytes"):
        lines.feed(b"9")


def test_no_more_than_so_many_connections() -> None:
    with closing(Driver(most=1)) as driver, closing(driver.client()):
        eventually(lambda: driver.heard)
        with socket.create_connection(("127.0.0.1", driver.server.port)) as one:
            one.settimeout(60.0)
            assert one.recv(10) == b""


def test_a_thread_that_the_driver_has_left_gives_up() -> None:
    driver = Driver()
    with closing(driver.client(patience_s=3.0)) as thread:
        eventually(lambda: driver.heard)
        assert not thread.is_lost
        driver.close()
        eventually(lambda: thread.is_lost)
        assert not thread.send({"error": "late"}, 0.1)


def test_what_was_not_received_is_sent_again_on_the_next_connection(driver: Driver) -> None:
    with closing(driver.client()) as thread:
        eventually(lambda: driver.heard)
        with closing(driver.client()):  # the same thread run twice: the newer connection counts
            eventually(lambda: len([m for _, m in driver.heard if "hello" in m]) > 2)
        assert thread.send({"error": "text"}, 60.0)
    assert any(message.get("error") == "text" for _, message in driver.heard)


@pytest.mark.parametrize(
    "answer", [b"no JSON\n", b"[1]\n", b'{"ack": "x"}\n', b"[" * 5000 + b"\n", b"\xff\n", b"x" * (9 << 20)]
)
def test_nothing_is_lost_with_an_answer_that_cannot_be_read(answer: bytes) -> None:
    """However a connection ends, what was not acknowledged is sent by the next one; here the fourth acknowledges."""
    heard: list[list[str]] = []
    may_answer = threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            for number in range(4):
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.sendall(encode_line({"nonce": "a"}))
                    lines = connection.makefile("rb")
                    hello = json.loads(lines.readline())
                    connection.sendall(encode_line({"mac": mac_of(SECRET, "driver", hello["nonce"], "a")}))
                    texts: list[str] = []
                    heard.append(texts)
                    while len(texts) < 3:
                        message = json.loads(lines.readline())
                        if "error" in message:
                            texts.append(message["error"])
                        newest = message["number"]
                    may_answer.wait(30)
                    connection.sendall(encode_line({"ack": newest}) if number == 3 else answer)
                    while lines.readline():
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = ControlAddress("127.0.0.1", listener.getsockname()[1], SECRET, 60.0, 0.05)
        with closing(ControlClient(address, HELLO, lambda: {"records_in": 7})) as client:
            for text in ("first", "second"):
                assert not client.send({"error": text}, 0)
            may_answer.set()
            assert client.send({"error": "third"}, 30.0)
        thread.join(30)
    assert heard == [["first", "second", "third"]] * 4


def test_of_two_attempts_the_newer_one_stays_connected(driver: Driver) -> None:
    with closing(driver.client(hello={**HELLO, "attempt": 1})) as older:
        eventually(lambda: driver.heard)
        with closing(driver.client(hello={**HELLO, "attempt": 2})) as newer:
            eventually(lambda: older.is_lost)
            assert newer.send({"report": {}}, 60.0)
            assert not newer.is_lost
