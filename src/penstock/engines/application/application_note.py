"""The notes of an application in its log: its plan, the identities of its topics, and the serdes of its sinks.

Offsets, segments and ledger entries are valid only for the log that they belong to. So the checkpoint notes the id of
its log (``log.json``), and each batch the ids of the topics that it reads (in Spark's own offset log).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.engines.application.internal_topics import complete_changelogs
from penstock.errors import CheckpointMismatchError, ConfigError, LogError, OffsetOutOfRangeError
from penstock.log.fenced_record import FencedRecord, RecordName, StoredRecord, change_record, newest_record
from penstock.log.formats import TopicFormat, note_formats
from penstock.serde import Serdes
from penstock.state.changelog.base import APPLICATION
from penstock.state.documents import read_document, write_document
from penstock.topology.configured.serdes import with_serdes
from penstock.topology.plan.changelogs import numbers_topic

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.application.planning import PlannedApp
    from penstock.log.base import Lease, TopicLog
    from penstock.topology.plan.stored import StoredPlan
    from penstock.topology.topology import Topology

__all__ = [
    "check_log_identity",
    "formats_of_sinks",
    "note_application",
    "note_sinks",
    "read_application",
    "recreated_error",
    "recreated_topics",
    "share_application",
    "take_application",
    "write_application",
]

_log = own_logger(__name__)
_NAME = "log.json"


def check_log_identity(checkpoint: str, log: TopicLog, application: str, *, loss_fails: bool) -> None:
    """Compare the log with the one that a checkpoint was made with, and note it; a first start only notes it.

    Args:
        checkpoint: The checkpoint location.
        log: The application's log; the lease is held.
        application: The ``application.id``.
        loss_fails: Whether ``penstock.data.loss`` is "fail".

    Raises:
        CheckpointMismatchError: The log is another one, and ``loss_fails``.
    """
    noted = read_document(checkpoint, _NAME)
    before = None if noted is None else json.loads(noted)["id"]
    now = log.identity()
    if before == now:
        return
    if before is not None:
        what = f"the log {log.url} is not the one that the checkpoint {checkpoint} was made with"
        if loss_fails:
            raise CheckpointMismatchError(
                f"{what}: that one had the id {before}, this one has {now}",
                hint="Set bootstrap.servers to that log, or bring its file back from a backup. To start from nothing "
                f"over this one: penstock app reset {application}. To keep the state and read all of this log's "
                "topics from their beginnings: penstock.data.loss=continue.",
                checkpoint=checkpoint,
                log=now,
                expected=before,
            )
        _log.warning("%s; %s keeps its state and reads this log's topics from their beginnings", what, application)
    write_document(checkpoint, _NAME, json.dumps({"id": now}))


def recreated_topics(before: Mapping[str, str], now: Mapping[str, str]) -> frozenset[str]:
    """Return the topics that have another id than before: deleted and created again, or of another log.

    Example:
        >>> sorted(recreated_topics({"orders": "1", "users": "2"}, {"orders": "1", "users": "3", "items": "4"}))
        ['users']
    """
    return frozenset(topic for topic, id_ in now.items() if before.get(topic, id_) != id_)


def recreated_error(topics: frozenset[str], application: str) -> OffsetOutOfRangeError:
    """Make the error for topics that were created again while ``penstock.data.loss`` is "fail"."""
    listed = ", ".join(sorted(topics))
    return OffsetOutOfRangeError(
        f"{listed}: deleted and made again since application {application!r} has read there; what it had not read of "
        "the old topic is lost, and its offsets mean nothing in the new one",
        hint="To keep the state and read the new topic from its beginning: penstock.data.loss=continue. To start from "
        f"nothing: penstock app reset {application}.",
        topics=sorted(topics),
    )


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
