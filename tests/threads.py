"""Applications as stream threads run them, over an embedded log and without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from penstock.config import StreamsConfig
from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.loop.stream_thread import StreamThread, ThreadHooks, ThreadLog
from penstock.log.base import StreamsMembership, TopicPartition
from penstock.log.thread_clients import Writer
from penstock.runtime.sensor import Sensor
from penstock.topology.configured import with_settings
from penstock.topology.plan.internal_topics import changelogs_of
from penstock.topology.plan.plan import TaskId, plan_of
from penstock.topology.topology import Topology

__all__ = ["Drops", "append", "new_thread", "records_of", "run_to_end", "settle", "thread_app"]

FOREVER = {"retention.ms": "-1"}


class Drops(Sensor):
    """Counts dropped records, those of global tables too."""

    def __init__(self) -> None:
        self.records = 0

    def on_dropped(self, task_id: str, node: str, count: int, why: str) -> None:
        self.records += count


def thread_app(
    topology: Topology, config: StreamsConfig | Mapping[str, Any], log: ThreadLog, root: str | None = None
) -> ThreadApp:
    """A planned application, whose internal topics are created."""
    settings = {"application.id": "app", "bootstrap.servers": log.url, **(config or {})}
    config = config if isinstance(config, StreamsConfig) else StreamsConfig(settings)
    topology = with_settings(topology, config)
    plan = plan_of(topology, config["application.id"], {topic.name: topic.partitions for topic in log.topics()})
    changelogs = changelogs_of(topology, plan, config)
    there = {topic.name for topic in log.topics()}
    wanted = {each.topic: (each.partitions, each.config) for each in changelogs}
    wanted |= {f"{plan.application_id}-{name}": (plan.partitions[name], FOREVER) for name in plan.internal_topics}
    for name, (partitions, settings) in wanted.items():
        if name not in there:
            log.create_topic(name, partitions, settings)
    numbers = next((each.topic for each in changelogs if not each.store), None)
    by_store = {each.store: each.topic for each in changelogs if each.store}
    return ThreadApp(topology, config, plan, by_store, numbers, root, log.identity(), epoch=1)


def new_thread(
    app: ThreadApp,
    log: ThreadLog,
    tasks: Iterable[TaskId] | None = None,
    hooks: ThreadHooks | None = None,
    *,
    name: str = "thread-0",
    epoch: int = 1,
    membership: StreamsMembership | None = None,
) -> StreamThread:
    """A thread, not started, with these tasks or all of them; with a membership in place of a lease if it has one."""
    exactly_once = app.config["processing.guarantee"] == "exactly_once_v2"
    lease = epoch if membership is None else None
    writer = Writer(app.application_id, name, lease, exactly_once, lambda: membership)
    return StreamThread(app, log, writer, list(app.tasks() if tasks is None else tasks), hooks)


def settle(*threads: StreamThread) -> None:
    """Step until nothing moves, everything committed."""
    while True:
        moved = False
        for thread in threads:
            before = thread.committed
            moved |= thread.step(0)
            thread.commit()
            moved |= thread.committed != before
        if not moved:
            return


def run_to_end(app: ThreadApp, log: ThreadLog, **options: Any) -> None:
    """Run a thread until there is nothing left, and close it."""
    thread = new_thread(app, log, **options)
    thread.start()
    try:
        settle(thread)
    finally:
        thread.close(commit=True)


def append(log: ThreadLog, topic: str, rows: Iterable[tuple[Any, Any, int]], partition: int = 0) -> None:
    """Append records (key, value, timestamp); keys and values are texts, bytes or None."""
    keys, values, times = zip(*rows, strict=True)
    columns = {
        "timestamp": pa.array(times, pa.int64()),
        "key": pa.array(map(_bytes, keys), pa.large_binary()),
        "value": pa.array(map(_bytes, values), pa.large_binary()),
    }
    log.append(topic, partition, pa.RecordBatch.from_pydict(columns))


def records_of(log: ThreadLog, topic: str, partition: int = 0) -> list[tuple[bytes | None, bytes | None, int]]:
    """All records of a partition that are committed by now: over Kafka a commit may return before it shows them."""
    log.settled_ends([TopicPartition(topic, partition)])
    start = log.beginning_offset(topic, partition)
    rows = log.read(topic, partition, start, 1_000_000).records.to_pylist()
    return [(row["key"], row["value"], row["timestamp"]) for row in rows]


def _bytes(item: Any) -> bytes | None:
    return item.encode() if isinstance(item, str) else item
