"""Options of verbs, as value objects. Java has overloads for most of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, overload

from penstock.api.serdes import resolve
from penstock.base.argument_checks import check_mapping, check_optional, check_whole
from penstock.base.durations import DurationLike, duration_ms
from penstock.base.java_names import with_java_names
from penstock.config.setting_types import offset_reset
from penstock.errors import TopologyError
from penstock.topology.building.names import check_name
from penstock.topology.operations.functions import Function
from penstock.topology.stores import StoreSpec
from penstock.topology.timestamp_extractors import extractor_of

__all__ = [
    "Branched",
    "Consumed",
    "Grouped",
    "Joined",
    "KeyOrAny",
    "Materialized",
    "Named",
    "OutKeyOrAny",
    "OutValueOrAny",
    "Produced",
    "Repartitioned",
    "StreamJoined",
    "TableJoined",
    "ValueOrAny",
]

if TYPE_CHECKING:
    import typing_extensions

    KeyOrAny = typing_extensions.TypeVar("KeyOrAny", default=Any)
    ValueOrAny = typing_extensions.TypeVar("ValueOrAny", default=Any)
    OutKeyOrAny = typing_extensions.TypeVar("OutKeyOrAny", default=Any)
    OutValueOrAny = typing_extensions.TypeVar("OutValueOrAny", default=Any)
else:
    KeyOrAny = TypeVar("KeyOrAny")
    ValueOrAny = TypeVar("ValueOrAny")
    OutKeyOrAny = TypeVar("OutKeyOrAny")
    OutValueOrAny = TypeVar("OutValueOrAny")


if TYPE_CHECKING:
    from typing import Unpack
    from uuid import UUID

    from penstock.serde.base import Serde
    from penstock.serde.serdes import BooleanName, BytesName, FloatName, IntName, StrName, UuidName

    T = TypeVar("T")
    Typed = Serde[T] | type[T]

    class _Reading(TypedDict, total=False):
        timestamp_extractor: Callable[..., int] | str | None
        offset_reset: str | None


StoreType = Literal["rocksdb", "in_memory"]


@dataclass(frozen=True, slots=True)
class _Named:
    name: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)


@with_java_names
@dataclass(frozen=True, slots=True)
class Named(_Named):
    """The name of a processor: Kafka's ``Named``. ``name=`` of a verb takes the text itself as well."""


@with_java_names
@dataclass(frozen=True, slots=True)
class Branched(_Named):
    """Kafka's ``Branched``: the name of a branch, and a function of its stream."""

    to: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        _Named.__post_init__(self)
        _check_function(self.to, "Branched: to", (1,), "(stream)")


@dataclass(frozen=True, slots=True)
class _Typed(_Named):
    """Options with serdes. A serde is an object or a name; None means inherited, or else the application's default."""

    key_serde: Any = field(default=None, kw_only=True)
    value_serde: Any = field(default=None, kw_only=True)

    if not TYPE_CHECKING:  # hides no signature from type checkers

        def __new__(cls, *positional: Any, **named: Any) -> Any:  # noqa: ARG004 - __init__ takes them
            if len(positional) > 1:
                raise TopologyError(
                    f"{cls.__name__}() takes only the name of the node by position, "
                    f"not {', '.join(map(repr, positional))}",
                    hint="Name the serdes: "
                    f"{cls.__name__}(key_serde={positional[0]!r}, value_serde={positional[1]!r}).",
                )
            return object.__new__(cls)

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if _is_serde(self.name, by_name=kind in {"Consumed", "Produced", "Joined"}):
            raise TopologyError(
                f"{kind}({self.name!r}) would name the node {self.name!r}, which is a serde",
                hint=f"Write {kind}(value_serde={self.name!r}) or key_serde=, and give nodes other names.",
            )
        _Named.__post_init__(self)
        object.__setattr__(self, "key_serde", resolve(self.key_serde))
        object.__setattr__(self, "value_serde", resolve(self.value_serde))


def _is_serde(name: object, *, by_name: bool) -> bool:
    """Return whether a name is a serde, or the name of one: nodes are seldom named, serdes often."""
    if not isinstance(name, str):
        return isinstance(name, type) or hasattr(name, "serialize")
    from penstock.serde.serdes import SIMPLE_NAMES

    return by_name and name in SIMPLE_NAMES


