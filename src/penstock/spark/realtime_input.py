"""How records reach a Python worker in real-time mode: through PySpark's connection, at once.

PySpark hands over an iterator. When records are acknowledged, and whether Spark has closed the connection, is a matter
of the connection below it.
"""

from __future__ import annotations

import inspect
import os
import queue
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from io import BufferedReader
from typing import Self

import pyarrow as pa

__all__ = ["SparkInput", "arrivals", "connection"]

_MOST = 500  # Arrow batches, of one record each, that are processed together if they have come by then


def arrivals(batches: Iterable[pa.RecordBatch], wait_s: float, pace_s: float = 0.0) -> Iterator[list[pa.RecordBatch]]:
    """What has come since the last time, at once when something comes; an empty list when nothing came for a while.

    Args:
        batches: Where it comes from; read in a thread of its own.
        wait_s: How long a while is.
        pace_s: How far apart two answers are at least. What comes seldom never waits for that; where much comes,
            records share what each answer costs.

    Example:
        >>> one = pa.RecordBatch.from_pydict({"n": [1]})
        >>> [sum(b.num_rows for b in found) for found in arrivals([one], 10.0)]
        [1]
    """
    arrived: queue.SimpleQueue[pa.RecordBatch | BaseException | None] = queue.SimpleQueue()

    def pump() -> None:
        try:
            for batch in batches:
                arrived.put(batch)
            arrived.put(None)
        except BaseException as error:  # noqa: BLE001 - goes to the one who waits
            arrived.put(error)

    threading.Thread(target=pump, name="penstock-arrivals", daemon=True).start()
    answered = -pace_s
    while True:
        found: list[pa.RecordBatch] = []
        ended: BaseException | bool | None = False
        try:
            one = arrived.get(timeout=wait_s)
            early = answered + pace_s - time.monotonic()
            if early > 0:
                time.sleep(early)
            answered = time.monotonic()
            while True:
                if not isinstance(one, pa.RecordBatch):
                    ended = one
                    break
                found.append(one)
                if len(found) >= _MOST:
                    break
                one = arrived.get_nowait()
        except queue.Empty:
            pass
        if found or ended is False:
            yield found
        if isinstance(ended, BaseException):
            raise ended
        if ended is None:
            return


class SparkInput:
    """What Spark sends.

    Args:
        batches: What PySpark reads from the connection.
        connection: Where from; None: unknown.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], connection: BufferedReader | None) -> None:
        self._batches = batches
        self._connection = connection
        self._is_read = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with _Acknowledgements(self._connection) as acknowledgements:
            try:
                for batch in self._batches:
                    acknowledgements.send()
                    yield batch
            finally:
                self._is_read = True

    def end_if_closed(self) -> None:
        """Ends this process if Spark has closed the connection to it, as it does to stop a task.

        There is nobody left to tell anything, and PySpark would fail at telling it, with a trace for each worker.
        """
        if self._is_read and self._connection is not None and not self._connection.peek(1):
            os._exit(0)  # at the end of a batch there is a last word of Spark's behind it


class _Acknowledgements:
    """Has the machine acknowledge at once what has come.

    Spark sends a record when the one before is acknowledged (Nagle's algorithm), and Linux acknowledges after 40 ms if
    nothing is sent the other way: without this, records come 25 times a second.
    """

    def __init__(self, connection: BufferedReader | None) -> None:
        self._socket: socket.socket | None = None
        if connection is not None and hasattr(socket, "TCP_QUICKACK"):
            found = socket.socket(fileno=os.dup(connection.fileno()))
            if found.family == socket.AF_UNIX:
                found.close()
            else:
                self._socket = found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()

    def send(self) -> None:
        """Sends what is due, and asks for haste with what comes next, which Linux forgets each time."""
        if self._socket is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def connection() -> BufferedReader | None:
    """What PySpark's worker reads from; there is no public way to it."""
    frame = inspect.currentframe()
    while frame is not None:
        found = frame.f_locals.get("infile")
        if isinstance(found, BufferedReader):
            return found
        frame = frame.f_back
    return None
