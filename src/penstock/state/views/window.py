"""Window stores: values by key and window start, forgotten when the store's stream time has moved on by the retention.

Layout of a row's key: ``bucket (8 bytes BE) + key + start (8 bytes BE) [+ sequence number (4 bytes BE)]``, where the
bucket is the start rounded down to a multiple of the window size (of several, when the retention holds very many
windows). So the windows that a batch touches lie side by side, expiry is one range from the front of the store, and
the windows of one key are one short range per bucket. The sequence number is there only with ``retain_duplicates``.

For the rules of retention see `retention`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.base.java_names import with_java_names_of
from penstock.errors import StateError
from penstock.serde.base import FEW, Serde, decode_rows, encode_one, encode_rows
from penstock.serde.bound_serdes import RecordHeaders, current_of
from penstock.serde.column import Column, bytes_column, to_bytes_list
from penstock.serde.windowed import Window, Windowed, WindowedColumn
from penstock.state.maps import ByteMap, Entries
from penstock.state.views.header_entries import NO_HEADERS, HeaderEntries, Headers, rows_without_headers
from penstock.state.views.keyvalue import (
    ShownInNotebooks,
    ValueAndTimestamp,
    big_endian,
    decode_stamped,
    encode_keys,
    encode_stamped,
    frame,
    key_bytes,
    keys_bytes,
    stamps_of,
    unframe,
)
from penstock.state.views.retention import NUMBER, Retention
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["WindowRows", "WindowView", "read_buckets"]

_FEW_SEEKS = 64  # up to so many ranges are read one by one without a thought
_ROWS_PER_SEEK = 8  # reading on costs as much for so many rows as finding another range


@dataclass(frozen=True)
class WindowRows:
    """Rows of a window store, in the order of key, start and arrival within each bucket."""

    keys: pa.Array
    starts: NDArray[np.int64]
    values: list[bytes]
    decoder: Callable[[list[bytes]], Column]

    def __len__(self) -> int:
        return len(self.starts)

    def decode(self, index: NDArray[np.int64]) -> Column:
        """Return the values of the rows at these positions."""
        return self.decoder([self.values[i] for i in index.tolist()])


def read_buckets(
    entries: ByteMap, buckets: Sequence[int], bucket_ms: int, keys: Sequence[bytes], sequence_bytes: int
) -> tuple[pa.Array, NDArray[np.int64], list[bytes]]:
    """Return all rows of these keys in these buckets, perhaps with rows of other keys: (keys, starts, values).

    Reads the buckets from end to end, unless they hold many more rows than there are keys to look for.
    """
    seeks = len(keys) * len(buckets)
    rows_and_values = None
    if seeks > _FEW_SEEKS:
        front, end = NUMBER.pack(buckets[0]), NUMBER.pack(buckets[-1] + bucket_ms)
        rows_and_values = entries.read(front, end, seeks * _ROWS_PER_SEEK)
    if rows_and_values is None:
        rows_and_values = _sought(entries, buckets, keys, 8 + sequence_bytes)
    rows, values = rows_and_values
    if not rows:
        return bytes_column([]), np.empty(0, np.int64), []
    names, _, tails = unframe(bytes_column(rows), before=8, after=8 + sequence_bytes)
    starts = np.ascontiguousarray(tails[:, :8]).view(">i8").reshape(-1).astype(np.int64)
    return names, starts, values


def _sought(entries: ByteMap, buckets: Sequence[int], keys: Sequence[bytes], tail: int) -> Entries:
    """Return the rows of each key in each bucket, one range after the other."""
    fronts = [NUMBER.pack(bucket) + key for bucket in buckets for key in keys]
    # A start is not negative, so its first byte is below 0x80. Longer keys may begin as this one does.
    rows_of_fronts = entries.scan_many((front, front + b"\x80") for front in fronts)
    rows = [
        row
        for front, some in zip(fronts, rows_of_fronts, strict=True)
        for row in some
        if len(row[0]) == len(front) + tail
    ]
    return [key for key, _ in rows], [value for _, value in rows]


_SEQUENCE = struct.Struct(">i")
_MASK = 0x7FFFFFFF


@with_java_names_of("WindowStore")
class WindowView(ShownInNotebooks):
    """Kafka's ``WindowStore`` and ``TimestampedWindowStore`` (when ``spec.timestamped``).

    With timestamps, values are read as `ValueAndTimestamp`; of stores that keep headers, as `ValueTimestampHeaders`.
    """

    def __init__(
        self, spec: StoreSpec, entries: ByteMap, meta: MutableMapping[str, int], cache_bytes: int | None = None
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self._map = entries
        self._meta = meta
        self._keys: Serde[Any] = spec.key_serde
        self._values: Serde[Any] = spec.value_serde
        self._size = spec.window_size_ms
        self._time = Retention(spec, entries, meta, spec.window_size_ms, cache_bytes)
        # Of null values put into a store with duplicates, Kafka's stores on disk take no notice; those in memory note
        # the time, and count them when they are late.
        self._ignores_nulls = spec.retain_duplicates and spec.persistent
        self._sequence_name = f"{spec.name}/sequence-number"
        self._newest_name = f"{spec.name}/newest-number"
        self._entries = HeaderEntries(spec) if spec.keeps_headers else None
        # Rows of joined streams that keep no headers are read as if they had none, whatever the present record has.
        self._bare = current_of(spec.value_serde) if spec.logs_headers and self._entries is None else None

    @property
    def observed_stream_time(self) -> int:
        """The largest window start ever put, -1 before the first."""
        return self._time.observed

    def take_dropped(self) -> int:
        """Return how many puts have been dropped as expired since the last call (part of ``dropped-records-total``)."""
        return self._time.take_dropped()

    # One row at a time

    def fetch(self, key: Any, start: int) -> Any:
        """Return the value of the window of this key that starts then; None if there is none or it has expired."""
        data = key_bytes(self.spec, key)
        if start < self._time.first_visible:
            return None
        if self.spec.retain_duplicates:  # as in Kafka, only the value that was put last can be found so
            newest = self._meta.get(self._newest_name, 0)
            return self._load(self._map.get(self._row(data, start) + _SEQUENCE.pack(newest)))
        return self._load(self._map.get(self._row(data, start)))

    def put(self, key: Any, value: Any, start: int, timestamp: int | None = None, headers: Headers = ()) -> None:
        """Set the value of a window; None deletes. A `ValueAndTimestamp` may stand for value and timestamp.

        Stores that keep headers take them too, as a `ValueTimestampHeaders`.
        """
        data = key_bytes(self.spec, key)
        dumped = self._dump(value, timestamp, headers)
        row = self._row(data, start)
        if self.spec.retain_duplicates:
            number = int(self._take_sequence(1)[0])
            row += _SEQUENCE.pack(number)
        if dumped is None and self._ignores_nulls:
            self._map.put(row, None)
            return
        observed = max(self.observed_stream_time, start)
        self._time.note_late(start, len(data) + len(dumped or b""))
        self._time.advance(observed)
        if not self._time.is_live(start, observed):
            self._time.drop(1)
            return
        if self.spec.retain_duplicates and dumped is not None:
            self._meta[self._newest_name] = number
        self._map.put(row, dumped)  # of duplicates a null deletes none, but has a record of its own in the changelog

    # Ranges; bounds are inclusive

    def fetch_range(
        self, key: Any, time_from: int, time_to: int, *, reverse: bool = False
    ) -> Iterator[tuple[int, Any]]:
        """Yield (start, value) of the key's windows that start from ``time_from`` to ``time_to``, oldest first."""
        data = key_bytes(self.spec, key)
        low, high = self._visible(time_from, time_to)
        if low > high:
            return
        buckets = self._time.buckets(low, high, reverse=reverse)
        scanned = self._scan_buckets(data, low, high, buckets, reverse=reverse)
        for row, value in scanned:
            yield NUMBER.unpack_from(row, 8 + len(data))[0], self._load(value)

    def _scan_buckets(
        self, data: bytes, low: int, high: int, buckets: Any, *, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        width = 16 + len(data) + (4 if self.spec.retain_duplicates else 0)
        for bucket in buckets:
            prefix = NUMBER.pack(bucket) + data
            first = prefix + NUMBER.pack(max(low, bucket))
            last = prefix + NUMBER.pack(min(high, bucket + self._time.bucket_ms - 1)) + b"\xff" * 5
            for row, value in self._map.scan(first, last, reverse=reverse):
                if len(row) == width and row[8 : 8 + len(data)] == data:  # not a longer key with the same beginning
                    yield row, value

    def fetch_all(self, time_from: int, time_to: int, *, reverse: bool = False) -> Iterator[tuple[Windowed[Any], Any]]:
        """Yield all windows that start from ``time_from`` to ``time_to``.

        In Kafka's order: by segment, key and start in persistent stores, by start and key in memory.
        """
        return self._fetch_keys(None, None, *self._visible(time_from, time_to), reverse=reverse)

    def fetch_closed(self, first_start: int, last_start: int) -> Iterator[tuple[Windowed[Any], Any]]:
        """Yield all windows that start in the range, those that are held among them, with values and timestamps."""
        low = max(first_start, self._time.first_held(self._time.first_visible))
        windows = self._fetch_keys(None, None, low, min(last_start, self._time.observed), reverse=False)
        if not self.spec.keeps_headers:
            return windows
        return ((key, ValueAndTimestamp(entry.value, entry.timestamp)) for key, entry in windows)

    def fetch_key_range(
        self, low: Any, high: Any, time_from: int, time_to: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        """Yield the windows of `fetch_all` of the keys from ``low`` to ``high``, both included; None is open."""
        first = None if low is None else key_bytes(self.spec, low)
        last = None if high is None else key_bytes(self.spec, high)
        return self._fetch_keys(first, last, *self._visible(time_from, time_to), reverse=reverse)

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Windowed[Any], Any]]:
        """Return all windows that have not expired, in the order of `fetch_all`."""
        return self._fetch_keys(None, None, *self._visible(0, self.observed_stream_time), reverse=reverse)

    def first(self, most: int) -> Iterator[tuple[Windowed[Any], Any]]:
        """Yield some windows that have not expired, the oldest first, without a look at the others."""
        low, high = self._visible(0, self.observed_stream_time)
        tail = 4 if self.spec.retain_duplicates else 0
        for row, value in self._map.scan(NUMBER.pack(self._time.bucket(max(low, 0)))):
            start = NUMBER.unpack_from(row, len(row) - 8 - tail)[0]
            if most > 0 and low <= start <= high:
                most -= 1
                key = self._keys.deserialize(row[8 : len(row) - 8 - tail])
                yield Windowed(key, Window(start, start + self._size)), self._load(value)
            if most <= 0:
                return

    def _fetch_keys(
        self, first: bytes | None, last: bytes | None, low: int, high: int, *, reverse: bool
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        if low > high:
            return
        tail = 4 if self.spec.retain_duplicates else 0
        rows = []
        end = NUMBER.pack(self._time.bucket(high) + self._time.bucket_ms)
        for row, value in self._map.scan(NUMBER.pack(self._time.bucket(low)), end):
            key = row[8 : len(row) - 8 - tail]
            start = NUMBER.unpack_from(row, len(row) - 8 - tail)[0]
            if low <= start <= high and (first is None or key >= first) and (last is None or key <= last):
                rows.append((*self._time.order(start, key, row), key, start, value))
        rows.sort(reverse=reverse)
        for _, _, _, key, start, value in rows:
            yield Windowed(self._keys.deserialize(key), Window(start, start + self._size)), self._load(value)

    # Columns

    def fetch_rows(self, keys: Sequence[bytes], time_from: int, time_to: int) -> WindowRows:
        """Return at least all rows of these keys (as bytes) that start in the range and have not expired."""
        low, high = self._visible(time_from, time_to)
        held_buckets = self._time.buckets(low, high) if low <= high else range(0)
        buckets = held_buckets if isinstance(held_buckets, range) else list(held_buckets)
        sequence_bytes = 4 if self.spec.retain_duplicates else 0
        row_keys, starts, values = read_buckets(
            self._map, buckets, self._time.bucket_ms, keys if buckets else (), sequence_bytes
        )
        return WindowRows(row_keys, starts, values, self._decode_values)

    def get_columns(self, keys: Column, starts: NDArray[np.int64] | None = None) -> tuple[Column, NDArray[np.int64]]:
        """Return the values of the windows, null where there is none, and their timestamps (-1 where there is none).

        ``keys`` may be a `WindowedColumn`; ``starts`` are then its own. Stores without timestamps return -1 everywhere.
        """
        keys, starts = self._split(keys, starts)
        if self.spec.retain_duplicates:
            raise StateError(
                f"store {self.name!r} keeps duplicates, so a key and a start do not name one value",
                hint="Read it with fetch_range.",
                store=self.name,
            )
        stored_values = self._map.get_many(self._rows(keys, starts))
        expired = starts < self._time.first_visible
        if expired.any():
            stored_values = [None if gone else data for data, gone in zip(stored_values, expired.tolist(), strict=True)]
        return self._decode(stored_values)

    def stored_rows(self, keys: Column) -> list[bytes | None]:
        """Return the rows of windows as they are stored, None where there is none."""
        return self._map.get_many(self._rows(*self._split(keys, None)))

    def decode_rows(self, rows: Sequence[bytes | None]) -> Column:
        """Return the values of rows that `stored_rows` has returned."""
        return self._decode(rows)[0]

    def observe(self, start: int) -> None:
        """Move the store's stream time on, as a put of that start does."""
        self._time.advance(max(self._time.observed, start))

    def hold(self, start: int | None) -> None:
        """Keep windows that start then or later for `fetch_closed`; None holds nothing."""
        self._time.release() if start is None else self._time.hold(start)

    def visible_from(self, observed: Any) -> Any:
        """Return the first start that is still returned when the stream time is ``observed``; one, or by the column."""
        return self._time.first_visible_at(observed)

    def is_live(self, start: Any, observed: Any) -> Any:
        """Return whether a window is taken in when the stream time is ``observed``; one, or by the column."""
        return self._time.is_live(start, observed)

    # One window at a time, as the columns are read and written

    def entry_of(self, key: Any, start: int) -> bytes | None:
        """Return the place of a window's entry; None if its time is over, or almost."""
        observed = self._time.observed
        if start < self._time.first_visible_at(observed) or not self._time.is_live(start, max(observed, start)):
            return None
        return self._row(key_bytes(self.spec, key), start)

    def read_entry(self, entry: bytes) -> tuple[Any, int]:
        """Return value and timestamp of an entry of a store with timestamps; None and -1 if there is none."""
        data = self._map.get(entry)
        if data is None:
            return None, -1
        return self._values.deserialize(data[8:]), NUMBER.unpack_from(data)[0]

    def write_entry(self, entry: bytes, value: Any, timestamp: int) -> None:
        """Set value and timestamp of an entry; a null value deletes."""
        data = encode_one(self._values, value)
        dumped = None if data is None else NUMBER.pack(timestamp) + data
        start = NUMBER.unpack_from(entry, len(entry) - 8)[0]
        self._time.note_late_rows([start], [dumped])
        self._time.advance(max(self._time.observed, start))
        self._map.put(entry, dumped)

    # One row of a joined stream, whose store keeps duplicates, and no headers

    def append(self, key: Any, value: Any, start: int) -> None:
        """Put a row, whose timestamp is its start, as `put_columns` does."""
        dumped, number = self._dump(value, start, ()), (self._meta.get(self._sequence_name, 0) + 1) & _MASK
        row = self._row(key_bytes(self.spec, key), start) + _SEQUENCE.pack(number)
        self._meta[self._sequence_name] = number
        if dumped is None and self._ignores_nulls:
            self._map.put(row, None)
            return
        observed = max(self._time.observed, start)
        is_live = self._time.is_live(start, observed)
        if is_live:
            self._time.note_late_rows([start], [dumped])
        else:
            self._time.drop(1)
        self._time.advance(observed)
        if is_live:
            self._map.put(row, dumped)

    def matches(self, key: bytes, time_from: int, time_to: int) -> list[tuple[int, Any]]:
        """Return (start, value) of the rows of a key, by its bytes, that start in the range, in order of arrival."""
        low, high = self._visible(time_from, time_to)
        if low > high:
            return []
        scanned = self._scan_buckets(key, low, high, self._time.buckets(low, high), reverse=False)
        at, unpack, load = 8 + len(key), NUMBER.unpack_from, self._values.deserialize
        width = 8 if self.spec.timestamped else 0
        return [(unpack(row, at)[0], load(value[width:])) for row, value in scanned]

    def fetch_many(
        self, keys: Column, times_from: NDArray[np.int64], times_to: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Column, NDArray[np.int64]]:
        """Fetch ranges for many different keys: (position of the key, start, value, timestamp), by key and start."""
        encoded = to_bytes_list(self._keys.encode(keys))
        lows = np.maximum(np.maximum(times_from, self._time.first_visible), 0)
        highs = np.minimum(times_to, self._time.observed)
        owners, starts, stored_values = self._time.read_keys(self._map, encoded, lows, highs, tail=8)  # type: ignore[arg-type]
        values, stamps = self._decode(stored_values)
        return np.array(owners, np.int64), np.frombuffer(b"".join(starts), ">i8").astype(np.int64), values, stamps

    def _decode_values(self, rows: Sequence[bytes | None]) -> Column:
        if self._bare is None:
            return self._decode(rows)[0]
        with self._bare.at(RecordHeaders()):
            return self._decode(rows)[0]

    def _decode(self, rows: Sequence[bytes | None]) -> tuple[Column, NDArray[np.int64]]:
        """Return values and timestamps; without timestamps in the store -1 for each."""
        if self._entries is not None and self._entries.by_headers:
            return self._entries.load_rows(rows, 8), stamps_of(rows_without_headers(rows))
        if self.spec.timestamped:
            return decode_stamped(self._values, rows_without_headers(rows) if self.spec.keeps_headers else rows)
        return decode_rows(self._values, rows), np.full(len(rows), -1, np.int64)

    def put_columns(
        self,
        keys: Column,
        starts: NDArray[np.int64] | None,
        values: Column,
        timestamps: NDArray[np.int64] | None = None,
    ) -> int:
        """Set the values; null deletes, the last of equal windows wins. Return how many were dropped as expired.

        The dropped ones are counted for `take_dropped` too.
        """
        keys, starts = self._split(keys, starts)
        dumped = self._dump_rows(values, timestamps)
        rows = self._rows(keys, starts)  # with the numbers that Kafka's changelog counts: of late ones and nulls too
        if self._ignores_nulls and None in dumped:
            nulls = [row for row, data in zip(rows, dumped, strict=True) if data is None]
            self._map.put_many(nulls, [None] * len(nulls))
            there = [at for at, data in enumerate(dumped) if data is not None]
            rows, starts, dumped = [rows[at] for at in there], starts[there], [dumped[at] for at in there]
        if not len(starts):
            return 0
        observed = np.maximum.accumulate(np.maximum(starts, self.observed_stream_time))
        live = self._time.is_live(starts, observed)
        dropped = len(starts) - int(live.sum())
        if dropped:
            index = np.flatnonzero(live).tolist()
            rows, starts, dumped = [rows[at] for at in index], starts[index], [dumped[at] for at in index]
        self._time.drop(dropped)
        if len(starts):
            self._time.note_late(starts, dumped)
        self._time.advance(int(observed[-1]))  # before the batch's own writes, which would have to be put in order
        self._map.put_many(rows, dumped)
        return dropped

    # Bytes

    def _dump_rows(self, values: Column, timestamps: NDArray[np.int64] | None) -> list[bytes | None]:
        """Return values as they are stored."""
        if not self.spec.timestamped:
            return encode_rows(self._values, values)
        if timestamps is None:
            raise self._no_timestamp()
        if self._entries is not None and self._entries.by_headers:
            return self._entries.dump_rows(values, timestamps)
        rows = encode_stamped(self._values, values, timestamps)
        return [None if row is None else NO_HEADERS + row for row in rows] if self.spec.keeps_headers else rows

    def _split(self, keys: Column, starts: NDArray[np.int64] | None) -> tuple[Column, NDArray[np.int64]]:
        if isinstance(keys, WindowedColumn):
            return keys.keys, keys.starts if starts is None else starts
        if starts is None:
            raise StateError(
                f"keys of store {self.name!r} came without window starts",
                hint="Give a WindowedColumn, or the starts.",
                store=self.name,
            )
        return keys, starts

    def _rows(self, keys: Column, starts: NDArray[np.int64]) -> list[bytes]:
        if len(starts) <= FEW and not self.spec.retain_duplicates:
            return list(map(self._row, keys_bytes(self.spec, keys), starts.tolist()))
        encoded = encode_keys(self.spec, keys)
        suffix = big_endian(starts)
        if self.spec.retain_duplicates:
            numbers = self._take_sequence(len(starts)).astype(">i4").view(np.uint8).reshape(-1, 4)
            suffix = np.concatenate([suffix, numbers], axis=1)
        return to_bytes_list(frame(encoded, big_endian(self._time.bucket(starts)), suffix))  # type: ignore[return-value]

    def _row(self, data: bytes, start: int) -> bytes:
        return NUMBER.pack(self._time.bucket(start)) + data + NUMBER.pack(start)

    def _load(self, data: bytes | None) -> Any:
        if self._entries is not None:
            return self._entries.load(data)
        if data is None or not self.spec.timestamped:
            return self._values.deserialize(data)
        return ValueAndTimestamp(self._values.deserialize(data[8:]), NUMBER.unpack_from(data)[0])

    def _dump(self, value: Any, timestamp: int | None, headers: Headers) -> bytes | None:
        if self._entries is not None:
            return None if value is None else self._entries.dump(value, timestamp, headers)
        if isinstance(value, ValueAndTimestamp):
            value, timestamp = value
        data = encode_one(self._values, value)
        if data is None or not self.spec.timestamped:
            return data
        if timestamp is None:
            raise self._no_timestamp()
        return NUMBER.pack(timestamp) + data

    def _no_timestamp(self) -> StateError:
        return StateError(
            f"a value for store {self.name!r} has no timestamp",
            hint="This store keeps timestamps: pass one with each value.",
            store=self.name,
        )

    def _take_sequence(self, count: int) -> NDArray[np.int64]:
        last = self._meta.get(self._sequence_name, 0)
        self._meta[self._sequence_name] = (last + count) & _MASK
        return (np.arange(last + 1, last + 1 + count)) & _MASK

    def _visible(self, time_from: int, time_to: int) -> tuple[int, int]:
        """Return the part of a range of starts that has not expired and may hold rows."""
        return max(time_from, self._time.first_visible, 0), min(time_to, self._time.observed)
