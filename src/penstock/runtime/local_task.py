"""A topology, or a part of it, as one task or several in this process, for the test driver and SQL's local queries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.log.partitioner import partition_for
from penstock.runtime.context import TaskEnvironment
from penstock.runtime.exception_handlers import TopicRecord
from penstock.runtime.global_stores import GLOBAL_TASK, GlobalViews
from penstock.runtime.punctuation import PriorityQueue
from penstock.runtime.rows import RawRecord, RecordContext, TopicBatch, headers_of
from penstock.runtime.sensor import Sensor
from penstock.runtime.task import StreamTask, TaskPart
from penstock.state.changelog import changelog_formats, records_of_changes, records_of_puts
from penstock.state.changelog.formats import note_writes, notes_of
from penstock.state.maps import MemoryMap, MemoryTaskState, Overlay, TaskOverlay
from penstock.state.views import open_view
from penstock.topology.configured import with_settings
from penstock.topology.plan.internal_topics import changelog_topic
from penstock.topology.plan.plan import TaskId, plan_of
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.errors import PenstockError
    from penstock.topology.nodes import SourceNode
    from penstock.topology.topology import Topology

__all__ = ["LocalTask", "LocalTasks", "Readers", "TaskRows"]


# One task


@dataclass(frozen=True, slots=True)
class TaskRows:
    """The rows that a task keeps, for another one to go on from there.

    Attributes:
        stores: The rows of each store.
        numbers: The task's small numbers, such as its stream time.
        offsets: Topic -> the offset of the next record, of the topics that the task itself writes and reads.
    """

    stores: Mapping[str, Sequence[tuple[bytes, bytes]]]
    numbers: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)


class LocalTask:
    """The production task over a whole topology, with its stores in memory, fed with records of bytes.

    All sub-topologies run as one task with one partition for each topic. Records of topics that the topology both
    writes and reads, as internal ones, are processed before the next input. A part of the topology runs as one of
    several tasks (`LocalTasks`), which take each other's records.

    Args:
        topology: The topology.
        config: The settings.
        write: Called with each record that the task writes, in order.
        sensor: A sensor that is called for the events of each batch.
        wall_clock_ms: The start of the wall clock, which only `pass_time` advances.
        by_column: Whether even single records are processed as batches, not depth first.
        skips_global_damage: Whether records of global stores that do not decode are left out whatever the settings say.
        logs_changes: Whether the records of changelog topics are written, too.
        restored: What an earlier task has kept; stores that are not named are empty.
        part: The part of the topology that the task runs; None: all of it, over topics of one partition.
        global_copies: The global stores that the task shares with others; None: it has its own.

    Attributes:
        topology: The topology, with what the settings add to it.
        wall_clock_ms: The wall clock.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        write: Callable[[RawRecord], None],
        *,
        sensor: Sensor | None = None,
        wall_clock_ms: int = 0,
        by_column: bool = False,
        skips_global_damage: bool = False,
        logs_changes: bool = False,
        restored: TaskRows | None = None,
        part: TaskPart | None = None,
        global_copies: GlobalCopies | None = None,
    ) -> None:
        restored = restored or TaskRows({})
        self.topology = topology = with_settings(topology, config)
        self.wall_clock_ms = wall_clock_ms
        self._config = config
        self._write = write
        self._sensor = sensor or Sensor()
        self._globals = global_copies or GlobalCopies(
            topology,
            config,
            TaskEnvironment(self._sensor, wall_clock_ms),
            by_column=by_column,
            skips_damage=skips_global_damage,
            restored=restored,
        )
        self._depth_first = _depth_first(config, by_column=by_column)
        nodes = set(topology.nodes) - topology.global_nodes if part is None else set(part.nodes or ())
        self._part = part = part or TaskPart("0_0", _OnePartition(), nodes)
        self._partition = int(part.task_id.partition("_")[2])
        used = {name for node in map(topology.nodes.get, nodes) for name in getattr(node, "stores", ())}
        local = {
            name: spec
            for name, spec in topology.stores.items()
            if name not in topology.global_stores and (global_copies is None or name in used)
        }
        self._logs_changes = logs_changes
        self._is_transactional = bool(config["enable.transactional.statestores"])
        self._state: MemoryTaskState | LoggedState
        if logs_changes or self._is_transactional:
            self._state = LoggedState(config["application.id"], local, restored)
        else:
            self._state = MemoryTaskState(local.values())
            _fill({name: self._state.map(name) for name in local}, restored)
            self._state.meta.update(restored.numbers)
        self._main = self._task(self._state)
        self._is_running = False
        application = config["application.id"]
        self._physical_names = {name: topology.physical_name(name, application) for name in topology.internal_topics}
        self._positions: dict[str, dict[str, dict[int, int]]] = {}
        self._sources = Readers([node for node in topology.sources if node.name in nodes])
        # Of several tasks each gets its records from outside, and so also those that it has written.
        self._read_again = self._sources if global_copies is None else Readers([])
        self._queues = PartitionQueues()
        self._next_offsets: dict[str, int] = dict(restored.offsets)
        self._refusal: Callable[[RawRecord], PenstockError | None] | None = None
        self._taken: list[RawRecord] = []

    def _task(self, state: MemoryTaskState | LoggedState) -> StreamTask:
        current = state.current if isinstance(state, LoggedState) else None
        environment = TaskEnvironment(self._sensor, self.wall_clock_ms, self._globals.views, current=current)
        return StreamTask(self.topology, self._config, self._part, state, environment)

    def next_offset(self, topic: str) -> int:
        """Return the offset of the next record of a topic, and count it."""
        offset = self._next_offsets.get(topic, 0)
        self._next_offsets[topic] = offset + 1
        return offset

    def position_of(self, store: str) -> dict[str, dict[int, int]]:
        """Return the offset of the last record that wrote to a store, by topic and partition."""
        return self._globals.positions.get(store) or self._positions.get(store, {})

    def fills_global_store(self, topic: str) -> bool:
        """Return whether a global store is filled from a topic."""
        return self._globals.read(topic)

    def process(self, records: Sequence[RawRecord]) -> None:
        """Process records, together if there are several, and those that they write to topics that the task reads.

        Those of global stores are applied behind all others. Records of topics that nothing reads change nothing.
        """
        if self._is_running:  # a processor asks for the state in the middle of a record
            return
        inputs = [record for record in records if self._sources.read(record.topic)]
        self._queues.run_through(inputs, self._run)
        self._globals.fill_from(records, self.wall_clock_ms)

    def pass_time(self, duration_ms: int) -> None:
        """Advance the wall clock, and run the punctuations that have become due."""
        self.wall_clock_ms += duration_ms
        self._run([])
        self._queues.run_through([], self._run)

    def refuse(self, refusal: Callable[[RawRecord], PenstockError | None]) -> None:
        """Refuse records as a log may: the function returns the error for one that is refused."""
        self._refusal = refusal

    def written_before_failure(self) -> list[RawRecord]:
        """Return what the batch that failed had written by then; see `StreamTask.written_before_failure`."""
        return [*self._taken, *self._main.written_before_failure().one_by_one()]

    def store(self, name: str) -> Any:
        """Return the typed view of a store."""
        return self._main.store(name)

    def committed_store(self, name: str) -> Any:
        """Return the typed view of a store as the last commit left it, if stores are transactional; else as it is.

        As in Kafka, the cache of a store hides that.
        """
        spec = self.topology.stores[name]
        is_cached = int(self._config["statestore.cache.max.bytes"]) > 0 and spec.caching is not False
        if not self._is_transactional or is_cached or name in self.topology.global_stores:
            return self.store(name)
        assert isinstance(self._state, LoggedState), "transactional stores know what is committed"  # noqa: S101
        return self._state.committed(name)

    def rows(self) -> TaskRows:
        """Return what the task keeps."""
        names = [name for name in self.topology.stores if name not in self.topology.global_stores]
        stores = {name: list(self._state.map(name).scan()) for name in names}
        stores |= self._globals.rows()
        return TaskRows(stores, dict(self._state.meta), dict(self._next_offsets))

    @property
    def dropped_records(self) -> int:
        """The number of dropped records: Kafka's ``dropped-records-total``."""
        return self._main.dropped_records + self._globals.dropped_records

    @property
    def sliced_reason(self) -> str | None:
        """The reason why batches are processed record by record; None if they need not."""
        return self._main.sliced_reason

    def close(self) -> None:
        """Close the processors."""
        self._main.close()

    def _run(self, records: list[RawRecord]) -> None:
        depth_first = len(records) <= 1 and self._depth_first
        self._taken = []
        self._is_running = True
        try:
            output = self._main.process(_batches_of(records), self.wall_clock_ms, ordered=True, depth_first=depth_first)
        finally:
            self._is_running = False
        _move(self._positions, self._state.take_touched(), records, self._physical_names)
        if isinstance(self._state, LoggedState):
            changes = self._state.commit()
            for record in changes if self._logs_changes else ():
                self._write(record._replace(partition=self._partition))
        outgoing = output.one_by_one()
        if self._refusal is not None:
            outgoing = self._not_refused(zip(outgoing, output.sources(), strict=True))
        for record in outgoing:
            topic = record.topic
            self._write(record)
            if self._read_again.read(topic):
                offset = self.next_offset(topic)
                self._queues.add(RawRecord(topic, offset, record.timestamp, record.key, record.value, record.headers))
            if self._globals.read(topic):
                self._globals.fill(record, self.wall_clock_ms)

    def _not_refused(self, outgoing: Iterable[tuple[RawRecord, RecordContext]]) -> list[RawRecord]:
        """Return the records that are not refused, with the dead letters of those that are."""
        assert self._refusal is not None, "there is something to refuse"  # noqa: S101
        for record, source in outgoing:
            error = self._refusal(record)
            if error is None:
                self._taken.append(record)
                continue
            refused = TopicRecord(record.topic, record.key, record.value, record.timestamp, record.headers)
            response = self._main.refused(record.topic, source, refused, error)
            for letter in response.dead_letters:
                time = self.wall_clock_ms if letter.timestamp is None else letter.timestamp
                count = self._part.partitions[letter.topic]
                partition = 0 if letter.key is None or count == 1 else partition_for(letter.key, count)
                sent = RawRecord(letter.topic, -1, time, letter.key, letter.value, letter.headers, partition)
                self._taken.append(sent)
            if response.action != "continue":
                raise error
        taken, self._taken = self._taken, []
        return taken


