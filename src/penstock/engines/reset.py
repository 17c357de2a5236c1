"""Finding and deleting the resources of an application, by its names and its stored plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.engines.application.locations import Locations
from penstock.engines.threads.replicas.replica_folders import continuous_replicas
from penstock.errors import CheckpointMismatchError, UnknownTopicError
from penstock.log.formats import formats_topic
from penstock.log.groups.gone_back import is_own
from penstock.state.checkpoint import foreign_files, mark_removed, read_plan, remove_checkpoint
from penstock.state.replicas.folders import own_replicas, remove_replica
from penstock.topology.dataframes import for_application
from penstock.topology.plan.changelogs import changelog_topic, numbers_topic
from penstock.topology.topology import internal_topic

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import Lease, TopicLog
    from penstock.topology.topology import Topology

__all__ = ["AppResources", "find_resources", "forget", "internal_topics"]

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


def forget(log: TopicLog, found: AppResources, lease: Lease) -> tuple[str, ...]:
    """Delete state, checkpoint, internal topics, ledger and committed offsets.

    Args:
        log: The application's log.
        found: The resources to delete.
        lease: The application's lease.

    Returns:
        The deleted folders and topics.
    """
    deleted: list[str] = []
    if found.plan is not None:
        mark_removed(found.checkpoint, found.plan)
    for folder in found.replicas:
        remove_replica(folder)
        deleted.append(str(folder))
    for topic in found.topics:
        with suppress(UnknownTopicError):
            log.delete_topic(topic)
            deleted.append(topic)
    log.clear_ledger(found.application)
    log.delete_group(found.application, lease)
    if found.plan is not None:
        remove_checkpoint(found.checkpoint)
        deleted.append(found.checkpoint)
    return tuple(deleted)
