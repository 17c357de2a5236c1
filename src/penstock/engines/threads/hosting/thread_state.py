"""A stream thread as the driver knows it: its machine, its place, and its newest report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.engines.threads.assignment import Spot
from penstock.topology.plan.plan import TaskId

__all__ = ["ThreadState", "caught_up_places", "followed_places", "places_on_disk"]


@dataclass
class ThreadState:
    """A thread, as the driver knows it.

    Attributes:
        host: Its machine.
        pid: Its process.
        heard: When it was heard last, in seconds of the monotonic clock.
        place: The identity of its folder of replicas.
        report: Its newest report.
        notes: The number of the note that its newest report is; of one that is the same but for that, too.
        on_disk: The tasks whose replicas its folder held when it began.
        gone: When its connection has broken; None while there is one.
        attempt: Its machine, its process and the number of Spark's attempt.
    """

    host: str
    pid: int
    heard: float
    place: str = ""
    report: Mapping[str, Any] = field(default_factory=dict)
    notes: int | None = None
    on_disk: frozenset[TaskId] = frozenset()
    gone: float | None = None
    attempt: tuple[str, int, int] = ("", 0, 0)

    @property
    def state(self) -> str:
        """Its state, as it reports it: starting, restoring, running or ended."""
        return str(self.report.get("state", "starting"))

    @property
    def spot(self) -> Spot:
        """Its machine and its folder of replicas."""
        return Spot(self.host, self.place or self.host)

    @property
    def revision(self) -> int:
        """The revision of the list of tasks that it has carried out; -1 before its producer is initialised."""
        return int(self.report.get("revision", -1))

    @property
    def held(self) -> frozenset[TaskId]:
        """The tasks that it runs, or prepares to run."""
        return frozenset(map(TaskId.parse, self.report.get("owned", ())))

    @property
    def ready(self) -> frozenset[TaskId]:
        """The tasks that it runs."""
        return frozenset(map(TaskId.parse, self.report.get("ready", ())))

    @property
    def lags(self) -> dict[TaskId, int | None]:
        """The tasks that it follows, and how many records they lacked at its last look; None before the first one."""
        return {TaskId.parse(task): lag for task, lag in self.report.get("standbys", {}).items()}

    @property
    def copies(self) -> dict[TaskId, tuple[int, int]]:
        """The tasks that it follows: the sums of the offsets of its copies, and of the ends of their changelogs."""
        ends = self.report.get("changelog_ends", {})
        lags = {task: lag for task, lag in self.lags.items() if lag is not None}
        return {task: (ends[str(task)] - lag, ends[str(task)]) for task, lag in lags.items() if str(task) in ends}


def caught_up_places(
    threads: Mapping[str, ThreadState], owners: Mapping[TaskId, str], acceptable_lag: int
) -> dict[TaskId, set[str]]:
    """Return by task the places that have its state within the acceptable lag.

    Args:
        threads: The threads.
        owners: The thread of each task.
        acceptable_lag: ``acceptable.recovery.lag``.
    """
    places: dict[TaskId, set[str]] = {}
    for task, owner in owners.items():
        if owner in threads and task in threads[owner].ready:
            places.setdefault(task, set()).add(threads[owner].spot.place)
    for each in threads.values():
        for task, lag in each.lags.items():
            if lag is not None and lag <= acceptable_lag:
                places.setdefault(task, set()).add(each.spot.place)
    return places


def followed_places(threads: Mapping[str, ThreadState]) -> dict[TaskId, set[str]]:
    """Return by task the places that follow its changelogs."""
    places: dict[TaskId, set[str]] = {}
    for each in threads.values():
        for task in each.lags:
            places.setdefault(task, set()).add(each.spot.place)
    return places


def places_on_disk(threads: Mapping[str, ThreadState]) -> dict[TaskId, set[str]]:
    """Return by task the places that had a replica of it when their threads began."""
    places: dict[TaskId, set[str]] = {}
    for each in threads.values():
        for task in each.on_disk:
            places.setdefault(task, set()).add(each.spot.place)
    return places
