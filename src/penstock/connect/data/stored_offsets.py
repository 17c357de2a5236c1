"""Source offsets as records of the offset topic, byte by byte as Kafka Connect writes them, and its compact JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = [
    "NOTE_HEADER",
    "NotedOffset",
    "OffsetRecord",
    "StoredOffset",
    "compact_json",
    "note_headers",
    "note_of",
    "offset_record",
    "partition_id",
    "stored_offset",
    "with_note",
]


NOTE_HEADER = "penstock.note"


class NotedOffset(dict[str, Any]):
    """A source offset with a note that the connector keeps beside it.

    The note is in a header of the offset's record: Kafka Connect's workers and its REST interface do not see it, and an
    offset that somebody else stores has none.
    """

    __slots__ = ("note",)

    def __init__(self, offset: Mapping[str, Any], note: str) -> None:
        super().__init__(offset)
        self.note = note


def with_note(offset: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of an offset, with its note if it has one."""
    note = getattr(offset, "note", "")
    return NotedOffset(offset, note) if note else dict(offset)


def note_of(headers: Sequence[Mapping[str, Any]] | None) -> str:
    """Return the note in the headers of an offset's record; empty if there is none."""
    note = next((each["value"] for each in headers or () if each["key"] == NOTE_HEADER), None)
    return (note or b"").decode("utf-8", "replace")


def note_headers(note: str) -> list[dict[str, Any]] | None:
    """Return the headers of an offset's record that has a note."""
    return [{"key": NOTE_HEADER, "value": note.encode()}] if note else None


class OffsetRecord(NamedTuple):
    """The record of an offset: key, value, and a note that goes into a header."""

    key: bytes
    value: bytes | None
    note: str = ""


class StoredOffset(NamedTuple):
    """The offset of a source partition, as a record holds it; None deletes it."""

    connector: str
    partition: dict[str, Any]
    offset: dict[str, Any] | None


def compact_json(document: Any) -> bytes:
    """Write a document as Kafka Connect does in its topics: without spaces.

    >>> compact_json({"state": "RUNNING", "generation": 2})
    b'{"state":"RUNNING","generation":2}'
    """
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def partition_id(partition: Mapping[str, Any]) -> str:
    """Return a text that is the same for equal source partitions, whatever the order of their fields."""
    return json.dumps(partition, sort_keys=True)


def offset_record(
    connector: str, partition: Mapping[str, Any] | None, offset: Mapping[str, Any] | None
) -> OffsetRecord:
    """Return an offset's record.

    >>> offset_record("f", {"filename": "in.txt"}, {"position": 8})
    OffsetRecord(key=b'["f",{"filename":"in.txt"}]', value=b'{"position":8}', note='')
    """
    value = None if offset is None else compact_json(offset)
    return OffsetRecord(compact_json([connector, partition]), value, getattr(offset, "note", ""))


def stored_offset(key: bytes | None, value: bytes | None, note: str = "") -> StoredOffset | None:
    """Return the offset of a record; None if something else has written the record.

    >>> stored_offset(b'["f",{"filename":"in.txt"}]', None)
    StoredOffset(connector='f', partition={'filename': 'in.txt'}, offset=None)
    """
    try:
        name = json.loads(key or b"null")
        offset = None if value is None else json.loads(value)
    except ValueError:
        return None
    if not isinstance(name, list) or len(name) != 2 or not isinstance(name[1], dict):
        return None
    if not isinstance(offset, dict):
        return StoredOffset(str(name[0]), name[1], None)
    return StoredOffset(str(name[0]), name[1], NotedOffset(offset, note) if note else offset)
