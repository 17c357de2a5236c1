"""The note of an application in continuous mode in its log: the plan, the identity of its topics, and its threads.

Nothing on any machine is needed to go on: the note is the last record of the key ``application`` in the topic of the
tasks' numbers. A copy of the plan beside the replicas (``plan.json``) serves tools only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from penstock.base.clock import unix_ms
from penstock.engines.application.application_mode import CONTINUOUS, MICRO_BATCH, has_run_in_batches
from penstock.engines.application.application_note import (
    read_application,
    share_application,
    take_application,
    write_application,
)
from penstock.errors import CheckpointMismatchError
from penstock.log.processes import may_run, own_process
from penstock.topology.plan.plan_json import StoredPlan

if TYPE_CHECKING:
    from penstock.log.base import Lease, TopicLog

__all__ = ["LogNotes", "StartNote", "read_notes", "share_notes", "take_notes", "write_notes"]

_START_MS = 120_000  # so long a start counts that has not become a member


@dataclass(frozen=True, slots=True)
class StartNote:
    """The start of an instance in a group without members, which would show others what it is.

    Attributes:
        host: Its machine.
        pid: Its process.
        process: The start of its process, see `penstock.log.processes.process_start`.
        since_ms: The time of the note.
        group_epoch: The group's epoch at that time: a later one shows that members have come, and gone.
    """

    host: str
    pid: int
    process: str
    since_ms: int
    group_epoch: int

    @classmethod
    def own(cls, group_epoch: int) -> StartNote:
        """Return the note of a start of this process."""
        return cls(*own_process(), unix_ms(), group_epoch)

    @classmethod
    def of(cls, facts: Mapping[str, Any] | None) -> StartNote | None:
        """Return it from JSON; None if there is none, or another version has written one that says too little."""
        own = {each.name: facts[each.name] for each in fields(cls) if facts is not None and each.name in facts}
        return cls(**own) if len(own) == len(fields(cls)) else None

    def goes_on(self, group_epoch: int) -> bool:
        """Return whether another process starts still, as far as that can be seen from here."""
        if self.group_epoch != group_epoch or abs(unix_ms() - self.since_ms) > _START_MS:
            return False
        owner = self.host, self.pid, self.process
        return owner != own_process() and may_run(*owner)


@dataclass(frozen=True, slots=True)
class LogNotes:
    """The note.

    Attributes:
        stored: The plan, and what earlier plans have left.
        topic_ids: The ids of the topics that the application reads and keeps its state in.
        threads: The threads that may still write, by name.
        batch: The last micro-batch before the application was converted; -1: it has always been in this mode.
        guarantee: The ``processing.guarantee`` of its instances; empty: a version has run that did not note it.
        start: The last start in a group without members. Notes that differ in this alone are the same.
    """

    stored: StoredPlan
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    threads: tuple[str, ...] = ()
    batch: int = -1
    guarantee: str = ""
    start: StartNote | None = field(default=None, compare=False)

    def facts(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {
            **self.stored.facts(),
            "mode": CONTINUOUS,
            "topic_ids": dict(self.topic_ids),
            "threads": list(self.threads),
            "batch": self.batch,
            "guarantee": self.guarantee,
            **({} if self.start is None else {"start": asdict(self.start)}),
        }


def read_notes(log: TopicLog, application: str) -> LogNotes | None:
    """Read the note; None if the application has not run in continuous mode.

    Raises:
        CheckpointMismatchError: It has run in micro-batches.
    """
    return _notes(log, application, read_application(log, application))


def take_notes(log: TopicLog, lease: Lease) -> LogNotes | None:
    """Read the note as the holder of the lease: no earlier holder can change it any more.

    Raises:
        CheckpointMismatchError: It has run in micro-batches.
        FencedError: A newer instance has taken over.
    """
    return _notes(log, lease.application, take_application(log, lease))


def _notes(log: TopicLog, application: str, facts: Mapping[str, Any] | None) -> LogNotes | None:
    if facts is None or facts.get("mode") != CONTINUOUS:
        if facts is not None or has_run_in_batches(log, application):
            raise _other_mode(application, MICRO_BATCH, CONTINUOUS)
        return None
    threads = tuple(facts.get("threads", ()))
    batch, guarantee = int(facts.get("batch", -1)), str(facts.get("guarantee", ""))
    start = StartNote.of(facts.get("start"))
    return LogNotes(StoredPlan.of(facts), facts.get("topic_ids", {}), threads, batch, guarantee, start)


def _other_mode(application: str, before: str, now: str) -> CheckpointMismatchError:
    """Make the error for an application that has run in the other mode."""
    return CheckpointMismatchError(
        f"application {application!r} has run with processing.mode={before}, and now it is {now}",
        hint=f"A start converts it, and so does penstock app convert MODULE:TOPOLOGY --to {now}.",
        application=application,
    )


def write_notes(log: TopicLog, lease: Lease, notes: LogNotes) -> None:
    """Write the note.

    Raises:
        FencedError: A newer instance has taken over, or has changed the note.
    """
    write_application(log, lease, notes.facts())


def share_notes(log: TopicLog, application: str, before: LogNotes | None, notes: LogNotes) -> bool:
    """Write the note of an application whose instances share its tasks; return whether the log has it now.

    Args:
        log: The log.
        application: The ``application.id``.
        before: The note that the new one follows from: nothing is written if another instance has changed it since, or
            has begun to start with another guarantee.
        notes: The new note.
    """

    def may_follow(facts: Mapping[str, Any] | None) -> bool:
        now = _notes(log, application, facts)
        if now is None or before is None or now != before:
            return now == before
        return now.start == before.start or now.guarantee == notes.guarantee

    return share_application(log, application, may_follow, notes.facts())
