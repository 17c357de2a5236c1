"""The metrics of one task, its nodes, topics and stores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeGuard

from penstock.metrics.definitions import (
    ACTIVE_RATIO,
    BYTES_CONSUMED,
    BYTES_PRODUCED,
    BYTES_WRITTEN,
    CALLS,
    DROPPED,
    E2E_LATENCY,
    EMIT_LATENCY,
    EMITTED_FINALLY,
    FUNCTION_ERRORS,
    LATENESS,
    NODE_PROCESSED,
    OWN,
    PROCESS_LATENCY,
    PROCESSED,
    PUNCTUATED,
    RECORDS_CONSUMED,
    RECORDS_PRODUCED,
    RESTORE,
    RESTORED_CHANGES,
    STATE,
    STORE_COMMIT,
    SUPPRESSED,
    SUPPRESSION_EMITTED,
    UNCHANGED,
)
from penstock.metrics.metric import MetricName
from penstock.metrics.task_counts import FLUSH, OTHER_ERRORS, OTHER_REASONS
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from penstock.topology.operations.definitions import CogroupMember, Suppress, TableSource, WindowedAggregate

if TYPE_CHECKING:
    from penstock.metrics.metric import MeterDefinition
    from penstock.metrics.registry import Meter, MetricRegistry
    from penstock.metrics.task_counts import Spread, TaskCounts
    from penstock.topology.stores import StoreSpec
    from penstock.topology.topology import Topology

__all__ = ["TaskMetrics", "TaskOf", "scope_of"]

_NANOSECONDS = 1e9
_WINDOWS = ("window", "session")
# The calls that Kafka measures of each kind of store.
_CALLS_OF = {"window": ("put", "fetch"), "session": ("put", "fetch", "remove")}
_CALLS = ("get", "put", "delete", "range", "all")


def scope_of(spec: StoreSpec, *, suppresses: bool = False) -> str:
    """Return the tag that names a store of this kind, such as ``lmdb-window-state-id``.

    It is Kafka's for stores in memory; of the others ``lmdb`` stands where Kafka has ``rocksdb``.
    """
    if suppresses:
        return "in-memory-suppression-state-id"
    if spec.max_entries:
        return "in-memory-lru-state-id"
    kind = f"-{spec.kind}" if spec.kind in _WINDOWS else ""
    return f"{'lmdb' if spec.persistent else 'in-memory'}{kind}-state-id"


class StoreMetrics:
    """The metrics of a store in a registry, fed by its counts.

    Args:
        registry: The application's metrics.
        spec: The store.
        task: The tags of its task.
        suppresses: Whether it is the buffer of a suppression.
    """

    def __init__(
        self, registry: MetricRegistry, spec: StoreSpec, task: Mapping[str, str], *, suppresses: bool = False
    ) -> None:
        self._registry = registry
        self._tags = {**task, scope_of(spec, suppresses=suppresses): spec.name}
        self._kind, self._suppresses, self._persistent = spec.kind, suppresses, spec.persistent and not spec.max_entries
        self._own = {"task-id": task["task-id"], "store": spec.name}
        self._entries: int | None = None
        self._buffered = registry.meter(SUPPRESSED, self._tags) if suppresses else None
        meter = _no_meter if suppresses else registry.meter  # Kafka measures such a buffer by its size alone
        self._written = meter(BYTES_WRITTEN, self._tags) if self._persistent else None
        self._commits, self._restores = meter(STORE_COMMIT, self._tags), meter(RESTORE, self._tags)
        self._calls = {name: meter(CALLS[name], self._tags) for name in _CALLS_OF.get(spec.kind, _CALLS)}
        self._totals = [0.0, 0.0, 0.0]  # rows, bytes, flushes
        self._called: dict[str, float] = {}
        self._bytes: int | None = None

    def record_entries(self, entries: int) -> None:
        """Note how many rows the store has."""
        if self._entries is None:
            self._add_gauges()
        self._entries = entries
        if self._buffered is not None:
            self._buffered.record(entries)

    def record_bytes(self, size: int) -> None:
        """Note how many bytes the store takes on disk."""
        if self._bytes is None:
            name = MetricName.of("store-bytes", OWN, self._own, "Bytes of the store on disk before the newest batch.")
            self._registry.gauge(name, lambda: self._bytes or 0)
        self._bytes = size

    def record_call(self, call: str, keys: float, seconds: float) -> None:
        """Add the calls of a batch: their keys, and their time."""
        if self._kind in _WINDOWS and call in ("get", "range", "all"):
            call = "fetch"
        elif self._kind == "session" and call == "delete":
            call = "remove"
        if call not in self._called:
            words = "Keys that were looked up, written or deleted, or scans, since the start."
            name = MetricName.of("store-calls-total", OWN, {**self._own, "call": call}, words)
            self._registry.gauge(name, partial(self._called.__getitem__, call))
        self._called[call] = self._called.get(call, 0.0) + keys
        _many(self._calls.get(call), keys, seconds)

    def record_flush(self, rows: float, size: float, seconds: float) -> None:
        """Add what a batch or commit has changed."""
        self._totals = [a + b for a, b in zip(self._totals, (rows, size, 1), strict=True)]
        if self._written is not None:
            self._written.record(size)
        _many(self._commits, 1, seconds)

    def record_restore(self, seconds: float) -> None:
        """Add a catch-up of the replica."""
        _many(self._restores, 1, seconds)

    def _add_gauges(self) -> None:
        rows = "Rows of the store before the newest batch"
        gauges = [
            (
                STATE,
                "num-keys",
                self._tags,
                f"{rows}, of any kind; windows and versions are rows of their own.",
            ),
            (STATE, "estimate-num-keys", self._tags, f"{rows}; exact."),
            (STATE, "num-open-iterators", self._tags, "Scans that are open between batches: none outlives a batch."),
            (OWN, "store-rows", self._own, f"{rows}."),
        ]
        left_out = {"num-keys", "estimate-num-keys", "num-open-iterators"} if self._suppresses else set()
        if not self._persistent:
            left_out.add("estimate-num-keys")
        for group, name, tags, description in gauges:
            if name in left_out:
                continue
            read = (lambda: 0) if name == "num-open-iterators" else (lambda: self._entries or 0)
            self._registry.gauge(MetricName.of(name, group, tags, description), read)
        totals = ("Rows that were written or deleted.", "Bytes of these rows.", "Batches or commits that changed it.")
        for at, (name, description) in enumerate(zip(("rows", "bytes", "flushes"), totals, strict=True)):
            key = MetricName.of(f"store-written-{name}-total", OWN, self._own, description)
            self._registry.gauge(key, partial(self._total, at))

    def _total(self, at: int) -> float:
        return self._totals[at]


def _no_meter(definition: MeterDefinition, tags: Mapping[str, str]) -> None:
    """Make no meter."""


def _many(meter: Meter | None, keys: float, seconds: float) -> None:
    if meter is not None and keys:
        each = seconds * _NANOSECONDS / keys
        meter.record_many(seconds * _NANOSECONDS, int(keys), each, each)


_MOST_NAMES = 40  # reasons, and classes of errors, of an operator of a task
_DROPPED, _OF_DROPS = "Records that were dropped for this reason.", ("processor-node-id", "reason")
_ERRORS, _OF_ERRORS = "Errors of this class that a handler has judged.", ("processor-node-id", "kind", "action")
_OF_NODES = (
    ("node-rows-in-total", "Rows that the node has taken."),
    ("node-rows-out-total", "Rows that the node has sent."),
    ("node-seconds-total", "Seconds that the node has run."),
)


@dataclass(frozen=True)
class TaskOf:
    """A task as its metrics name it.

    Attributes:
        thread_id: Kafka's ``thread-id``.
        task_id: ``<sub-topology>_<partition>``.
        nodes: The names of its nodes.
        physical_name: Returns a topic's name in the log.
        stores: The names of its stores.
        is_global: Whether it fills the global stores.
    """

    thread_id: str
    task_id: str
    nodes: Collection[str]
    physical_name: Callable[[str], str]
    stores: Collection[str] = ()
    is_global: bool = False


class TaskMetrics:
    """The metrics of a task in a registry, fed by its counts.

    Args:
        registry: The application's metrics.
        topology: The topology.
        task: The task.
    """

    def __init__(self, registry: MetricRegistry, topology: Topology, task: TaskOf) -> None:
        self._registry = registry
        self._task = task
        self._tags = {"thread-id": task.thread_id, "task-id": task.task_id}
        self._processed = self._meter(PROCESSED)
        self._dropped = self._meter(DROPPED)
        self._latency = self._lateness = self._punctuated = self._active = self._restored = None
        if not task.is_global:
            self._active = self._meter(ACTIVE_RATIO)
            self._latency = self._meter(PROCESS_LATENCY)
            self._lateness = self._meter(LATENESS)
            self._punctuated = self._meter(PUNCTUATED)
            if task.stores:
                self._restored = self._meter(RESTORED_CHANGES)
        self._sources: dict[str, Meter | None] = {}
        self._e2e: dict[str, Meter | None] = {}
        self._emitted: dict[str, Meter | None] = {}
        self._emitting: dict[str, Meter | None] = {}
        self._reported: dict[str, Meter | None] = {}
        self._topics: dict[tuple[MeterDefinition, str, str], Meter | None] = {}
        self._totals: dict[MetricName, int] = {}
        self._names: dict[tuple[str, str], set[str]] = {}
        self._nodes: dict[str, list[float]] = {}
        for name in task.nodes:
            self._add_node(topology, name)
        buffers = {s for n in task.nodes if _suppresses(node := topology.nodes[n]) for s in node.stores}
        self._stores = {
            name: StoreMetrics(registry, topology.stores[name], self._tags, suppresses=name in buffers)
            for name in task.stores
        }

    def record(self, counts: TaskCounts) -> None:
        """Add what the task has done since the last call."""
        _count(self._processed, counts.processed)
        _count(self._dropped, counts.dropped)
        _spread(self._latency, counts.seconds, _NANOSECONDS, counts.processed)
        _spread(self._lateness, counts.lateness_ms)
        _spread(self._punctuated, counts.punctuations, _NANOSECONDS)
        for (node, topic), (records, size) in counts.consumed.items():
            self._count_topic((RECORDS_CONSUMED, BYTES_CONSUMED), (node, topic), (records, size))
        for node, records in counts.read.items():
            _count(self._sources.get(node), records)
        for (node, topic), (records, size) in counts.produced.items():
            self._count_topic((RECORDS_PRODUCED, BYTES_PRODUCED), (node, topic), (records, size))
        for where, errors in counts.reported.items():
            if where not in self._reported:
                self._reported[where] = self._meter(FUNCTION_ERRORS, function=where)
            _count(self._reported[where], errors)
        for node, spread in counts.e2e_latency_ms.items():
            _spread(self._e2e.get(node), spread)
        for node, spread in counts.emitted.items():
            _spread(self._emitted.get(node), spread)
        for node, spread in counts.emit_seconds.items():
            _spread(self._emitting.get(node), spread, 1000.0)

        for at, count in counts.reasons.items():
            self._drop(*at, count)
        for failed, count in counts.errors.items():
            self._fail(*failed, count)
        for name, numbers in counts.nodes.items():
            self._work(name, numbers)
        for (store, call), numbers in counts.stores.items():
            if (store_metrics := self._stores.get(store)) is not None:
                if call == FLUSH:
                    store_metrics.record_flush(*numbers[1:])
                else:
                    store_metrics.record_call(call, *numbers)

    def record_share(self, share: float) -> None:
        """Add the share of this task in the time of a batch's processing."""
        if self._active is not None:
            self._active.record(share)

    def record_sizes(self, entries: Mapping[str, int], sizes: Mapping[str, int]) -> None:
        """Note how many rows each store has, and how many bytes on disk."""
        for store, rows in entries.items():
            if store in self._stores:
                self._stores[store].record_entries(rows)
        for store, size in sizes.items():
            if store in self._stores:
                self._stores[store].record_bytes(size)

    def record_restored_rows(self, rows: int) -> None:
        """Add changes that were applied to the task's replica."""
        if self._restored is not None and rows:
            self._restored.record(rows)

    def record_restore(self, seconds: float) -> None:
        """Add a catch-up of the task's replica."""
        for store in self._stores.values():
            store.record_restore(seconds)

    def record_restored_store(self, store: str, seconds: float) -> None:
        """Add a catch-up of one store of the task."""
        if store in self._stores:
            self._stores[store].record_restore(seconds)

    def _drop(self, node: str, why: str, count: int) -> None:
        """Count drops by reason: of each operator so many, as those of several workers come together."""
        why = why if self._is_few((node, "reason"), why) else OTHER_REASONS
        self._add_total("dropped-records-total", _DROPPED, count, dict(zip(_OF_DROPS, (node, why), strict=True)))

    def _fail(self, node: str, kind: str, action: str, count: int) -> None:
        """Count errors by their class: of each operator so many."""
        kind = kind if self._is_few((node, "error"), kind) else OTHER_ERRORS
        self._add_total("errors-total", _ERRORS, count, dict(zip(_OF_ERRORS, (node, kind, action), strict=True)))

    def _is_few(self, of: tuple[str, str], name: str) -> bool:
        """Return whether a name is among the first of its kind; each becomes a series for good."""
        names = self._names.setdefault(of, set())
        if name not in names and len(names) < _MOST_NAMES:
            names.add(name)
        return name in names

    def _add_total(self, metric: str, what: str, count: int, tags: Mapping[str, str]) -> None:
        """Add to a total of Penstock's own; made at the first call, as nobody knows the reasons before."""
        name = MetricName.of(metric, OWN, {"task-id": self._task.task_id, **tags}, what)
        if name not in self._totals:
            self._registry.gauge(name, lambda: self._totals[name])
        self._totals[name] = self._totals.get(name, 0) + count

    def _work(self, node: str, numbers: Sequence[float]) -> None:
        """Add the rows and the time of a node."""
        if node not in self._nodes:
            self._nodes[node] = [0.0, 0.0, 0.0]
            tags = {"task-id": self._task.task_id, "processor-node-id": node}
            for at, (name, what) in enumerate(_OF_NODES):
                self._registry.gauge(MetricName.of(name, OWN, tags, what), partial(self._of_node, node, at))
        self._nodes[node] = [a + b for a, b in zip(self._nodes[node], numbers, strict=True)]

    def _of_node(self, node: str, at: int) -> float:
        return self._nodes[node][at]

    def _meter(self, definition: MeterDefinition, **more: str) -> Meter | None:
        tags = {**self._tags, **{tag.replace("_", "-"): value for tag, value in more.items()}}
        return self._registry.meter(definition, tags)

    def _add_node(self, topology: Topology, name: str) -> None:
        node = topology.nodes[name]
        if isinstance(node, SourceNode):
            self._sources[name] = self._meter(NODE_PROCESSED, processor_node_id=name)
        if self._task.is_global:
            return
        if isinstance(node, SourceNode) or not topology.children(name):
            self._e2e[name] = self._meter(E2E_LATENCY, processor_node_id=name)
        if isinstance(node, SourceNode):
            for topic in node.topics:
                self._topic_meters((RECORDS_CONSUMED, BYTES_CONSUMED), name, self._task.physical_name(topic))
        elif isinstance(node, SinkNode):
            if node.topic is not None:
                self._topic_meters((RECORDS_PRODUCED, BYTES_PRODUCED), name, self._task.physical_name(node.topic))
        elif _suppresses(node):
            self._emitted[name] = self._meter(SUPPRESSION_EMITTED, processor_node_id=name)
        elif isinstance(node, ProcessorNode) and _aggregates_windows(node):
            self._emitted[name] = self._meter(EMITTED_FINALLY, processor_node_id=name)
            self._emitting[name] = self._meter(EMIT_LATENCY, processor_node_id=name)
        elif isinstance(node, ProcessorNode) and isinstance(node.operation, TableSource):
            self._meter(UNCHANGED, processor_node_id=name)

    def _topic_meters(
        self, definitions: tuple[MeterDefinition, MeterDefinition], node: str, topic: str
    ) -> list[Meter | None]:
        """Return the meters of records and bytes; made at the first call, as a sink may name topics as it goes."""
        meters: list[Meter | None] = []
        for definition in definitions:
            at = (definition, node, topic)
            if at not in self._topics:
                self._topics[at] = self._meter(definition, processor_node_id=node, topic=topic)
            meters.append(self._topics[at])
        return meters

    def _count_topic(
        self,
        definitions: tuple[MeterDefinition, MeterDefinition],
        at: tuple[str, str],
        totals: tuple[int, int],
    ) -> None:
        if self._task.is_global:
            return
        for meter, total in zip(self._topic_meters(definitions, *at), totals, strict=True):
            if meter is not None and total:
                meter.record(total)


def _suppresses(node: Node) -> TypeGuard[ProcessorNode]:
    return isinstance(node, ProcessorNode) and isinstance(node.operation, Suppress)


def _aggregates_windows(node: ProcessorNode) -> bool:
    operation = node.operation
    if isinstance(operation, CogroupMember):
        return operation.windows is not None
    return isinstance(operation, WindowedAggregate)


def _count(meter: Meter | None, records: int) -> None:
    if meter is not None:
        meter.record_many(records, records, 1, 1)


def _spread(meter: Meter | None, spread: Spread, unit: float = 1.0, count: int | None = None) -> None:
    if meter is not None and spread.count:
        number = spread.count if count is None else count
        meter.record_many(spread.total * unit, number, spread.low * unit, spread.high * unit)
