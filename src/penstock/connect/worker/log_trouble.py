"""The log's own errors while a worker runs: each is logged once, and so is their end."""

from __future__ import annotations

from penstock.base.log_lines import own_logger
from penstock.errors import LogError

__all__ = ["LogTrouble"]

_log = own_logger(__name__)


class LogTrouble:
    """Whether the log can be used at present.

    >>> trouble = LogTrouble()
    >>> trouble.passed()
    """

    def __init__(self) -> None:
        self._last: str | None = None

    def note(self, error: LogError) -> None:
        """Note an error."""
        if error.message != self._last:
            self._last = error.message
            _log.warning("the log cannot be used at present: %s", error.message)

    def passed(self) -> None:
        """Note that the log can be used."""
        if self._last is not None:
            self._last = None
            _log.warning("the log can be used again")
