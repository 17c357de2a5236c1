"""From one version of a topology to the next: ids that stay, and whether a checkpoint's plan allows it.

A sub-topology's number is its place in the code: one more in front shifts all numbers behind it. Segments, the ledger
and transactional ids go by task, so a sub-topology that the checkpoint knows keeps its id there, whatever its number is
now: it is found again by the names of its stores, else by the topics that it reads. Kafka Streams gets the same result
from changelogs, which have their stores' names. Where stores of several sub-topologies come together, or those of one
part, the new sub-topology has a new id, and the stores are copied into its segments (`StoredPlan.moving`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from penstock.errors import CheckpointMismatchError, CoPartitionError
from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology, plan_of
from penstock.topology.plan.plan_json import StoredPlan
from penstock.topology.topology import Topology

__all__ = ["Evolution", "compare", "plan_after", "require_compatible", "with_ids_of"]


def plan_after(
    stored: StoredPlan | None, topology: Topology, application_id: str, existing_counts: Mapping[str, int]
) -> PhysicalPlan:
    """Plan a topology that goes on from a checkpoint; raise as `plan_of`.

    Internal topics without a number of partitions set by the user keep the number that they have in the checkpoint,
    however many partitions their inputs have by now: the state behind them lies by partition.

    Args:
        stored: The checkpoint's document; None: the application has never run.
        topology: The topology.
        application_id: The ``application.id``.
        existing_counts: Partition counts of the topics that exist.
    """
    if stored is None:
        return plan_of(topology, application_id, existing_counts)
    counts: Mapping[str, int] = stored.plan["internal_topics"]
    kept = {
        name: counts[name] for name, it in topology.internal_topics.items() if it.partitions is None and name in counts
    }
    try:
        plan = plan_of(topology, application_id, {**existing_counts, **kept})
    except CoPartitionError:  # a topic that they are joined with has grown: `compare` checks the state
        plan = plan_of(topology, application_id, existing_counts)
    return with_ids_of(plan, stored)


def with_ids_of(plan: PhysicalPlan, stored: StoredPlan) -> PhysicalPlan:
    """Return the plan with the checkpoint's ids of its sub-topologies; new ones get ids that were never used."""
    ids = _ids(plan.subtopologies, stored)
    subs = tuple(replace(sub, id=ids[sub.id]) for sub in plan.subtopologies)
    return replace(plan, subtopologies=subs)


def _ids(subs: tuple[PlannedSubTopology, ...], stored: StoredPlan) -> dict[int, int]:
    """Return number in the topology -> id.

    Args:
        subs: The sub-topologies of a topology.
        stored: The checkpoint's document.
    """
    ids: dict[int, int] = {}
    homes = stored.homes()
    lived = {sub.id: {homes[store].subtopology for store in sub.stores if store in homes} for sub in subs}
    for sub in subs:
        if len(lived[sub.id]) == 1:
            _choose(ids, sub.id, Counter(lived[sub.id]))
    for sub in subs:
        if sub.id not in ids and not lived[sub.id]:  # stores that move get a new id: nothing else lies in its segments
            read = {*sub.external_topics, *sub.internal_topics}
            shared = Counter(
                {
                    int(number): len(read.intersection([*was["topics"], *was["internal_topics"]]))
                    for number, was in stored.plan["subtopologies"].items()
                }
            )
            _choose(ids, sub.id, +shared)
    unused = stored.last_id
    for sub in subs:
        if sub.id not in ids:
            unused += 1
            ids[sub.id] = unused
    return ids


def _choose(ids: dict[int, int], number: int, votes: Counter[int]) -> None:
    """Assign a sub-topology the free id with the most votes."""
    for each in sorted(votes, key=lambda each: (-votes[each], each)):
        if each not in ids.values():
            ids[number] = each
            return


Verdict = Literal["same", "safe", "migrate", "refuse"]
_FIXED = ("kind", "key_serde", "value_serde", "timestamped", "window_size_ms", "retain_duplicates")
_SERDES = ("key_serde", "value_serde", "hash_serde")


