"""A replica: committed rows of a task's stores with the position that they stand for, in LMDB or in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.clock import boot_id, since_boot_ms, unix_ms
from penstock.state.maps import MemoryMap
from penstock.state.segments.segment import NO_BATCH

if TYPE_CHECKING:
    from penstock.state.maps import ReadableMap

__all__ = ["MemoryReplica", "Pieces", "Replica", "ReplicaPosition", "ReplicaRows", "time_notes", "time_since"]


@dataclass(frozen=True, slots=True)
class ReplicaPosition:
    """The position of a replica.

    Attributes:
        batch: Micro-batches: the batch up to which it holds all.
        head: Micro-batches: its newest segment.
        checksum: The checksum of that segment.
        meta: The task's numbers.
        notes: Further facts, as JSON holds them: the positions of a stream thread's replica in its changelogs.
    """

    batch: int = NO_BATCH
    head: int = NO_BATCH
    checksum: str = ""
    meta: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    def dump(self) -> bytes:
        """Return the position as JSON; without notes as earlier versions wrote it, which know none."""
        facts = {"batch": self.batch, "head": self.head, "checksum": self.checksum, "meta": self.meta}
        return json.dumps(facts | {"notes": self.notes} if self.notes else facts).encode()

    @classmethod
    def load(cls, data: bytes | None) -> ReplicaPosition:
        """Return the position that `dump` wrote; the beginning for None.

        Raises:
            ValueError: It is not one.

        >>> ReplicaPosition.load(ReplicaPosition(3, 3, "ab", {"stream_time": 7}).dump()).meta
        {'stream_time': 7}
        """
        if not data:
            return cls()
        facts = json.loads(data)
        try:
            return cls(**facts)
        except TypeError as error:
            raise ValueError(f"not the position of a replica: {error}") from error


def time_notes() -> dict[str, Any]:
    """Return the present time as a replica notes it, for `time_since`."""
    return {"noted_ms": unix_ms(), "boot": [boot_id(), since_boot_ms()]}


def time_since(noted_ms: int, boot: tuple[str, int]) -> int | None:
    """Return the milliseconds since a replica noted its position; None if that is not known, as the clock was set back.

    A wall clock may be set, so within one start of the machine the clock that runs since then counts.

    Args:
        noted_ms: The wall-clock time of the note.
        boot: The id of the machine's start at the note, and the milliseconds since that start.
    """
    boot_then, at_ms = boot
    if boot_then and boot_then == boot_id():
        return since_boot_ms() - at_ms
    away_ms = unix_ms() - noted_ms
    return away_ms if away_ms >= 0 else None


Pieces = Callable[[str], Iterable[tuple[list[bytes], list[bytes | None]]]]


class ReplicaRows(Protocol):
    """The rows of a replica at one moment, the same for all stores; to be closed."""

    def map(self, store: str) -> ReadableMap: ...
    def close(self) -> None: ...


class Replica(Protocol):
    """Committed rows with the position that they stand for (in LMDB: `LmdbReplica`)."""

    position: ReplicaPosition

    def apply(
        self, stores: Sequence[str], changes: Pieces, position: ReplicaPosition, *, fresh: bool = False
    ) -> None: ...
    def clear(self, stores: Iterable[str], position: ReplicaPosition) -> None: ...
    def reset(self) -> None: ...
    def give_back(self) -> bool: ...
    def reader(self) -> ReplicaRows: ...
    def close(self) -> None: ...


class MemoryReplica:
    """A replica without a file, which is gone with its process."""

    def __init__(self, stores: Iterable[str]) -> None:
        self._maps = {store: MemoryMap() for store in stores}
        self.position = ReplicaPosition()

    def apply(
        self,
        stores: Sequence[str],
        changes: Pieces,
        position: ReplicaPosition,
        *,
        fresh: bool = False,  # noqa: ARG002 - of no use here
    ) -> None:
        for store in stores:
            for keys, values in changes(store):
                self._maps[store].put_many(keys, values)
        self.position = position

    def clear(self, stores: Iterable[str], position: ReplicaPosition) -> None:
        for store in stores:
            self._maps[store] = MemoryMap()
        self.position = position

    def reset(self) -> None:
        self.clear(list(self._maps), ReplicaPosition())

    def give_back(self) -> bool:
        """Return False: there is nothing to give back."""
        return False

    def reader(self) -> MemoryReplica:
        return self

    def map(self, store: str) -> MemoryMap:
        return self._maps[store]

    def close(self) -> None:
        """Do nothing: as a reader it holds nothing."""
