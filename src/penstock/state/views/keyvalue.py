"""Key-value views: plain, with timestamps, and of the keys used last, and what the other views share with them.

Shared are the bytes of keys, none of which may be null, fixed-width bytes around the elements of a binary column, added
and removed without a loop per row, and tables of entries for notebooks.

Kafka's ``MemoryNavigableLRUCache`` keeps only the keys used last. Its rows: ``0 + key`` holds a sequence number and the
value, ``1 + sequence number (8 bytes BE)`` the key. The number grows with every use of the key, so the least recently
used row comes first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, MutableMapping, Sequence, Sized
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from penstock.base.java_names import with_java_names, with_java_names_of
from penstock.base.terminal.html import MOST_ROWS, table_html
from penstock.base.terminal.human_numbers import span_of
from penstock.errors import StateError
from penstock.serde.base import FEW, Serde, decode_rows, encode_one, encode_rows
from penstock.serde.column import Column, bytes_column, to_bytes_list
from penstock.serde.plain_json import text_of
from penstock.serde.windowed import Windowed
from penstock.state.maps import ByteMap, Entries
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "IndexedView",
    "KeyValueView",
    "LruView",
    "OrderedView",
    "ShownInNotebooks",
    "TimestampedView",
    "ValueAndTimestamp",
    "arrow_bytes",
    "big_endian",
    "decode_stamped",
    "encode_keys",
    "encode_stamped",
    "entries_html",
    "first_byte",
    "frame",
    "key_bytes",
    "keys_bytes",
    "shown",
    "stamps_of",
    "successor",
    "unframe",
]


# Tables in notebooks


class ShownInNotebooks:
    """Stores that have ``all()``: a notebook shows their first entries."""

    def all(self) -> Iterable[Any]:
        """Return all entries."""
        raise NotImplementedError

    def first(self, most: int) -> Iterator[Any]:
        """Yield some entries, without a look at the others."""
        return islice(self.all(), most)

    def _repr_html_(self) -> str:
        return entries_html(str(getattr(self, "name", "") or type(self).__name__), self.first(MOST_ROWS + 1))


def entries_html(name: str, entries: Iterable[tuple[Any, Any]]) -> str:
    """Return a table of entries; the window of a windowed key has a column of its own."""
    remaining = iter(entries)
    first = next(remaining, None)
    if first is None:
        return table_html(f"{name}: empty", ["key", "value"], [])
    rows = ((key, value) for part in ([first], remaining) for key, value in part)
    if isinstance(first[0], Windowed):
        windows = ((shown(k.key), span_of(k.window.start, k.window.end), shown(v)) for k, v in rows)
        return table_html(name, ["key", "window", "value"], windows)
    return table_html(name, ["key", "value"], ((shown(key), shown(value)) for key, value in rows))


def shown(value: Any) -> Any:
    """Return a key or value for a cell: numbers as they are, windows with their times, bytes as text."""
    if isinstance(value, Windowed):
        return f"{shown(value.key)} {span_of(value.window.start, value.window.end)}"
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a value with its timestamp
        return ", ".join(f"{name}={shown(part)}" for name, part in zip(value._fields, value, strict=True))
    return value


# Frames of values

_STAMP = struct.Struct(">q")
_FEW = 24  # rows; for more, the work by column that has to be begun pays


def big_endian(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return one row of 8 bytes for each number, most significant byte first."""
    return np.ascontiguousarray(numbers, dtype=">i8").view(np.uint8).reshape(-1, 8)


def first_byte(column: pa.Array) -> NDArray[np.uint8]:
    """Return the first byte of each element, 0 for nulls; no element is empty."""
    offsets, data = _parts(column)
    lengths = np.diff(offsets)
    first_bytes = np.zeros(len(column), np.uint8)
    first_bytes[lengths > 0] = data[offsets[:-1][lengths > 0]]
    return first_bytes


