"""How long a suppressed table holds changes back, and how much its buffer may hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from penstock.api.handle import Handle, check_kind
from penstock.api.options import Named
from penstock.api.serdes import for_internal, for_topic
from penstock.durations import DurationLike, duration_ms
from penstock.errors import TopologyError
from penstock.topology.graph import GraphNode, ProcessorGraph
from penstock.topology.names import check_name
from penstock.topology.stores import StoreSpec
from penstock.topology.suppress import Suppress
from penstock.topology.tables import SuppressedTable

if TYPE_CHECKING:
    from penstock.api.table import KTable

__all__ = ["BufferConfig", "Suppressed", "suppress_table"]

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class BufferConfig:
    """The bounds of a buffer of held-back changes, and what happens when they are reached: Kafka's ``BufferConfig``.

    ``max_records(n)`` and ``max_bytes(n)`` emit early when the buffer is full, `unbounded` never is.

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
            if limit is not None and limit < 0:
                raise TopologyError(f"a buffer of {limit} {what}", hint="Give 0 or more, or BufferConfig.unbounded().")

    @classmethod
    def unbounded(cls) -> BufferConfig:
        """As much as it takes (``unbounded``)."""
        return cls(emits_early=False)

    @classmethod
    def max_records(cls, limit: int) -> BufferConfig:
        """At most so many keys; then the oldest leave early (``maxRecords``)."""
        return cls(record_limit=limit)

    @classmethod
    def max_bytes(cls, limit: int) -> BufferConfig:
        """At most so many bytes, counted as Kafka counts them; then the oldest leave early (``maxBytes``)."""
        return cls(byte_limit=limit)

    def with_max_records(self, limit: int) -> BufferConfig:
        """The same with another bound of keys."""
        return replace(self, record_limit=limit)

    def with_max_bytes(self, limit: int) -> BufferConfig:
        """The same with another bound of bytes."""
        return replace(self, byte_limit=limit)

    def with_no_bound(self) -> BufferConfig:
        """The same without bounds (``withNoBound``)."""
        return replace(self, record_limit=None, byte_limit=None, emits_early=False)

    def shut_down_when_full(self) -> BufferConfig:
        """A full buffer stops the application with an error (``shutDownWhenFull``)."""
        return replace(self, emits_early=False)

    def emit_early_when_full(self) -> BufferConfig:
        """A full buffer lets its oldest changes go early (``emitEarlyWhenFull``)."""
        return replace(self, emits_early=True)

    def with_logging_disabled(self) -> BufferConfig:
        """The same without a changelog topic; segments keep the buffer all the same."""
        return replace(self, logging=False, log_config={})

    def with_logging_enabled(self, config: Mapping[str, str] | None = None) -> BufferConfig:
        """The same with a changelog topic of these settings."""
        return replace(self, logging=True, log_config=dict(config or {}))


@dataclass(frozen=True, slots=True)
class Suppressed:
    """Which changes of a table are held back, and until when: Kafka's ``Suppressed``.

    ``wait_ms`` is None until windows close.
    """

    wait_ms: int | None
    buffer: BufferConfig
    name: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)

    @classmethod
    def until_window_closes(cls, buffer: BufferConfig | None = None) -> Suppressed:
        """Only the final result of each window, once it has closed: its end plus its grace have passed in stream time.

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
        """The newest change of a key, so long after the first that was held back for it, in stream time.

        Args:
            limit: How long the first change of a key waits for more.
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
        """The same with the name of the processor; its store is ``<name>-store``."""
        return replace(self, name=name)


def suppress_table(table: KTable[K, V], suppressed: Suppressed, name: str | Named | None) -> KTable[K, V]:
    """`KTable.suppress`."""
    from penstock.api.table import KTable

    check_kind(suppressed, Suppressed, "suppress", "For example Suppressed.until_window_closes().")
    above, parent = table._handle, table._state  # noqa: SLF001
    if _is_versioned(above.graph):
        raise TopologyError(
            "suppress() takes no versioned table", hint="Leave history= out of the table's store.", node=above.node
        )
    given = suppressed.name or (name.name if isinstance(name, Named) else name)
    names = above.builder.names
    node = names.processor("KTABLE-SUPPRESS-") if given is None else check_name(given)
    wait_ms = _grace_ms(above.graph, "") if suppressed.wait_ms is None else suppressed.wait_ms
    store = names.store("KTABLE-SUPPRESS-") if given is None else f"{given}-store"
    buffer = suppressed.buffer
    spec = StoreSpec(
        store,
        "buffer",
        for_internal(for_topic(above.key_serde)),
        for_internal(above.value_serde),
        persistent=False,
        caching=False,
        logging=buffer.logging,
        log_config=dict(buffer.log_config),
    )
    state = SuppressedTable(parent, spec)
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
    handle = Handle(above.builder, graph, node, above.key_serde, above.value_serde, above.sources)
    return KTable(handle, state, None)


def _is_versioned(graph: GraphNode) -> bool:
    """Whether the table's values have versions: its own answer, or that of the tables above it."""
    if graph.output_versioned is not None:
        return graph.output_versioned
    return any(_is_versioned(parent) for parent in graph.parents)


def _grace_ms(graph: GraphNode, chain: str) -> int:
    """The grace of the windows above: the largest, if there are several parents."""
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
