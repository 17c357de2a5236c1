"""The topics that a task's stores are restored from, and how far their contents are committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.engines.threads.replicas.positions import layout_of
from penstock.log.base import TopicPartition
from penstock.log.fenced_record import newest_record
from penstock.state.changelog.base import TaskNumbers

if TYPE_CHECKING:
    from penstock.engines.threads.app import ThreadApp
    from penstock.log.base import TopicLog
    from penstock.topology.plan.plan import TaskId
    from penstock.topology.stores import StoreSpec

__all__ = ["StoreSource", "newest_numbers", "restored_places", "source_topics", "store_sources", "unlogged_stores"]


class StoreSource(NamedTuple):
    """The topic of a store.

    Attributes:
        spec: The store.
        topic: The topic.
        topic_id: Its id; empty where the log has none.
        end: The end of its committed records.
        layout: The layout of the store's rows (`layout_of`).
    """

    spec: StoreSpec
    topic: str
    topic_id: str
    end: int
    layout: str


def source_topics(app: ThreadApp, task: TaskId) -> dict[str, str]:
    """Return the stores of a task for which a source topic serves as changelog, with that topic's name in the log."""
    specs = {store: app.topology.stores[store] for store in app.subtopology(task).stores if store not in app.changelogs}
    return {
        store: app.plan.physical_name(spec.changelog_topic) for store, spec in specs.items() if spec.changelog_topic
    }


def unlogged_stores(app: ThreadApp, task: TaskId) -> list[str]:
    """List the stores of a task that no topic restores."""
    sources = source_topics(app, task)
    return [store for store in app.subtopology(task).stores if store not in app.changelogs and store not in sources]


def restored_places(app: ThreadApp, task: TaskId) -> list[TopicPartition]:
    """List the partitions that a thread writes for a task's state: of changelogs, and of the tasks' numbers."""
    sub = app.subtopology(task)
    topics = [app.changelogs[store] for store in sub.stores if store in app.changelogs]
    numbers = app.numbers_topic_of(task)
    if numbers is not None and sub.keeps_state:
        topics.append(numbers)
    return [TopicPartition(topic, task.partition) for topic in dict.fromkeys(topics)]


def store_sources(
    app: ThreadApp, task: TaskId, log: TopicLog, committed: Mapping[TopicPartition, int]
) -> tuple[list[StoreSource], int, str]:
    """Return the stores of a task that a topic restores, and end and id of the numbers topic.

    Args:
        app: The application.
        task: The task.
        log: The log.
        committed: The group's committed offsets.
    """
    logged = {store: app.changelogs[store] for store in app.subtopology(task).stores if store in app.changelogs}
    sources = source_topics(app, task)
    numbers = app.numbers_topic_of(task) or ""
    changelogs = [*dict.fromkeys(logged.values()), *([numbers] if numbers else [])]
    ids = log.topic_ids([*changelogs, *sources.values()])
    ends = log.end_offsets(changelogs) if changelogs else {}
    stores = []
    for store, topic in (logged | sources).items():
        spec, tp = app.topology.stores[store], TopicPartition(topic, task.partition)
        end = ends[tp] if store in logged else committed.get(tp, -1)
        stores.append(StoreSource(spec, topic, ids.get(topic, ""), end, layout_of(spec)))
    return stores, ends.get(TopicPartition(numbers, task.partition), 0), ids.get(numbers, "")


def newest_numbers(log: TopicLog, tp: TopicPartition, task: TaskId, start: int, end: int) -> TaskNumbers | None:
    """Find the newest numbers of a task from ``start`` to before ``end``; None if there are none."""
    newest = newest_record(log, tp.topic, str(task).encode(), end, partition=tp.partition, start=start).value
    return None if newest is None else TaskNumbers.parse(newest)