@dataclass(frozen=True, slots=True)
class Evolution:
    """The differences between two plans.

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


@dataclass(slots=True)
class _Findings:
    reasons: list[str] = field(default_factory=list)
    migrations: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def compare(stored: StoredPlan, new: Mapping[str, Any], drop: Collection[str] = ()) -> Evolution:
    """Compare the stored plan with the one about to start.

    Args:
        stored: The checkpoint's document.
        new: The document of the present topology; its sub-topologies have the checkpoint's ids (`with_ids_of`).
        drop: Stores that may be taken out (``penstock.state.drop``).
    """
    old = stored.plan
    if old["format"] != new["format"]:
        return Evolution((f"the plan has format {old['format']}, this Penstock reads format {new['format']}",))
    findings = _Findings()
    _stores(stored, new["stores"], drop, findings)
    _defaults(old, new, findings)
    _moved_stores(stored, new["subtopologies"], findings)
    for number, was in old["subtopologies"].items():
        now = new["subtopologies"].get(number)
        if now is not None:
            _subtopology(number, was, now, new, findings)
        else:
            findings.notes.append(f"sub-topology {number} ({_listed(was)}) is gone")
    for number, now in new["subtopologies"].items():
        if number not in old["subtopologies"]:
            findings.notes.append(f"sub-topology {number} ({_listed(now)}) is new")
    _internal_topics(old, new, findings)
    return Evolution(tuple(findings.reasons), tuple(findings.migrations), tuple(findings.notes))


def _stores(stored: StoredPlan, new: Mapping[str, Any], drop: Collection[str], findings: _Findings) -> None:
    for name, was in stored.plan["stores"].items():
        if name in new:
            findings.reasons += _different(name, was, new[name])
            _kept_for(name, was, new[name], findings)
        elif name in drop:
            findings.migrations.append(
                f"store {name!r} is taken out: its rows and its changelog topic are kept, and a store of this name and "
                "kind that is put back continues with them"
            )
        else:
            findings.reasons.append(
                f"store {name!r} is gone, and its contents would be out of use: to take it out on purpose, name it in "
                "penstock.state.drop"
            )
    for name, now in new.items():
        if name in stored.plan["stores"]:
            continue
        before = stored.dropped.get(name)
        if before is None:
            findings.notes.append(f"store {name!r} is new and starts empty")
            continue
        findings.reasons += _different(name, before, now)
        if before.get("lost"):
            findings.reasons.append(
                f"store {name!r} cannot be put back: after it was taken out, the segments of task "
                f"{', '.join(before['lost'])} were lost, and its changelog did not hold all of it; give the new store "
                "another name: it begins empty"
            )
        findings.migrations.append(f"store {name!r} is put back, with what it held when it was taken out")


def _different(name: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    untyped = [_was_auto(name, fact) for fact in _SERDES if _has_lost_auto(fact, was, now)]
    if untyped:
        return untyped
    facts = (*_FIXED, "hash_serde") if "hash_serde" in was else _FIXED
    if "ttl_ms" in was and bool(was["ttl_ms"]) != bool(now["ttl_ms"]):  # the rows have another form
        facts = (*facts, "ttl_ms")
    if was.get("keeps_headers", False) != now.get("keeps_headers", False):
        kept = "headers" if was.get("keeps_headers", False) else "no headers"
        ways = "set dsl.store.format back, or give the new store another name, and take this one out"
        return [f"store {name!r} was kept with {kept}, and now is not: {ways} with penstock.state.drop"]
    return [
        f"store {name!r}: its {fact.replace('_', ' ')} was {was[fact]} and now is {now.get(fact)}; give the new store "
        "another name, and take this one out with penstock.state.drop"
        for fact in facts
        if was[fact] != now.get(fact)
    ]


def _has_lost_auto(fact: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether a default would now read data written by ``auto``; early plans do not note the type of hashes."""
    return bool(now.get("untyped")) and fact in now and now[fact] is None and was.get(fact, "auto") == "auto"


def _was_auto(name: str, fact: str) -> str:
    default = "default.key.serde" if fact == "key_serde" else "default.value.serde"
    return (
        f"store {name!r}: the topology names no {fact.replace('_', ' ')}, so it was auto, and now is {default}, as in "
        "Kafka Streams; set penstock.untyped.stores=auto to continue with what it holds, or start from nothing "
        "under another application.id to have Kafka Streams' bytes"
    )


def _defaults(old: Mapping[str, Any], new: Mapping[str, Any], findings: _Findings) -> None:
    """Find stores that take a default which is another one by now; early plans do not note the defaults."""
    was, now = old.get("defaults", {}), new.get("defaults", {})
    for fact in was.keys() & now.keys():
        taking = [
            name
            for name, facts in old["stores"].items()
            if facts[fact] is None and new["stores"].get(name, {fact: ""})[fact] is None
        ]
        if taking and was[fact] != now[fact]:
            setting = f"default.{fact.replace('_', '.')}"
            findings.reasons.append(
                f"{setting} was {was[fact]} and now is {now[fact]}, and has written what is in {_quoted(taking)}: name "
                "the serde of new streams where they are read, and keep the default"
            )


def _kept_for(name: str, was: Mapping[str, Any], now: Mapping[str, Any], findings: _Findings) -> None:
    for fact in ("retention_ms", "history_ms"):
        if was[fact] > now[fact]:
            findings.migrations.append(
                f"store {name!r}: {fact} falls from {was[fact]} to {now[fact]}; older rows expire"
            )
        elif was[fact] < now[fact]:
            findings.notes.append(f"store {name!r}: {fact} grows from {was[fact]} to {now[fact]}")


