"""Delivery of a source's task: poll, transform, convert, and one transaction of records and source offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.clock import unix_ms
from penstock.connect.api import OffsetReader, SourceTask, TransactionContext
from penstock.connect.data import RetriableError, SourceRecord
from penstock.connect.delivery.conversion import Converters, Encoded, batches_of
from penstock.connect.delivery.steps import OnStep, Step
from penstock.connect.delivery.stored_offsets import StoredOffsets, ensure_topic
from penstock.connect.plugins import TransformationChain
from penstock.log.base import TopicLog

__all__ = ["SourceDelivery"]

Position = tuple[Mapping[str, Any], Mapping[str, Any] | None]  # a source partition and its offset


@dataclass(frozen=True, slots=True)
class _Context:
    settings: Mapping[str, str]
    offset_reader: OffsetReader
    transaction_context: TransactionContext | None = None


class SourceDelivery:
    """One task of a source and what carries its records to topics, exactly once.

    Args:
        log: The log that is written to.
        identity: The name of the connector and the number of the task.
        task: The task, not started yet.
        settings: Its config.
        converters: The converters.
        chain: The transformations.
        on_step: Called after each step of `deliver`; tests raise in it what kills the task.
    """

    def __init__(
        self,
        log: TopicLog,
        identity: tuple[str, int],
        task: SourceTask,
        settings: Mapping[str, str],
        converters: Converters,
        chain: TransformationChain,
        *,
        on_step: OnStep = lambda _step: None,
        clock_ms: Callable[[], int] = unix_ms,
    ) -> None:
        self.task, self.settings = task, settings
        self.offsets = StoredOffsets(log, identity[0])
        self._log = log
        self._id = f"connect-{identity[0]}-{identity[1]}"
        self._converters, self._chain = converters, chain
        self._on_step, self._clock_ms = on_step, clock_ms
        self._turn = identity[1]
        self.written = 0

    def start(self) -> None:
        """Start the task at its stored offsets."""
        self.task.context = _Context(self.settings, self.offsets)
        self.task.start(self.settings)

    def stop(self) -> None:
        """Stop the task."""
        self.task.stop()
        self._chain.close()

    def deliver(self) -> list[SourceRecord]:
        """Poll once, and write what comes; returns what the task returned.

        Raises:
            ConnectError: The task, a transformation or a converter fails: nothing of the batch is written.
        """
        try:
            polled = list(self.task.poll() or ())
        except RetriableError:
            return []
        self._on_step(Step.POLLED)
        if not polled:
            return []
        kept = [(record, made) for record in polled if (made := self._chain.apply(record)) is not None]
        encoded = [self._converters.encode(made, self._clock_ms()) for _, made in kept]
        self._on_step(Step.CONVERTED)
        self._write(encoded, _offsets(polled))
        self._on_step(Step.COMMITTED)
        for record in polled:
            self.task.commit_record(record, None)
        self.task.commit()
        return polled

    def _write(self, records: list[Encoded], offsets: Sequence[Position]) -> None:
        default = int(self.settings.get("topic.creation.default.partitions", "1"))
        partitions = {topic: ensure_topic(self._log, topic, default) for topic in {r.topic for r in records}}
        with self._log.transaction(self._id) as transaction:
            for place, batch in batches_of(records, partitions, self._turn):
                transaction.append(place.topic, place.partition, batch)
            self.offsets.write(transaction, offsets)
            self._on_step(Step.WRITTEN)
        self._turn += 1
        self.written += len(records)


def _offsets(polled: Sequence[SourceRecord]) -> list[Position]:
    """The last offset of each source partition; that of a record which a transformation drops counts too."""
    last: dict[str, Position] = {}
    for record in polled:
        if record.source_partition is not None:
            name = repr(sorted(record.source_partition.items(), key=lambda item: item[0]))
            last.pop(name, None)
            last[name] = (record.source_partition, record.source_offset)
    return list(last.values())
