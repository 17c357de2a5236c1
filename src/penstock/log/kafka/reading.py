"""Ranges of topic partitions, read by an ordinary consumer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka import KafkaError, TopicPartition

from penstock.errors import LogUnavailableError, OffsetOutOfRangeError
from penstock.log.base import HEADERS_TYPE, RECORD_SCHEMA
from penstock.log.kafka.failures import failure, is_transient

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

__all__ = ["EMPTY", "RangeReader"]

EMPTY = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in RECORD_SCHEMA], schema=RECORD_SCHEMA)
_AT_ONCE = 50_000
_LOOK_S = 0.2
_OUT_OF_RANGE = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._NO_OFFSET}  # noqa: SLF001


class RangeReader:
    """Reads ranges with one consumer, one after the other; not for several threads at once.

    Args:
        make: Gives the consumer.
        patience_s: How long nothing may come before it gives up.
    """

    def __init__(self, make: Callable[[], Consumer], patience_s: float) -> None:
        self._make = make
        self._patience_s = patience_s
        self._consumer: Consumer | None = None
        self.position = 0

    def read(self, topic: str, partition: int, start: int, end: int | None, most: int) -> Iterator[pa.RecordBatch]:
        """Records with start <= offset < end, at most ``most``; without ``end``, those that are there now.

        Afterwards `position` tells where to read on: gaps that transactions and compaction have left are passed.

        Raises:
            OffsetOutOfRangeError: Retention has removed ``start``, or the log ends before it.
            LogUnavailableError: No broker answers.
        """
        self.position = start
        if most <= 0 or (end is not None and start >= end):
            return
        if self._consumer is None:
            self._consumer = self._make()
        consumer = self._consumer
        consumer.assign([TopicPartition(topic, partition, start)])
        try:
            deadline = time.monotonic() + self._patience_s
            while most > 0 and (end is None or self.position < end):
                messages = consumer.consume(min(most, _AT_ONCE), 0)
                if not messages:
                    one = consumer.poll(_LOOK_S)
                    messages = [] if one is None else [one]
                if messages:
                    deadline = time.monotonic() + self._patience_s
                elif time.monotonic() > deadline:
                    raise LogUnavailableError(
                        f"reading {topic}-{partition} at offset {self.position}: nothing came for "
                        f"{self._patience_s:.0f} s",
                        hint="Is the broker up and reachable? See bootstrap.servers and task.timeout.ms.",
                        topic=topic, partition=partition, offset=self.position,
                    )  # fmt: skip
                batch, ended = self._take(messages, topic, partition, end)
                if batch.num_rows:
                    most -= batch.num_rows
                    yield batch
                if ended and (end is None or self.position >= end):
                    return
        finally:
            consumer.unassign()  # or it would go on fetching

    def _take(
        self, messages: list[Message], topic: str, partition: int, end: int | None
    ) -> tuple[pa.RecordBatch, bool]:
        """The wanted ones as a batch, and whether the partition's end was reached."""
        ended = False
        good = []
        for message in messages:
            error = message.error()
            if error is None:
                good.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                ended = True
            elif error.code() in _OUT_OF_RANGE:
                raise OffsetOutOfRangeError(
                    f"{topic}-{partition} has no offset {self.position}: {error.str()}",
                    hint="Retention has removed it, or the topic was created anew.",
                    topic=topic, partition=partition, offset=self.position,
                )  # fmt: skip
            elif not is_transient(error):
                raise failure(error, f"reading {topic}-{partition}", topic=topic, partition=partition)
        offsets = [message.offset() for message in good]
        if end is not None and offsets and offsets[-1] >= end:
            inside = sum(offset < end for offset in offsets)
            good, offsets, self.position = good[:inside], offsets[:inside], end
        elif offsets:
            self.position = offsets[-1] + 1
        if ended:
            self.position = max(self.position, *(m.offset() for m in messages if m.error() is not None))
        return (_batch(good, offsets) if good else EMPTY), ended

    def close(self) -> None:
        """Closes the consumer."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _batch(messages: list[Message], offsets: list[int]) -> pa.RecordBatch:
    headers = [message.headers() for message in messages]
    packed: pa.Array = pa.nulls(len(messages), HEADERS_TYPE)
    if any(headers):
        packed = pa.array([None if not h else [{"key": k, "value": v} for k, v in h] for h in headers], HEADERS_TYPE)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(offsets, pa.int64()),
            pa.array([message.timestamp()[1] for message in messages], pa.int64()),
            pa.array([message.key() for message in messages], pa.large_binary()),
            pa.array([message.value() for message in messages], pa.large_binary()),
            packed,
        ],
        schema=RECORD_SCHEMA,
    )
