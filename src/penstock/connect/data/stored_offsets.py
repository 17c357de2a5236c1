"""Source offsets as records of the offset topic, byte by byte as Kafka Connect writes them, and its compact JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["StoredOffset", "compact_json", "offset_record", "partition_id", "stored_offset"]


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
) -> tuple[bytes, bytes | None]:
    """Return the key and the value of an offset's record.

    >>> offset_record("f", {"filename": "in.txt"}, {"position": 8})
    (b'["f",{"filename":"in.txt"}]', b'{"position":8}')
    """
    return compact_json([connector, partition]), None if offset is None else compact_json(offset)


def stored_offset(key: bytes | None, value: bytes | None) -> StoredOffset | None:
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
    return StoredOffset(str(name[0]), name[1], offset if isinstance(offset, dict) else None)
