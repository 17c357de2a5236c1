"""What the clients of a process have done: requests, bytes, connections, batches, transactions, by client.

The clients are Kafka's: the ``consumer`` reads and commits positions, the ``producer`` writes, and the ``admin`` client
does all else. Threads share connections between them, so a connection counts for each client that has used it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from penstock.base.log_lines import application_at_work

__all__ = [
    "CLOSED_TASKS", "Client", "ClientCounts", "client_of", "count", "count_many", "counted", "rebalancing", "timed",
]  # fmt: skip

Client = Literal["consumer", "producer", "admin"]
CLOSED_TASKS = "closed-tasks"
_READS = frozenset({"Fetch", "ListOffsets", "OffsetFetch", "OffsetCommit", "OffsetForLeaderEpoch"})
_WRITES = frozenset({"Produce", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"})
_lock = threading.Lock()
_counts: dict[str, ClientCounts] = {}  # by application; empty for what belongs to none


class ClientCounts:
    """The counts of an application's clients in one process; safe to use from several threads.

    >>> counts = ClientCounts()
    >>> counts.add("producer", "batch-bytes", 100.0, topic="orders")
    >>> counts.add("producer", "batch-bytes", 50.0, topic="orders")
    >>> counts.take()
    [['producer', 'batch-bytes', 'orders', 2, 150.0, 50.0, 100.0]]
    >>> counts.take()
    []
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[tuple[str, str, str], list[float]] = {}

    def add(self, client: str, what: str, value: float, *, topic: str = "") -> None:
        """Add one value."""
        self.add_many((client, what, topic), value, 1, (value, value))

    def add_many(self, at: tuple[str, str, str], total: float, number: int, extremes: tuple[float, float]) -> None:
        """Add many values by their sum, number, smallest and largest."""
        with self._lock:
            figures = self._values.get(at)
            if figures is None:
                self._values[at] = [number, total, *extremes]
            else:
                figures[0] += number
                figures[1] += total
                figures[2] = min(figures[2], extremes[0])
                figures[3] = max(figures[3], extremes[1])

    def merge(self, taken: Sequence[Sequence[Any]]) -> None:
        """Add what another one's `take` has returned."""
        for client, what, topic, number, total, low, high in taken:
            self.add_many((client, what, topic), total, number, (low, high))

    def shown(self) -> list[list[Any]]:
        """Return the counts so far, for JSON."""
        with self._lock:
            return [[*at, *values] for at, values in self._values.items()]

    def forget_extremes(self) -> None:
        """Forget the smallest and largest values; sums and numbers stay."""
        with self._lock:
            for values in self._values.values():
                values[2:] = math.inf, -math.inf

    def take(self) -> list[list[Any]]:
        """Return the counts since the last call, for JSON."""
        with self._lock:
            taken, self._values = self._values, {}
        return [[*at, *values] for at, values in taken.items()]


def counted(application: str = "") -> ClientCounts:
    """Return the counts of an application in this process; of the one at work if none is named."""
    name = application or application_at_work() or ""
    counts = _counts.get(name)
    if counts is None:
        with _lock:
            counts = _counts.setdefault(name, ClientCounts())
    return counts


def count(client: Client, what: str, value: float = 1.0, *, topic: str = "") -> None:
    """Count a value for the application at work."""
    counted().add(client, what, value, topic=topic)


def count_many(client: Client, what: str, topic: str, number: int, spread: tuple[float, float, float]) -> None:
    """Count many values by their number, sum, smallest and largest."""
    if number:
        counted().add_many((client, what, topic), spread[0], number, spread[1:])


@contextmanager
def timed(client: Client, what: str) -> Iterator[None]:
    """Count the milliseconds that a block or function takes, if it raises nothing."""
    began = time.perf_counter()
    yield
    count(client, what, (time.perf_counter() - began) * 1000)


@contextmanager
def rebalancing(also: str = "") -> Iterator[None]:
    """Count the milliseconds in which an application is planned anew or restarted, or that it failed.

    ``also`` is counted too, such as ``restarts``.
    """
    if also:
        count("consumer", also)
    try:
        with timed("consumer", "rebalance-ms"):
            yield
    except Exception:
        count("consumer", "failed-rebalances")
        raise


def client_of(request: str) -> Client:
    """Return the client that sends a request.

    >>> client_of("FetchRequest"), client_of("EndTxnRequest"), client_of("MetadataRequest")
    ('consumer', 'producer', 'admin')
    """
    name = request.removesuffix("Request")
    if name in _READS:
        return "consumer"
    return "producer" if name in _WRITES else "admin"
