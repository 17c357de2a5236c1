"""Versioned stores: the latest value of each key, and its values at any time of the recent past.

Rows of the map:

- ``1 + key``: time and value of the latest version; none if the key has been deleted.
- ``0 + segment (8 bytes BE) + key``: the versions that ended within a segment, newest first, after the end of the
  newest and the start of the oldest; each version is its start, its length (-1: a deletion) and its value. A segment
  of which nothing can be asked for any more goes as one range from the front.

A row whose end is its start holds only a deletion, which earlier puts find as their end. The segment of a version and
the place of deletions are Kafka's own: a put returns when its version ends, so both can be seen.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from penstock.base.java_names import with_java_names, with_java_names_of
from penstock.serde.base import Serde
from penstock.serde.column import Column, bytes_column, to_bytes_list
from penstock.state.maps import ByteMap
from penstock.state.views.keyvalue import ShownInNotebooks, key_bytes, keys_bytes, unframe
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.state.maps import ReadableMap

__all__ = [
    "IS_LATEST",
    "LATEST",
    "NOT_PUT",
    "StoredVersion",
    "VersionedRecord",
    "VersionedView",
    "Versions",
    "segment_interval_ms",
]

IS_LATEST = -1  # VersionedKeyValueStore.PUT_RETURN_CODE_VALID_TO_UNDEFINED
NOT_PUT = -(1 << 63)  # VersionedKeyValueStore.PUT_RETURN_CODE_NOT_PUT

LATEST = b"\x01"
_HISTORY = b"\x00"
_NUMBER = struct.Struct(">q")
_BOUNDS = struct.Struct(">qq")
_ENTRY = struct.Struct(">qi")


class StoredVersion(NamedTuple):
    """A version as bytes; ``valid_to`` None is the latest."""

    value: bytes
    timestamp: int
    valid_to: int | None


def segment_interval_ms(history_ms: int) -> int:
    """Return Kafka's segment interval for a store that keeps this much history."""
    for up_to, parts, least in ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000)):
        if history_ms <= up_to:
            return max(history_ms // parts, least)
    return max(history_ms // 24, 300_000)


class Versions:
    """Versions of values over a byte map.

    Args:
        entries: The rows.
        history_ms: The age up to which old versions can be asked for, and up to which a put may be late.
        observed: The largest time ever put; -1 before the first.
    """

    def __init__(self, entries: ByteMap, history_ms: int, observed: int) -> None:
        self.observed = observed
        self._map = entries
        self._history_ms = history_ms
        self._interval = segment_interval_ms(history_ms)

    def latest(self, key: bytes) -> StoredVersion | None:
        """Return the latest version."""
        data = self._map.get(LATEST + key)
        return None if data is None else StoredVersion(data[8:], _NUMBER.unpack_from(data)[0], None)

    def as_of(self, key: bytes, time: int) -> StoredVersion | None:
        """Return the version that was valid at this time."""
        latest_version = self.latest(key)
        if latest_version is not None and latest_version.timestamp <= time:
            return latest_version
        return self.old(key, time)

    def old(self, key: bytes, time: int) -> StoredVersion | None:
        """Return the version that was valid at this time, which lies before the latest."""
        if time < self.observed - self._history_ms:
            return None
        for _, row in self._rows(key, time):
            following, first = _BOUNDS.unpack_from(row)
            if following <= time:
                return None
            if first <= time:
                versions = _versions(row)
                at = _find(versions, time)
                start, value = versions[at]
                return None if value is None else StoredVersion(value, start, _end(versions, at, following))
        return None

    def between(self, key: bytes, low: int, high: int) -> Iterator[StoredVersion]:
        """Yield the versions that were valid at some time from ``low`` to ``high``, the newest first."""
        if high < self.observed - self._history_ms:
            return
        latest = self.latest(key)
        if latest is not None:
            if latest.timestamp <= high:
                yield latest
            if latest.timestamp <= low:
                return
        for _, row in self._rows(key, max(low, self.observed - self._history_ms)):
            following = _NUMBER.unpack_from(row)[0]
            versions = _versions(row)
            for at, (start, value) in enumerate(versions):
                end = _end(versions, at, following)
                if end <= low:
                    return
                if value is not None and start <= high and end > start:
                    yield StoredVersion(value, start, end)

    def put(self, key: bytes, value: bytes | None, time: int) -> int:
        """Add a version from this time on (None: a deletion); return its end, `IS_LATEST` or `NOT_PUT`."""
        if time < self.observed - self._history_ms:
            return NOT_PUT
        if time > self.observed:
            self._expire(time)
            self.observed = time
        following: int | None = None
        latest = self._map.get(LATEST + key)
        if latest is not None:
            following = _NUMBER.unpack_from(latest)[0]
            if time >= following:
                if time > following:
                    self._append(key, following, time, latest[8:])
                self._map.put(LATEST + key, None if value is None else _NUMBER.pack(time) + value)
                return IS_LATEST
        for segment, row in self._rows(key, time):
            end, first = _BOUNDS.unpack_from(row)
            if end <= time:
                break
            if first <= time:
                return self._put_within(key, segment, row, value, time)
            following = first
        if following is not None:
            self._put_before(key, value, time, following)
            return following
        if value is not None:
            self._map.put(LATEST + key, _NUMBER.pack(time) + value)
        else:
            self._delete_latest(key, time)
        return IS_LATEST

    def observe(self, time: int) -> None:
        """Move the stream time on, as a put does."""
        self.observed = max(self.observed, time)

    # Where a version goes

    def _append(self, key: bytes, start: int, end: int, value: bytes | None) -> None:
        """Add a version after all those of the segment in which it ends."""
        at = self._row(self._segment(end), key)
        row = self._map.get(at)
        if row is None:
            self._map.put(at, _dump(end, [(start, value)]))
            return
        following, first = _BOUNDS.unpack_from(row)
        rest = row[_BOUNDS.size :]
        if following == first:  # only a deletion
            first, rest = following, b""
        if following < start:  # deleted in between
            rest = _entry(following, None) + rest
        elif not rest:
            first = start
        self._map.put(at, _BOUNDS.pack(end, first) + _entry(start, value) + rest)

    def _delete_latest(self, key: bytes, time: int) -> None:
        """Note a deletion after all versions."""
        at = self._row(self._segment(time), key)
        row = self._map.get(at)
        if row is None:
            self._map.put(at, _dump(time, [(time, None)]))
            return
        following = _NUMBER.unpack_from(row)[0]
        if following != time:
            self._append(key, following, time, None)

    def _put_before(self, key: bytes, value: bytes | None, time: int, following: int) -> None:
        """Put a version into a gap: it ends where another starts."""
        at = self._row(self._segment(following), key)
        row = self._map.get(at)
        if row is None or _NUMBER.unpack_from(row)[0] <= time:
            self._append(key, time, following, value)
            return
        end, first = _BOUNDS.unpack_from(row)
        versions = [] if end == first else _versions(row)
        self._map.put(at, _dump(end, [*versions, (time, value)]))

    def _put_within(self, key: bytes, segment: int, row: bytes, value: bytes | None, time: int) -> int:
        """Put a version into the time of another, which then ends where the new one starts."""
        end = _NUMBER.unpack_from(row)[0]
        versions = _versions(row)
        at = _find(versions, time)
        valid_to = _end(versions, at, end)
        start, cut = versions[at]
        if start == time:
            versions[at] = (time, value)
        elif self._segment(time) == segment:
            versions.insert(at, (time, value))
        else:
            self._append(key, start, time, cut)
            versions[at] = (time, value)
        self._map.put(self._row(segment, key), _dump(end, versions))
        return valid_to

    # Segments

    def _segment(self, time: int) -> int:
        return max(time, 0) // self._interval

    @staticmethod
    def _row(segment: int, key: bytes) -> bytes:
        return _HISTORY + _NUMBER.pack(segment) + key

    def _rows(self, key: bytes, time: int) -> Iterator[tuple[int, bytes]]:
        """Yield the key's rows of the segments from the newest to that of this time."""
        segments = range(self._segment(self.observed), self._segment(time) - 1, -1)
        rows = self._map.get_many([self._row(segment, key) for segment in segments])
        return ((segment, row) for segment, row in zip(segments, rows, strict=True) if row is not None)

    def _expire(self, observed: int) -> None:
        """Delete the segments of which nothing can be asked for once this time has been put."""
        first = self._segment(observed - self._history_ms)
        if first > self._segment(self.observed - self._history_ms):
            gone = [row for row, _ in self._map.scan(_HISTORY, self._row(first, b""))]
            self._map.put_many(gone, [None] * len(gone))


def _entry(start: int, value: bytes | None) -> bytes:
    return _ENTRY.pack(start, -1) if value is None else _ENTRY.pack(start, len(value)) + value


def _dump(end: int, versions: list[tuple[int, bytes | None]]) -> bytes:
    return _BOUNDS.pack(end, versions[-1][0]) + b"".join(_entry(start, value) for start, value in versions)


def _versions(row: bytes) -> list[tuple[int, bytes | None]]:
    """Return (start, value) of a row's versions, newest first."""
    versions: list[tuple[int, bytes | None]] = []
    at = _BOUNDS.size
    while at < len(row):
        start, length = _ENTRY.unpack_from(row, at)
        at += _ENTRY.size
        versions.append((start, None if length < 0 else row[at : at + length]))
        at += max(length, 0)
    return versions


def _find(versions: list[tuple[int, bytes | None]], time: int) -> int:
    return next(at for at, (start, _) in enumerate(versions) if start <= time)


def _end(versions: list[tuple[int, bytes | None]], at: int, end: int) -> int:
    return versions[at - 1][0] if at else end


@with_java_names
class VersionedRecord(NamedTuple):
    """A version of a value: Kafka's ``VersionedRecord``.

    It is valid from ``timestamp`` until just before ``valid_to`` (None: it is the latest), both in milliseconds.
    """

    value: Any
    timestamp: int
    valid_to: int | None


@with_java_names_of("VersionedKeyValueStore")
class VersionedView(ShownInNotebooks):
    """Kafka's ``VersionedKeyValueStore``.

    Old versions can be asked for as long as the history reaches back from the store's own stream time, the largest time
    ever put; the latest version of a key stays for ever. A put from before the history is dropped and counted.
    """

    def __init__(self, spec: StoreSpec, entries: ByteMap, meta: MutableMapping[str, int]) -> None:
        self.spec = spec
        self.name = spec.name
        self._map = entries
        self._meta = meta
        self._meta_name = f"{spec.name}/observed-stream-time"
        self._keys: Serde[Any] = spec.key_serde
        self._values: Serde[Any] = spec.value_serde
        self._dropped = 0

    @property
    def observed_stream_time(self) -> int:
        """The largest time ever put, -1 before the first."""
        return self._meta.get(self._meta_name, -1)

    def take_dropped(self) -> int:
        """Return how many puts have been dropped as too old since the last call (part of ``dropped-records-total``)."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    def versions(self) -> Versions:
        """Return the store's versions as bytes."""
        return Versions(self._map, self.spec.history_ms, self.observed_stream_time)

    def replay(self, before: Mapping[bytes, bytes | None], observed: int) -> Versions:
        """Return the versions as they were before some puts, which may be put once more; the store does not change.

        Args:
            before: The earlier rows, as `put_bytes` noted them.
            observed: The stream time then.
        """
        from penstock.state.maps import Overlay  # which imports views itself, by way of segments

        scratch = Overlay(cast("ReadableMap", self._map))
        scratch.put_many(list(before), list(before.values()))
        return Versions(scratch, self.spec.history_ms, observed)

    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord | None:
        """Return the latest version, or the one that was valid at a time in milliseconds; None if there is none."""
        data = key_bytes(self.spec, key)
        versions = self.versions()
        version = versions.latest(data) if as_of is None else versions.as_of(data, as_of)
        return (
            None if version is None else VersionedRecord(self._values.deserialize(version[0]), version[1], version[2])
        )

    def between(self, key: Any, low: int, high: int) -> Iterator[VersionedRecord]:
        """Yield the versions that were valid at some time from ``low`` to ``high``, both included; the newest first."""
        for value, timestamp, valid_to in self.versions().between(key_bytes(self.spec, key), low, high):
            yield VersionedRecord(self._values.deserialize(value), timestamp, valid_to)

    def put(self, key: Any, value: Any, timestamp: int) -> int:
        """Add a version that is valid from ``timestamp`` on; None deletes from then on.

        Returns:
            When the version ends, -1 if it is the latest, or -2**63 if it was too old to be put.
        """
        data = key_bytes(self.spec, key)
        return self.put_bytes([data], [self._values.serialize(value)], [timestamp])[0]

    def delete(self, key: Any, timestamp: int) -> VersionedRecord | None:
        """Delete the key from ``timestamp`` on; return the version that was valid then."""
        old = self.get(key, timestamp)
        return None if self.put(key, None, timestamp) == NOT_PUT else old

    def all(self) -> Iterator[tuple[Any, VersionedRecord]]:
        """Return the latest version of every key, in the order of the keys' bytes; an extra that Kafka lacks."""
        for row, data in self._map.scan(LATEST, b"\x02"):
            timestamp = int.from_bytes(data[:8], "big", signed=True)
            yield (
                self._keys.deserialize(row[1:]),
                VersionedRecord(self._values.deserialize(data[8:]), timestamp, None),
            )

    # Columns

    def get_columns(self, keys: Column) -> tuple[Column, NDArray[np.int64]]:
        """Return the latest values, null where there is none, and their timestamps, -1 where there is none."""
        rows = [LATEST + key for key in self.encode_keys(keys)]
        return self._decode(self._map.get_many(rows))

    def get_columns_as_of(self, keys: Column, times: NDArray[np.int64]) -> tuple[Column, NDArray[np.int64]]:
        """Return the values that were valid at these times, and their timestamps, as `get_columns`."""
        encoded = self.encode_keys(keys)
        stored_values = self._map.get_many([LATEST + key for key in encoded])
        versions = self.versions()
        for row, (data, time) in enumerate(zip(stored_values, times.tolist(), strict=True)):
            if data is None or int.from_bytes(data[:8], "big", signed=True) > time:
                old = versions.old(encoded[row], time)
                stored_values[row] = None if old is None else old.timestamp.to_bytes(8, "big", signed=True) + old.value
        return self._decode(stored_values)

    def put_columns(self, keys: Column, values: Column, timestamps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Put row by row; return the result of `put` for each."""
        codes = self.put_bytes(self.encode_keys(keys), self.encode_values(values), timestamps.tolist())
        return np.array(codes, np.int64)

    # Bytes

    def put_bytes(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        times: Sequence[int],
        before: MutableMapping[bytes, bytes | None] | None = None,
    ) -> list[int]:
        """Put serialised keys and values; note in ``before`` the earlier contents of the rows that change."""
        versions = self.versions()
        if before is not None:
            versions = Versions(_Noted(self._map, before), self.spec.history_ms, versions.observed)
        results = [versions.put(key, value, time) for key, value, time in zip(keys, values, times, strict=True)]
        self._meta[self._meta_name] = versions.observed
        self._dropped += results.count(NOT_PUT)
        if NOT_PUT in results:
            self._map.put_many((), ())  # the store has come to these records, though it does not take them
        noted = getattr(self._map, "puts", None)  # of a running batch
        if noted is not None:
            outcomes = zip(keys, values, times, results, strict=True)
            noted += [(key, value, time) for key, value, time, result in outcomes if result != NOT_PUT]
        return results

    def encode_keys(self, keys: Column) -> list[bytes]:
        """Return the bytes of keys, none of which may be null."""
        return keys_bytes(self.spec, keys)

    def encode_values(self, values: Column) -> list[bytes | None]:
        return to_bytes_list(self._values.encode(values))

    def decode_values(self, values: list[bytes | None]) -> Column:
        return self._values.decode(bytes_column(values))

    def _decode(self, stored_values: list[bytes | None]) -> tuple[Column, NDArray[np.int64]]:
        values, stamps, _ = unframe(bytes_column(stored_values), before=8)
        return self._values.decode(values), stamps.view(">i8").reshape(-1).astype(np.int64)


class _Noted:
    """A map that notes the first value of every changed row."""

    def __init__(self, entries: ByteMap, before: MutableMapping[bytes, bytes | None]) -> None:
        self._map = entries
        self._before = before
        self.get = entries.get
        self.get_many = entries.get_many
        self.scan = entries.scan
        self.scan_many = entries.scan_many
        self.read = entries.read

    def put(self, key: bytes, value: bytes | None) -> None:
        if key not in self._before:
            self._before[key] = self._map.get(key)
        self._map.put(key, value)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.put(key, value)
