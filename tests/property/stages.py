"""An application's batches without Spark: the tasks that Spark's workers run, over the same log, segments and replicas.

Every task of every batch opens its store anew and makes its operators anew, as a worker does. In between the run can be
hurt as a cluster hurts it: a task dies at any step and its batch runs again, replicas are lost with their machine, and
envelopes of the shuffle arrive in any order.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from driving import Outcome

from compare import by_topic, sorted_store
from interpreter import Interpreted
from penstock.config import StreamsConfig
from penstock.engines.application.planning import PlannedApp
from penstock.engines.micro_batches.envelope import Envelope, EnvelopeKind
from penstock.engines.micro_batches.planned_batch import LastBatch, committed_by_spark
from penstock.engines.micro_batches.recovery.rebuild import Rebuilder, TaskReport
from penstock.engines.micro_batches.spark_tasks import run_name, slot_of
from penstock.engines.micro_batches.stage_rows import ArrivedRows, Outbox, rows_by_task
from penstock.engines.micro_batches.worker import open_tasks
from penstock.engines.micro_batches.worker.task_attempt import run_task
from penstock.engines.micro_batches.worker.task_batch import TaskBatch
from penstock.engines.offsets.start_positions import ReadSettings
from penstock.engines.spark import fault_injection as faults
from penstock.engines.spark.job import SparkJob
from penstock.log.base import HEADERS_TYPE, TopicPartition
from penstock.log.embedded.log import drop_memory_log
from penstock.log.open import open_log
from penstock.log.partitioner import partitions_for
from penstock.state.task_store import StateOwner, StatePlace, TaskStore
from penstock.state.views import open_view
from penstock.topology.plan.plan import TaskRun, plan_of
from things import plain

__all__ = ["Died", "Stages", "staged"]

Spec = dict[str, Any]
Range = tuple[int, int]


class Died(Exception):  # noqa: N818 - not an error of the code
    """A task was killed."""


@contextmanager
def staged(run: Interpreted, partitions: int = 1, cache_bytes: int = 0) -> Iterator[Stages]:
    """An application that has not run yet, with topics of so many partitions."""
    root = Path(tempfile.mkdtemp(prefix="penstock-stages-"))
    stages = Stages(run, root, partitions, cache_bytes)
    try:
        yield stages
    finally:
        stages.lose_worker()
        drop_memory_log(root.name)
        shutil.rmtree(root, ignore_errors=True)


class Stages:
    """One application."""

    def __init__(
        self, run: Interpreted, root: Path, partitions: int, cache_bytes: int, more: Mapping[str, Any] | None = None
    ) -> None:
        self._run = run
        self._root = root
        self._partitions = partitions
        self._log = open_log(str((more or {}).get("bootstrap.servers", f"memory://{root.name}")))
        there = {topic.name for topic in self._log.topics()}
        for topic in run.serdes:
            if topic not in there:
                self._log.create_topic(topic, partitions, {"retention.ms": "-1"})
        checkpoint = str(root / "checkpoint")
        settings = {"application.id": "app", "state.dir": str(root), "penstock.checkpoint.location": checkpoint}
        config = StreamsConfig({**settings, **run.config, "statestore.cache.max.bytes": cache_bytes, **(more or {})})
        self.plan = plan_of(run.topology, "app", dict.fromkeys(run.serdes, partitions))
        self.config = config
        self._app = PlannedApp(run.topology, config, self.plan, self._log)
        changelogs = self._app.changelogs
        for each in changelogs:
            if each.topic not in there:
                self._log.create_topic(each.topic, each.partitions, {**each.config, "retention.ms": "-1"})
        self._lease = self._log.acquire_lease("app", "test")
        self._job = SparkJob(
            plan=self.plan,
            pickled_app=root.name.encode(),
            log_url=self._log.url,
            log_settings={},
            epoch=self._lease.epoch,
            checkpoint=checkpoint,
            replica_root=str(root / "replicas"),
            fingerprint=self._app.fingerprint,
            accepts=(self._app.fingerprint,),
            exactly_once=True,
            parallelism=2,
            reading=ReadSettings(),
            tick_ms=0,
            until_latest=False,
            driver_pid=0,
            changelogs={each.store: each.topic for each in changelogs if each.store},
            numbers_topic=next((each.topic for each in changelogs if not each.store), None),
        )
        self._job.__dict__["_app"] = (run.topology, config)  # as if it had been unpickled
        self._batch = committed_by_spark(checkpoint).batch
        self.dropped = 0

    def set_until_latest(self, until_latest: bool) -> None:
        """Run as in a run until "latest", or not."""
        app = self._job.__dict__["_app"]
        self._job = replace(self._job, until_latest=until_latest)
        self._job.__dict__["_app"] = app

    def run(self, records: Sequence[Spec], hurt: random.Random | None = None) -> None:
        """Runs one batch of records; with dice, whatever can happen to a batch happens to it."""
        self._batch += 1
        ranges = self._ranges = self._append(records)
        while hurt is not None and hurt.random() < 0.4:
            try:
                with _dying(hurt.randrange(12)):
                    self._run_batch(ranges, hurt)
            except Died:
                pass
            self._lose(hurt)
        self._run_batch(ranges, hurt)
        if hurt is not None:
            self._lose(hurt)

    def rebuild(self, dice: random.Random, *, uncommitted: bool = False) -> list[TaskReport]:
        """Segments are lost, all of them or some, and built anew from the changelogs; replicas too, or not.

        Args:
            dice: Decides what is lost.
            uncommitted: Spark has not committed the last batch, though all tasks have written it; it runs again.
        """
        if self._job.numbers_topic is None:
            return []
        self.lose_worker()
        keeps = dice.choice([0.0, 0.0, 0.5])
        for path in sorted((self._root / "checkpoint" / "state").glob("*/*.*")):
            if dice.random() >= keeps:
                path.unlink()
        if dice.random() < 0.7:
            shutil.rmtree(self._root / "replicas", ignore_errors=True)
        partitions = [TopicPartition(topic, p) for topic in self._run.serdes for p in range(self._partitions)]
        ends = {each: self._log.end_offset(each.topic, each.partition) for each in partitions}
        complete = {*self._job.changelogs.values(), self._job.numbers_topic or ""}
        rebuilder = Rebuilder(self._app, LastBatch(self._batch - uncommitted, ends), complete)
        reports = [rebuilder.rebuild(sub, partition) for sub, partition in rebuilder.tasks()]
        if uncommitted:
            self._run_batch(self._ranges, None)
        return reports

    def changelog(self, topic: str) -> list[list[Any]]:
        """The records of a changelog topic: time, key and value in hexadecimal, headers."""
        rows = self._log.read(topic, 0, 0, 1_000_000).records.to_pylist()
        return [
            [
                row["timestamp"],
                row["key"].hex(),
                None if row["value"] is None else row["value"].hex(),
                [[h["key"], h["value"].hex()] for h in row["headers"] or ()],
            ]
            for row in rows
        ]

    def outcome(self) -> Outcome:
        """All that has been written, partition by partition, and what the stores hold."""
        self.lose_worker()  # a replica is open once in a process
        names = [name for name in dict.fromkeys(self._run.stores) if name not in self._run.topology.global_stores]
        stores = {name: sorted_store(self._dump(name)) for name in names}
        return Outcome(
            by_topic([row for topic in self._run.serdes for row in self._written(topic)]), stores, self.dropped
        )

    def _append(self, records: Sequence[Spec]) -> dict[tuple[str, int], Range]:
        ranges = {}
        for topic in dict.fromkeys(r["topic"] for r in records):
            rows = [r for r in records if r["topic"] == topic]
            keys, values = self._run.serdes[topic]
            columns = {
                "timestamp": pa.array([r["timestamp"] for r in rows], pa.int64()),
                "key": pa.array([keys.serialize(r["key"]) for r in rows], pa.large_binary()),
                "value": pa.array([values.serialize(r["value"]) for r in rows], pa.large_binary()),
            }
            headers = [r.get("headers") or None for r in rows]
            if any(headers):
                columns["headers"] = pa.array(headers, HEADERS_TYPE)
            batch = pa.RecordBatch.from_pydict(columns)
            targets = partitions_for(batch.column("key"), self._partitions)
            for partition in sorted(set(targets.tolist())):
                part = batch.filter(pa.array(targets == partition))
                first = self._log.append(topic, partition, part)
                ranges[topic, partition] = (first, first + part.num_rows)
        return ranges

    def _run_batch(self, ranges: dict[tuple[str, int], Range], shuffle: random.Random | None) -> None:
        inbox: dict[tuple[int, TaskRun], list[Envelope | ArrivedRows]] = defaultdict(list)
        for (topic, partition), (start, end) in ranges.items():
            for sub in self.plan.readers(topic):
                level, run = self.plan.entry_level(sub), TaskRun(sub.id, partition)
                slot, payload = slot_of(self._job, level, run), f"[{start}, {end}]".encode()
                envelope = Envelope(level, slot, EnvelopeKind.RANGE, run_name(run), topic, partition, "", payload)
                inbox[level, run].append(envelope)
        sent: dict[int, list[Envelope]] = defaultdict(list)
        for level in range(self.plan.levels):
            if shuffle is not None:
                shuffle.shuffle(sent[level])
            for run, rows in rows_by_task(sent[level]):
                inbox[level, run].append(rows)
            outbox = Outbox(self._job)
            for run in sorted(run for at, run in inbox if at == level):
                arrived = inbox[level, run]
                if shuffle is not None:
                    shuffle.shuffle(arrived)
                handed, report = run_task(TaskBatch(self._job, level, run, self._batch, arrived))
                self.dropped += int(report.report.get("dropped", 0))
                for envelope in outbox.add(handed):
                    sent[envelope.level].append(envelope)
                if shuffle is not None and shuffle.random() < 0.5:  # as if the task had been alone in a worker
                    for envelope in outbox.rest():
                        sent[envelope.level].append(envelope)
            for envelope in outbox.rest():
                sent[envelope.level].append(envelope)

    def _lose(self, hurt: random.Random) -> None:
        """A worker dies, or its machine with all replicas."""
        fate = hurt.random()
        if fate < 0.5:
            self.lose_worker()
        if fate < 0.25:
            shutil.rmtree(self._root / "replicas", ignore_errors=True)

    def lose_worker(self) -> None:
        """What a worker keeps between batches goes."""
        open_tasks.close_open_tasks()

    def _written(self, topic: str) -> Iterator[Spec]:
        keys, values = self._run.serdes[topic]
        sinks = {node.topic for node in self._run.topology.sinks}
        for partition in range(self._partitions if topic in sinks else 0):
            for record in self._log.read(topic, partition, 0, 1_000_000).records.to_pylist():
                row = {"topic": topic if self._partitions == 1 else f"{topic}-{partition}"}
                row |= {
                    "key": plain(keys.deserialize(record["key"])),
                    "value": plain(values.deserialize(record["value"])),
                }
                row["timestamp"] = record["timestamp"]
                if record["headers"]:
                    row["headers"] = [[h["key"], h["value"].decode()] for h in record["headers"]]
                yield row

    def _dump(self, name: str) -> list[Spec]:
        sub = next(s for s in self.plan.subtopologies if name in s.stores)
        rows = []
        for partition in range(sub.tasks):
            specs = [self._run.topology.stores[s] for s in sub.stores]
            job, task = self._job, f"{sub.id}_{partition}"
            with TaskStore(StatePlace(job.checkpoint, job.replica_root), StateOwner("app"), task, specs) as store:
                state = store.read_committed((self._batch + 1) * len(sub.levels) - 1)
                spec = self._run.topology.stores[name]
                rows += self._run.dump_store(_OneStore(open_view(spec, state.map(name), state.meta)), name)
        return rows


class _OneStore:
    """Looks like a driver to `Interpreted.dump_store`."""

    def __init__(self, view: Any) -> None:
        self._view = view

    def store(self, name: str) -> Any:
        return self._view


@contextmanager
def _dying(after: int) -> Iterator[None]:
    """Lets the tasks of this block reach so many steps of the exactly-once protocol."""
    steps = iter(range(after))

    def reach(step: int, batch: int, task: str, driver_pid: int) -> None:
        if next(steps, None) is None:
            raise Died(f"{task} at step {step} of batch {batch}")

    with patch.object(faults, "reach", reach):
        yield
