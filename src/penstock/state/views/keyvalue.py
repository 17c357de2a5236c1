"""Key-value views: plain, and with timestamps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from penstock.base.java_names import with_java_names, with_java_names_of
from penstock.errors import StateError
from penstock.serde.base import Serde, encode_one
from penstock.serde.column import Column, bytes_column, to_bytes_list
from penstock.state.base import ByteMap
from penstock.state.views.frames import decode_stamped, encode_stamped, unframe
from penstock.state.views.keys import key_bytes, keys_bytes
from penstock.state.views.notebook import ShownInNotebooks
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["KeyValueView", "OrderedView", "TimestampedView", "ValueAndTimestamp", "successor"]


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
        found, _, _ = unframe(entries, before=8)
        return numbers, keys, self._values.decode(found)

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
