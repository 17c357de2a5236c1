"""The producer of an embedded log."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import LogError
from penstock.log.base import TopicPartition
from penstock.log.embedded.membership import ConsumerIdentity
from penstock.log.producer_interface import (
    Delivery,
    OnDelivery,
    ProducerOptions,
    ProducerRecord,
    as_batch,
    call_back,
    parts_of,
)
from penstock.serde.partitioner import partition_for

if TYPE_CHECKING:
    from penstock.log.embedded.log import EmbeddedLog

__all__ = ["EmbeddedProducer"]

_Row = tuple[ProducerRecord, OnDelivery | None]
_Piece = list[_Row] | Any  # or a record batch


class EmbeddedProducer:
    """The producer of an embedded log, a `LogProducer`. It has no thread: ``send`` and ``poll`` check the clock.

    Within a transaction everything waits for its end; otherwise a flush is one unit.
    """

    def __init__(self, log: EmbeddedLog, options: ProducerOptions) -> None:
        self._log = log
        self._id = options.transactional_id
        self._epoch = log.new_producer_epoch(self._id) if self._id else None
        self._linger_s = options.linger_ms / 1000
        self._batch_bytes = options.batch_bytes
        self._waiting: dict[TopicPartition, list[_Piece]] = {}
        self._offsets: list[tuple[ConsumerIdentity, Mapping[TopicPartition, int]]] = []
        self._bytes = 0
        self._since = 0.0
        self._counts: dict[str, int] = {}
        self._turn: dict[str, int] = {}
        self._in_transaction = False

    def send(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> None:
        topic, value, key, _, partition, _ = record
        count = self._partitions(topic)
        if partition is None:
            partition = self._sticky(topic) if key is None else partition_for(key, count)
        elif not 0 <= partition < count:
            raise LogError(
                f"topic {topic!r} has no partition {partition}",
                hint=f"it has {count}, numbered from 0",
                topic=topic,
                partition=partition,
            )
        if not self._waiting:
            self._since = time.monotonic()
        pieces = self._waiting.setdefault(TopicPartition(topic, partition), [])
        if not pieces or not isinstance(pieces[-1], list):
            pieces.append([])
        pieces[-1].append((record, on_delivery))
        self._bytes += len(key or b"") + len(value or b"") + 32
        if self._bytes >= self._batch_bytes and not self._in_transaction:
            self.flush()
        else:
            self.poll()

    def send_batch(self, topic: str, records: pa.RecordBatch) -> None:
        for partition, part in parts_of(records, self._partitions(topic), self._turn.get(topic, 0)):
            self._waiting.setdefault(TopicPartition(topic, partition), []).append(part)
        self._turn[topic] = self._turn.get(topic, 0) + 1
        if not self._in_transaction:
            self.flush()

    def poll(self) -> None:
        if self._waiting and not self._in_transaction and time.monotonic() - self._since >= self._linger_s:
            self.flush()

    def flush(self) -> None:
        """Write all waiting records, in one unit. If that fails, they remain."""
        if not self._in_transaction:
            self._write()

    def begin(self) -> None:
        self.flush()
        self._in_transaction = True

    def commit(self) -> None:
        try:
            self._write()
        except BaseException:
            self._forget()
            raise
        finally:
            self._in_transaction = False

    def abort(self) -> None:
        self._forget()
        self._in_transaction = False

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group_metadata: object) -> None:
        assert isinstance(group_metadata, ConsumerIdentity)  # noqa: S101 - it comes from a consumer of the same log
        self._offsets.append((group_metadata, dict(offsets)))

    def close(self) -> None:
        self.flush()

    def _write(self) -> None:
        if not self._waiting and not self._offsets:
            return
        with self._log.transaction(self._id, self._epoch) as transaction:
            for tp, pieces in self._waiting.items():
                for piece in pieces:
                    transaction.append(tp.topic, tp.partition, _batch(piece))
            for member, offsets in self._offsets:
                transaction.commit_as(member, offsets)
        written = self._waiting
        for topic in {tp.topic for tp in written}:
            self._turn[topic] = self._turn.get(topic, 0) + 1
        self._forget()
        self._counts.clear()  # partitions may be added at any time
        for tp, pieces in written.items():
            _report_deliveries(tp, transaction.first_offsets[tp], pieces)

    def _forget(self) -> None:
        self._waiting, self._offsets, self._bytes = {}, [], 0

    def _partitions(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._log.partitions(topic)
        return self._counts[topic]

    def _sticky(self, topic: str) -> int:
        """Return the partition of all records without a key until the next write."""
        return self._turn.get(topic, 0) % self._partitions(topic)


def _report_deliveries(tp: TopicPartition, offset: int, pieces: Sequence[_Piece]) -> None:
    for piece in pieces:
        if isinstance(piece, list):
            for at, (record, on_delivery) in enumerate(piece, offset):
                if on_delivery is not None:
                    call_back(on_delivery, Delivery(tp.topic, tp.partition, at, record.timestamp), None)
        offset += len(piece)


def _batch(piece: _Piece) -> pa.RecordBatch:
    return as_batch([record for record, _ in piece]) if isinstance(piece, list) else piece
