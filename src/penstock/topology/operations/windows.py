"""Windows as data, in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["WindowSpec"]

_LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Windows of one kind; ``kind`` "time" is tumbling (advance = size) or hopping.

    ``size_ms`` is the window's size (sliding: the time difference; session: the inactivity gap).
    """

    kind: Literal["time", "sliding", "session", "unlimited"]
    size_ms: int
    advance_ms: int = 0
    grace_ms: int = 0
    start_ms: int = 0

    @property
    def closes_after_ms(self) -> int:
        """The time from a window's end to its close: grace; a session can still grow for the gap before that."""
        return self.grace_ms + (self.size_ms if self.kind == "session" else 0)

    @property
    def retention_ms(self) -> int:
        """The least time for which a store has to keep the windows.

        A record of sliding windows looks back twice the time difference.
        """
        sizes = 2 if self.kind == "sliding" else 1
        return min(sizes * self.size_ms + self.grace_ms, _LONG_MAX)
