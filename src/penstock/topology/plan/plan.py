"""The physical plan: tasks, stages, topics and stores of one application."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from penstock.errors import TopologyError, UnknownTopicError
from penstock.log.base import TopicPartition
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from penstock.topology.operations.definitions import Operation, Process, TableTransformValues
from penstock.topology.plan.partitions import partition_counts, source_topics
from penstock.topology.stores import StoreSpec
from penstock.topology.topology import SubTopology, Topology, internal_topic

__all__ = ["PhysicalPlan", "PlannedSubTopology", "TaskId", "TaskRun", "changed", "is_acyclic", "levels_of", "plan_of"]

Flows = Mapping[int, Mapping[str, Collection[str]]]
Run = frozenset[tuple[int, str]]  # topics that a sub-topology reads together
Arrows = Mapping[Run, Collection[Run]]


@dataclass(frozen=True, slots=True)
class PlannedSubTopology:
    """One sub-topology and its tasks.

    ``levels`` are the stages in which it runs: one, unless it feeds itself over an internal topic, as in the cycle of a
    foreign-key join. ``keeps_state``: it has stores or numbers (stream time) that outlive a batch.
    ``ticks``: wall-clock time may make it do something.
    ``held``: the phases in which punctuations wait for a later batch, as no stage is left for their output.
    ``reads_numbers``: numbers of earlier commits may matter to it, see `_reads_numbers`.
    """

    id: int
    nodes: tuple[str, ...]
    stores: tuple[str, ...]
    external_topics: tuple[str, ...]
    internal_topics: tuple[str, ...]
    sink_topics: tuple[str, ...]
    tasks: int
    levels: tuple[int, ...]
    keeps_state: bool
    ticks: bool
    held: tuple[int, ...] = ()
    reads_numbers: bool = True


class TaskId(NamedTuple):
    """Kafka's ``TaskId``: a sub-topology for one partition.

    >>> str(TaskId(0, 3)), TaskId.parse("0_3")
    ('0_3', TaskId(subtopology=0, partition=3))
    """

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Parse ``<sub-topology>_<partition>``."""
        subtopology, partition = text.split("_")
        return cls(int(subtopology), int(partition))


@dataclass(frozen=True, slots=True, order=True)
class TaskRun:
    """One run of a task in a batch: sub-topology, partition and phase (0, or 1 in the second stage of a cycle)."""

    subtopology: int
    partition: int
    phase: int = 0

    @property
    def task_id(self) -> str:
        return f"{self.subtopology}_{self.partition}"