def _parts(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return offsets (starting at 0) and bytes of a large_binary array; nulls are made empty."""
    if column.type != pa.large_binary():
        column = column.cast(pa.large_binary())
    _, offset_buffer, data_buffer = column.buffers()
    first, length = column.offset, len(column)
    if length == 0:
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(offset_buffer, np.int64, length + 1, first * 8)
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    data = data[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    if column.null_count:
        lengths = np.diff(offsets)
        null = column.is_null().to_numpy(zero_copy_only=False)
        if lengths[null].any():  # a null may stand over bytes that mean nothing
            data = data[np.repeat(~null, lengths)]
            lengths = np.where(null, 0, lengths)
            offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return offsets, data


def _build(offsets: NDArray[np.int64], data: NDArray[np.uint8], null: NDArray[np.bool_] | None) -> pa.Array:
    validity = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def frame(
    column: pa.Array, prefix: NDArray[np.uint8] | None = None, suffix: NDArray[np.uint8] | None = None
) -> pa.Array:
    """Return each element with its row of ``prefix`` before and of ``suffix`` behind it; nulls stay null."""
    length = len(column)
    if length <= _FEW:
        return _frame_few(column, prefix, suffix)
    null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    offsets, data = _parts(column)
    before = 0 if prefix is None else prefix.shape[1]
    after = 0 if suffix is None else suffix.shape[1]
    extra = np.full(length, before + after, np.int64)
    if null is not None:
        extra[null] = 0
    lengths = np.diff(offsets) + extra
    if length and null is None and (lengths == lengths[0]).all():
        parts = [p for p in (prefix, data.reshape(length, -1), suffix) if p is not None and p.shape[1]]
        whole = np.concatenate(parts, axis=1) if parts else np.zeros((length, 0), np.uint8)
        return _build(np.arange(length + 1, dtype=np.int64) * whole.shape[1], whole.reshape(-1), None)
    framed = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    out = np.empty(int(framed[-1]), np.uint8)
    own = np.ones(len(out), np.bool_)
    rows = slice(None) if null is None else ~null
    for part, at in ((prefix, framed[:-1]), (suffix, framed[1:] - after)):
        if part is not None:
            places = at[rows, None] + np.arange(part.shape[1])
            out[places] = part[rows]
            own[places] = False
    out[own] = data
    return _build(framed, out, null)


def unframe(column: pa.Array, before: int = 0, after: int = 0) -> tuple[pa.Array, NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the elements without their first ``before`` and last ``after`` bytes, and those bytes (0xff for nulls).

    Raises:
        ValueError: An element has fewer bytes.
    """
    length = len(column)
    if length <= _FEW:
        return _unframe_few(column, before, after)
    null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    offsets, data = _parts(column)
    lengths = np.diff(offsets)
    if length and (lengths if null is None else lengths[~null]).min(initial=before + after) < before + after:
        raise ValueError(f"an element has fewer than {before + after} bytes")
    if length and null is None and (lengths == lengths[0]).all():
        whole = data.reshape(length, -1)
        width = whole.shape[1] - before - after
        core = _build(
            np.arange(length + 1, dtype=np.int64) * width, whole[:, before : before + width].reshape(-1), None
        )
        return core, np.ascontiguousarray(whole[:, :before]), np.ascontiguousarray(whole[:, before + width :])
    own = np.ones(len(data), np.bool_)
    rows = slice(None) if null is None else ~null
    cut = []
    for width, at in ((before, offsets[:-1]), (after, offsets[1:] - after)):
        taken = np.full((length, width), 0xFF, np.uint8)
        places = at[rows, None] + np.arange(width)
        taken[rows] = data[places]
        own[places] = False
        cut.append(taken)
    extra = np.full(length, before + after, np.int64)
    if null is not None:
        extra[null] = 0
    core_offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths - extra)])
    return _build(core_offsets, data[own], null), cut[0], cut[1]


def arrow_bytes(rows: Sequence[bytes | None]) -> int:
    """Return the size of these rows as a column."""
    data = b"".join(row for row in rows if row is not None)
    validity = (len(rows) + 7) // 8 if None in rows else 0
    return len(data) + 8 * (len(rows) + 1) + validity


def encode_stamped(serde: Serde[Any], values: Column, stamps: NDArray[np.int64]) -> list[bytes | None]:
    """Return the bytes of values with their timestamps in front; null values stay null."""
    if len(values) > FEW:
        return to_bytes_list(frame(serde.encode(values), prefix=big_endian(stamps)))
    pairs = zip(encode_rows(serde, values), stamps.tolist(), strict=True)
    return [None if row is None else _STAMP.pack(stamp) + row for row, stamp in pairs]


