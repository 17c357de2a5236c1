"""The changelog topics of an application, made before it starts; and which of them hold all that their stores do.

A changelog that was begun, or begun anew, when its store had contents already does not hold all of it: nothing can be
rebuilt from it, and that is noted in the checkpoint (``changelogs.json``).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import CheckpointMismatchError, CoPartitionError
from penstock.plan.changelogs import Changelog, changelogs_of
from penstock.state.documents import read_document, write_document

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog
    from penstock.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = ["complete_changelogs", "prepare_changelogs"]

_log = logging.getLogger(__name__)
_NOTES = "changelogs.json"


def prepare_changelogs(
    topology: Topology,
    config: StreamsConfig,
    plan: PhysicalPlan,
    log: TopicLog,
    checkpoint: str,
    before: Mapping[str, Any] | None,
) -> list[Changelog]:
    """Creates the changelog topics that are missing; gives all of them.

    Args:
        topology: The topology.
        config: The settings; ``penstock.changelog.enabled`` switches all of them off.
        plan: Its plan.
        log: Where they go.
        checkpoint: The checkpoint location.
        before: The plan that was stored there, None if the application has never run.

    Raises:
        CoPartitionError: A topic of that name has another number of partitions.
        CheckpointMismatchError: The application starts anew, but there are changelogs of an earlier one.
    """
    wanted = changelogs_of(topology, plan, config) if config["penstock.changelog.enabled"] else []
    there = {topic.name: topic.partitions for topic in log.topics()}
    complete = complete_changelogs(checkpoint)
    holds_all = set()
    for each in wanted:
        if each.topic in there:
            _fit_partitions(each, there[each.topic], log)
            if before is None:
                _check_empty(each, log)
        else:
            log.create_topic(each.topic, each.partitions, each.config)
        is_new = before is None or (each.store != "" and each.store not in before["stores"])
        if is_new or (each.topic in complete and each.topic in there):
            holds_all.add(each.topic)
        else:
            _log.warning("%s does not hold all of its store: it was begun when the store had contents", each.topic)
    if holds_all != complete:
        write_document(checkpoint, _NOTES, json.dumps({"complete": sorted(holds_all)}))
    return wanted


def complete_changelogs(checkpoint: str) -> set[str]:
    """The changelog topics from which their stores can be rebuilt."""
    notes = read_document(checkpoint, _NOTES)
    return set(json.loads(notes)["complete"]) if notes else set()


def _fit_partitions(changelog: Changelog, partitions: int, log: TopicLog) -> None:
    """Input topics may have grown, and with them the tasks; they never shrink."""
    if partitions < changelog.partitions:
        log.create_partitions(changelog.topic, changelog.partitions)
    elif partitions > changelog.partitions and changelog.store:
        raise CoPartitionError(
            f"changelog topic {changelog.topic} has {partitions} partitions, its tasks are {changelog.partitions}",
            hint="The application's input topics have changed: reset it, or give it another application.id.",
            topic=changelog.topic,
        )


def _check_empty(changelog: Changelog, log: TopicLog) -> None:
    for partition in range(changelog.partitions):
        if log.end_offset(changelog.topic, partition) > log.beginning_offset(changelog.topic, partition):
            raise CheckpointMismatchError(
                f"the application starts anew, but changelog topic {changelog.topic} has records of an earlier one",
                hint="Set state.dir or penstock.checkpoint.location to where it ran, or reset the application.",
                topic=changelog.topic,
            )
