"""Joins of two streams, and their windows: the time between records that match."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.api.handle import StreamHandle, same_builder
from penstock.api.joins.build import Join
from penstock.api.options import StreamJoined
from penstock.api.serdes import UNKNOWN, for_store, for_topic
from penstock.base.durations import DurationLike, duration_ms
from penstock.base.java_names import with_java_names
from penstock.errors import TopologyError
from penstock.serde import Serdes
from penstock.topology.building.graph import ProcessorGraph
from penstock.topology.building.joins import JoinWindow, JoinWindowSpec, StreamJoinGraph
from penstock.topology.stores import StoreSpec

__all__ = ["JoinWindows", "join_streams"]

_DAY_MS = 86_400_000


@with_java_names
@dataclass(frozen=True, slots=True)
class JoinWindows:
    """The window of a join of two streams, in event time: Kafka's ``JoinWindows``.

    A right record matches a left one when ``left - before_ms <= right <= left + after_ms``; both bounds are inclusive.

    >>> JoinWindows.of("5 seconds", grace="1 second")
    JoinWindows(before_ms=5000, after_ms=5000, grace_ms=1000, waits=True)
    >>> JoinWindows.of("5 seconds").before(0).after("1 minute")
    JoinWindows(before_ms=0, after_ms=60000, grace_ms=0, waits=True)

    Args:
        before_ms: The most that the right record may be earlier than the left one; negative: it must be later.
        after_ms: The most that it may be later; negative: it must be earlier.
        grace_ms: The time after the end of its window in which a record still matches late ones.
        waits: Whether unmatched records of left and outer joins wait for the end of their window plus grace.
    """

    before_ms: int
    after_ms: int
    grace_ms: int
    waits: bool = True

    def __post_init__(self) -> None:
        if self.before_ms + self.after_ms < 0:
            raise TopologyError(
                f"a join window from {-self.before_ms} ms to {self.after_ms} ms ends before it starts",
                hint="before plus after must be at least 0.",
            )
        if self.grace_ms < 0:
            raise TopologyError(f"grace is {self.grace_ms} ms", hint="Give a grace of at least 0.")

    @classmethod
    def of(cls, difference: DurationLike, *, grace: DurationLike = 0) -> JoinWindows:
        """Make a window of this difference in both directions.

        Kafka's ``ofTimeDifferenceAndGrace`` and ``ofTimeDifferenceWithNoGrace``.
        """
        difference_ms = duration_ms(difference, "difference")
        return cls(difference_ms, difference_ms, duration_ms(grace, "grace"))

    @classmethod
    def legacy(cls, difference: DurationLike, *, grace: DurationLike | None = None) -> JoinWindows:
        """Make the window of Kafka's deprecated ``JoinWindows.of(difference)``, with ``.grace(grace)`` if set.

        Without ``grace`` both sides are stored for a day. Left and outer joins send unmatched records at once, and so
        may send a record first unmatched and later with its match.

        >>> JoinWindows.legacy("1 hour").grace_ms
        79200000
        """
        difference_ms = duration_ms(difference, "difference")
        kept_ms = max(_DAY_MS - 2 * difference_ms, 0) if grace is None else duration_ms(grace, "grace")
        return cls(difference_ms, difference_ms, kept_ms, waits=False)

    def before(self, difference: DurationLike) -> JoinWindows:
        """Return the window with another limit for earlier right records."""
        return replace(self, before_ms=duration_ms(difference, "before"))

    def after(self, difference: DurationLike) -> JoinWindows:
        """Return the window with another limit for later right records."""
        return replace(self, after_ms=duration_ms(difference, "after"))

    @property
    def spec(self) -> JoinWindowSpec:
        """The window as a value of the topology."""
        return JoinWindowSpec(self.before_ms, self.after_ms, self.grace_ms, self.waits)


def join_streams(
    left: StreamHandle, right: StreamHandle, join: Join, windows: JoinWindows, joined: StreamJoined
) -> StreamHandle:
    """Add `KStream.join`, `left_join` or `outer_join` with a stream."""
    same_builder(left, right, join.verb)
    names = (f"{join.name}-left", f"{join.name}-right") if join.name else (left.node, right.node)
    left = left.by_present_key(names[0], joined.key_serde, joined.value_serde, for_join=True)
    right = right.by_present_key(names[1], joined.key_serde, joined.other_value_serde, for_join=True)
    return _StreamJoin(join, windows, joined).add(left, right)


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
