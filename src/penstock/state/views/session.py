"""Session stores: values by key and session, forgotten when the store's stream time has passed a session's end.

Layout of a row's key: ``bucket (8 bytes BE) + key + end (8 bytes BE) + start (8 bytes BE)``, where the bucket is the
end rounded down to a segment (half the retention, at least a minute): the sessions of one key that can still grow are
one short range in each of a few buckets. For the rules of retention see `retention`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.base.java_names import with_java_names_of
from penstock.serde.base import FEW, Serde, decode_rows, encode_one, encode_rows
from penstock.serde.column import Column, to_bytes_list
from penstock.serde.windowed import Window, Windowed, WindowedColumn
from penstock.state.maps import ByteMap
from penstock.state.views.header_entries import NO_HEADERS, AggregationWithHeaders, HeaderEntries, rows_without_headers
from penstock.state.views.keyvalue import ShownInNotebooks, big_endian, encode_keys, frame, key_bytes, keys_bytes
from penstock.state.views.retention import NUMBER, Retention
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SessionView"]

_FOREVER = 2**63 - 1
_END_AND_START = struct.Struct(">qq")


@with_java_names_of("SessionStore")
class SessionView(ShownInNotebooks):
    """Kafka's ``SessionStore``; sessions are `Windowed` keys whose end belongs to them."""

    def __init__(
        self, spec: StoreSpec, entries: ByteMap, meta: MutableMapping[str, int], cache_bytes: int | None = None
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self._map = entries
        self._keys: Serde[Any] = spec.key_serde
        self._values: Serde[Any] = spec.value_serde
        self._time = Retention(spec, entries, meta, 0, cache_bytes)
        self._entries = HeaderEntries(spec) if spec.keeps_headers else None

    def _load(self, data: bytes | None) -> Any:
        return self._values.deserialize(data) if self._entries is None else self._entries.load_session(data)

    @property
    def observed_stream_time(self) -> int:
        """The largest session end ever put, -1 before the first."""
        return self._time.observed

    def take_dropped(self) -> int:
        """Return how many puts have been dropped as expired since the last call (part of ``dropped-records-total``)."""
        return self._time.take_dropped()

    def put(self, session: Windowed[Any], value: Any) -> None:
        """Set the value of a session; None deletes. Stores that keep headers take an `AggregationWithHeaders`."""
        row = self._row(session)
        end = session.window.end
        observed = max(self._time.observed, end)
        dumped = encode_one(self._values, value) if self._entries is None else self._entries.dump_session(value)
        self._time.note_late(end, len(row) + len(dumped or b""))
        self._time.advance(observed)
        if self._time.is_live(end, observed):
            self._map.put(row, dumped)
        else:
            self._time.drop(1)

    def remove(self, session: Windowed[Any]) -> None:
        """Delete a session."""
        self._map.put(self._row(session), None)

    def fetch_session(self, key: Any, start: int, end: int) -> Any:
        """Return the value of exactly this session, or None."""
        row = self._row(Windowed(key, Window(start, end)))
        return None if end < self._time.first_visible else self._load(self._map.get(row))

    def find_sessions(
        self, key: Any, earliest_end: int, latest_start: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        """Yield the key's sessions that end at ``earliest_end`` or later and start by ``latest_start``, by end."""
        data = key_bytes(self.spec, key)
        low = max(earliest_end, self._time.first_visible, 0)
        buckets = self._time.buckets(low, self._time.observed, reverse=reverse) if low <= self._time.observed else ()
        return self._find(data, low, latest_start, buckets, reverse=reverse)

    def _find(
        self, data: bytes, low: int, latest_start: int, buckets: Any, *, reverse: bool
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        for row, value in self._scan_buckets(data, low, latest_start, buckets, reverse=reverse):
            window = Window(NUMBER.unpack(row[-8:])[0], NUMBER.unpack(row[-16:-8])[0])
            yield Windowed(self._keys.deserialize(data), window), self._load(value)

    def _scan_buckets(
        self, data: bytes, low: int, latest_start: int, buckets: Any, *, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        width = 24 + len(data)
        for bucket in buckets:
            prefix = NUMBER.pack(bucket) + data
            first = prefix + NUMBER.pack(max(low, bucket))
            last = prefix + NUMBER.pack(bucket + self._time.bucket_ms)
            for row, value in self._map.scan(first, last, reverse=reverse):
                if len(row) != width or row[8 : 8 + len(data)] != data:
                    continue  # a longer key with the same beginning
                if NUMBER.unpack_from(row, width - 8)[0] <= latest_start:
                    yield row, value

    def find_ended(self, earliest_end: int, latest_end: int) -> Iterator[tuple[Windowed[Any], Any]]:
        """Yield all sessions that end from ``earliest_end`` to ``latest_end``, by end, those that are held among them.

        As in Kafka, a persistent store returns expired ones, too, until it deletes their segment. Sessions that end at
        the same time come by start and key, in memory by key and start. Their values come without headers.
        """
        low = max(
            earliest_end,
            self._time.first_held(self._time.first_kept if self.spec.persistent else self._time.first_visible),
        )
        sessions = []
        end_of_range = NUMBER.pack(self._time.bucket(latest_end) + self._time.bucket_ms)
        for row, value in self._map.scan(NUMBER.pack(self._time.bucket(low)), end_of_range):
            key, end, start = row[8:-16], row[-16:-8], row[-8:]
            if low <= NUMBER.unpack(end)[0] <= latest_end:
                sessions.append((end, *((start, key) if self.spec.persistent else (key, start)), row, value))
        sessions.sort()
        for end, _, _, row, value in sessions:
            window = Window(NUMBER.unpack(row[-8:])[0], NUMBER.unpack(end)[0])
            plain = self._load(value)
            if isinstance(plain, AggregationWithHeaders) and self._entries is not None:
                plain = plain.aggregation
            yield Windowed(self._keys.deserialize(row[8:-16]), window), plain

    def fetch(self, key: Any, *, reverse: bool = False) -> Iterator[tuple[Windowed[Any], Any]]:
        """Yield all sessions of the key, by end."""
        return self.find_sessions(key, 0, _FOREVER, reverse=reverse)

    def fetch_key_range(
        self, low: Any = None, high: Any = None, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        """Yield all sessions of the keys from ``low`` to ``high``, both included; None is open.

        In Kafka's order: by segment, key, end in persistent stores, by end and key in memory.
        """
        first = None if low is None else key_bytes(self.spec, low)
        last = None if high is None else key_bytes(self.spec, high)
        visible = max(self._time.first_visible, 0)
        rows = []
        for row, value in self._map.scan(NUMBER.pack(self._time.bucket(visible))):
            key, end = row[8:-16], NUMBER.unpack_from(row, len(row) - 16)[0]
            if end >= visible and (first is None or key >= first) and (last is None or key <= last):
                rows.append((*self._time.order(end, key, row), key, end, value))
        rows.sort(reverse=reverse)
        for _, _, row, key, end, value in rows:
            start = NUMBER.unpack_from(row, len(row) - 8)[0]
            yield Windowed(self._keys.deserialize(key), Window(start, end)), self._load(value)

    def all(self) -> Iterator[tuple[Windowed[Any], Any]]:
        """Yield all sessions that have not expired."""
        return self.fetch_key_range()

    def first(self, most: int) -> Iterator[tuple[Windowed[Any], Any]]:
        """Yield some sessions that have not expired, the oldest first, without a look at the others."""
        visible = max(self._time.first_visible, 0)
        for row, value in self._map.scan(NUMBER.pack(self._time.bucket(visible))):
            end, start = NUMBER.unpack_from(row, len(row) - 16)[0], NUMBER.unpack_from(row, len(row) - 8)[0]
            if most > 0 and end >= visible:
                most -= 1
                yield Windowed(self._keys.deserialize(row[8:-16]), Window(start, end)), self._load(value)
            if most <= 0:
                return

    # One key at a time, as the columns are read and written

    def find_near(self, key: Any, earliest_end: int, latest_start: int) -> tuple[bytes, list[tuple[int, int, Any]]]:
        """Return the key's bytes, and (start, end, value) of its sessions in a range, by end: as `find_many` does."""
        data, observed = key_bytes(self.spec, key), self._time.observed
        low = max(earliest_end, self._time.first_visible_at(observed), 0)
        if low > observed:
            return data, []
        buckets = self._time.buckets(low, observed)
        width, unpack = len(data), _END_AND_START.unpack_from
        sessions = []
        for row, value in self._scan_buckets(data, low, latest_start, buckets, reverse=False):
            end, start = unpack(row, 8 + width)
            sessions.append((start, end, self._load(value)))
        return data, sessions

    def put_near(self, data: bytes, sessions: Sequence[tuple[int, int, Any]]) -> None:
        """Set (start, end, value) of sessions of a key, by its bytes: as `put_columns` does; a null value deletes."""
        observed = self._time.observed
        rows: list[bytes] = []
        dumped: list[bytes | None] = []
        ends: list[int] = []
        for start, end, value in sessions:
            observed = max(observed, end)
            if self._time.is_live(end, observed):
                rows.append(self._row_of(data, start, end))
                dumped.append(encode_one(self._values, value))
                ends.append(end)
        if rows:
            self._time.note_late_rows(ends, dumped)
        self._map.put_many(rows, dumped)
        self._time.advance(observed)

    # Columns

    def observe(self, end: int) -> None:
        """Move the store's stream time on, as a put of that end does."""
        self._time.advance(max(self._time.observed, end))

    def hold(self, end: int | None) -> None:
        """Keep sessions that end then or later for `find_ended`; None holds nothing."""
        self._time.release() if end is None else self._time.hold(end)

    def visible_from(self, observed: Any) -> Any:
        """Return the first end that is still returned when the stream time is ``observed``; one, or by the column."""
        return self._time.first_visible_at(observed)

    def is_live(self, end: Any, observed: Any) -> Any:
        """Return whether a session is taken in when the stream time is ``observed``; one, or by the column."""
        return self._time.is_live(end, observed)

    def find_many(
        self, keys: Column, earliest_ends: NDArray[np.int64], latest_starts: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Column]:
        """Find sessions for many different keys: (position of the key, start, end, value), by key and end."""
        encoded = keys_bytes(self.spec, keys)
        lows = np.maximum(np.maximum(earliest_ends, self._time.first_visible), 0)
        highs = np.full(len(lows), self._time.observed)
        owners, times, encoded_values = self._time.read_keys(self._map, encoded, lows, highs, tail=16)
        bounds = np.frombuffer(b"".join(times), ">i8").astype(np.int64).reshape(-1, 2)
        index = np.array(owners, np.int64)
        values = self._decode(encoded_values)
        near = bounds[:, 1] <= latest_starts[index]
        if not near.all():
            index, bounds, values = index[near], bounds[near], values.filter(near)
        return index, bounds[:, 1], bounds[:, 0], values

    def get_columns(self, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return the values of exactly these sessions and their ends, null and -1 where there is none."""
        windowed = WindowedColumn.of(keys)
        encoded_values = self._map.get_many(self._rows(windowed))
        visible = (windowed.ends >= self._time.first_visible).tolist()
        data = [value if seen else None for value, seen in zip(encoded_values, visible, strict=True)]
        there = np.fromiter((value is not None for value in data), np.bool_, len(data))
        return self._decode(data), np.where(there, windowed.ends, -1)

    def stored_rows(self, keys: Column) -> list[bytes | None]:
        """Return the rows of sessions as they are stored, None where there is none."""
        return self._map.get_many(self._rows(WindowedColumn.of(keys)))

    def decode_rows(self, rows: Sequence[bytes | None]) -> Column:
        """Return the values of rows that `stored_rows` has returned."""
        return self._decode(rows)

    def _decode(self, rows: Sequence[bytes | None]) -> Column:
        if self._entries is not None and self._entries.by_headers:
            return self._entries.load_rows(rows, 0)
        return decode_rows(self._values, rows_without_headers(rows) if self.spec.keeps_headers else rows)

    def put_columns(self, keys: Column, values: Column) -> None:
        """Set the values of sessions; null deletes. Sessions that are too late by then are left out and not counted."""
        windowed = WindowedColumn.of(keys)
        if not len(windowed):
            return
        observed = np.maximum.accumulate(np.maximum(windowed.ends, self._time.observed))
        live = np.flatnonzero(self._time.is_live(windowed.ends, observed))
        if len(live) < len(windowed):
            windowed, values = windowed.take(live), values.take(live)
        by_headers = self._entries is not None and self._entries.by_headers
        dumped = self._entries.dump_rows(values, None) if by_headers else encode_rows(self._values, values)  # type: ignore[union-attr]
        if self.spec.keeps_headers and not by_headers:
            dumped = [None if row is None else NO_HEADERS + row for row in dumped]
        if len(windowed):
            self._time.note_late(windowed.ends, dumped)
        self._map.put_many(self._rows(windowed), dumped)
        self._time.advance(int(observed[-1]))

    def _rows(self, keys: WindowedColumn) -> list[bytes]:
        if len(keys) <= FEW:
            rows = zip(keys_bytes(self.spec, keys.keys), keys.starts.tolist(), keys.ends.tolist(), strict=True)
            return [self._row_of(*row) for row in rows]
        suffix = np.concatenate([big_endian(keys.ends), big_endian(keys.starts)], axis=1)
        rows = frame(encode_keys(self.spec, keys.keys), big_endian(self._time.bucket(keys.ends)), suffix)
        return to_bytes_list(rows)  # type: ignore[return-value] # no key is null

    def _row(self, session: Windowed[Any]) -> bytes:
        return self._row_of(key_bytes(self.spec, session.key), session.window.start, session.window.end)

    def _row_of(self, data: bytes, start: int, end: int) -> bytes:
        return NUMBER.pack(self._time.bucket(end)) + data + _END_AND_START.pack(end, start)
