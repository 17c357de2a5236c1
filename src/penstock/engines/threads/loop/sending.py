"""The records of a stream thread on their way to the log: whose they are, and which of them the log refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.errors import ProductionError

if TYPE_CHECKING:
    from penstock.engines.threads.outputs import RefusedRecords
    from penstock.log.base import OffsetAndMetadata, TopicPartition
    from penstock.log.thread_clients import Part, ThreadProducer

__all__ = ["Sender"]


class Sender:
    """The sender of what the tasks of a thread write, with Kafka's answer to records that the log refuses.

    Args:
        producer: The thread's producer.
        refused: The application's answer to refused records.
    """

    def __init__(self, producer: ThreadProducer, refused: RefusedRecords) -> None:
        self._producer = producer
        self._refused = refused
        self._sent_by: list[str] = []  # the task of each part that waits in the producer

    @property
    def pending_bytes(self) -> int:
        """The size of the records that wait for a commit."""
        return self._producer.pending_bytes

    def send(self, parts: Sequence[Part], task: str) -> None:
        """Send the outputs of a task: exactly once with the next commit, at least once at once.

        Raises:
            ProductionError: The log refuses records, and production.exception.handler says fail.
            FencedError: A newer thread or instance has taken over.
        """
        tasks = [task] * len(parts)
        while True:
            try:
                self._producer.send(parts)
            except ProductionError as error:
                parts, tasks = [*self._producer.collected(), *parts], [*self._sent_by, *tasks]
                parts, tasks = self._refused.without(parts, tasks, error)
                self._producer.replace(())
                self._sent_by = []
            else:
                waiting = len(self._producer.collected())
                self._sent_by = [*self._sent_by, *tasks][-waiting:] if waiting else []
                return

    def flush(self) -> None:
        """At least once: wait until the log has taken all outputs; see `send`."""
        while self._producer.collected():
            self.send((), "")

    def collect(self, parts: Sequence[Part], task: str) -> None:
        """Send changelog records of a task with the next commit."""
        self._sent_by += [task] * self._producer.collect(parts)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Mapping[TopicPartition, int]:
        """Commit what has been sent, with these offsets; return the offset after the last record of each partition.

        Raises:
            ProductionError: The log refuses records, and production.exception.handler says fail.
            FencedError: A newer thread or instance has taken over.
        """
        while True:
            try:
                following = self._producer.commit(offsets)
            except ProductionError as error:
                parts, self._sent_by = self._refused.without(self._producer.collected(), self._sent_by, error)
                self._producer.replace(parts)
            else:
                self._sent_by = []
                return following
