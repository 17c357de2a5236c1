"""Joins of two streams."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.api.handle import StreamHandle, same_builder
from penstock.api.joins.build import Join, repartition_for_join
from penstock.api.joins.windows import JoinWindows
from penstock.api.options import StreamJoined
from penstock.api.serdes import UNKNOWN, for_store, for_topic
from penstock.errors import TopologyError
from penstock.serde import Serdes
from penstock.topology.building.graph import ProcessorGraph
from penstock.topology.building.joins import JoinWindow, StreamJoinGraph
from penstock.topology.stores import StoreSpec

__all__ = ["join_streams"]


def join_streams(
    left: StreamHandle, right: StreamHandle, join: Join, windows: JoinWindows, joined: StreamJoined
) -> StreamHandle:
    """Add `KStream.join`, `left_join` or `outer_join` with a stream."""
    same_builder(left, right, join.verb)
    left = _repartitioned(left, join.name and f"{join.name}-left", joined.key_serde, joined.value_serde)
    right = _repartitioned(right, join.name and f"{join.name}-right", joined.key_serde, joined.other_value_serde)
    return _StreamJoin(join, windows, joined).add(left, right)


def _repartitioned(stream: StreamHandle, name: str | None, key_serde: Any, value_serde: Any) -> StreamHandle:
    if not stream.needs_repartition:
        return stream
    return repartition_for_join(stream, name or stream.node, key_serde, value_serde)


class _StreamJoin:
    """One join while it is added; names are taken in Kafka's order."""

    def __init__(self, join: Join, windows: JoinWindows, joined: StreamJoined) -> None:
        self._joiner = join.joiner
        self._base = join.name
        self._windows = windows.spec
        self._joined = joined
        self._left_outer = join.kind != "inner"
        self._right_outer = join.kind == "outer"

    def add(self, left: StreamHandle, right: StreamHandle) -> StreamHandle:
        builder = left.builder
        names = builder.names
        sources = left.sources | right.sources
        builder.copartition(sources)
        this_windowed = names.processor("KSTREAM-WINDOWED-", self._base, "-this-windowed")
        other_windowed = names.processor("KSTREAM-WINDOWED-", self._base, "-other-windowed")
        this_generated = names.processor("KSTREAM-OUTERTHIS-" if self._right_outer else "KSTREAM-JOINTHIS-")
        other_generated = names.processor("KSTREAM-OUTEROTHER-" if self._left_outer else "KSTREAM-JOINOTHER-")
        this_suffix = "-outer-this-join" if self._right_outer else "-this-join"
        other_suffix = "-outer-other-join" if self._left_outer else "-other-join"
        merge = names.processor("KSTREAM-MERGE-", self._base, "-merge")
        joined = self._joined
        key = joined.key_serde if joined.key_serde is not None else left.key_serde
        left_value = joined.value_serde if joined.value_serde is not None else left.value_serde
        right_value = joined.other_value_serde if joined.other_value_serde is not None else right.value_serde
        this_store = self._window_store(joined.this_store, this_generated, this_suffix, key, left_value)
        other_store = self._window_store(joined.other_store, other_generated, other_suffix, key, right_value)
        for node, above, store in (
            (this_windowed, left, this_store),
            (other_windowed, right, other_store),
        ):
            builder.add(above.graph, _windowed(node, store))
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
            joiner=self._joiner,
            keeps_null_keys=self._left_outer,
        )
        builder.add([left.graph, right.graph], graph)
        return StreamHandle(builder, graph, merge, key, UNKNOWN, sources)

    def _window_store(
        self, user_store: StoreSpec | None, generated: str, suffix: str, key: Any, value: Any
    ) -> StoreSpec:
        """Return the store of one side, which keeps every record under its own timestamp."""
        joined = self._joined
        key_serde, value_serde = for_topic(key), for_store(value)
        if user_store is not None:
            kept = {"key_serde": key_serde, "value_serde": value_serde, "timestamped": True, "logs_headers": True}
            return replace(self._checked(user_store), **kept)
        name = generated if joined.store_name is None else joined.store_name + suffix
        return StoreSpec(
            f"{name}-store",
            "window",
            key_serde,
            value_serde,
            persistent=joined.store_type != "in_memory",
            is_placed=joined.store_type is not None,
            timestamped=True,
            caching=False,
            logging=joined.logging,
            log_config={**joined.log_config, "cleanup.policy": "delete"},
            window_size_ms=self._windows.size_ms,
            retention_ms=self._windows.retention_ms,
            retain_duplicates=True,
            logs_headers=True,
        )

    def _checked(self, user_store: StoreSpec) -> StoreSpec:
        size, retention = self._windows.size_ms, self._windows.retention_ms
        if user_store.kind != "window" or not user_store.retain_duplicates:
            raise TopologyError(
                f"store {user_store.name!r} cannot keep the records of a join",
                hint="Make it with Stores.window(..., retain_duplicates=True).",
                store=user_store.name,
            )
        if (user_store.window_size_ms, user_store.retention_ms) != (size, retention):
            raise TopologyError(
                f"store {user_store.name!r} has windows of {user_store.window_size_ms} ms "
                f"and keeps them {user_store.retention_ms} ms",
                hint=f"This join needs size={size} (before + after) and retention={retention} (size + grace).",
                store=user_store.name,
            )
        return user_store

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
