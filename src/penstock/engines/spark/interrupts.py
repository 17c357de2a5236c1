"""Handling of SIGINT and SIGTERM while an application starts and runs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from penstock.engines.spark.gateway import silence_py4j

__all__ = ["interruptible", "stop_on_signals"]

_LOOK_S = 0.05


@contextmanager
def stop_on_signals(stopping: threading.Event) -> Iterator[list[int]]:
    """Set the event at SIGINT and SIGTERM; a second signal ends the process at once, which loses nothing.

    Yields the list of the signals that have come.

    In other threads than the main one, which receive no signals, it does nothing.
    """

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of handlers
        if stopping.is_set():
            os._exit(128 + number)
        signals.append(number)
        stopping.set()

    signals: list[int] = []
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interruptible(start: Callable[[], None], stopping: threading.Event, signals: Sequence[int] = ()) -> None:
    """Call ``start`` in a thread of its own and wait for it.

    A start is a series of calls to the JVM, none of which can be interrupted cleanly. So when ``stopping`` is set
    meanwhile, this thread no longer waits.

    Raises:
        SystemExit: ``stopping`` was set; the exit code is that of a program that the first of ``signals`` has ended in
            a shell: 143 for SIGTERM, else 130, as for Ctrl-C.
    """
    failed: list[BaseException] = []

    def run() -> None:
        try:
            start()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    thread = threading.Thread(target=run, name="penstock-start", daemon=True)
    thread.start()
    while thread.is_alive() and not stopping.is_set():
        thread.join(_LOOK_S)
    if thread.is_alive():
        silence_py4j().__enter__()  # for good: the process ends
        raise SystemExit(128 + next(iter(signals), signal.SIGINT))
    if failed:
        raise failed[0]
