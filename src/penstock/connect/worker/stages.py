"""What the herder does at present, for answers to requests that have waited too long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.base.clock import unix_ms

__all__ = ["Stages"]


@dataclass(slots=True)
class _Stage:
    description: str
    started_ms: int
    completed_ms: int | None = None


class Stages:
    """The steps of the herder's work, of which one may wait for the log.

    One thread at a time enters them; any thread may ask for the summary. The sentences are Kafka Connect's.

    Example:
        >>> stages = Stages()
        >>> stages.summary()
        ''
        >>> with stages.of("reading to the end of the config topic"):
        ...     stages.summary().partition(", which began at ")[0]
        'The worker is currently reading to the end of the config topic'
    """

    def __init__(self) -> None:
        self._entered: tuple[_Stage, ...] = ()
        self._last: _Stage | None = None

    @contextmanager
    def of(self, description: str) -> Iterator[None]:
        """Note a step for as long as the block runs."""
        before, stage = self._entered, _Stage(description, unix_ms())
        self._entered = (*before, stage)
        try:
            yield
        finally:
            stage.completed_ms = unix_ms()
            self._last, self._entered = stage, before

    def summary(self) -> str:
        """One sentence; empty before the first step."""
        entered, last = self._entered, self._last
        if entered:
            return f"The worker is currently {entered[-1].description}, which began at {_shown(entered[-1].started_ms)}"
        if last is None:
            return ""
        return (
            f"The last operation the worker completed was {last.description}, which began at "
            f"{_shown(last.started_ms)} and completed at {_shown(last.completed_ms or last.started_ms)}"
        )


def _shown(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
