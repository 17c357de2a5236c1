"""The events of a running task: one class with a method per event, all of which do nothing.

Subclasses turn events into metrics, traces or pictures. Every method is called once per batch, never per record.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Sensor"]


class Sensor:
    """Base of sensors: override the events of interest. Times are in seconds unless the name says otherwise."""

    def on_batch_start(self, task_id: str, records: int) -> None:
        """Called when a batch of so many input records starts."""

    def on_batch_end(self, task_id: str, seconds: float, metrics: Mapping[str, int | float]) -> None:
        """Called when a batch has been processed; ``metrics`` are those of TaskOutput."""

    def on_node_start(self, task_id: str, node: str) -> None:
        """Called when an operator begins with its rows of the batch."""

    def on_node(self, task_id: str, node: str, rows_in: int, rows_out: int, seconds: float) -> None:
        """Called when an operator has processed its rows of the batch."""

    def on_dropped(self, task_id: str, node: str, count: int, why: str) -> None:
        """Called when records were dropped."""

    def on_field_missing(self, task_id: str, node: str, field: str, values: int) -> None:
        """Called when an operator looks up a field that none of so many values has had."""

    def on_error(self, task_id: str, node: str, error: Exception, action: str) -> None:
        """Called when a record failed; ``action`` is "fail" or "continue"."""

    def on_punctuation(self, task_id: str, node: str, timestamp_ms: int) -> None:
        """Called when a punctuation ran."""
