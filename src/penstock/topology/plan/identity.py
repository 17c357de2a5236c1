"""Ids of sub-topologies that stay the same from one version of a topology to the next.

A sub-topology's number is its place in the code: one more in front shifts all numbers behind it. Segments, the ledger
and transactional ids go by task, so a sub-topology that the checkpoint knows keeps its id there, whatever its number is
now: it is found again by the names of its stores, else by the topics that it reads. Kafka Streams gets the same result
from changelogs, which have their stores' names. Where stores of several sub-topologies come together, or those of one
part, the new sub-topology has a new id, and the stores are copied into its segments (`StoredPlan.moving`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from penstock.errors import CoPartitionError
from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology, plan_of
from penstock.topology.plan.stored import StoredPlan
from penstock.topology.topology import Topology

__all__ = ["plan_after", "with_ids_of"]


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
