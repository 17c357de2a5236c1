"""The interface between operators and storage: ordered maps of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import Protocol

import pyarrow as pa

__all__ = ["CHANGES_SCHEMA", "ByteMap", "Entries", "ExpiringMap", "TaskState"]

CHANGES_SCHEMA = pa.schema([("key", pa.large_binary()), ("value", pa.large_binary())])
Entries = tuple[list[bytes], list[bytes]]


class ByteMap(Protocol):
    """An ordered map of bytes, as the present batch sees it: committed state plus the batch's own writes."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of a key; None deletes."""
        ...

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None: ...

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return entries with start <= key < end (None: open) in byte order."""
        ...

    def scan_many(self, ranges: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        """Return the entries of each range (start, end) as `scan` does; faster for many small ones."""
        ...

    def read(self, start: bytes, end: bytes, limit: int) -> Entries | None:
        """Return keys and values of `scan`, all at once and so faster; None when there are more than ``limit``."""
        ...


class ExpiringMap(ByteMap, Protocol):
    """A map that can forget its front, as window and session stores need."""

    def expire(self, end: bytes) -> None:
        """Mark entries with keys below ``end`` as expired; they are deleted, now or over the next batches."""
        ...


class TaskState(Protocol):
    """All stores of one task, and its small numbers (``meta``), which are committed together."""

    def map(self, store: str) -> ByteMap: ...

    @property
    def meta(self) -> MutableMapping[str, int]: ...
