"""Errors that the product logs and survives: a test that has not declared them fails."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection

__all__ = ["SwallowedErrors"]


class SwallowedErrors(logging.Handler):
    """The exceptions that loggers of ``penstock`` have logged as errors in this process.

    Warnings are about what comes from outside, such as a user's task that fails or does not stop.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.setFormatter(logging.Formatter("%(name)s, in thread %(threadName)s: %(message)s"))
        self._kept: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self._kept.append((record.getMessage(), self.format(record)))

    def take(self, declared: Collection[str]) -> list[str]:
        """Remove and return what was logged since the last call and matches none of the declared patterns."""
        kept, self._kept = self._kept, []
        return [text for message, text in kept if not any(re.search(each, message) for each in declared)]