class GlobalCopies:
    """The global stores of a topology in memory, and the task that fills them.

    Args:
        topology: The topology, with what the settings add to it.
        config: The settings.
        environment: What the task uses of the process.
        by_column: Whether even single records are processed as batches, not depth first.
        skips_damage: Whether records that do not decode are left out whatever the settings say.
        restored: The rows to begin with.

    Attributes:
        views: The stores, to be read by other tasks.
        positions: The offset of the last record that wrote to a store, by store, topic and partition.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        environment: TaskEnvironment,
        *,
        by_column: bool = False,
        skips_damage: bool = False,
        restored: TaskRows | None = None,
    ) -> None:
        specs = {name: topology.stores[name] for name in topology.global_stores}
        self._state = state = MemoryTaskState(specs.values())
        self._maps = {name: state.map(name) for name in specs}
        _fill(self._maps, restored or TaskRows({}))
        self.views = GlobalViews(specs, self._maps, state.meta)
        self.positions: dict[str, dict[str, dict[int, int]]] = {}
        self._depth_first = _depth_first(config, by_column=by_column)
        self._sources = Readers([node for node in topology.sources if node.global_store])
        self._task: StreamTask | None = None
        if topology.global_nodes:
            if skips_damage:
                config = config.with_settings({"deserialization.exception.handler": "continue"})
            part = TaskPart(GLOBAL_TASK, _OnePartition(), topology.global_nodes)
            self._task = StreamTask(topology, config, part, state, environment)
            if self._task.headers is not None:
                self.views.headers = self._task.headers

    def read(self, topic: str) -> bool:
        """Return whether a global store is filled from a topic."""
        return self._sources.read(topic)

    def fill_from(self, records: Iterable[RawRecord], wall_clock_ms: int) -> None:
        """Process those records that global stores are filled from."""
        for record in records:
            if self.read(record.topic):
                self.fill(record, wall_clock_ms)

    def fill(self, record: RawRecord, wall_clock_ms: int) -> None:
        """Process a record of a topic that `read` is true of."""
        assert self._task is not None, "a global source has a task"  # noqa: S101
        self._task.process(_batches_of([record]), wall_clock_ms, ordered=True, depth_first=self._depth_first)
        _move(self.positions, self._state.take_touched(), [record], {})

    def rows(self) -> dict[str, list[tuple[bytes, bytes]]]:
        """Return the rows of each store."""
        return {name: list(rows.scan()) for name, rows in self._maps.items()}

    @property
    def dropped_records(self) -> int:
        """The number of dropped records."""
        return 0 if self._task is None else self._task.dropped_records


def _depth_first(config: StreamsConfig, *, by_column: bool) -> bool:
    """Return whether single records go depth first: then even the user's functions are called in Kafka's order.

    With caching a record is a batch, whose updates of one key become one.
    """
    return not by_column and int(config["statestore.cache.max.bytes"]) == 0


def _move(
    positions: dict[str, dict[str, dict[int, int]]],
    stores: Sequence[str],
    records: Sequence[RawRecord],
    physical_names: Mapping[str, str],
) -> None:
    """Note the offsets of the records that have written to stores."""
    for store in stores:
        position = positions.setdefault(store, {})
        for record in records:
            topic = physical_names.get(record.topic, record.topic)
            position.setdefault(topic, {})[record.partition] = record.offset


class _OnePartition(Mapping[str, int]):
    """The partition counts of topics: always one."""

    def __getitem__(self, topic: str) -> int:
        return 1

    def get(self, topic: str, default: object = None) -> int:  # noqa: ARG002 - Mapping's calls the other
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Readers:
    """The topics that some sources read."""

    def __init__(self, sources: Sequence[SourceNode]) -> None:
        self._sources = sources
        self._known: dict[str, bool] = {}

    def read(self, topic: str) -> bool:
        """Return whether a source reads a topic, by its name or by a pattern."""
        is_read = self._known.get(topic)
        if is_read is None:
            is_read = self._known[topic] = any(node.reads(topic) for node in self._sources)
        return is_read


class PartitionQueues:
    """Records in the order of Kafka Streams: the queue with the smallest head timestamp first."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, int], deque[RawRecord]] = {}
        self._waiting: PriorityQueue[deque[RawRecord]] = PriorityQueue(lambda queue: queue[0].timestamp)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, record: RawRecord) -> None:
        """Add a record behind those of its partition."""
        queue = self._queues.setdefault((record.topic, record.partition), deque())
        queue.append(record)
        if len(queue) == 1:
            self._waiting.add(queue)

    def take(self) -> RawRecord:
        """Remove and return the next record; there must be one."""
        queue = self._waiting.poll()
        assert queue is not None, "the queues are empty"  # noqa: S101
        record = queue.popleft()
        if queue:
            self._waiting.add(queue)
        return record

    def run_through(self, inputs: list[RawRecord], run: Callable[[list[RawRecord]], None]) -> None:
        """Run inputs, and then what was added meanwhile, until nothing is left: together, but one by one behind one."""
        one_by_one = len(inputs) <= 1
        if one_by_one and inputs and self:  # an error has left some
            self.add(inputs[0])
        elif inputs:
            run(inputs)
        waiting = self._waiting
        while waiting:
            records = [self.take()]
            while not one_by_one and waiting:
                records.append(self.take())
            run(records)


