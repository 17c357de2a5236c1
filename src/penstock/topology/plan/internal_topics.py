"""The internal topics of an application, and their settings: those of Kafka Streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.stores import StoreSpec
    from penstock.topology.topology import Topology

__all__ = [
    "NUMBERS_SETTINGS",
    "Changelog",
    "changelog_settings",
    "changelog_topic",
    "changelogs_of",
    "numbers_topic",
    "repartition_settings",
]

# A record a commit, of few keys, and each start reads all of it. Only closed segments are compacted, and markers of
# transactions are removed only after delete.retention.ms.
NUMBERS_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "300000",
    "delete.retention.ms": "60000",
    "min.cleanable.dirty.ratio": "0.1",
}
_DEFAULTS = {"message.timestamp.type": "CreateTime"}
_REPARTITION = _DEFAULTS | {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": str(50 << 20)}
_DAY_MS = 86_400_000
_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Changelog:
    """A changelog topic. ``store`` is empty for the topic of the tasks' own numbers."""

    topic: str
    store: str
    partitions: int
    config: Mapping[str, str]


def changelogs_of(topology: Topology, plan: PhysicalPlan, config: StreamsConfig) -> list[Changelog]:
    """Return the changelog topics of an application; none if it keeps no state.

    A store has none if logging is off for it, or if a source topic serves as its changelog. Beside them goes a topic of
    our own for the tasks' numbers (stream times and the like), which Kafka Streams keeps with committed offsets.
    """
    if not any(sub.keeps_state for sub in plan.subtopologies):
        return []
    changelogs = []
    for sub in plan.subtopologies:
        for name in sub.stores:
            spec = topology.stores[name]
            if spec.logging:
                topic = changelog_topic(plan.application_id, name)
                changelogs.append(Changelog(topic, name, sub.tasks, changelog_settings(spec, config)))
    settings = _DEFAULTS | _topic_settings(config) | NUMBERS_SETTINGS
    numbers = Changelog(numbers_topic(plan.application_id), "", max(sub.tasks for sub in plan.subtopologies), settings)
    return [*changelogs, numbers]


def changelog_settings(spec: StoreSpec, config: StreamsConfig) -> dict[str, str]:
    """Return the settings of a store's changelog topic."""
    return _DEFAULTS | _cleanup(spec) | _topic_settings(config) | _keeping(spec, config) | spec.log_config


def repartition_settings(config: StreamsConfig) -> dict[str, str]:
    """Return the settings of repartition topics: nothing goes by time, as what is committed is deleted."""
    return _REPARTITION | _topic_settings(config)


def _topic_settings(config: StreamsConfig) -> dict[str, str]:
    """Return the user's settings of all internal topics."""
    return {name: str(value) for name, value in config.with_prefix("topic.").items()}


def changelog_topic(application_id: str, store: str) -> str:
    """Return the topic of a store's changes, as Kafka Streams names it."""
    return f"{application_id}-{store}-changelog"


def numbers_topic(application_id: str) -> str:
    """Return the topic of the tasks' numbers, written with each batch that changes them."""
    return f"{application_id}-penstock-numbers-changelog"


def _cleanup(spec: StoreSpec) -> dict[str, str]:
    return {"cleanup.policy": "compact,delete" if spec.kind in ("window", "session") else "compact"}


def _keeping(spec: StoreSpec, config: StreamsConfig) -> dict[str, str]:
    """Return the retention settings of a store's changelog; as in Kafka, settings for all topics do not change them."""
    if spec.kind in ("window", "session"):
        additional = int(config["windowstore.changelog.additional.retention.ms"])
        return {"retention.ms": str(min(spec.retention_ms + additional, _MOST))}
    if spec.kind == "versioned":
        return {"min.compaction.lag.ms": str(min(spec.history_ms + _DAY_MS, _MOST))}
    return {}
