"""Suppression: the time for which a table's changes are buffered, and the bounds of the buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.api.handle import TableHandle, check_kind
from penstock.api.serdes import for_store, for_topic
from penstock.base.argument_checks import check_mapping, check_whole
from penstock.base.durations import DurationLike, duration_ms
from penstock.base.java_names import with_java_names
from penstock.errors import TopologyError
from penstock.topology.building.graph import GraphNode, ProcessorGraph
from penstock.topology.building.names import check_name
from penstock.topology.operations.definitions import Suppress
from penstock.topology.stores import StoreSpec
from penstock.topology.tables import SuppressedTable

__all__ = ["BufferConfig", "Suppressed", "suppress_table"]


@with_java_names
@dataclass(frozen=True, slots=True)
class BufferConfig:
    """The bounds of the buffer of a suppressed table, and the effect of reaching them: Kafka's ``BufferConfig``.

    ``max_records(n)`` and ``max_bytes(n)`` emit early when the buffer is full; `unbounded` has no limit.

    >>> BufferConfig.max_records(1000).with_max_bytes(1_000_000).shut_down_when_full().emits_early
    False
    """

    record_limit: int | None = None
    byte_limit: int | None = None
    emits_early: bool = True
    logging: bool = True
    log_config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, limit in (("records", self.record_limit), ("bytes", self.byte_limit)):
            if limit is not None:
                check_whole(limit, f"BufferConfig: the number of {what}", 0)

    @classmethod
    def unbounded(cls) -> BufferConfig:
        """Make a buffer without bounds (``unbounded``)."""
        return cls(emits_early=False)

    @classmethod
    def max_records(cls, limit: int) -> BufferConfig:
        """Make a buffer of at most ``limit`` keys; when it is full, the oldest leave early (``maxRecords``)."""
        return cls().with_max_records(limit)

    @classmethod
    def max_bytes(cls, limit: int) -> BufferConfig:
        """Make a buffer of at most ``limit`` bytes, counted as in Kafka; the oldest leave early (``maxBytes``)."""
        return cls().with_max_bytes(limit)

    def with_max_records(self, limit: int) -> BufferConfig:
        """Return the buffer with another limit of keys (``withMaxRecords``)."""
        check_whole(limit, "max_records(): limit", 0)
        return replace(self, record_limit=limit)

    def with_max_bytes(self, limit: int) -> BufferConfig:
        """Return the buffer with another limit of bytes (``withMaxBytes``)."""
        check_whole(limit, "max_bytes(): limit", 0)
        return replace(self, byte_limit=limit)

    def with_no_bound(self) -> BufferConfig:
        """Return the buffer without bounds (``withNoBound``)."""
        return replace(self, record_limit=None, byte_limit=None, emits_early=False)

    def shut_down_when_full(self) -> BufferConfig:
        """Return a buffer that stops the application with an error when it is full (``shutDownWhenFull``)."""
        return replace(self, emits_early=False)

    def emit_early_when_full(self) -> BufferConfig:
        """Return a buffer that emits its oldest changes early when it is full (``emitEarlyWhenFull``)."""
        return replace(self, emits_early=True)

    def with_logging_disabled(self) -> BufferConfig:
        """Return the buffer without a changelog topic; it is still part of the application's state."""
        return replace(self, logging=False, log_config={})

    def with_logging_enabled(self, config: Mapping[str, str] | None = None) -> BufferConfig:
        """Return the buffer with a changelog topic of these settings."""
        settings = {} if config is None else check_mapping(config, "with_logging_enabled(): config")
        return replace(self, logging=True, log_config=dict(settings))


