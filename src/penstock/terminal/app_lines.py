"""What an application logs of itself, shown on a terminal where the program has not set up logging."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["lines_on_terminal"]


@contextmanager
def lines_on_terminal(logger: logging.Logger) -> Iterator[None]:
    """Show a logger's lines of level INFO on the error stream, if that is a terminal and no handler takes them.

    Programs that have set up logging keep theirs, with their levels; all is as before at the end.
    """
    if logger.hasHandlers() or not sys.stderr.isatty():
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
