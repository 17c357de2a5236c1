"""Rebuilds the state of an application from its changelog topics, after segments of its checkpoint were lost.

The changelogs hold what the stores were after the newest batch that a task has written, in the transaction of its
outputs; the task's record among the numbers says which segment that was. So a snapshot made of them takes the place of
that segment, and the application goes on where its ledger and Spark's own checkpoint stand.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.errors import CheckpointMismatchError, StateError
from penstock.plan.changelogs import changelogs_of, numbers_topic
from penstock.plan.document import document_of, fingerprint_of
from penstock.plan.evolution import require_compatible
from penstock.spark.changelog_topics import complete_changelogs
from penstock.spark.offsets import SourceOffset
from penstock.state.chain import Chain, follow_chain, read_segment
from penstock.state.changelog.numbers import TaskNumbers
from penstock.state.changelog.restore import StoreRestorer, put_snapshot, whole
from penstock.state.documents import list_documents, read_document
from penstock.state.segments import NO_BATCH, Segment, SegmentHead, SegmentName, pack
from penstock.state.storage import SegmentStorage, open_storage

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog, TopicPartition
    from penstock.plan.plan import PhysicalPlan, PlannedSubTopology
    from penstock.topology.topology import Topology

__all__ = ["Rebuilder", "TaskFacts", "TaskReport", "committed_by_spark", "rebuilder_for"]


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What was found of a task, and done.

    Attributes:
        task: The task.
        outcome: "sound" (nothing was missing), "rebuilt", "empty" (it has never written anything), or in a dry run
            "would be rebuilt".
        gap: What was missing.
        batch: The newest batch in its state.
        records: How many changelog records were read.
        rows: Store -> rows that came of them.
        without_changelog: Stores that nothing can bring back; they begin empty.
        size_bytes: Of the snapshot.
        seconds: That it took.
    """

    task: str
    outcome: str
    gap: str | None
    batch: int
    records: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    without_changelog: tuple[str, ...] = ()
    size_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What there is of a task.

    Attributes:
        task: The task.
        stores: Its stores.
        chain: Its segments.
        gap: What is missing of them.
        numbers: What its changelogs stand for; None if it has none.
    """

    task: str
    stores: tuple[str, ...]
    chain: Chain
    gap: str | None
    numbers: TaskNumbers | None


def committed_by_spark(checkpoint: str) -> tuple[int, dict[TopicPartition, int]]:
    """The newest batch that Spark has committed, -1 before the first, and where its input ended."""
    done = [int(name) for name in list_documents(checkpoint, "spark/commits") if name.isdecimal()]
    if not done:
        return -1, {}
    text = read_document(checkpoint, f"spark/offsets/{max(done)}") or ""
    lines = [line for line in text.splitlines() if line.startswith('{"topics"')]
    return max(done), dict(SourceOffset.of(json.loads(lines[0])).ends) if lines else {}


class Rebuilder:
    """Looks at the tasks of an application that does not run, and rebuilds what is missing.

    Args:
        topology: The topology.
        config: Its settings.
        plan: Its plan.
        log: Where its changelogs are.
        checkpoint: Its checkpoint location.
        fingerprint: Of the topology.
        committed: What `committed_by_spark` gives.
        complete: The changelog topics that hold all of their stores; None: as the checkpoint has it noted.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        plan: PhysicalPlan,
        log: TopicLog,
        checkpoint: str,
        fingerprint: str,
        committed: tuple[int, Mapping[TopicPartition, int]],
        complete: set[str] | None = None,
    ) -> None:
        self._topology = topology
        self._plan = plan
        self._log = log
        self._checkpoint = checkpoint
        self._fingerprint = fingerprint
        self._batch, self._ends = committed
        self._complete = complete_changelogs(checkpoint) if complete is None else complete
        self._topics = {each.store: each.topic for each in changelogs_of(topology, plan, config)}
        self._numbers: dict[int, dict[str, TaskNumbers]] = {}

    def tasks(self) -> Iterator[tuple[PlannedSubTopology, int]]:
        """The tasks that have segments; none if no task keeps state."""
        for sub in self._plan.subtopologies if self._topics else ():
            if self._plan.publishes(sub):
                yield from ((sub, partition) for partition in range(sub.tasks))

    def storage(self, sub: PlannedSubTopology, partition: int) -> SegmentStorage:
        """The segments of a task."""
        return open_storage(self._checkpoint, f"{sub.id}_{partition}")

    def rebuild(
        self,
        sub: PlannedSubTopology,
        partition: int,
        *,
        dry_run: bool = False,
        accept_loss: bool = False,
        progress: Callable[[str, int, int], None] = lambda *_: None,
    ) -> TaskReport:
        """Rebuilds a task if segments of it are missing.

        Args:
            sub: Its sub-topology.
            partition: Its number.
            dry_run: Only says what would be done.
            accept_loss: Goes on although rows that a half-finished batch had handed to other tasks are lost.
            progress: Called with a topic, and how much of how many offsets have been read.

        Raises:
            StateError: It cannot be rebuilt; nothing has been changed.
        """
        started = time.perf_counter()
        task = f"{sub.id}_{partition}"
        storage = self.storage(sub, partition)
        facts = self.look(sub, partition)
        chain, numbers = facts.chain, facts.numbers
        if facts.gap is None:
            return TaskReport(task, "empty" if chain.head == NO_BATCH else "sound", None, chain.head)
        if numbers is None:
            raise self._no_numbers(task, chain)
        lost = tuple(name for name in sub.stores if self._source_of(name) is None)
        self._check_complete(sub, task)
        unfinished = self._unfinished(sub, storage, task, numbers, accept_loss=accept_loss)
        if dry_run:
            return TaskReport(task, "would be rebuilt", facts.gap, numbers.batch, without_changelog=lost)
        records, stores = self._restore(sub, partition, numbers, progress)
        size = self._publish(sub, storage, task, numbers, stores, unfinished)
        rows = {store: found.num_rows for store, found in stores.items()}
        seconds = time.perf_counter() - started
        return TaskReport(task, "rebuilt", facts.gap, numbers.batch, records, rows, lost, size, seconds)

    # What there is

    def look(self, sub: PlannedSubTopology, partition: int) -> TaskFacts:
        """What there is of a task: its segments, and whether they reach as far as its changelogs."""
        task = f"{sub.id}_{partition}"
        storage = self.storage(sub, partition)
        chain = follow_chain(storage)
        numbers = self._numbers_of(partition).get(task)
        gap = chain.gap
        if gap is None and numbers is not None and chain.head < numbers.batch:
            gap = f"segment {storage.where(SegmentName(numbers.batch, 'delta'))} and all after it are gone"
        return TaskFacts(task, sub.stores, chain, gap, numbers)

    def _numbers_of(self, partition: int) -> dict[str, TaskNumbers]:
        """Task -> its newest record, of the tasks of this number."""
        if partition not in self._numbers:
            found: dict[str, TaskNumbers] = {}
            topic = numbers_topic(self._plan.application_id)
            if topic not in {each.name for each in self._log.topics()}:
                return found
            for records in self._read(topic, partition, None, lambda *_: None):
                columns = records.select(["key", "value"]).to_pydict()
                for key, value in zip(columns["key"], columns["value"], strict=True):
                    if value is not None:
                        found[key.decode()] = TaskNumbers.parse(value)
            self._numbers[partition] = found
        return self._numbers[partition]

    def _source_of(self, store: str) -> str | None:
        """The topic that a store can be restored from."""
        return self._topics.get(store) or self._topology.stores[store].changelog_topic

    def _check_complete(self, sub: PlannedSubTopology, task: str) -> None:
        logged = [self._topics[name] for name in (*sub.stores, "") if name in self._topics]
        partial = [topic for topic in logged if topic not in self._complete]
        if partial:
            raise StateError(
                f"task {task} cannot be rebuilt: {', '.join(partial)} do not hold all that was in the stores",
                hint="They were begun when the application had run already. Bring the segments back from a backup, or "
                "reset the application.",
                task=task,
            )

    def _read(
        self, topic: str, partition: int, end: int | None, progress: Callable[[str, int, int], None]
    ) -> Iterator[pa.RecordBatch]:
        end = self._log.end_offset(topic, partition) if end is None else end
        first = self._log.beginning_offset(topic, partition)
        for records in self._log.iterate(topic, partition, first, end):
            if records.num_rows:
                yield records
                progress(f"{topic}-{partition}", records.column("offset")[-1].as_py() + 1 - first, end - first)

    # The state

    def _restore(
        self,
        sub: PlannedSubTopology,
        partition: int,
        numbers: TaskNumbers,
        progress: Callable[[str, int, int], None],
    ) -> tuple[int, dict[str, pa.RecordBatch]]:
        from penstock.log.base import TopicPartition

        count, stores = 0, {}
        for store in sub.stores:
            topic = self._source_of(store)
            if topic is None:
                continue
            own = store in self._topics
            end = None if own else self._ends.get(TopicPartition(topic, partition), 0)
            restorer = StoreRestorer(self._topology.stores[store])
            for records in self._read(topic, partition, end, progress):
                restorer.add(records)
            stores[store] = restorer.rows(numbers.meta)
            count += restorer.records
        return count, stores

    def _unfinished(
        self, sub: PlannedSubTopology, storage: SegmentStorage, task: str, numbers: TaskNumbers, *, accept_loss: bool
    ) -> list[Segment] | None:
        """The deltas of a batch that the task has written and Spark has not committed; None if they are lost.

        Such a batch is run again, and has to find that there is nothing left to do.
        """
        first, at = self._first(sub), numbers.batch
        found: list[Segment] = []
        while at >= first:
            segment = read_segment(storage, SegmentName(at, "delta"))
            if segment is None:
                break
            found.insert(0, segment)
            at = segment.head.previous
        else:
            return found
        handed_on = [topic for topic in sub.sink_topics if topic in self._plan.internal_topics]
        if handed_on and not accept_loss:
            raise StateError(
                f"task {task} has written batch {self._batch + 1}, which was not finished when the application ended; "
                f"what it had for {', '.join(handed_on)} was in a segment that is lost",
                hint="Bring the segment back from a backup, or go on without those records: --accept-loss.",
                task=task,
                batch=self._batch + 1,
            )
        return None

    def _first(self, sub: PlannedSubTopology) -> int:
        """The number of the next batch's first run."""
        return (self._batch + 1) * len(sub.levels)

    def _head(self, kind: Any, task: str, batch: int, numbers: TaskNumbers) -> SegmentHead:
        application = self._plan.application_id
        return SegmentHead(kind, application, self._fingerprint, task, batch, NO_BATCH, "", dict(numbers.meta))

    def _publish(
        self,
        sub: PlannedSubTopology,
        storage: SegmentStorage,
        task: str,
        numbers: TaskNumbers,
        stores: dict[str, pa.RecordBatch],
        unfinished: list[Segment] | None,
    ) -> int:
        """The snapshot, and after it what stands for an unfinished batch: its deltas, or empty ones in their place."""
        first = self._first(sub)
        head = self._head("snapshot", task, min(numbers.batch, first - 1), numbers)
        if unfinished:  # they change nothing of what is in the snapshot already
            before = unfinished[0].head
            head = replace(head, previous=before.previous, previous_checksum=before.previous_checksum)
        elif unfinished is not None:
            head = replace(head, previous=numbers.batch, previous_checksum=numbers.checksum)
        kept = {SegmentName(head.batch, "snapshot"), *(SegmentName(each.batch, "delta") for each in unfinished or ())}
        in_delta = head.batch < 0  # the very first batch: no snapshot comes before it
        size = 0 if in_delta else put_snapshot(storage, head, stores)
        for name in storage.names():
            if name not in kept and name.batch <= numbers.batch:
                storage.delete(name)
        if unfinished is None:
            at = (NO_BATCH, "")
            for number in range(first, numbers.batch + 1):
                delta = self._head("delta", task, number, numbers)
                changes = whole(stores) if in_delta and number == first else {}
                parts, checksum = pack(replace(delta, previous=at[0], previous_checksum=at[1]), changes, {})
                storage.create(SegmentName(number, "delta"), parts)
                at = (number, checksum)
                size += sum(len(part) for part in parts)
        return size

    def _no_numbers(self, task: str, chain: Chain) -> StateError:
        topic = numbers_topic(self._plan.application_id)
        return CheckpointMismatchError(
            f"task {task} cannot be rebuilt: {chain.gap}, and {topic} has no record of it",
            hint="Changelogs were off (penstock.changelog.enabled). Bring the segments back from a backup.",
            task=task,
        )


