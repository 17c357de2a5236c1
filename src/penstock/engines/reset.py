"""Resetting an application to its beginning, as Kafka's application reset tool does, and deleting its resources."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.terminal.human_numbers import counted
from penstock.engines.application.locations import Locations
from penstock.engines.threads.replicas.replica_folders import continuous_replicas
from penstock.errors import CheckpointMismatchError, FencedError, UnknownTopicError
from penstock.log.base import TopicPartition
from penstock.log.groups.group_admin import GroupAdmin, OffsetMove, offset_moves
from penstock.log.groups.offset_regressions import RESET_NOTE, is_own
from penstock.log.groups.reset_targets import Target, chosen_places
from penstock.log.leases import held_lease
from penstock.log.topic_formats import formats_topic
from penstock.state.checkpoint import foreign_files, mark_removed, read_plan, remove_checkpoint
from penstock.state.lmdb_replicas.folders import own_replicas, remove_replica
from penstock.topology.dataframes import for_application
from penstock.topology.plan.internal_topics import changelog_topic, numbers_topic
from penstock.topology.topology import internal_topic

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import Lease, TopicLog
    from penstock.topology.topology import Topology

__all__ = ["AppResources", "ApplicationReset", "find_resources", "forget", "internal_topics"]

_FORM = re.compile(r"-(changelog|repartition|dataframe|subscription-(registration|response)-topic)$")


@dataclass(frozen=True, slots=True)
class AppResources:
    """The resources that an application has created.

    Attributes:
        application: The ``application.id``.
        plan: The plan that its checkpoint notes; None if there is no checkpoint.
        checkpoint: The checkpoint location.
        replicas: Folders of this machine with copies of its state.
        topics: Its internal topics that exist.
        unsure: Topics with names like its internal ones that are not in its plan.
        foreign: Files at the checkpoint location that are not its own.
        has_run: Whether the log holds traces of its batches.
    """

    application: str
    plan: Mapping[str, Any] | None
    checkpoint: str
    replicas: tuple[Path, ...]
    topics: tuple[str, ...]
    unsure: tuple[str, ...]
    foreign: tuple[str, ...]
    has_run: bool

    @property
    def places(self) -> tuple[str, ...]:
        """The existing folders."""
        return (*([self.checkpoint] if self.plan is not None else []), *map(str, self.replicas))

    def require_checkpoint(self) -> None:
        """Raise CheckpointMismatchError if the application has run, and its checkpoint was not found."""
        if self.plan is None and self.has_run:
            raise CheckpointMismatchError(
                f"application {self.application!r} has run over this log, but its checkpoint was not found: there is "
                f"none at {self.checkpoint}. Nothing was changed",
                hint="Set state.dir or penstock.checkpoint.location to where it ran. If the checkpoint is lost, forget "
                "the rest: penstock app reset --without-checkpoint.",
                checkpoint=self.checkpoint,
            )


def find_resources(log: TopicLog, config: StreamsConfig, topology: Topology | None = None) -> AppResources:
    """Find the resources of an application.

    Args:
        log: The application's log.
        config: The settings that it runs with.
        topology: Its topology, if known; else the plan in the checkpoint says which topics are its own.

    Raises:
        CheckpointMismatchError: The checkpoint is of another application.
    """
    application = str(config["application.id"])
    places = Locations.of(config, log)
    plan = read_plan(places.checkpoint)
    if plan is not None and plan["plan"]["application"] != application:
        raise CheckpointMismatchError(
            f"the checkpoint {places.checkpoint} is of application {plan['plan']['application']!r}, not of "
            f"{application!r}. Nothing was changed",
            hint="Set state.dir or penstock.checkpoint.location to where this application ran.",
            checkpoint=places.checkpoint,
        )
    fingerprints = [] if plan is None else list(plan["fingerprints"])
    replicas = [
        folder
        for root in (Path(places.replicas), places.queries)
        for folder in own_replicas(root, application, places.checkpoint, fingerprints)
    ]
    replicas += continuous_replicas(Path(places.replicas), application, log.identity())
    existing = {topic.name for topic in log.topics()}
    internal = internal_topics(application, plan, topology)
    own = existing & internal
    marked = any(is_own(each.metadata) for each in log.group_offsets(application).values())
    looks_alike = {name for name in existing if name.startswith(f"{application}-") and _FORM.search(name)}
    return AppResources(
        application,
        plan,
        places.checkpoint,
        tuple(replicas),
        tuple(sorted(own)),
        tuple(sorted(looks_alike - internal)),
        tuple(foreign_files(places.checkpoint)) if plan is not None else (),
        bool(own or marked or log.ledger(application)),
    )


def internal_topics(application: str, plan: Mapping[str, Any] | None, topology: Topology | None = None) -> set[str]:
    """Return the names of an application's internal topics, whether they exist or not, without its ledger.

    Args:
        application: The ``application.id``.
        plan: The plan that its checkpoint notes.
        topology: Its topology.

    Example:
        >>> plan = {"plan": {"stores": {"sums": {}}, "internal_topics": {"by-user-repartition": 2}}}
        >>> sorted(internal_topics("app", plan))[:2]
        ['app-by-user-repartition', 'app-penstock-formats']
    """
    topics = {numbers_topic(application), formats_topic(application)}
    if plan is not None:
        topics |= {changelog_topic(application, store) for store in (*plan["plan"]["stores"], *plan.get("dropped", ()))}
        topics |= {internal_topic(application, topic) for topic in plan["plan"]["internal_topics"]}
        topics |= set(plan.get("dataframes", ()))
    if topology is not None:
        topics |= {changelog_topic(application, store) for store in topology.stores}
        topics |= {internal_topic(application, topic) for topic in topology.internal_topics}
        own = for_application(topology, application, {})
        topics |= {source.topic for source in own.dataframes.values()}
    return topics


def forget(log: TopicLog, resources: AppResources, lease: Lease) -> tuple[str, ...]:
    """Delete state, checkpoint, internal topics, ledger and committed offsets.

    Args:
        log: The application's log.
        resources: The resources to delete.
        lease: The application's lease.

    Returns:
        The deleted folders and topics.
    """
    deleted: list[str] = []
    if resources.plan is not None:
        mark_removed(resources.checkpoint, resources.plan)
    for folder in resources.replicas:
        remove_replica(folder)
        deleted.append(str(folder))
    for topic in resources.topics:
        with suppress(UnknownTopicError):
            log.delete_topic(topic)
            deleted.append(topic)
    log.clear_ledger(resources.application)
    log.delete_group(resources.application, lease)
    if resources.plan is not None:
        remove_checkpoint(resources.checkpoint)
        deleted.append(resources.checkpoint)
    return tuple(deleted)


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The plan of a reset.

    Attributes:
        application: The ``application.id``.
        moves: The new offsets of the input topics.
        topics: The internal topics to delete: changelogs, repartition topics, topics of DataFrames.
        places: The directories (or object store locations) of state to delete.
        kept: Topics, and files at the checkpoint location, that look like the application's but stay, as its plan does
            not name them.
    """

    application: str
    moves: tuple[OffsetMove, ...]
    topics: tuple[str, ...]
    places: tuple[str, ...]
    kept: tuple[str, ...] = ()


