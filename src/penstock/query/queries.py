"""Interactive queries of version 2, as frozen values: Kafka's types of queries, requests and results."""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, get_args

from penstock.base.argument_checks import check_given
from penstock.base.durations import TimestampLike, timestamp_ms
from penstock.base.java_names import with_java_names
from penstock.base.terminal.html import facts_html, table_html
from penstock.base.terminal.human_numbers import counted
from penstock.errors import StateError
from penstock.query.position import Position, PositionBound
from penstock.state.views.header_entries import Headers
from penstock.state.views.keyvalue import entries_html, shown

__all__ = [
    "FailureReason",
    "KeyQuery",
    "MultiVersionedKeyQuery",
    "PrefixQuery",
    "Query",
    "QueryResult",
    "RangeQuery",
    "ReadOnlyRecord",
    "ResultOrder",
    "StateQueryRequest",
    "StateQueryResult",
    "TimestampedKeyQuery",
    "TimestampedKeyWithHeadersQuery",
    "TimestampedRangeQuery",
    "TimestampedRangeWithHeadersQuery",
    "TimestampedWindowKeyWithHeadersQuery",
    "TimestampedWindowRangeWithHeadersQuery",
    "VersionedKeyQuery",
    "WindowKeyQuery",
    "WindowRangeQuery",
]

# Queries

ResultOrder = Literal["any", "ascending", "descending"]


@with_java_names
@dataclass(frozen=True, slots=True)
class KeyQuery:
    """The value under a key; None if there is none."""

    key: Any
    skips_cache: bool = False

    def __post_init__(self) -> None:
        _check_key(self)

    @classmethod
    def with_key(cls, key: Any) -> KeyQuery:
        """Query the value of ``key``."""
        return cls(key)

    def skip_cache(self) -> KeyQuery:
        """Accept Kafka's option; queries read only committed state, so there is no cache to skip."""
        return replace(self, skips_cache=True)


@with_java_names
@dataclass(frozen=True, slots=True)
class TimestampedKeyQuery:
    """Like `KeyQuery`, with the time of the value's last change: a `ValueAndTimestamp`."""

    key: Any
    skips_cache: bool = False

    def __post_init__(self) -> None:
        _check_key(self)

    @classmethod
    def with_key(cls, key: Any) -> TimestampedKeyQuery:
        """Query the value of ``key`` and the time of its last change."""
        return cls(key)

    def skip_cache(self) -> TimestampedKeyQuery:
        """Accept Kafka's option, as `KeyQuery.skip_cache`."""
        return replace(self, skips_cache=True)


@with_java_names
@dataclass(frozen=True, slots=True)
class TimestampedKeyWithHeadersQuery:
    """The record under a key of a store that keeps headers: a `ReadOnlyRecord`; None if there is none."""

    key: Any
    skips_cache: bool = False

    def __post_init__(self) -> None:
        _check_key(self)

    @classmethod
    def with_key(cls, key: Any) -> TimestampedKeyWithHeadersQuery:
        """Query the value of ``key``, with timestamp and headers."""
        return cls(key)

    def skip_cache(self) -> TimestampedKeyWithHeadersQuery:
        """Accept Kafka's option, as `KeyQuery.skip_cache`."""
        return replace(self, skips_cache=True)


@with_java_names
@dataclass(frozen=True, slots=True)
class RangeQuery:
    """(key, value) of the keys from ``lower`` to ``upper``, both included, in the order of the keys' bytes."""

    lower: Any = None
    upper: Any = None
    order: ResultOrder = "any"
    with_timestamps: ClassVar[bool] = False
    with_headers: ClassVar[bool] = False

    @classmethod
    def with_range(cls, lower: Any, upper: Any) -> Self:
        """Query the keys from ``lower`` to ``upper``, both included; None leaves an end open."""
        return cls(lower, upper)

    @classmethod
    def with_lower_bound(cls, lower: Any) -> Self:
        """Query the keys from ``lower`` on."""
        return cls(lower)

    @classmethod
    def with_upper_bound(cls, upper: Any) -> Self:
        """Query the keys up to ``upper``, which is included."""
        return cls(None, upper)

    @classmethod
    def with_no_bounds(cls) -> Self:
        """Query all keys."""
        return cls()

    def with_ascending_keys(self) -> Self:
        """Return the keys in ascending order of their bytes."""
        return replace(self, order="ascending")

    def with_descending_keys(self) -> Self:
        """Return the keys in descending order of their bytes."""
        return replace(self, order="descending")


