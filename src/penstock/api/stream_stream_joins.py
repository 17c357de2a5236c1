"""Joins of two streams."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from penstock.api.handle import Handle, check_kind, same_builder
from penstock.api.join_windows import JoinWindows
from penstock.api.options import StreamJoined
from penstock.api.serdes import UNKNOWN, for_internal, for_topic
from penstock.api.stream import KStream
from penstock.api.stream_joins import repartition_for_join
from penstock.errors import TopologyError
from penstock.serde import Serdes
from penstock.topology.builder import GraphBuilder
from penstock.topology.functions import Function
from penstock.topology.graph import ProcessorGraph
from penstock.topology.stores import StoreSpec
from penstock.topology.stream_joins import JoinWindow, StreamJoinGraph

__all__ = ["JoinKind", "join_streams"]

JoinKind = Literal["inner", "left", "outer"]
_VERBS: dict[JoinKind, str] = {"inner": "join", "left": "left_join", "outer": "outer_join"}


def join_streams(
    left: KStream[Any, Any],
    right: KStream[Any, Any],
    joiner: object,
    windows: JoinWindows,
    joined: StreamJoined,
    name: str | None,
    kind: JoinKind,
) -> KStream[Any, Any]:
    """`KStream.join`, `left_join` and `outer_join` with a stream."""
    verb = _VERBS[kind]
    check_kind(windows, JoinWindows, verb, "Say how far apart records may be: JoinWindows.of(difference, grace=...).")
    check_kind(joined, StreamJoined, verb, "Pass the options as StreamJoined(...).")
    same_builder(left._handle, right._handle, verb)  # noqa: SLF001
    fn = Function.wrap(joiner, verb=verb, allowed=(2, 3))
    base = joined.name or name
    left = _repartitioned(left, base, "-left", joined.key_serde, joined.value_serde)
    right = _repartitioned(right, base, "-right", joined.key_serde, joined.other_value_serde)
    return _Join(left._handle, right._handle, windows, joined, base, kind).add(fn)  # noqa: SLF001


def _repartitioned(
    stream: KStream[Any, Any], base: str | None, suffix: str, key_serde: Any, value_serde: Any
) -> KStream[Any, Any]:
    if not stream._needs_repartition:  # noqa: SLF001
        return stream
    prefix = stream._handle.node if base is None else base + suffix  # noqa: SLF001
    return repartition_for_join(stream, prefix, key_serde, value_serde)


class _Join:
    """One join while it is added; names are burnt in Kafka's order."""

    def __init__(
        self, left: Handle, right: Handle, windows: JoinWindows, joined: StreamJoined, base: str | None, kind: JoinKind
    ) -> None:
        self._left = left
        self._right = right
        self._windows = windows.spec
        self._joined = joined
        self._base = base
        self._builder: GraphBuilder = left.builder
        self._left_outer = kind != "inner"
        self._right_outer = kind == "outer"

    def add(self, joiner: Function) -> KStream[Any, Any]:
        names = self._builder.names
        sources = self._left.sources | self._right.sources
        self._builder.copartition(sources)
        this_windowed = names.processor("KSTREAM-WINDOWED-", self._base, "-this-windowed")
        other_windowed = names.processor("KSTREAM-WINDOWED-", self._base, "-other-windowed")
        this_generated = names.processor("KSTREAM-OUTERTHIS-" if self._right_outer else "KSTREAM-JOINTHIS-")
        other_generated = names.processor("KSTREAM-OUTEROTHER-" if self._left_outer else "KSTREAM-JOINOTHER-")
        this_suffix = "-outer-this-join" if self._right_outer else "-this-join"
        other_suffix = "-outer-other-join" if self._left_outer else "-other-join"
        merge = names.processor("KSTREAM-MERGE-", self._base, "-merge")
        joined = self._joined
        key = joined.key_serde if joined.key_serde is not None else self._left.key_serde
        left_value = joined.value_serde if joined.value_serde is not None else self._left.value_serde
        right_value = joined.other_value_serde if joined.other_value_serde is not None else self._right.value_serde
        this_store = self._window_store(joined.this_store, this_generated, this_suffix, key, left_value)
        other_store = self._window_store(joined.other_store, other_generated, other_suffix, key, right_value)
        for node, above, store in (
            (this_windowed, self._left, this_store),
            (other_windowed, self._right, other_store),
        ):
            self._builder.add(above.graph, _windowed(node, store))
        graph = StreamJoinGraph(
            name=merge,
            this_name=this_generated if self._base is None else self._base + this_suffix,
            other_name=other_generated if self._base is None else self._base + other_suffix,
            this_windowed=this_windowed,
            other_windowed=other_windowed,
            this_store=this_store.name,
            other_store=other_store.name,
            outer_store=self._outer_store(this_generated, this_store),
            left_outer=self._left_outer,
            right_outer=self._right_outer,
            windows=self._windows,
            joiner=joiner,
            keeps_null_keys=self._left_outer,
        )
        self._builder.add([self._left.graph, self._right.graph], graph)
        return KStream(Handle(self._builder, graph, merge, key, UNKNOWN, sources))

    def _window_store(self, given: StoreSpec | None, generated: str, suffix: str, key: Any, value: Any) -> StoreSpec:
        """Both sides' stores keep every record, under its own time."""
        joined = self._joined
        key_serde, value_serde = for_internal(for_topic(key)), for_internal(value)
        if given is not None:
            return replace(self._checked(given), key_serde=key_serde, value_serde=value_serde, timestamped=True)
        name = generated if joined.store_name is None else joined.store_name + suffix
        return StoreSpec(
            f"{name}-store",
            "window",
            key_serde,
            value_serde,
            persistent=joined.store_type != "in_memory",
            timestamped=True,
            caching=False,
            logging=joined.logging,
            log_config={**joined.log_config, "cleanup.policy": "delete"},
            window_size_ms=self._windows.size_ms,
            retention_ms=self._windows.retention_ms,
            retain_duplicates=True,
        )

    def _checked(self, given: StoreSpec) -> StoreSpec:
        size, retention = self._windows.size_ms, self._windows.retention_ms
        if given.kind != "window" or not given.retain_duplicates:
            raise TopologyError(
                f"store {given.name!r} cannot keep the records of a join",
                hint="Make it with Stores.window(..., retain_duplicates=True).",
                store=given.name,
            )
        if (given.window_size_ms, given.retention_ms) != (size, retention):
            raise TopologyError(
                f"store {given.name!r} has windows of {given.window_size_ms} ms and keeps them {given.retention_ms} ms",
                hint=f"This join needs size={size} (before + after) and retention={retention} (size + grace).",
                store=given.name,
            )
        return given

    def _outer_store(self, this_generated: str, this_store: StoreSpec) -> StoreSpec | None:
        if not self._left_outer or not self._windows.waits:
            return None
        joined = self._joined
        suffix = "-outer-shared-join" if self._right_outer else "-left-shared-join"
        if joined.this_store is not None:
            name = joined.this_store.name + suffix
        elif joined.store_name is not None:
            name = joined.store_name + suffix
        else:
            name = "KSTREAM-OUTERSHARED-" + this_generated.rsplit("-", 1)[1]
        return StoreSpec(
            f"{name}-store",
            "outer_join",
            this_store.key_serde,
            Serdes.bytes(),
            persistent=this_store.persistent,
            caching=False,
            logging=joined.logging,
            log_config=dict(joined.log_config),
            retention_ms=self._windows.retention_ms,
        )


def _windowed(name: str, store: StoreSpec) -> ProcessorGraph:
    return ProcessorGraph(name=name, operation=lambda: JoinWindow(store.name), own_stores=lambda: (store,))
