"""Versioned stores: the latest value of each key, and its values at any time of the recent past."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from penstock.base.java_names import with_java_names, with_java_names_of
from penstock.serde.base import Serde
from penstock.serde.column import Column, bytes_column, to_bytes_list
from penstock.state.maps import ByteMap
from penstock.state.views.keyvalue import ShownInNotebooks, key_bytes, keys_bytes, unframe
from penstock.state.views.versions import LATEST, NOT_PUT, Versions
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.state.maps import ReadableMap

__all__ = ["VersionedRecord", "VersionedView"]


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
