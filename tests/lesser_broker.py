"""A broker that knows less than Kafka: a real one, behind a relay that takes requests out of what it says it knows."""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from typing import Self

__all__ = ["LesserBroker"]

_API_VERSIONS = 18
_ENTRY, _FRONT = 6, 10  # bytes of an entry of version 0; before the entries: correlation, error, count


class LesserBroker:
    """A relay on the loopback address; clients must begin with version 0 of ApiVersions, as Penstock's do.

    Args:
        port: The port of the real broker.
        unknown: The numbers of the requests that it is not to know.
    """

    def __init__(self, port: int, unknown: Collection[int]) -> None:
        self._port, self._unknown = port, frozenset(unknown)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._server]
        self._threads = [threading.Thread(target=self._accept)]
        self.url = f"127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            with suppress(OSError):  # the other side may have ended it
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._port))
            self._sockets += [client, broker]
            kinds: deque[int] = deque()
            for source, sink, ahead in ((client, broker, True), (broker, client, False)):
                thread = threading.Thread(target=self._relay, args=(source, sink, kinds, ahead))
                self._threads.append(thread)
                thread.start()

    def _relay(self, source: socket.socket, sink: socket.socket, kinds: deque[int], ahead: bool) -> None:
        try:
            while True:
                body = _exactly(source, struct.unpack(">i", _exactly(source, 4))[0])
                if ahead:
                    kind, version = struct.unpack(">hh", body[:4])
                    kinds.append(kind if version == 0 else -1)
                elif kinds.popleft() == _API_VERSIONS:
                    body = self._without(body)
                sink.sendall(struct.pack(">i", len(body)) + body)
        except OSError:
            with suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)  # which wakes the thread that reads from it, as close() does not

    def _without(self, body: bytes) -> bytes:
        entries = [body[at : at + _ENTRY] for at in range(_FRONT, len(body), _ENTRY)]
        kept = [each for each in entries if struct.unpack(">h", each[:2])[0] not in self._unknown]
        return body[: _FRONT - 4] + struct.pack(">i", len(kept)) + b"".join(kept)


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = source.recv(count - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data
