"""The position of a replica: the state that its rows stand for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from penstock.state.segments.segment import NO_BATCH

__all__ = ["ReplicaPosition"]


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
