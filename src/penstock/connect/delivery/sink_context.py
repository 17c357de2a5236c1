"""What a sink's task may ask of its delivery."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from penstock.connect.api import ErrantRecordReporter
from penstock.log.base import TopicPartition

__all__ = ["SinkContext", "SinkControl"]


class SinkControl(Protocol):
    """The part of a delivery that its context uses."""

    @property
    def assignment(self) -> Collection[TopicPartition]: ...
    def seek(self, offsets: Mapping[TopicPartition, int]) -> None: ...
    def pause(self, places: Collection[TopicPartition]) -> None: ...
    def resume(self, places: Collection[TopicPartition]) -> None: ...


class SinkContext:
    """The `SinkTaskContext` of a task.

    Args:
        settings: The task's config.
        control: The delivery.
        log_identity: The id of the log that the records come from.
        reporter: Takes records that cannot be written.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        control: SinkControl,
        log_identity: str,
        reporter: ErrantRecordReporter | None,
    ) -> None:
        self.settings = settings
        self.log_identity = log_identity
        self.errant_record_reporter = reporter
        self._control = control
        self._timeout_ms: int | None = None
        self.commit_requested = False

    @property
    def assignment(self) -> Collection[TopicPartition]:
        """The partitions that the task reads."""
        return self._control.assignment

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on."""
        self._control.seek(offsets)

    def timeout(self, timeout_ms: int) -> None:
        """Wait so long before the next try."""
        self._timeout_ms = timeout_ms

    def take_timeout_ms(self, default: int) -> int:
        """Return the time to wait that was asked for last, once."""
        timeout_ms, self._timeout_ms = self._timeout_ms, None
        return default if timeout_ms is None else timeout_ms

    def pause(self, *places: TopicPartition) -> None:
        """Read these partitions no further until `resume`."""
        self._control.pause(places)

    def resume(self, *places: TopicPartition) -> None:
        """Read these partitions again."""
        self._control.resume(places)

    def request_commit(self) -> None:
        """Commit offsets soon."""
        self.commit_requested = True
