"""Value objects that verbs take: what Java overloads for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from penstock.api.serdes import resolve
from penstock.config.offset_reset import offset_reset
from penstock.durations import DurationLike, duration_ms
from penstock.errors import TopologyError
from penstock.topology.names import check_name
from penstock.topology.stores import StoreSpec

__all__ = [
    "Branched",
    "Consumed",
    "Grouped",
    "Joined",
    "Materialized",
    "Named",
    "Produced",
    "Repartitioned",
    "StreamJoined",
    "TableJoined",
]

StoreType = Literal["rocksdb", "in_memory"]


@dataclass(frozen=True, slots=True)
class _Named:
    name: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)


@dataclass(frozen=True, slots=True)
class Named(_Named):
    """Kafka's ``Named``: ``name=`` of a verb takes the text itself just as well."""


@dataclass(frozen=True, slots=True)
class Branched(_Named):
    """Kafka's ``Branched``: the name of a branch, and what to do with its stream."""

    to: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class _Typed(_Named):
    """Options with serdes. A serde is an object or a name; None means inherited, or else the application's default."""

    key_serde: Any = field(default=None, kw_only=True)
    value_serde: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _Named.__post_init__(self)
        object.__setattr__(self, "key_serde", resolve(self.key_serde))
        object.__setattr__(self, "value_serde", resolve(self.value_serde))


def checked_reset(policy: str | None, **facts: str) -> str | None:
    """A reset policy in its one form; raises TopologyError if it is none."""
    try:
        return None if policy is None else offset_reset(policy)
    except ValueError as error:
        raise TopologyError(f"offset_reset is {policy!r}", hint=f"Use {error}.", **facts) from None


@dataclass(frozen=True, slots=True)
class Consumed(_Typed):
    """How a topic is read: Kafka's ``Consumed``.

    Args:
        timestamp_extractor: Called as ``fn(record, partition_time_ms)``; gives milliseconds, negative to drop.
        offset_reset: Where to start without a committed offset: "earliest", "latest", "none" (an error) or
            "by_duration:PT1H" (the records of the last hour); None: as ``auto.offset.reset`` says.
    """

    timestamp_extractor: Callable[..., int] | None = field(default=None, kw_only=True)
    offset_reset: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _Typed.__post_init__(self)
        object.__setattr__(self, "offset_reset", checked_reset(self.offset_reset))


@dataclass(frozen=True, slots=True)
class Produced(_Typed):
    """How a topic is written: Kafka's ``Produced``.

    ``partitioner`` is called as ``fn(topic, key, value, partitions)``.
    """

    partitioner: Callable[..., int] | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Grouped(_Typed):
    """Serdes and name of the repartition topic that grouping may need: Kafka's ``Grouped``."""


@dataclass(frozen=True, slots=True)
class Joined(_Typed):
    """Serdes and name of a stream-table join: Kafka's ``Joined``. ``value_serde`` is that of the stream's values.

    Args:
        grace: How long records wait for late changes of the table (its store must be versioned).
    """

    other_value_serde: Any = field(default=None, kw_only=True)
    grace: DurationLike | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _Typed.__post_init__(self)
        if self.grace is not None:
            object.__setattr__(self, "grace", _at_least_zero(self.grace, "grace"))


@dataclass(frozen=True, slots=True)
class TableJoined(_Named):
    """Name and partitioners of a foreign-key join: Kafka's ``TableJoined``.

    The name goes into all its processors, its two topics and its store. A partitioner is called as
    ``fn(topic, key, None, partitions)`` and must send a key to the partition where the table has it; None for one of
    them means that the table is partitioned by Kafka's default.

    Args:
        partitioner: That of the left table, for the answers.
        other_partitioner: That of the right table, for the subscriptions.
    """

    partitioner: Callable[..., int] | None = field(default=None, kw_only=True)
    other_partitioner: Callable[..., int] | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Repartitioned(_Typed):
    """Name, partitions and serdes of an explicit repartition topic: Kafka's ``Repartitioned``."""

    partitions: int | None = field(default=None, kw_only=True)
    partitioner: Callable[..., int] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _Typed.__post_init__(self)
        if self.partitions is not None and self.partitions < 1:
            raise TopologyError(f"partitions is {self.partitions}", hint="A topic has at least 1 partition.")