def decode_stamped(serde: Serde[Any], rows: Sequence[bytes | None]) -> tuple[Column, NDArray[np.int64]]:
    """Return the values of rows with timestamps in front, and these; null and -1 for nulls."""
    if len(rows) > FEW:
        plain, stamps, _ = unframe(bytes_column(rows), before=8)
        return serde.decode(plain), stamps.view(">i8").reshape(-1).astype(np.int64)
    return decode_rows(serde, [None if row is None else row[8:] for row in rows]), stamps_of(rows)


def stamps_of(rows: Sequence[bytes | None]) -> NDArray[np.int64]:
    """Return the timestamps in front of rows, -1 for nulls."""
    return np.array([-1 if row is None else _STAMP.unpack_from(row)[0] for row in rows], np.int64)


def _frame_few(column: pa.Array, prefix: NDArray[np.uint8] | None, suffix: NDArray[np.uint8] | None) -> pa.Array:
    none = [b""] * len(column)
    before = none if prefix is None else [row.tobytes() for row in prefix]
    after = none if suffix is None else [row.tobytes() for row in suffix]
    rows = zip(before, column.to_pylist(), after, strict=True)
    return bytes_column([None if own is None else first + own + last for first, own, last in rows])


def _unframe_few(column: pa.Array, before: int, after: int) -> tuple[pa.Array, NDArray[np.uint8], NDArray[np.uint8]]:
    rows = column.to_pylist()
    if any(row is not None and len(row) < before + after for row in rows):
        raise ValueError(f"an element has fewer than {before + after} bytes")
    core = [None if row is None else row[before : len(row) - after] for row in rows]
    first, last = b"\xff" * before, b"\xff" * after
    heads = b"".join(first if row is None else row[:before] for row in rows) if before else b""
    tails = b"".join(last if row is None else row[len(row) - after :] for row in rows) if after else b""
    return bytes_column(core), _matrix(heads, len(rows), before), _matrix(tails, len(rows), after)


def _matrix(data: bytes, length: int, width: int) -> NDArray[np.uint8]:
    return np.frombuffer(bytearray(data), np.uint8).reshape(length, width)


# Keys


def key_bytes(spec: StoreSpec, key: Any) -> bytes:
    """Return the key's bytes; a null key is an error, as in Kafka."""
    data = encode_one(spec.key_serde, key) if key is not None else None
    if data is None:
        raise _null_key(spec, "the")
    return data


def encode_keys(spec: StoreSpec, keys: Column) -> pa.Array:
    """Return the bytes of many keys as a column.

    Raises:
        StateError: One of them is null.
    """
    encoded: pa.Array = spec.key_serde.encode(keys)
    if encoded.null_count:
        raise _null_key(spec, "a")
    return encoded


def keys_bytes(spec: StoreSpec, keys: Column) -> list[bytes]:
    """Return the bytes of many keys, each as Python bytes; errors as of `encode_keys`."""
    if len(keys) > FEW:
        return to_bytes_list(encode_keys(spec, keys))  # type: ignore[return-value] # no key is null
    rows = encode_rows(spec.key_serde, keys)
    if None in rows:
        raise _null_key(spec, "a")
    return rows  # type: ignore[return-value] # no key is null


def _null_key(spec: StoreSpec, article: str) -> StateError:
    return StateError(
        f"{article} key given to store {spec.name!r} is null",
        hint="State stores have no null keys; filter them out before.",
        store=spec.name,
    )


# Views


@with_java_names
class ValueAndTimestamp(NamedTuple):
    """A value and the event time of its last change in milliseconds; Kafka's ``ValueAndTimestamp``."""

    value: Any
    timestamp: int


