"""The job of an epoch: the application and its settings, as every stream thread of the epoch receives them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.engines.spark.job import load_app
from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology

if TYPE_CHECKING:
    from penstock.engines.threads.app import ThreadApp
    from penstock.engines.threads.hosting.control_channel import ControlAddress
    from penstock.log.base import TopicPartition
    from penstock.topology.plan.plan import TaskId

__all__ = ["ContinuousJob", "thread_name"]


_PLAN = ("partitions", "internal_topics", "global_topics")


def thread_name(number: int) -> str:
    """Return the name of a thread, which its transactional id ends with."""
    return f"thread-{number}"


@dataclass(frozen=True, repr=False)  # passwords are in it
class ContinuousJob:
    """An epoch of an application in continuous mode. Tasks are assigned over the control channel.

    Attributes:
        plan: The physical plan.
        pickled_app: The pickled topology and StreamsConfig.
        log_url: The URL of the log.
        log_settings: The settings of Kafka's clients.
        identity: The id of the log, which the replicas note.
        epoch: The epoch of the lease; without one the number of the epoch in this run.
        threads: The number of threads.
        replica_root: The directory of replicas on each machine.
        changelogs: Store -> its changelog topic.
        numbers_topic: The topic of the tasks' numbers; None if no task has any.
        topic_ids: The ids of the topics that it reads.
        bounds: The offsets to stop at, of a run until "latest"; None: it runs until it is stopped.
        exactly_once: Whether ``processing.guarantee`` is ``exactly_once_v2``.
        control: The control channel; None as long as the engine has not opened it.
        error_key: The key that signs errors of the threads.
        standbys: ``num.standby.replicas``.
        warmups: ``max.warmup.replicas``.
        acceptable_lag: ``acceptable.recovery.lag``.
        probing_s: ``probing.rebalance.interval.ms``, in seconds.
        lost: The numbers of records that were gone before it could read them, by ``topic-partition``.
        instance: The id of the instance, if its threads are members of the application's group; empty: it has the
            application's lease.
    """

    plan: PhysicalPlan
    pickled_app: bytes
    log_url: str
    log_settings: Mapping[str, Any]
    identity: str
    epoch: int
    threads: int
    replica_root: str
    changelogs: Mapping[str, str] = field(default_factory=dict)
    numbers_topic: str | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[TopicPartition, int] | None = None
    exactly_once: bool = True
    control: ControlAddress | None = None
    error_key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    standbys: int = 0
    warmups: int = 2
    acceptable_lag: int = 10_000
    probing_s: float = 10.0
    lost: Mapping[str, int] = field(default_factory=dict)
    instance: str = ""

    @property
    def lease_epoch(self) -> int | None:
        """The epoch of the lease; None if there is none."""
        return None if self.instance else self.epoch

    def producer_of(self, thread: str) -> str:
        """Return the name of a thread's producer: with a lease that of the thread, else no other instance has it."""
        return f"{self.instance}-{thread.rpartition('-')[2]}" if self.instance else thread

    @property
    def thread_names(self) -> tuple[str, ...]:
        """The names of all threads."""
        return tuple(map(thread_name, range(self.threads)))

    def tasks(self) -> Iterator[TaskId]:
        """Iterate over all tasks."""
        from penstock.topology.plan.plan import TaskId

        for sub in self.plan.subtopologies:
            yield from (TaskId(sub.id, partition) for partition in range(sub.tasks))

    def stateful_tasks(self) -> Iterator[TaskId]:
        """Iterate over the tasks with stores."""
        stateful = {sub.id for sub in self.plan.subtopologies if sub.stores}
        return (task for task in self.tasks() if task.subtopology in stateful)

    def plan_facts(self) -> dict[str, Any]:
        """Return the plan as JSON holds it."""
        return {
            "subtopologies": [asdict(sub) for sub in self.plan.subtopologies],
            **{name: getattr(self.plan, name) for name in _PLAN},
        }

    def app_with(self, facts: Mapping[str, Any]) -> ThreadApp:
        """Return the application with another plan, see `plan_facts`."""
        subs = tuple(_planned(each) for each in facts["subtopologies"])
        plan = replace(
            self.plan,
            subtopologies=subs,
            partitions=dict(facts["partitions"]),
            internal_topics=tuple(facts["internal_topics"]),
            global_topics=tuple(facts["global_topics"]),
        )
        return replace(self.app, plan=plan)

    @cached_property
    def app(self) -> ThreadApp:
        """The application as threads know it."""
        from penstock.engines.threads.app import ThreadApp
        from penstock.topology.configured import with_settings

        topology, config = load_app(self.pickled_app)
        return ThreadApp(
            with_settings(topology, config),
            config,
            self.plan,
            self.changelogs,
            self.numbers_topic,
            self.replica_root,
            self.identity,
            self.epoch,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "app"}


def _planned(facts: Mapping[str, Any]) -> PlannedSubTopology:
    values: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in facts.items()}
    return PlannedSubTopology(**values)
