"""Changelogs: the changes of a store in a batch as the records that Kafka Streams would write, and their restore.

`changelog_format` returns the format of a store. Records are columns ``timestamp``, ``key``, ``value``, ``headers``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.errors import StateError
from penstock.state.changelog.buffers import ChangeBufferFormat, RecordBufferFormat
from penstock.state.changelog.formats import (
    NOTHING_NOTED,
    RECORDS_SCHEMA,
    ChangelogFormat,
    ExpiringFormat,
    KeyValueFormat,
    LruFormat,
    OuterJoinFormat,
    SessionFormat,
    TimestampedFormat,
    VersionedFormat,
    WindowFormat,
    Written,
    now_of,
    records_of,
    records_of_changes,
    records_of_puts,
)
from penstock.topology.stores import StoreSpec

__all__ = [
    "NOTHING_NOTED",
    "RECORDS_SCHEMA",
    "ChangelogFormat",
    "VersionedFormat",
    "Written",
    "changelog_format",
    "changelog_formats",
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


def changelog_formats(specs: Mapping[str, StoreSpec], stores: Iterable[str]) -> dict[str, ChangelogFormat]:
    """Return the formats of the changelogs of these stores, by store."""
    return {store: changelog_format(specs[store]) for store in stores}