def _moved_stores(stored: StoredPlan, new: Mapping[str, Any], findings: _Findings) -> None:
    """Find stores that come to lie in another sub-topology's segments, or were taken out of one with other tasks."""
    moving = stored.moving({int(number): sub["stores"] for number, sub in new.items()})
    for number, now in new.items():
        moved = moving.get(int(number), {})
        for store, home in moved.items():
            if home.tasks == now["tasks"]:
                findings.migrations.append(
                    f"store {store!r} moves from sub-topology {home.subtopology} to {number}: it keeps all its rows"
                )
            else:
                findings.reasons.append(
                    f"store {store!r} moves from sub-topology {home.subtopology}, with {home.tasks} tasks, to "
                    f"{number}, with {now['tasks']}: its rows lie by partition, and would not be found; keep it apart "
                    "with a repartition() in between, or give the new store another name"
                )
        for store in now["stores"]:
            was = stored.dropped.get(store)
            if was and store not in moved and (was["tasks"], was["runs"]) != (now["tasks"], now["runs"]):
                findings.reasons.append(f"store {store!r} was taken out when it had {was['tasks']} tasks: rename it")


def _subtopology(
    number: str, was: Mapping[str, Any], now: Mapping[str, Any], new: Mapping[str, Any], findings: _Findings
) -> None:
    if was["stores"] and was["tasks"] != now["tasks"]:
        findings.reasons.append(_regrouped(number, was, now, new))
    elif was["tasks"] != now["tasks"]:
        findings.notes.append(
            f"sub-topology {number} had {was['tasks']} tasks and now has {now['tasks']}; it has no state"
        )
    if was["runs"] != now["runs"]:
        findings.reasons.append(
            f"sub-topology {number} ran {was['runs']} times a batch and now runs {now['runs']} times"
        )
    if was["nodes"] != now["nodes"]:
        findings.notes.append(f"the operators of sub-topology {number} have changed")
    if was["topics"] != now["topics"]:
        findings.notes.append(f"sub-topology {number} read {_listed(was)} and now reads {_listed(now)}")


def _regrouped(number: str, was: Mapping[str, Any], now: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return the reason why a stateful sub-topology with another number of tasks cannot go on, and the remedy."""
    counts: Mapping[str, int] = {**new["internal_topics"], **new.get("partitions", {})}
    read = [*now["topics"], *now["internal_topics"]]
    moved = [topic for topic in read if counts.get(topic, was["tasks"]) != was["tasks"]]
    topics = ", ".join(
        f"{'internal' if topic in now['internal_topics'] else 'input'} topic {topic!r}" for topic in moved
    )
    return (
        f"{topics or 'its input'} had {was['tasks']} partitions and now has {now['tasks']}: the state of sub-topology "
        f"{number} (stores {_quoted(was['stores'])}) lies by partition, and keys that now go to other partitions would "
        "not find theirs. Go back to a topic with the old number of partitions, or start from nothing over the grown "
        "one: `penstock app reset`, or another application.id; a repartition() with a fixed number in front of "
        "the state makes later growth harmless"
    )


def _internal_topics(old: Mapping[str, Any], new: Mapping[str, Any], findings: _Findings) -> None:
    stateful = {topic for sub in new["subtopologies"].values() if sub["stores"] for topic in sub["internal_topics"]}
    regrouped = {
        topic
        for number, now in new["subtopologies"].items()
        for topic in now["internal_topics"]
        if now["stores"] and old["subtopologies"].get(number, now)["tasks"] != now["tasks"]
    }
    for topic, count in old["internal_topics"].items():
        now = new["internal_topics"].get(topic, count)
        if topic in regrouped or now == count:  # a regrouping has its own message
            continue
        if topic in stateful or now < count:
            findings.reasons.append(f"internal topic {topic!r} had {count} partitions and now has {now}")
        else:
            findings.notes.append(
                f"internal topic {topic!r} had {count} partitions and now has {now}; no state is read by it"
            )


def _listed(sub: Mapping[str, Any]) -> str:
    return ", ".join(sub["topics"]) or "internal topics only"


def _quoted(names: Collection[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))


def require_compatible(stored: StoredPlan, new: Mapping[str, Any], where: str, drop: Collection[str] = ()) -> Evolution:
    """Compare as `compare`; raise CheckpointMismatchError where the checkpoint cannot be continued.

    Args:
        stored: The checkpoint's document.
        new: The document of the present topology.
        where: The checkpoint, for the message.
        drop: Stores that may be taken out.
    """
    application = stored.plan["application"]
    if application != new["application"]:
        raise CheckpointMismatchError(
            f"the checkpoint {where} is of application {application!r}, not of {new['application']!r}",
            hint="Set penstock.checkpoint.location to a separate place for each application.",
            checkpoint=where,
        )
    change = compare(stored, new, drop)
    if change.verdict == "refuse":
        listed = "\n".join(f"  - {reason}" for reason in change.reasons)
        raise CheckpointMismatchError(
            f"the checkpoint {where} cannot be continued by this topology:\n{listed}",
            hint="Name stores and operators, so that they keep their identity; `penstock app plan` compares without a "
            "start, and docs/how-to/upgrade.md has a procedure for each change.",
            checkpoint=where,
            reasons=change.reasons,
        )
    return change
