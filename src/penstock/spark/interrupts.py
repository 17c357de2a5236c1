"""Ctrl-C while Spark starts."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["interruptible"]


@contextmanager
def interruptible() -> Iterator[None]:
    """Ends the process as Ctrl-C does, without the traces of PySpark's threads and calls that it breaks off.

    While it starts, PySpark puts a SIGINT handler of its own in place, which raises KeyboardInterrupt in the middle of
    a call to the JVM, which py4j then logs as an error.
    """
    logger = logging.getLogger("py4j")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None
    finally:
        logger.setLevel(level)
