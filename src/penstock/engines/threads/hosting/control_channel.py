"""The control channel between an epoch's threads and their driver: the language, and the end of either side.

The server begins with a random text. The thread answers with one of its own, its name, and a MAC of all that; the
server answers with a MAC too. Neither sends the secret.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.base.log_lines import own_logger
from penstock.errors import AppFailedError, EnvironmentProblemError, PenstockError

__all__ = [
    "FIRST_LINE_BYTES",
    "ControlAddress",
    "ControlClient",
    "ControlLines",
    "ControlServer",
    "Member",
    "encode_line",
    "mac_of",
]

# The language

LINE_BYTES = 8 << 20  # a report names each partition and store of a thread; an error may quote a record
FIRST_LINE_BYTES = 4096  # of those that have proved nothing yet


def encode_line(message: Mapping[str, Any]) -> bytes:
    """Make the line of a message."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode_line(line: bytes) -> dict[str, Any]:
    """Read the message of a line.

    Raises:
        ValueError: It is not a JSON object.
    """
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("the message is nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("the message is not a JSON object")  # noqa: TRY004 - the contents are wrong
    return message


def new_nonce() -> str:
    """Make a random text, to be used once."""
    return secrets.token_hex(32)


def mac_of(secret: bytes, *parts: str) -> str:
    """Compute the MAC of texts.

    Example:
        >>> mac_of(b"key", "ab", "c") == mac_of(b"key", "a", "bc")
        False
    """
    text = json.dumps(parts).encode()
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


class ControlLines:
    """The lines in what arrives on a connection.

    Args:
        limit: The most bytes of a line.
    """

    def __init__(self, limit: int = FIRST_LINE_BYTES) -> None:
        self.limit = limit
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add what has arrived, and return the complete lines.

        Raises:
            AppFailedError: A line is longer than the limit.
        """
        self._data += data
        *lines, rest = bytes(self._data).split(b"\n") if b"\n" in data else [bytes(self._data)]
        if max(map(len, (*lines, rest))) > self.limit:
            raise AppFailedError(f"a line of the control channel has more than {self.limit} bytes")
        self._data = bytearray(rest)
        return lines


_log = own_logger(__name__)


# The thread's end

_PAUSE_S = 0.2
_NEWS = ("assign", "plan", "stop")  # of which the thread is told at once
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, repr=False)  # the secret is in it
class ControlAddress:
    """The address of an application's control channel.

    Attributes:
        host: The driver's host.
        port: Its port.
        secret: The secret of the application's start.
        patience_s: The time after which a thread without an answer of the driver gives up; ``session.timeout.ms``.
        every_s: The time between two reports.
    """

    host: str
    port: int
    secret: bytes
    patience_s: float = 45.0
    every_s: float = 1.0


class ControlClient:
    """The connection of a thread to the driver, kept up in a thread of its own until `close`.

    Args:
        address: The control channel.
        hello: The thread's facts: ``thread``, ``epoch``, ``attempt`` (the larger one replaces the other), ``host``,
            ``pid``.
        report: Returns the present report; called in the client's thread. With ``is_same`` it is that of the last call
            but for the number ``notes``, which is sent alone where the driver knows the rest.

    Attributes:
        tells_news: Whether it calls `on_news`; else the thread has to look.
        on_news: Called in the client's thread when there is another list or plan, or the thread is to end.
    """

    tells_news = True

    def __init__(
        self, address: ControlAddress, hello: Mapping[str, Any], report: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._address = address
        self._hello = json.dumps(hello)
        self._report = report
        self.on_news: Callable[[], None] = lambda: None
        self._changed = threading.Condition()
        self._unacked: dict[int, dict[str, Any]] = {}  # messages by number, sent again by each new connection
        self._number = self._acked = 0
        self._heard = time.monotonic()
        self._messages: dict[str, Any] = {}
        self._closing = False
        self._stop = threading.Event()
        self._lost = threading.Event()
        self._waker, self._wakes = socket.socketpair()
        self._thread = threading.Thread(target=self._stay, name="penstock-control", daemon=True)
        self._thread.start()

    @property
    def has_to_stop(self) -> bool:
        """True if the driver has asked the thread to stop."""
        return self._stop.is_set()

    @property
    def is_lost(self) -> bool:
        """True if the driver has not answered for so long that it has given up this thread."""
        return self._lost.is_set()

    def assignment(self, timeout_s: float) -> Any:
        """Wait for the assignment from the driver; None if it has not come within that time."""
        with self._changed:
            self._changed.wait_for(lambda: "assign" in self._messages or self.is_lost or self.has_to_stop, timeout_s)
            return self._messages.get("assign")

    def newest(self, name: str) -> Any:
        """Return the newest message of this name from the driver; None before the first one."""
        return self._messages.get(name)

    def send(self, message: Mapping[str, Any], timeout_s: float) -> bool:
        """Send a message at once; return whether the driver has received it within that time."""
        with self._changed:
            self._number += 1
            number = self._number
            self._unacked[number] = {**message, "number": number}
            self._waker.send(b"\0")
            return self._changed.wait_for(lambda: self._acked >= number, timeout_s)

    def close(self) -> None:
        """End the connection."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._waker.send(b"\0")
        self._thread.join(2.0)
        self._waker.close()
        self._wakes.close()

    def _stay(self) -> None:
        while not self._closing and not self.is_lost:
            try:
                with socket.create_connection((self._address.host, self._address.port), timeout=5.0) as connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._talk(connection)
            except (OSError, ValueError, PenstockError) as error:
                _log.debug("the connection to the driver is lost: %s", error)
            except Exception:  # noqa: BLE001 - without this thread the driver is never heard again
                _log.exception("the connection to the driver is lost")
            self._look_at_time()
            with self._changed:
                self._changed.wait_for(lambda: self._closing, _PAUSE_S)

    def _talk(self, connection: socket.socket) -> None:
        lines = ControlLines(LINE_BYTES)
        waiting = self._prove(connection, lines)
        for line in waiting:
            self._take(decode_line(line))
        due, sent, knows_report = 0.0, 0, False
        while not self._closing and not self.is_lost:
            now = time.monotonic()
            report = dict(self._report()) if now >= due else None
            with self._changed:
                messages = [message for number, message in self._unacked.items() if number > sent]
                if report is not None:  # about the present: it is not sent again
                    self._number += 1
                    again = {"again": report["notes"]} if knows_report and report.get("is_same") else {"report": report}
                    messages.append({**again, "number": self._number})
                    knows_report = True
            if report is not None:
                due = now + self._address.every_s
            for message in messages:
                connection.sendall(encode_line(message))
                sent = message["number"]
            self._read(connection, lines, due)
            self._look_at_time()

    def _prove(self, connection: socket.socket, lines: ControlLines) -> list[bytes]:
        """Prove to know the secret, and have the driver prove it; return the lines that have come after that."""
        received = _wait_for_lines(connection, lines)
        theirs, ours = str(decode_line(received.pop(0))["nonce"]), new_nonce()
        mac = mac_of(self._address.secret, "thread", theirs, ours, self._hello)
        connection.sendall(encode_line({"hello": self._hello, "nonce": ours, "mac": mac}))
        received = received or _wait_for_lines(connection, lines)
        expected, answer = mac_of(self._address.secret, "driver", ours, theirs), decode_line(received.pop(0))
        if not hmac.compare_digest(expected.encode(), str(answer.get("mac")).encode()):
            raise AppFailedError("the control channel's server does not know the secret of the application")
        if "superseded" in answer:  # Spark runs the task again: this attempt is over
            self._give_up()
        return received

    def _read(self, connection: socket.socket, lines: ControlLines, due: float) -> None:
        ready, _, _ = select.select([connection, self._wakes], [], [], max(0.0, due - time.monotonic()))
        if self._wakes in ready:
            self._wakes.recv(_READ_BYTES)
        if connection not in ready:
            return
        data = connection.recv(_READ_BYTES)
        if not data:
            raise ConnectionError("the driver has closed the connection")
        for line in lines.feed(data):
            self._take(decode_line(line))

    def _take(self, message: Mapping[str, Any]) -> None:
        with self._changed:
            self._heard = time.monotonic()
            if "ack" in message:
                self._acked = max(self._acked, int(message["ack"]))
                self._unacked = {number: each for number, each in self._unacked.items() if number > self._acked}
            if "stop" in message:
                self._stop.set()
            self._messages.update(message)
            self._changed.notify_all()
        if not message.keys().isdisjoint(_NEWS):
            self.on_news()

    def _look_at_time(self) -> None:
        if time.monotonic() - self._heard > self._address.patience_s:
            self._give_up()

    def _give_up(self) -> None:
        with self._changed:
            self._lost.set()
            self._changed.notify_all()
        self.on_news()


def _wait_for_lines(connection: socket.socket, lines: ControlLines) -> list[bytes]:
    while True:
        data = connection.recv(_READ_BYTES)
        if not data:
            raise ConnectionError("the driver has closed the connection")
        whole_lines = lines.feed(data)
        if whole_lines:
            return whole_lines


# The driver's end

_PROOF_S = 10.0  # to answer the first line
_LOOK_S = 0.5
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
                has_unproved = any(each.member is None for each in self._connections.values())
                for key, events in self._selector.select(_LOOK_S if has_unproved else None):
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
            if events & selectors.EVENT_READ:
                data = one.socket.recv(_READ_BYTES)
                if not data:
                    raise ConnectionError("closed")
                for line in one.lines.feed(data):
                    self._take(one, decode_line(line))
            with self._lock:  # what could not be sent waits until the socket is ready
                if one.unsent and self._connections.get(one.socket) is one:
                    sent = one.socket.send(one.unsent)
                    del one.unsent[:sent]
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
