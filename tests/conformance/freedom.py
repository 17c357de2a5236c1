"""What the promise of micro-batches leaves free in a case, by its topology.

A batch runs the sub-topologies stage after stage, each over all of its records. So two kinds of records come *late*,
where the Java driver has them record by record:

- what comes back to a task over an internal topic that the task itself feeds: a stage later;
- with a cache, what a table sends on: at the end of the batch, and only the last change of each key.

Kafka Streams itself promises no more: a repartition topic is read some time after it was written, and a cache is
flushed when it is time to commit. The last value of each key stays the same, until late records meet others (in a merged
stream, a join of streams, a task's stream time), or something depends on single changes of a table: an aggregate,
suppress(), a stream's filter, which may let pass a change but not the last one. What is written there and below is
free. It has to agree when each record is a batch of its own, as then nothing is late.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode, parents_of
from penstock.topology.operations.definitions import (
    Branch,
    DropNullKeys,
    Filter,
    FlatMap,
    FlatMapValues,
    Foreach,
    ForeignTableJoin,
    MapAsync,
    MapPairs,
    MapValues,
    PassThrough,
    Peek,
    Process,
    ResponseJoin,
    SelectKey,
    StreamGlobalTableJoin,
    StreamToTable,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
    TableFilter,
    TableJoinMerge,
    TableMapValues,
    TableRegroup,
    TableSource,
    TableTableJoin,
    TableToStream,
    TableTransformValues,
)
from penstock.topology.topology import Topology

__all__ = ["free_names"]

BY_FOREIGN_KEY = (SubscriptionSend, SubscriptionReceive, SubscriptionJoin, ForeignTableJoin, ResponseJoin)
# Their last result for a key comes from the last values of their inputs, in whatever order these come.
JOINS_OF_TABLES = (TableTableJoin, TableJoinMerge, *BY_FOREIGN_KEY)
WITH_LAST_CHANGES = (
    DropNullKeys,
    Foreach,
    PassThrough,
    Peek,
    StreamToTable,
    TableFilter,
    TableMapValues,
    TableRegroup,
    TableSource,
    TableToStream,
)  # their last result for a key comes from the last change of the key
WITH_SINGLE_CHANGES = (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    MapAsync,
    MapPairs,
    MapValues,
    SelectKey,
    StreamGlobalTableJoin,
)  # they may leave out the last change of a key, give it another key, or make something of a deletion
ROW_BY_ROW = (*WITH_LAST_CHANGES, *WITH_SINGLE_CHANGES)
SEES_STREAM_TIME = (Process, TableTransformValues)  # that of the task: of all its records
PROMPT = ""


def free_names(topology: Topology, *, cached: bool) -> set[str]:
    """The topics and stores whose records and rows depend on where batches are cut.

    Args:
        topology: The case's topology.
        cached: Whether tables have a cache.
    """
    return _Marks(topology, cached=cached).free_names()


class _Marks:
    """Which records come to each node: prompt ones, and late ones by the topic or the table that makes them late."""

    def __init__(self, topology: Topology, *, cached: bool) -> None:
        self.topology = topology
        self.sources: dict[str, list[str]] = defaultdict(list)
        self.sinks: dict[str | None, list[str]] = defaultdict(list)
        for source in topology.sources:
            for topic in source.topics:
                self.sources[topic].append(source.name)
        for sink in topology.sinks:
            self.sinks[sink.topic].append(sink.name)
        self.users: dict[str, list[str]] = defaultdict(list)
        for node in topology.nodes.values():
            for store in node.stores if isinstance(node, ProcessorNode) else ():
                self.users[store].append(node.name)
        self.cached_tables = {n for n, node in topology.nodes.items() if cached and self._is_cached_table(node)}
        self.late_topics = self._late_topics()
        self.marks: dict[str, set[str]] = {name: set() for name in topology.nodes}
        self._spread()

    def free_names(self) -> set[str]:
        free = {name for name in self.topology.nodes if self._is_free(name)}
        free |= self._below(free)
        topics = {node.topic for node in self.topology.sinks if node.name in free and node.topic is not None}
        operators = [node for node in self.topology.nodes.values() if isinstance(node, ProcessorNode)]
        stores = {store for node in operators if node.name in free for store in node.stores}
        return topics | (stores - {_own_store(node) for node in operators if node.name not in free})

    def _is_cached_table(self, node: Node) -> bool:
        store = _own_store(node)
        return store is not None and (spec := self.topology.stores[store]).caching is not False and (
            spec.kind != "versioned"
        )  # fmt: skip

    def _late_topics(self) -> set[str]:
        """The internal topics that come back to a task; answers of a foreign-key join meet nothing but its left table."""
        late: set[str] = set()
        for sub in self.topology.subtopologies():
            own = [n for n in sub.nodes if isinstance(self.topology.nodes[n], SourceNode)]
            for name in own:
                if name in self._below(other for other in own if other != name) and not self._is_answer(name):
                    late |= {t for s in self.topology.sources if s.name == name for t in s.topics}
        return late

    def _is_answer(self, source: str) -> bool:
        children = [self.topology.nodes[name] for name in self.topology.children(source)]
        return all(isinstance(node, ProcessorNode) and isinstance(node.operation, BY_FOREIGN_KEY) for node in children)

    def _below(self, names: Iterable[str]) -> set[str]:
        found: set[str] = set()
        todo = list(names)
        while todo:
            name = todo.pop()
            node = self.topology.nodes[name]
            following = self.sources.get(node.topic or "", ()) if isinstance(node, SinkNode) else ()
            new = {*self.topology.children(name), *following} - found
            found |= new
            todo += new
        return found

    def _spread(self) -> None:
        while True:
            before = {name: set(marks) for name, marks in self.marks.items()}
            for name, node in self.topology.nodes.items():
                self.marks[name] |= self._arriving(node)
            if self.marks == before:
                return

    def _arriving(self, node: Node) -> set[str]:
        if isinstance(node, SourceNode):
            return {mark for topic in node.topics or (PROMPT,) for mark in self._of_topic(topic)}
        found = {mark for parent in parents_of(node) for mark in self._leaving(parent)}
        if isinstance(node, ProcessorNode) and not isinstance(node.operation, (*JOINS_OF_TABLES, *ROW_BY_ROW)):
            found |= {mark for store in node.stores for user in self.users[store] for mark in self.marks[user]}
        return found

    def _of_topic(self, topic: str) -> Collection[str]:
        if topic in self.late_topics:
            return {topic}
        if topic in self.topology.internal_topics:
            return {mark for name in self.sinks[topic] for mark in self.marks[name]}
        return {PROMPT}

    def _leaving(self, name: str) -> set[str]:
        marks = self.marks[name]
        joins_late_records = self._joins_tables(name) and marks - {PROMPT}
        return {name} if name in self.cached_tables or joins_late_records else marks

    def _joins_tables(self, name: str) -> bool:
        node = self.topology.nodes[name]
        return isinstance(node, ProcessorNode) and isinstance(node.operation, JOINS_OF_TABLES)

    def _is_free(self, name: str) -> bool:
        node, marks = self.topology.nodes[name], self.marks[name]
        if isinstance(node, SinkNode):
            if all(self._joins_tables(parent) for parent in node.parents):
                return False
            if node.topic is not None:
                marks = {mark for sink in self.sinks[node.topic] for mark in self.marks[sink]}
            return _meet(marks)
        if isinstance(node, SourceNode) or self._joins_tables(name):
            return False
        if isinstance(node.operation, WITH_LAST_CHANGES):
            return isinstance(node.operation, PassThrough | StreamToTable) and _meet(marks)
        is_merged = any(mark in self.topology.nodes for mark in marks)
        if isinstance(node.operation, WITH_SINGLE_CHANGES):
            return is_merged
        if isinstance(node.operation, SEES_STREAM_TIME) and self._is_run_again(name):
            return True
        return _meet(marks) or is_merged

    def _is_run_again(self, name: str) -> bool:
        """Whether the node's task has records in two stages of a batch."""
        sub = next((sub for sub in self.topology.subtopologies() if name in sub.nodes), None)
        return sub is not None and not self.late_topics.isdisjoint(sub.source_topics)


def _own_store(node: Node) -> str | None:
    """The store of a table, which this node alone writes."""
    operation = node.operation if isinstance(node, ProcessorNode) else None
    return getattr(operation, "store", None) if hasattr(operation, "send_old") else None


def _meet(marks: set[str]) -> bool:
    return len(marks) > 1 and marks != {PROMPT}
