"""Whether a checkpoint of an earlier plan can be continued: safe, after a migration, or not, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.errors import CheckpointMismatchError

__all__ = ["Evolution", "compare", "require_compatible"]

Verdict = Literal["same", "safe", "migrate", "refuse"]


@dataclass(frozen=True, slots=True)
class Evolution:
    """What has changed between two plans.

    ``reasons`` refuse, ``migrations`` change stored data in a known way, ``notes`` are harmless.
    """

    reasons: tuple[str, ...] = ()
    migrations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        if self.reasons:
            return "refuse"
        if self.migrations:
            return "migrate"
        return "safe" if self.notes else "same"


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Evolution:
    """Compares the stored plan with the one about to start.

    Args:
        old: The document in the checkpoint.
        new: That of the present topology.
    """
    reasons: list[str] = []
    migrations: list[str] = []
    notes: list[str] = []
    if old["format"] != new["format"]:
        return Evolution((f"the plan has format {old['format']}, this Penstock reads format {new['format']}",))
    _stores(old["stores"], new["stores"], reasons, migrations, notes)
    _subtopologies(old["subtopologies"], new["subtopologies"], reasons, notes)
    for topic, count in old["internal_topics"].items():
        now = new["internal_topics"].get(topic)
        if now is not None and now != count:
            reasons.append(f"internal topic {topic!r} had {count} partitions and now has {now}")
    return Evolution(tuple(reasons), tuple(migrations), tuple(notes))


def _stores(
    old: Mapping[str, Any], new: Mapping[str, Any], reasons: list[str], migrations: list[str], notes: list[str]
) -> None:
    for name, was in old.items():
        now = new.get(name)
        if now is None:
            reasons.append(f"store {name!r} is gone, and its contents would be lost")
            continue
        reasons += [
            f"store {name!r}: its {fact.replace('_', ' ')} was {was[fact]} and now is {now[fact]}"
            for fact in ("kind", "key_serde", "value_serde", "timestamped", "window_size_ms", "retain_duplicates")
            if was[fact] != now[fact]
        ]
        for fact in ("retention_ms", "history_ms"):
            if was[fact] > now[fact]:
                migrations.append(f"store {name!r}: {fact} falls from {was[fact]} to {now[fact]}; older rows expire")
            elif was[fact] < now[fact]:
                notes.append(f"store {name!r}: {fact} grows from {was[fact]} to {now[fact]}")
    notes += [f"store {name!r} is new and starts empty" for name in new if name not in old]


def _subtopologies(old: Mapping[str, Any], new: Mapping[str, Any], reasons: list[str], notes: list[str]) -> None:
    for number, was in old.items():
        now = new.get(number)
        if now is None:
            if was["stores"]:
                reasons.append(f"sub-topology {number} with stores {', '.join(was['stores'])} is gone")
            else:
                notes.append(f"sub-topology {number} is gone; it had no stores")
            continue
        moved = [s for s in was["stores"] if s not in now["stores"]]
        for store in moved:
            home = next((n for n, sub in new.items() if store in sub["stores"]), None)
            if home is not None:
                reasons.append(f"store {store!r} moves from sub-topology {number} to {home}: the numbers have shifted")
        if was["stores"] and was["tasks"] != now["tasks"]:
            why = (
                f": partitions were added to {_listed(now['topics'])}, so keys have moved away from their state"
                if was["topics"] == now["topics"]
                else ""
            )
            reasons.append(f"sub-topology {number} had {was['tasks']} tasks and now has {now['tasks']}{why}")
        if was["runs"] != now["runs"]:
            reasons.append(f"sub-topology {number} ran {was['runs']} times a batch and now runs {now['runs']} times")
        if not moved and was["nodes"] != now["nodes"]:
            notes.append(f"the operators of sub-topology {number} have changed")
        if was["topics"] != now["topics"]:
            notes.append(f"sub-topology {number} read {_listed(was['topics'])} and now reads {_listed(now['topics'])}")
    notes += [f"sub-topology {number} is new" for number in new if number not in old]


def _listed(topics: list[str]) -> str:
    return ", ".join(topics) or "internal topics only"


def require_compatible(old: Mapping[str, Any], new: Mapping[str, Any], where: str) -> Evolution:
    """As `compare`; raises CheckpointMismatchError where the checkpoint cannot be continued.

    Args:
        old: The document in the checkpoint.
        new: That of the present topology.
        where: The checkpoint, for the message.
    """
    if old["application"] != new["application"]:
        raise CheckpointMismatchError(
            f"the checkpoint {where} is of application {old['application']!r}, not of {new['application']!r}",
            hint="Set penstock.checkpoint.location to a place of its own for each application.",
            checkpoint=where,
        )
    change = compare(old, new)
    if change.verdict == "refuse":
        listed = "\n".join(f"  - {reason}" for reason in change.reasons)
        raise CheckpointMismatchError(
            f"the checkpoint {where} cannot be continued by this topology:\n{listed}",
            hint="Name stores and operators, so that they keep their identity, or start with a new application.id.",
            checkpoint=where,
            reasons=change.reasons,
        )
    return change
