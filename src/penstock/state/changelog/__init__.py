"""Changelogs: the changes of a store in a batch as the records that Kafka Streams would write, and their restore.

`changelog_format` returns the format of a store. Records are columns ``timestamp``, ``key``, ``value``, ``headers``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from penstock.errors import StateError
from penstock.state.changelog.base import NOTHING_NOTED, RECORDS_SCHEMA, ChangelogFormat, Written, now_of, records_of
from penstock.state.changelog.buffers import ChangeBufferFormat, RecordBufferFormat
from penstock.state.changelog.keyvalue import ExpiringFormat, KeyValueFormat, LruFormat, TimestampedFormat
from penstock.state.changelog.outer_join import OuterJoinFormat
from penstock.state.changelog.versioned import VersionedFormat
from penstock.state.changelog.windows import SessionFormat, WindowFormat
from penstock.state.overlay import Put
from penstock.topology.stores import StoreSpec

__all__ = [
    "NOTHING_NOTED",
    "RECORDS_SCHEMA",
    "ChangelogFormat",
    "VersionedFormat",
    "Written",
    "changelog_format",
    "now_of",
    "records_of",
    "records_of_changes",
    "records_of_puts",
]


def changelog_format(spec: StoreSpec) -> ChangelogFormat:
    """Return the format of a store's changelog topic."""
    match spec.kind:
        case "key_value" if spec.ttl_ms:
            return ExpiringFormat()
        case "key_value":
            return KeyValueFormat()
        case "timestamped":
            return TimestampedFormat(keeps_headers=spec.keeps_headers, logs_headers=spec.logs_headers)
        case "lru":
            return LruFormat(keeps_headers=spec.keeps_headers)
        case "window":
            return WindowFormat(spec)
        case "session":
            return SessionFormat(spec)
        case "versioned":
            return VersionedFormat(spec)
        case "buffer":
            return ChangeBufferFormat(keeps_headers=spec.keeps_headers)
        case "record_buffer":
            return RecordBufferFormat()
        case "outer_join":
            return OuterJoinFormat()
        case kind:
            raise StateError(
                f"store {spec.name!r} is of kind {kind!r}, which has no changelog format",
                hint="The topology was built by another version of Penstock than the one that runs it.",
                store=spec.name,
            )


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