@dataclass(frozen=True)
class PhysicalPlan:
    """The placement of all work. ``partitions`` has the counts of all topics; internal ones by logical name.

    ``global_topics`` are those of global tables: every machine reads all of them.
    """

    application_id: str
    subtopologies: tuple[PlannedSubTopology, ...]
    partitions: Mapping[str, int]
    internal_topics: tuple[str, ...]
    global_topics: tuple[str, ...] = ()

    @property
    def levels(self) -> int:
        return max(level for sub in self.subtopologies for level in sub.levels) + 1

    @property
    def repartition_topics(self) -> dict[str, str]:
        """The logical names of the internal topics by their names in the log."""
        return {internal_topic(self.application_id, topic): topic for topic in self.internal_topics}

    def physical_name(self, topic: str) -> str:
        """Return a topic's name in the log: internal topics have the application's prefix."""
        return internal_topic(self.application_id, topic) if topic in self.internal_topics else topic

    def sources(self, task: TaskId) -> list[TopicPartition]:
        """Return the partitions that a task reads, by their names in the log."""
        sub = self.subtopology(task.subtopology)
        return [
            TopicPartition(self.physical_name(topic), task.partition)
            for topic in (*sub.external_topics, *sub.internal_topics)
            if task.partition < self.partitions[topic]
        ]

    def runs(self, level: int) -> list[TaskRun]:
        """Return the task runs of a stage, in order."""
        return [
            TaskRun(sub.id, partition, sub.levels.index(level))
            for sub in self.subtopologies
            if level in sub.levels
            for partition in range(sub.tasks)
        ]

    def run_count(self, level: int) -> int:
        """Return the number of task runs of a stage."""
        return sum(sub.tasks for sub in self.subtopologies if level in sub.levels)

    def first_run(self, level: int, subtopology: int) -> int:
        """Return the position of a sub-topology's first run in a stage; its runs are in the order of partitions."""
        before = takewhile(lambda sub: sub.id != subtopology, self.subtopologies)
        return sum(sub.tasks for sub in before if level in sub.levels)

    def subtopology(self, number: int) -> PlannedSubTopology:
        """Return a sub-topology by its number."""
        return next(s for s in self.subtopologies if s.id == number)

    def readers(self, topic: str) -> list[PlannedSubTopology]:
        """Return the sub-topologies that read a topic."""
        return [s for s in self.subtopologies if topic in s.external_topics or topic in s.internal_topics]

    def publishes(self, sub: PlannedSubTopology) -> bool:
        """Return whether its batches leave segments: those with neither state nor internal rows need none."""
        return sub.keeps_state or any(topic in self.internal_topics for topic in sub.sink_topics)

    def entry_level(self, sub: PlannedSubTopology, *, after: int = -1) -> int:
        """Return the stage in which a sub-topology takes in rows that exist after stage ``after``."""
        for level in sub.levels:
            if level > after:
                return level
        raise TopologyError(
            f"sub-topology {sub.id} has read all of this batch when stage {after} writes to it",
            hint="Its rows come from a punctuation that a foreign-key join made due; write them to a topic with to().",
        )

    @property
    def external_topics(self) -> tuple[str, ...]:
        """All topics that tasks read from the log."""
        return tuple(dict.fromkeys(t for s in self.subtopologies for t in s.external_topics))

    @property
    def all_topics(self) -> tuple[str, ...]:
        """All topics that are read from the log, those of global tables too."""
        return tuple(dict.fromkeys((*self.external_topics, *self.global_topics)))

    @property
    def ticks(self) -> bool:
        return any(s.ticks for s in self.subtopologies)


def plan_of(topology: Topology, application_id: str, existing_counts: Mapping[str, int]) -> PhysicalPlan:
    """Plan a topology.

    Args:
        topology: The topology.
        application_id: The ``application.id``.
        existing_counts: Partition counts of the topics that exist.

    Raises:
        UnknownTopicError: A source topic is not there.
        CoPartitionError: Topics that are joined have different counts.
    """
    if not topology.subtopologies():
        raise TopologyError("the topology reads nothing", hint="Start with builder.stream(...) or builder.table(...).")
    topics = source_topics(topology, existing_counts)
    _check_known(topology, topics, existing_counts)
    counts = partition_counts(topology, existing_counts)
    subs = topology.subtopologies()
    read = {s.id: _read_by(s, topology, topics) for s in subs}
    stages = levels_of(_flows(subs, topology, topics))
    levels = {s.id: tuple(i for i, stage in enumerate(stages) if s.id in stage) for s in subs}
    planned = tuple(_planned(s, topology, read, counts, levels) for s in subs)
    tables = tuple(dict.fromkeys(t for n in topology.sources if n.global_store for t in topics[n.name]))
    return PhysicalPlan(application_id, planned, counts, tuple(topology.internal_topics), tables)


def changed(old: PhysicalPlan, new: PhysicalPlan, topology: Topology) -> bool:
    """Return whether topics of this topology have appeared, gone or grown between two plans."""
    if (old.subtopologies, old.global_topics) != (new.subtopologies, new.global_topics):
        return True
    if any(node.topic is None for node in topology.sinks):  # it may write to any topic
        return old.partitions != new.partitions
    sinks = {topic for sub in new.subtopologies for topic in sub.sink_topics}
    used = {*new.all_topics, *new.internal_topics, *sinks}
    return any(old.partitions.get(topic) != new.partitions.get(topic) for topic in used)


