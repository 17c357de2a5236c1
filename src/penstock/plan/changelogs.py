"""Which changelog topics an application has, and their settings: those that Kafka Streams would give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.plan.plan import PhysicalPlan
    from penstock.topology.stores import StoreSpec
    from penstock.topology.topology import Topology

__all__ = ["Changelog", "changelogs_of", "numbers_topic"]

_DAY_MS = 86_400_000
_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Changelog:
    """A topic to write changes to. ``store`` is empty for the topic of the tasks' own numbers."""

    topic: str
    store: str
    partitions: int
    config: Mapping[str, str]


def changelogs_of(topology: Topology, plan: PhysicalPlan, config: StreamsConfig) -> list[Changelog]:
    """The changelog topics of an application; none if it keeps no state.

    A store has none if logging is off for it, or if a source topic serves as its changelog. Beside them goes a topic of
    our own for the tasks' numbers (stream times and the like), which Kafka Streams keeps with committed offsets.
    """
    if not any(sub.keeps_state for sub in plan.subtopologies):
        return []
    defaults = {"message.timestamp.type": "CreateTime"}
    given = {name: str(value) for name, value in config.with_prefix("topic.").items()}
    found = []
    for sub in plan.subtopologies:
        for name in sub.stores:
            spec = topology.stores[name]
            if spec.logging:
                settings = defaults | _cleanup(spec) | given | _keeping(spec, config) | spec.log_config
                found.append(Changelog(f"{plan.application_id}-{name}-changelog", name, sub.tasks, settings))
    settings = defaults | {"cleanup.policy": "compact"} | given
    numbers = Changelog(numbers_topic(plan.application_id), "", max(sub.tasks for sub in plan.subtopologies), settings)
    return [*found, numbers]


def numbers_topic(application_id: str) -> str:
    """Where each task's numbers go with each batch that changes it."""
    return f"{application_id}-penstock-numbers-changelog"


def _cleanup(spec: StoreSpec) -> dict[str, str]:
    return {"cleanup.policy": "compact,delete" if spec.kind in ("window", "session") else "compact"}


def _keeping(spec: StoreSpec, config: StreamsConfig) -> dict[str, str]:
    """For how long; as in Kafka, settings for all topics do not change it."""
    if spec.kind in ("window", "session"):
        additional = int(config["windowstore.changelog.additional.retention.ms"])
        return {"retention.ms": str(min(spec.retention_ms + additional, _MOST))}
    if spec.kind == "versioned":
        return {"min.compaction.lag.ms": str(min(spec.history_ms + _DAY_MS, _MOST))}
    return {}
