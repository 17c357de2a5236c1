"""The states of an application."""

from __future__ import annotations

import enum
from collections.abc import Callable

__all__ = ["State", "StateListener"]


class State(enum.Enum):
    """Kafka's ``KafkaStreams.State``."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"

    @property
    def is_running_or_rebalancing(self) -> bool:
        """Whether the application is started and not stopping; Kafka's ``isRunningOrRebalancing``."""
        return self in (State.RUNNING, State.REBALANCING)


StateListener = Callable[[State, State], None]