@dataclass(frozen=True, slots=True)
class Materialized(_Typed):
    """The store of a table or an aggregation: Kafka's ``Materialized``.

    Args:
        store_type: "rocksdb" (Kafka's word for kept on disk) or "in_memory".
        caching: Whether results are merged per batch; None follows ``statestore.cache.max.bytes``.
        logging: Whether the store has a changelog topic.
        log_config: Settings of that topic.
        retention: How long windows are kept; by default size plus grace.
        history: Makes a versioned store that keeps old versions this long.
    """

    store_type: StoreType | None = field(default=None, kw_only=True)
    caching: bool | None = field(default=None, kw_only=True)
    logging: bool = field(default=True, kw_only=True)
    log_config: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    retention: DurationLike | None = field(default=None, kw_only=True)
    history: DurationLike | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _Typed.__post_init__(self)
        _check_store_type(self.store_type)
        for what in ("retention", "history"):
            value = getattr(self, what)
            if value is not None:
                object.__setattr__(self, what, _at_least_zero(value, what))

    @classmethod
    def of(cls, given: Materialized | str | None) -> Materialized | None:
        """A store name alone stands for ``Materialized(name)``."""
        if given is None or isinstance(given, cls):
            return given
        if isinstance(given, str):
            return cls(given)
        raise TopologyError(f"{given!r} is no Materialized", hint='Write Materialized("store-name") or the name.')

    def with_name(self, name: str) -> Materialized:
        """The same with another store name."""
        return replace(self, name=name)

    def with_logging_enabled(self, config: Mapping[str, str] | None = None) -> Materialized:
        """The same with a changelog topic, of these settings (``withLoggingEnabled``).

        >>> Materialized("counts").with_logging_enabled({"segment.ms": "600000"}).log_config
        {'segment.ms': '600000'}
        """
        return replace(self, logging=True, log_config=dict(config or {}))

    def with_logging_disabled(self) -> Materialized:
        """The same without a changelog topic (``withLoggingDisabled``)."""
        return replace(self, logging=False, log_config={})


@dataclass(frozen=True, slots=True)
class StreamJoined(_Typed):
    """Serdes, names and stores of a join of two streams: Kafka's ``StreamJoined``.

    ``value_serde`` is that of the left stream's values, ``other_value_serde`` that of the right one's.

    Args:
        store_name: What the names of both stores begin with; without it they are generated (``withStoreName``).
        store_type: "rocksdb" (Kafka's word for kept on disk) or "in_memory" (``withDslStoreSuppliers``).
        this_store: The left side's store, of `Stores.window` with ``retain_duplicates`` (``withThisStoreSupplier``).
        other_store: The right side's (``withOtherStoreSupplier``).
        logging: Whether the stores have changelog topics.
        log_config: Settings of those topics.
    """

    other_value_serde: Any = field(default=None, kw_only=True)
    store_name: str | None = field(default=None, kw_only=True)
    store_type: StoreType | None = field(default=None, kw_only=True)
    this_store: StoreSpec | None = field(default=None, kw_only=True)
    other_store: StoreSpec | None = field(default=None, kw_only=True)
    logging: bool = field(default=True, kw_only=True)
    log_config: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        _Typed.__post_init__(self)
        object.__setattr__(self, "other_value_serde", resolve(self.other_value_serde))
        if self.store_name is not None:
            check_name(self.store_name, "the name of a store")
        _check_store_type(self.store_type)
        if self.this_store and self.other_store and self.this_store.name == self.other_store.name:
            raise TopologyError(f"both stores are named {self.this_store.name!r}", hint="Give each its own name.")


def _check_store_type(given: str | None) -> None:
    if given not in {None, "rocksdb", "in_memory"}:
        raise TopologyError(f"store_type is {given!r}", hint='Use "rocksdb" or "in_memory".')


def _at_least_zero(value: DurationLike, what: str) -> int:
    milliseconds = duration_ms(value, what)
    if milliseconds < 0:
        raise TopologyError(f"{what} is {value!r}", hint="Give a duration of at least 0.")
    return milliseconds
