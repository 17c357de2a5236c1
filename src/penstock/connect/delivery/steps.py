"""The steps of delivery between which a task can die."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

__all__ = ["OnStep", "Step"]


class Step(Enum):
    """A step that is done. Of sources: POLLED to COMMITTED; of sinks: READ to COMMITTED."""

    POLLED = "the source was polled"
    CONVERTED = "records were transformed and converted"
    WRITTEN = "records and source offsets are in an open transaction"
    READ = "records were read from topics and converted"
    PUT = "the sink has taken records"
    FLUSHED = "the sink has flushed"
    COMMITTED = "the transaction, or the group's offsets, are committed"


OnStep = Callable[[Step], None]