def successor(prefix: bytes) -> bytes | None:
    """Return the smallest bytes above all that start with ``prefix``; None when there are none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


class OrderedView(ShownInNotebooks):
    """The common base of key-value views: everything but the bytes of a value."""

    def __init__(self, spec: StoreSpec, entries: ByteMap) -> None:
        self.spec = spec
        self.name = spec.name
        self._map = entries
        self._keys: Serde[Any] = spec.key_serde
        self._values: Serde[Any] = spec.value_serde

    def _load(self, data: bytes | None) -> Any:
        return self._values.deserialize(data)

    def get(self, key: Any) -> Any:
        """Return the value under the key, or None."""
        return self._load(self._map.get(key_bytes(self.spec, key)))

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        """Return the values under the keys, None where there is none."""
        values = self._map.get_many([key_bytes(self.spec, key) for key in keys])
        return [self._load(data) for data in values]

    def delete(self, key: Any) -> Any:
        """Remove the key; return its value."""
        data = key_bytes(self.spec, key)
        old = self._map.get(data)
        self._map.put(data, None)  # even of a key that is not there: its changelog has the deletion, as Kafka's
        return self._load(old)

    def _range(self, low: Any, high: Any, *, reverse: bool) -> Iterator[tuple[Any, Any]]:
        start = None if low is None else key_bytes(self.spec, low)
        end = None if high is None else key_bytes(self.spec, high) + b"\x00"  # the upper bound belongs to the range
        if start is not None and end is not None and start >= end:
            return iter(())
        return self._load_entries(self._map.scan(start, end, reverse=reverse))

    def _load_entries(self, entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        for key, value in entries:
            yield self._keys.deserialize(key), self._load(value)

    def range(self, low: Any = None, high: Any = None) -> Iterator[tuple[Any, Any]]:
        """Return entries from ``low`` to ``high``, both included, in the order of the keys' bytes; None is open."""
        return self._range(low, high, reverse=False)

    def reverse_range(self, low: Any = None, high: Any = None) -> Iterator[tuple[Any, Any]]:
        """Return the entries of `range`, the last first."""
        return self._range(low, high, reverse=True)

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Return all entries in the order of the keys' bytes."""
        return self._range(None, None, reverse=False)

    def reverse_all(self) -> Iterator[tuple[Any, Any]]:
        """Return all entries, the last first."""
        return self._range(None, None, reverse=True)

    def prefix_scan(self, prefix: Any, serde: Serde[Any] | None = None) -> Iterator[tuple[Any, Any]]:
        """Return entries whose key bytes start with those of ``prefix`` (by ``serde``, else by the key serde)."""
        start = (serde or self._keys).serialize(prefix) or b""
        return self._load_entries(self._map.scan(start, successor(start)))

    def read_only(self, isolation_level: str) -> Self:  # noqa: ARG002 - Kafka's method has it
        """Return the store: a processor sees its own writes at either isolation level (``readOnly``)."""
        return self

    def approximate_num_entries(self) -> int:
        """Return the number of entries; stores on disk may count keys changed in this batch twice."""
        if isinstance(self._map, Sized):
            return len(self._map)
        return sum(1 for _ in self._map.scan())


@with_java_names_of("KeyValueStore")
class KeyValueView(OrderedView):
    """Kafka's ``KeyValueStore``."""

    def put(self, key: Any, value: Any) -> None:
        """Set the value; None deletes."""
        self._map.put(key_bytes(self.spec, key), encode_one(self._values, value))

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set the value if there is none; return the present one."""
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def put_many(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Set all (key, value) pairs; Kafka's ``putAll``."""
        pairs = [(key_bytes(self.spec, key), encode_one(self._values, value)) for key, value in entries]
        self._map.put_many([key for key, _ in pairs], [value for _, value in pairs])

    def get_columns(self, keys: Column) -> Column:
        """Return the values under the keys, null where there is none."""
        return self._values.decode(bytes_column(self._map.get_many(keys_bytes(self.spec, keys))))

    def put_columns(self, keys: Column, values: Column) -> None:
        """Set the values; null deletes, the last of equal keys wins."""
        self._map.put_many(keys_bytes(self.spec, keys), to_bytes_list(self._values.encode(values)))


