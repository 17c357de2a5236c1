"""The notes of an application in its log: its plan, the ids of its topics, and the serdes of its sinks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.engines.application.internal_topic_creation import complete_changelogs
from penstock.errors import ConfigError, LogError
from penstock.log.fenced_record import FencedRecord, RecordName, StoredRecord, change_record, newest_record
from penstock.log.topic_formats import TopicFormat, note_formats
from penstock.serde import Serdes
from penstock.state.changelog.formats import APPLICATION
from penstock.topology.configured import with_serdes
from penstock.topology.plan.internal_topics import numbers_topic

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.application.planning import PlannedApp
    from penstock.log.base import Lease, TopicLog
    from penstock.topology.plan.plan_json import StoredPlan
    from penstock.topology.topology import Topology

__all__ = [
    "formats_of_sinks",
    "note_application",
    "note_sinks",
    "read_application",
    "share_application",
    "take_application",
    "write_application",
]

_log = own_logger(__name__)


def note_application(app: PlannedApp, stored: StoredPlan, lease: Lease) -> None:
    """Note the plan, and which changelogs are complete, in the topic of numbers too, as a checkpoint may be lost.

    Args:
        app: The application; without changelogs there is nothing to note.
        stored: The plan that is noted in its checkpoint.
        lease: The lease of the application.

    Raises:
        FencedError: A newer instance has taken over, or has changed the note.
    """
    if app.changelogs:
        facts = {"complete": sorted(complete_changelogs(app.checkpoint)), **stored.facts()}
        write_application(app.log, lease, facts)


def take_application(log: TopicLog, lease: Lease) -> dict[str, Any] | None:
    """Read the note of an application as the holder of its lease: no earlier holder can change it any more.

    Raises:
        FencedError: A newer instance has taken over.
    """
    return _facts(_record(log, lease).take())


def write_application(log: TopicLog, lease: Lease, facts: Mapping[str, Any]) -> None:
    """Write the note of an application to the topic of numbers, which exists.

    Raises:
        FencedError: A newer instance has taken over, or has changed the note.
    """
    record = _record(log, lease)
    record.replace(json.dumps(facts).encode(), record.held().version)


def share_application(
    log: TopicLog, application: str, may_follow: Callable[[Mapping[str, Any] | None], bool], facts: Mapping[str, Any]
) -> bool:
    """Write the note of an application whose instances share its tasks, none of which has a lease.

    Args:
        log: The log; the topic of numbers exists.
        application: The ``application.id``.
        may_follow: Returns whether the new note follows from this one.
        facts: The new note.

    Returns:
        Whether the log has it now; False if another instance has written another one since.
    """
    text = json.dumps(facts)
    note = json.loads(text)

    def following(stored: StoredRecord) -> bytes | None:
        before = _facts(stored)
        return text.encode() if before != note and may_follow(before) else None

    return bool(_facts(change_record(log.fenced_record(_name(application)), following)) == note)


def read_application(log: TopicLog, application: str) -> dict[str, Any] | None:
    """Read the last note of `write_application`; None if there is none."""
    topic = numbers_topic(application)
    if topic not in {each.name for each in log.topics()}:
        return None
    return _facts(newest_record(log, topic, APPLICATION))


def _record(log: TopicLog, lease: Lease) -> FencedRecord:
    return log.fenced_record(_name(lease.application), (lease.application, lease.epoch))


def _name(application: str) -> RecordName:
    return RecordName(application, "note", numbers_topic(application), APPLICATION)


def _facts(stored: StoredRecord) -> dict[str, Any] | None:
    return None if stored.value is None else dict(json.loads(stored.value))


_REGISTERED = ("avro", "json_schema")


def note_sinks(topology: Topology, config: StreamsConfig, log: TopicLog) -> None:
    """Note the formats of the sinks; without the permission, the application runs without the notes."""
    try:
        note_formats(log, config["application.id"], formats_of_sinks(topology, config))
    except LogError as error:
        _log.info("the serdes of the sinks are not noted in the log: %s", error)


def formats_of_sinks(topology: Topology, config: StreamsConfig) -> dict[str, TopicFormat]:
    """Return the formats by topic, for sinks whose serdes have names."""
    formats = {}
    for sink in with_serdes(topology, config).sinks:
        if sink.topic is None or sink.internal:
            continue
        key, value = _serde_name(sink.key_serde), _serde_name(sink.value_serde)
        if key and value:
            needs = any(name in _REGISTERED for name in (key, value))
            formats[sink.topic] = TopicFormat(key, value, _registry(config) if needs else "")
    return formats


def _serde_name(serde: Any) -> str:
    """Return a name for which `Serdes.of` returns a serde that reads the same bytes; empty if there is none."""
    name = str(getattr(serde, "name", serde or ""))
    name = "json" if name.startswith("json<") else name
    try:
        Serdes.of(name)
    except ConfigError:
        return ""
    return name


def _registry(config: StreamsConfig) -> str:
    """Return the registry's URL without user and password."""
    return re.sub(r"//[^/@]*@", "//", str(config.get("schema.registry.url") or ""))