def checked_reset(policy: str | None, **facts: str) -> str | None:
    """Return a reset policy in its normal form; raise TopologyError if there is no such policy."""
    try:
        return None if policy is None else offset_reset(policy)
    except ValueError as error:
        raise TopologyError(f"offset_reset is {policy!r}", hint=f"Use {error}.", **facts) from None


@with_java_names
@dataclass(frozen=True, slots=True)
class Consumed(_Typed, Generic[KeyOrAny, ValueOrAny]):
    """The options of reading a topic: Kafka's ``Consumed``.

    The types of the stream come from the serdes: ``Consumed(key_serde="string", value_serde=int)`` makes a
    ``KStream[str, int]``.

    Args:
        key_serde: A serde, its name, or a Python type such as ``str``.
        value_serde: Likewise.
        timestamp_extractor: A function called as ``fn(record, partition_time_ms)`` that returns milliseconds; a
            negative number drops the record. Or the name of one of Kafka's: "WallclockTimestampExtractor",
            "FailOnInvalidTimestamp", "LogAndSkipOnInvalidTimestamp", "UsePartitionTimeOnInvalidTimestamp".
        offset_reset: The start without a committed offset: "earliest", "latest", "none" (an error) or
            "by_duration:PT1H" (the records of the last hour); None: the setting ``auto.offset.reset``.
    """

    key_serde: Serde[KeyOrAny] | type[KeyOrAny] | str | None = field(default=None, kw_only=True)
    value_serde: Serde[ValueOrAny] | type[ValueOrAny] | str | None = field(default=None, kw_only=True)
    timestamp_extractor: Callable[..., int] | str | None = field(default=None, kw_only=True)
    offset_reset: str | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:  # one for each pair of types; a name that stands for none of them is Any

        @overload
        def __init__(
            self: Consumed[str, str],
            name: str | None = None,
            *,
            key_serde: StrName,
            value_serde: StrName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[str, int],
            name: str | None = None,
            *,
            key_serde: StrName,
            value_serde: IntName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[str, float],
            name: str | None = None,
            *,
            key_serde: StrName,
            value_serde: FloatName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[str, bool],
            name: str | None = None,
            *,
            key_serde: StrName,
            value_serde: BooleanName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[str, bytes],
            name: str | None = None,
            *,
            key_serde: StrName,
            value_serde: BytesName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[str, UUID],
            name: str | None = None,
            *,
            key_serde: StrName,
            value_serde: UuidName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[str, ValueOrAny],
            name: str | None = None,
            *,
            key_serde: StrName,
            value_serde: Typed[ValueOrAny],
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[str, Any],
            name: str | None = None,
            *,
            key_serde: StrName,
            value_serde: str | None = None,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[int, str],
            name: str | None = None,
            *,
            key_serde: IntName,
            value_serde: StrName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[int, int],
            name: str | None = None,
            *,
            key_serde: IntName,
            value_serde: IntName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[int, float],
            name: str | None = None,
            *,
            key_serde: IntName,
            value_serde: FloatName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[int, bool],
            name: str | None = None,
            *,
            key_serde: IntName,
            value_serde: BooleanName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[int, bytes],
            name: str | None = None,
            *,
            key_serde: IntName,
            value_serde: BytesName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[int, UUID],
            name: str | None = None,
            *,
            key_serde: IntName,
            value_serde: UuidName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[int, ValueOrAny],
            name: str | None = None,
            *,
            key_serde: IntName,
            value_serde: Typed[ValueOrAny],
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[int, Any],
            name: str | None = None,
            *,
            key_serde: IntName,
            value_serde: str | None = None,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[KeyOrAny, str],
            name: str | None = None,
            *,
            key_serde: Typed[KeyOrAny],
            value_serde: StrName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[KeyOrAny, int],
            name: str | None = None,
            *,
            key_serde: Typed[KeyOrAny],
            value_serde: IntName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[KeyOrAny, float],
            name: str | None = None,
            *,
            key_serde: Typed[KeyOrAny],
            value_serde: FloatName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[KeyOrAny, bool],
            name: str | None = None,
            *,
            key_serde: Typed[KeyOrAny],
            value_serde: BooleanName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[KeyOrAny, bytes],
            name: str | None = None,
            *,
            key_serde: Typed[KeyOrAny],
            value_serde: BytesName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[KeyOrAny, UUID],
            name: str | None = None,
            *,
            key_serde: Typed[KeyOrAny],
            value_serde: UuidName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[KeyOrAny, ValueOrAny],
            name: str | None = None,
            *,
            key_serde: Typed[KeyOrAny],
            value_serde: Typed[ValueOrAny],
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[KeyOrAny, Any],
            name: str | None = None,
            *,
            key_serde: Typed[KeyOrAny],
            value_serde: str | None = None,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[Any, str],
            name: str | None = None,
            *,
            key_serde: str | None = None,
            value_serde: StrName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[Any, int],
            name: str | None = None,
            *,
            key_serde: str | None = None,
            value_serde: IntName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[Any, float],
            name: str | None = None,
            *,
            key_serde: str | None = None,
            value_serde: FloatName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[Any, bool],
            name: str | None = None,
            *,
            key_serde: str | None = None,
            value_serde: BooleanName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[Any, bytes],
            name: str | None = None,
            *,
            key_serde: str | None = None,
            value_serde: BytesName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[Any, UUID],
            name: str | None = None,
            *,
            key_serde: str | None = None,
            value_serde: UuidName,
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[Any, ValueOrAny],
            name: str | None = None,
            *,
            key_serde: str | None = None,
            value_serde: Typed[ValueOrAny],
            **more: Unpack[_Reading],
        ) -> None: ...

        @overload
        def __init__(
            self: Consumed[Any, Any],
            name: str | None = None,
            *,
            key_serde: str | None = None,
            value_serde: str | None = None,
            **more: Unpack[_Reading],
        ) -> None: ...

        def __init__(
            self,
            name: str | None = None,
            *,
            key_serde: Serde[Any] | type | str | None = None,
            value_serde: Serde[Any] | type | str | None = None,
            timestamp_extractor: Callable[..., int] | str | None = None,
            offset_reset: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        _Typed.__post_init__(self)
        extractor_of(self.timestamp_extractor, "Consumed: timestamp_extractor")  # checks it
        object.__setattr__(self, "offset_reset", checked_reset(self.offset_reset))


@with_java_names
@dataclass(frozen=True, slots=True)
class Produced(_Typed):
    """The options of writing a topic: Kafka's ``Produced``.

    ``partitioner`` is called as ``fn(topic, key, value, partitions)`` or
    ``fn(topic, key, value, headers, partitions)`` before the record is encoded. It returns a partition, several of
    them, none (an empty list: the record is dropped), or None for Kafka's default.
    """

    partitioner: Callable[..., Any] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _Typed.__post_init__(self)
        _check_function(self.partitioner, "Produced: partitioner", (4, 5))


@with_java_names
@dataclass(frozen=True, slots=True)
class Grouped(_Typed):
    """Serdes and name of the repartition topic that grouping may need: Kafka's ``Grouped``."""


@with_java_names
@dataclass(frozen=True, slots=True)
class Joined(_Typed):
    """Serdes and name of a stream-table join: Kafka's ``Joined``. ``value_serde`` encodes the stream's values.

    Args:
        grace: The stream time for which records wait for late changes of the table (its store must be versioned).
    """

    other_value_serde: Any = field(default=None, kw_only=True)
    grace: DurationLike | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _Typed.__post_init__(self)
        if self.grace is not None:
            object.__setattr__(self, "grace", _at_least_zero(self.grace, "grace"))


@with_java_names
@dataclass(frozen=True, slots=True)
class TableJoined(_Named):
    """Name and partitioners of a foreign-key join: Kafka's ``TableJoined``.

    The name is part of the names of its processors, its two topics and its store. A partitioner is called as
    ``fn(topic, key, None, partitions)`` and must return the partition in which the table has the key; None stands for
    Kafka's default partitioner.

    Args:
        partitioner: The partitioner of the left table, for the responses.
        other_partitioner: The partitioner of the right table, for the subscriptions.
    """

    partitioner: Callable[..., Any] | None = field(default=None, kw_only=True)
    other_partitioner: Callable[..., Any] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _Named.__post_init__(self)
        _check_function(self.partitioner, "TableJoined: partitioner", (4, 5))
        _check_function(self.other_partitioner, "TableJoined: other_partitioner", (4, 5))


@with_java_names
@dataclass(frozen=True, slots=True)
class Repartitioned(_Typed):
    """Name, partitions and serdes of an explicit repartition topic: Kafka's ``Repartitioned``."""

    partitions: int | None = field(default=None, kw_only=True)
    partitioner: Callable[..., Any] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _Typed.__post_init__(self)
        if self.partitions is not None:
            check_whole(self.partitions, "Repartitioned: partitions", 1)
        _check_function(self.partitioner, "Repartitioned: partitioner", (4, 5))


@with_java_names
@dataclass(frozen=True, slots=True)
class Materialized(_Typed):
    """The store of a table or an aggregation: Kafka's ``Materialized``.

    Args:
        store_type: "rocksdb" (Kafka's word for a store on disk) or "in_memory".
        caching: Whether the results of a batch are merged by key; None follows ``statestore.cache.max.bytes``.
        logging: Whether the store has a changelog topic.
        log_config: The settings of that topic.
        retention: The time for which windows are stored; by default size plus grace.
        history: The time for which old versions are stored, which makes the store a versioned one.
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
        check_optional(self.caching, bool, "Materialized: caching", "True, False or None")
        check_mapping(self.log_config, "Materialized: log_config")
        for what in ("retention", "history"):
            value = getattr(self, what)
            if value is not None:
                object.__setattr__(self, what, _at_least_zero(value, what))

    @classmethod
    def of(cls, materialized: Materialized | str | None) -> Materialized | None:
        """Return the options; a text is the name of the store."""
        if materialized is None or isinstance(materialized, cls):
            return materialized
        if isinstance(materialized, str):
            return cls(materialized)
        raise TopologyError(
            f"{materialized!r} is not a Materialized", hint='Write Materialized("store-name") or the name.'
        )

    def with_name(self, name: str) -> Materialized:
        """Return the options with another store name."""
        return replace(self, name=check_name(name, "the name of a store"))

    def with_logging_enabled(self, config: Mapping[str, str] | None = None) -> Materialized:
        """Return the options with a changelog topic of these settings (``withLoggingEnabled``).

        >>> Materialized("counts").with_logging_enabled({"segment.ms": "600000"}).log_config
        {'segment.ms': '600000'}
        """
        settings = {} if config is None else check_mapping(config, "with_logging_enabled(): config")
        return replace(self, logging=True, log_config=dict(settings))

    def with_logging_disabled(self) -> Materialized:
        """Return the options without a changelog topic (``withLoggingDisabled``)."""
        return replace(self, logging=False, log_config={})


@with_java_names
@dataclass(frozen=True, slots=True)
class StreamJoined(_Typed):
    """Serdes, names and stores of a join of two streams: Kafka's ``StreamJoined``.

    ``value_serde`` encodes the left stream's values, ``other_value_serde`` the right one's.

    Args:
        store_name: The prefix of the names of both stores, which are generated without it (``withStoreName``).
        store_type: "rocksdb" (Kafka's word for a store on disk) or "in_memory" (``withDslStoreSuppliers``).
        this_store: The left side's store, from `Stores.window` with ``retain_duplicates`` (``withThisStoreSupplier``).
        other_store: The right side's store (``withOtherStoreSupplier``).
        logging: Whether the stores have changelog topics.
        log_config: The settings of those topics.
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
        check_mapping(self.log_config, "StreamJoined: log_config")
        for side in ("this_store", "other_store"):
            check_optional(getattr(self, side), StoreSpec, f"StreamJoined: {side}", "a store", "Stores.window(...)")
        if self.this_store and self.other_store and self.this_store.name == self.other_store.name:
            raise TopologyError(f"both stores are named {self.this_store.name!r}", hint="Give each its own name.")


def _check_store_type(store_type: str | None) -> None:
    if store_type not in (None, "rocksdb", "in_memory"):
        raise TopologyError(f"store_type is {store_type!r}", hint='Use "rocksdb" or "in_memory".')


def _check_function(fn: object, verb: str, allowed: tuple[int, ...], passed: str = "") -> None:
    if fn is not None:
        Function.wrap(fn, verb=verb, allowed=allowed, passed=passed, expression=False)


def _at_least_zero(value: DurationLike, what: str) -> int:
    milliseconds = duration_ms(value, what)
    if milliseconds < 0:
        raise TopologyError(f"{what} is {value!r}", hint="Give a duration of at least 0.")
    return milliseconds