@with_java_names
class TimestampedRangeQuery(RangeQuery):
    """Like `RangeQuery`, each value a `ValueAndTimestamp`."""

    __slots__ = ()
    with_timestamps: ClassVar[bool] = True


@with_java_names
class TimestampedRangeWithHeadersQuery(RangeQuery):
    """Like `RangeQuery`, for a store that keeps headers: a `ReadOnlyRecord` for each key."""

    __slots__ = ()
    with_headers: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class PrefixQuery:
    """(key, value) of the keys whose bytes begin with those of ``prefix``; Kafka has it only as ``prefixScan``."""

    prefix: Any
    serde: Any = None

    @classmethod
    def with_prefix(cls, prefix: Any, serde: Any = None) -> PrefixQuery:
        """Query the keys that begin with ``prefix``, encoded by ``serde`` (by default the store's key serde)."""
        return cls(prefix, serde)


@with_java_names
@dataclass(frozen=True, slots=True)
class WindowKeyQuery:
    """(start, value) of a key's windows that start from one time to another, both included."""

    key: Any
    time_from: int
    time_to: int
    with_headers: ClassVar[bool] = False

    @classmethod
    def with_key_and_window_start_range(cls, key: Any, time_from: TimestampLike, time_to: TimestampLike) -> Self:
        """Query the windows of ``key`` that start from ``time_from`` to ``time_to``, both included."""
        return cls(key, timestamp_ms(time_from), timestamp_ms(time_to))


@with_java_names
class TimestampedWindowKeyWithHeadersQuery(WindowKeyQuery):
    """Like `WindowKeyQuery`, for a store that keeps headers: a `ReadOnlyRecord` for each window."""

    __slots__ = ()
    with_headers: ClassVar[bool] = True


@with_java_names
@dataclass(frozen=True, slots=True)
class WindowRangeQuery:
    """(windowed key, value): all windows by their start; all sessions of a key, or of all keys without one."""

    key: Any = None
    time_from: int | None = None
    time_to: int | None = None
    with_headers: ClassVar[bool] = False

    @classmethod
    def with_key(cls, key: Any) -> Self:
        """Query all sessions of a key, in a session store."""
        return cls(key)

    @classmethod
    def with_window_start_range(cls, time_from: TimestampLike, time_to: TimestampLike) -> Self:
        """Query the windows of all keys that start in this time range, in a window store."""
        return cls(None, timestamp_ms(time_from), timestamp_ms(time_to))


@with_java_names
class TimestampedWindowRangeWithHeadersQuery(WindowRangeQuery):
    """Like `WindowRangeQuery`, for a store that keeps headers: a `ReadOnlyRecord` for each window or session."""

    __slots__ = ()
    with_headers: ClassVar[bool] = True


@with_java_names
@dataclass(frozen=True, slots=True)
class VersionedKeyQuery:
    """The version of a key that is valid now, or was at a time: a `VersionedRecord`."""

    key: Any
    as_of_ms: int | None = None

    @classmethod
    def with_key(cls, key: Any) -> VersionedKeyQuery:
        """Query the latest version of ``key``."""
        return cls(key)

    def as_of(self, timestamp: TimestampLike) -> VersionedKeyQuery:
        """Query the version that was valid at ``timestamp``."""
        return replace(self, as_of_ms=timestamp_ms(timestamp))


@with_java_names
@dataclass(frozen=True, slots=True)
class MultiVersionedKeyQuery:
    """All versions of a key that were valid at some time of a range, both ends included; the newest first."""

    key: Any
    from_ms: int | None = None
    to_ms: int | None = None
    order: ResultOrder = "any"

    def __post_init__(self) -> None:
        if self.from_ms is not None and self.to_ms is not None and self.from_ms > self.to_ms:
            raise StateError(
                f"a query of versions from {self.from_ms} to {self.to_ms} ends before it begins",
                hint="Give from_time() a time that is not after that of to_time().",
            )

    @classmethod
    def with_key(cls, key: Any) -> MultiVersionedKeyQuery:
        """Query all versions of ``key``."""
        return cls(key)

    def from_time(self, timestamp: TimestampLike) -> MultiVersionedKeyQuery:
        """Leave out versions that ended before ``timestamp``."""
        return replace(self, from_ms=timestamp_ms(timestamp))

    def to_time(self, timestamp: TimestampLike) -> MultiVersionedKeyQuery:
        """Leave out versions that began after ``timestamp``."""
        return replace(self, to_ms=timestamp_ms(timestamp))

    def with_ascending_timestamps(self) -> MultiVersionedKeyQuery:
        """Return the oldest version first."""
        return replace(self, order="ascending")

    def with_descending_timestamps(self) -> MultiVersionedKeyQuery:
        """Return the newest version first, which is the default."""
        return replace(self, order="descending")


