"""The stream time of a store that forgets, and its consequences; shared by window and session stores.

The observable behaviour is Kafka's: rows whose time is at or before ``observed stream time - retention`` are not
returned, where the observed stream time is the largest time ever put. A put is dropped and counted when the row's
*segment* has expired (persistent stores; a segment spans half the retention, at least a minute) or the row itself has
(in-memory stores). Rows of expired segments are deleted from the front of the store: their keys begin with their
bucket, which is their time rounded down. That may take some batches, so nothing reads times before ``first_kept``.

Two things keep rows for longer:

- a cache. What is in Kafka's cache of a store is found there, and taken in there, however long its time in the store
  below is over. So a cached store keeps what has expired as long as that fits into the cache. It counts the bytes of
  rows when they expire, in two generations, and lets go of the older one when the younger one fills its half.
- a hold. An operator that sends windows when they close holds those that it has not looked for yet. Nothing but
  `first_held` shows them.

Both are among the task's numbers, so a reader of the store follows them too.

`ExpiringView` is an extra that Kafka lacks, key-value stores whose entries expire some time after they were written. An
entry is there until stream time has moved on by the time to live since its last put; that is checked with each read, so
it does not depend on how the input is cut into batches. Expired entries are deleted from the front of an index by time,
now and then. Rows of the map: ``0 + key`` holds the time of the put (8 bytes BE) and the value, ``1 + time + key``
nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from penstock.base.java_names import with_java_names_of
from penstock.state.maps import ByteMap, ExpiringMap
from penstock.state.views.keyvalue import IndexedView, arrow_bytes, key_bytes
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NUMBER", "ExpiringView", "Retention"]

NUMBER = struct.Struct(">q")

_MAX_BUCKETS = 4096
_MIN_SEGMENT_MS = 60_000
_BEHIND = b"\xff" * 9  # above all bytes that follow the time in a row
_NO_TIME = -1  # Kafka's ConsumerRecord.NO_TIMESTAMP
_NOT_CACHED = -1
_FOREVER = (1 << 63) - 1


class Retention:
    """Time and buckets of one store.

    Args:
        spec: The store.
        entries: Its rows.
        meta: The task's small numbers, which hold its stream time.
        unit_ms: The least span of a bucket; 0 for a segment.
        cache_bytes: The size of the store's cache, 0 for none; None: the numbers say what the last writer had.
    """

    def __init__(
        self,
        spec: StoreSpec,
        entries: ByteMap,
        meta: MutableMapping[str, int],
        unit_ms: int,
        cache_bytes: int | None = None,
    ) -> None:
        self._map = cast("ExpiringMap", entries)  # maps that cannot forget hold no such stores
        self._meta = meta
        self._name = f"{spec.name}/observed-stream-time"
        self._retention = spec.retention_ms
        self._persistent = spec.persistent
        # Kafka's time-ordered window stores return rows for one more millisecond than the others.
        self._time_ordered = spec.time_ordered and spec.persistent
        self._extra = 1 if self._time_ordered and spec.kind == "window" else 0
        segment = max(spec.retention_ms // 2, _MIN_SEGMENT_MS)
        unit = unit_ms or segment
        self._segment = segment
        self.bucket_ms = unit * max(1, -(-spec.retention_ms // (unit * _MAX_BUCKETS)))
        self._dropped = 0
        self._cache_bytes = cache_bytes
        self._cached_from, self._young_from, self._counted_to, self._young_bytes, self._held_from = (
            f"{spec.name}/{what}" for what in ("cached-from", "young-from", "counted-to", "young-bytes", "held-from")
        )

    @property
    def observed(self) -> int:
        """The largest time ever put, -1 before the first."""
        return self._meta.get(self._name, _NO_TIME)

    @property
    def first_visible(self) -> int:
        """The smallest time that has not expired."""
        return int(self.first_visible_at(self.observed))

    def first_visible_at(self, observed: Any) -> Any:
        """Return the same for another stream time, or for each of a column."""
        cached = self._first_cached
        plain = observed - self._retention + 1 - self._extra
        if cached is None:
            return plain
        return min(plain, cached) if isinstance(plain, int) else np.minimum(plain, cached)

    @property
    def first_kept(self) -> int:
        """The first time whose segment has not expired, or is still in the cache."""
        cached = self._first_cached
        plain = self._floor(self.observed)
        return plain if cached is None else min(plain, cached)

    def first_held(self, first: int) -> int:
        """Return the first time that an operator which sends closed windows finds; without a hold it is ``first``."""
        return max(min(first, self._meta.get(self._held_from, first)), 0)

    @property
    def first_bucket(self) -> int:
        """The first bucket that is not to be deleted as expired."""
        return int(self.bucket(self.first_held(self.first_kept)))

    @property
    def _first_cached(self) -> int | None:
        """The first time of what the cache holds; None without a cache."""
        if self._cache_bytes == 0:
            return None
        cached = self._meta.get(self._cached_from, _NOT_CACHED)
        if cached != _NOT_CACHED:
            return cached
        return self._floor(self.observed) if self._cache_bytes else None

    def hold(self, time: int) -> None:
        """Keep rows from this time on for `first_held`, until the next call."""
        if self._meta.get(self._held_from) != time:
            self._meta[self._held_from] = time

    def release(self) -> None:
        """Hold nothing, if an earlier run did."""
        if self._held_from in self._meta:
            self._meta[self._held_from] = _FOREVER

    def bucket(self, time: Any) -> Any:
        """Return the bucket of a time, or of each of a column."""
        return time - time % self.bucket_ms

    def buckets(self, low: int, high: int, *, reverse: bool = False) -> range | Iterator[int]:
        """Return the buckets of times from ``low`` to ``high``: all, or where they are many those that have rows.

        A cache or a hold keeps rows for longer than the retention, so a range may span decades of empty buckets.
        """
        first, last = self.bucket(max(low, 0)), self.bucket(high)
        if (last - first) // self.bucket_ms > _MAX_BUCKETS:
            return self._buckets_with_rows(first, last, reverse=reverse)
        buckets = range(first, last + 1, self.bucket_ms)
        return buckets[::-1] if reverse else buckets

    def _buckets_with_rows(self, first: int, last: int, *, reverse: bool) -> Iterator[int]:
        entries = cast("ByteMap", self._map)
        at = last if reverse else first
        while first <= at <= last:
            ends = (first, at + self.bucket_ms) if reverse else (at, last + self.bucket_ms)
            row = next(iter(entries.scan(NUMBER.pack(ends[0]), NUMBER.pack(ends[1]), reverse=reverse)), None)
            if row is None:
                return
            (bucket,) = NUMBER.unpack_from(row[0])
            yield bucket
            at = bucket - self.bucket_ms if reverse else bucket + self.bucket_ms

    def read_keys(
        self, entries: ByteMap, keys: list[bytes], lows: NDArray[np.int64], highs: NDArray[np.int64], *, tail: int
    ) -> tuple[list[int], list[bytes], list[bytes]]:
        """Return the rows of each key from low to high: (position of the key, the row's last ``tail`` bytes, value)."""
        row_owners: list[int] = []
        tails: list[bytes] = []
        values: list[bytes] = []
        owners, ranges = self._ranges(keys, lows, highs)
        for owner, rows in zip(owners.tolist(), entries.scan_many(ranges), strict=True):
            if rows:
                key = keys[owner]
                width = 8 + len(key) + tail
                for row, value in rows:
                    if len(row) == width and row[8:-tail] == key:  # not a longer key with the same beginning
                        row_owners.append(owner)
                        tails.append(row[-tail:])
                        values.append(value)
        return row_owners, tails, values

    def _ranges(
        self, keys: list[bytes], lows: NDArray[np.int64], highs: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], list[tuple[bytes, bytes]]]:
        """Return the ranges of rows to scan for each key's times from low to high: (position of the key, range)."""
        first, last = self.bucket(lows), self.bucket(highs)
        counts = np.where(highs >= lows, (last - first) // self.bucket_ms + 1, 0)
        there = None  # the buckets that have rows, where the ranges span more than the retention
        if len(counts) and counts.max() > _MAX_BUCKETS + 1:
            wide = counts > 0
            there = np.fromiter(self.buckets(int(lows[wide].min()), int(highs[wide].max())), np.int64)
            begins = np.searchsorted(there, first)
            counts = np.where(wide, np.searchsorted(there, last, "right") - begins, 0)
        owners = np.repeat(np.arange(len(keys)), counts)
        number = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        buckets = first[owners] + number * self.bucket_ms if there is None else there[begins[owners] + number]
        starts = np.maximum(buckets, lows[owners]).tolist()
        stops = np.minimum(buckets + self.bucket_ms - 1, highs[owners]).tolist()
        pack = NUMBER.pack
        ranges = []
        for owner, bucket, start, stop in zip(owners.tolist(), buckets.tolist(), starts, stops, strict=True):
            prefix = pack(bucket) + keys[owner]
            ranges.append((prefix + pack(start), prefix + pack(stop) + _BEHIND))
        return owners, ranges

    def order(self, time: int, key: bytes, row: bytes) -> tuple[int, bytes, bytes]:
        """Return Kafka's sort key of a row: by segment, then bytes; in memory by time, key and the rest."""
        by_segment = self._persistent and not self._time_ordered
        return (time // self._segment, row[8:], row) if by_segment else (time, key, row)

    def is_live(self, time: Any, observed: Any) -> Any:
        """Return whether rows are taken in when the stream time is ``observed``; for one row or by the column."""
        if self._persistent:
            live = time // self._segment >= (observed - self._retention) // self._segment
        else:
            live = time > observed - self._retention
        cached = self._first_cached
        return live if cached is None else live | (time >= cached)

    def advance(self, observed: int) -> None:
        """Move the observed stream time on, and let rows of expired segments be deleted.

        To be called in each batch that writes, as rows that expired in earlier ones may still be there.
        """
        if self._cache_bytes:
            self._evict(observed)
        elif self._cache_bytes == 0 and self._cached_from in self._meta:
            self._meta[self._cached_from] = _NOT_CACHED
        if observed > self.observed:
            self._meta[self._name] = observed
        expired = self.first_bucket
        if expired > 0:
            self._map.expire(NUMBER.pack(expired))

    def _evict(self, observed: int) -> None:
        """Count the rows that expire, and let go of the older ones when they no longer fit into the cache."""
        meta, cache_bytes = self._meta, self._cache_bytes or 0
        if meta.get(self._cached_from, _NOT_CACHED) == _NOT_CACHED:
            start = self._floor(self.observed)
            meta.update(dict.fromkeys((self._cached_from, self._young_from, self._counted_to), start))
            meta[self._young_bytes] = 0
        expired = int(self.bucket(self._floor(max(observed, self.observed))))
        counted = meta[self._counted_to]
        if expired <= counted:
            return
        size = 0
        for row, value in self._map.scan(NUMBER.pack(counted), NUMBER.pack(expired)):
            size += len(row) + len(value)
            if size > cache_bytes:
                break
        self._count(size, expired)
        meta[self._counted_to] = expired

    def _count(self, size: int, expired: int) -> None:
        """Add the bytes of rows that lie before ``expired``."""
        meta, cache_bytes = self._meta, self._cache_bytes or 0
        meta[self._young_bytes] += size
        if meta[self._young_bytes] > cache_bytes // 2:
            meta[self._cached_from] = expired if size > cache_bytes else meta[self._young_from]
            meta[self._young_from] = expired
            meta[self._young_bytes] = 0

    def note_late(self, time: Any, rows: int | list[bytes | None]) -> None:
        """Count rows that are put although their time is over: one, by its size, or many, by what is stored."""
        if self._cache_bytes:
            expired = self._meta.get(self._counted_to, 0)
            late = int(time < expired) if isinstance(time, int) else int(np.count_nonzero(time < expired))
            if late:
                self._count(late * (rows if isinstance(rows, int) else arrow_bytes(rows) // len(rows)), expired)

    def note_late_rows(self, times: Sequence[int], rows: list[bytes | None]) -> None:
        """Count the rows of a list that are put although their time is over; there is one at least."""
        if self._cache_bytes and min(times) < self._meta.get(self._counted_to, 0):
            self.note_late(np.array(times, np.int64), rows)

    def _floor(self, observed: int) -> int:
        return max(observed - self._retention, 0) // self._segment * self._segment

    def drop(self, count: int) -> None:
        """Count puts that came too late."""
        self._dropped += count

    def take_dropped(self) -> int:
        """Return how many puts have been dropped since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped


_SWEEPS = 16  # a time to live


@with_java_names_of("KeyValueStore")
class ExpiringView(IndexedView):
    """A key-value store with ``spec.ttl_ms``.

    Args:
        spec: The store.
        entries: Its rows.
        meta: The task's small numbers.
        now: Returns the stream time; by default the one at the end of the task's input.
    """

    def __init__(
        self,
        spec: StoreSpec,
        entries: ByteMap,
        meta: MutableMapping[str, int],
        now: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(spec, entries, meta)
        self._entries = entries
        self._now = now or (lambda: meta.get("stream_time", -1))
        self._swept_name = f"{spec.name}/swept"

    def at(self, now: Callable[[], int]) -> ExpiringView:
        """Return the same store by another clock: a processor's own, which stands at its present record."""
        return ExpiringView(self.spec, self._entries, self._meta, now)

    def _load(self, data: bytes | None) -> Any:
        return None if data is None or self._has_gone(data) else self._values.deserialize(data[8:])

    def _load_entries(self, entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        return super()._load_entries(entry for entry in entries if not self._has_gone(entry[1]))

    def _has_gone(self, data: bytes) -> bool:
        written: int = NUMBER.unpack_from(data)[0]
        return written + self.spec.ttl_ms <= self._now()

    def put(self, key: Any, value: Any) -> None:
        """Set the value, whose time to live begins; None deletes."""
        data, dumped = key_bytes(self.spec, key), self._values.serialize(value)
        now = self._now()
        self._sweep(now)
        old = self._map.get(data)
        if old is not None:
            self._index.put(old[:8] + data, None)
        if dumped is None:
            self._map.put(data, None)
        else:
            self._map.put(data, NUMBER.pack(now) + dumped)
            self._index.put(NUMBER.pack(now) + data, b"")

    def delete(self, key: Any) -> Any:
        """Remove the key; return its value."""
        old = self.get(key)
        self.put(key, None)
        return old

    def approximate_num_entries(self) -> int:
        """Return the number of entries; looks at all of them."""
        return sum(1 for _ in self.all())

    def _sweep(self, now: int) -> None:
        if now < self._meta.get(self._swept_name, 0) + self.spec.ttl_ms // _SWEEPS:
            return
        self._meta[self._swept_name] = now
        gone = [row for row, _ in self._index.scan(None, NUMBER.pack(max(now - self.spec.ttl_ms, -1) + 1))]
        self._index.put_many(gone, [None] * len(gone))
        self._map.put_many([row[8:] for row in gone], [None] * len(gone))
