"""Reading of offset ranges as columns, with retries after temporary failures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from penstock.base.backoff import Backoff
from penstock.base.log_lines import own_logger
from penstock.errors import OffsetOutOfRangeError
from penstock.log.base import RECORD_SCHEMA, TopicPartition
from penstock.log.kafka.failures import error_of, failure, may_pass, patience_for
from penstock.log.kafka.wire.fetch import fetch_once, fetch_range

if TYPE_CHECKING:
    from penstock.log.base import Isolation
    from penstock.log.kafka.access import ClusterAccess
    from penstock.log.kafka.wire.cluster import Cluster

__all__ = ["EMPTY", "RangeReader"]

EMPTY = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in RECORD_SCHEMA], schema=RECORD_SCHEMA)
_log = own_logger(__name__)
_BACKOFF = Backoff(0.05, 0.3)
_AT_ONCE_BYTES = 4 << 20


class RangeReader:
    """A reader of offset ranges, one after the other.

    Args:
        cluster: The cluster.
        isolation: Whether records of aborted and open transactions are left out.
        patience_s: The time without progress after which it gives up.
        access: Explains refusals.

    Attributes:
        position: The next offset after `read`, behind the gaps that transactions and compaction have left.
    """

    def __init__(
        self, cluster: Cluster, isolation: Isolation, patience_s: float, access: ClusterAccess | None = None
    ) -> None:
        self._access = access
        self._cluster = cluster
        self._isolation = isolation
        self._patience_s = patience_s
        self.position = 0

    def read(
        self, topic: str, partition: int, start: int, end: int | None = None, most: int = 1 << 60
    ) -> Iterator[pa.RecordBatch]:
        """Yield records with start <= offset < end, at most ``most``; without ``end``, up to the present end.

        Raises:
            OffsetOutOfRangeError: Retention has removed ``start``, or the log ends before it.
            LogUnavailableError: No broker answers.
        """
        tp = TopicPartition(topic, partition)
        self.position = start
        deadline, failures = time.monotonic() + self._patience_s, 0
        while most > 0 and (end is None or self.position < end):
            before = self.position
            try:
                for batch in self._now(tp) if end is None else self._until(tp, end):
                    if batch.num_rows >= most:
                        self.position = batch.column("offset")[most - 1].as_py() + 1
                        yield batch.slice(0, most)
                        return
                    most -= batch.num_rows
                    yield batch
            except KafkaException as error:
                if self.position > before:
                    deadline, failures = time.monotonic() + self._patience_s, 0
                failures += 1
                self._pause_or_raise(error, tp, deadline, _BACKOFF.pause_s(failures))
            else:
                return

    def _until(self, tp: TopicPartition, end: int) -> Iterator[pa.RecordBatch]:
        for fetched in fetch_range(self._cluster, tp, (self.position, end), self._isolation, self._patience_s):
            self.position = fetched.next_offset
            if fetched.records.num_rows:
                yield fetched.records

    def _now(self, tp: TopicPartition) -> Iterator[pa.RecordBatch]:
        while True:
            fetched = fetch_once(self._cluster, tp, self.position, _AT_ONCE_BYTES, self._isolation)
            if fetched.next_offset == self.position:
                return
            self.position = fetched.next_offset
            if fetched.records.num_rows:
                yield fetched.records

    def _pause_or_raise(self, error: KafkaException, tp: TopicPartition, deadline: float, pause: float) -> None:
        name = f"{tp.topic}-{tp.partition}"
        if error_of(error).code() == KafkaError.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRangeError(
                f"{name} has no offset {self.position}",
                hint="Retention has removed it, or the topic was created again.",
                topic=tp.topic, partition=tp.partition, offset=self.position,
            ) from error  # fmt: skip
        deadline += patience_for(error, self._patience_s) - self._patience_s
        if not may_pass(error) or time.monotonic() + pause > deadline:
            facts = {"topic": tp.topic, "partition": tp.partition, "operation": "READ"}
            raise failure(error, f"reading {name}", self._access, **facts) from error
        _log.warning("reading %s at offset %d: %s; trying again", name, self.position, error_of(error).str())
        self._cluster.forget()
        time.sleep(pause)
