"""Windows as data, in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["WindowSpec"]


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """``kind`` "time" is tumbling (advance = size) or hopping; the others come with their operators.

    ``size_ms`` is the window's size (sliding: the time difference; session: the inactivity gap).
    """

    kind: Literal["time", "sliding", "session", "unlimited"]
    size_ms: int
    advance_ms: int = 0
    grace_ms: int = 0
    start_ms: int = 0
