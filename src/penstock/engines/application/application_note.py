"""The note of an application in the log: its plan, and what must not be lost with a checkpoint or a machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.engines.application.internal_topics import complete_changelogs
from penstock.log.fenced_record import FencedRecord, RecordName, StoredRecord, change_record, newest_record
from penstock.state.changelog.base import APPLICATION
from penstock.topology.plan.changelogs import numbers_topic

if TYPE_CHECKING:
    from penstock.engines.application.planned_app import PlannedApp
    from penstock.log.base import Lease, TopicLog
    from penstock.topology.plan.stored import StoredPlan

__all__ = [
    "note_application",
    "read_application",
    "share_application",
    "take_application",
    "write_application",
]


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
