"""Changelog of a versioned store: every put, under the time from which its version is valid.

The rows of such a store do not show which puts made them, so the puts of a batch are noted while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidStateError
from penstock.serde.column import bytes_column, to_bytes_list
from penstock.state.changelog.base import NOTHING_NOTED, Written, changes_of, records_of
from penstock.state.memory import MemoryMap
from penstock.state.overlay import Overlay, ReadableMap
from penstock.state.views.versions import Versions
from penstock.topology.stores import StoreSpec

__all__ = ["VersionedFormat"]

Put = tuple[bytes, bytes | None, int]


class VersionedFormat:
    """Key and value; the record's time is that of the version (``ChangeLoggingVersionedKeyValueBytesStore``)."""

    keeps_all = True
    reads_headers = False

    def __init__(self, spec: StoreSpec) -> None:
        self._spec = spec

    def records(
        self,
        changes: pa.RecordBatch,  # noqa: ARG002
        meta: Mapping[str, int],  # noqa: ARG002
        written: Written = NOTHING_NOTED,  # noqa: ARG002
    ) -> pa.RecordBatch:
        """Raise an error: the records of a versioned store come from `of_puts`."""
        raise InvalidStateError(
            f"the changelog of versioned store {self._spec.name!r} is not made of its rows", hint="Use of_puts()."
        )

    @staticmethod
    def of_puts(puts: Sequence[Put]) -> pa.RecordBatch:
        """Return the records of a batch's puts, in their order."""
        times = np.array([time for _, _, time in puts], np.int64)
        keys, values = [key for key, _, _ in puts], [value for _, value, _ in puts]
        return records_of(times, bytes_column(keys), bytes_column(values))

    def rows(self, records: pa.RecordBatch, meta: Mapping[str, int]) -> pa.RecordBatch:  # noqa: ARG002 - the protocol
        """Put all of them once more; a put that is too old by now changes nothing, as in Kafka."""
        changes = self._changes(records, MemoryMap(), -1)
        return changes.filter(changes.column(1).is_valid())

    def changes(self, records: pa.RecordBatch, held: ReadableMap, meta: Mapping[str, int]) -> pa.RecordBatch:
        """Put all of them over the rows before, from their stream time on."""
        return self._changes(records, held, meta.get(f"{self._spec.name}/observed-stream-time", -1))

    def _changes(self, records: pa.RecordBatch, held: ReadableMap, observed: int) -> pa.RecordBatch:
        entries = Overlay(held)
        versions = Versions(entries, self._spec.history_ms, observed)
        keys: list[bytes] = to_bytes_list(records.column("key"))  # type: ignore[assignment]
        values, times = to_bytes_list(records.column("value")), records.column("timestamp").to_pylist()
        for key, value, time in zip(keys, values, times, strict=True):
            versions.put(key, value, time)
        changes = sorted(entries.changes.items())
        return changes_of(bytes_column([row for row, _ in changes]), bytes_column([data for _, data in changes]))
