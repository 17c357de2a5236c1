"""An application as its stream threads know it, and as its checkpoint notes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.config import StreamsConfig
from penstock.query.source import specs_in_plan, stores_for_plan
from penstock.state.changelog import changelog_formats
from penstock.state.checkpoint import read_document, write_document
from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology, TaskId
from penstock.topology.topology import Topology

if TYPE_CHECKING:
    from penstock.state.changelog import ChangelogFormat
    from penstock.topology.stores import StoreSpec

__all__ = ["ThreadApp", "noted_app", "write_noted_app"]


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

    @cached_property
    def changelog_formats(self) -> dict[str, ChangelogFormat]:
        """Store -> the format of its changelog."""
        return changelog_formats(self.topology.stores, self.changelogs)

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


_NOTE = "continuous.json"
_FORMAT = 1
_LAG = "acceptable.recovery.lag"


def write_noted_app(checkpoint: str, app: ThreadApp) -> None:
    """Note an application for readers that have neither its topology nor its settings, unless that is noted already.

    Args:
        checkpoint: The checkpoint location.
        app: The application.
    """
    stores = stores_for_plan(app.topology.stores)
    plan = app.plan
    read = {topic for sub in plan.subtopologies for topic in (*sub.external_topics, *sub.internal_topics)}
    note = {
        "format": _FORMAT,
        "application": app.application_id,
        "subtopologies": [asdict(_queried(sub, stores)) for sub in plan.subtopologies],
        "partitions": {topic: plan.partitions[topic] for topic in sorted(read) if topic in plan.partitions},
        "internal_topics": plan.internal_topics,
        "global_topics": plan.global_topics,
        "stores": stores,
        "sources": {name: app.topology.stores[name].changelog_topic for name in stores},
        "global_stores": sorted(app.topology.global_stores),
        "changelogs": {store: topic for store, topic in app.changelogs.items() if store in stores},
        "numbers_topic": app.numbers_topic,
        _LAG: int(app.config[_LAG]),
    }
    text = json.dumps(note, sort_keys=True)
    if read_document(checkpoint, _NOTE) != text:
        write_document(checkpoint, _NOTE, text)


def noted_app(checkpoint: str, identity: str, replica_root: str | None) -> ThreadApp | None:
    """Read the note of `write_noted_app`; None if this version cannot read it, or there is none.

    Args:
        checkpoint: The checkpoint location.
        identity: The identity of the application's log.
        replica_root: The folder of the threads' replicas on this machine, if there is one.
    """
    text = read_document(checkpoint, _NOTE)
    note: Mapping[str, Any] = json.loads(text) if text else {}
    if note.get("format") != _FORMAT:
        return None
    subs = tuple(PlannedSubTopology(**{k: _tuple(v) for k, v in sub.items()}) for sub in note["subtopologies"])
    topics = (tuple(note["internal_topics"]), tuple(note["global_topics"]))
    plan = PhysicalPlan(note["application"], subs, note["partitions"], *topics)
    specs: dict[str, StoreSpec] = {
        name: replace(spec, changelog_topic=note["sources"][name])
        for name, spec in specs_in_plan(note["stores"]).items()
    }
    topology = Topology(stores=specs, global_stores=frozenset(note["global_stores"]))
    config = StreamsConfig({"application.id": note["application"], _LAG: note[_LAG]})
    return ThreadApp(topology, config, plan, note["changelogs"], note["numbers_topic"], replica_root, identity)


def _queried(sub: PlannedSubTopology, stores: Mapping[str, Any]) -> PlannedSubTopology:
    """Return a sub-topology with those of its stores that queries can read: a copy for them needs no others."""
    return replace(sub, nodes=(), stores=tuple(name for name in sub.stores if name in stores))


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
