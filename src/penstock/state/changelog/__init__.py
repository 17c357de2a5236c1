"""Changelogs: the changes of a store in a batch as the records that Kafka Streams would write, and their restore.

`changelog_format` returns the format of a store. Records are columns ``timestamp``, ``key``, ``value``, ``headers``.
"""

from __future__ import annotations

from penstock.state.changelog.base import NOTHING_NOTED, RECORDS_SCHEMA, ChangelogFormat, Written, now_of, records_of
from penstock.state.changelog.formats import VersionedFormat, changelog_format, records_of_changes, records_of_puts

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