def _fill(maps: Mapping[str, MemoryMap], restored: TaskRows) -> None:
    for name, rows in maps.items():
        kept = restored.stores.get(name, ())
        if kept:
            rows.put_many([key for key, _ in kept], [value for _, value in kept])
            rows.is_touched = False


def _batches_of(records: Sequence[RawRecord]) -> list[TopicBatch]:
    """Return the records as one batch for each topic and partition, which know the places of their records."""
    if len(records) == 1:
        return [TopicBatch.of_rows(records)]
    places: dict[tuple[str, int], list[int]] = {}
    for position, record in enumerate(records):
        places.setdefault((record.topic, record.partition), []).append(position)
    if len(places) == 1:
        return [TopicBatch.of_rows(records)]
    return [TopicBatch.of_rows([records[position] for position in each], np.array(each)) for each in places.values()]


class LoggedState:
    """The state of a task in memory, whose changes become records of changelog topics with each commit.

    Args:
        application_id: The application.
        stores: The task's stores.
        restored: What they hold at first.
    """

    def __init__(self, application_id: str, stores: Mapping[str, StoreSpec], restored: TaskRows | None = None) -> None:
        restored = restored or TaskRows({})
        self._stores = stores
        self._maps = {name: MemoryMap() for name in stores}
        _fill(self._maps, restored)
        self._topics = {name: changelog_topic(application_id, name) for name, spec in stores.items() if spec.logging}
        self._formats = changelog_formats(stores, self._topics)
        self._meta: dict[str, int] = dict(restored.numbers)
        self.state = TaskOverlay(0, self._maps, self._meta)
        self.current = note_writes(self.state)

    def map(self, store: str) -> Overlay:
        """Return the rows of a store, with the changes since the last commit."""
        return self.state.map(store)

    @property
    def meta(self) -> dict[str, int]:
        """The task's small numbers."""
        return self.state.meta

    def take_touched(self) -> list[str]:
        """Return the stores that have been written since the last commit."""
        return [name for name, overlay in self.state.maps.items() if overlay.changes or overlay.puts]

    def committed(self, store: str) -> Any:
        """Return the typed view of a store as the last commit left it."""
        return open_view(self._stores[store], Overlay(self._maps[store]), dict(self._meta))

    def commit(self) -> list[RawRecord]:
        """Write the changes since the last commit into the stores, and return their records, topic by topic."""
        state = self.state
        changes = state.sorted_changes()
        records = records_of_puts(self._topics, ((name, state.puts(name)) for name in self._stores))
        records += records_of_changes(self._formats, self._topics, changes.items(), state.meta, notes_of(state))
        for store, rows in changes.items():
            self._maps[store].put_many(rows.column(0).to_pylist(), rows.column(1).to_pylist())
        self._meta = dict(state.meta)
        state.rebase(0, self._maps, self._meta)
        written = []
        for topic, batch in records:
            headers = headers_of(batch.column("headers"))
            columns = (batch.column(name).to_pylist() for name in ("timestamp", "key", "value"))
            for row, (timestamp, key, value) in enumerate(zip(*columns, strict=True)):
                written.append(RawRecord(topic, -1, timestamp, key, value, headers[row] if headers else ()))
        return written


# Several tasks


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
            topology, config, TaskEnvironment(sensor, wall_clock_ms), by_column=by_column, skips_damage=True
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

    def __init__(self, counts: Mapping[str, int], others: int) -> None:
        self._known = counts
        self._others = others

    def __getitem__(self, topic: str) -> int:
        return self._known.get(topic, self._others)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
