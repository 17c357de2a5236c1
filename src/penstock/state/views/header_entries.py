"""Values with headers, and key-value stores of them: Kafka's ``TimestampedKeyValueStoreWithHeaders``."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.base.java_names import with_java_names, with_java_names_of
from penstock.errors import StateError
from penstock.state.base import ByteMap
from penstock.state.views.frames import decode_stamped, encode_stamped, unframe
from penstock.state.views.header_format import (
    NO_HEADERS,
    Headers,
    pack_headers,
    rows_without_headers,
    split_headers,
    unpack_headers,
)
from penstock.state.views.keys import key_bytes, keys_bytes
from penstock.state.views.keyvalue import TimestampedView, ValueAndTimestamp
from penstock.state.views.lru import LruView
from penstock.state.views.retention import NUMBER
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.serde.column import Column

__all__ = ["AggregationWithHeaders", "HeaderEntries", "HeadersLruView", "HeadersView", "ValueTimestampHeaders"]

_UNKNOWN = -1  # the timestamp that a store without timestamps returns


@with_java_names
class ValueTimestampHeaders(NamedTuple):
    """A value with the time of its last change in milliseconds, and headers; Kafka's ``ValueTimestampHeaders``.

    >>> ValueTimestampHeaders("a", 5, (("trace", b"1"),)).headers
    (('trace', b'1'),)
    """

    value: Any
    timestamp: int
    headers: Headers = ()


@with_java_names
class AggregationWithHeaders(NamedTuple):
    """The value of a session, and headers; Kafka's ``AggregationWithHeaders``.

    >>> AggregationWithHeaders(3).headers
    ()
    """

    aggregation: Any
    headers: Headers = ()


class HeaderEntries:
    """The entries of a store that keeps headers, as bytes and as what a processor sees of them.

    Args:
        spec: The store.
    """

    def __init__(self, spec: StoreSpec) -> None:
        self._values = spec.value_serde
        self._name = spec.name
        self._shows = spec.shows

    def load(self, data: bytes | None) -> ValueTimestampHeaders | None:
        """Return an entry; without its headers, or its timestamp too, if the supplier of the store is an older one."""
        if data is None:
            return None
        headers, at = unpack_headers(data)
        value = self._values.deserialize(data[at + 8 :])
        if self._shows == "headers":
            return ValueTimestampHeaders(value, NUMBER.unpack_from(data, at)[0], headers)
        return ValueTimestampHeaders(
            value, NUMBER.unpack_from(data, at)[0] if self._shows == "timestamps" else _UNKNOWN
        )

    def dump(self, value: Any, timestamp: int | None = None, headers: Headers = ()) -> bytes | None:
        """Return the bytes of an entry; `ValueTimestampHeaders` and `ValueAndTimestamp` may stand for all of it."""
        if isinstance(value, ValueTimestampHeaders):
            value, timestamp, headers = value
        elif isinstance(value, ValueAndTimestamp):
            value, timestamp = value
        data: bytes | None = self._values.serialize(value)
        if data is None:
            return None
        if timestamp is None:
            raise StateError(
                f"a value for store {self._name!r} has no timestamp",
                hint="Give put(key, value, timestamp, headers), or a ValueTimestampHeaders.",
                store=self._name,
            )
        return pack_headers(tuple(headers)) + NUMBER.pack(timestamp) + data

    def load_session(self, data: bytes | None) -> AggregationWithHeaders | None:
        """Return the entry of a session store."""
        if data is None:
            return None
        headers, at = unpack_headers(data)
        return AggregationWithHeaders(self._values.deserialize(data[at:]), headers if self._shows == "headers" else ())

    def dump_session(self, value: Any, headers: Headers = ()) -> bytes | None:
        """Return the bytes of an entry of a session store; an `AggregationWithHeaders` may stand for all of it."""
        if isinstance(value, AggregationWithHeaders):
            value, headers = value
        data = self._values.serialize(value)
        return None if data is None else pack_headers(tuple(headers)) + data

    # An entry as a serde, for views that hold entries among other bytes.

    serialize = dump
    deserialize = load


@with_java_names_of("KeyValueStore")
class HeadersView(TimestampedView):
    """Kafka's ``TimestampedKeyValueStoreWithHeaders``; values are read as `ValueTimestampHeaders`."""

    def __init__(self, spec: StoreSpec, entries: ByteMap) -> None:
        super().__init__(spec, entries)
        self._entries = HeaderEntries(spec)

    def _load(self, data: bytes | None) -> ValueTimestampHeaders | None:  # type: ignore[override]
        return self._entries.load(data)

    def put(self, key: Any, value: Any, timestamp: int | None = None, headers: Headers = ()) -> None:
        """Set value, timestamp and headers; a null value deletes. A `ValueTimestampHeaders` may stand for all."""
        data = None if value is None else self._entries.dump(value, timestamp, headers)
        self._map.put(key_bytes(self.spec, key), data)

    def put_if_absent(  # type: ignore[override]
        self, key: Any, value: Any, timestamp: int | None = None, headers: Headers = ()
    ) -> ValueTimestampHeaders | None:
        """Set the value if there is none; return the present one."""
        old: ValueTimestampHeaders | None = self.get(key)
        if old is None:
            self.put(key, value, timestamp, headers)
        return old

    def put_many(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Set all (key, ValueTimestampHeaders) pairs; Kafka's ``putAll``."""
        for key, value in entries:
            self.put(key, value)

    # Columns; what the DSL writes has no headers

    def get_columns(self, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        return decode_stamped(self._values, rows_without_headers(self._map.get_many(keys_bytes(self.spec, keys))))

    def prefix_columns(self, prefixes: Sequence[bytes]) -> tuple[NDArray[np.int64], pa.Array, Column]:
        numbers, keys, found = self._prefixed(prefixes)
        values, _, _ = unframe(split_headers(found)[0], before=8)
        return numbers, keys, self._values.decode(values)

    def put_columns(self, keys: Column, values: Column, timestamps: NDArray[np.int64]) -> None:
        entries = encode_stamped(self._values, values, timestamps)
        self._map.put_many(
            keys_bytes(self.spec, keys), [None if entry is None else NO_HEADERS + entry for entry in entries]
        )


@with_java_names_of("KeyValueStore")
class HeadersLruView(LruView):
    """A `HeadersView` that drops the least recently used keys."""

    def __init__(self, spec: StoreSpec, entries: ByteMap, meta: MutableMapping[str, int]) -> None:
        super().__init__(spec, entries, meta)
        self._values = HeaderEntries(spec)  # type: ignore[assignment]

    def put(self, key: Any, value: Any, timestamp: int | None = None, headers: Headers = ()) -> None:
        """Set value, timestamp and headers; a null value deletes. A `ValueTimestampHeaders` may stand for all."""
        if value is not None and not isinstance(value, ValueTimestampHeaders | ValueAndTimestamp):
            if timestamp is None:
                self._values.serialize(value)  # raises
            value = ValueTimestampHeaders(value, timestamp or 0, headers)
        super().put(key, value)
