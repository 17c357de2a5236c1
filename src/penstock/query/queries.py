"""Queries of a store: Kafka's query types of version 2, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

from penstock.base.durations import TimestampLike, timestamp_ms
from penstock.base.java_names import with_java_names
from penstock.errors import StateError

__all__ = [
    "KeyQuery",
    "MultiVersionedKeyQuery",
    "PrefixQuery",
    "Query",
    "RangeQuery",
    "ResultOrder",
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