@contextmanager
def rebuilder_for(topology: Topology, config: StreamsConfig, lease_ttl_ms: int = 30_000) -> Iterator[Rebuilder]:
    """The rebuilder of an application, which cannot be started meanwhile.

    Raises:
        FencedError: The application runs.
        CheckpointMismatchError: Its checkpoint is gone as a whole, or of another topology.
    """
    from penstock.spark.launch import Places, open_app_log, plan_for

    with open_app_log(config) as log:
        plan = plan_for(topology, config, log)
        checkpoint = Places.of(config).checkpoint
        document = document_of(plan, topology)
        stored = read_document(checkpoint, "plan.json")
        if stored is None:
            raise CheckpointMismatchError(
                f"there is no checkpoint of {plan.application_id!r} at {checkpoint}",
                hint="Set state.dir or penstock.checkpoint.location to where it ran. Only its segments can be rebuilt, "
                "not what Spark and Penstock have noted beside them.",
                checkpoint=checkpoint,
            )
        require_compatible(json.loads(stored)["plan"], document, checkpoint)
        lease = log.acquire_lease(plan.application_id, "state rebuild", lease_ttl_ms)
        try:
            yield Rebuilder(
                topology, config, plan, log, checkpoint, fingerprint_of(document), committed_by_spark(checkpoint)
            )
        finally:
            log.release_lease(lease)
