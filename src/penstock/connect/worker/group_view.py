"""What a worker knows of its group: the members, the leader, and its own share of the work."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from penstock.connect.storage.config_store import ConfigState, ConnectorTaskId

__all__ = ["Solo", "WorkerMembership", "WorkerView"]


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker's share of the work.

    Attributes:
        leader: The leader, ``host:port``; empty: there is none at present.
        leads: Whether this worker is the leader.
        generation: The generation of the group.
        connectors: The connectors that this worker has.
        tasks: The tasks that it has.
        joined: Whether it is in the group.
    """

    leader: str
    leads: bool
    generation: int
    connectors: frozenset[str]
    tasks: frozenset[ConnectorTaskId]
    joined: bool = True


class WorkerMembership(Protocol):
    """The worker's membership in its group."""

    def poll(self, state: ConfigState, owned: Collection[str | ConnectorTaskId]) -> WorkerView:
        """Take part in the group; called often.

        Args:
            state: The configs.
            owned: The connectors and tasks that this worker runs at present, or still stops.
        """
        ...

    def owner(self, work: str | ConnectorTaskId) -> str | None:
        """Return the worker that has a connector or task; None: nobody at present."""
        ...

    def step_down(self) -> None:
        """Lead no more, until the group makes this worker its leader anew: another one has begun to lead."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...

    def abandon(self) -> None:
        """Close without leaving, as the log cannot be written: the others see that its session ends."""
        ...


class Solo:
    """A worker without others: it leads, and has everything."""

    def __init__(self, worker: str) -> None:
        self._worker = worker

    def poll(self, state: ConfigState, owned: Collection[str | ConnectorTaskId]) -> WorkerView:  # noqa: ARG002 - nobody else asks
        """Return all connectors and tasks: here all are its own."""
        tasks = (task for name in state.connectors for task in state.task_ids(name))
        return WorkerView(self._worker, True, 1, frozenset(state.connectors), frozenset(tasks))  # noqa: FBT003 - it leads

    def owner(self, work: str | ConnectorTaskId) -> str | None:  # noqa: ARG002 - all of it
        """Return this worker."""
        return self._worker

    def step_down(self) -> None:
        """Do nothing: there is no other worker."""

    def close(self) -> None:
        """Do nothing."""

    def abandon(self) -> None:
        """Do nothing."""
