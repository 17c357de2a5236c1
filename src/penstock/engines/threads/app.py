"""An application as its stream threads know it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.topology.plan.plan import TaskId

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology
    from penstock.topology.topology import Topology

__all__ = ["ThreadApp"]


@dataclass(frozen=True)
class ThreadApp:
    """A planned application for its threads.

    Internal topics have two names: the logical one of the topology, which tasks know (``counts-repartition``), and that
    in the log, ``<application.id>-<logical name>``, which Kafka Streams uses too.

    Attributes:
        topology: The topology, completed by the settings.
        config: The settings.
        plan: The physical plan.
        changelogs: Store -> its changelog topic; stores without one are missing.
        numbers_topic: The topic of the tasks' numbers (stream time and the like); None if no task has any.
        replica_root: The machine's folder of replicas; None: state is kept in memory only (tests).
        identity: The identity of application and log, which replicas must have to be used.
        epoch: The epoch of the application's lease.
    """

    topology: Topology
    config: StreamsConfig
    plan: PhysicalPlan
    changelogs: Mapping[str, str] = field(default_factory=dict)
    numbers_topic: str | None = None
    replica_root: str | None = None
    identity: str = ""
    epoch: int = 0

    @property
    def application_id(self) -> str:
        """The ``application.id``, which is also the group."""
        return self.plan.application_id

    @cached_property
    def _internal(self) -> dict[str, str]:
        return self.plan.repartition_topics

    def logical(self, topic: str) -> str:
        """Return the name of a topic in the topology."""
        return self._internal.get(topic, topic)

    @property
    def repartition_topics(self) -> tuple[str, ...]:
        """The internal topics by their names in the log."""
        return tuple(self._internal)

    def tasks(self) -> Iterator[TaskId]:
        """Iterate over all tasks."""
        for sub in self.plan.subtopologies:
            for partition in range(sub.tasks):
                yield TaskId(sub.id, partition)

    def subtopology(self, task: TaskId) -> PlannedSubTopology:
        """Return the sub-topology of a task."""
        return self.plan.subtopology(task.subtopology)

    def numbers_topic_of(self, task: TaskId) -> str | None:
        """Return the topic of a task's numbers; None if nothing ever reads them, as where only stream time is known."""
        return self.numbers_topic if self.subtopology(task).reads_numbers else None
