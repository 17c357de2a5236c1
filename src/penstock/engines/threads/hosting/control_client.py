"""A thread's end of the control channel: it reports once a second, and listens, while the loop does its work."""

from __future__ import annotations

import hmac
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.base.log_lines import own_logger
from penstock.engines.threads.hosting.control_lines import (
    LINE_BYTES,
    ControlLines,
    decode_line,
    encode_line,
    mac_of,
    new_nonce,
)
from penstock.errors import AppFailedError, PenstockError

__all__ = ["ControlAddress", "ControlClient"]

_log = own_logger(__name__)
_PAUSE_S = 0.2
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
        report: Returns the present report; called in the client's thread.
    """

    def __init__(
        self, address: ControlAddress, hello: Mapping[str, Any], report: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._address = address
        self._hello = json.dumps(hello)
        self._report = report
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
        due, sent = 0.0, 0
        while not self._closing and not self.is_lost:
            now = time.monotonic()
            report = dict(self._report()) if now >= due else None
            with self._changed:
                messages = [message for number, message in self._unacked.items() if number > sent]
                if report is not None:  # about the present: it is not sent again
                    self._number += 1
                    messages.append({"report": report, "number": self._number})
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

    def _look_at_time(self) -> None:
        if time.monotonic() - self._heard > self._address.patience_s:
            self._give_up()

    def _give_up(self) -> None:
        with self._changed:
            self._lost.set()
            self._changed.notify_all()


def _wait_for_lines(connection: socket.socket, lines: ControlLines) -> list[bytes]:
    while True:
        data = connection.recv(_READ_BYTES)
        if not data:
            raise ConnectionError("the driver has closed the connection")
        whole_lines = lines.feed(data)
        if whole_lines:
            return whole_lines
