"""What a connection takes from whoever answers there."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest
from confluent_kafka import KafkaException

from penstock.config import CONFIG_DEFS
from penstock.errors import LogError
from penstock.log.base import TopicPartition
from penstock.log.kafka.failures import is_transient
from penstock.log.kafka.wire import connection as connection_module
from penstock.log.kafka.wire import fetch
from penstock.log.kafka.wire.cluster import Cluster
from penstock.log.kafka.wire.connection import BrokerConnection, arrivals

FETCHES = struct.pack(">ihihhh", 1, 0, 1, 1, 0, 12)
VERSIONS = struct.pack(">ihihhh", 1, 0, 1, 3, 0, 9)  # the answer to request 1: metadata is known in versions 0 to 9


@contextmanager
def answering(*answers: bytes) -> Iterator[int]:
    """A server that sends these, one after each request; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                for answer in answers:
                    (length,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                    connection.recv(length, socket.MSG_WAITALL)
                    connection.sendall(answer)
                connection.recv(1)  # until the client has gone

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)


def framed(answer: bytes) -> bytes:
    return struct.pack(">i", len(answer)) + answer


@pytest.mark.parametrize("length", [-1, 0, 3, 600_000, 0x7FFFFFFF])
def test_nobody_is_believed_a_large_answer_at_first(length: int) -> None:
    with answering(struct.pack(">i", length)) as port, pytest.raises(KafkaException, match="is it Kafka"):
        BrokerConnection("127.0.0.1", port, {})


def ask_metadata(port: int, most_bytes: int) -> Callable[[], object]:
    connection = BrokerConnection("127.0.0.1", port, {"receive_message_max_bytes": most_bytes})
    return lambda: connection.ask(metadata())


def metadata() -> Any:
    from kafka.protocol.metadata import MetadataRequest

    return MetadataRequest(topics=[], min_version=4, max_version=4)


def test_answers_are_as_large_as_the_setting_allows() -> None:
    with answering(framed(VERSIONS), struct.pack(">i", 2_000_001)) as port:
        ask = ask_metadata(port, 2_000_000)
        with pytest.raises(LogError, match=r"an answer of 2,000,001 bytes; the limit is 2,000,000") as caught:
            ask()
    assert "receive.message.max.bytes" in caught.value.hint


@pytest.mark.parametrize("answer", [b"\0\0\0\2", b"\0\0\0\2\0\0\0\0\x7f\xff\xff\xff", b"\0\0\0\7" + bytes(40)])
def test_answers_that_are_none_break_the_connection(answer: bytes) -> None:
    with answering(framed(VERSIONS), framed(answer)) as port:
        ask = ask_metadata(port, 2_000_000)
        with pytest.raises(KafkaException, match=r"the connection to broker .* broke"):
            ask()


def names_of(answer: Any) -> list[str]:
    return [each.host for each in answer.brokers]


def answer_of(number: int) -> bytes:
    """The metadata of a cluster with one broker, whose host says which request it answers."""
    host = f"answers-{number}".encode()
    broker = struct.pack(">ih", number, len(host)) + host + struct.pack(">ih", 9092, -1)
    return framed(struct.pack(">iii", number, 0, 1) + broker + struct.pack(">hii", -1, -1, 0))


def test_answers_are_kept_for_their_receivers_whoever_reads_them() -> None:
    """A look-up of leaders while a fetch is in flight takes the fetch's answer from the socket first."""
    with answering(framed(VERSIONS), *(answer_of(number) for number in range(2, 7))) as port:
        connection = BrokerConnection("127.0.0.1", port, {})
        fetch, other, dropped = (connection.send(metadata()) for _ in range(3))
        assert not connection.is_idle
        connection.drop(dropped)
        assert names_of(connection.ask(metadata())) == ["answers-5"]
        assert arrivals({connection: fetch}, 0) == [connection]
        assert names_of(connection.receive(fetch)) == ["answers-2"]
        assert names_of(connection.receive(other)) == ["answers-3"]
        assert connection.is_idle
        assert (connection._answers, connection._unwanted) == ({}, set())
        # And the other way round: those who wait for the newest keep the answers before it.
        first = connection.send(metadata())
        assert arrivals({connection: first}, 10) == [connection]
        assert names_of(connection.receive(first)) == ["answers-6"]
        connection.close()


