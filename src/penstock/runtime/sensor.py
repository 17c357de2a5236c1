"""What a running task tells about itself: one class with a method per event, all of which do nothing.

Subclasses turn events into metrics, traces or pictures. Every method is called once per batch, never per record.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Sensor"]


class Sensor:
    """Override what you want to know. Times are in seconds unless the name says otherwise."""

    def on_batch_start(self, task_id: str, records: int) -> None:
        """A batch of so many input records starts."""

    def on_batch_end(self, task_id: str, seconds: float, metrics: Mapping[str, int | float]) -> None:
        """The batch is processed; ``metrics`` are those of TaskOutput."""

    def on_node(self, task_id: str, node: str, rows_in: int, rows_out: int, seconds: float) -> None:
        """An operator has processed its rows of the batch."""

    def on_dropped(self, task_id: str, node: str, count: int, why: str) -> None:
        """Records were dropped."""

    def on_error(self, task_id: str, node: str, error: Exception, action: str) -> None:
        """A record failed; ``action`` is "fail" or "continue"."""

    def on_punctuation(self, task_id: str, node: str, timestamp_ms: int) -> None:
        """A punctuation ran."""
