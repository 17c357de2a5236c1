"""An application in continuous mode as its checkpoint notes it, for queries without its topology."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from penstock.config import StreamsConfig
from penstock.engines.threads.app import ThreadApp
from penstock.query.source import specs_in_plan, stores_for_plan
from penstock.state.documents import read_document, write_document
from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology
from penstock.topology.topology import Topology

if TYPE_CHECKING:
    from penstock.topology.stores import StoreSpec

__all__ = ["noted_app", "write_noted_app"]

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