def test_waiting_for_an_answer_reads_those_before_it() -> None:
    with answering(framed(VERSIONS), *(answer_of(number) for number in range(2, 5))) as port:
        connection = BrokerConnection("127.0.0.1", port, {})
        first, second, third = (connection.send(metadata()) for _ in range(3))
        assert arrivals({connection: third}, 10) == [connection]
        assert [names_of(connection.receive(each)) for each in (second, third, first)] == [
            ["answers-3"], ["answers-4"], ["answers-2"],
        ]  # fmt: skip
        assert arrivals({connection: third + 1}, 0) == [connection], "nothing is on its way: receive() raises"
        connection.close()


def test_waiting_for_answers_is_ended_by_a_waker() -> None:
    waker, wakes = socket.socketpair()
    with answering(framed(VERSIONS), answer_of(2)) as port, waker, wakes:
        connection = BrokerConnection("127.0.0.1", port, {})
        waker.send(b"\0")
        assert arrivals({}, 10_000, wakes) == []
        first = connection.send(metadata())
        wakes.recv(1)
        assert arrivals({connection: first}, 10_000, wakes) == [connection]
        assert names_of(connection.receive(first)) == ["answers-2"]
        connection.close()


def test_the_end_of_a_connection_is_the_error_of_all_its_requests() -> None:
    with answering(framed(VERSIONS), answer_of(2), framed(b"\0\0\0\7")) as port:
        connection = BrokerConnection("127.0.0.1", port, {})
        first, second, third = (connection.send(metadata()) for _ in range(3))
        assert arrivals({connection: third}, 10) == [connection]
        for each in (third, second, first):
            with pytest.raises(KafkaException, match="broke"):
                connection.receive(each)


@contextmanager
def silent(*, answer_after_s: float = 60.0, versions: bytes = VERSIONS) -> Iterator[int]:
    """A server that agrees on versions, and answers the next request only later."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        over = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(framed(versions))
                connection.recv(1000)
                over.wait(answer_after_s)
                with suppress(OSError):
                    connection.sendall(framed(struct.pack(">iiihii", 2, 0, 0, -1, -1, 0)))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        over.set()
        thread.join(10)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_SILENCE_S", 0.05)


def test_a_silent_broker_that_the_cluster_has_left_is_not_waited_for(impatient: None) -> None:
    said = iter([False, False, True])
    with silent() as port:
        connection = BrokerConnection("127.0.0.1", port, {}, lambda: next(said))
        began = time.monotonic()
        with pytest.raises(KafkaException, match="has left the cluster"):
            connection.ask(metadata())
    assert time.monotonic() - began < 20  # not the 30 s of a request
    assert next(said, None) is None


def test_a_slow_broker_that_is_one_still_is_waited_for(impatient: None) -> None:
    asked = []
    with silent(answer_after_s=0.3) as port:
        connection = BrokerConnection("127.0.0.1", port, {}, lambda: asked.append(1) is not None)
        with closing(connection):
            assert connection.ask(metadata()).brokers == []
    assert asked


def test_nobody_is_waited_for_beyond_the_time_of_a_request(impatient: None) -> None:
    with silent() as port:
        connection = BrokerConnection("127.0.0.1", port, {"request_timeout_ms": 200})
        with pytest.raises(KafkaException, match="timed out"):
            connection.ask(metadata())


def test_the_time_of_a_request_is_the_documented_one() -> None:
    with silent() as port, closing(BrokerConnection("127.0.0.1", port, {})) as connection:
        assert connection._timeout_s == CONFIG_DEFS["request.timeout.ms"].default / 1000 == 30


def test_a_wait_for_records_leaves_a_broker_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it would wait for ever where another leads by now: nobody closes the connection."""
    place = TopicPartition("t", 0)
    with silent(versions=FETCHES) as port:
        cluster = Cluster({"bootstrap_servers": ["127.0.0.1:1"]})
        cluster._brokers, cluster._leaders = {1: ("127.0.0.1", port)}, {place: 1}
        waiter = fetch.DataWaiter(cluster)
        assert waiter.wait({place: 5}, 0.05) is False
        monkeypatch.setattr(fetch, "_LATE_S", 0.0)
        time.sleep(0.2)
        with pytest.raises(KafkaException, match="does not answer whether there are new records"):
            waiter.wait({place: 5}, 0.05)
        waiter.close()


def test_a_tls_connection_that_just_ends_may_be_of_a_broker_that_goes_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def end() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=end, daemon=True)
        thread.start()
        with pytest.raises(KafkaException, match="is that listener TLS") as caught:
            BrokerConnection("127.0.0.1", server.getsockname()[1], {"security_protocol": "SSL"})
        thread.join(10)
    assert is_transient(caught.value)