@with_java_names
@dataclass(frozen=True, slots=True)
class Suppressed:
    """The time for which changes of a table are buffered: Kafka's ``Suppressed``.

    ``wait_ms`` is None for the close of windows.
    """

    wait_ms: int | None
    buffer: BufferConfig
    name: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)

    @classmethod
    def until_window_closes(cls, buffer: BufferConfig | None = None) -> Suppressed:
        """Emit only the final result of each window, when stream time has passed its end plus grace.

        Args:
            buffer: Unbounded (the default), or one that shuts down when full: an early result would not be final.

        >>> Suppressed.until_window_closes().with_name("final").name
        'final'
        """
        buffer = buffer or BufferConfig.unbounded()
        check_kind(buffer, BufferConfig, "until_window_closes", "For example BufferConfig.unbounded().")
        if buffer.emits_early:
            raise TopologyError(
                "until_window_closes() with a buffer that emits early would send results that are not final",
                hint="Use BufferConfig.unbounded(), or .shut_down_when_full().",
            )
        return cls(None, buffer)

    @classmethod
    def until_time_limit(cls, limit: DurationLike, buffer: BufferConfig | None = None) -> Suppressed:
        """Emit the newest change of a key when stream time has passed its first buffered change by ``limit``.

        Args:
            limit: The time for which the first change of a key waits for later ones.
            buffer: Unbounded by default.

        >>> Suppressed.until_time_limit("5 seconds", BufferConfig.max_records(100)).wait_ms
        5000
        """
        buffer = buffer or BufferConfig.unbounded()
        check_kind(buffer, BufferConfig, "until_time_limit", "For example BufferConfig.max_records(1000).")
        wait_ms = duration_ms(limit, "limit")
        if wait_ms < 0:
            raise TopologyError(f"the time limit is {limit!r}", hint="Give a duration of at least 0.")
        return cls(wait_ms, buffer)

    def with_name(self, name: str) -> Suppressed:
        """Return the options with a name for the processor; its store is ``<name>-store``."""
        return replace(self, name=check_name(name))


def suppress_table(above: TableHandle, suppressed: Suppressed, name: str | None) -> TableHandle:
    """Add `KTable.suppress`."""
    check_kind(suppressed, Suppressed, "suppress", "For example Suppressed.until_window_closes().")
    if _is_versioned(above.graph):
        raise TopologyError(
            "suppress() cannot buffer a versioned table",
            hint="Leave history= out of the table's store.",
            node=above.node,
        )
    user_name = suppressed.name or name
    names = above.builder.names
    node = names.processor("KTABLE-SUPPRESS-") if user_name is None else check_name(user_name)
    wait_ms = _grace_ms(above.graph, "") if suppressed.wait_ms is None else suppressed.wait_ms
    store = names.store("KTABLE-SUPPRESS-") if user_name is None else f"{user_name}-store"
    buffer = suppressed.buffer
    spec = StoreSpec(
        store,
        "buffer",
        for_topic(above.key_serde),
        for_store(above.value_serde),
        persistent=False,
        caching=False,
        logging=buffer.logging,
        log_config=dict(buffer.log_config),
        of_dsl=True,
    )
    state = SuppressedTable(above.state, spec)
    operation = Suppress(
        above.node,
        store,
        wait_ms,
        suppressed.wait_ms is None,
        buffer.record_limit,
        buffer.byte_limit,
        buffer.emits_early,
    )
    graph = ProcessorGraph(name=node, operation=lambda: operation, own_stores=state.own_stores)
    graph.output_versioned = False
    above.builder.add(above.graph, graph)
    return TableHandle(above.builder, graph, node, above.key_serde, above.value_serde, above.sources, state, None)


def _is_versioned(graph: GraphNode) -> bool:
    """Return whether a table is versioned: itself, or a table above it."""
    if graph.output_versioned is not None:
        return graph.output_versioned
    return any(_is_versioned(parent) for parent in graph.parents)


def _grace_ms(graph: GraphNode, chain: str) -> int:
    """Return the grace of the windows above: the largest, if there are several parents."""
    if graph.grace_ms is not None:
        return graph.grace_ms
    chain = f"{graph.name} -> {chain}" if chain else graph.name
    if not graph.parents:
        raise TopologyError(
            f"until_window_closes() is for windowed aggregations; there are no windows in {chain}",
            hint="Aggregate with windowed_by() first, or use until_time_limit().",
            node=graph.name,
        )
    return max(_grace_ms(parent, chain) for parent in graph.parents)
