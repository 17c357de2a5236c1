"""Rows of a task's stores from its changelog topics, also of stores that were taken out of the topology."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from penstock.errors import StateError
from penstock.log.base import TopicPartition
from penstock.state.changelog.changelog_restore import StoreRestorer
from penstock.topology.plan.internal_topics import changelog_topic, changelogs_of
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engines.application.planning import PlannedApp
    from penstock.state.changelog.formats import TaskNumbers
    from penstock.topology.plan.plan import PlannedSubTopology

__all__ = ["ChangelogRows", "Restored", "spec_of_dropped"]

_DESCRIBES = {"kind", "timestamped", "window_size_ms", "retention_ms", "history_ms", "retain_duplicates", "ttl_ms",
              "persistent", "time_ordered"}  # fmt: skip
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Restored:
    """The stores of a task, restored from its changelogs.

    Attributes:
        stores: Store -> its rows in the order of their keys.
        records: The number of changelog records that were read.
    """

    stores: dict[str, pa.RecordBatch]
    records: int


class ChangelogRows:
    """The changelogs of an application, as far as they hold all of their stores.

    Args:
        app: The application.
        complete: The changelog topics that hold all of their stores.
        dropped: Stores that were taken out and whose rows are still in the segments, as `StoredPlan` describes them.
    """

    def __init__(self, app: PlannedApp, complete: set[str], dropped: Mapping[str, Mapping[str, Any]]) -> None:
        topology, log = app.topology, app.log
        self._topology = topology
        self._log = log
        self._complete = complete
        self._topics = {each.store: each.topic for each in changelogs_of(topology, app.plan, app.config)}
        there = {each.name for each in log.topics()} if dropped else set()
        own = {name: changelog_topic(app.application, name) for name in dropped if name not in topology.stores}
        self._of_dropped = {name: topic for name, topic in own.items() if topic in complete and topic in there}
        self._dropped = {name: dropped[name] for name in own}

    @property
    def is_empty(self) -> bool:
        """True if the application has no changelogs."""
        return not self._topics

    def read(self, topic: str, partition: int, end: int | None, progress: Progress) -> Iterator[pa.RecordBatch]:
        """Fetch the records of a partition up to an offset; None: to its end."""
        end = self._log.end_offset(topic, partition) if end is None else end
        first = self._log.beginning_offset(topic, partition)
        for records in self._log.iterate(topic, partition, first, end):
            if records.num_rows:
                yield records
                progress(f"{topic}-{partition}", records.column("offset")[-1].as_py() + 1 - first, end - first)

    def unlogged(self, sub: PlannedSubTopology) -> tuple[str, ...]:
        """List the stores of a sub-topology that have no topic to be restored from."""
        return tuple(name for name in sub.stores if self._source_of(name) is None)

    def lost(self, sub: PlannedSubTopology, partition: int) -> tuple[str, ...]:
        """List the stores that were taken out of a task and whose rows only its segments hold."""
        return tuple(
            name for name in self._dropped_of(sub, partition)
            if name not in self._of_dropped or spec_of_dropped(name, self._dropped[name]) is None
        )  # fmt: skip

    def check_complete(self, sub: PlannedSubTopology, task: str) -> None:
        """Raise StateError if a changelog of a task does not hold all of its store."""
        logged = [self._topics[name] for name in (*sub.stores, "") if name in self._topics]
        partial = [topic for topic in logged if topic not in self._complete]
        if partial:
            raise StateError(
                f"task {task} cannot be rebuilt: {', '.join(partial)} do not hold all that was in the stores",
                hint="They were created after the application had already run. Bring the segments back from a backup, "
                "or "
                "reset the application.",
                task=task,
            )

    def restore(
        self,
        sub: PlannedSubTopology,
        partition: int,
        numbers: TaskNumbers,
        ends: Mapping[TopicPartition, int],
        progress: Progress,
    ) -> Restored:
        """Restore the stores of a task, and those that were taken out of it.

        Args:
            sub: The task's sub-topology.
            partition: Its partition number.
            numbers: The task's numbers that belong to the records.
            ends: The ends to which source topics that serve as changelogs are read.
            progress: Called with a topic partition, the number of offsets read and their total.

        Raises:
            StateError: A changelog has records that do not fit its store.
        """
        stores, count = {}, 0
        for spec, topic, end in self._sources(sub, partition, ends):
            restorer = StoreRestorer(spec)
            for records in self.read(topic, partition, end, progress):
                restorer.add(records)
            stores[spec.name] = restorer.rows(numbers.meta)
            count += restorer.records
        return Restored(stores, count)

    def _sources(
        self, sub: PlannedSubTopology, partition: int, ends: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[StoreSpec, str, int | None]]:
        """Iterate over the stores that can be restored, each with its topic and the offset to read to."""
        for store in sub.stores:
            topic = self._source_of(store)
            if topic is not None:
                end = None if store in self._topics else ends.get(TopicPartition(topic, partition), 0)
                yield self._topology.stores[store], topic, end
        for store in self._dropped_of(sub, partition):
            spec = spec_of_dropped(store, self._dropped[store])
            if spec is not None and store in self._of_dropped:
                yield spec, self._of_dropped[store], None

    def _source_of(self, store: str) -> str | None:
        """Return the topic that a store can be restored from."""
        return self._topics.get(store) or self._topology.stores[store].changelog_topic

    def _dropped_of(self, sub: PlannedSubTopology, partition: int) -> list[str]:
        """List the stores whose rows are in a task's segments although the task no longer uses them."""
        return [
            name for name, facts in self._dropped.items()
            if int(facts["subtopology"]) == sub.id and partition < facts["tasks"]
        ]  # fmt: skip


def spec_of_dropped(name: str, facts: Mapping[str, Any]) -> StoreSpec | None:
    """Make a store's specification, as far as its changelog's format needs it; None if an early plan lacks facts.

    Example:
        >>> spec_of_dropped("counts", {"kind": "timestamped"}) is None
        True
    """
    if not facts.keys() >= _DESCRIBES:
        return None
    fact_names = {each.name for each in fields(StoreSpec)} & _DESCRIBES
    described = {fact: facts[fact] for fact in fact_names}
    keeps_headers = facts.get("keeps_headers", False)
    return StoreSpec(name, key_serde=None, value_serde=None, keeps_headers=keeps_headers, **described)
