"""What runs the tasks of an application: the one seam between an application and its two engines.

`penstock.engines.factory` makes the engine that an application's settings ask for. Nothing outside of the engines
asks for the processing mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.engines.application.planning import PlannedApp
    from penstock.engines.spark.session import SparkApplication
    from penstock.errors import PenstockError
    from penstock.log.base import GroupMembership, Lease, TopicLog, TopicPartition
    from penstock.query.instances import HostInfo
    from penstock.state.restores.restore_progress import Restore, StateRestoreListener
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.plan.plan_json import StoredPlan
    from penstock.topology.topology import Topology

__all__ = ["Engine", "Start"]


@dataclass(frozen=True, slots=True)
class Start:
    """The data with which an engine starts, or goes on.

    Attributes:
        spark: The Spark to run in.
        app: The application with its plan.
        lease: Its lease; None: its instances share its tasks.
        slots: The number of Spark tasks that can run at once.
        until_latest: Whether the run ends at the present ends of the topics.
        restore_listener: The user's listener of restores.
        attend: Joins the application's group, so that other tools see that it runs.
        join: Joins it, and waits until its membership is known.
        doing: Takes note of what is done before tasks run, in words.
    """

    spark: SparkApplication
    app: PlannedApp
    lease: Lease | None
    slots: int
    until_latest: bool
    restore_listener: StateRestoreListener | None
    attend: Callable[[], None]
    join: Callable[[], None]
    doing: Callable[[str], None]

    @property
    def own_lease(self) -> Lease:
        """The lease, of an engine that does not share its tasks."""
        assert self.lease is not None  # noqa: S101 - see `Engine.shares_tasks`
        return self.lease


class Engine(Protocol):
    """An engine of one application: micro-batches of Structured Streaming, or stream threads.

    Attributes:
        mode: Its ``processing.mode``.
        plans_at_resume: Whether `resume` takes a plan over the topics that are there then.
        has_batches: Whether progress is reported by batch.
        look_s: The time between two looks at a run that goes on, in which `wait` is called with it.
        spare_slots: The number of tasks that a local Spark of its own runs at once beyond its cores.
    """

    mode: str
    plans_at_resume: bool
    has_batches: bool
    look_s: float
    spare_slots: int

    @property
    def shares_tasks(self) -> bool:
        """Whether several instances of the application may run, and share its tasks."""
        ...

    def may_share(self, *, until_latest: bool) -> bool:
        """Return whether a run that has the application alone goes over to sharing when another instance asks."""
        ...

    def sharing_identity(self, app: PlannedApp) -> str:
        """Return what all instances have in common that share the tasks."""
        ...

    def why_not_shared(self, app: PlannedApp) -> str:
        """Return why the tasks cannot be shared, in words; empty: they can."""
        ...

    def share(self) -> None:
        """Share the tasks from the next `start`, or `resume`, on."""
        ...

    def forget_dead(self, app: PlannedApp) -> None:
        """Have the application's group forget members of this machine whose processes have ended."""
        ...

    # Before the start

    def check(self, topology: Topology, *, until_latest: bool) -> None:
        """Raise ConfigError if it cannot run a topology with these settings."""
        ...

    def read_notes(self, log: TopicLog) -> None:
        """Read what the log notes of the last run."""
        ...

    def take_notes(self, log: TopicLog, lease: Lease | None) -> bool:
        """Read the notes again, as the holder of the lease if there is one; return whether they have changed since."""
        ...

    @property
    def stored_plan(self) -> StoredPlan | None:
        """The plan that the log notes; None if the checkpoint has it."""
        ...

    @property
    def spark_settings(self) -> Mapping[str, Any]:
        """The settings of the Spark session."""
        ...

    def cores_to_leave(self, cores: int, topology: Topology) -> int:
        """Return how many cores of a shared session are not for its tasks; raise ConfigError if it has too few."""
        ...

    def keeps(self, cores: int) -> bool:
        """Return whether its tasks have so many cores for as long as they run."""
        ...

    def topics_of_group(self, plan: PhysicalPlan) -> list[str]:
        """Return the topics that the members of the application's group are shown to read."""
        ...

    def known_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the offsets that its tasks have committed by themselves, as far as they are known."""
        ...

    # The run

    def start(self, start: Start) -> None:
        """Start to run the tasks."""
        ...

    def serve_at(self, address: HostInfo | None) -> None:
        """Take note of where other instances reach the queries of this one; None: nowhere."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end for a while; return whether it has come. Raise the error that ended it, if any.

        It returns earlier when there is something else to see, as far as the engine is told of it.
        """
        ...

    def wake(self) -> None:
        """End a call of `wait` soon; from any thread."""
        ...

    def has_running_tasks(self) -> bool:
        """Return whether the tasks process records."""
        ...

    def has_room_for(self, plan: PhysicalPlan) -> int:
        """Return how many Spark tasks the tasks of a plan can use at once."""
        ...

    def extend(self, start: Start) -> bool:
        """Go on with a plan that has more tasks or topics, without a stop; return whether that is possible."""
        ...

    def wants_plan(self) -> bool:
        """Return whether it has tasks that its plan does not know."""
        ...

    def may_recover(self, error: PenstockError, is_removed: Callable[[], bool]) -> bool:
        """Return whether `suspend` and `resume` may help after an error.

        Args:
            error: The error that has ended the run.
            is_removed: Returns whether the application was removed from its group.
        """
        ...

    def suspend(self) -> None:
        """Stop the tasks, to go on with `resume`."""
        ...

    def resume(self, start: Start) -> None:
        """Run the tasks again, from what is committed."""
        ...

    def show_membership(self, membership: GroupMembership | tuple[()]) -> None:
        """Take note of the name in which the application commits; empty: it was removed from its group."""
        ...

    def commit(self) -> None:
        """Commit the positions to the application's group, if the tasks have not done so themselves."""
        ...

    def note_end(self) -> None:
        """Note where the application stands, for its next start."""
        ...

    def stop(self) -> None:
        """Stop the tasks, with everything committed if that takes no long time."""
        ...

    # What it does

    @property
    def parallelism(self) -> int:
        """The most tasks that run at a time, or the number of stream threads."""
        ...

    def step(self) -> str:
        """Describe what is done before the tasks run; empty: nothing worth a word."""
        ...

    def phase(self) -> str:
        """Describe what it does now, for people who wait."""
        ...

    def under_way(self) -> Sequence[Restore]:
        """Return the restores of stores that have not ended."""
        ...

    def long_steps(self) -> Sequence[Mapping[str, Any]]:
        """Return the tasks that are in one step for long: task, what, seconds."""
        ...

    def replicas(self) -> dict[str, dict[str, int | None]]:
        """Return by task the machines with a replica of its state, see `KafkaStreams.metadata`."""
        ...
