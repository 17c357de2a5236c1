"""Entries of stores that keep headers, in the bytes of Kafka's ``ValueTimestampHeaders`` and its kin.

Before everything else stands the length of the headers, then the headers, each a varint (zigzag) with the bytes behind
it: their number, then of each header its name and value, length -1 for a null value. No headers at all are a length of
0. What follows is the entry of the older format: a timestamp and the value, or the value alone.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.base.java_names import with_java_names, with_java_names_of
from penstock.base.varints import INT_BYTES, read_signed, signed
from penstock.errors import StateError
from penstock.serde.bound_serdes import CurrentHeaders, RecordHeaders, current_of, in_task, uses_headers
from penstock.serde.column import Column, bytes_column, to_bytes_list
from penstock.state.maps import ByteMap
from penstock.state.views.keyvalue import (
    LruView,
    TimestampedView,
    ValueAndTimestamp,
    decode_stamped,
    encode_stamped,
    first_byte,
    frame,
    key_bytes,
    keys_bytes,
    stamps_of,
    unframe,
)
from penstock.state.views.retention import NUMBER
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "NO_HEADERS",
    "AggregationWithHeaders",
    "HeaderEntries",
    "Headers",
    "HeadersLruView",
    "HeadersView",
    "ValueTimestampHeaders",
    "pack_headers",
    "rows_without_headers",
    "split_headers",
    "unpack_headers",
    "with_headers",
]

Headers = tuple[tuple[str, bytes | None], ...]
NO_HEADERS = b"\x00"


def pack_headers(headers: Headers) -> bytes:
    """Return the headers of an entry, behind their length.

    >>> pack_headers((("h", b"1"),)).hex()
    '0a0202680231'
    """
    if not headers:
        return NO_HEADERS
    parts = [signed(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += [signed(len(encoded)), encoded, signed(-1 if value is None else len(value)), value or b""]
    packed = b"".join(parts)
    return signed(len(packed)) + packed


def unpack_headers(entry: bytes) -> tuple[Headers, int]:
    """Return the headers of an entry, and where they end.

    >>> unpack_headers(bytes.fromhex("0a0202680231") + b"value")
    ((('h', b'1'),), 6)
    """
    if entry[:1] == NO_HEADERS:
        return (), 1
    try:
        length, at = read_signed(entry, 0, INT_BYTES)
        end = at + length
        count, at = read_signed(entry, at, INT_BYTES)
        if end > len(entry) or count > length:
            raise ValueError("headers that are cut short")
        headers = []
        for _ in range(count):
            name, at = _taken(entry, at, end)
            value, at = _taken(entry, at, end)
            headers.append(((name or b"").decode(), value))
    except IndexError as error:
        raise ValueError("headers that are cut short") from error
    if at != end:
        raise ValueError(f"headers of {length} bytes that end after {length - end + at}")
    return tuple(headers), end


def _taken(entry: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_signed(entry, at, INT_BYTES)
    if length < 0:
        return None, at
    if at + length > end:
        raise ValueError("headers that are cut short")
    return entry[at : at + length], at + length


def rows_without_headers(entries: Sequence[bytes | None]) -> list[bytes | None]:
    """Return a list of entries as the older format has them."""
    return [
        None
        if entry is None
        else entry[1:]
        if entry[:1] == NO_HEADERS  # without a call: most have none
        else entry[unpack_headers(entry)[1] :]
        for entry in entries
    ]


def split_headers(entries: pa.Array) -> tuple[pa.Array, list[Headers] | None]:
    """Return entries as the older format has them, and the headers of each; None when no entry has any."""
    if not _any(entries):
        return unframe(entries, before=1)[0], None
    bare: list[bytes | None] = []
    headers: list[Headers] = []
    for row in to_bytes_list(entries):
        own, end = ((), 0) if row is None else unpack_headers(row)
        headers.append(own)
        bare.append(None if row is None else row[end:])
    return bytes_column(bare), headers


def with_headers(entries: pa.Array, headers: Sequence[Headers] | None = None) -> pa.Array:
    """Return entries of the older format with headers before them, by default none; nulls stay null."""
    if headers is None or not any(headers):
        return frame(entries, prefix=np.zeros((len(entries), 1), np.uint8))
    rows = zip(to_bytes_list(entries), headers, strict=True)
    return bytes_column([None if row is None else pack_headers(own) + row for row, own in rows])


def _any(entries: pa.Array) -> bool:
    """Return whether an entry has headers."""
    return bool(first_byte(entries).any())


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
        self._of_records = spec.logs_headers
        # Serdes that look at headers get those of the entry, not those of the present record.
        self._current: CurrentHeaders | None = None
        if uses_headers(spec.value_serde):
            self._current = current_of(spec.value_serde) or CurrentHeaders()
            self._values = in_task(spec.value_serde, self._current)

    @property
    def by_headers(self) -> bool:
        """Whether the serde of the values looks at the headers of entries, which are then converted one by one."""
        return self._current is not None

    def _value(self, data: bytes, headers: Headers) -> Any:
        if self._current is None:
            return self._values.deserialize(data)
        with self._current.at(RecordHeaders(headers if self._shows == "headers" else ())):
            return self._values.deserialize(data)

    def _packed(self, value: Any, headers: Iterable[tuple[str, bytes | None]]) -> tuple[bytes, bytes | None]:
        """Return the headers of a value, with those that its serde adds, and its bytes."""
        if self._current is None:
            return pack_headers(tuple(headers)), self._values.serialize(value)
        own = headers if isinstance(headers, RecordHeaders) else RecordHeaders(headers)
        with self._current.at(own):
            data = self._values.serialize(value)
        return pack_headers(tuple(own)), data

    def load(self, data: bytes | None) -> ValueTimestampHeaders | None:
        """Return an entry; without its headers, or its timestamp too, if the supplier of the store is an older one."""
        if data is None:
            return None
        headers, at = unpack_headers(data)
        value = self._value(data[at + 8 :], headers)
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
        packed, data = self._packed(value, headers)
        if data is None:
            return None
        if timestamp is None:
            raise StateError(
                f"a value for store {self._name!r} has no timestamp",
                hint="Give put(key, value, timestamp, headers), or a ValueTimestampHeaders.",
                store=self._name,
            )
        return packed + NUMBER.pack(timestamp) + data

    def load_session(self, data: bytes | None) -> AggregationWithHeaders | None:
        """Return the entry of a session store."""
        if data is None:
            return None
        headers, at = unpack_headers(data)
        return AggregationWithHeaders(self._value(data[at:], headers), headers if self._shows == "headers" else ())

    def dump_session(self, value: Any, headers: Headers = ()) -> bytes | None:
        """Return the bytes of an entry of a session store; an `AggregationWithHeaders` may stand for all of it."""
        if isinstance(value, AggregationWithHeaders):
            value, headers = value
        packed, data = self._packed(value, headers)
        return None if data is None else packed + data

    def load_rows(self, rows: Sequence[bytes | None], stamp_bytes: int) -> Column:
        """Return the values of entries whose serde looks at headers.

        Args:
            rows: The entries.
            stamp_bytes: The size of the timestamp before each value: 8, or 0 of sessions.
        """
        values: list[Any] = []
        for row in rows:
            headers, at = ((), 0) if row is None else unpack_headers(row)
            values.append(None if row is None else self._value(row[at + stamp_bytes :], headers))
        return Column.of_items(values)

    def dump_rows(self, values: Column, timestamps: NDArray[np.int64] | None) -> list[bytes | None]:
        """Return the entries of the DSL's values whose serde looks at headers.

        They have the headers that the serde adds; rows of joined streams those of their record as well.
        """
        rows: list[bytes | None] = []
        stamps = None if timestamps is None else timestamps.tolist()
        for number, value in enumerate(values.items()):
            kept = self._current.headers if self._of_records and self._current is not None else RecordHeaders()
            packed, data = self._packed(value, kept)
            stamp = b"" if stamps is None else NUMBER.pack(stamps[number])
            rows.append(None if data is None else packed + stamp + data)
        return rows

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
        rows = self.stored_rows(keys)
        if self._entries.by_headers:
            return self._entries.load_rows(rows, 8), stamps_of(rows_without_headers(rows))
        return decode_stamped(self._values, rows_without_headers(rows))

    def decode_rows(self, rows: Sequence[bytes | None]) -> Column:
        if self._entries.by_headers:
            return self._entries.load_rows(rows, 8)
        return decode_stamped(self._values, rows_without_headers(rows))[0]

    def prefix_columns(self, prefixes: Sequence[bytes]) -> tuple[NDArray[np.int64], pa.Array, Column]:
        numbers, keys, entries = self._prefixed(prefixes)
        if self._entries.by_headers:
            return numbers, keys, self._entries.load_rows(to_bytes_list(entries), 8)
        values, _, _ = unframe(split_headers(entries)[0], before=8)
        return numbers, keys, self._values.decode(values)

    def put_columns(self, keys: Column, values: Column, timestamps: NDArray[np.int64]) -> None:
        if self._entries.by_headers:
            encoded_keys = keys_bytes(self.spec, keys)
            self._map.put_many(encoded_keys, self._entries.dump_rows(values, timestamps))
            return
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