def _check_key(query: Any) -> None:
    if query.key is None:
        raise StateError(f"the key of a {type(query).__name__} is null", hint="A store has no null keys.")


Query: TypeAlias = (
    KeyQuery
    | TimestampedKeyQuery
    | TimestampedKeyWithHeadersQuery
    | RangeQuery
    | PrefixQuery
    | WindowKeyQuery
    | WindowRangeQuery
    | VersionedKeyQuery
    | MultiVersionedKeyQuery
)


# Requests and results

IsolationLevel = Literal["READ_UNCOMMITTED", "READ_COMMITTED"]


@with_java_names
class ReadOnlyRecord(NamedTuple):
    """An entry of a store that keeps headers, as a record: Kafka's ``ReadOnlyRecord``.

    Of a window or session store the key is a `Windowed`; the timestamp of a session is its end.

    >>> ReadOnlyRecord("a", 1, 5, (("trace", b"x"),)).headers
    (('trace', b'x'),)
    """

    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()


class FailureReason(enum.Enum):
    """Kafka's ``FailureReason``."""

    UNKNOWN_QUERY_TYPE = "UNKNOWN_QUERY_TYPE"
    NOT_ACTIVE = "NOT_ACTIVE"
    NOT_UP_TO_BOUND = "NOT_UP_TO_BOUND"
    NOT_PRESENT = "NOT_PRESENT"
    DOES_NOT_EXIST = "DOES_NOT_EXIST"
    STORE_EXCEPTION = "STORE_EXCEPTION"


@with_java_names
@dataclass(frozen=True, slots=True)
class StateQueryRequest:
    """Kafka's ``StateQueryRequest``.

    >>> from penstock.query import KeyQuery
    >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("linux")).with_partitions([0])
    >>> request.store, request.query.key, request.partitions
    ('counts', 'linux', frozenset({0}))
    """

    store: str
    query: Query | None = None
    partitions: frozenset[int] | None = None
    bound: PositionBound = field(default_factory=PositionBound.unbounded)
    requires_active: bool = False
    has_execution_info: bool = False
    isolation_level: IsolationLevel | None = None

    @classmethod
    def in_store(cls, name: str) -> StateQueryRequest:
        """Make a request for a store."""
        check_given(name, str, "in_store(): name", "a text")
        return cls(name)

    def with_query(self, query: Query) -> StateQueryRequest:
        """Set the query."""
        check_given(query, get_args(Query), "with_query(): query", "a query", 'For example KeyQuery.with_key("a").')
        return replace(self, query=query)

    def with_partitions(self, partitions: Collection[int]) -> StateQueryRequest:
        """Query only these partitions."""
        is_numbers = isinstance(partitions, Collection) and all(isinstance(number, int) for number in partitions)
        if not is_numbers or isinstance(partitions, bytes):
            raise StateError(f"with_partitions(): partitions is {partitions!r}", hint="Give their numbers: [0, 1].")
        return replace(self, partitions=frozenset(partitions))

    def with_all_partitions(self) -> StateQueryRequest:
        """Query all partitions, which is the default."""
        return replace(self, partitions=None)

    def with_position_bound(self, bound: PositionBound) -> StateQueryRequest:
        """Require at least this position of the state."""
        check_given(bound, PositionBound, "with_position_bound(): bound", "a bound", "PositionBound.at(position)")
        return replace(self, bound=bound)

    def require_active(self) -> StateQueryRequest:
        """Fail with NOT_ACTIVE unless the application runs in this process."""
        return replace(self, requires_active=True)

    def with_isolation_level(self, level: IsolationLevel) -> StateQueryRequest:
        """Read committed state alone ("READ_COMMITTED"), or accept what a commit may still take back.

        An application's queries read committed state at either level. The test driver's see the middle of a record with
        "READ_UNCOMMITTED", and unless ``enable.transactional.statestores`` is set also with the other.
        """
        if level not in get_args(IsolationLevel):
            levels = " or ".join(get_args(IsolationLevel))
            raise StateError(f"there is no isolation level {level!r}", hint=f"Give {levels}.")
        return replace(self, isolation_level=level)

    def enable_execution_info(self) -> StateQueryRequest:
        """Add to each result how the partition was read, and how long it took."""
        return replace(self, has_execution_info=True)


