"""Session stores: values by key and session, forgotten when the store's stream time has passed a session's end.

Layout of a row's key: ``bucket (8 bytes BE) + key + end (8 bytes BE) + start (8 bytes BE)``, where the bucket is the
end rounded down to a segment (half the retention, at least a minute): the sessions of one key that can still grow are
one short range in each of a few buckets. What is observable of retention is told in `retention`.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from penstock.serde.base import Serde
from penstock.serde.windowed import Window, Windowed
from penstock.state.base import ByteMap
from penstock.state.views.keyvalue import key_bytes
from penstock.state.views.retention import NUMBER, Retention
from penstock.topology.stores import StoreSpec

__all__ = ["SessionView"]

_FOREVER = 2**63 - 1


class SessionView:
    """Kafka's ``SessionStore``; sessions are `Windowed` keys whose end belongs to them."""

    def __init__(self, spec: StoreSpec, entries: ByteMap, meta: MutableMapping[str, int]) -> None:
        self.spec = spec
        self.name = spec.name
        self._map = entries
        self._keys: Serde[Any] = spec.key_serde
        self._values: Serde[Any] = spec.value_serde
        self._time = Retention(spec, entries, meta, 0)

    @property
    def observed_stream_time(self) -> int:
        """The largest session end ever put, -1 before the first."""
        return self._time.observed

    def take_dropped(self) -> int:
        """How many puts have been dropped as expired since the last call (part of ``dropped-records-total``)."""
        return self._time.take_dropped()

    def put(self, session: Windowed[Any], value: Any) -> None:
        """Sets the value of a session; None deletes."""
        row = self._row(session)
        end = session.window.end
        observed = max(self._time.observed, end)
        self._time.advance(observed)
        if self._time.is_live(end, observed):
            self._map.put(row, self._values.serialize(value))
        else:
            self._time.drop(1)

    def remove(self, session: Windowed[Any]) -> None:
        """Deletes a session."""
        self._map.put(self._row(session), None)

    def fetch_session(self, key: Any, start: int, end: int) -> Any:
        """The value of exactly this session, or None."""
        row = self._row(Windowed(key, Window(start, end)))
        return None if end < self._time.first_visible else self._values.deserialize(self._map.get(row))

    def find_sessions(
        self, key: Any, earliest_end: int, latest_start: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        """The key's sessions that end at ``earliest_end`` or later and start at ``latest_start`` or before, by end."""
        data = key_bytes(self.spec, key)
        low = max(earliest_end, self._time.first_visible, 0)
        buckets = range(self._time.bucket(low), self._time.observed + 1, self._time.bucket_ms)
        return self._find(data, low, latest_start, reversed(buckets) if reverse else buckets, reverse=reverse)

    def _find(
        self, data: bytes, low: int, latest_start: int, buckets: Any, *, reverse: bool
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        width = 24 + len(data)
        for bucket in buckets:
            prefix = NUMBER.pack(bucket) + data
            first = prefix + NUMBER.pack(max(low, bucket))
            last = prefix + NUMBER.pack(bucket + self._time.bucket_ms)
            for row, value in self._map.scan(first, last, reverse=reverse):
                if len(row) == width and row[8 : 8 + len(data)] == data:  # not a longer key with the same beginning
                    end, start = NUMBER.unpack_from(row, width - 16)[0], NUMBER.unpack_from(row, width - 8)[0]
                    if start <= latest_start:
                        yield (
                            Windowed(self._keys.deserialize(data), Window(start, end)),
                            self._values.deserialize(value),
                        )

    def fetch(self, key: Any, *, reverse: bool = False) -> Iterator[tuple[Windowed[Any], Any]]:
        """All sessions of the key, by end."""
        return self.find_sessions(key, 0, _FOREVER, reverse=reverse)

    def fetch_key_range(
        self, low: Any = None, high: Any = None, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[Any], Any]]:
        """All sessions of the keys from ``low`` to ``high``, both included; None is open.

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
            yield Windowed(self._keys.deserialize(key), Window(start, end)), self._values.deserialize(value)

    def all(self) -> Iterator[tuple[Windowed[Any], Any]]:
        """All sessions that have not expired."""
        return self.fetch_key_range()

    def _row(self, session: Windowed[Any]) -> bytes:
        start, end = session.window.start, session.window.end
        data = key_bytes(self.spec, session.key)
        return NUMBER.pack(self._time.bucket(end)) + data + NUMBER.pack(end) + NUMBER.pack(start)
