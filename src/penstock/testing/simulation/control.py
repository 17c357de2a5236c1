"""The channel between an application's driver and its threads, with messages that take time and connections that break.

In place of `ControlServer` and `ControlClient`, whose messages, order and repetitions it has: a thread sends what was
not acknowledged again by its next connection, which begins with a hello; what the driver sends to a thread without a
connection is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.engines.threads.hosting.control_channel import Member
from penstock.testing.simulation.scheduler import Actor, Scheduler, SimulatedProcess

__all__ = ["Channel", "SimulatedControlClient"]

_SLOWEST_S = 0.02  # for one message
_FOREVER_S = 1e9


@dataclass(eq=False)
class Channel:
    """The driver's end.

    Attributes:
        scheduler: The scheduler.
        every_s: The time between two reports.
        patience_s: The time after which a thread without an answer of the driver gives up.
        inbox: Messages on their way to the driver: when they arrive, from whom, and what.
        is_open: Whether there is a driver.
    """

    scheduler: Scheduler
    every_s: float = 0.4
    patience_s: float = 4.0
    inbox: list[tuple[float, SimulatedControlClient, dict[str, Any]]] = field(default_factory=list)
    is_open: bool = False
    _clients: dict[Member, SimulatedControlClient] = field(default_factory=dict)
    _cut: dict[SimulatedProcess, float] = field(default_factory=dict)
    _listener: Actor | None = None

    def post(self, client: SimulatedControlClient, message: dict[str, Any]) -> None:
        """Send a message to the driver; those of a thread arrive in order."""
        before = max((at for at, sender, _ in self.inbox if sender is client), default=0.0)
        at_s = max(before, self.scheduler.now_s + self.scheduler.dice.random() * _SLOWEST_S)
        self.inbox.append((at_s, client, message))
        if self._listener is not None:
            self._listener.wakes_s = min(self._listener.wakes_s, at_s)

    def arrived(self) -> list[tuple[SimulatedControlClient, dict[str, Any]]]:
        """Return the messages that have arrived, and acknowledge them."""
        now = self.scheduler.now_s
        due = sorted((each for each in self.inbox if each[0] <= now), key=lambda each: each[0])
        self.inbox = [each for each in self.inbox if each[0] > now]
        return [(client, message) for _, client, message in due]

    def listen(self) -> None:
        """Wait for the next message."""
        self._listener = self.scheduler.current
        first_s = min((at_s for at_s, _, _ in self.inbox), default=_FOREVER_S)
        self.scheduler.wait(first_s - self.scheduler.now_s)

    def connect(self, client: SimulatedControlClient) -> bool:
        """Take the hello of a thread; return False if a later attempt has come."""
        before = self._clients.get(client.member)
        if before is not None and before.attempt > client.attempt:
            return False
        if before is not None and before is not client:
            before.is_connected = False
        self._clients[client.member] = client
        self.post(client, {"hello": client.hello})
        return True

    def send(self, member: Member, message: Mapping[str, Any]) -> bool:
        """Send a message to a thread; return False if it has no connection."""
        client = self._clients.get(member)
        if client is None or not client.is_connected:
            return False
        before = client.incoming[-1][0] if client.incoming else 0.0
        at_s = max(before, self.scheduler.now_s + self.scheduler.dice.random() * _SLOWEST_S)
        client.incoming.append((at_s, dict(message)))
        return True

    def cut(self, process: SimulatedProcess, seconds: float) -> None:
        """Break the connection of a process for some time."""
        self._cut[process] = self.scheduler.now_s + seconds
        self.drop(process)

    def drop(self, process: SimulatedProcess) -> None:
        """Note that the connection of a process is broken, or that the process is gone."""
        for client in self._clients.values():
            if client.process is process and client.is_connected:
                client.is_connected = False
                client.incoming.clear()
                self.post(client, {"gone": True})

    def is_cut(self, process: SimulatedProcess) -> bool:
        """Return whether a process cannot reach the driver."""
        return not self.is_open or self._cut.get(process, 0.0) > self.scheduler.now_s

    def reopen(self) -> None:
        """Begin with a new driver, which knows of nobody."""
        self.inbox.clear()
        for client in self._clients.values():
            client.is_connected = False
        self._clients.clear()
        self.is_open = True


class SimulatedControlClient:
    """A simulated end of the control channel, see `penstock.engines.threads.hosting.control_channel.ControlClient`.

    Args:
        address: The driver's end.
        hello: The thread's facts.
        report: Returns the present report.
    """

    tells_news = False  # threads look: each look is a point of the schedule
    on_news: Callable[[], None]

    def __init__(self, address: Channel, hello: Mapping[str, Any], report: Callable[[], Mapping[str, Any]]) -> None:
        self._channel = address
        self._scheduler = address.scheduler
        self._report = report
        self._unacked: dict[int, dict[str, Any]] = {}
        self._number = self._sent = self._acked = 0
        self._heard_s = self._scheduler.now_s
        self._messages: dict[str, Any] = {}
        self._is_closing = False
        assert self._scheduler.current is not None  # noqa: S101 - it is a part of a thread's process
        self.process = self._scheduler.current.process
        self.hello = dict(hello)
        self.member = Member(str(hello["thread"]), int(hello["epoch"]))
        self.attempt = int(hello["attempt"])
        self.incoming: list[tuple[float, dict[str, Any]]] = []
        self.is_connected = False
        self.has_to_stop = self.is_lost = False
        self.has_reported = False  # whether the driver has had a report of it
        self._scheduler.spawn(f"{self.process.name} control", self.process, self._stay)

    def assignment(self, timeout_s: float) -> Any:
        """Wait for the assignment from the driver; None if it has not come within that time."""
        self._scheduler.wait(timeout_s, lambda: "assign" in self._messages or self.is_lost or self.has_to_stop)
        return self._messages.get("assign")

    def newest(self, name: str) -> Any:
        """Return the newest message of this name from the driver; None before the first one."""
        self._scheduler.point(f"look at {name}")
        return self._messages.get(name)

    def send(self, message: Mapping[str, Any], timeout_s: float) -> bool:
        """Send a message at once; return whether the driver has received it within that time."""
        self._number += 1
        number = self._number
        self._unacked[number] = {**message, "number": number}
        if timeout_s > 0:
            self._scheduler.wait(timeout_s, lambda: self._acked >= number)
        return self._acked >= number

    def acknowledge(self, message: Mapping[str, Any]) -> None:
        """Note that the driver has received a message."""
        self._heard_s = self._scheduler.now_s
        self._acked = max(self._acked, int(message.get("number", 0)))
        self._unacked = {number: each for number, each in self._unacked.items() if number > self._acked}

    def close(self) -> None:
        """End the connection."""
        self._is_closing = True
        if self.is_connected:
            for message in self._unacked.values():
                self._channel.post(self, message)
            self._channel.drop(self.process)

    def _stay(self) -> None:
        while not self._is_closing and not self.is_lost:
            if not self._channel.is_cut(self.process):
                if not self._channel.connect(self):
                    self.is_lost = True
                    return
                self.is_connected = True
                self._talk()
            if self._scheduler.now_s - self._heard_s > self._channel.patience_s:
                self.is_lost = True
            self._scheduler.wait(0.1)

    def _talk(self) -> None:
        due_s, self._sent = self._scheduler.now_s, 0
        while self.is_connected and not self._is_closing:
            now = self._scheduler.now_s
            for number, message in sorted(self._unacked.items()):
                if number > self._sent:
                    self._channel.post(self, message)
                    self._sent = number
            if now >= due_s:
                due_s = now + self._channel.every_s
                self._number += 1
                self._sent = self._number
                self._channel.post(self, {"report": dict(self._report()), "number": self._number})
            while self.incoming and self.incoming[0][0] <= now:
                self._take(self.incoming.pop(0)[1])
            if now - self._heard_s > self._channel.patience_s:
                self.is_lost = True
                return
            next_s = min(due_s, self.incoming[0][0]) if self.incoming else due_s
            self._scheduler.wait(next_s - now, self._has_work)

    def _has_work(self) -> bool:
        is_due = bool(self.incoming) and self.incoming[0][0] <= self._scheduler.now_s
        return is_due or self._number > self._sent or not self.is_connected or self._is_closing

    def _take(self, message: Mapping[str, Any]) -> None:
        self._heard_s = self._scheduler.now_s
        self.has_to_stop |= "stop" in message
        self._messages.update(message)
