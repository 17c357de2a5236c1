"""Graph nodes of joins with more than a processor: of two streams, and of a stream and a table with a grace period."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import TopologyError
from penstock.topology.building.graph import GraphNode, ProcessorGraph, walk
from penstock.topology.nodes import ProcessorNode
from penstock.topology.operations.definitions import Operation, PassThrough
from penstock.topology.operations.functions import Function
from penstock.topology.stores import StoreSpec
from penstock.topology.topology import Rewrite

if TYPE_CHECKING:
    from penstock.topology.building.assembly import Assembly

__all__ = [
    "GraceJoinGraph",
    "JoinWindow",
    "JoinWindowSpec",
    "SelfJoin",
    "StreamJoinGraph",
    "StreamStreamJoin",
    "not_versioned",
    "rewrite_self_joins",
]


@dataclass(frozen=True, slots=True)
class JoinWindowSpec:
    """A right record matches a left one when ``left - before_ms <= right <= left + after_ms``.

    ``waits``: unmatched records of an outer side wait until nothing can match them any more. False is the deprecated
    form, which sends them at once.
    """

    before_ms: int
    after_ms: int
    grace_ms: int
    waits: bool = True

    @property
    def size_ms(self) -> int:
        return self.before_ms + self.after_ms

    @property
    def retention_ms(self) -> int:
        """The time for which either side's records are kept."""
        return self.size_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class JoinWindow(Operation):  # KStreamJoinWindow: keeps one side's records for the other side
    window_store: str


@dataclass(frozen=True, slots=True)
class StreamStreamJoin(Operation):  # KStreamKStreamJoinLeftSide, KStreamKStreamJoinRightSide
    """The join of one side's records with the other side's; ``is_left`` is the side.

    ``left`` and ``right`` are the `JoinWindow` nodes, whose rows both sides need. The joiner is called with
    (left value, right value) or (key, left value, right value) on both sides.
    """

    is_left: bool
    left: str
    right: str
    left_store: str
    right_store: str
    windows: JoinWindowSpec
    joiner: Function
    left_outer: bool
    right_outer: bool
    outer_store: str | None  # where unmatched records wait


@dataclass(frozen=True, slots=True)
class SelfJoin(Operation):  # KStreamKStreamSelfJoin: both sides are one stream, which is kept once
    windowed: str
    window_store: str
    windows: JoinWindowSpec
    joiner: Function


@dataclass(eq=False, kw_only=True)
class StreamJoinGraph(GraphNode):
    """The join's processors; ``name`` is the last one's. Both `JoinWindow` nodes are graph nodes of their own."""

    this_name: str
    other_name: str
    this_windowed: str
    other_windowed: str
    this_store: str
    other_store: str
    outer_store: StoreSpec | None
    left_outer: bool
    right_outer: bool
    windows: JoinWindowSpec
    joiner: Function = field(repr=False)
    is_self_join: bool = False

    def write(self, to: Assembly) -> None:
        if self.is_self_join:
            operation = SelfJoin(self.this_windowed, self.this_store, self.windows, self.joiner)
            to.add(ProcessorNode(self.name, operation, (self.this_windowed,)))
            to.connect(self.name, (self.this_store,))
            what = f"{self.name} joins a stream with itself, which is kept once, in store {self.this_store}"
            to.rewrites.append(Rewrite("single.store.self.join", what))
            return
        to.add(ProcessorNode(self.this_name, self._side(is_left=True), (self.this_windowed,)))
        to.connect(self.this_name, (self.other_store,))
        self._add_outer_store(to, self.this_name)
        to.add(ProcessorNode(self.other_name, self._side(is_left=False), (self.other_windowed,)))
        to.connect(self.other_name, (self.this_store,))
        self._add_outer_store(to, self.other_name)
        to.add(ProcessorNode(self.name, PassThrough(), (self.this_name, self.other_name)))

    def _add_outer_store(self, to: Assembly, node: str) -> None:
        if self.outer_store is not None:
            to.add_store(self.outer_store, [node])

    def _side(self, *, is_left: bool) -> StreamStreamJoin:
        return StreamStreamJoin(
            is_left,
            self.this_windowed,
            self.other_windowed,
            self.this_store,
            self.other_store,
            self.windows,
            self.joiner,
            self.left_outer,
            self.right_outer,
            None if self.outer_store is None else self.outer_store.name,
        )


def rewrite_self_joins(root: GraphNode) -> None:
    """Remove the second `JoinWindow` of every self-join; of left and outer ones too, as all records match."""
    for node in walk(root):
        if not isinstance(node, StreamJoinGraph) or len(node.parents) != 1:
            continue
        (parent,) = node.parents
        windowed = [child for child in parent.children if child.name == node.other_windowed]
        for child in windowed:
            parent.remove_child(child)
        node.is_self_join = True


@dataclass(eq=False, kw_only=True)
class GraceJoinGraph(ProcessorGraph):
    """A join with a grace period. Once the stores that it reads are known, they are checked."""

    buffer: StoreSpec
    grace_ms: int

    def write(self, to: Assembly) -> None:
        super().write(to)
        to.add_store(self.buffer, [self.name])
        for store in self.uses:
            spec = to.stores[store]
            if spec.kind != "versioned":
                raise not_versioned(self.name, [store])
            if spec.history_ms < self.grace_ms:
                raise TopologyError(
                    f"{self.name} waits {self.grace_ms} ms for changes of {store!r}, which keeps {spec.history_ms} ms",
                    hint="Give the table a history of at least the join's grace.",
                    node=self.name,
                    store=store,
                )


def not_versioned(node: str, stores: Collection[str]) -> TopologyError:
    """Return the error for a grace period over a table that keeps no history."""
    return TopologyError(
        f"{node} has a grace period, but the table's store {', '.join(stores)} is not versioned",
        hint='Give the table a history: Materialized("name", history="1 minute").',
        node=node,
    )
