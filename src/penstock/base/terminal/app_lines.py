"""The lines and the end of a program that has not set up logging: on a terminal, and under spark-submit."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from penstock.base.escapes import visible
from penstock.errors import PenstockError

__all__ = ["lines_on_terminal", "ended_without_trace"]

_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # spark-submit has started this program


@contextmanager
def lines_on_terminal(logger: logging.Logger) -> Iterator[None]:
    """Show a logger's lines of level INFO on the error stream, if no handler takes them.

    Only if that is a terminal, or the program runs under spark-submit, whose output is the driver's log. Programs that
    have set up logging keep theirs, with their levels; all is as before at the end.
    """
    if logger.hasHandlers() or not (sys.stderr.isatty() or _SUBMITTED in os.environ):
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


@contextmanager
def ended_without_trace(kinds: tuple[type[PenstockError], ...]) -> Iterator[None]:
    """Let the program end with a sentence, not with a stack trace, by an error of these kinds that it does not catch.

    Programs with a `sys.excepthook` of their own, and notebooks, keep theirs.
    """
    try:
        yield
    except kinds as error:
        if sys.excepthook is sys.__excepthook__:
            sys.excepthook = _Brief(error)
        raise


class _Brief:
    """The hook for one error; any other one is shown as before."""

    def __init__(self, error: PenstockError) -> None:
        self._error = error

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if error is not self._error:
            sys.__excepthook__(kind, error, trace)
            return
        sys.stderr.write(f"{kind.__name__}: {visible(str(error))}\n")