def _read_by(sub: SubTopology, topology: Topology, topics: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    names = [n for n in sub.nodes if isinstance(topology.nodes[n], SourceNode)]
    return tuple(dict.fromkeys(t for n in names for t in topics[n]))


def _flows(
    subs: Sequence[SubTopology], topology: Topology, topics: Mapping[str, tuple[str, ...]]
) -> dict[int, dict[str, set[str]]]:
    """Return sub-topology -> topic -> the internal topics that its records reach; see `levels_of`.

    A processor or suppress() may send records because of any record of the task, as its time moves on.
    """
    flows: dict[int, dict[str, set[str]]] = {}
    by_time: dict[int, dict[str, set[str]]] = {}
    for sub in subs:
        flows[sub.id], by_time[sub.id] = {}, {}
        timed = {t for n in sub.nodes if _acts_on_time(topology.nodes[n]) for t in _reached(n, topology)}
        for source in sub.nodes:
            for topic in topics.get(source, ()):
                reached = flows[sub.id].setdefault(topic, set())
                reached |= _reached(source, topology)
                by_time[sub.id][topic] = reached | timed
    return by_time if is_acyclic(by_time) else flows


def _reached(start: str, topology: Topology) -> set[str]:
    """Return the internal topics that are written below a node."""
    topics: set[str] = set()
    seen: set[str] = set()
    todo = [start]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        node = topology.nodes[name]
        if isinstance(node, SinkNode) and node.topic in topology.internal_topics:
            topics.add(str(node.topic))
        todo += topology.children(name)
    return topics


def _holds_back(operation: Operation) -> bool:
    """Return whether it sends held records by wall-clock time."""
    return type(operation).__name__ == "Suppress" or getattr(operation, "idle_ms", None) is not None


def _held_phases(
    sub: SubTopology, topology: Topology, reads: Mapping[int, tuple[str, ...]], levels: Mapping[int, tuple[int, ...]]
) -> tuple[int, ...]:
    """Return the phases in which a punctuation could write to a topic that is not read any more in this batch."""
    processors = [n for n in sub.nodes if isinstance(getattr(topology.nodes[n], "operation", None), Process)]
    written = {topic for n in processors for topic in _reached(n, topology)}
    last = [max(levels[reader]) for topic in written for reader, topics in reads.items() if topic in topics]
    return tuple(phase for phase, level in enumerate(levels[sub.id]) if level >= min(last, default=level + 1))


def _acts_on_time(node: Node) -> bool:
    return isinstance(node, ProcessorNode) and (isinstance(node.operation, Process) or _holds_back(node.operation))


def _reads_numbers(operations: Sequence[Operation], specs: Sequence[StoreSpec]) -> bool:
    """Return whether stream time, or other numbers that are kept with a task, may matter to operators or stores.

    Plain key-value stores keep none, and the task's stream time reaches users' processors and transformers alone. The
    rows of a store without a changelog count only at the numbers of the last commit.
    """
    users = any(isinstance(each, Process | TableTransformValues) for each in operations)
    return users or any(each.keeps_numbers or not each.is_restorable for each in specs)


def _planned(
    sub: SubTopology,
    topology: Topology,
    reads: Mapping[int, tuple[str, ...]],
    counts: Mapping[str, int],
    levels: Mapping[int, tuple[int, ...]],
) -> PlannedSubTopology:
    read = reads[sub.id]
    nodes = [topology.nodes[n] for n in sub.nodes]
    operations = [n.operation for n in nodes if isinstance(n, ProcessorNode)]
    processes = any(isinstance(each, Process) for each in operations)
    extracts = any(isinstance(n, SourceNode) and n.timestamp_extractor is not None for n in nodes)
    stores = tuple(s for s in sub.stores if s not in topology.global_stores)
    return PlannedSubTopology(
        id=sub.id,
        nodes=sub.nodes,
        stores=stores,
        external_topics=tuple(t for t in read if t not in topology.internal_topics),
        internal_topics=tuple(t for t in read if t in topology.internal_topics),
        sink_topics=tuple(n.topic for n in nodes if isinstance(n, SinkNode) and n.topic is not None),
        tasks=max(counts[t] for t in read),
        levels=levels[sub.id],
        keeps_state=bool(sub.stores) or processes or extracts,
        ticks=any(map(_acts_on_time, nodes)),
        held=_held_phases(sub, topology, reads, levels),
        reads_numbers=extracts or _reads_numbers(operations, [topology.stores[store] for store in stores]),
    )


def _check_known(topology: Topology, topics: Mapping[str, tuple[str, ...]], existing_counts: Mapping[str, int]) -> None:
    for name, read_topics in topics.items():
        for topic in read_topics:
            if topic not in existing_counts and topic not in topology.internal_topics:
                raise UnknownTopicError(
                    f"{name} reads topic {topic!r}, which does not exist",
                    hint=f"Create it before the start: penstock topics create {topic}.",
                    topic=topic,
                    node=name,
                )


def levels_of(flows: Flows) -> list[list[int]]:
    """Return sub-topologies by stage, so that each reads a topic after all that write it.

    A sub-topology runs once, unless a topic that it reads depends on its own output earlier in the same batch: the left
    side of a foreign-key join runs, then the right side, then the left side again with the answers.

    Args:
        flows: Sub-topology -> each topic that it reads -> the internal topics which records of that topic may reach.

    Raises:
        TopologyError: A topic depends on itself.

    Example:
        >>> levels_of({0: {"a": ["x"]}, 1: {"b": ["x"]}, 2: {"x": []}})
        [[0, 1], [2]]
        >>> levels_of({0: {"left": ["subscriptions"], "answers": []}, 1: {"subscriptions": ["answers"], "right": []}})
        [[0], [1], [0]]
    """
    if not is_acyclic(flows):
        raise TopologyError("internal topics of this topology feed each other in a circle")
    arrows = _arrows(flows)
    depth = _depths(arrows)
    runs = list(arrows)
    for one in sorted(runs, key=lambda run: (depth[run], *min(run))):
        for other in [run for run in arrows if _subtopology(run) == _subtopology(one) and run != one]:
            if other in arrows and one in arrows and not (_leads(arrows, one, other) or _leads(arrows, other, one)):
                merged = one | other
                arrows = _merged(arrows, {one: merged, other: merged})
                one = merged  # noqa: PLW2901 - goes on with the merged one
    stages: dict[int, list[int]] = {}
    for run, level in _depths(arrows).items():
        stages.setdefault(level, []).append(_subtopology(run))
    return [sorted(stages[level]) for level in sorted(stages)]


def is_acyclic(flows: Flows) -> bool:
    """Return whether no topic leads back to itself."""
    arrows = _arrows(flows)
    return not any(_leads(arrows, run, run) for run in arrows)


def _subtopology(run: Run) -> int:
    return next(iter(run))[0]


def _arrows(flows: Flows) -> Arrows:
    """Return every topic of every reader as a run of its own, and the runs that follow it."""
    readers: dict[str, list[Run]] = {}
    for sub, topics in flows.items():
        for topic in topics:
            readers.setdefault(topic, []).append(frozenset({(sub, topic)}))
    return {
        frozenset({(sub, topic)}): {run for written in reached for run in readers.get(written, ())}
        for sub, topics in flows.items()
        for topic, reached in topics.items()
    }


def _leads(arrows: Arrows, start: Run, end: Run) -> bool:
    """Return whether one run has to be over before the other can begin."""
    seen: set[Run] = set()
    todo = list(arrows[start])
    while todo:
        run = todo.pop()
        if run == end:
            return True
        if run not in seen:
            seen.add(run)
            todo += arrows[run]
    return False


def _merged(arrows: Arrows, names: Mapping[Run, Run]) -> dict[Run, set[Run]]:
    merged: dict[Run, set[Run]] = {}
    for run, following in arrows.items():
        merged.setdefault(names.get(run, run), set()).update(names.get(f, f) for f in following)
    return merged


def _depths(arrows: Arrows) -> dict[Run, int]:
    """Return the length of the longest way to each run."""
    depths = dict.fromkeys(arrows, 0)
    for _ in arrows:
        for run, following in arrows.items():
            for one in following:
                depths[one] = max(depths[one], depths[run] + 1)
    return depths
