"""The driver's end of the control channel: threads connect to it, report, and are asked to stop."""

from __future__ import annotations

import hmac
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.base.log_lines import own_logger
from penstock.engines.threads.hosting.control_lines import (
    FIRST_LINE_BYTES,
    LINE_BYTES,
    ControlLines,
    decode_line,
    encode_line,
    mac_of,
    new_nonce,
)
from penstock.errors import EnvironmentProblemError, PenstockError

__all__ = ["ControlServer", "Member"]

_log = own_logger(__name__)
_PROOF_S = 10.0  # to answer the first line
_LOOK_S = 0.5
_READ_BYTES = 1 << 16
_UNSENT_BYTES = 4 << 20  # of a thread that does not read


class Member(NamedTuple):
    """A thread of an epoch, as it names itself."""

    thread: str
    epoch: int


@dataclass
class _Connection:
    socket: socket.socket
    nonce: str
    since: float
    lines: ControlLines = field(default_factory=ControlLines)
    member: Member | None = None
    attempt: int = 0
    unsent: bytearray = field(default_factory=bytearray)


class ControlServer:
    """A server for the threads of one application, in a thread of its own until `close`.

    Args:
        secret: The secret of the application's start, which its threads have too.
        on_message: Called with each message of a thread, first with its ``hello``, and with ``gone`` when it is no
            longer connected; runs in the server's thread.
        host: The address to listen on.
        most: The most connections at once.
    """

    def __init__(
        self,
        secret: bytes,
        on_message: Callable[[Member, Mapping[str, Any]], None],
        *,
        host: str = "127.0.0.1",
        most: int = 1024,
    ) -> None:
        self._secret = secret
        self._on_message = on_message
        self._most = most
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, _Connection] = {}
        self._selector = selectors.DefaultSelector()
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, 0), family=family, backlog=128)
        except OSError as error:
            raise EnvironmentProblemError(
                f"the driver cannot listen on {host} for its stream threads: {error.strerror or error}",
                hint="Set spark.driver.bindAddress to an address of this machine.",
            ) from error
        self._listener.setblocking(False)  # noqa: FBT003
        self._waker, self._wakes = socket.socketpair()
        self._wakes.setblocking(False)  # noqa: FBT003
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="penstock-control", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that threads connect to."""
        return int(self._listener.getsockname()[1])

    def send(self, member: Member, message: Mapping[str, Any]) -> bool:
        """Send a message to a thread; return whether it is connected."""
        with self._lock:
            connections = [each for each in self._connections.values() if each.member == member]
            for each in connections:
                each.unsent += encode_line(message)
        self._wake()
        return bool(connections)

    def close(self) -> None:
        """End all connections."""
        self._closing = True
        self._wake()
        self._thread.join(5.0)

    def _wake(self) -> None:
        try:
            self._waker.send(b"\0")
        except OSError:  # the server has ended
            _log.debug("the control channel is closed")

    def _serve(self) -> None:
        try:
            while not self._closing:
                with self._lock:
                    for each in self._connections.values():
                        interests = selectors.EVENT_READ | (selectors.EVENT_WRITE if each.unsent else 0)
                        self._selector.modify(each.socket, interests)
                for key, events in self._selector.select(_LOOK_S):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is self._wakes:
                        self._wakes.recv(_READ_BYTES)
                    elif connection := self._connections.get(key.fileobj):  # type: ignore[call-overload] # a socket
                        self._work(connection, events)  # unless another event has ended it just now
                self._drop_silent()
        finally:
            for each in [*self._connections.values()]:
                self._drop(each, flush=True)
            for one in (self._listener, self._waker, self._wakes):
                one.close()
            self._selector.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it has gone already, or this process has no file descriptors left
            return
        if len(self._connections) >= self._most:
            _log.warning("the control channel has %d connections: one more is refused", self._most)
            connection.close()
            return
        connection.setblocking(False)  # noqa: FBT003
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = _Connection(connection, new_nonce(), time.monotonic(), ControlLines(FIRST_LINE_BYTES))
        peer.unsent += encode_line({"nonce": peer.nonce})
        with self._lock:
            self._connections[connection] = peer
        self._selector.register(connection, selectors.EVENT_READ)

    def _work(self, one: _Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                with self._lock:
                    sent = one.socket.send(one.unsent)
                    del one.unsent[:sent]
            if events & selectors.EVENT_READ:
                data = one.socket.recv(_READ_BYTES)
                if not data:
                    raise ConnectionError("closed")
                for line in one.lines.feed(data):
                    self._take(one, decode_line(line))
        except BlockingIOError:
            return
        except (OSError, ValueError, LookupError, TypeError, PenstockError) as error:
            _log.debug("the control channel to %s ends: %s", one.member, error)
            self._drop(one)

    def _take(self, one: _Connection, message: Mapping[str, Any]) -> None:
        if one.member is not None:
            self._answered(one, message)
            return
        hello, nonce, mac = message.get("hello"), message.get("nonce"), message.get("mac")
        if not isinstance(hello, str) or not isinstance(nonce, str) or not isinstance(mac, str):
            raise ValueError("no hello")  # noqa: TRY004
        expected = mac_of(self._secret, "thread", one.nonce, nonce, hello)
        if not hmac.compare_digest(expected.encode(), mac.encode("utf-8", "replace")):
            _log.warning("a connection to the control channel does not know its secret, and is refused")
            raise ValueError("wrong secret")
        facts = decode_line(hello.encode())
        member = Member(str(facts["thread"]), int(facts["epoch"]))
        proof = mac_of(self._secret, "driver", nonce, one.nonce)
        with self._lock:
            older = [each for each in self._connections.values() if each.member == member]
            newest = max((each.attempt for each in older), default=0)
            if newest > int(facts.get("attempt", 0)):
                one.unsent += encode_line({"mac": proof, "superseded": True})
                return
            one.member, one.attempt = member, int(facts.get("attempt", 0))
            one.lines.limit = LINE_BYTES
            one.unsent += encode_line({"mac": proof})
        for each in older:
            self._drop(each)
        self._answered(one, {"hello": facts})

    def _answered(self, one: _Connection, message: Mapping[str, Any]) -> None:
        assert one.member is not None  # noqa: S101 - it has proved itself
        try:
            self._on_message(one.member, message)
        except Exception:  # noqa: BLE001 - the other threads need the server
            _log.exception("a message of %s could not be handled", one.member.thread)
        if "number" in message:
            with self._lock:
                one.unsent += encode_line({"ack": message["number"]})

    def _drop_silent(self) -> None:
        late = time.monotonic() - _PROOF_S
        for each in [*self._connections.values()]:
            if (each.member is None and each.since < late) or len(each.unsent) > _UNSENT_BYTES:
                self._drop(each)

    def _drop(self, one: _Connection, *, flush: bool = False) -> None:
        with self._lock:
            if self._connections.pop(one.socket, None) is None:
                return
        self._selector.unregister(one.socket)
        if (
            one.member is not None
            and not self._closing
            and all(e.member != one.member for e in self._connections.values())
        ):
            self._answered(one, {"gone": True})
        if flush and one.unsent:
            try:
                one.socket.send(one.unsent)
            except OSError:
                _log.debug("%s has gone already", one.member)
        one.socket.close()
