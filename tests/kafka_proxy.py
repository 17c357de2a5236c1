"""A proxy between a client and a broker that loses answers and holds requests back, as a network does."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

from penstock.tools.broker.process import Broker

__all__ = [
    "CREATE_PARTITIONS", "CREATE_TOPICS", "DELETE_TOPICS", "END_TXN", "INIT_PRODUCER", "LIST_TRANSACTIONS", "PRODUCE",
    "KafkaProxy", "kafka_proxy",
]  # fmt: skip

PRODUCE, INIT_PRODUCER, END_TXN, LIST_TRANSACTIONS = 0, 22, 26, 66  # Kafka's numbers of requests
CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
_LOCAL = b"127.0.0.1"
_PATIENCE_S = 60


class KafkaProxy:
    """Passes requests and answers on; the broker's address in answers becomes that of the proxy."""

    def __init__(self, port: int) -> None:
        self._broker = port
        self._server = socket.create_server((_LOCAL.decode(), 0))
        self.port = self._server.getsockname()[1]
        self.servers = f"{_LOCAL.decode()}:{self.port}"
        self._lock = threading.Lock()
        self._lost: dict[int, int] = {}
        self._held: dict[int, tuple[threading.Event, threading.Event]] = {}
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answers(self, request: int, count: int = 1) -> None:
        """Lose the next answers to requests of a kind: the broker has done them, and the connection breaks."""
        with self._lock:
            self._lost[request] = count

    @contextlib.contextmanager
    def held(self, request: int) -> Iterator[threading.Event]:
        """Hold back the next request of a kind until the block ends; the event is set once it has come."""
        come, passed = threading.Event(), threading.Event()
        with self._lock:
            self._held[request] = (come, passed)
        try:
            yield come
        finally:
            passed.set()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            broker = socket.create_connection((_LOCAL.decode(), self._broker))
            kinds: dict[int, int] = {}
            for target in (self._requests, self._answers):
                threading.Thread(target=self._serve, args=(target, client, broker, kinds), daemon=True).start()

    def _serve(self, target: object, client: socket.socket, broker: socket.socket, kinds: dict[int, int]) -> None:
        try:
            target(client, broker, kinds)  # type: ignore[operator]
        except OSError:
            pass
        finally:
            for each in (client, broker):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _requests(self, client: socket.socket, broker: socket.socket, kinds: dict[int, int]) -> None:
        while (message := _message(client)) is not None:
            kind, _, number = struct.unpack_from(">hhi", message, 4)
            kinds[number] = kind
            with self._lock:
                come, passed = self._held.pop(kind, (None, None))
            if come is not None and passed is not None:
                come.set()
                passed.wait(_PATIENCE_S)
            broker.sendall(message)

    def _answers(self, client: socket.socket, broker: socket.socket, kinds: dict[int, int]) -> None:
        own, other = struct.pack(">i", self.port), struct.pack(">i", self._broker)
        while (message := _message(broker)) is not None:
            kind = kinds.pop(struct.unpack_from(">i", message, 4)[0], -1)
            with self._lock:
                is_lost = self._lost.get(kind, 0) > 0
                if is_lost:
                    self._lost[kind] -= 1
                    self.lost += 1
            if is_lost:
                return
            client.sendall(message.replace(_LOCAL + other, _LOCAL + own))


@contextlib.contextmanager
def kafka_proxy(broker: Broker) -> Iterator[KafkaProxy]:
    """A proxy before a broker, until the end of the block."""
    proxy = KafkaProxy(broker.settings.port)
    try:
        yield proxy
    finally:
        proxy.close()


def _message(connection: socket.socket) -> bytes | None:
    head = _exactly(connection, 4)
    body = None if head is None else _exactly(connection, struct.unpack(">i", head)[0])
    return None if head is None or body is None else head + body


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        piece = connection.recv(min(1 << 16, size - len(found)))
        if not piece:
            return None
        found += piece
    return bytes(found)