@with_java_names_of("KeyValueStore")
class TimestampedView(OrderedView):
    """Kafka's ``TimestampedKeyValueStore``: the store of a table of the DSL.

    A value's bytes are its timestamp, 8 bytes big-endian, and then the bytes of the value serde.
    """

    def _load(self, data: bytes | None) -> ValueAndTimestamp | None:
        if data is None:
            return None
        return ValueAndTimestamp(self._values.deserialize(data[8:]), int.from_bytes(data[:8], "big", signed=True))

    def _dump(self, value: Any, timestamp: int) -> bytes | None:
        data = encode_one(self._values, value)
        return None if data is None else timestamp.to_bytes(8, "big", signed=True) + data

    def put(self, key: Any, value: Any, timestamp: int | None = None) -> None:
        """Set value and timestamp; a null value deletes. A `ValueAndTimestamp` may stand for both."""
        if isinstance(value, ValueAndTimestamp):
            value, timestamp = value
        if timestamp is None and value is not None:
            raise StateError(
                f"a value for store {self.name!r} has no timestamp",
                hint="Give put(key, value, timestamp), or a ValueAndTimestamp.",
                store=self.name,
            )
        self._map.put(key_bytes(self.spec, key), self._dump(value, timestamp or 0))

    def put_if_absent(self, key: Any, value: Any, timestamp: int | None = None) -> ValueAndTimestamp | None:
        """Set the value if there is none; return the present one."""
        old: ValueAndTimestamp | None = self.get(key)
        if old is None:
            self.put(key, value, timestamp)
        return old

    def put_many(self, entries: Iterable[tuple[Any, ValueAndTimestamp | None]]) -> None:
        """Set all (key, ValueAndTimestamp) pairs; Kafka's ``putAll``."""
        for key, value in entries:
            self.put(key, value)

    def get_columns(self, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return the values under the keys, null where there is none, and their timestamps, -1 where there is none."""
        return decode_stamped(self._values, self.stored_rows(keys))

    def stored_rows(self, keys: Column) -> list[bytes | None]:
        """Return the entries under the keys as they are stored, None where there is none."""
        return self._map.get_many(keys_bytes(self.spec, keys))

    def decode_rows(self, rows: Sequence[bytes | None]) -> Column:
        """Return the values of entries that `stored_rows` has returned."""
        return decode_stamped(self._values, rows)[0]

    # One entry at a time, as the columns are read and written

    def entry_of(self, key: Any) -> bytes:
        """Return the place of a key's entry."""
        return key_bytes(self.spec, key)

    def read_entry(self, entry: bytes) -> tuple[Any, int]:
        """Return value and timestamp of an entry; None and -1 if there is none."""
        data = self._map.get(entry)
        if data is None:
            return None, -1
        return self._values.deserialize(data[8:]), int.from_bytes(data[:8], "big", signed=True)

    def write_entry(self, entry: bytes, value: Any, timestamp: int) -> None:
        """Set value and timestamp of an entry; a null value deletes."""
        self._map.put(entry, self._dump(value, timestamp))

    def prefix_columns(self, prefixes: Sequence[bytes]) -> tuple[NDArray[np.int64], pa.Array, Column]:
        """Return all entries whose key bytes start with one of the prefixes, none of which is of 0xff bytes alone.

        Returns:
            The prefix of each entry (ascending; in the order of the keys' bytes for one prefix), its key's bytes, and
            its value.
        """
        numbers, keys, entries = self._prefixed(prefixes)
        values, _, _ = unframe(entries, before=8)
        return numbers, keys, self._values.decode(values)

    def _prefixed(self, prefixes: Sequence[bytes]) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
        """Return what `prefix_columns` does, with entries for values."""
        numbers: list[int] = []
        keys: list[bytes] = []
        values: list[bytes] = []
        ranges = [(prefix, successor(prefix) or prefix) for prefix in prefixes]
        for number, entries in enumerate(self._map.scan_many(ranges)):
            numbers += [number] * len(entries)
            keys += [key for key, _ in entries]
            values += [value for _, value in entries]
        return np.array(numbers, np.int64), bytes_column(keys), bytes_column(values)

    def put_columns(self, keys: Column, values: Column, timestamps: NDArray[np.int64]) -> None:
        """Set the values with their timestamps; a null value deletes, the last of equal keys wins."""
        self._map.put_many(keys_bytes(self.spec, keys), encode_stamped(self._values, values, timestamps))


class PrefixedMap:
    """`penstock.state.maps.ByteMap` over the rows behind a prefix of one byte."""

    def __init__(self, entries: ByteMap, prefix: bytes) -> None:
        self._map = entries
        self._prefix = prefix
        self._end = bytes([prefix[0] + 1])

    def get(self, key: bytes) -> bytes | None:
        return self._map.get(self._prefix + key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._map.get_many([self._prefix + key for key in keys])

    def put(self, key: bytes, value: bytes | None) -> None:
        self._map.put(self._prefix + key, value)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self._map.put_many([self._prefix + key for key in keys], values)

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return entries with start <= key < end (None: open) in byte order."""
        last = self._end if end is None else self._prefix + end
        entries = self._map.scan(self._prefix + (start or b""), last, reverse=reverse)
        return ((key[1:], value) for key, value in entries)

    def scan_many(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        entries_of_ranges = self._map.scan_many([(self._prefix + start, self._prefix + end) for start, end in ranges])
        return [[(key[1:], value) for key, value in entries] for entries in entries_of_ranges]

    def read(self, start: bytes, end: bytes, limit: int) -> Entries | None:
        entries = self._map.read(self._prefix + start, self._prefix + end, limit)
        return None if entries is None else ([key[1:] for key in entries[0]], entries[1])


class IndexedView(OrderedView):
    """The base of key-value views with an index of their entries.

    Rows of the map: ``0 + key`` holds 8 bytes for the index and the value, the rows of the index begin with ``1``.

    Args:
        spec: The store.
        entries: Its rows.
        meta: The task's small numbers.
    """

    def __init__(self, spec: StoreSpec, entries: ByteMap, meta: MutableMapping[str, int]) -> None:
        super().__init__(spec, PrefixedMap(entries, b"\x00"))
        self._index = PrefixedMap(entries, b"\x01")
        self._meta = meta

    def _load(self, data: bytes | None) -> Any:
        return None if data is None else self._values.deserialize(data[8:])

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        """Return the values under the keys, None where there is none."""
        return [self.get(key) for key in keys]

    def put(self, key: Any, value: Any) -> None:
        """Set the value; None deletes."""
        raise NotImplementedError

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set the value if there is none; return the present one."""
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def put_many(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Put all (key, value) pairs; Kafka's ``putAll``."""
        for key, value in entries:
            self.put(key, value)


@with_java_names_of("KeyValueStore")
class LruView(IndexedView):
    """A key-value store of at most ``spec.max_entries`` keys; a put or get makes a key the last to go.

    ``get_many`` counts as a use of each key; ranges and scans do not count.
    """

    def __init__(self, spec: StoreSpec, entries: ByteMap, meta: MutableMapping[str, int]) -> None:
        super().__init__(spec, entries, meta)
        self._next_name = f"{spec.name}/next-use"
        self._size_name = f"{spec.name}/size"

    def get(self, key: Any) -> Any:
        """Return the value under the key, or None; counts as a use."""
        data = key_bytes(self.spec, key)
        entry = self._map.get(data)
        if entry is not None:
            self._use(data, entry[8:], entry)
        return self._load(entry)

    def put(self, key: Any, value: Any) -> None:
        """Set the value; None deletes. With one key too many, the least recently used one is removed."""
        dumped = self._values.serialize(value)
        if dumped is None:
            self.delete(key)
            return
        data = key_bytes(self.spec, key)
        entry = self._map.get(data)
        self._use(data, dumped, entry)
        if entry is None:
            size = self.approximate_num_entries() + 1
            if size > self.spec.max_entries:
                use, oldest = next(self._index.scan())
                self._index.put(use, None)
                self._map.put(oldest, None)
                size -= 1
            self._meta[self._size_name] = size

    def delete(self, key: Any) -> Any:
        """Remove the key; return its value."""
        data = key_bytes(self.spec, key)
        entry = self._map.get(data)
        self._map.put(data, None)  # even of a key that is not there: its changelog has the deletion, as Kafka's
        if entry is not None:
            self._index.put(entry[:8], None)
            self._meta[self._size_name] = self.approximate_num_entries() - 1
        return self._load(entry)

    def approximate_num_entries(self) -> int:
        """Return the number of keys."""
        return self._meta.get(self._size_name, 0)

    def _use(self, key: bytes, value: bytes, before: bytes | None) -> None:
        number = self._meta.get(self._next_name, 0)
        self._meta[self._next_name] = number + 1
        use = number.to_bytes(8, "big")
        if before is not None:
            self._index.put(before[:8], None)
        self._map.put(key, use + value)
        self._index.put(use, key)