class ApplicationReset:
    """Kafka's ``kafka-streams-application-reset``: input offsets, internal topics, state, checkpoint and ledger.

    Output topics keep their records.

    Args:
        log: The application's log.
        config: Its settings: ``application.id``, and ``state.dir`` or ``penstock.checkpoint.location``.
        topology: Its topology; by default the plan in the checkpoint names its internal topics.
        without_checkpoint: Whether to reset only the log, as the checkpoint is lost.
    """

    def __init__(
        self,
        log: TopicLog,
        config: StreamsConfig,
        topology: Topology | None = None,
        *,
        without_checkpoint: bool = False,
    ) -> None:
        self._log = log
        self._config = config
        self._topology = topology
        self._without_checkpoint = without_checkpoint
        self._application = str(config["application.id"])

    def plan(self, target: Target, inputs: Sequence[str] = (), internal: Sequence[str] = ()) -> ResetPlan:
        """Plan the reset.

        Args:
            target: The new offsets of the input topics.
            inputs: Input topics (``orders`` or ``orders:0,2``); by default all partitions with offsets.
            internal: The internal topics to delete; by default all.

        Raises:
            UnknownTopicError: One of the topics does not exist, or is not internal to this application.
            CheckpointMismatchError: The checkpoint was not found, or belongs to another application.
        """
        resources = self._found()
        for topic in internal:
            if topic not in resources.topics and topic not in resources.unsure:
                raise UnknownTopicError(
                    f"{topic!r} is not an internal topic of {self._application!r}",
                    hint=f"Its internal topics are {', '.join(resources.topics) or 'none'}.",
                    topic=topic,
                )
        topics = tuple(internal) or resources.topics
        committed = self._log.committed_offsets(self._application)
        of_inputs = [tp for tp in committed if tp.topic not in (*resources.topics, *resources.unsure)]
        places = chosen_places(self._log, target, inputs, of_inputs)
        moves = tuple(offset_moves(self._log, target, places, committed))
        kept = (*(topic for topic in resources.unsure if topic not in topics), *resources.foreign)
        return ResetPlan(self._application, moves, topics, resources.places, kept)

    def run(self, plan: ResetPlan, *, force: bool = False) -> tuple[str, ...]:
        """Execute a plan; run it again after an interruption.

        Args:
            plan: The output of `plan`.
            force: Reset even if an instance seems to run: its further writes are refused, and it fails.

        Returns:
            The deleted folders and topics.

        Raises:
            FencedError: An instance runs, or consumers are members of its group.
        """
        with self._stopped(force=force) as lease:
            deleted = forget(self._log, replace(self._found(), topics=plan.topics), lease)
            offsets = {TopicPartition(move.topic, move.partition): move.after for move in plan.moves}
            if offsets:
                self._log.commit_offsets(self._application, offsets, RESET_NOTE, lease)
        return deleted

    def _found(self) -> AppResources:
        resources = find_resources(self._log, self._config, self._topology)
        if not self._without_checkpoint:
            resources.require_checkpoint()
        return resources

    @contextmanager
    def _stopped(self, *, force: bool) -> Iterator[Lease]:
        members = self._log.group_state(self._application).consumers
        if members:
            raise FencedError(
                f"group {self._application!r} has {counted(len(members), 'member')}, such as {members[0].member} on "
                f"{members[0].host}",
                hint="Stop these consumers first.",
                group=self._application,
            )
        with held_lease(self._log, self._application, "penstock app reset", force=force) as keeper:
            yield keeper.lease

    def is_known(self) -> bool:
        """Return whether the application has ever run on this log."""
        admin = GroupAdmin(self._log)
        return admin.is_application(self._application) or self._application in self._log.groups()
