"""The parts of its process that a stream thread uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock.base.clock import unix_ms
from penstock.log.base import TopicLog
from penstock.log.thread_clients import ThreadClients
from penstock.runtime.sensor import Sensor

if TYPE_CHECKING:
    from penstock.engines.threads.loop.pace import PaceChannel
    from penstock.state.restores.restore_progress import RestoreProgress

__all__ = ["ThreadHooks", "ThreadLog"]


class ThreadLog(TopicLog, ThreadClients, Protocol):
    """A topic log with the clients of stream threads."""


def _nothing(step: str) -> None:
    """Do nothing at a step."""


@dataclass(frozen=True)
class ThreadHooks:
    """The parts of its process that a thread uses, and calls.

    Attributes:
        clock: The wall clock, in milliseconds.
        sensor: Its methods are called for the events of tasks.
        on_restore: Called with the progress of restores (`RestoreProgress`).
        reach: Called at each step by its name, where a fault test may end the process: ``processed``, ``sent`` (the
            changelogs too), ``committed`` (by the log), ``kept <task>`` (by a replica).
        pace: The exchange with the application's other threads about their pace; None: there are none.
        until_latest: Whether the run ends at the records that exist at its start, see `Surroundings`.
    """

    clock: Callable[[], int] = unix_ms
    sensor: Sensor = field(default_factory=Sensor)
    on_restore: Callable[[RestoreProgress], None] | None = None
    reach: Callable[[str], None] = _nothing
    pace: PaceChannel | None = None
    until_latest: bool = False
