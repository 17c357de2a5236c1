"""A topology as tasks in this process, one for each sub-topology and partition, as an application has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.runtime.context import Surroundings
from penstock.runtime.local_task import GlobalCopies, LocalTask, PartitionQueues
from penstock.runtime.record import RawRecord
from penstock.runtime.sensor import Sensor
from penstock.runtime.task import TaskPart
from penstock.topology.configured.apply import with_settings
from penstock.topology.plan.changelogs import changelog_topic
from penstock.topology.plan.plan import TaskId, plan_of

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.errors import PenstockError
    from penstock.topology.topology import Topology

__all__ = ["LocalTasks"]


class LocalTasks:
    """The production tasks of a topology over topics of several partitions, with their stores in memory.

    Each task has its own stores and stream time. Internal topics connect them, with as many partitions as Kafka Streams
    gives them; all tasks see the same global tables. Records that tasks write to topics that others read are processed
    before the next input, those with the smallest timestamps first.

    Args:
        topology: The topology.
        config: The settings.
        write: Called with each record that the tasks write, in order.
        partitions: The number of partitions of the topics that are there before the start. Any other topic that is
            written has as many as the largest of these.
        sensor: A sensor that is called for the events of each batch.
        wall_clock_ms: The start of the wall clock, which only `pass_time` advances.
        by_column: Whether even single records are processed as batches, not depth first.
        logs_changes: Whether the records of changelog topics are written, too.

    Attributes:
        topology: The topology, with what the settings add to it.
        wall_clock_ms: The wall clock.
        partitions: Topic -> number of partitions.

    Raises:
        CoPartitionError: Topics that are joined have different numbers of partitions.
        UnknownTopicError: A source topic is not there.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        write: Callable[[RawRecord], None],
        partitions: Mapping[str, int],
        *,
        sensor: Sensor | None = None,
        wall_clock_ms: int = 0,
        by_column: bool = False,
        logs_changes: bool = False,
    ) -> None:
        self.topology = topology = with_settings(topology, config)
        self.wall_clock_ms = wall_clock_ms
        self._write = write
        application = config["application.id"]
        plan = plan_of(topology, application, partitions)
        self.partitions = _Counts(plan.partitions, max(partitions.values()))
        self._readers: dict[str, list[int]] = {}
        self._users: dict[str, list[TaskId]] = {}  # by store
        self._tasks: dict[TaskId, LocalTask] = {}
        sensor = sensor or Sensor()
        self._globals = globals_ = GlobalCopies(
            topology, config, Surroundings(sensor, wall_clock_ms), by_column=by_column, skips_damage=True
        )
        for sub in plan.subtopologies:
            for topic in (*sub.external_topics, *sub.internal_topics):
                self._readers.setdefault(topic, []).append(sub.id)
            ids = [TaskId(sub.id, partition) for partition in range(sub.tasks)]
            self._users |= dict.fromkeys(sub.stores, ids)
            for each in ids:
                self._tasks[each] = LocalTask(
                    topology,
                    config,
                    self._take,
                    sensor=sensor,
                    wall_clock_ms=wall_clock_ms,
                    by_column=by_column,
                    logs_changes=logs_changes,
                    part=TaskPart(str(each), self.partitions, sub.nodes),
                    global_copies=globals_,
                )
        self._changelogs = {changelog_topic(application, store): len(ids) for store, ids in self._users.items()}
        self._queues = PartitionQueues()
        self._next_offsets: dict[tuple[str, int], int] = {}
        self._last: LocalTask | None = None  # that has run
        self._is_running = False

    def parts(self) -> list[tuple[str, Sequence[str]]]:
        """Return the id of each task, and the nodes that it runs."""
        nodes = {sub.id: sub.nodes for sub in self.topology.subtopologies()}
        return [(str(task), nodes[task.subtopology]) for task in self._tasks]

    def partitions_of(self, store: str) -> int:
        """Return the number of partitions of a store; 1 for a global one, of which there is one copy."""
        return len(self._users.get(store, ())) or 1

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic; a changelog has those of its store."""
        return self._changelogs.get(topic) or self.partitions[topic]

    def next_offset(self, topic: str, partition: int = 0) -> int:
        """Return the offset of the next record of a partition, and count it."""
        offset = self._next_offsets.get((topic, partition), 0)
        self._next_offsets[topic, partition] = offset + 1
        return offset

    def position_of(self, store: str) -> dict[str, dict[int, int]]:
        """Return the offset of the last record that wrote to a store, by topic and partition."""
        if store in self.topology.global_stores:
            return self._globals.positions.get(store, {})
        merged: dict[str, dict[int, int]] = {}
        for task in self._users.get(store, ()):
            for topic, offsets in self._tasks[task].position_of(store).items():
                merged.setdefault(topic, {}).update(offsets)
        return merged

    def reads(self, topic: str) -> bool:
        """Return whether a topic was there at the start, and a source reads it."""
        return topic in self._readers or self._globals.read(topic)

    def fills_global_store(self, topic: str) -> bool:
        """Return whether a global store is filled from a topic."""
        return self._globals.read(topic)

    def process(self, records: Sequence[RawRecord]) -> None:
        """Process records, those of each task together, and those that they write to topics that tasks read.

        Those of global stores are applied behind all others. Records of topics that nothing reads change nothing.
        """
        if self._is_running:  # a processor asks for the state in the middle of a record
            return
        inputs = [record for record in records if record.topic in self._readers]
        self._queues.run_through(inputs, self._run)
        self._globals.fill_from(records, self.wall_clock_ms)

    def pass_time(self, duration_ms: int) -> None:
        """Advance the wall clock, and run the punctuations of all tasks that have become due."""
        self.wall_clock_ms += duration_ms
        for task in self._tasks.values():  # also of those behind one that fails
            task.wall_clock_ms = self.wall_clock_ms
        self._is_running = True
        try:
            for task in self._tasks.values():
                self._last = task
                task.pass_time(0)
        finally:
            self._is_running = False
        self._queues.run_through([], self._run)

    def refuse(self, refusal: Callable[[RawRecord], PenstockError | None]) -> None:
        """Refuse records as a log may: the function returns the error for one that is refused."""
        for task in self._tasks.values():
            task.refuse(refusal)

    def written_before_failure(self) -> list[RawRecord]:
        """Return what the batch that failed had written by then."""
        return [] if self._last is None else self._last.written_before_failure()

    def store(self, name: str, partition: int = 0) -> Any:
        """Return the typed view of a store of a partition."""
        return self._task_with(name, partition).store(name)

    def committed_store(self, name: str, partition: int = 0) -> Any:
        """Return the typed view of a store of a partition as the last commit left it, if stores are transactional."""
        return self._task_with(name, partition).committed_store(name)

    @property
    def dropped_records(self) -> int:
        """The number of dropped records of all tasks."""
        dropped = self._globals.dropped_records  # which each of the tasks counts too
        return dropped + sum(task.dropped_records - dropped for task in self._tasks.values())

    @property
    def sliced_reason(self) -> str | None:
        """The reason why batches of some task are processed record by record; None if none need be."""
        return next((reason for task in self._tasks.values() if (reason := task.sliced_reason)), None)

    def close(self) -> None:
        """Close the processors of all tasks."""
        for task in self._tasks.values():
            task.close()

    def _task_with(self, store: str, partition: int) -> LocalTask:
        users = self._users.get(store)
        return next(iter(self._tasks.values())) if users is None else self._tasks[users[partition]]

    def _take(self, record: RawRecord) -> None:
        """Take what a task has written."""
        self._write(record)
        if record.topic in self._readers:
            offset = self.next_offset(record.topic, record.partition)
            self._queues.add(record._replace(offset=offset))

    def _run(self, records: list[RawRecord]) -> None:
        by_task: dict[TaskId, list[RawRecord]] = {}
        for record in records:
            for sub in self._readers[record.topic]:
                by_task.setdefault(TaskId(sub, record.partition), []).append(record)
        self._is_running = True
        try:
            for task, own in by_task.items():
                self._last = self._tasks[task]
                self._last.process(own)
        finally:
            self._is_running = False


class _Counts(Mapping[str, int]):
    """The partition counts of topics; those that are not known have all the same."""

    def __init__(self, known: Mapping[str, int], others: int) -> None:
        self._known = known
        self._others = others

    def __getitem__(self, topic: str) -> int:
        return self._known.get(topic, self._others)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