@with_java_names
@dataclass(slots=True)
class QueryResult:
    """The result of one partition, or its failure.

    Attributes:
        result: The answer.
        failure_reason: The reason why there is none.
        failure_message: The same for people.
        position: The position of the state.
        batch: The batch at whose end the state is; -1 in continuous mode.
        execution_info: How the partition was read, if that was asked for.
        read_from: The copy that has answered: "worker" (that of the task), "standby", "own" (a copy of this process),
            or "memory"; empty if none has.
    """

    result: Any = None
    failure_reason: FailureReason | None = None
    failure_message: str = ""
    position: Position = field(default_factory=Position)
    batch: int = -1
    execution_info: list[str] = field(default_factory=list)
    read_from: str = ""

    @classmethod
    def for_result(cls, result: Any) -> QueryResult:
        """Make a successful answer."""
        return cls(result)

    @classmethod
    def for_failure(cls, reason: FailureReason, message: str) -> QueryResult:
        """Make a failed answer: the reason, and a message for people."""
        return cls(None, reason, message)

    @property
    def is_success(self) -> bool:
        """Whether there is a result, which may be None."""
        return self.failure_reason is None

    @property
    def is_failure(self) -> bool:
        """Whether the query failed."""
        return self.failure_reason is not None

    def _repr_html_(self) -> str:
        return _answer_html(self)

    def get(self) -> Any:
        """Return the result; raises StateError if the query failed."""
        if self.failure_reason is not None:
            raise StateError(self.failure_message, hint=f"The reason is {self.failure_reason.value}.")
        return self.result


@with_java_names
@dataclass(slots=True)
class StateQueryResult:
    """Kafka's ``StateQueryResult``: the results by partition, or that of a global store."""

    partition_results: dict[int, QueryResult] = field(default_factory=dict)
    global_result: QueryResult | None = None

    def _repr_html_(self) -> str:
        return _answers_html(self)

    @property
    def only_partition_result(self) -> QueryResult | None:
        """The only result that is not None; None if there is none. Raises StateError if there are several."""
        results = [r for r in self.partition_results.values() if r.is_success and r.result is not None]
        if len(results) > 1:
            raise StateError(
                f"{len(results)} partitions have a result",
                hint="Use partition_results, or query one partition with with_partitions().",
            )
        return results[0] if results else None

    @property
    def position(self) -> Position:
        """The position of all partitions together."""
        merged = Position()
        for result in self.partition_results.values():
            merged = merged.merge(result.position)
        return merged if self.global_result is None else merged.merge(self.global_result.position)


def _answer_html(answer: QueryResult) -> str:
    """Render the result of one partition."""
    if answer.failure_reason is not None:
        return facts_html("no answer", {"reason": answer.failure_reason.value, "message": answer.failure_message})
    of_batch = f"answer of batch {answer.batch}" if answer.batch >= 0 else "answer"
    result = answer.result
    if not isinstance(result, list):
        return facts_html(of_batch, {"result": shown(result)})
    if all(type(entry) is tuple and len(entry) == 2 for entry in result):
        return entries_html(of_batch, result)
    return table_html(of_batch, ["result"], ([shown(entry)] for entry in result))


def _answers_html(answers: StateQueryResult) -> str:
    """Render the results of all partitions, or that of a global store."""
    if answers.global_result is not None:
        return _answer_html(answers.global_result)
    rows = ((number, *_row(answer)) for number, answer in sorted(answers.partition_results.items()))
    return table_html(f"{counted(len(answers.partition_results), 'partition')}", ["partition", "batch", "answer"], rows)


def _row(answer: QueryResult) -> tuple[Any, Any]:
    if answer.failure_reason is not None:
        return answer.batch, f"{answer.failure_reason.value}: {answer.failure_message}"
    result = answer.result
    if not isinstance(result, list):
        return answer.batch, shown(result)
    few = ", ".join(str(shown(entry)) for entry in result[:3])
    return (
        answer.batch,
        f"{len(result):,} entries: {few}{', ...' if len(result) > 3 else ''}" if result else "no entries",
    )
