"""An application of one task with given stores over a log, whose replica can be lost, kept or set back."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.config import StreamsConfig
from penstock.engines.threads.app import ThreadApp
from penstock.engines.threads.replicas.task_replica import TaskReplica
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.open import open_log
from penstock.state.restores.restore_progress import RestoreProgress
from penstock.state.views import open_view
from penstock.topology.plan.internal_topics import changelogs_of
from penstock.topology.plan.plan import PhysicalPlan, PlannedSubTopology, TaskId
from penstock.topology.stores import StoreSpec
from penstock.topology.topology import Topology

TASK = TaskId(0, 0)
INPUT = TopicPartition("in", 0)


def app_of(
    specs: Iterable[StoreSpec], root: Path | None, log: TopicLog | None = None, *, reads_numbers: bool = True
) -> ThreadApp:
    """An application whose only task has these stores; its topics are created in the log."""
    stores = {spec.name: spec for spec in specs}
    built = Topology(stores=stores)
    sub = PlannedSubTopology(0, (), tuple(stores), ("in",), (), (), 1, (0,), True, False, (), reads_numbers)
    plan = PhysicalPlan("app", (sub,), {"in": 1}, ())
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "memory://none"})
    topics = changelogs_of(built, plan, config)
    if log is not None:
        there = {topic.name for topic in log.topics()}
        if "in" not in there:
            log.create_topic("in")
        for each in topics:
            if each.topic not in there:
                log.create_topic(each.topic, each.partitions, each.config)
    changelogs = {each.store: each.topic for each in topics if each.store}
    (numbers,) = [each.topic for each in topics if not each.store] or [None]
    return ThreadApp(built, config, plan, changelogs, numbers, None if root is None else str(root), "log")


@contextmanager
def running(specs: Iterable[StoreSpec], directory: Path | None, log: TopicLog | None = None) -> Iterator[Running]:
    """Such a task, closed at the end."""
    task = Running(specs, directory, log)
    try:
        yield task
    finally:
        task.replica.close()
        task.log.close()


class Running:
    """The task of such an application, which commits to a log and crashes."""

    def __init__(self, specs: Iterable[StoreSpec], directory: Path | None, log: TopicLog | None = None) -> None:
        self.specs = list(specs)
        self.root = None if directory is None else directory / "replicas"
        self.log = log or open_log(f"memory://{uuid.uuid4().hex}")
        self.app = app_of(self.specs, self.root, self.log)
        self.consumed = 0
        self.progress: list[Any] = []
        self.cut_after: int | None = None  # reports of a restore, after which it dies
        self.replica = self.opened()

    def opened(self) -> TaskReplica:
        replica = self.unrestored = TaskReplica.open(self.app, TASK)
        self.progress = []
        replica.restore(self.log, self.log.committed_offsets("app"), self._report)
        return replica

    def _report(self, progress: RestoreProgress) -> None:
        self.progress.append(progress)
        if self.cut_after is not None and len(self.progress) > self.cut_after:
            raise InterruptedError

    def view(self, store: str = "s") -> Any:
        spec = next(spec for spec in self.specs if spec.name == store)
        return open_view(spec, self.replica.state.map(store), self.replica.state.meta)

    def write_log(self) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        """The log's part of a commit."""
        self.consumed += 1
        parts = self.replica.changes()
        with self.log.transaction("app-thread-0") as transaction:
            for topic, partition, records in parts:
                transaction.append(topic, partition, records)
            transaction.commit_offsets("app", {INPUT: self.consumed})
        following = {TopicPartition(t, p): self.log.end_offset(t, p) for t, p, _ in parts}
        return following, {INPUT: self.consumed}

    def commit(self) -> None:
        self.replica.commit(*self.write_log())

    def crash(self) -> None:
        """End without a commit, and start again."""
        self.replica.close()
        self.replica = self.opened()

    def lose(self) -> None:
        """Lose the replica, and start again."""
        self.replica.close()
        if self.root is not None:
            shutil.rmtree(self.root)
        self.replica = self.opened()

    def rows(self) -> dict[str, dict[bytes, bytes]]:
        return {spec.name: dict(self.replica.state.map(spec.name).scan()) for spec in self.specs}
