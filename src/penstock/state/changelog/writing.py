"""The changelog records of a task: those of its stores' changes, and of what versioned stores have noted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from penstock.state.changelog import NOTHING_NOTED, VersionedFormat, Written, changelog_format
from penstock.state.overlay import Put
from penstock.topology.stores import StoreSpec

__all__ = ["records_of_changes", "records_of_puts"]

_NOTHING: Mapping[str, Written] = MappingProxyType({})


def records_of_changes(
    specs: Mapping[str, StoreSpec],
    topics: Mapping[str, str],
    changes: Iterable[tuple[str, pa.RecordBatch]],
    meta: Mapping[str, int],
    written: Mapping[str, Written] = _NOTHING,
) -> list[tuple[str, pa.RecordBatch]]:
    """Return (topic, records) of changes in their order; without stores that have no changelog, and versioned ones.

    Args:
        specs: The stores by name.
        topics: Store -> its changelog topic.
        changes: Store and changes (``CHANGES_SCHEMA``) in the order of the keys' bytes.
        meta: The task's numbers after the changes.
        written: By store what was noted of the records that wrote its rows.
    """
    changelog_records = []
    for store, rows in changes:
        if store in topics and specs[store].kind != "versioned":
            records = changelog_format(specs[store]).records(rows, meta, written.get(store, NOTHING_NOTED))
            if records.num_rows:
                changelog_records.append((topics[store], records))
    return changelog_records


def records_of_puts(
    topics: Mapping[str, str], puts: Iterable[tuple[str, Sequence[Put]]]
) -> list[tuple[str, pa.RecordBatch]]:
    """Return (topic, records) of the puts that versioned stores have noted, which their changes do not determine."""
    return [(topics[store], VersionedFormat.of_puts(noted)) for store, noted in puts if noted and store in topics]
